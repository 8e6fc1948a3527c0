"""SOFT_MAX: scaled rows, with an optional mask and ALiBi slopes."""

from __future__ import annotations

from math import floor, log2

import numpy as np
from aie.iron import Buffer
from aie.iron.controlflow import range_
from design import Unsupported
from element_types import array_type, cpp_type, require_contiguous, require_types
from elementwise import Core
from generation import generation
from iron_program import IronProgram, Move
from parameters import bits, real
from rowwise import RowBuffers, result_move, row_buffers, row_taps, shares, source_macros, window
from tensor_desc import TensorDesc
from tiling import round_up

MOST_HEADS = 256
"""Slopes that a core keeps."""


def ggml_op_soft_max(arch, input_tensors, output_tensor, op_params):
    """Parameter 0 is the factor, parameter 1 the largest bias of ALiBi."""
    target = generation(arch)
    source, mask = _sources(input_tensors, output_tensor)
    length, rows, heads, batches = source.shape
    buffers = row_buffers("soft_max", length, (4, mask.itemsize) if mask else (4,))
    macros = source_macros(source, buffers) | {"FACTOR": bits(op_params, 0)}
    row, part = array_type(buffers.object, "f32"), array_type(buffers.part, "f32")
    counters, slopes = np.ndarray[(16,), np.dtype[np.int32]], _slopes(heads, real(op_params, 1))
    slope_type, types = array_type(len(slopes), "f32"), [array_type(source.size, "f32")]
    arguments = [row, part, counters, np.int32, np.int32]
    if mask:
        mask_row = array_type(buffers.object, mask.dtype)
        extents = [rows, heads, batches, *mask.shape[1:]]
        macros |= {"MASK_TYPE": cpp_type(mask.dtype), "EXTENTS": ",".join(map(str, extents))}
        macros |= {"MASK_TENSOR": str(mask.size), "MASK_WINDOW": str(window(mask, buffers))}
        arguments = [row, mask_row, part, slope_type, counters, np.int32, np.int32]
        types.append(array_type(mask.size, mask.dtype))
    types.append(types[0])
    function = Core("soft_max.cc", "soft_max", macros).function("part", arguments)

    columns = shares(target, source.size // length)
    program = IronProgram(target, len(columns))
    for column, (first, count) in enumerate(columns):
        in0 = program.input(column, "in0", row, buffers.depth).cons()
        out = program.output(column, "out", part, buffers.out_depth).prod()
        progress = Buffer(counters, initial_value=np.zeros(16, np.int32), name=f"progress_{column}")
        if mask:
            in1 = program.input(column, "in1", mask_row, buffers.depth).cons()
            table = Buffer(slope_type, initial_value=slopes, name=f"slopes_{column}")
            body = _masked_body(length // buffers.part, first, count)
            program.worker(column, body, [in0, in1, out, table, progress, function])
        else:
            program.worker(column, _body(length // buffers.part, first, count), [in0, out, progress, function])
    return program.module(types, _rounds(source, mask, buffers, columns))


def _sources(input_tensors: list, output: TensorDesc) -> tuple[TensorDesc, TensorDesc | None]:
    given = [*input_tensors, None, None, None]
    source, mask, sinks = given[:3]
    if sinks is not None:
        raise Unsupported("sinks would be a third source of the cores, which have two channels for what comes in")
    if source is None:
        raise Unsupported("soft_max has no source 0")
    for what, tensor in (("source 0", source), ("the result", output)):
        require_types(what, tensor, ("f32",))
        require_contiguous(what, tensor)
    if source.shape != output.shape:
        raise Unsupported(f"source 0 has extents {source.shape}, the result {output.shape}; they must be equal")
    if mask is not None:
        require_types("the mask", mask, ("f32", "bf16"))
        require_contiguous("the mask", mask)
        if mask.shape[0] * mask.itemsize % 4:
            raise Unsupported(f"rows of {mask.shape[0]} elements of a mask in {mask.dtype} are no whole words; in f32 they are")
        fits = mask.shape[0] == source.shape[0] and mask.shape[1] >= source.shape[1]
        if not fits or any(x % m for x, m in zip(source.shape[2:], mask.shape[2:])):
            raise Unsupported(f"a mask with extents {mask.shape} does not fit {source.shape}")
    if source.shape[2] > MOST_HEADS:
        raise Unsupported(f"{source.shape[2]} heads; a core keeps the slopes of {MOST_HEADS}")
    return source, mask


def _slopes(heads: int, max_bias: float) -> np.ndarray:
    """ALiBi's factor of the mask for every head: 1 without a bias, else falling powers of two."""
    slopes = np.ones(round_up(heads, 16), dtype=np.float32)
    if max_bias > 0:
        power = 2 ** floor(log2(heads))
        for head in range(heads):
            base, exponent = (1, head + 1) if head < power else (2, 2 * (head - power) + 1)
            slopes[head] = 2.0 ** (-max_bias / (power * base) * exponent)
    return slopes


def _rounds(source: TensorDesc, mask: TensorDesc | None, buffers: RowBuffers, columns: list) -> list:
    """The transfers: with a mask, those of one matrix of rows in each round of a column."""
    last = 2 if mask else 1
    rounds: list[list] = []
    for column, (first, count) in enumerate(columns):
        for index, (start, part) in enumerate(_matrices(source.shape[1] if mask else count + first, first, count)):
            if index == len(rounds):
                rounds.append([])
            moves = rounds[index]
            moves += [(column, Move("in0", 0, tap)) for tap in row_taps(source, buffers, start, part)]
            if mask:
                meets = _mask_row(source, mask, start)
                moves += [(column, Move("in1", 1, tap)) for tap in row_taps(mask, buffers, meets, part)]
            moves.append(result_move(column, last, buffers, start, part))
    return rounds


def _matrices(rows: int, first: int, count: int) -> list[tuple[int, int]]:
    """Consecutive rows, cut where a matrix of `rows` ends."""
    pieces, end = [], first + count
    while first < end:
        part = min(end, (first // rows + 1) * rows) - first
        pieces.append((first, part))
        first += part
    return pieces


def _mask_row(source: TensorDesc, mask: TensorDesc, row: int) -> int:
    matrix, within = divmod(row, source.shape[1])
    batch, head = divmod(matrix, source.shape[2])
    return ((batch % mask.shape[3]) * mask.shape[2] + head % mask.shape[2]) * mask.shape[1] + within


def _body(parts: int, first: int, count: int):
    def body(rows, out, progress, function):
        for _ in range_(count):
            row = rows.acquire(1)
            for _ in range_(parts):
                part = out.acquire(1)
                function(row, part, progress, first, count)
                out.release(1)
            rows.release(1)

    return body


def _masked_body(parts: int, first: int, count: int):
    def body(rows, masks, out, slopes, progress, function):
        for _ in range_(count):
            row, mask = rows.acquire(1), masks.acquire(1)
            for _ in range_(parts):
                part = out.acquire(1)
                function(row, mask, part, slopes, progress, first, count)
                out.release(1)
            rows.release(1)
            masks.release(1)

    return body
