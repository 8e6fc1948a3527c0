"""Access patterns of `aie.helpers.taplib`."""

from __future__ import annotations

from collections.abc import MutableSequence
from math import prod
from typing import Callable, Iterator, Sequence

import numpy as np

from .errors import BadCall
from .layout import order
from .memory import number_of


class TensorAccessPattern:
    """Which elements of a tensor, in which order."""

    def __init__(self, tensor_dims: Sequence[int], offset: int, sizes: Sequence[int], strides: Sequence[int]) -> None:
        self._dims = _extents(tensor_dims)
        self._offset = int(offset)
        self._sizes, self._strides = [int(n) for n in sizes], [int(number_of(n)) for n in strides]
        if len(self._sizes) != len(self._strides) or not self._sizes:
            raise BadCall(f"a pattern has as many sizes as strides, not {self._sizes} and {self._strides}")
        if any(size < 1 for size in self._sizes) or any(stride < 0 for stride in self._strides):
            raise BadCall(f"sizes are at least 1 and strides at least 0, not {self._sizes} and {self._strides}")
        if not 0 <= self._offset < prod(self._dims):
            raise BadCall(f"a pattern begins at element {self._offset} of a tensor of {prod(self._dims)}")
        # A step that is never made says nothing; outermost ones are 0, as IRON writes them.
        seen = False
        for index, size in enumerate(self._sizes):
            seen = seen or size > 1
            if not seen and index < len(self._sizes) - 1:
                self._strides[index] = 0

    tensor_dims = property(lambda self: list(self._dims))
    offset = property(lambda self: self._offset)
    sizes = property(lambda self: list(self._sizes))
    strides = property(lambda self: list(self._strides))
    transformation_dims = property(lambda self: list(zip(self._sizes, self._strides)))

    def _indices(self) -> np.ndarray:
        return (order(tuple(self._sizes), tuple(self._strides)) + self._offset) % prod(self._dims)

    def access_generator(self) -> Iterator[int]:
        """The elements in order."""
        return (int(index) for index in self._indices())

    def access_order(self) -> np.ndarray:
        """When each element passes, -1 for never; the last time counts."""
        result = np.full(prod(self._dims), -1, dtype=np.int32)
        indices = self._indices()
        result[indices] = np.arange(len(indices), dtype=np.int32)
        return result.reshape(self._dims)

    def access_count(self) -> np.ndarray:
        """How often each element passes."""
        return np.bincount(self._indices(), minlength=prod(self._dims)).astype(np.int32).reshape(self._dims)

    def accesses(self) -> tuple[np.ndarray, np.ndarray]:
        """Both."""
        return self.access_order(), self.access_count()

    def compare_access_orders(self, other: TensorAccessPattern) -> bool:
        """Whether both name the same elements in the same order."""
        return np.array_equal(self._indices(), other._indices())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorAccessPattern):
            return NotImplemented
        mine = (self._dims, self._offset, self._sizes, self._strides)
        return mine == (other._dims, other._offset, other._sizes, other._strides)

    def __repr__(self) -> str:
        return f"TensorAccessPattern({self._dims}, offset={self._offset}, sizes={self._sizes}, strides={self._strides})"


class TensorAccessSequence(MutableSequence):
    """Several patterns, one after the other."""

    def __init__(
        self, tensor_dims: Sequence[int], num_steps: int, offset: int | None = None, sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None, offset_fn: Callable | None = None, sizes_fn: Callable | None = None,
        strides_fn: Callable | None = None,
    ) -> None:
        self._taps: list[TensorAccessPattern] = []
        for step in range(num_steps):
            offset = offset_fn(step, offset) if offset_fn else offset
            sizes = sizes_fn(step, sizes) if sizes_fn else sizes
            strides = strides_fn(step, strides) if strides_fn else strides
            if offset is None or sizes is None or strides is None:
                raise BadCall("a sequence of patterns needs offset, sizes and strides, each as a value or a function")
            self._taps.append(TensorAccessPattern(tensor_dims, offset, sizes, strides))

    @classmethod
    def from_taps(cls, taps: Sequence[TensorAccessPattern]) -> TensorAccessSequence:
        """Of patterns that exist."""
        if not taps:
            raise BadCall("a sequence of no patterns has no tensor")
        sequence = cls(taps[0].tensor_dims, 0)
        sequence._taps = list(taps)
        return sequence

    def access_count(self) -> np.ndarray:
        """How often each element passes."""
        return sum(tap.access_count() for tap in self._taps)

    def access_order(self) -> np.ndarray:
        """When each element passes, counted through all patterns."""
        result, passed = None, 0
        for tap in self._taps:
            mine = tap.access_order()
            result = np.full_like(mine, -1) if result is None else result
            result[mine >= 0] = mine[mine >= 0] + passed
            passed += prod(tap.sizes)
        return result

    def accesses(self) -> tuple[np.ndarray, np.ndarray]:
        """Both."""
        return self.access_order(), self.access_count()

    def __iter__(self) -> Iterator[TensorAccessPattern]:
        return iter(self._taps)

    def __len__(self) -> int:
        return len(self._taps)

    def __getitem__(self, index):
        return self._taps[index]

    def __setitem__(self, index, tap: TensorAccessPattern) -> None:
        self._taps[index] = tap

    def __delitem__(self, index) -> None:
        del self._taps[index]

    def __contains__(self, tap: TensorAccessPattern) -> bool:
        return tap in self._taps

    def insert(self, index: int, tap: TensorAccessPattern) -> None:
        """Puts a pattern before the one at `index`."""
        self._taps.insert(index, tap)


class TensorTiler2D:
    """Patterns that cover a matrix tile by tile, or group of tiles by group of tiles."""

    @classmethod
    def simple_tiler(
        cls, tensor_dims, tile_dims=None, tile_col_major=False, iter_col_major=False, pattern_repeat=1, prune_step=True
    ) -> TensorAccessSequence:
        """A pattern for each tile."""
        return cls.group_tiler(
            tensor_dims, tensor_dims if tile_dims is None else tile_dims, None, tile_col_major, False, iter_col_major, pattern_repeat,
            False, prune_step,
        )

    @classmethod
    def group_tiler(
        cls, tensor_dims, tile_dims, tile_group_dims=None, tile_col_major=False, tile_group_col_major=False, iter_col_major=False,
        pattern_repeat=1, allow_partial=False, prune_step=True,
    ) -> TensorAccessSequence:
        """A pattern for each group of neighbouring tiles."""
        return cls.step_tiler(
            tensor_dims, tile_dims, (1, 1) if tile_group_dims is None else tile_group_dims, None, tile_col_major, tile_group_col_major,
            iter_col_major, allow_partial, pattern_repeat, prune_step,
        )

    @classmethod
    def step_tiler(
        cls, tensor_dims, tile_dims, tile_group_repeats, tile_group_steps=None, tile_col_major=False, tile_group_col_major=False,
        iter_col_major=False, allow_partial=False, pattern_repeat=1, prune_step=True,
    ) -> TensorAccessSequence:
        """A pattern for each group of tiles that are `tile_group_steps` apart."""
        whole, tile = _two(tensor_dims), _two(tile_dims)
        repeats, steps = _two(tile_group_repeats), _two((1, 1) if tile_group_steps is None else tile_group_steps)
        if not isinstance(pattern_repeat, int) or pattern_repeat < 1:
            raise BadCall(f"pattern_repeat is at least 1, not {pattern_repeat!r}")
        for axis in (0, 1):
            if whole[axis] % tile[axis]:
                raise BadCall(f"dimension {axis} of the tensor, {whole[axis]}, is not divided by tiles of {tile[axis]}")
            if not allow_partial and whole[axis] % (tile[axis] * repeats[axis] * steps[axis]):
                raise BadCall(
                    f"dimension {axis} of the tensor, {whole[axis]}, is not divided by groups of {repeats[axis]} tiles of {tile[axis]}, "
                    f"{steps[axis]} apart; allow_partial=True lets the last be smaller"
                )
        tiles = [whole[axis] // tile[axis] for axis in (0, 1)]
        repeats = [min(repeats[axis], -(-tiles[axis] // steps[axis])) for axis in (0, 1)]
        steps = [steps[axis] if steps[axis] <= tiles[axis] else 1 for axis in (0, 1)]
        counts = [_groups(tiles[axis], steps[axis], repeats[axis]) for axis in (0, 1)]
        taps = []
        for number in range(counts[0] * counts[1]):
            row, column = (number % counts[0], number // counts[0]) if iter_col_major else divmod(number, counts[1])
            first = [
                index // steps[axis] * steps[axis] * repeats[axis] + index % steps[axis] for axis, index in enumerate((row, column))
            ]
            left = [tiles[axis] - first[axis] for axis in (0, 1)]
            sizes, strides = _group(whole, tile, steps, repeats, left, tile_col_major, tile_group_col_major, prune_step)
            if pattern_repeat > 1:
                _repeat(sizes, strides, pattern_repeat)
            offset = first[0] * tile[0] * whole[1] + first[1] * tile[1]
            taps.append(TensorAccessPattern(whole, offset, sizes, strides))
        return TensorAccessSequence.from_taps(taps)


def _group(whole, tile, steps, repeats, left, tile_col_major, group_col_major, prune) -> tuple[list[int], list[int]]:
    """Sizes and strides of one group of which `left` tiles remain in each dimension."""
    (height, width), row = tile, whole[1]
    down, across = (min(repeats[axis], -(-left[axis] // steps[axis])) for axis in (0, 1))
    step_down, step_across = (steps[axis] if steps[axis] <= left[axis] else 1 for axis in (0, 1))
    if prune:
        # Neighbouring tiles that follow each other in the order of their elements are one larger tile.
        if group_col_major and not tile_col_major and step_down == 1 and down > 1:
            height, down = height * down, 1
        elif not group_col_major and tile_col_major and step_across == 1 and across > 1:
            width, across = width * across, 1
    inner = [(width, 1), (height, row)] if tile_col_major else [(height, row), (width, 1)]
    outer_down, outer_across = (down, row * height * step_down), (across, width * step_across)
    if down > 1 and across > 1:
        outer = [outer_across, outer_down] if group_col_major else [outer_down, outer_across]
    elif down > 1:
        outer = [(1, 0), outer_down]
    elif across > 1:
        outer = [(1, 0), outer_across]
    else:
        outer = [(1, 0), (1, 0)]
    dims = outer + inner
    return [size for size, _ in dims], [stride for _, stride in dims]


def _repeat(sizes: list[int], strides: list[int], times: int) -> None:
    """Puts a repetition outermost, the only dimension in which a shim repeats."""
    if sizes[0] != 1:
        raise BadCall(f"a pattern with sizes {sizes} has no dimension left for a repetition")
    sizes[0], strides[0] = times, 0


def _groups(tiles: int, step: int, repeat: int) -> int:
    """How many groups cover `tiles`."""
    full, rest = divmod(tiles, step * repeat)
    count = full * step
    if rest:
        smaller = step * (rest // step)
        count += rest // smaller * step if smaller else rest
    return count


def _two(dims: Sequence[int]) -> list[int]:
    dims = _extents(dims)
    if len(dims) != 2:
        raise BadCall(f"a tiler takes two dimensions, not {dims}")
    return dims


def _extents(dims: Sequence[int]) -> list[int]:
    numbers = [int(n) for n in dims]
    if not numbers or any(n < 1 for n in numbers):
        raise BadCall(f"extents are at least 1, not {numbers}")
    return numbers
