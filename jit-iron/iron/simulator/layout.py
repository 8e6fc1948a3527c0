"""Access patterns: which elements pass, in which order, and whether a DMA of a tile can do that."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from .errors import BadTransfer
from .hardware import SHIM_ITERATIONS, WORD, TileLimits


@lru_cache(maxsize=512)
def order(sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Index of every element that passes, in order; the first index is 0."""
    indices = np.zeros(1, dtype=np.int64)
    for size, stride in zip(sizes, strides):
        indices = (indices[:, None] + np.arange(size, dtype=np.int64)[None, :] * stride).reshape(-1)
    return indices


def check_words(what: str, sizes: list[int], strides: list[int], itemsize: int, offset: int, place: str) -> None:
    """A DMA moves whole words: start, length and steps must be."""
    if offset * itemsize % WORD:
        raise BadTransfer(f"{what} begins at byte {offset * itemsize}, not a multiple of {WORD}", place)
    if sizes[-1] * itemsize % WORD:
        raise BadTransfer(f"{what} moves {sizes[-1] * itemsize} bytes, not a multiple of {WORD}", place)
    for index, (size, stride) in enumerate(zip(sizes, strides)):
        innermost = index == len(sizes) - 1
        if size > 1 and stride * itemsize % WORD and not (innermost and stride == 1):
            raise BadTransfer(
                f"{what} has a step of {stride} elements, {stride * itemsize} bytes, in dimension {index} of {sizes}; "
                f"steps are multiples of {WORD} bytes",
                place,
            )


def check_shim(what: str, sizes: list[int], strides: list[int], itemsize: int, offset: int, limits: TileLimits, place: str) -> None:
    """Refuses what a shim's descriptor does not hold: four dimensions, outermost first, of which the first iterates."""
    if len(sizes) != 4 or len(strides) != 4:
        raise BadTransfer(f"{what} has sizes {sizes} and strides {strides}; a shim's transfer has four of each", place)
    if any(size < 1 for size in sizes):
        raise BadTransfer(f"{what} has sizes {sizes}; each is at least 1", place)
    check_words(what, sizes, strides, itemsize, offset, place)
    if sizes[0] > SHIM_ITERATIONS:
        raise BadTransfer(f"{what} iterates {sizes[0]} times; a shim's descriptor does {SHIM_ITERATIONS}", place)
    if prod(sizes[:3]) == 1 and strides[3] in (0, 1):
        return
    _check_steps(what, list(sizes[1:]), list(strides[1:]), itemsize, limits, place)
    if sizes[0] > 1:
        _check_step(what, strides[0], itemsize, limits, place, zero=True)


def check_tile(what: str, dims: list[tuple[int, int]], itemsize: int, limits: TileLimits, place: str) -> None:
    """Refuses what a descriptor of a core or mem tile does not hold."""
    if not dims:
        return
    sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
    if len(dims) > limits.dimensions:
        raise BadTransfer(f"{what} has {len(dims)} dimensions; a descriptor of a {limits.kind} has {limits.dimensions}", place)
    check_words(what, sizes, strides, itemsize, 0, place)
    _check_steps(what, sizes, strides, itemsize, limits, place)


def _check_steps(what: str, sizes: list[int], strides: list[int], itemsize: int, limits: TileLimits, place: str) -> None:
    words = sizes[-1] * itemsize // WORD if strides[-1] == 1 else sizes[-1]
    counted = {len(sizes) - 1: words}
    if len(sizes) > 1:
        counted[len(sizes) - 2] = sizes[-2]
    for index, count in counted.items():
        if count > limits.most_wraps:
            raise BadTransfer(
                f"{what} has {count} words or steps in dimension {index} of {sizes}; a descriptor of a {limits.kind} "
                f"counts to {limits.most_wraps}",
                place,
            )
    for index, (size, stride) in enumerate(zip(sizes, strides)):
        if size > 1:
            _check_step(what, stride, itemsize, limits, place, zero=False)


def _check_step(what: str, stride: int, itemsize: int, limits: TileLimits, place: str, zero: bool) -> None:
    words = stride * itemsize / WORD
    if words > limits.largest_step:
        raise BadTransfer(
            f"{what} has a step of {stride} elements; a descriptor of a {limits.kind} steps {limits.largest_step} words", place
        )
    if stride < 0 or (stride == 0 and not zero):
        raise BadTransfer(f"{what} has a step of {stride}; it must be positive, only the outermost may be 0", place)
