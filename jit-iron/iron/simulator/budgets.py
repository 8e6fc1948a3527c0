"""What a program takes of each tile, before anything runs: data memory, channels, descriptors, columns."""

from __future__ import annotations

from collections import defaultdict

from . import hardware
from .array_program import ArrayProgram, Core, Fifo, Link, array_bytes
from .errors import LimitExceeded
from .hardware import Tile, limits


def check_budgets(program: ArrayProgram) -> None:
    """Raises LimitExceeded, with the sum written out, for the first tile that is asked for more than it has."""
    _check_places(program)
    _check_channels(program)
    _check_descriptors(program)
    _check_memory(program)


def _check_places(program: ArrayProgram) -> None:
    columns = program.device.columns
    used: list[tuple[Tile, str]] = [(core.tile, core.place) for core in program.cores]
    used += [(end.tile, fifo.place) for fifo in program.fifos for end in (fifo.producer, *fifo.consumers)]
    for tile, place in used:
        if not (0 <= tile.col < columns and 0 <= tile.row < hardware.ROWS):
            raise LimitExceeded(
                f"tile ({tile.col},{tile.row}) is outside of {program.device.name}, which has {columns} columns and {hardware.ROWS} rows",
                place,
            )
    taken: dict[Tile, Core] = {}
    for core in program.cores:
        if core.tile.row < hardware.FIRST_CORE_ROW:
            raise LimitExceeded(f"{core.tile} is not a core", core.place)
        if core.tile in taken:
            raise LimitExceeded(f"two programs for the core of {core.tile}; the other is at {taken[core.tile].place}", core.place)
        taken[core.tile] = core


def _check_channels(program: ArrayProgram) -> None:
    used: dict[tuple[Tile, str], list[Fifo]] = defaultdict(list)
    for fifo in program.fifos:
        if fifo.shared:
            continue
        used[(fifo.producer.tile, "out of it")].append(fifo)
        for end in fifo.consumers:
            used[(end.tile, "into it")].append(fifo)
    for (tile, way), fifos in used.items():
        most = limits(tile.row).channels
        if len(fifos) > most:
            names = ", ".join(fifo.name for fifo in fifos)
            raise LimitExceeded(f"{tile} has {most} DMA channels {way}, and {len(fifos)} fifos need one: {names}", fifos[most].place)


def _check_descriptors(program: ArrayProgram) -> None:
    """A channel of a core or mem tile needs a descriptor for each element of its fifo."""
    parts: dict[Tile, list[tuple[Fifo, int]]] = defaultdict(list)
    for fifo in program.fifos:
        for end in () if fifo.shared else (fifo.producer, *fifo.consumers):
            if end.tile.row != hardware.SHIM_ROW:
                parts[end.tile].append((fifo, end.depth))
    for tile, fifos in parts.items():
        total, most = sum(depth for _, depth in fifos), limits(tile.row).descriptors
        if total > most:
            listed = " + ".join(f"{fifo.name} {depth}" for fifo, depth in fifos)
            raise LimitExceeded(f"{tile} has {most} DMA descriptors, and {total} are needed: {listed}", fifos[-1][0].place)


def _check_memory(program: ArrayProgram) -> None:
    parts: dict[Tile, list[tuple[str, int]]] = defaultdict(list)
    places: dict[Tile, str] = {}
    for core in program.cores:
        parts[core.tile].append(("stack", core.stack))
        places[core.tile] = core.place
    linked = {(id(fifo), id(end)) for link in program.links for fifo, end in _linked_ends(link)}
    for link in program.links:
        tile = link.targets[0].producer.tile
        if len(link.sources) > 1:
            name, size, depth = link.targets[0].name, link.targets[0].bytes, link.targets[0].producer.depth
        else:
            end = next((end for fifo, end in _linked_ends(link) if fifo is link.sources[0]), link.sources[0].consumers[0])
            name, depth = link.sources[0].name, end.depth
            size = max([link.sources[0].bytes] + [fifo.bytes for fifo in link.targets if len(link.targets) == 1])
        parts[tile].append((f"{depth} elements of {name}", size * depth))
        places.setdefault(tile, link.place)
    for fifo in program.fifos:
        ends = [fifo.producer] if fifo.shared else [fifo.producer, *fifo.consumers]
        for end in ends:
            if end.tile.row == hardware.SHIM_ROW or (id(fifo), id(end)) in linked:
                continue
            parts[end.tile].append((f"{end.depth} elements of {fifo.name}", fifo.bytes * end.depth))
            places.setdefault(end.tile, fifo.place)
    for buffer in program.buffers:
        if buffer.tile is not None:
            parts[buffer.tile].append((f"buffer {buffer.name}", array_bytes(buffer.of_type)))
    for tile, sizes in parts.items():
        total, most = sum(size for _, size in sizes), limits(tile.row).memory
        if total > most:
            listed = " + ".join(f"{name} {size}" for name, size in sizes)
            raise LimitExceeded(f"{tile} has {most} bytes of memory, and {total} are needed: {listed}", places[tile])


def _linked_ends(link: Link) -> list[tuple[Fifo, object]]:
    tile = link.targets[0].producer.tile
    ends = [(fifo, fifo.producer) for fifo in link.targets]
    for fifo in link.sources:
        for end in fifo.consumers:
            if (end.owner is link.owner) if end.owner is not None else (end.tile == tile):
                ends.append((fifo, end))
                break
    return ends
