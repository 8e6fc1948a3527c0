"""The few things of `aie.iron` that differ between its versions, in one place.

IRON 1.3.1 places with `placement=` and a placer, later versions with `tile=`; up to 1.3 a runtime sequence is written inside
`with runtime.sequence(...)`, in 1.4 it is a function that is given tensors and fifo handles.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Callable

import aie.iron
import aie.iron.device as devices
from aie.helpers.taplib import TensorAccessPattern
from aie.iron import ObjectFifo, Program, Runtime, Worker
from aie.iron.device import Tile
from generation import Generation
from tiling import Tap

MEMORY_ROW = 1
"""That of the memory tiles; row 0 is the shims'."""
FIRST_CORE_ROW = 2
CORES_OF_COLUMN = 4
MOST_QUEUED = 4
"""Transfers that a shim's channel takes before the first has ended."""


@dataclass
class Move:
    """A transfer between an argument of the kernel and a fifo of a column."""

    fifo: str
    argument: int
    tap: Tap


@dataclass
class Column:
    """The fifos at a column's shim by name: those that are filled from arguments, and those drained to them."""

    filled: dict[str, object] = field(default_factory=dict)
    drained: dict[str, object] = field(default_factory=dict)


class IronProgram:
    """Collects fifos and workers, then makes the MLIR module."""

    def __init__(self, target: Generation, columns: int) -> None:
        self._device = getattr(devices, target.device_name(columns))()
        self._columns = [Column() for _ in range(columns)]
        self._workers: list[Worker] = []

    def input(self, column: int, name: str, of_type: type, depth: int = 2) -> ObjectFifo:
        """A fifo from the shim of `column`."""
        fifo = ObjectFifo(of_type, depth=depth, name=f"{name}_{column}")
        self._columns[column].filled[name] = _handle(fifo.prod, column)
        return fifo

    def output(self, column: int, name: str, of_type: type, depth: int = 2) -> ObjectFifo:
        """A fifo to the shim of `column`."""
        fifo = ObjectFifo(of_type, depth=depth, name=f"{name}_{column}")
        self._columns[column].drained[name] = _handle(fifo.cons, column)
        return fifo

    def interleaved_output(self, column: int, name: str, of_type: type, part: type, parts: int) -> list[ObjectFifo]:
        """A fifo to the shim of `column` that takes an element of each of these fifos in turn, by the column's memory tile.

        An object is `of_type`; each of the fifos gives a `part` of it.
        """
        (elements,) = part.__args__[0]
        order = [(elements, 1), (parts, elements)]
        whole = ObjectFifo(of_type, depth=2, name=f"{name}_{column}", dims_to_stream=order)
        self._columns[column].drained[name] = _handle(whole.cons, column)
        end = whole.prod()
        where = {_place_name(end.join): Tile(column, MEMORY_ROW)}
        offsets = [index * elements for index in range(parts)]
        names = [f"{name}_{column}_{index}" for index in range(parts)]
        return end.join(offsets, obj_types=[part] * parts, names=names, **where)

    def worker(self, column: int, body: Callable, arguments: list, row: int = FIRST_CORE_ROW, **options: object) -> None:
        """A core in `column` that runs `body` with `arguments` for every dispatch."""
        where = {_place_name(Worker.__init__): Tile(column, row)}
        self._workers.append(Worker(body, arguments, **where, **options))

    def module(self, types: list[type], rounds: list[list[tuple[int, Move]]], jobs: list[list[tuple]] | None = None) -> object:
        """The MLIR module of a kernel with arguments of these flat array types.

        `rounds` has the transfers, with their columns, in order; a round begins when the drains of the one before have ended.
        `jobs`, if given, has what is done before each: (buffer, barrier, numbers), where the numbers are written to the buffer
        and the barrier is set to 1.
        """
        _require_queues(rounds)
        jobs = jobs or [[] for _ in rounds]
        if hasattr(Runtime, "sequence"):
            return self._module_with_context(types, rounds, jobs)
        return self._module_of_function(types, rounds, jobs)

    def _fifo(self, column: int, move: Move) -> tuple[object, bool]:
        fifos = self._columns[column]
        drained = move.fifo in fifos.drained
        return (fifos.drained if drained else fifos.filled)[move.fifo], drained

    def _module_with_context(self, types: list[type], rounds: list, jobs: list) -> object:
        runtime = Runtime()
        with runtime.sequence(*types) as arguments:
            arguments = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
            runtime.start(*self._workers)
            for moves, round_jobs in zip(rounds, jobs):
                for buffer, barrier, numbers in round_jobs:
                    runtime.inline_ops(_write_numbers, [buffer, numbers])
                    runtime.set_barrier(barrier, 1)
                group = runtime.task_group()
                for column, move in moves:
                    handle, drained = self._fifo(column, move)
                    start = runtime.drain if drained else runtime.fill
                    where = {_place_name(start): Tile(column, 0)}
                    tap = _access_pattern(types[move.argument], move.tap)
                    start(handle, arguments[move.argument], tap, task_group=group, wait=drained, **where)
                runtime.finish_task_group(group)
        program = Program(self._device, runtime)
        try:
            from aie.iron.placers import SequentialPlacer
        except ImportError:
            return program.resolve_program()
        return program.resolve_program(SequentialPlacer())

    def _module_of_function(self, types: list[type], rounds: list, jobs: list) -> object:
        handles = [handle for column in self._columns for handle in (*column.filled.values(), *column.drained.values())]
        position = {id(handle): index for index, handle in enumerate(handles)}

        def sequence(*arguments: object) -> None:
            tensors, passed = arguments[: len(types)], arguments[len(types) :]
            for moves, round_jobs in zip(rounds, jobs):
                for buffer, barrier, numbers in round_jobs:
                    _write_numbers(buffer, numbers)
                    barrier.set(1)
                group = aie.iron.TaskGroup()
                for column, move in moves:
                    original, drained = self._fifo(column, move)
                    handle = passed[position[id(original)]]
                    tap = _access_pattern(types[move.argument], move.tap)
                    start = handle.drain if drained else handle.fill
                    start(tensors[move.argument], tap=tap, group=group, wait=drained)
                group.finish()

        runtime = Runtime(sequence, [*types, *handles])
        return Program(self._device, runtime, workers=self._workers).resolve_program()


def _write_numbers(buffer: object, numbers: list[int]) -> None:
    for index, number in enumerate(numbers):
        buffer[index] = number


def _place_name(function: Callable) -> str:
    """The name under which a function of this IRON takes a tile."""
    return "placement" if "placement" in inspect.signature(function).parameters else "tile"


def _handle(create: Callable, column: int) -> object:
    """A fifo's end at the shim of `column`; versions that place there take the tile here."""
    return create(tile=Tile(column, 0)) if "tile" in inspect.signature(create).parameters else create()


def _access_pattern(of_type: type, tap: Tap) -> TensorAccessPattern:
    shape = of_type.__args__[0]
    return TensorAccessPattern(shape, tap.offset, list(tap.sizes), list(tap.strides))


def _require_queues(rounds: list) -> None:
    """A transfer that is started while the queue is full is lost, so no round has more than fit."""
    for moves in rounds:
        queued: dict[tuple[int, str], int] = {}
        for column, move in moves:
            key = (column, move.fifo)
            queued[key] = queued.get(key, 0) + 1
            if queued[key] > MOST_QUEUED:
                raise ValueError(f"more than {MOST_QUEUED} transfers of fifo {move.fifo} in column {column} in one round")
