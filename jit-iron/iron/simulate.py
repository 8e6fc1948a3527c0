#!/usr/bin/env python3
"""Runs kernels from their IRON designs on the simulator, without IRON and without an NPU: JSON Lines on standard input and output.

Each line is a request:

    {"simulate": {"id": 7, "kernel": "add-16f32-16f32-16f32", "arch": "aie2p", "node": {...}, "source": "binary_ops.py",
     "function": "ggml_op_add", "kernels_dir": "/path", "inputs": ["/path/a.bin", null], "output": "/path/out.bin"}}

`node` is as in the worker protocol (docs/iron-toolchain.md). The files hold the tensors' bytes as ggml lays them out, a null is a
source that the node does not have; the output's file is written. Each request has one answer:

    {"done": {"id": 7, "transfers": 3, "core_calls": 4, "cores": 1, "columns": 1}}
    {"failed": {"id": 7, "cause": "...", "place": "file:line"}}      the design or the kernel is wrong
    {"unsupported": {"id": 7, "cause": "..."}}                       there is no design for it

The program ends with standard input. Whatever designs print goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import struct
import sys
import traceback
import types
from pathlib import Path

sys.dont_write_bytecode = True

from design import Unsupported
from simulator import installation, objects
from simulator.errors import SimulationError, place_of
from simulator.machine import SimulatedModule
from specification import descriptor, specified
from tensor_desc import TensorDesc

_PARAMETERS = 16


class BadRequest(Exception):
    """A line that is not a request."""


def main() -> int:
    """Answers requests until standard input ends; returns the exit code."""
    arguments = _arguments()
    installation.install(arguments.iron)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            request = _request(line)
        except BadRequest as error:
            print(f"ggml-hsa simulate: line {number} of standard input is not a request: {error}", file=sys.stderr)
            return 2
        answers.write(json.dumps(answer(request)) + "\n")
    return 0


def answer(request: dict) -> dict:
    """What is said to one request."""
    number = request["id"]
    try:
        report = simulate(request)
    except Unsupported as reason:
        return {"unsupported": {"id": number, "cause": str(reason) or "the design does not do this kernel"}}
    except SimulationError as error:
        # The place is said once, beside the text.
        text = str(error).removeprefix(f"{error.place}: ") if error.place else str(error)
        return {"failed": {"id": number, "cause": text, "place": error.place or place_of(error)}}
    except (Exception, SystemExit) as error:  # A design may fail in any way.
        traceback.print_exc()
        return {"failed": {"id": number, "cause": f"{type(error).__name__}: {error}", "place": place_of(error)}}
    return {
        "done": {
            "id": number,
            "transfers": len(report.transfers),
            "core_calls": report.core_calls,
            "cores": report.cores,
            "columns": report.columns,
        }
    }


def simulate(request: dict):
    """Runs one kernel and writes its output; what it did."""
    node, folder = request["node"], Path(request["kernels_dir"]).resolve()
    if node.get("further_outputs"):
        raise Unsupported(f"{node.get('op')} has several results; kernels with one are simulated")
    sources = node["sources"]
    if len(sources) != len(request["inputs"]):
        raise BadRequest(f"{len(sources)} sources and {len(request['inputs'])} files")
    module = design_module(folder, request["source"], request["function"], request["arch"], node)
    output = TensorDesc.from_json(node["output"])
    given = [Path(path).read_bytes() for source, path in zip(sources, request["inputs"]) if source is not None]
    result = bytearray(output.nbytes)
    module.execute([*given, result])
    Path(request["output"]).write_bytes(result)
    return module.report


def design_module(folder: Path, source: str, function: str, arch: str, node: dict) -> SimulatedModule:
    """Runs a design. Raises Unsupported when there is none, and SimulationError when it is wrong."""
    path = folder / source
    if not path.is_file():
        raise Unsupported(f"Kernel source not found: {path}")
    made = getattr(_import(folder, path), function, None)
    if not callable(made):
        raise Unsupported(f"{path} has no function {function}")
    _clear_registry()
    foreign = descriptor(folder, lambda path: _import(folder, path))
    inputs = [None if source is None else foreign(TensorDesc.from_json(source)) for source in node["sources"]]
    params = bytearray(struct.pack(f"<{_PARAMETERS}i", *node["params"]))
    # By position, as the worker calls them: designs of others may call their parameters as they like.
    result = made(arch, inputs, foreign(TensorDesc.from_json(node["output"])), params)
    result = specified(result, f"{source}: {function}")
    if not isinstance(result, SimulatedModule):
        raise Unsupported(
            f"{source}: {function} returns {type(result).__name__}; only designs in IRON's Python API are simulated, not MLIR as text"
        )
    return result


_imported: dict[Path, types.ModuleType] = {}


def _import(folder: Path, path: Path) -> types.ModuleType:
    """The design's file as a module of a package, so that it can import beside itself in both ways."""
    if path in _imported:
        return _imported[path]
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    package = folder.name.replace("-", "_").replace(".", "_")
    if package not in sys.modules:
        parent = types.ModuleType(package)
        parent.__path__ = [str(folder)]
        sys.modules[package] = parent
    below = folder
    for part in path.relative_to(folder).parent.parts:
        package, below = f"{package}.{part}", below / part
        if package not in sys.modules:
            child = types.ModuleType(package)
            child.__path__ = [str(below)]
            sys.modules[package] = child
    name = f"{package}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        del sys.modules[name]
        if (error.name or "").split(".")[0] == "aie":
            raise SimulationError(f"{error.name} is not simulated; docs/iron-simulator.md says what is", place_of(error)) from None
        raise
    except BaseException:
        sys.modules.pop(name, None)
        raise
    _imported[path] = module
    return module


def _clear_registry() -> None:
    objects.forget_objects()
    iron = sys.modules.get("aie.iron")
    if iron is not None:
        iron.ExternalFunction._instances.clear()


def _request(line: str) -> dict:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"it is not JSON ({error})") from None
    if not isinstance(message, dict) or list(message) != ["simulate"] or not isinstance(message["simulate"], dict):
        raise BadRequest('it is not an object whose only key is "simulate"')
    request = message["simulate"]
    wanted = {"id": int, "arch": str, "node": dict, "source": str, "function": str, "kernels_dir": str, "inputs": list, "output": str}
    for field, kind in wanted.items():
        if type(request.get(field)) is not kind:
            raise BadRequest(f"{field} is missing or not of type {kind.__name__}")
    node = request["node"]
    if not isinstance(node.get("sources"), list) or not isinstance(node.get("output"), dict):
        raise BadRequest("node has no sources or no output")
    params = node.get("params")
    if not isinstance(params, list) or len(params) != _PARAMETERS or any(type(word) is not int for word in params):
        raise BadRequest(f"params of node are not {_PARAMETERS} whole numbers")
    if request["arch"] not in ("aie2", "aie2p"):
        raise BadRequest(f"arch {request['arch']!r}; simulated are aie2 and aie2p")
    if len(node["sources"]) != len(request["inputs"]):
        raise BadRequest(f"{len(node['sources'])} sources and {len(request['inputs'])} files")
    return request


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--iron", choices=installation.RELEASES, default=installation.RELEASES[0], help="the form of IRON's API that designs are given"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
