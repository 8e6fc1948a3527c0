"""The exact command lines of the two tools, and running them.

What the lines are taken from:
- IRON 1.3: `aie.utils.compile` of mlir-aie at v1.3.0/1.3.1. Chess is aiecc's default there, and `--no-xchesscc` alone still links
  with Chess (mlir-aie issue 3029), so both are switched off.
- IRON 1.4: the page on aiecc in the documentation of 1.4.4 has `--get-npu-insts`, `--get-...` and `--npu-insts-name`. The sources on
  mlir-aie's main branch of that time, not the tag itself, have all that is used here: `tools/aiecc/CommandLineOptions.h` has
  `--pdi-name` and `--npu-insts-name` (templates, in which `{0}` is the device), `--tmpdir`, `--output-dir`, `--peano`,
  `--alloc-scheme`, `--verbose`, the selectors `--get-pdi` and `--get-npu-insts`, and neither `--no-compile-host` nor
  `--no-xchesscc` and `--no-xbridge`; `python/utils/compile/utils.py` has the order and the further options of the C++ line.
  Peano became the default with pull request 3501; builds before it list `--no-xchesscc` in their help and get it.

The lines have run on test doubles only, never on IRON.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Sequence

from toolchain import Toolchain

MLIR = "aie.mlir"
PDI = "kernel.pdi"
INSTRUCTIONS = "kernel_insts.bin"

# This much of Peano's messages becomes part of a failure's cause. All of it goes to standard error.
_CAUSE_BYTES = 64 * 1024

_NO_CHESS = ("--no-xchesscc", "--no-xbridge")
_ALLOCATION = "--alloc-scheme=basic-sequential"
_CXX_OPTIONS = (
    "-std=c++20",
    "-Wno-parentheses",
    "-Wno-attributes",
    "-Wno-macro-redefined",
    "-Wno-empty-body",
    "-O2",
    "-DNDEBUG",
)
# Prevents the headers of aie_api from including adf.h, which Peano does not have.
_NO_ADF = "-D__AIE_API_AIE_ADF_HPP__"


class Failed(Exception):
    """The compiler's verdict: this kernel cannot be compiled until something changes."""


class Unavailable(Exception):
    """It could not be tried; says nothing about the kernel."""


def core_function(
    tools: Toolchain,
    arch: str,
    source: Path,
    object_file: Path,
    include_dirs: Sequence[Path] = (),
    compile_flags: Sequence[str] = (),
) -> list[str]:
    """The line that compiles a core function for a generation (`aie2`, `aie2p`). Paths are absolute."""
    line = [str(tools.peano / "bin" / "clang++"), str(source), "-c", "-o", str(object_file), f"-I{tools.include}"]
    line += _CXX_OPTIONS
    if tools.flags == "1.4":
        line += ["-MD", "-MF", f"{object_file}.d", _NO_ADF]
    line.append(f"--target={arch}-none-unknown-elf")
    for include in include_dirs:
        line += ["-I", str(include)]
    return line + list(compile_flags)


def module(tools: Toolchain, work_dir: Path, verbose: bool) -> list[str]:
    """The line that makes `PDI` and `INSTRUCTIONS` of `MLIR`, all in `work_dir`, which is absolute."""
    line = [str(tools.aiecc), str(work_dir / MLIR)]
    names = [f"--npu-insts-name={work_dir / INSTRUCTIONS}", f"--pdi-name={work_dir / PDI}"]
    if tools.flags == "1.4":
        line += _NO_CHESS if tools.states_peano else ()
        line += [f"--peano={tools.peano}", "--get-npu-insts", names[0], "--get-pdi", names[1]]
        line += [f"--tmpdir={work_dir}", f"--output-dir={work_dir}"]
    else:
        line += ["--no-compile-host", *_NO_CHESS, f"--peano={tools.peano}"]
        line += ["--aie-generate-npu-insts", names[0], "--aie-generate-pdi", names[1], f"--tmpdir={work_dir}"]
    if verbose:
        line.append("--verbose")
    return [*line, _ALLOCATION]


def identity(tools: Toolchain) -> str:
    """Everything besides the kernel and its sources that a result depends on: versions and options."""
    cxx = [*_CXX_OPTIONS, *([_NO_ADF] if tools.flags == "1.4" else [])]
    aiecc = [*(_NO_CHESS if tools.states_peano else ()), _ALLOCATION]
    options = f"options {tools.flags}, aiecc {' '.join(aiecc)}, clang++ {' '.join(cxx)}"
    return f"mlir_aie {tools.mlir_aie}; llvm-aie {tools.llvm_aie}; {options}"


def run_peano(line: Sequence[str], work_dir: Path) -> None:
    """Runs a line of `core_function`. Raises Failed with Peano's messages, Unavailable when it could not run."""
    process = _start(line, work_dir, stderr=subprocess.PIPE)
    messages = bytearray()
    while chunk := process.stderr.read1(65536):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()
        messages += chunk[: _CAUSE_BYTES - len(messages)]
    status = process.wait()
    _check_not_killed(line, status)
    if status != 0:
        text = messages.decode(errors="replace").rstrip()
        raise Failed(f"[Peano] compilation failed:\n{text or f'exit code {_code(status)}, and no message'}")


def run_aiecc(line: Sequence[str], work_dir: Path) -> None:
    """Runs a line of `module`. Raises Failed with the exit code, Unavailable when it could not run."""
    status = _start(line, work_dir).wait()
    _check_not_killed(line, status)
    if status != 0:
        raise Failed(f"[aiecc] Compilation failed with exit code {_code(status)}")


def _start(line: Sequence[str], work_dir: Path, stderr=None) -> subprocess.Popen:
    """Starts a tool whose output goes to this process's standard error, and which has no input."""
    print("+", shlex.join(line), file=sys.stderr, flush=True)
    try:
        return subprocess.Popen(line, cwd=work_dir, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=stderr)
    except OSError as error:
        raise Unavailable(f"{line[0]} could not be started: {error}") from None


def _check_not_killed(line: Sequence[str], status: int) -> None:
    # Crashes are the tool's own; this signal comes from outside, as a rule for want of memory.
    if status == -signal.SIGKILL:
        raise Unavailable(f"{line[0]} was killed (SIGKILL), which the system does when memory runs out")


def _code(status: int) -> str:
    if status >= 0:
        return str(status)
    try:
        return f"{status} ({signal.Signals(-status).name})"
    except ValueError:
        return str(status)
