"""Kernels that compute each element of the result from the elements of the sources at the same place.

One core in every column; the sources and the result pass in tiles (see tiling.py). A second source that repeats to the shape of the
first stays on the core as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np
from aie.iron import Buffer, ExternalFunction, Kernel
from aie.iron.controlflow import range_
from design import Unsupported
from element_types import array_type
from generation import VECTOR_BYTES, Generation, require_memory
from iron_program import IronProgram, Move
from tensor_desc import TensorDesc
from tiling import Plan, Share, Tap, divide, filler, granule, linear, round_up

CORES = Path(__file__).resolve().parent / "cores"
LARGEST_TILE_BYTES = 4096
"""Of one buffer. Transfers of this size cost the channels next to nothing per tile."""
LARGEST_DIMENSION = 1023
"""Words of a transfer's two innermost dimensions."""


@dataclass
class Core:
    """A C++ file of `cores`, and the macros that select what it computes."""

    source: str
    name: str
    macros: dict[str, str] = field(default_factory=dict)

    def function(self, suffix: str, arguments: list, **more: str) -> ExternalFunction:
        """The function for buffers of the given types, followed by numbers; `more` are further macros."""
        name = f"{self.name}_{suffix}"
        flags = [f"-D{key}={value}" for key, value in sorted((self.macros | more).items())]
        return ExternalFunction(
            name,
            source_file=str(CORES / self.source),
            arg_types=arguments,
            include_dirs=[str(CORES)],
            compile_flags=[f"-DCORE_FUNCTION={name}", *flags],
        )

    def functions(self, whole: list, tail: list, suffix: str = "") -> tuple[ExternalFunction, Kernel]:
        """The function for whole tiles and that for the tail, whose buffers have other types.

        They share an object file and, in it, all code but their names: program memory has no room for two of the larger ones.
        """
        tail_name = f"{self.name}_tail{suffix}"
        function = self.function(f"tile{suffix}", whole, TAIL_FUNCTION=tail_name)
        return function, Kernel(tail_name, function.object_file_name, tail)


def elementwise(target: Generation, core: Core, inputs: list[TensorDesc], output: TensorDesc) -> object:
    """The module of a kernel whose sources all have the shape of the result and no gaps.

    The core function takes one buffer per source, that of the result, and the number of elements.
    """
    if len(inputs) > 2:
        raise ValueError(f"{len(inputs)} sources; a core has two channels for what comes in")
    tensors = [*inputs, output]
    sizes = [tensor.itemsize for tensor in tensors]
    plan = divide(output.size, sizes, target.columns, LARGEST_TILE_BYTES // max(sizes))
    dtypes = [tensor.dtype for tensor in tensors]
    _require_fit(plan, dict(zip([f"source {i}" for i in range(len(inputs))] + ["result"], sizes)), {})
    tiles = [array_type(plan.tile, dtype) for dtype in dtypes]
    tail = array_type(plan.tail_of(output.itemsize), output.dtype)
    whole, last = _functions(core, plan, [*tiles, np.int32], [*tiles[:-1], tail, np.int32])

    program, rounds = IronProgram(target, len(plan.shares)), []
    for share in plan.shares:
        ins = [program.input(share.column, f"in{i}", of_type) for i, of_type in enumerate(tiles[:-1])]
        handles = [fifo.cons() for fifo in ins]
        outs = _outputs(program, share, tiles[-1], tail if share.tail else None)
        body = _body(len(handles), share, plan.tile, plan.tail_of(output.itemsize))
        program.worker(share.column, body, [*handles, *outs, *_present(share, whole, last)])
        for index, tensor in enumerate(inputs):
            rounds += _input_moves(plan, share, f"in{index}", index, tensor.itemsize)
        rounds += _output_moves(plan, share, len(inputs), output.itemsize)
    return program.module([array_type(plan.moved(tensor.itemsize), tensor.dtype) for tensor in tensors], [rounds])


def elementwise_halves(
    target: Generation, core: Core, source: TensorDesc, offsets: tuple[int, int], output: TensorDesc
) -> object:
    """As `elementwise`, with two sources that are columns of one: those from each of `offsets` on, as many as the result has."""
    width, half = source.shape[0], output.shape[0]
    rows, size = output.size // half, output.itemsize
    step = granule([size])
    if half % step or width % step:
        raise Unsupported(
            f"rows of {width} elements of {output.dtype} in halves of {half} are not whole words, which is what a DMA moves; "
            "in f32 they are"
        )
    columns = min(target.columns, rows)
    counts = [rows // columns + (column < rows % columns) for column in range(columns)]
    lanes = VECTOR_BYTES // size
    tile = min(round_up(counts[0] * half, lanes), LARGEST_TILE_BYTES // size)
    of_type, types = array_type(tile, output.dtype), [array_type(source.size, source.dtype), array_type(output.size, output.dtype)]
    made: dict[int, tuple] = {}
    program, moves, first = IronProgram(target, columns), [], 0
    for column, count in enumerate(counts):
        tiles, rest = divmod(count * half, tile)
        share = Share(column, first * half, tiles, rest)
        plan = Plan(output.size, output.size, tile, (share,))
        _require_fit(plan, {"source 0": size, "source 1": size, "result": size}, {})
        tail = array_type(rest, output.dtype)
        if rest not in made:
            suffix = f"_{rest}" if rest else ""
            made[rest] = _functions(core, plan, [of_type] * 3 + [np.int32], [of_type, of_type, tail, np.int32], suffix)
        handles = [program.input(column, f"in{i}", of_type).cons() for i in range(2)]
        outs = _outputs(program, share, of_type, tail if rest else None)
        program.worker(column, _body(2, share, tile, rest), [*handles, *outs, *_present(share, *made[rest])])
        for index, offset in enumerate(offsets):
            taps = [_column_tap(first * width + offset, count, half, width, step)]
            if rest:
                taps += filler(source.size, tile - rest, step)
            moves += [(column, Move(f"in{index}", 0, tap)) for tap in taps]
        moves += _output_moves(plan, share, 1, size)
        first += count
    return program.module(types, [moves])


def _column_tap(offset: int, rows: int, length: int, stride: int, step: int) -> Tap:
    """`length` elements of each of `rows` rows that are `stride` apart."""
    if rows == 1:
        return linear(offset, length)
    widest = LARGEST_DIMENSION * step
    parts = next((n for n in range(1, LARGEST_DIMENSION + 1) if length % (n * step) == 0 and length // n <= widest), None)
    if parts is None:
        raise Unsupported(f"{length} elements of a row are no product of two sizes that a transfer may have")
    return Tap(offset, (1, rows, parts, length // parts), (0, stride, length // parts, 1))


def elementwise_repeated(target: Generation, core: Core, inputs: list[TensorDesc], output: TensorDesc) -> object:
    """As `elementwise`, for two sources of which the second repeats to the shape of the first.

    The core function takes in addition, before the number of elements, a buffer that counts its calls, and after it where its
    elements begin, how far those of the next call are, and how many calls there are.
    """
    first, second = inputs
    # The second source comes as a whole; its length is made whole vectors, by elements that nothing looks at.
    lanes = VECTOR_BYTES // second.itemsize
    words = granule([second.itemsize])
    resident, given = round_up(second.size, lanes), round_up(second.size, words)
    sizes = [first.itemsize, output.itemsize]
    plan = divide(output.size, sizes, target.columns, LARGEST_TILE_BYTES // max(sizes) // 2)
    _require_fit(plan, {"source 0": sizes[0], "result": sizes[1]}, {"source 1": resident * second.itemsize, "progress": 64})
    tile, out_tile = (array_type(plan.tile, tensor.dtype) for tensor in (first, output))
    whole_second, progress = array_type(resident, second.dtype), np.ndarray[(16,), np.dtype[np.int32]]
    numbers = [np.int32] * 4
    tail = array_type(plan.tail_of(output.itemsize), output.dtype)
    whole, last = _functions(
        core, plan, [tile, whole_second, out_tile, progress, *numbers], [tile, whole_second, tail, progress, *numbers]
    )

    program, rounds = IronProgram(target, len(plan.shares)), []
    for share in plan.shares:
        in0 = program.input(share.column, "in0", tile)
        in1 = program.input(share.column, "in1", whole_second, depth=1)
        outs = _outputs(program, share, out_tile, tail if share.tail else None)
        counter = Buffer(progress, initial_value=np.zeros(16, dtype=np.int32), name=f"progress_{share.column}")
        arguments = [in0.cons(), in1.cons(), *outs, counter, *_present(share, whole, last)]
        program.worker(share.column, _repeated_body(share, plan.tile, plan.tail_of(output.itemsize)), arguments)
        rounds += _input_moves(plan, share, "in0", 0, first.itemsize)
        taps = [linear(0, given), *filler(given, resident - given, words)]
        rounds += [(share.column, Move("in1", 1, tap)) for tap in taps]
        rounds += _output_moves(plan, share, 2, output.itemsize)
    moved = [array_type(plan.moved(tensor.itemsize), tensor.dtype) for tensor in (first, output)]
    types = [moved[0], array_type(given, second.dtype), moved[1]]
    return program.module(types, [rounds])


def _require_fit(plan: Plan, moved: dict[str, int], others: dict[str, int]) -> None:
    buffers = {f"2 tiles of {name}": 2 * plan.tile * size for name, size in moved.items()}
    if plan.tail:
        buffers["tail"] = plan.tail_of(moved["result"]) * moved["result"]
    require_memory("an element-wise kernel", buffers | others)


def _functions(core: Core, plan: Plan, whole: list, tail: list, suffix: str = "") -> tuple:
    """The functions for whole tiles and for the tail, as far as there are any, with these arguments."""
    tiles = any(share.tiles for share in plan.shares)
    if tiles and plan.tail:
        return core.functions(whole, tail, suffix)
    if tiles:
        return core.function(f"tile{suffix}", whole), None
    return None, core.function(f"tail{suffix}", tail)


def _outputs(program: IronProgram, share: Share, tile: type, tail: type | None) -> list:
    """The producing ends of the fifos that the column needs: for whole tiles, for the tail."""
    fifos = []
    if share.tiles:
        fifos.append(program.output(share.column, "out", tile))
    if tail is not None:
        # One buffer, the smallest of the core: whatever its size, no other begins behind it.
        fifos.append(program.output(share.column, "out_tail", tail, depth=1))
    return [fifo.prod() for fifo in fifos]


def _present(share: Share, whole: ExternalFunction | None, last: Kernel | None) -> list:
    return ([whole] if share.tiles else []) + ([last] if share.tail else [])


def _input_moves(plan: Plan, share: Share, fifo: str, argument: int, itemsize: int) -> list[tuple[int, Move]]:
    tail = plan.tail_of(itemsize) if share.tail else 0
    taps = [linear(share.first, share.tiles * plan.tile + tail)]
    if tail:
        taps += filler(plan.moved(itemsize), plan.tile - tail, granule([itemsize]))
    return [(share.column, Move(fifo, argument, tap)) for tap in taps]


def _output_moves(plan: Plan, share: Share, argument: int, itemsize: int) -> list[tuple[int, Move]]:
    moves, whole = [], share.tiles * plan.tile
    if share.tiles:
        moves.append((share.column, Move("out", argument, linear(share.first, whole))))
    if share.tail:
        moves.append((share.column, Move("out_tail", argument, linear(share.first + whole, plan.tail_of(itemsize)))))
    return moves


def _body(inputs: int, share: Share, tile: int, tail: int) -> Callable:
    def one(ins: list, out: object, function: object, count: int) -> None:
        elements = [fifo.acquire(1) for fifo in ins]
        result = out.acquire(1)
        function(*elements, result, count)
        for fifo in ins:
            fifo.release(1)
        out.release(1)

    def body(*arguments: object) -> None:
        ins, rest = arguments[:inputs], list(arguments[inputs:])
        outs, functions = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        if share.tiles:
            for _ in range_(share.tiles):
                one(ins, outs[0], functions[0], tile)
        if share.tail:
            one(ins, outs[-1], functions[-1], tail)

    return body


def _repeated_body(share: Share, tile: int, tail: int) -> Callable:
    calls = share.tiles + (share.tail > 0)

    def one(in0: object, second: object, out: object, counter: object, function: object, count: int) -> None:
        first, result = in0.acquire(1), out.acquire(1)
        function(first, second, result, counter, count, share.first, tile, calls)
        in0.release(1)
        out.release(1)

    def body(in0: object, in1: object, *rest: object) -> None:
        ends = (len(rest) - 1) // 2
        outs, counter, functions = rest[:ends], rest[ends], rest[ends + 1 :]
        second = in1.acquire(1)
        if share.tiles:
            for _ in range_(share.tiles):
                one(in0, second, outs[0], counter, functions[0], tile)
        if share.tail:
            one(in0, second, outs[-1], counter, functions[-1], tail)
        in1.release(1)

    return body
