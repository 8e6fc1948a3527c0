"""RMS_NORM: rows divided by the root of their mean square."""

from __future__ import annotations

import numpy as np
from aie.iron import Buffer
from aie.iron.controlflow import range_
from design import Unsupported
from element_types import array_type, require_contiguous, require_types
from elementwise import Core
from generation import generation
from iron_program import IronProgram, Move
from parameters import bits
from rowwise import result_move, row_buffers, row_taps, shares, source_macros


def ggml_op_rms_norm(arch, input_tensors, output_tensor, op_params):
    """Parameter 0 is added to the mean."""
    target = generation(arch)
    if len(input_tensors) != 1 or None in input_tensors:
        raise Unsupported(f"rms_norm has one source, not {input_tensors!r}")
    (source,) = input_tensors
    for what, tensor in (("source 0", source), ("the result", output_tensor)):
        require_types(what, tensor, ("f32",))
        require_contiguous(what, tensor)
    if source.shape != output_tensor.shape:
        raise Unsupported(f"source 0 has extents {source.shape}, the result {output_tensor.shape}; they must be equal")
    length = source.shape[0]
    buffers = row_buffers("rms_norm", length, (4,))
    macros = source_macros(source, buffers) | {"EPSILON": bits(op_params, 0)}
    row, part = array_type(buffers.object, "f32"), array_type(buffers.part, "f32")
    counters = np.ndarray[(16,), np.dtype[np.int32]]
    function = Core("rms_norm.cc", "rms_norm", macros).function("part", [row, part, counters, np.int32, np.int32])

    columns = shares(target, source.size // length)
    program, moves = IronProgram(target, len(columns)), []
    for column, (first, count) in enumerate(columns):
        rows = program.input(column, "in0", row, buffers.depth)
        out = program.output(column, "out", part, buffers.out_depth)
        progress = Buffer(counters, initial_value=np.zeros(16, np.int32), name=f"progress_{column}")
        arguments = [rows.cons(), out.prod(), progress, function]
        program.worker(column, _body(length // buffers.part, first, count), arguments)
        moves += [(column, Move("in0", 0, tap)) for tap in row_taps(source, buffers, first, count)]
        moves.append(result_move(column, 1, buffers, first, count))
    return program.module([array_type(source.size, "f32")] * 2, [moves])


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
