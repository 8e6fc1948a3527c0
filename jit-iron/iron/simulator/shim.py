"""Transfers between the arguments of a kernel and the array: tasks of the shim's channels."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import prod

import numpy as np

from . import hardware
from .array_program import Fifo, array_dtype, array_shape
from .errors import BadCall, BadTransfer, caller
from .hardware import Tile
from .layout import check_shim, order


class HostTensor:
    """An argument of the runtime sequence."""

    def __init__(self, index: int, of_type: object, data: np.ndarray | None = None) -> None:
        self.index, self.of_type, self.data = index, of_type, data

    shape = property(lambda self: array_shape(self.of_type))
    dtype = property(lambda self: array_dtype(self.of_type))

    @property
    def elements(self) -> int | None:
        """How many it has; not known before a kernel runs, because the declared extents need not be the buffer's."""
        return None if self.data is None else len(self.data)


@dataclass(eq=False)
class Transfer:
    """One task: a descriptor, started once."""

    tensor: HostTensor
    fifo: Fifo
    to_host: bool
    offset: int
    sizes: list[int]
    strides: list[int]
    token: bool
    place: str = field(default_factory=caller)
    column: int = 0
    channel: int = 0
    descriptor: int | None = None
    at: int = 0
    """Bytes that have passed."""
    started: bool = False
    freed: bool = False
    _index: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.sizes, self.strides = [int(n) for n in self.sizes], [int(n) for n in self.strides]
        if len(self.sizes) > 4 or len(self.sizes) != len(self.strides):
            raise BadTransfer(f"{self} has sizes {self.sizes} and strides {self.strides}; at most four of each", self.place)
        missing = 4 - len(self.sizes)
        self.sizes, self.strides = [1] * missing + self.sizes, [0] * missing + self.strides
        itemsize = self.tensor.dtype.itemsize
        check_shim(str(self), self.sizes, self.strides, itemsize, self.offset, hardware.SHIM, self.place)
        last = self.offset + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides))
        if self.offset < 0 or (self.tensor.elements is not None and last >= self.tensor.elements):
            raise BadTransfer(
                f"{self} reaches element {last}; argument {self.tensor.index} has {self.tensor.elements} elements", self.place
            )

    @property
    def bytes(self) -> int:
        """That pass in all."""
        return prod(self.sizes) * self.tensor.dtype.itemsize

    @property
    def done(self) -> bool:
        """Whether everything has passed."""
        return self.at == self.bytes

    def index(self) -> np.ndarray:
        """Elements in order; one array for the whole transfer."""
        if self._index is None:
            self._index = order(tuple(self.sizes), tuple(self.strides)) + self.offset
        return self._index

    def __str__(self) -> str:
        return f"the {'drain' if self.to_host else 'fill'} of fifo {self.fifo.name}"

    def record(self) -> dict:
        """What to compare with the instruction stream of a compiled kernel."""
        itemsize = self.tensor.dtype.itemsize
        return {
            "direction": "S2MM" if self.to_host else "MM2S",
            "column": self.column,
            "channel": self.channel,
            "argument": self.tensor.index,
            "offset": self.offset * itemsize,
            "bytes": self.bytes,
            "sizes": list(self.sizes),
            "strides": list(self.strides),
            "item": itemsize,
            "token": self.token,
        }


class ShimChannel:
    """The tasks of one channel, source or sink of a stream."""

    def __init__(self, fifo: Fifo, tile: Tile, number: int, to_host: bool) -> None:
        self.fifo, self.tile, self.number, self.to_host = fifo, tile, number, to_host
        self.tasks: deque[Transfer] = deque()
        self.last: Transfer | None = None
        """The task that was started last."""
        self.tokens: deque[Transfer] = deque()
        """Tasks whose tokens nobody has waited for, in the order in which they send them."""

    @property
    def full(self) -> bool:
        """Whether another task would be lost."""
        return len(self.tasks) > hardware.QUEUE

    def start(self, transfer: Transfer) -> None:
        """Puts a task into the queue."""
        transfer.column, transfer.channel, transfer.started = self.tile.col, self.number, True
        self.tasks.append(transfer)
        self.last = transfer
        if transfer.token:
            self.tokens.append(transfer)

    def _left(self) -> int:
        return self.tasks[0].bytes - self.tasks[0].at if self.tasks else 0

    available = _left
    room = _left

    def take(self, count: int) -> np.ndarray:
        """As source of a stream."""
        task = self.tasks[0]
        first, last = self._items(task, count)
        data = task.tensor.data[task.index()[first:last]].view(np.uint8)
        cut = task.at - first * task.tensor.dtype.itemsize
        self._advance(task, count)
        return data[cut : cut + count]

    def put(self, data: np.ndarray) -> None:
        """As sink of a stream."""
        task = self.tasks[0]
        itemsize = task.tensor.dtype.itemsize
        first, last = self._items(task, len(data))
        index = task.index()[first:last]
        if task.at % itemsize == 0 and len(data) % itemsize == 0:
            task.tensor.data[index] = data.view(task.tensor.dtype) if data.flags.c_contiguous else data.copy().view(task.tensor.dtype)
        else:
            whole = task.tensor.data[index].view(np.uint8)
            cut = task.at - first * itemsize
            whole[cut : cut + len(data)] = data
            task.tensor.data[index] = whole.view(task.tensor.dtype)
        self._advance(task, len(data))

    @staticmethod
    def _items(task: Transfer, count: int) -> tuple[int, int]:
        itemsize = task.tensor.dtype.itemsize
        return task.at // itemsize, -(-(task.at + count) // itemsize)

    def _advance(self, task: Transfer, count: int) -> None:
        task.at += count
        if task.done:
            self.tasks.popleft()

    def state(self) -> str:
        if not self.tasks:
            return f"{self.tile} has nothing {'to receive' if self.to_host else 'to send'}"
        task = self.tasks[0]
        return f"{self.tile}: {task} ({task.place}) has moved {task.at} of {task.bytes} bytes"


def require_tensor(tensor: object) -> HostTensor:
    """`tensor`, when it is an argument of the sequence."""
    if not isinstance(tensor, HostTensor):
        raise BadCall(f"{tensor!r} is not an argument of the runtime sequence")
    return tensor
