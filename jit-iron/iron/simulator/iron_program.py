"""Runtime sequences and programs of `aie.iron`, in the forms of IRON 1.3 and 1.4."""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from typing import Callable

from . import objects
from .array_program import ArrayProgram, Core, Device, array_shape
from .errors import BadCall, caller
from .hardware import SHIM_ROW, Tile
from .iron_objects import AnyShimTile, Buffer, FifoLink, ObjectFifo, ObjectFifoHandle, Worker, WorkerRuntimeBarrier, tile_of
from .machine import SimulatedModule
from .placement import Placer
from .shim import HostTensor, Transfer, require_tensor


class ShimEnd:
    """The runtime sequence as user of a fifo's end."""

    is_shim = True

    def __str__(self) -> str:
        return "the runtime sequence"


_SHIM = ShimEnd()


def attach_to_shim(handle: ObjectFifoHandle, is_prod: bool, tile: object) -> None:
    """Marks an end as the runtime sequence's."""
    if not isinstance(handle, ObjectFifoHandle):
        raise BadCall(f"{handle!r} is not an end of a fifo")
    if handle.is_prod != is_prod:
        raise BadCall(f"fifo {handle.name}: fill takes its prod(), drain its cons()")
    handle.attach(_SHIM)
    placed = tile_of(tile)
    if placed is not None:
        if placed.row != SHIM_ROW:
            raise BadCall(f"fifo {handle.name} meets the runtime sequence at {placed}, which is not a shim")
        handle.tile = placed


def transfer(handle: ObjectFifoHandle, tensor: HostTensor, tap: object, wait: bool, to_host: bool, place: str) -> Transfer:
    """The task that moves what `tap` names, or all of the tensor."""
    require_tensor(tensor)
    if tap is None:
        shape = tensor.shape
        rows, columns = (1, shape[0]) if len(shape) == 1 else (prod(shape[:-1]), shape[-1])
        sizes, strides, offset = ([1, 1, 1, rows * columns], [0, 0, 0, 1], 0) if rows == 1 else (
            [1, 1, rows, columns], [0, 0, columns, 1], 0)
    else:
        sizes, strides, offset = list(tap.sizes), list(tap.strides), int(tap.offset)
    return Transfer(tensor, handle.fifo.resolved or handle.fifo, to_host, offset, sizes, strides, wait, place)


class TaskGroup:
    """Tasks that end together: those with a token are waited for, then the descriptors of the others are free."""

    def __init__(self) -> None:
        self.tasks: list[Transfer] = []
        self.finished = False

    def finish(self) -> None:
        """Ends the group."""
        machine = objects.machine()
        for task in self.tasks:
            if task.token:
                machine.wait(task)
        for task in self.tasks:
            if not task.token:
                machine.free(task)
        self.tasks = []


class RuntimeTaskGroup:
    """A group of IRON 1.3, known by what the sequence has recorded."""

    def __init__(self, place: str) -> None:
        self.place, self.finished = place, False


class RecordedRuntime:
    """`Runtime` of IRON 1.3: what is called inside `with rt.sequence(...)` is done by the sequence."""

    def __init__(self, strict_task_groups: bool = True) -> None:
        self._strict, self._types, self._place = strict_task_groups, [], caller()
        self._steps: list[Callable[[dict], None]] = []
        self._groups: list[RuntimeTaskGroup] = []
        self._default_used = self._open = False
        self.workers: list[Worker] = []
        self.handles: list[ObjectFifoHandle] = []
        self.buffers: list[Buffer] = []

    @contextmanager
    def sequence(self, *input_types: type):
        """The runtime sequence, with these arguments."""
        if self._types:
            raise BadCall("a Runtime has one sequence")
        self._types, self._open, self._place = list(input_types), True, caller()
        tensors = [HostTensor(index, of_type) for index, of_type in enumerate(input_types)]
        yield tensors[0] if len(tensors) == 1 else tuple(tensors)
        self._open = False
        for group in self._groups:
            if not group.finished:
                raise BadCall("a task group is never finished", group.place)

    def start(self, *workers: Worker) -> None:
        """These workers belong to the program."""
        for worker in workers:
            if not isinstance(worker, Worker):
                raise BadCall(f"{worker!r} is not a worker; start takes workers one by one")
        self.workers += workers

    def fill(self, in_fifo, source, tap=None, task_group=None, wait=False, placement=AnyShimTile, tile=None) -> None:
        """Moves from an argument into a fifo."""
        self._move(in_fifo, source, tap, task_group, wait, tile or placement, to_host=False)

    def drain(self, out_fifo, dest, tap=None, task_group=None, wait=False, placement=AnyShimTile, tile=None) -> None:
        """Moves from a fifo to an argument."""
        self._move(out_fifo, dest, tap, task_group, wait, tile or placement, to_host=True)

    def task_group(self) -> RuntimeTaskGroup:
        """A new group."""
        self._groups.append(RuntimeTaskGroup(caller()))
        return self._groups[-1]

    def finish_task_group(self, task_group: RuntimeTaskGroup) -> None:
        """Waits for the group."""
        if task_group.finished:
            raise BadCall("this task group has been finished before")
        task_group.finished = True
        self._steps.append(lambda state: state["groups"].setdefault(task_group, TaskGroup()).finish())

    def inline_ops(self, inline_func: Callable, inline_args: list) -> None:
        """Runs a function in the sequence."""
        self.buffers += [argument for argument in inline_args if isinstance(argument, Buffer)]
        self._steps.append(lambda state: inline_func(*inline_args))

    def set_barrier(self, barrier: WorkerRuntimeBarrier, value: int) -> None:
        """Sets a barrier's lock in all of its workers."""
        self._steps.append(lambda state: barrier.set(value))

    def enable_trace(self, *_arguments: object, **_options: object) -> None:
        """Traces are not simulated; results are the same without."""

    def _move(self, handle, tensor, tap, group, wait, tile, to_host: bool) -> None:
        if not self._open:
            raise BadCall("fill and drain belong inside of `with runtime.sequence(...)`")
        attach_to_shim(handle, not to_host, tile)
        self.handles.append(handle)
        if group is None:
            self._default_used = True
        if self._strict and self._default_used and self._groups:
            raise BadCall("some transfers have a task group and some do not; give all one, or none")
        if group is not None and group.finished:
            raise BadCall(f"a transfer of fifo {handle.name} is put into a task group that is finished")
        place = caller()
        transfer(handle, tensor, tap, wait, to_host, place)

        def step(state: dict) -> None:
            task = transfer(handle, state["tensors"][tensor.index], tap, wait, to_host, place)
            objects.machine().start(task)
            state["groups"].setdefault(group, TaskGroup()).tasks.append(task)

        self._steps.append(step)

    def into(self, program: ArrayProgram) -> None:
        """States the sequence."""
        if not self._types:
            raise BadCall("the Runtime has no sequence", self._place)
        program.argument_types, program.place = self._types, self._place

        def run(*tensors: HostTensor) -> None:
            state = {"tensors": tensors, "groups": {}}
            for step in self._steps:
                step(state)
            if None in state["groups"]:
                state["groups"][None].finish()

        program.sequence = run


class FunctionRuntime:
    """`Runtime` of IRON 1.4: a function that is given tensors and fifo ends."""

    def __init__(self, sequence_fn: Callable, args: list, **_options: object) -> None:
        self._function, self._arguments, self._place = sequence_fn, list(args), caller()
        self.workers: list[Worker] = []
        self.handles = [argument for argument in self._arguments if isinstance(argument, ObjectFifoHandle)]
        self.buffers = [argument for argument in self._arguments if isinstance(argument, Buffer)]
        self._types = [argument for argument in self._arguments if hasattr(argument, "__args__")]
        for handle in self.handles:
            attach_to_shim(handle, handle.is_prod, handle.tile)
        for of_type in self._types:
            array_shape(of_type)

    def into(self, program: ArrayProgram) -> None:
        """States the sequence."""
        program.argument_types, program.place = self._types, self._place

        def run(*tensors: HostTensor) -> None:
            left = list(tensors)
            running = [left.pop(0) if hasattr(argument, "__args__") else argument for argument in self._arguments]
            default = objects.running("the sequence").context["default_group"] = TaskGroup()
            self._function(*running)
            default.finish()

        program.sequence = run


class PlacedFifoHandle(ObjectFifoHandle):
    """A fifo's end of IRON 1.4, which fills and drains by itself."""

    def fill(self, source: HostTensor, tap=None, group: TaskGroup | None = None, wait: bool = False) -> None:
        """Moves from an argument into the fifo."""
        self._move(source, tap, group, wait, to_host=False)

    def drain(self, dest: HostTensor, tap=None, group: TaskGroup | None = None, wait: bool = False) -> None:
        """Moves from the fifo to an argument."""
        self._move(dest, tap, group, wait, to_host=True)

    def _move(self, tensor, tap, group, wait, to_host: bool) -> None:
        if self.is_prod == to_host:
            raise BadCall(f"fifo {self.name}: fill is for its prod(), drain for its cons()")
        task = transfer(self, tensor, tap, wait, to_host, caller())
        machine = objects.machine()
        machine.start(task)
        group = objects.running("a transfer").context["default_group"] if group is None else group
        group.tasks.append(task)


class Program:
    """A device, its workers and the runtime sequence."""

    def __init__(self, device: Device, rt: object, workers: list[Worker] | None = None) -> None:
        self._device, self._runtime, self._workers, self._place = device, rt, list(workers or []), caller()
        if not isinstance(getattr(device, "array", None), Device):
            raise BadCall(f"{device!r} is not a device of aie.iron.device")

    def resolve_program(self, placer: object = None, device_name: str = "main") -> SimulatedModule:
        """Places everything; what is returned can be executed."""
        program = ArrayProgram(self._device.array)
        workers = list(dict.fromkeys([*self._workers, *self._runtime.workers]))
        handles = [handle for worker in workers for handle in worker.fifos] + self._runtime.handles
        fifos, links = _closure(handles)
        named: dict[str, object] = {}
        for fifo in sorted(fifos, key=lambda fifo: fifo.name):
            if fifo.name in named:
                raise BadCall(f"two fifos are named {fifo.name}", fifo._place)
            named[fifo.name] = fifo
            program.fifos.append(fifo.resolve())
        program.links = [link.resolve() for link in links]
        _place(program, workers, getattr(placer, "cores_per_col", None))
        for worker in workers:
            if worker.core_fn is not None:
                program.cores.append(Core(worker.tile, worker.body(), worker.stack_size, worker.place))
            for buffer in worker.buffers:
                if buffer.core_buffer.tile not in (None, worker.tile):
                    raise BadCall(f"buffer {buffer.name} is given to workers of different cores", worker.place)
                buffer.core_buffer.tile = worker.tile
        buffers = [buffer for worker in workers for buffer in worker.buffers] + self._runtime.buffers
        program.buffers = list(dict.fromkeys(buffer.core_buffer for buffer in buffers))
        self._runtime.into(program)
        program.objects = objects.provided_objects()
        module = SimulatedModule(program)
        module.verify()
        return module


def _closure(handles: list[ObjectFifoHandle]) -> tuple[list, list[FifoLink]]:
    """All fifos that are reached from `handles` through links."""
    fifos, links, todo = [], [], [handle.fifo for handle in handles]
    while todo:
        fifo = todo.pop(0)
        if fifo in fifos:
            continue
        fifos.append(fifo)
        for handle in ([fifo._producer] if fifo._producer else []) + fifo._consumers:
            if isinstance(handle.endpoint, FifoLink) and handle.endpoint not in links:
                links.append(handle.endpoint)
                todo += [other.fifo for other in (*handle.endpoint.sources, *handle.endpoint.targets)]
    return fifos, links


def _place(program: ArrayProgram, workers: list[Worker], cores_per_column: int | None) -> None:
    placer = Placer(program.device, cores_per_column)
    for worker in workers:
        if worker.tile is not None:
            placer.reserve(worker.tile)
    for worker in workers:
        if worker.tile is None:
            worker.tile = placer.core(worker.place)
    ends = [(fifo, end) for fifo in program.fifos for end in (fifo.producer, *fifo.consumers)]
    for _, end in ends:
        if isinstance(end.owner, Worker):
            end.tile = end.owner.tile
    placer.count(program.fifos)
    for link in program.links:
        mine = [(fifo, end, end is not fifo.producer) for fifo, end in ends if end.owner is link.owner]
        if mine[0][1].tile is None:
            placer.link(link, mine)
    for fifo, end in ends:
        if end.tile is None:
            placer.shim(fifo, end, end is not fifo.producer)


class PlacedFifo(ObjectFifo):
    """`ObjectFifo` of IRON 1.4, whose ends take a tile."""

    def prod(self, depth: int | None = None, tile: Tile | None = None) -> PlacedFifoHandle:
        """The producing end, the same every time."""
        if self._producer is None:
            self._producer = PlacedFifoHandle(self, True, self._depth_of(depth), None)
        self._producer.tile = tile_of(tile) or self._producer.tile
        return self._producer

    def cons(self, depth: int | None = None, dims_from_stream: list | None = None, tile: Tile | None = None) -> PlacedFifoHandle:
        """A new consuming end."""
        dims = dims_from_stream if dims_from_stream is not None else self.dims_from_stream_per_cons
        self._consumers.append(PlacedFifoHandle(self, False, self._depth_of(depth), dims))
        self._consumers[-1].tile = tile_of(tile)
        return self._consumers[-1]


class TiledWorker(Worker):
    """`Worker` of IRON 1.4, which knows no `placement`."""

    def __init__(
        self, core_fn: Callable | None, fn_args: list = [], tile=None, while_true: bool = True, stack_size: int | None = None,  # noqa: B006
        trace: int | None = None, trace_events: list | None = None, dynamic_objfifo_lowering: bool | None = None,
    ) -> None:
        super().__init__(core_fn, fn_args, tile=tile, while_true=while_true, stack_size=stack_size)
