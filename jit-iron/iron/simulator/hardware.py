"""The array's limits, the same for both generations but for the number of columns."""

from __future__ import annotations

from dataclasses import dataclass

SHIM_ROW, MEM_ROW, FIRST_CORE_ROW, ROWS = 0, 1, 2, 6
WORD = 4
DEFAULT_STACK = 1024
QUEUE = 4
"""Tasks that wait in a channel, beside the one that runs."""
MOST_REPEATS = 256
BURST_ALIGNMENT = 64
"""Alignment of every buffer here; the compiler's is at least 32."""


@dataclass(frozen=True)
class TileLimits:
    """What a tile has."""

    kind: str
    memory: int
    channels: int
    """In each direction."""
    descriptors: int
    dimensions: int
    """Of one descriptor, without its iteration."""
    most_wraps: int
    largest_step: int
    """In words."""


SHIM = TileLimits("shim", 0, 2, 16, 3, 1023, 1 << 20)
MEM = TileLimits("mem tile", 512 * 1024, 6, 48, 4, 1023, 1 << 17)
CORE = TileLimits("core", 64 * 1024, 2, 16, 3, 255, 1 << 13)
SHIM_ITERATIONS = 64


def limits(row: int) -> TileLimits:
    """Those of the tiles in `row`."""
    return SHIM if row == SHIM_ROW else MEM if row == MEM_ROW else CORE


@dataclass(frozen=True, order=True)
class Tile:
    """A place in the array."""

    col: int
    row: int
    allocation_scheme: str | None = None

    def __str__(self) -> str:
        return f"{limits(self.row).kind} ({self.col},{self.row})"


def shares_memory(one: Tile, other: Tile) -> bool:
    """Whether two cores reach a common data memory: neighbours above, below and beside each other."""
    if one.row < FIRST_CORE_ROW or other.row < FIRST_CORE_ROW:
        return False
    return abs(one.col - other.col) + abs(one.row - other.row) <= 1
