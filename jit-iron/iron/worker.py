#!/usr/bin/env python3
"""Compiles kernels with IRON, outside the host process: one request at a time, in the worker protocol.

The host, libggml-hsa.so or ggml-hsa-gen-kernels, starts several of these and kills those that take too long.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

# Installed folders may be read-only, and bytecode is not replaced when a file changes within a second.
sys.dont_write_bytecode = True

import commands
import toolchain
import trial
from commands import Failed, Unavailable
from compilation import Compiler, import_failure
from design import Unsupported
from protocol import VERSION, Channel, ProtocolError, cause

# What designs may use, in the order in which a missing environment is best reported: without one it is numpy that is missing.
_IMPORTS = ("numpy", "ml_dtypes", "aie.iron")

_EPILOG = """\
exit codes:
  0  --toolchain-check found everything, and with --trial a kernel was compiled
  1  unavailable: something is missing, and the one line that was printed says what
  2  a wrong command line, or a line on standard input that is not of the protocol
  killed by SIGKILL when standard input ends

examples:
  worker.py --toolchain-check             what is installed, as JSON
  worker.py --toolchain-check --trial     also whether a small kernel can be compiled
  worker.py --toolchain-check --text-only what designs need that write their MLIR as text
  worker.py --kernels-dir ~/designs       speaks the protocol, with designs of one's own
"""


def main() -> int:
    """Runs the worker; returns its exit code."""
    arguments = _arguments()
    if arguments.toolchain_check:
        report = check(arguments)
        print(json.dumps(report, indent=2))
        return 0 if report["usable"] else 1
    channel = Channel()
    try:
        compiler, identity = prepare(arguments)
    except Unavailable as reason:
        channel.send("unavailable", str(reason))
        return 1
    channel.send("hello", {"protocol": VERSION, "compiler": "iron", "identity": identity})
    try:
        for request in channel.requests():
            channel.send(*answer(compiler, request))
    except ProtocolError as error:
        print(f"ggml-hsa worker: {error}", file=sys.stderr)
        return 2
    return 0


def answer(compiler: Compiler, request) -> tuple[str, object]:
    """The one answer to a request: its kind and its content."""
    try:
        pdi, instructions = compiler.compile(request)
        return "done", {"id": request.id, "pdi": pdi, "instructions": instructions}
    except Unsupported as reason:
        return "unsupported", cause(request.id, str(reason))
    except Failed as verdict:
        return "failed", cause(request.id, str(verdict))
    except Unavailable as reason:
        return "unavailable", cause(request.id, str(reason))


def prepare(arguments: argparse.Namespace) -> tuple[Compiler, str]:
    """The compiler and its identity. Raises Unavailable when something is missing."""
    if not arguments.text_only:
        for name in _IMPORTS:
            _import(name)
    try:
        tools = toolchain.find()
    except toolchain.ToolchainError as error:
        raise Unavailable(str(error)) from None
    for warning in tools.warnings:
        print(f"ggml-hsa worker: warning: {warning}", file=sys.stderr)
    if not arguments.kernels_dir.is_dir():
        raise Unavailable(f"the folder of designs {arguments.kernels_dir} does not exist; --kernels-dir names another")
    return Compiler(tools, arguments.kernels_dir), commands.identity(tools)


def check(arguments: argparse.Namespace) -> dict:
    """What was found, for people and for installers. Continues after the first missing part."""
    missing = []
    imports = {}
    for name in () if arguments.text_only else _IMPORTS:
        try:
            _import(name)
            imports[name] = True
        except Unavailable as reason:
            imports[name] = False
            missing.append(str(reason))
    report: dict = {"imports": imports}
    try:
        tools = toolchain.find()
        report["tools"] = {
            "aiecc": str(tools.aiecc),
            "peano": str(tools.peano),
            "include": str(tools.include),
            "flags": tools.flags,
            "mlir_aie": tools.mlir_aie,
            "llvm_aie": tools.llvm_aie,
        }
        report["identity"] = commands.identity(tools)
        report["warnings"] = list(tools.warnings)
    except toolchain.ToolchainError as error:
        missing.append(str(error))
    if not arguments.kernels_dir.is_dir():
        missing.append(f"the folder of designs {arguments.kernels_dir} does not exist")
    if arguments.trial and not missing:
        failures = trial.run(Compiler(tools, arguments.kernels_dir))
        report["trial"] = {arch: failures.get(arch, "compiled") for arch in trial.ARCHITECTURES}
        missing += [f"no kernel can be compiled for {arch}: {reason}" for arch, reason in failures.items()]
    known = [{"mlir_aie": release.mlir_aie, "llvm_aie": release.llvm_aie} for release in toolchain.RELEASES]
    return {"usable": not missing, "missing": missing, **report, "known": known, "python": sys.version.split()[0]}


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(import_failure(error)) from None
    except Exception as error:  # A package that is damaged, or does not fit another, fails in any way it likes.
        raise Unavailable(f"Failed to import kernel build module: {name}: {type(error).__name__}: {error}") from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--kernels-dir",
        type=Path,
        default=Path(__file__).resolve().parent / "kernels",
        metavar="DIR",
        help="folder of the designs; default: kernels beside this file",
    )
    parser.add_argument(
        "--text-only",
        action="store_true",
        help="do without numpy, ml_dtypes and IRON's Python package; designs that import them are unavailable",
    )
    parser.add_argument("--toolchain-check", action="store_true", help="print what was found as JSON, and end")
    parser.add_argument(
        "--trial", action="store_true", help=f"with --toolchain-check, compile {trial.FUNCTION} of {trial.SOURCE} for each generation"
    )
    arguments = parser.parse_args()
    if arguments.trial and not arguments.toolchain_check:
        parser.error("--trial goes with --toolchain-check")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
