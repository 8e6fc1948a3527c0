"""Kernels that compute each row of the result from the same row of the source, in f32.

A row comes to a core as a whole. Where it leaves little room it goes out in parts. Columns have consecutive rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from design import Unsupported
from generation import DATA_MEMORY, STACK, STATIC_DATA, Generation
from iron_program import Move
from row_transfers import Rows
from tensor_desc import TensorDesc
from tiling import Tap, linear, round_up

LANES = 16
WIDEST = 1023
"""Sizes of the two innermost dimensions, in words, of a transfer that is not linear."""
OTHER_BUFFERS = 2048
"""Bytes for what a core counts and for tables."""


@dataclass(frozen=True)
class RowBuffers:
    """How rows of a length pass a core."""

    length: int
    lanes: int
    inputs: tuple[int, ...]
    """Bytes per element of each source."""
    depth: int
    """Rows of each source on the core."""
    part: int
    """Elements of the result in an object."""
    out_depth: int

    @property
    def object(self) -> int:
        """Elements of a row's object: whole vectors in every type."""
        return round_up(self.length, self.lanes)


def row_buffers(what: str, length: int, inputs: tuple[int, ...]) -> RowBuffers:
    """The deepest buffers that fit for rows of f32 and other sources; raises Unsupported when there are none."""
    lanes = max(LANES, 64 // min(inputs))
    room = DATA_MEMORY - STACK - STATIC_DATA - OTHER_BUFFERS
    row = round_up(length, lanes) * sum(inputs)
    # A result that is no whole vectors has one buffer, which is the smallest: nothing begins behind it.
    whole_depth = 2 if length % LANES == 0 else 1
    for depth, parts, out_depth in ((2, 1, whole_depth), (2, 1, 1), (1, 1, whole_depth), (1, 1, 1)):
        if depth * row + out_depth * length // parts * 4 <= room:
            return RowBuffers(length, lanes, inputs, depth, length, out_depth)
    for parts in range(2, length // LANES + 1):
        if length % (parts * LANES) == 0 and row + 2 * (length // parts) * 4 <= room:
            return RowBuffers(length, lanes, inputs, 1, length // parts, 2)
    raise Unsupported(
        f"{what}: rows of {length} elements need {row} bytes of sources on a core and as much as a part of the result, in whole "
        f"vectors; there are {room}"
    )


def shares(target: Generation, rows: int) -> list[tuple[int, int]]:
    """First row and number of rows of every column that has any."""
    columns = min(target.columns, rows)
    result, first = [], 0
    for column in range(columns):
        count = rows // columns + (column < rows % columns)
        result.append((first, count))
        first += count
    return result


def row_taps(tensor: TensorDesc, buffers: RowBuffers, first: int, count: int) -> list[Tap]:
    """The transfers of consecutive rows into objects."""
    elements, length, size = _whole_words(tensor), buffers.length, buffers.object
    if size == length:
        return [linear(first * length, count * length)]
    rows = Rows(elements, tensor.itemsize, length, first, count, 1)
    taps = []
    for tap in rows.taps(size, size, 1):
        fits = tap.sizes[-1] * tensor.itemsize // 4 <= WIDEST and tap.sizes[-2] <= WIDEST
        taps.append(tap if fits else _narrowed(tap, buffers.lanes))
    return taps


def window(tensor: TensorDesc, buffers: RowBuffers) -> int:
    """What the core is told of a tensor that is shorter than an object."""
    if buffers.object == buffers.length:
        return 0
    return Rows(_whole_words(tensor), tensor.itemsize, buffers.length, 0, 1, 1).window(buffers.object)


def source_macros(tensor: TensorDesc, buffers: RowBuffers) -> dict[str, str]:
    """The macros that describe source 0 and the parts of the result."""
    return {
        "ROW_LENGTH": str(buffers.length),
        "ROW_OBJECT": str(buffers.object),
        "TENSOR": str(_whole_words(tensor)),
        "WINDOW": str(window(tensor, buffers)),
        "PART": str(buffers.part),
    }


def result_move(column: int, argument: int, buffers: RowBuffers, first: int, count: int) -> tuple[int, Move]:
    """The transfer of consecutive rows of the result."""
    return column, Move("out", argument, linear(first * buffers.length, count * buffers.length))


def _narrowed(tap: Tap, lanes: int) -> Tap:
    """The same elements, the innermost dimension in two."""
    repeats, middle, rows, size = tap.sizes
    if middle > 1:
        raise ValueError(f"{tap} has no dimension to spare")
    return Tap(tap.offset, (repeats, rows, size // lanes, lanes), (tap.strides[0], tap.strides[2], lanes, 1))


def _whole_words(tensor: TensorDesc) -> int:
    return round_up(tensor.size * tensor.itemsize, 4) // tensor.itemsize
