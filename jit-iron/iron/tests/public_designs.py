#!/usr/bin/env python3
"""Runs public IRON designs in the simulator, and those whose compiled kernels are public too also on the emulator.

Nothing of them is part of this project: docs/iron-simulator.md says where to get the folders. For a design with a compiled kernel,
results must be equal byte for byte, and the transfers of the runtime sequence must be those of the instruction stream: the same
words of the same arguments in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

import numpy as np
from ml_dtypes import bfloat16
from simulator import installation, objects
from simulator.array_program import array_bytes
from simulator.core_functions import CoreSource
from simulator.errors import SimulationError
from simulator.layout import order
from simulator.machine import SimulatedModule

TOOLKIT, MLIR_AIE = "xdna-npu-toolkit", "mlir-aie"
_BASIC = f"{MLIR_AIE}/programming_examples/basic"
_ML = f"{MLIR_AIE}/programming_examples/ml"
_KERNELS = f"{MLIR_AIE}/aie_kernels"


@dataclass
class PublicDesign:
    """A design, what its object files are compiled from, and what it computes."""

    name: str
    design: str
    inputs: Callable[[np.random.Generator], list[np.ndarray]]
    output: Callable[..., np.ndarray]
    """The exact result, or one within `tolerance`."""
    arguments: list[str] = field(default_factory=list)
    objects: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    tolerance: float = 0.0
    """Of the normalised mean square error; 0 means equal bytes."""
    kernel: str = ""
    """The compiled kernel; `.xclbin` and the instruction stream beside it."""
    stream: str = ""
    layout: str = ""
    """The kernel's arguments: `i` an input, `o` the output, `-` one that it does not use. Empty: the inputs, then the output."""


def _integers(*shapes: tuple, low: int = -100, high: int = 100, of: type = np.int16) -> Callable:
    return lambda rng: [rng.integers(low, high, shape).astype(of) for shape in shapes]


def _floats(*shapes: tuple, of: type = bfloat16) -> Callable:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32).astype(of) for shape in shapes]


def _towards_minus_infinity(values: np.ndarray) -> np.ndarray:
    """f32 to bf16 in the rounding mode that a core starts with."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    cut = bits & np.uint32(0xFFFF0000)
    down = np.where((bits >> 31 == 1) & (cut != bits), cut + np.uint32(0x10000), cut)
    return (down >> 16).astype(np.uint16).view(bfloat16)


def _sum(*values: np.ndarray) -> np.ndarray:
    total = values[0]
    for value in values[1:]:
        total = _towards_minus_infinity(total.astype(np.float32) + value.astype(np.float32))
    return total


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


def _first_tile_plus_one(a: np.ndarray) -> np.ndarray:
    result = np.zeros_like(a)
    result[:8, :16] = a[:8, :16] + 1
    return result


_ADD = {"add.o": (f"{_KERNELS}/aie2/add.cc", [])}
_MM32 = (f"{_KERNELS}/aie2/mm.cc", ["-DDIM_M=32", "-DDIM_K=32", "-DDIM_N=32", "-Di16_i32_ONLY"])
_MATMUL = f"{_BASIC}/matrix_multiplication"
_V4096 = (4096,)

DESIGNS = [
    PublicDesign(
        "single_add", f"{TOOLKIT}/iron/designs/fusion/single_add.py", _floats(_V4096, _V4096), _sum, objects=_ADD,
        kernel=f"{TOOLKIT}/iron/builds/fusion/single-add.xclbin", stream=f"{TOOLKIT}/iron/builds/fusion/single-add.insts.bin",
    ),
    PublicDesign(
        "fused_add_add", f"{TOOLKIT}/iron/designs/fusion/fused_add_add.py", _floats(_V4096, _V4096, _V4096), _sum, objects=_ADD,
        kernel=f"{TOOLKIT}/iron/builds/fusion/fused-add-add.xclbin", stream=f"{TOOLKIT}/iron/builds/fusion/fused-add-add.insts.bin",
    ),
    PublicDesign(
        "gemv-288", f"{_MATMUL}/matrix_vector/matrix_vector_iron.py", _integers((288, 288), (288,)), _product,
        objects={"mv_32x32.o": (f"{_KERNELS}/aie2/mv.cc", ["-DDIM_M=32", "-DDIM_K=32"])},
        kernel=f"{TOOLKIT}/iron/builds/gemv-288.xclbin", stream=f"{TOOLKIT}/iron/builds/gemv-288.insts.txt",
    ),
    PublicDesign(
        "gemm-256-1col", f"{_MATMUL}/single_core/single_core_iron.py", _integers((256, 256), (256, 256)), _product,
        ["-M", "256", "-K", "256", "-N", "256", "-m", "32", "-k", "32", "-n", "32", "--dtype_in", "i16", "--dtype_out", "i32"],
        {"mm_32x32x32.o": _MM32},
        kernel=f"{TOOLKIT}/iron/builds/gemm-256-1col.xclbin", stream=f"{TOOLKIT}/iron/builds/gemm-256-1col.insts.txt",
    ),
    PublicDesign(
        "gemm-512-4col", f"{_MATMUL}/whole_array/whole_array_iron.py", _integers((512, 512), (512, 512)), _product,
        ["-M", "512", "-K", "512", "-N", "512", "-m", "64", "-k", "64", "-n", "32", "--dtype_in", "i16", "--dtype_out", "i32",
         "--n-aie-cols", "4"],
        {"mm_64x64x32.o": (f"{_KERNELS}/aie2/mm.cc", ["-DDIM_M=64", "-DDIM_K=64", "-DDIM_N=32", "-Di16_i32_ONLY"])},
        kernel=f"{TOOLKIT}/iron/builds/gemm-512-4col.xclbin", stream=f"{TOOLKIT}/iron/builds/gemm-512-4col.insts.txt",
    ),
    PublicDesign(
        "matrix_vector (placed)", f"{_MATMUL}/matrix_vector/matrix_vector.py", _integers((288, 288), (288,)), _product,
        objects={"mv_32x32.o": (f"{_KERNELS}/aie2/mv.cc", ["-DDIM_M=32", "-DDIM_K=32"])},
    ),
    PublicDesign(
        "single_core (placed)", f"{_MATMUL}/single_core/single_core_placed.py", _integers((256, 256), (256, 256)), _product,
        ["-M", "256", "-K", "256", "-N", "256", "-m", "32", "-k", "32", "-n", "32", "--dtype_in", "i16", "--dtype_out", "i32"],
        {"mm_32x32x32.o": _MM32},
    ),
    PublicDesign(
        "whole_array (placed)", f"{_MATMUL}/whole_array/whole_array_placed.py", _integers((256, 128), (128, 256)), _product,
        ["-M", "256", "-K", "128", "-N", "256", "-m", "32", "-k", "32", "-n", "32", "--dtype_in", "i16", "--dtype_out", "i32",
         "--n-aie-cols", "4"],
        {"mm_32x32x32.o": _MM32},
    ),
    PublicDesign(
        "dma_transpose", f"{_BASIC}/dma_transpose/dma_transpose_iron.py", _integers((64, 32), of=np.int32), lambda a: a.T.copy(),
        ["npu", "64", "32"], layout="i-o",
    ),
    PublicDesign(
        "matrix_scalar_add", f"{_BASIC}/matrix_scalar_add/matrix_scalar_add.py", _integers((16, 128), of=np.int32), _first_tile_plus_one,
        ["npu", "0"], layout="i-o",
    ),
    PublicDesign(
        "vector_scalar_add", f"{_BASIC}/vector_scalar_add/vector_scalar_add.py", _integers((1024,), of=np.int32), lambda a: a + 1,
        ["npu", "0"],
    ),
    PublicDesign(
        "passthrough_kernel", f"{_BASIC}/passthrough_kernel/passthrough_kernel.py", _integers(_V4096, of=np.uint8, low=0), np.copy,
        ["-d", "npu", "-i1s", "4096", "-os", "4096"],
        {"passThrough.cc.o": (f"{_KERNELS}/generic/passThrough.cc", ["-DBIT_WIDTH=8"])}, layout="io-",
    ),
    PublicDesign(
        "passthrough_dmas", f"{_BASIC}/passthrough_dmas/passthrough_dmas.py", _integers(_V4096, of=np.int32), np.copy, ["4096", "npu"],
        layout="i-o",
    ),
    PublicDesign(
        "vector_scalar_mul", f"{_BASIC}/vector_scalar_mul/vector_scalar_mul.py",
        lambda rng: [rng.integers(-100, 100, 4096).astype(np.int16), np.array([3], dtype=np.int32)],
        lambda a, factor: (a * factor[0]).astype(np.int16), ["-d", "npu", "-i1s", "8192", "-i2s", "4", "-os", "8192", "-bw", "16"],
        {"scale.o": (f"{_KERNELS}/aie2/scale.cc", ["-DBIT_WIDTH=16"])},
    ),
    PublicDesign(
        "vector_reduce_add", f"{_BASIC}/vector_reduce_add/vector_reduce_add.py", _integers((1024,), of=np.int32),
        lambda a: a.sum(dtype=np.int32).reshape(1), ["npu", "0"],
        {"reduce_add.cc.o": (f"{_KERNELS}/aie2/reduce_add.cc", [])},
    ),
    PublicDesign(
        "row_wise_bias_add", f"{_BASIC}/row_wise_bias_add/row_wise_bias_add.py", _floats((384, 128), (128,), of=np.float32), np.add,
        ["npu", "384", "128", "32", "32"],
        {"kernel.o": (f"{_BASIC}/row_wise_bias_add/kernel.cc", ["-DDIM_m=32", "-DDIM_n=32"])}, tolerance=1e-12,
    ),
    PublicDesign("eltwise_add", f"{_ML}/eltwise_add/eltwise_add.py", _floats((65536,), (65536,)), _sum, ["npu", "0"], _ADD),
    PublicDesign(
        "vector_vector_mul", f"{_BASIC}/vector_vector_mul/vector_vector_mul.py", _integers((256,), (256,), of=np.int32), np.multiply,
        ["npu", "0"],
    ),
    PublicDesign(
        "vector_reduce_max (memtile)", f"{_BASIC}/vector_reduce_max/single_column_designs/vector_reduce_max_memtile.py",
        _integers((8192,), of=np.int32, low=-100000, high=100000), lambda a: a.max().reshape(1),
        ["-d", "npu", "-i1s", "32768", "-os", "4", "-dt", "i32"], {"reduce_max.cc.o": (f"{_KERNELS}/aie2/reduce_max.cc", [])},
    ),
    PublicDesign(
        "relu", f"{_ML}/relu/relu.py", _floats((65536,)), lambda a: np.maximum(a, bfloat16(0)),
        ["-d", "npu", "-l", "65536", "-co", "4", "-ch", "1"],
        {"relu.cc.o": (f"{_KERNELS}/aie2/relu.cc", [])},
    ),
]


def main() -> int:
    """Runs what is asked for; the exit code is 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the repositories, by name")
    parser.add_argument("--ggml-hsa", default="", help="the program ggml-hsa, for the emulator")
    parser.add_argument("--only", default="", help="designs whose name contains this")
    arguments = parser.parse_args()
    failed = 0
    for design in DESIGNS:
        if arguments.only in design.name:
            try:
                print(f"{design.name}: {check(design, arguments.folder, arguments.ggml_hsa)}", flush=True)
            except (Exception, SystemExit) as error:  # Of a design or of the simulator; the others are still run.
                failed += 1
                print(f"{design.name}: FAILED: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


def check(design: PublicDesign, folder: Path, program: str) -> str:
    """Runs one design; what came out. Raises AssertionError when results differ."""
    inputs = design.inputs(np.random.default_rng(1))
    expected = design.output(*inputs)
    module = build(design, folder)
    layout, left = design.layout or "i" * len(inputs) + "o", [value.reshape(-1).copy() for value in inputs]
    unused = [np.zeros(array_bytes(of_type), np.uint8) for of_type in module.program.argument_types]
    kinds = {"i": lambda _: left.pop(0), "o": lambda _: bytearray(expected.nbytes), "-": lambda index: unused[index]}
    result = module.execute([kinds[kind](index) for index, kind in enumerate(layout)])[layout.index("o")]
    result = result.view(np.uint8)[: expected.nbytes].view(expected.dtype)
    said = [_compare("the simulator", result, expected, design.tolerance)]
    report = module.report
    said.append(f"{report.core_calls} core calls on {report.cores} cores, {len(report.transfers)} transfers")
    if design.kernel and program:
        said.append(_compare_emulator(design, folder, program, inputs, result))
        said.append(_compare_stream(design, folder, program, report.transfers))
    return "; ".join(said)


def build(design: PublicDesign, folder: Path) -> SimulatedModule:
    """Runs a design's file as a program."""
    installation.install("1.3")
    objects.forget_objects()
    for name, (source, flags) in design.objects.items():
        includes = (str(folder / _KERNELS), str(folder / _KERNELS / "aie2"))
        objects.provide_object(name, CoreSource(str(folder / source), "", includes, tuple(flags)))
    before, SimulatedModule.latest = sys.argv, None
    sys.argv = [str(folder / design.design), *design.arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sys.argv = before
    if SimulatedModule.latest is None:
        raise SimulationError("the design made no module", str(folder / design.design))
    return SimulatedModule.latest


def _compare(who: str, result: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    expected = expected.reshape(-1)
    if tolerance == 0.0:
        wrong = np.count_nonzero(result.view(np.uint8).reshape(len(expected), -1) != expected.view(np.uint8).reshape(len(expected), -1))
        assert wrong == 0, f"{who}: {wrong} bytes of {expected.nbytes} differ; first elements {result[:4]}, expected {expected[:4]}"
        return f"{who} is exact"
    a, b = result.astype(np.float64), expected.astype(np.float64)
    error = float(((a - b) ** 2).sum() / (b**2).sum())
    assert error <= tolerance, f"{who}: normalised mean square error {error:.3g}, allowed {tolerance:.3g}"
    return f"{who} has a normalised mean square error of {error:.3g}"


def _compare_emulator(design: PublicDesign, folder: Path, program: str, inputs: list, result: np.ndarray) -> str:
    with tempfile.TemporaryDirectory() as work:
        files = []
        for index, value in enumerate(inputs):
            files += ["--input", f"{work}/{index}.bin"]
            value.tofile(files[-1])
        command = [
            program, "dispatch", str(folder / design.kernel), str(folder / design.stream), *files, "--output",
            f"{result.nbytes}:{work}/out.bin", "--device", "mock:aie2",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{program} dispatch: {done.stderr[-500:]}"
        emulated = np.fromfile(f"{work}/out.bin", dtype=result.dtype)
    return _compare("the emulator", emulated, result, 0.0)


def _compare_stream(design: PublicDesign, folder: Path, program: str, transfers: list[dict]) -> str:
    command = [program, "disassemble", str(folder / design.kernel), str(folder / design.stream), "--json", "--arch", "aie2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    theirs = list(_stream_transfers(json.loads(done.stdout)["stream"]["steps"]))
    assert len(theirs) == len(transfers), f"the stream has {len(theirs)} transfers, the simulator {len(transfers)}"
    places = 0
    for number, (compiled, ours) in enumerate(zip(theirs, transfers)):
        for key in ("direction", "argument", "token"):
            assert compiled[key] == ours[key], f"transfer {number}: {key} is {compiled[key]} in the stream and {ours[key]} here"
        item = ours["item"]
        addresses = (order(tuple(ours["sizes"]), tuple(ours["strides"])) * item + ours["offset"])[:: max(4 // item, 1)] // 4
        assert np.array_equal(compiled["words"], addresses), f"transfer {number} moves other words than in the stream"
        places += (compiled["column"], compiled["channel"]) == (ours["column"], ours["channel"])
    return f"all {len(theirs)} transfers as in the stream, in its order, {places} of them by the same shim and channel"


def _stream_transfers(steps: list[dict]):
    """The transfers of an instruction stream with the words that they move."""
    descriptors: dict[tuple, dict] = {}
    for action in (action for step in steps for action in step["actions"]):
        tile = action.get("tile", {})
        if action["action"] == "descriptor":
            descriptors[(tile["column"], action["descriptor"]["id"])] = action["descriptor"]
        elif action["action"] == "start":
            task, channel = action["task"], action["channel"]
            words, address = descriptors[(tile["column"], task["descriptor"])], action["transfers"][0]["address"]
            dims = [(d["size"], d["step"]) for d in words["dimensions"]] or [(words["words"], 1)]
            assert prod(size for size, _ in dims) == words["words"]
            once = order(tuple(size for size, _ in dims), tuple(step for _, step in dims)) + address["byte"] // 4
            iteration = words["iteration"] or {"size": 1, "step": 0}
            runs = [once + run % iteration["size"] * iteration["step"] for run in range(task["runs"])]
            yield {
                "direction": channel["direction"], "channel": channel["channel"], "column": tile["column"],
                "argument": address["argument"], "token": task["token"], "words": np.concatenate(runs),
            }


if __name__ == "__main__":
    sys.exit(main())
