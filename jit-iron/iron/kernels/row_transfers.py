"""How rows of any length reach a core in objects of one length, by transfers that stay within the tensor.

A chunk of a row begins at any byte of a word, and its object at that word. An object that would reach beyond the tensor begins
earlier instead; one that is longer than the whole tensor has the tensor's first and last words, both as long as the largest
power of two in it, again and again. The core (cores/mul_mat.cc) is told which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from generation import WORD_BYTES
from tiling import MOST_REPEATS, Tap


@dataclass(frozen=True)
class Rows:
    """Some rows of a matrix, `classes` apart, so that all begin at the same byte of a word."""

    tensor: int
    """Elements of the whole tensor up to the end of its last word."""
    itemsize: int
    length: int
    """Elements of a row."""
    first: int
    """The first row, counted from the beginning of the tensor."""
    count: int
    classes: int

    @property
    def granule(self) -> int:
        """Elements of a word."""
        return WORD_BYTES // self.itemsize

    @property
    def start(self) -> int:
        """The first element of the first row's word."""
        return self.first * self.length // self.granule * self.granule

    @property
    def phase(self) -> int:
        """Bytes before the row's first element in its word."""
        return self.first * self.length * self.itemsize % WORD_BYTES

    @property
    def stride(self) -> int:
        """Elements from a row to the next."""
        return self.classes * self.length

    def window(self, chunk: int) -> int:
        """Elements of the two windows of a tensor that is shorter than a chunk; else 0."""
        if self.tensor >= chunk:
            return 0
        words = self.tensor // self.granule
        return (1 << (words.bit_length() - 1)) * self.granule

    def numbers(self, chunk: int) -> list[int]:
        """What the core is told, in words: phase (in bytes), stride, left, window, before."""
        words = [self.stride, self.tensor - self.start, self.window(chunk), self.start]
        return [self.phase, *(elements // self.granule for elements in words)]

    def taps(self, chunk: int, step: int, chunks: int) -> list[Tap]:
        """The transfers: for every chunk all rows, `chunk` elements each, the chunks `step` elements apart."""
        window = self.window(chunk)
        if window:
            return self._windows(chunk, chunks, window)
        direct = 0
        while direct < chunks and self._rows_within(chunk, step, direct) == self.count:
            direct += 1
        taps = []
        if direct:
            taps.append(Tap(self.start, (1, direct, self.count, chunk), (0, step, self.stride, 1)))
        for index in range(direct, chunks):
            within = self._rows_within(chunk, step, index)
            if within:
                taps.append(Tap(self.start + index * step, (1, 1, within, chunk), (0, 0, self.stride, 1)))
            if within < self.count:
                taps += _repeated(self.tensor - chunk, self.count - within, (chunk,), (1,))
        return taps

    def _rows_within(self, chunk: int, step: int, index: int) -> int:
        """How many rows, from the first on, have an object of this chunk that ends within the tensor."""
        room = self.tensor - self.start - index * step - chunk
        return 0 if room < 0 else min(self.count, room // self.stride + 1)

    def _windows(self, chunk: int, chunks: int, window: int) -> list[Tap]:
        if self.tensor == window:
            return _repeated(0, self.count * chunks * (chunk // window), (window,), (1,))
        between = self.tensor - window
        return _repeated(0, self.count * chunks * (chunk // (2 * window)), (2, window), (between, 1))


def row_classes(length: int, itemsize: int) -> int:
    """How many rows it takes until one begins at the same byte of a word as the first."""
    return WORD_BYTES // gcd(WORD_BYTES, length * itemsize)


def _repeated(offset: int, times: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[Tap]:
    """The same elements `times` times, in as few transfers as there can be."""
    taps, ones = [], 3 - len(sizes)
    while times:
        run = min(times, MOST_REPEATS)
        taps.append(Tap(offset, (run, *(1,) * ones, *sizes), (0, *(0,) * ones, *strides)))
        times -= run
    return taps
