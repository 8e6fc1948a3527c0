"""MUL_MAT: ggml's product, result[m, n] = sum over k of source0[k, m] * source1[k, n].

The cores' program depends on the types only: every extent is a number that the runtime sequence writes before a block, so one PDI
serves all shapes of a pair of types. A block is up to 64 rows of source 0 times up to 16 rows of source 1. The four cores of a
column make a block together; a round gives each column a block, or consecutive blocks of one strip of source 0 where these are
regular.

All cores of a column get the same rows. Of the words of a block's result, in the order in which they leave, each core has every
fourth, so that they share the work evenly whatever the extents are; where the rows of source 0 are a multiple of four, each core uses
every fourth of these and lets the others pass. The memory tile puts the words together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np
from aie.iron import Buffer, WorkerRuntimeBarrier
from aie.iron.controlflow import range_
from design import Unsupported
from element_types import array_type, cpp_type, require_contiguous, require_types
from elementwise import Core
from generation import generation, require_memory
from iron_program import CORES_OF_COLUMN, FIRST_CORE_ROW, MOST_QUEUED, IronProgram, Move
from row_transfers import Rows, row_classes
from tensor_desc import TensorDesc
from tiling import MOST_REPEATS, Tap, granule, round_up

ROWS_A = 64
"""Rows of source 0 in a block: also the words of an object of the result."""
ROWS_B = 16
CHUNK_BYTES = 256
"""Of a row's object in the shorter of the two types."""
DEPTH_A, DEPTH_B = 8, 4
"""Objects on a core. A core is busy with one row of source 0 while the next go to the other cores and, as all do, into its fifo."""
ROWS_AT_ONCE = 8
"""Rows of source 0 that a core collects for a product of matrices."""
PART = ROWS_A // CORES_OF_COLUMN
"""Words of a core's part of an object of the result."""
STACK = 2048
LARGEST_STEP = 1 << 20
"""Words between the repetitions of a transfer."""
# Numbers of a job, as cores/mul_mat.cc has them.
BLOCKS, CHUNKS, COUNT_A, COUNT_B, OBJECTS = range(5)
JOB_NUMBERS = 17
TYPES = {
    ("f32", "f32"): "f32",
    ("f32", "bf16"): "f32",
    ("bf16", "f32"): "f32",
    ("bf16", "bf16"): "f32",
    ("i8", "i8"): "i32",
    ("i16", "i16"): "i32",
    ("i32", "i32"): "i32",
}
"""Types of the sources and the result."""
TILED_TYPES = ("bf16", "i8", "i16")
"""Types, of both sources, of which the cores multiply matrices."""


@dataclass
class Job:
    """What a column does in a round."""

    numbers: list[int]
    a: list[Tap]
    b: list[Tap]
    out: list[Tap]


def ggml_op_mul_mat(arch, input_tensors, output_tensor, op_params):
    """Source 0 repeats over the outer dimensions of source 1."""
    target = generation(arch)
    a, b = _sources(input_tensors, output_tensor)
    chunk = CHUNK_BYTES // min(a.itemsize, b.itemsize)
    # All of them, whatever there is to do: the PDI is the same for all extents.
    columns = target.columns
    program = IronProgram(target, columns)
    cores = [_workers(program, column, a.dtype, b.dtype, output_tensor.dtype, chunk) for column in range(columns)]

    rounds, before = [], []
    for jobs in _rounds(a, b, chunk, columns):
        moves = []
        for column, job in enumerate(jobs):
            moves += [(column, Move("b", 1, tap)) for tap in job.b]
            moves += [(column, Move("a", 0, tap)) for tap in job.a]
            moves += [(column, Move("out", 2, tap)) for tap in job.out]
        rounds.append(moves)
        before.append([(told, barrier, job.numbers) for column, job in enumerate(jobs) for told, barrier in cores[column]])
    types = [array_type(round_up(t.size, granule([t.itemsize])), t.dtype) for t in (a, b, output_tensor)]
    return program.module(types, rounds, before)


def _sources(input_tensors: list, output: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
    if len(input_tensors) != 2 or None in input_tensors:
        raise Unsupported(f"mul_mat has two sources, not {input_tensors!r}")
    a, b = input_tensors
    possible = tuple({dtype for pair in TYPES for dtype in pair})
    for what, tensor in (("source 0", a), ("source 1", b)):
        require_types(what, tensor, tuple(sorted(possible)))
        require_contiguous(what, tensor)
    require_contiguous("the result", output)
    if TYPES.get((a.dtype, b.dtype)) != output.dtype:
        pairs = ", ".join(f"{x} with {y} to {z}" for (x, y), z in TYPES.items())
        raise Unsupported(f"{a.dtype} with {b.dtype} to {output.dtype}; possible: {pairs}")
    wanted = (a.shape[1], *b.shape[1:])
    if a.shape[0] != b.shape[0] or output.shape != wanted or any(y % x for x, y in zip(a.shape[2:], b.shape[2:])):
        raise Unsupported(f"extents {a.shape} with {b.shape} to {output.shape} are no product; the result would have {wanted}")
    return a, b


def _workers(program: IronProgram, column: int, a: str, b: str, out: str, chunk: int) -> list[tuple]:
    """The cores of a column: for each, the buffer with the numbers of its job, and its barrier."""
    object_a, object_b, object_out = array_type(chunk, a), array_type(chunk, b), array_type(ROWS_A, out)
    part_out = array_type(PART, out)
    kept_type, sums_type = array_type(ROWS_B * chunk, b), array_type(ROWS_B * ROWS_A, out)
    rows_type = array_type(ROWS_AT_ONCE * chunk, a)
    words = np.ndarray[(32,), np.dtype[np.int32]]
    item = {"i8": 1, "i16": 2, "bf16": 2, "f32": 4, "i32": 4}
    require_memory(
        "a block of a matrix product",
        {
            f"{DEPTH_A} rows of source 0": DEPTH_A * chunk * item[a],
            f"{DEPTH_B} rows of source 1": DEPTH_B * chunk * item[b],
            "2 parts of the result": 2 * PART * 4,
            f"{ROWS_AT_ONCE} collected rows": ROWS_AT_ONCE * chunk * item[a],
            "kept rows": ROWS_B * chunk * item[b],
            "sums": ROWS_B * ROWS_A * 4,
            "job and progress": 256,
        },
        STACK,
    )
    macros = {"A_TYPE": cpp_type(a), "B_TYPE": cpp_type(b), "SUM_TYPE": cpp_type(out), "CHUNK": str(chunk)}
    if out == "f32":
        macros["FLOATS"] = "1"
    if (a, b) == ("bf16", "bf16"):
        macros["NARROW"] = "1"
    if a == b and a in TILED_TYPES:
        macros["TILED"] = "1"

    def function(name: str, part: str, arguments: list) -> object:
        return Core("mul_mat.cc", name, macros | {part: "1"}).function("mul_mat", arguments)

    keep = function("keep_row", "KEEP_ROW", [object_b, kept_type, words, words])
    multiply = function("multiply_row", "MULTIPLY_ROW", [object_a, kept_type, rows_type, sums_type, words, words, np.int32])
    give = function("give_words", "GIVE_WORDS", [part_out, sums_type, words, words, np.int32])
    fifo_a = program.input(column, "a", object_a, depth=DEPTH_A)
    fifo_b = program.input(column, "b", object_b, depth=DEPTH_B)
    outs = program.interleaved_output(column, "out", object_out, part_out, CORES_OF_COLUMN)
    told = []
    for core, out_part in enumerate(outs):
        name = f"{column}_{core}"
        job = Buffer(words, initial_value=np.zeros(32, np.int32), name=f"job_{name}", use_write_rtp=True)
        progress = Buffer(words, initial_value=np.zeros(32, np.int32), name=f"progress_{name}")
        kept, sums = Buffer(kept_type, name=f"kept_{name}"), Buffer(sums_type, name=f"sums_{name}")
        rows, barrier = Buffer(rows_type, name=f"rows_{name}"), WorkerRuntimeBarrier()
        buffers = [job, progress, kept, rows, sums]
        arguments = [fifo_a.cons(), fifo_b.cons(), out_part.prod(), *buffers, barrier, keep, multiply, give]
        program.worker(column, _body(core), arguments, FIRST_CORE_ROW + core, stack_size=STACK)
        told.append((job, barrier))
    return told


def _body(core: int) -> Callable:
    def body(a, b, out, job, progress, kept, rows, sums, barrier, keep, multiply, give):
        barrier.wait_for_value(1)
        for _ in range_(job[BLOCKS]):
            for _ in range_(job[CHUNKS]):
                for _ in range_(job[COUNT_B]):
                    row = b.acquire(1)
                    keep(row, kept, job, progress)
                    b.release(1)
                for _ in range_(job[COUNT_A]):
                    row = a.acquire(1)
                    multiply(row, kept, rows, sums, job, progress, core)
                    a.release(1)
            for _ in range_(job[OBJECTS]):
                words = out.acquire(1)
                give(words, sums, job, progress, core)
                out.release(1)

    return body


def _strips(a: TensorDesc, b: TensorDesc) -> list[tuple[int, int, int, int, int, int]]:
    """Rows of source 0 that are multiplied with the same rows of source 1.

    As (matrix of source 0, matrix of source 1, class of source 0's rows, first row in the class, class of source 1's rows, first).
    """
    strips = []
    classes_a, classes_b = (row_classes(t.shape[0], t.itemsize) for t in (a, b))
    for outer in range(b.shape[3]):
        for inner in range(b.shape[2]):
            matrix_b = outer * b.shape[2] + inner
            inner_a, outer_a = inner // (b.shape[2] // a.shape[2]), outer // (b.shape[3] // a.shape[3])
            matrix_a = outer_a * a.shape[2] + inner_a
            for class_b in range(min(classes_b, b.shape[1])):
                for first_b in range(class_b, b.shape[1], classes_b * ROWS_B):
                    for class_a in range(min(classes_a, a.shape[1])):
                        for first_a in range(class_a, a.shape[1], classes_a * ROWS_A):
                            strips.append((matrix_a, matrix_b, first_a, classes_a, first_b, classes_b))
    return strips


def _rounds(a: TensorDesc, b: TensorDesc, chunk: int, columns: int) -> list[list[Job]]:
    """The jobs of every round, by column."""
    jobs = _regular_jobs(a, b, chunk, columns)
    if jobs is None:
        jobs = [_job(a, b, chunk, strip) for strip in _strips(a, b)]
    # A fifo that nothing fills would not be in the PDI. Columns that have nothing to do therefore do the same as others; the words
    # that they write are the same too.
    jobs += [jobs[index % len(jobs)] for index in range(columns - len(jobs))]
    return [jobs[at : at + columns] for at in range(0, len(jobs), columns)]


def _regular_jobs(a: TensorDesc, b: TensorDesc, chunk: int, columns: int) -> list[Job] | None:
    """Jobs of several blocks each, when all rows are whole chunks and all blocks full in source 0; else None."""
    k, m, n = a.shape[0], a.shape[1], b.shape[1]
    if k % chunk or m % ROWS_A:
        return None
    blocks, chunks, jobs = m // ROWS_A, k // chunk, []
    run = max(1, min(blocks // columns, MOST_REPEATS))
    if ROWS_A * k * a.itemsize // 4 > LARGEST_STEP:
        run = 1
    for matrix_b in range(b.shape[2] * b.shape[3]):
        outer, inner = divmod(matrix_b, b.shape[2])
        matrix_a = outer // (b.shape[3] // a.shape[3]) * a.shape[2] + inner // (b.shape[2] // a.shape[2])
        for first_b in range(0, n, ROWS_B):
            count_b = min(ROWS_B, n - first_b)
            for block in range(0, blocks, run):
                count = min(run, blocks - block)
                rows_a = Rows(a.size, a.itemsize, k, matrix_a * m + block * ROWS_A, ROWS_A, 1)
                rows_b = Rows(b.size, b.itemsize, k, matrix_b * n + first_b, count_b, 1)
                numbers = [count, chunks, ROWS_A, count_b, count_b, k, chunk]
                out = (matrix_b * n + first_b) * m + block * ROWS_A
                # Every block begins at a word of its own and ends within the tensor, so that what the core is told of the first
                # holds for all: nothing lies beyond the end.
                told = [0, k * a.itemsize // 4, 1 << 30, 0, 0, 0, k * b.itemsize // 4, 1 << 30, 0, 0]
                jobs.append(
                    Job(
                        numbers + told,
                        [Tap(rows_a.start, (count, chunks, ROWS_A, chunk), (ROWS_A * k, chunk, k, 1))],
                        [Tap(rows_b.start, (count, chunks, count_b, chunk), (0, chunk, k, 1))],
                        [Tap(out, (count, 1, count_b, ROWS_A), (ROWS_A, 0, m, 1))],
                    )
                )
    return jobs


def _job(a: TensorDesc, b: TensorDesc, chunk: int, strip: tuple) -> Job:
    """One block, of rows of any length."""
    matrix_a, matrix_b, first_a, classes_a, first_b, classes_b = strip
    k, m, n = a.shape[0], a.shape[1], b.shape[1]
    count_a = min(ROWS_A, -(-(m - first_a) // classes_a))
    count_b = min(ROWS_B, -(-(n - first_b) // classes_b))
    whole_words = [round_up(t.size, granule([t.itemsize])) for t in (a, b)]
    rows_a = Rows(whole_words[0], a.itemsize, k, matrix_a * m + first_a, count_a, classes_a)
    rows_b = Rows(whole_words[1], b.itemsize, k, matrix_b * n + first_b, count_b, classes_b)
    step, chunks = _steps(k, chunk, granule([a.itemsize, b.itemsize]), rows_a.phase or rows_b.phase)
    total = count_a * count_b
    objects = -(-total // ROWS_A)
    numbers = [1, chunks, count_a, count_b, objects, k, step, *rows_a.numbers(chunk), *rows_b.numbers(chunk)]
    start = (matrix_b * n + first_b) * m + first_a
    out = [Tap(start, (1, 1, count_b, count_a), (0, 0, classes_b * m, classes_a))]
    surplus = objects * ROWS_A - total
    if surplus:
        # The core repeats its last word, so that this writes what is there already.
        last = start + (count_b - 1) * classes_b * m + (count_a - 1) * classes_a
        out.append(Tap(last, (surplus, 1, 1, 1), (0, 0, 0, 1)))
    job = Job(numbers, rows_a.taps(chunk, step, chunks), rows_b.taps(chunk, step, chunks), out)
    if max(len(job.a), len(job.b)) > MOST_QUEUED:
        raise Unsupported(f"rows of {k} elements take more than {MOST_QUEUED} transfers at the end of a tensor")
    return job


def _steps(k: int, chunk: int, words: int, shifted: int) -> tuple[int, int]:
    """Elements from a chunk to the next, and the number of chunks.

    Where rows do not begin at words, chunks overlap by a word, so that wherever a row begins in its word the step is in the object.
    """
    step = chunk - words if shifted else chunk
    while shifted and -(-k // step) > 2 and (-(-k // step) - 2) * step + chunk > k:
        # Only the last chunk may reach beyond a row.
        step -= words
    return step, -(-k // step)
