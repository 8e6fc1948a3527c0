"""A design as the machine executes it: fifos, links, cores and the runtime sequence, whichever API it was written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Callable

import numpy as np

from . import hardware
from .errors import BadCall
from .hardware import Tile


def array_shape(of_type: object) -> tuple[int, ...]:
    """The extents of `np.ndarray[(8, 4), np.dtype[np.int32]]`."""
    shape = _arguments(of_type)[0]
    return tuple(int(extent) for extent in (shape if isinstance(shape, (tuple, list)) else (shape,)))


def array_dtype(of_type: object) -> np.dtype:
    """The element type of such an array type."""
    scalar = _arguments(of_type)[1]
    scalar = scalar.__args__[0] if hasattr(scalar, "__args__") else scalar
    return np.dtype(scalar)


def array_bytes(of_type: object) -> int:
    """Bytes of such an array."""
    return prod(array_shape(of_type)) * array_dtype(of_type).itemsize


def type_text(of_type: object) -> str:
    """`16x4 int32`."""
    if not hasattr(of_type, "__args__"):
        return getattr(of_type, "__name__", str(of_type))
    return f"{'x'.join(map(str, array_shape(of_type)))} {array_dtype(of_type).name}"


def _arguments(of_type: object) -> tuple:
    arguments = getattr(of_type, "__args__", ())
    if len(arguments) != 2:
        raise BadCall(f"{of_type!r} is not an array type such as np.ndarray[(16,), np.dtype[np.int32]]")
    return arguments


@dataclass(eq=False)
class Device:
    """The columns that a design may use."""

    name: str
    arch: str
    columns: int


@dataclass(eq=False)
class End:
    """One end of a fifo."""

    depth: int
    dims: list[tuple[int, int]] = field(default_factory=list)
    """The transformation by this end's DMA: (size, stride) in elements, outermost first."""
    tile: Tile | None = None
    place: str = ""
    owner: object = None
    """What was placed here by the high-level API: a worker, a link, the runtime."""


@dataclass(eq=False)
class Fifo:
    """An object fifo: one producer, one or more consumers."""

    name: str
    of_type: object
    producer: End
    consumers: list[End]
    place: str = ""
    via_dma: bool = False
    repeat: int = 1
    """How often a mem tile sends each element."""
    initial: list | None = None
    iterations: int | None = None
    padding: list | None = None

    @property
    def bytes(self) -> int:
        """Of one element."""
        return array_bytes(self.of_type)

    @property
    def shared(self) -> bool:
        """Whether both ends use the same memory, so that nothing is transferred."""
        if self.via_dma or self.producer.dims or len(self.consumers) != 1 or self.consumers[0].dims:
            return False
        ends = (self.producer.tile, self.consumers[0].tile)
        return None not in ends and hardware.shares_memory(*ends)


@dataclass(eq=False)
class Link:
    """Fifos that end and begin in the same memory: split, join or forward."""

    sources: list[Fifo]
    targets: list[Fifo]
    source_offsets: list[int]
    """Of a join, in elements."""
    target_offsets: list[int]
    """Of a split, in elements."""
    place: str = ""
    owner: object = None


@dataclass(eq=False)
class CoreBuffer:
    """A buffer in a core's data memory that is not a fifo's."""

    name: str
    of_type: object
    initial: object
    place: str
    tile: Tile | None = None


@dataclass(eq=False)
class Core:
    """A core and what it runs."""

    tile: Tile
    body: Callable[[], None]
    stack: int
    place: str


@dataclass(eq=False)
class ArrayProgram:
    """Everything that a design states."""

    device: Device
    fifos: list[Fifo] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    buffers: list[CoreBuffer] = field(default_factory=list)
    argument_types: list = field(default_factory=list)
    sequence: Callable[..., None] | None = None
    """Called with one `HostTensor` per argument."""
    place: str = ""
    objects: dict[str, object] = field(default_factory=dict)
    """What object files are compiled from, by name, as far as known when the design was built."""


def dims_of(dims: object) -> list[tuple[int, int]]:
    """(size, stride) pairs from what an API was given; None means none."""
    return [] if dims is None else [(int(size), int(stride)) for size, stride in dims]

