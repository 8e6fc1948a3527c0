"""How the elements of flat tensors are divided among columns and tiles.

DMAs move whole words, tensors have any number of elements. A tensor is therefore taken up to the end of its last word: up to
three bytes behind its last element are moved with it, as the C++ backend does; ggml's buffers keep tensors further apart than
that. Nothing is read or written beyond that word.

All tiles of a kernel have one size, because a fifo has. What is left over is the tail: its inputs come in a full tile whose
rest is filled with elements of the same tensor that are read once more (and not looked at), its result leaves through a fifo of
exactly its size. Tensors of types with different widths end at different words, so each has a tail of its own length. Results
are never written twice and never before their own sources are read, so that a result may lie where a source lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from generation import VECTOR_BYTES, WORD_BYTES

MOST_REPEATS = 64
"""How often one descriptor moves the same words again."""


@dataclass(frozen=True)
class Tap:
    """Elements of a tensor in the order of their transfer; at most four dimensions, outermost first."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements pass."""
        count = 1
        for size in self.sizes:
            count *= size
        return count


def linear(offset: int, elements: int) -> Tap:
    """Consecutive elements."""
    return Tap(offset, (1, 1, 1, elements), (0, 0, 0, 1))


def filler(available: int, wanted: int, granule: int) -> list[Tap]:
    """Taps that read `wanted` elements, no matter which, of a tensor that has `available`; both are multiples of `granule`.

    They only complete a tile.
    """
    if wanted == 0:
        return []
    if wanted <= available:
        return [linear(0, wanted)]
    # The tensor is short: the same elements again and again.
    taps, left = [], wanted
    while left:
        run = min(available, left)
        times = min(left // run, MOST_REPEATS)
        taps.append(Tap(0, (times, 1, 1, run), (0, 0, 0, 1)) if times > 1 else linear(0, run))
        left -= run * times
    return taps


@dataclass(frozen=True)
class Share:
    """What one column does."""

    column: int
    first: int
    """Its first element."""
    tiles: int
    """Whole tiles, one behind the other."""
    tail: int = 0
    """Elements of the tail behind them, if it has it."""


@dataclass(frozen=True)
class Plan:
    """The division of a tensor."""

    count: int
    """Elements of the tensor."""
    elements: int
    """Elements up to the end of the last word in the widest type: those that every tensor of these types has."""
    tile: int
    """Elements of a tile: whole vectors in every type."""
    shares: tuple[Share, ...]

    @property
    def tail(self) -> int:
        """Elements of the tail, 0 if there is none."""
        return sum(share.tail for share in self.shares)

    def moved(self, itemsize: int) -> int:
        """Elements up to the end of the last word in a type of `itemsize` bytes."""
        return round_up(self.count, granule([itemsize]))

    def tail_of(self, itemsize: int) -> int:
        """Elements of the tail in a type of `itemsize` bytes, 0 if there is none."""
        return self.tail + self.moved(itemsize) - self.elements if self.tail else 0


def round_up(number: int, multiple: int) -> int:
    """The next multiple at or above."""
    return -(-number // multiple) * multiple


def granule(item_sizes: list[int]) -> int:
    """The least number of elements that is whole words in every one of these types."""
    return max(WORD_BYTES // gcd(WORD_BYTES, size) for size in item_sizes)


def divide(elements: int, item_sizes: list[int], columns: int, largest_tile: int) -> Plan:
    """Divides `elements` of tensors with these bytes per element among at most `columns` columns.

    `largest_tile` is in elements; the tile is smaller where that lets more columns work. Every element is in exactly one
    tile or in the tail.
    """
    lanes = VECTOR_BYTES // min(item_sizes)
    if largest_tile < lanes or elements < 1:
        raise ValueError(f"{elements} elements in tiles of at most {largest_tile}, which must be {lanes} at least")
    common = min(round_up(elements, granule([size])) for size in item_sizes)
    tile = min(round_up(-(-common // columns), lanes), largest_tile // lanes * lanes)
    # Where `common` is whole tiles it is whole words in every type, so that no tensor has words behind the last tile.
    whole, tail = divmod(common, tile)
    used = min(columns, whole + (tail > 0))
    shares, first = [], 0
    for column in range(used):
        # The first columns have one tile more; the last has the tail.
        tiles = whole // used + (column < whole % used)
        rest = tail if column == used - 1 else 0
        shares.append(Share(column, first, tiles, rest))
        first += tiles * tile + rest
    return Plan(elements, common, tile, tuple(shares))
