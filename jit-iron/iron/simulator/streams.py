"""What moves between memories: sources and sinks of bytes, and the streams that connect them.

A stream goes from one source to one or several sinks and moves only what all of them take, as a circuit-switched broadcast does.
The few words that switches hold on the way are not modelled.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

import numpy as np

from .errors import BadTransfer
from .fifo_state import Pool
from .layout import order


class Source(Protocol):
    """Where bytes come from."""

    def available(self) -> int: ...
    def take(self, count: int) -> np.ndarray: ...
    def state(self) -> str: ...


class Sink(Protocol):
    """Where bytes go."""

    def room(self) -> int: ...
    def put(self, data: np.ndarray) -> None: ...
    def state(self) -> str: ...


class PoolSource:
    """A DMA channel that sends elements of a pool, one after the other.

    With `offset` and `size` it sends a part of each element: one target of a split.
    """

    def __init__(
        self, pool: Pool, party: int, itemsize: int, dims: list, offset: int = 0, size: int | None = None, repeat: int = 1,
        padding: list | None = None,
    ) -> None:
        self._pool, self._party, self._offset = pool, party, offset
        self._size = pool.size - offset if size is None else size
        self._order = byte_order(whole_dims(dims, self._size // itemsize, pool.what), itemsize)
        self._padding, self._dims, self._itemsize = padding, dims, itemsize
        self._repeat, self._round = repeat, 0
        self._data, self._at = None, 0

    def available(self) -> int:
        if self._data is None and self._pool.full(self._party) > 0:
            stored = self._pool.to_drain(self._party).region.bytes
            if self._order is None:
                self._data = stored[self._offset : self._offset + self._size].copy()
            else:
                index = self._order + self._offset
                if index.max() >= len(stored):
                    raise BadTransfer(f"{self._pool.what}: the transformation to the stream reaches beyond the element")
                self._data = stored[index]
            if self._padding:
                self._data = _padded(self._data, self._dims, self._padding, self._itemsize)
            self._at = 0
        return 0 if self._data is None else len(self._data) - self._at

    def take(self, count: int) -> np.ndarray:
        data = self._data[self._at : self._at + count]
        self._at += count
        if self._at == len(self._data):
            self._data = None
            self._round += 1
            if self._round == self._repeat:
                self._round = 0
                self._pool.drained[self._party] += 1
        return data

    def state(self) -> str:
        return f"{self._pool.what} has {self._pool.full(self._party)} elements to send"


class PoolSink:
    """A DMA channel that fills elements of a pool, or a part of each: one source of a join."""

    def __init__(self, pool: Pool, party: int, itemsize: int, dims: list, offset: int = 0, size: int | None = None) -> None:
        self._pool, self._party, self._offset = pool, party, offset
        self._size = pool.size - offset if size is None else size
        self._order = byte_order(whole_dims(dims, self._size // itemsize, pool.what), itemsize)
        self._buffer, self._at = np.empty(self._size, dtype=np.uint8), 0

    def room(self) -> int:
        return self._size - self._at if self._pool.free(self._party) > 0 else 0

    def put(self, data: np.ndarray) -> None:
        self._buffer[self._at : self._at + len(data)] = data
        self._at += len(data)
        if self._at == self._size:
            stored = self._pool.to_fill(self._party).region.bytes
            if self._order is None:
                stored[self._offset : self._offset + self._size] = self._buffer
            else:
                stored[self._order + self._offset] = self._buffer
            self._at = 0
            self._pool.filled[self._party] += 1

    def state(self) -> str:
        have = f", {self._at} of {self._size} bytes of the next arrived" if self._at else ""
        return f"{self._pool.what} has {self._pool.free(self._party)} free elements{have}"

    @property
    def partial(self) -> int:
        """Bytes of an element that is not complete."""
        return self._at


class Stream:
    """A connection between channels."""

    def __init__(self, name: str, source: Source, sinks: list[Sink]) -> None:
        self.name, self.source, self.sinks = name, source, sinks
        self.bytes = 0

    def pump(self) -> bool:
        """Moves what can be moved; whether that was anything."""
        moved = False
        while True:
            count = self.source.available()
            for sink in self.sinks:
                if count == 0:
                    break
                count = min(count, sink.room())
            if count == 0:
                return moved
            data = self.source.take(count)
            for sink in self.sinks:
                sink.put(data)
            self.bytes += count
            moved = True

    def state(self) -> str:
        """For reports of a deadlock."""
        return f"{self.name}: {self.source.state()}; {', '.join(sink.state() for sink in self.sinks)}; {self.bytes} bytes have passed"


def whole_dims(dims: list, elements: int, what: str) -> list:
    """`dims` with the outermost as long as the transfer is: a descriptor has its length, and no count for that dimension."""
    while dims and dims[0][0] == 1:
        # A dimension that is never stepped says nothing.
        dims = dims[1:]
    if not dims:
        return dims
    inner = prod(size for size, _ in dims[1:])
    if elements % inner or elements < inner * dims[0][0]:
        raise BadTransfer(f"{what}: a transformation {dims} moves {inner * dims[0][0]} elements at a time; there are {elements}")
    return [(elements // inner, dims[0][1]), *dims[1:]]


def byte_order(dims: list, itemsize: int) -> np.ndarray | None:
    """Index of every byte in the order of `dims`; None when there are none."""
    if not dims:
        return None
    elements = order(tuple(size for size, _ in dims), tuple(stride for _, stride in dims))
    return (elements[:, None] * itemsize + np.arange(itemsize)[None, :]).reshape(-1)


def _padded(data: np.ndarray, dims: list, padding: list, itemsize: int) -> np.ndarray:
    """Zeros around the elements of each dimension, as mem tiles add them."""
    sizes = [size for size, _ in dims] or [len(data) // itemsize]
    if len(padding) != len(sizes) or prod(sizes) * itemsize != len(data):
        raise BadTransfer(f"padding {padding} does not fit the dimensions {sizes}")
    pads = [tuple(pair) for pair in padding] + [(0, 0)]
    return np.pad(data.reshape([*sizes, itemsize]), pads).reshape(-1)
