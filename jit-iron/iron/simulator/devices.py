"""The devices of `aie.iron.device` and `aie.dialects.aie`."""

from __future__ import annotations

from .array_program import Device as Array
from .errors import Unknown
from .hardware import FIRST_CORE_ROW, MEM_ROW, ROWS, SHIM_ROW, Tile, limits

GENERATIONS = {"npu1": ("aie2", 4), "npu2": ("aie2p", 8)}


def array(name: str) -> Array:
    """`npu1`, `npu2_3col`."""
    generation, _, columns = name.partition("_")
    arch, all_columns = GENERATIONS[generation]
    return Array(name, arch, int(columns.removesuffix("col")) if columns else all_columns)


class Device:
    """A device, or some columns of it."""

    array: Array

    @property
    def rows(self) -> int:
        """Of tiles."""
        return ROWS

    @property
    def cols(self) -> int:
        """Of tiles."""
        return self.array.columns

    def _row(self, row: int) -> list[Tile]:
        return [Tile(column, row) for column in range(self.cols)]

    def get_shim_tiles(self) -> list[Tile]:
        """One in each column."""
        return self._row(SHIM_ROW)

    def get_mem_tiles(self) -> list[Tile]:
        """One in each column."""
        return self._row(MEM_ROW)

    def get_compute_tiles(self) -> list[Tile]:
        """Column by column, from below."""
        return [Tile(column, row) for column in range(self.cols) for row in range(FIRST_CORE_ROW, ROWS)]

    def get_num_connections(self, tile: Tile, output: bool) -> int:
        """DMA channels in one direction."""
        return limits(tile.row).channels

    def resolve(self) -> Device:
        """Nothing is left to resolve."""
        return self


def names() -> dict[str, str]:
    """IRON's class of each device and its name in the placed API."""
    found = {}
    for generation, (_, columns) in GENERATIONS.items():
        found[generation.upper()] = generation
        for count in range(1, columns):
            found[f"{generation.upper()}Col{count}"] = f"{generation}_{count}col"
    return found


CLASSES = {name: type(name, (Device,), {"array": array(placed)}) for name, placed in names().items()}


class XCVC1902:
    """A device that designs name as another choice; it has no NPU of the two generations."""

    def __init__(self) -> None:
        raise Unknown(f"device XCVC1902 is not simulated; simulated: {', '.join(CLASSES)}")
