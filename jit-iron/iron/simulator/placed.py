"""The placed API, `aie.dialects.aie` and `aie.dialects.aiex`: designs that name tiles, fifos and transfers one by one."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import Callable

from . import objects
from .array_program import ArrayProgram, Core, CoreBuffer, End, Fifo, Link, array_shape, dims_of
from .control_flow import range_
from .devices import array, names
from .errors import BadCall, Unknown, caller
from .hardware import DEFAULT_STACK, SHIM_ROW, Tile
from .machine import SimulatedModule
from .memory import number_of
from .scheduler import current
from .shim import HostTensor, Transfer, require_tensor

AIEDevice = Enum("AIEDevice", {placed: placed for placed in names().values()})


class ObjectFifoPort(Enum):
    """The side of a fifo that a core uses."""

    Produce = 0
    Consume = 1


class LockAction(Enum):
    """What a core does with a lock."""

    Acquire = 0
    Release = 1
    AcquireGreaterEqual = 2


class Context:
    """What `mlir_mod_ctx` gives: the module of the design that is being built."""

    _open: list[Context] = []

    def __init__(self) -> None:
        self.program: ArrayProgram | None = None

    @property
    def module(self) -> SimulatedModule:
        """What can be executed."""
        if self.program is None:
            raise BadCall("the design states no device")
        self.program.objects = objects.provided_objects()
        module = SimulatedModule(self.program)
        module.verify()
        return module


@contextmanager
def mlir_mod_ctx(*_arguments: object, **_options: object):
    """The surroundings in which a design is stated."""
    context = Context()
    Context._open.append(context)
    try:
        yield context
    finally:
        Context._open.remove(context)


def _program(what: str) -> ArrayProgram:
    if not Context._open or Context._open[-1].program is None:
        raise BadCall(f"{what} belongs inside of a function decorated with @device")
    return Context._open[-1].program


def device(kind: AIEDevice, sym_name: str | None = None, **_options: object):
    """States a device; the decorated function states what is on it, at once."""

    def decorate(function: Callable) -> Callable:
        if not Context._open:
            raise BadCall("@device belongs inside of `with mlir_mod_ctx() as ctx:`")
        if Context._open[-1].program is not None:
            raise Unknown("a module with several devices is not simulated")
        Context._open[-1].program = ArrayProgram(array(kind.value), place=caller())
        function()
        return function

    return decorate


def tile(col: int, row: int, allocation_scheme: str | None = None) -> Tile:
    """A place in the array."""
    return Tile(int(col), int(row), allocation_scheme)


class external_func:  # noqa: N801 - IRON's name.
    """A core function of an object file."""

    def __init__(
        self, name: str, inputs: list, outputs: list | None = None, visibility: str = "private", link_with: str | None = None
    ) -> None:
        if outputs:
            raise Unknown(f"core function {name} returns something, which is not simulated")
        self.name, self.inputs, self.link_with = name, list(inputs), link_with

    def __call__(self, *arguments: object) -> None:
        link_with = self.link_with or objects.running(self.name).context["core"].link_with
        if not link_with:
            raise BadCall(f"core function {self.name} is linked from no object file: link_with is missing")
        objects.call_core_function(self.name, objects.object_source(link_with, self.name), self.inputs, arguments)


class object_fifo:  # noqa: N801 - IRON's name.
    """A fifo between given tiles."""

    def __init__(
        self, name: str, producerTile: Tile, consumerTiles, depth, datatype: type, dimensionsToStream=None,
        dimensionsFromStreamPerConsumer=None, initValues=None, via_DMA=None, plio=None, padDimensions=None,
        disable_synchronization=None, iter_count=None,
    ) -> None:
        if plio or disable_synchronization:
            raise Unknown(f"fifo {name} has plio or disable_synchronization, which are not simulated")
        consumers = list(consumerTiles) if isinstance(consumerTiles, (list, tuple)) else [consumerTiles]
        depths = list(depth) if isinstance(depth, (list, tuple)) else [depth] * (1 + len(consumers))
        if len(depths) != 1 + len(consumers) or any(int(d) < 1 for d in depths):
            raise BadCall(
                f"fifo {name} has depths {depths}; one for the producer and one for each of {len(consumers)} consumers, all at least 1"
            )
        dims = list(dimensionsFromStreamPerConsumer or [[] for _ in consumers])
        if len(dims) != len(consumers):
            raise BadCall(f"fifo {name} has {len(consumers)} consumers and {len(dims)} transformations from the stream")
        place = caller()
        ends = [End(int(depths[0]), dims_of(dimensionsToStream), producerTile, place)]
        ends += [End(int(d), dims_of(dim), at, place) for d, dim, at in zip(depths[1:], dims, consumers)]
        self.fifo = Fifo(
            name, datatype, ends[0], ends[1:], place, bool(via_DMA), initial=initValues, iterations=iter_count, padding=padDimensions
        )
        array_shape(datatype)
        program = _program("object_fifo")
        if any(other.name == name for other in program.fifos):
            raise BadCall(f"two fifos are named {name}")
        program.fifos.append(self.fifo)

    def acquire(self, port: ObjectFifoPort, num_elem: int) -> object:
        """In a core's program: waits for elements."""
        return self._port(port, "acquire").acquire(num_elem)

    def release(self, port: ObjectFifoPort, num_elem: int) -> None:
        """In a core's program: gives elements back."""
        self._port(port, "release").release(num_elem)

    def set_repeat_count(self, num: int) -> None:
        """How often a mem tile sends each element."""
        self.fifo.repeat = int(num)

    def _port(self, port: ObjectFifoPort, what: str):
        at = objects.core_tile(f"{what} of fifo {self.fifo.name}")
        if port == ObjectFifoPort.Produce:
            return objects.machine().port(self.fifo, at, True, -1)
        for index, end in enumerate(self.fifo.consumers):
            if end.tile == at:
                return objects.machine().port(self.fifo, at, False, index)
        consumers = ", ".join(str(end.tile) for end in self.fifo.consumers)
        raise BadCall(f"the core of {at} consumes of fifo {self.fifo.name}, whose consumers are {consumers}")


def object_fifo_link(fifoIns, fifoOuts, srcOffsets=(), dstOffsets=()) -> None:
    """Fifos that end and begin in the same memory."""
    program = _program("object_fifo_link")
    offsets = [int(n) for n in srcOffsets], [int(n) for n in dstOffsets]
    program.links.append(Link(_fifos(program, fifoIns), _fifos(program, fifoOuts), *offsets, caller()))


def _fifos(program: ArrayProgram, given: object) -> list[Fifo]:
    return [_fifo(program, one) for one in (given if isinstance(given, (list, tuple)) else [given])]


def _fifo(program: ArrayProgram, given: object) -> Fifo:
    if isinstance(given, object_fifo):
        return given.fifo
    found = next((fifo for fifo in program.fifos if fifo.name == given), None)
    if found is None:
        raise BadCall(f"{given!r} is not a fifo; there are {', '.join(fifo.name for fifo in program.fifos)}")
    return found


def buffer(tile: Tile, datatype: type, name: str | None = None, address=None, initial_value=None, use_write_rtp: bool = False):
    """A buffer of a core."""
    program = _program("buffer")
    made = CoreBuffer(name or f"buffer_{len(program.buffers)}", datatype, initial_value, caller(), tile)
    program.buffers.append(made)
    return objects.PlacedBuffer(made)


class _PlacedCore(Core):
    link_with: str | None = None


def core(tile: Tile, link_with: str | None = None, stack_size: int | None = None, dynamic_objfifo_lowering: bool | None = None):
    """States what a core runs."""

    def decorate(function: Callable) -> Callable:
        made = _PlacedCore(tile, objects.as_it_is_now(function), stack_size or DEFAULT_STACK, caller())
        made.link_with = link_with
        _program("core").cores.append(made)
        return function

    return decorate


class lock:  # noqa: N801 - IRON's name.
    """A lock that cores and the runtime sequence use."""

    def __init__(self, tile: Tile, lock_id: int | None = None, init: int | None = None, sym_name: str | None = None) -> None:
        self.tile, self.initial = tile, int(init or 0)


def use_lock(lock: lock, action: LockAction, value: int = 1, **_options: object) -> None:
    """In a core's program: takes from a lock, or gives to it."""
    machine = objects.machine()
    if action == LockAction.Release:
        machine.set_lock(lock, machine.lock(lock, lock.initial) + value)
        return
    exact = action == LockAction.Acquire
    current().wait(
        lambda: machine.lock(lock, lock.initial) == value if exact else machine.lock(lock, lock.initial) >= value,
        f"waits for a lock of {lock.tile} to be {value}",
    )
    machine.set_lock(lock, machine.lock(lock, lock.initial) - value)


def set_lock_value(lock: lock, value: int) -> None:
    """In the runtime sequence: sets a lock."""
    objects.machine().set_lock(lock, int(value))


def runtime_sequence(*types: type, sym_name: str | None = None):
    """States the runtime sequence."""

    def decorate(function: Callable) -> Callable:
        program = _program("runtime_sequence")
        if program.sequence is not None:
            raise Unknown("a device with several runtime sequences is not simulated")
        program.argument_types, program.place = list(types), caller()
        program.sequence = objects.as_it_is_now(function)
        return function

    return decorate


class Task:
    """A transfer that is configured and not started."""

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer


def _to_host(fifo: Fifo) -> bool:
    return fifo.producer.tile.row != SHIM_ROW


def _shape(tap, offset, sizes, strides, tensor: HostTensor) -> tuple[int, list[int], list[int]]:
    if tap is not None:
        if any(given is not None for given in (offset, sizes, strides)):
            raise BadCall("a transfer is given a tap and also its offset, sizes or strides; one of both")
        return int(tap.offset), list(tap.sizes), list(tap.strides)
    if sizes is None:
        raise BadCall("a transfer has neither a tap nor sizes")
    sizes = [int(number_of(size)) for size in sizes]
    strides = [0, 0, 0, 1] if strides is None else [int(number_of(stride)) for stride in strides]
    if isinstance(offset, (list, tuple)):
        steps = [*strides[: len(offset) - 1], 1] if len(strides) < len(offset) else strides
        offset = sum(int(number_of(one)) * step for one, step in zip(offset, steps))
    return int(offset or 0), sizes, strides


def npu_dma_memcpy_nd(
    metadata, bd_id: int, mem, tap=None, offsets=None, sizes=None, strides=None, issue_token: bool | None = None, burst_length: int = 0,
    packet=None,
) -> None:
    """In the runtime sequence: starts a transfer with a descriptor of the design's choice."""
    if packet is not None:
        raise Unknown("transfers as packets are not simulated")
    machine = objects.machine()
    fifo = _fifo(machine.program, metadata)
    offset, sizes, strides = _shape(tap, offsets, sizes, strides, require_tensor(mem))
    to_host = _to_host(fifo)
    # What comes from the array always sends a token.
    machine.start(Transfer(mem, fifo, to_host, offset, sizes, strides, bool(issue_token) or to_host, caller()), int(bd_id))


def dma_wait(*fifos: object) -> None:
    """In the runtime sequence: waits for a token of each fifo."""
    if not fifos:
        raise BadCall("dma_wait waits for at least one fifo")
    machine = objects.machine()
    for given in fifos:
        machine.wait_token(_fifo(machine.program, given))


def shim_dma_single_bd_task(
    alloc, mem, tap=None, offset=None, sizes=None, strides=None, transfer_len=None, issue_token: bool = False, burst_length: int = 0,
    packet=None,
) -> Task:
    """In the runtime sequence: configures a transfer."""
    if packet is not None or transfer_len is not None:
        raise Unknown("transfers as packets, or with a length of their own, are not simulated")
    fifo = _fifo(objects.machine().program, alloc)
    offset, sizes, strides = _shape(tap, offset, sizes, strides, require_tensor(mem))
    return Task(Transfer(mem, fifo, _to_host(fifo), offset, sizes, strides, issue_token, caller()))


def dma_start_task(*tasks: Task) -> None:
    """In the runtime sequence: starts transfers."""
    for task in tasks:
        objects.machine().start(task.transfer)


def dma_await_task(*tasks: Task) -> None:
    """In the runtime sequence: waits for transfers."""
    for task in tasks:
        objects.machine().wait(task.transfer)


def dma_free_task(*tasks: Task) -> None:
    """In the runtime sequence: says that the descriptors of transfers are used no more."""
    for task in tasks:
        objects.machine().free(task.transfer)


def npu_write_rtp(buffer, index: int, value: int) -> None:
    """In the runtime sequence: writes a number into a core's buffer."""
    buffer[index] = value


npu_rtp_write = npu_write_rtp
