"""The objects of `aie.iron`: fifos, workers, buffers, core functions."""

from __future__ import annotations

from typing import Callable

import numpy as np

from . import objects
from .array_program import CoreBuffer, End, Fifo, Link, array_dtype, array_shape, dims_of
from .core_functions import CoreSource
from .errors import BadCall, caller
from .hardware import DEFAULT_STACK, Tile
from .scheduler import current


class AnyTile:
    """A tile that the placer chooses."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return f"any {self._kind}"


AnyShimTile, AnyMemTile, AnyComputeTile = AnyTile("shim tile"), AnyTile("mem tile"), AnyTile("compute tile")


def tile_of(given: object) -> Tile | None:
    """The tile that a design asks for; None when it leaves that open."""
    if given is None or isinstance(given, AnyTile):
        return None
    if not isinstance(given, Tile):
        raise BadCall(f"{given!r} is not a tile")
    return given


class ObjectFifo:
    """A queue of elements between a producer and its consumers."""

    _count = 0

    def __init__(
        self, obj_type: type, depth: int | None = 2, name: str | None = None, dims_to_stream: list | None = None,
        dims_from_stream_per_cons: list | None = None, plio: bool = False, pad_dimensions: list | None = None,
        via_DMA: bool = False,
    ) -> None:
        if depth is not None and depth < 1:
            raise BadCall(f"fifo {name} has depth {depth}; it is at least 1")
        if plio:
            raise BadCall("fifos to programmable logic are not simulated")
        if name is None:
            name = f"of{ObjectFifo._count}"
            ObjectFifo._count += 1
        self.obj_type, self.depth, self.name = obj_type, depth, name
        self.dims_to_stream, self.dims_from_stream_per_cons = dims_to_stream, dims_from_stream_per_cons
        self._place, self._padding, self._via_dma = caller(), pad_dimensions, via_DMA
        self._producer: ObjectFifoHandle | None = None
        self._consumers: list[ObjectFifoHandle] = []
        self._iterations: int | None = None
        self.resolved: Fifo | None = None
        array_shape(obj_type)

    shape = property(lambda self: array_shape(self.obj_type))
    dtype = property(lambda self: array_dtype(self.obj_type))

    def set_iter_count(self, iter_count: int) -> None:
        """Limits how often its descriptors run."""
        self._iterations = iter_count

    def prod(self, depth: int | None = None) -> ObjectFifoHandle:
        """The producing end, the same every time."""
        if self._producer is None:
            self._producer = ObjectFifoHandle(self, True, self._depth_of(depth), None)
        return self._producer

    def cons(self, depth: int | None = None, dims_from_stream: list | None = None) -> ObjectFifoHandle:
        """A new consuming end."""
        dims = dims_from_stream if dims_from_stream is not None else self.dims_from_stream_per_cons
        self._consumers.append(ObjectFifoHandle(self, False, self._depth_of(depth), dims))
        return self._consumers[-1]

    def _depth_of(self, depth: int | None) -> int:
        depth = self.depth if depth is None else depth
        if depth is None or depth < 1:
            raise BadCall(f"an end of fifo {self.name} has depth {depth}; it is at least 1, given here or with the fifo")
        return depth

    def resolve(self) -> Fifo:
        """As the machine takes it."""
        if self._producer is None:
            raise BadCall(f"fifo {self.name} has no producer: nobody was given its prod()", self._place)
        if not self._consumers:
            raise BadCall(f"fifo {self.name} has no consumer: nobody was given its cons()", self._place)
        for handle in (self._producer, *self._consumers):
            if handle.endpoint is None:
                side = "prod()" if handle.is_prod else "cons()"
                raise BadCall(f"the {side} of fifo {self.name} is used by no worker, link, fill or drain", self._place)
        self._consumers = _merged(self._consumers)
        ends = [End(h.depth, dims_of(h.dims), h.tile, self._place, h.endpoint) for h in (self._producer, *self._consumers)]
        self.resolved = Fifo(
            self.name, self.obj_type, ends[0], ends[1:], self._place, self._via_dma, padding=self._padding, iterations=self._iterations
        )
        return self.resolved


class ObjectFifoHandle:
    """One end of a fifo."""

    def __init__(self, fifo: ObjectFifo, is_prod: bool, depth: int, dims: list | None) -> None:
        self.fifo, self.is_prod, self.depth = fifo, is_prod, depth
        self.dims = fifo.dims_to_stream if is_prod else dims
        self.endpoint: object = None
        self.tile: Tile | None = None

    name = property(lambda self: self.fifo.name)
    obj_type = property(lambda self: self.fifo.obj_type)
    shape = property(lambda self: self.fifo.shape)
    dtype = property(lambda self: self.fifo.dtype)
    handle_type = property(lambda self: "prod" if self.is_prod else "cons")
    dims_from_stream = property(lambda self: self.dims)

    def attach(self, endpoint: object) -> None:
        """Says who uses this end; only one may."""
        if self.endpoint is not None and self.endpoint is not endpoint:
            raise BadCall(f"the {self.handle_type}() of fifo {self.name} is already used by {self.endpoint}; each consumer needs a cons()")
        self.endpoint = endpoint

    def acquire(self, num_elem: int) -> object:
        """Waits for elements; the element for 1, else a list."""
        return self._port("acquire").acquire(num_elem)

    def release(self, num_elem: int) -> None:
        """Gives elements back."""
        self._port("release").release(num_elem)

    def _port(self, what: str):
        tile = objects.core_tile(f"{what} of fifo {self.name}")
        consumer = -1 if self.is_prod else self.fifo._consumers.index(self)
        return objects.machine().port(self.fifo.resolved, tile, self.is_prod, consumer)

    def split(
        self, offsets: list, placement=AnyMemTile, depths=None, obj_types=None, names=None, dims_to_stream=None,
        dims_from_stream=None, plio=False, tile=None,
    ) -> list[ObjectFifo]:
        """Divides each element among new fifos."""
        if self.is_prod:
            raise BadCall(f"split is for a cons() of a fifo; this is the prod() of {self.name}")
        parts = self._parts("split", offsets, depths, obj_types, names, dims_to_stream, dims_from_stream, plio)
        FifoLink([self], [part.prod() for part in parts], [], offsets, tile or placement)
        return parts

    def join(
        self, offsets: list, placement=AnyMemTile, depths=None, obj_types=None, names=None, dims_to_stream=None,
        dims_from_stream=None, plio=False, tile=None,
    ) -> list[ObjectFifo]:
        """New fifos whose elements together are one of this fifo's."""
        if not self.is_prod:
            raise BadCall(f"join is for the prod() of a fifo; this is a cons() of {self.name}")
        parts = self._parts("join", offsets, depths, obj_types, names, dims_to_stream, dims_from_stream, plio)
        FifoLink([part.cons() for part in parts], [self], offsets, [], tile or placement)
        return parts

    def forward(
        self, placement=AnyMemTile, obj_type=None, depth=None, name=None, dims_to_stream=None, dims_from_stream=None, plio=False, tile=None,
    ) -> ObjectFifo:
        """A new fifo that passes the elements on from a mem tile."""
        if self.is_prod:
            raise BadCall(f"forward is for a cons() of a fifo; this is the prod() of {self.name}")
        part = ObjectFifo(
            obj_type or self.obj_type, depth or self.depth, name or f"{self.name}_fwd", dims_to_stream, dims_from_stream, plio
        )
        FifoLink([self], [part.prod()], [], [], tile or placement)
        return part

    def _parts(self, what, offsets, depths, obj_types, names, dims_to_stream, dims_from_stream, plio) -> list[ObjectFifo]:
        count = len(offsets)
        lists = {
            "depths": depths or [self.depth] * count,
            "obj_types": obj_types or [self.obj_type] * count,
            "names": names or [f"{self.name}_{what}{i}" for i in range(count)],
            "dims_to_stream": dims_to_stream or [None] * count,
            "dims_from_stream": dims_from_stream or [None] * count,
        }
        for name, values in lists.items():
            if len(values) != count:
                raise BadCall(f"{what} of fifo {self.name} has {count} offsets and {len(values)} {name}")
        return [
            ObjectFifo(of_type, depth, name, to_stream, from_stream, plio)
            for depth, of_type, name, to_stream, from_stream in zip(*lists.values())
        ]


def _merged(consumers: list[ObjectFifoHandle]) -> list[ObjectFifoHandle]:
    """Without further ends of the runtime sequence: it drains a fifo at one place, however often cons() was called."""
    kept: list[ObjectFifoHandle] = []
    for handle in consumers:
        same = next((one for one in kept if getattr(one.endpoint, "is_shim", False) and one.endpoint is handle.endpoint), None)
        if same is None:
            kept.append(handle)
        elif (same.depth, same.dims) != (handle.depth, handle.dims):
            raise BadCall(f"two ends at which the sequence drains fifo {handle.name} differ in depth or transformation", handle.fifo._place)
    return kept


class FifoLink:
    """What split, join and forward make."""

    def __init__(self, sources: list, targets: list, source_offsets: list, target_offsets: list, tile: object) -> None:
        self.sources, self.targets = sources, targets
        self.source_offsets, self.target_offsets = [int(n) for n in source_offsets], [int(n) for n in target_offsets]
        self.place = caller()
        self.tile = tile_of(tile)
        for handle in (*sources, *targets):
            handle.attach(self)
            handle.tile = self.tile

    def resolve(self) -> Link:
        """As the machine takes it."""
        return Link(
            [h.fifo.resolved for h in self.sources], [h.fifo.resolved for h in self.targets], self.source_offsets,
            self.target_offsets, self.place, self,
        )

    def __str__(self) -> str:
        return f"the link at {self.place}"


class Buffer(objects.PlacedBuffer):
    """A buffer of a core, which the runtime sequence can write too."""

    _count = 0

    def __init__(
        self, type: type | None = None, initial_value: np.ndarray | None = None, name: str | None = None, placement=None,
        use_write_rtp: bool = False, tile=None,
    ) -> None:
        if type is None:
            if initial_value is None:
                raise BadCall("a Buffer needs a type or an initial value")
            type = np.ndarray[initial_value.shape, np.dtype[initial_value.dtype.type]]
        if initial_value is not None and tuple(initial_value.shape) != array_shape(type):
            raise BadCall(f"a Buffer with extents {array_shape(type)} has an initial value with {initial_value.shape}")
        if name is None:
            name = f"buf_{Buffer._count}"
            Buffer._count += 1
        self.name, self.use_write_rtp = name, use_write_rtp
        super().__init__(CoreBuffer(name, type, initial_value, caller(), tile_of(tile or placement)))


class Kernel:
    """A core function from an object file that is compiled elsewhere."""

    def __init__(self, name: str, object_file_name: str, arg_types: list = []) -> None:  # noqa: B006 - IRON's signature.
        if not name:
            raise BadCall("a core function has no name")
        self._name, self._arg_types, self._object_file_name = name, list(arg_types), object_file_name

    object_file_name = property(lambda self: self._object_file_name)

    def arg_types(self) -> list:
        """The declared types."""
        return self._arg_types.copy()

    def resolve(self, *_arguments: object, **_options: object) -> None:
        """IRON declares the function in the module here; nothing is left to do."""

    def tile_size(self, arg_index: int = 0) -> int:
        """The first extent of an array argument."""
        if not 0 <= arg_index < len(self._arg_types):
            raise BadCall(f"core function {self._name} has {len(self._arg_types)} arguments, none numbered {arg_index}")
        return array_shape(self._arg_types[arg_index])[0]

    def _source(self) -> CoreSource:
        return objects.object_source(self._object_file_name, self._name)

    def __call__(self, *arguments: object) -> None:
        objects.call_core_function(self._name, self._source(), self._arg_types, arguments)


class ExternalFunction(Kernel):
    """A core function that comes with its source."""

    _instances: set = set()

    def __init__(
        self, name: str, object_file_name: str | None = None, source_file: str | None = None, source_string: str | None = None,
        arg_types: list = [], include_dirs: list = [], compile_flags: list = [],  # noqa: B006 - IRON's signature.
    ) -> None:
        super().__init__(name, object_file_name or f"{name}.o", arg_types)
        if source_file is None and source_string is None:
            raise BadCall(f"core function {name} has neither source_file nor source_string")
        self._source_file, self._source_string = source_file, source_string if source_file is None else None
        self._include_dirs, self._compile_flags, self._compiled = list(include_dirs), list(compile_flags), False
        ExternalFunction._instances.add(self)
        # The placed API names the object file only.
        objects.provide_object(self._object_file_name, self._source())

    def _source(self) -> CoreSource:
        if self._source_file is not None:
            return CoreSource(str(self._source_file), "", tuple(map(str, self._include_dirs)), tuple(self._compile_flags))
        return CoreSource("", self._source_string, tuple(map(str, self._include_dirs)), tuple(self._compile_flags))


class WorkerRuntimeBarrier:
    """A lock in each of its workers, set by the runtime sequence."""

    def __init__(self, initial_value: int = 0) -> None:
        self.initial_value = initial_value
        self.workers: list[Worker] = []

    def wait_for_value(self, value: int) -> None:
        """In a core's program: until the lock has `value`, which is then taken from it."""
        key, machine = (id(self), objects.core_tile("wait_for_value")), objects.machine()
        current().wait(lambda: machine.lock(key, self.initial_value) == value, f"waits for value {value} of a barrier")
        machine.set_lock(key, 0)

    def release_with_value(self, value: int) -> None:
        """In a core's program: adds `value`."""
        key, machine = (id(self), objects.core_tile("release_with_value")), objects.machine()
        machine.set_lock(key, machine.lock(key, self.initial_value) + value)

    def set(self, value: int) -> None:
        """In the runtime sequence: sets the lock of every worker."""
        machine = objects.machine()
        for worker in self.workers:
            machine.set_lock((id(self), worker.tile), value)


class Worker:
    """A function that a core runs."""

    def __init__(
        self, core_fn: Callable | None, fn_args: list = [], placement=AnyComputeTile, while_true: bool = True,  # noqa: B006
        stack_size: int | None = None, allocation_scheme: str | None = None, trace: int | None = None, trace_events: list | None = None,
        tile=None, dynamic_objfifo_lowering: bool | None = None,
    ) -> None:
        self.core_fn, self.fn_args, self.while_true = core_fn, list(fn_args), while_true
        self.stack_size = DEFAULT_STACK if stack_size is None else stack_size
        self.place, self.tile = caller(), tile_of(tile or placement)
        for argument in self.fn_args:
            if isinstance(argument, ObjectFifo):
                raise BadCall(f"a worker is given fifo {argument.name} itself; give it the fifo's prod() or cons()")
            if isinstance(argument, ObjectFifoHandle):
                argument.attach(self)
            if isinstance(argument, WorkerRuntimeBarrier):
                argument.workers.append(self)

    @property
    def fifos(self) -> list[ObjectFifoHandle]:
        """Those it was given."""
        return [argument for argument in self.fn_args if isinstance(argument, ObjectFifoHandle)]

    @property
    def buffers(self) -> list[Buffer]:
        """Those it was given."""
        return [argument for argument in self.fn_args if isinstance(argument, Buffer)]

    def body(self) -> Callable[[], None]:
        """What its core runs."""
        if self.core_fn is None:
            return lambda: None
        function, arguments = objects.as_it_is_now(self.core_fn), self.fn_args
        if self.while_true:
            return lambda: objects.never_ending(lambda: function(*arguments))
        return lambda: function(*arguments)

    def __str__(self) -> str:
        return f"the worker at {self.place}"
