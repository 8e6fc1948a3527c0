"""Places what a design leaves open: cores column by column, shims and mem tiles near the cores that use them."""

from __future__ import annotations

from collections import Counter
from statistics import mean

from . import hardware
from .array_program import Device, End, Fifo, Link
from .errors import LimitExceeded
from .hardware import Tile, limits


class Placer:
    """Gives tiles out and counts the channels that are taken."""

    def __init__(self, device: Device, cores_per_column: int | None) -> None:
        self._device = device
        rows = range(hardware.FIRST_CORE_ROW, hardware.FIRST_CORE_ROW + min(cores_per_column or 4, 4))
        self._free = [Tile(column, row) for column in range(device.columns) for row in rows]
        self._taken: Counter = Counter()

    def reserve(self, tile: Tile) -> None:
        """A core that the design has placed itself."""
        if tile in self._free:
            self._free.remove(tile)

    def core(self, place: str) -> Tile:
        """The next free core."""
        if not self._free:
            raise LimitExceeded(f"no core of {self._device.name} is left for this worker", place)
        return self._free.pop(0)

    def count(self, fifos: list[Fifo]) -> None:
        """Takes the channels of all ends that have a tile."""
        for fifo in fifos:
            if fifo.producer.tile is not None:
                self._taken[(fifo.producer.tile, False)] += 1
            for end in fifo.consumers:
                if end.tile is not None:
                    self._taken[(end.tile, True)] += 1

    def shim(self, fifo: Fifo, end: End, inwards: bool) -> None:
        """Places a shim's end."""
        end.tile = self._near(fifo, hardware.SHIM_ROW, {inwards: 1})
        self._taken[(end.tile, inwards)] += 1

    def link(self, link: Link, ends: list[tuple[Fifo, End, bool]]) -> None:
        """Places the mem tile of a split, join or forward."""
        needed = Counter(inwards for _, _, inwards in ends)
        many = link.targets if len(link.targets) >= len(link.sources) else link.sources
        tile = self._near(many[0] if len(many) == 1 else many, hardware.MEM_ROW, needed)
        for _, end, inwards in ends:
            end.tile = tile
            self._taken[(tile, inwards)] += 1

    def _near(self, fifos: object, row: int, needed: dict[bool, int]) -> Tile:
        fifos = fifos if isinstance(fifos, list) else [fifos]
        columns = [
            end.tile.col for fifo in fifos for end in (fifo.producer, *fifo.consumers)
            if end.tile is not None and end.tile.row >= hardware.FIRST_CORE_ROW
        ]
        if not columns:
            columns = [end.tile.col for fifo in fifos for end in (fifo.producer, *fifo.consumers) if end.tile is not None]
        first = round(mean(columns)) if columns else 0
        order = [*range(first, self._device.columns), *range(first - 1, -1, -1)]
        for column in order:
            tile = Tile(column, row)
            if all(self._taken[(tile, way)] + count <= limits(row).channels for way, count in needed.items()):
                return tile
        names = ", ".join(fifo.name for fifo in fifos)
        raise LimitExceeded(f"no {limits(row).kind} of {self._device.name} has the DMA channels that {names} needs", fifos[0].place)
