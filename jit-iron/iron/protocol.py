"""The worker protocol, version 1: JSON Lines over standard input and output. docs/iron-toolchain.md describes it.

Only protocol lines may reach standard output, and only this module may read standard input, although designs print and tools
inherit both. So the two are moved to private descriptors before anything else runs: descriptor 1 then leads to standard error,
and descriptor 0 to nothing.

The end of standard input ends the worker at once, also amid a compilation, together with everything it started. A thread
watches for it and kills the process group, of which the worker is the leader, and what has left the group by its mark.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import struct
import sys
import threading
from dataclasses import dataclass
from typing import Iterator

from design import is_plain_path
from tensor_desc import TensorDesc

VERSION = 1
# A request with many sources has a few kilobytes.
_LINE_BYTES = 1 << 20
_PARAMETERS = 16


class ProtocolError(Exception):
    """The host sent something that is not a request of this protocol."""


@dataclass(frozen=True)
class Request:
    """One kernel to compile."""

    id: int
    kernel: str
    arch: str
    op: str
    op_params: bytes
    """64 bytes, as they lie in memory."""
    inputs: tuple[TensorDesc | None, ...]
    output: TensorDesc
    further_outputs: tuple[TensorDesc, ...]
    source: str
    """File name in the designs' folder."""
    function: str
    work_dir: str
    """Absolute."""
    verbose: bool


class Channel:
    """The two ends of the protocol. Made once per process, before anything is imported or started that might print."""

    def __init__(self) -> None:
        # The end of standard input kills the group, so the group must be this worker's own. A host has seen to that; a worker
        # started by hand in a script would otherwise end the script.
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        self._input = os.dup(0)
        self._output = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        # What designs print comes out in order with what tools print.
        sys.stdout.reconfigure(line_buffering=True)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="standard input", daemon=True).start()

    def send(self, kind: str, content: object) -> None:
        """Sends one line. A host that is gone ends the worker as the end of standard input does."""
        line = json.dumps({kind: content}).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._output, line) :]
        except BrokenPipeError:
            end_group()

    def requests(self) -> Iterator[Request]:
        """The requests as they come, without end. Raises ProtocolError for a line that is none."""
        number = 0
        while True:
            line = self._lines.get()
            number += 1
            try:
                yield parse(line)
            except ProtocolError as error:
                beginning = line[:200].decode(errors="replace")
                raise ProtocolError(
                    f"line {number} of standard input is not a request of protocol {VERSION}: {error}. It begins: {beginning}"
                ) from None

    def _watch(self) -> None:
        rest = bytearray()
        while chunk := os.read(self._input, 65536):
            *lines, last = chunk.split(b"\n")
            for line in lines:
                self._lines.put(bytes(rest + line))
                rest.clear()
            rest += last
            if len(rest) > _LINE_BYTES:
                # Passed on as it is: the parser rejects it for its length.
                self._lines.put(bytes(rest))
                rest.clear()
        end_group()


def end_group() -> None:
    """Ends this process and all that it started, also what has left the process group."""
    for process in _marked():
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass  # It has ended on its own.
    os.killpg(0, signal.SIGKILL)


def _marked() -> list[int]:
    """Other processes with the mark that the host gave this one and that all it starts inherit."""
    mark = os.environ.get("GGML_HSA_JIT_JOB")
    if not mark:
        return []
    variable, found = f"GGML_HSA_JIT_JOB={mark}".encode(), []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = variable in file.read().split(b"\0")
        except OSError:
            continue  # It has ended, or is another user's.
        if marked and int(name) != os.getpid():
            found.append(int(name))
    return found


def cause(kernel_id: int, text: str) -> dict:
    """What `failed`, `unsupported` and `unavailable` carry. Text of other programs may not be valid UTF-8."""
    return {"id": kernel_id, "cause": text.encode("utf-8", "replace").decode("utf-8")}


def parse(line: bytes) -> Request:
    """Reads one line. Unknown fields are ignored. Raises ProtocolError that says what is wrong."""
    if len(line) > _LINE_BYTES:
        raise ProtocolError(f"it is longer than {_LINE_BYTES} bytes")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"it is not JSON ({error})") from None
    if not isinstance(message, dict) or list(message) != ["compile"]:
        raise ProtocolError('it is not an object whose only key is "compile"')
    content = _Fields(message["compile"], "compile")
    node = _Fields(content.get("node", dict), "node")
    params = node.get("params", list)
    if len(params) != _PARAMETERS or any(type(word) is not int or not -(2**31) <= word < 2**31 for word in params):
        raise ProtocolError(f"params are not {_PARAMETERS} 32-bit integers")
    request = Request(
        id=content.get("id", int),
        kernel=content.get("kernel", str),
        arch=content.get("arch", str),
        op=node.get("op", str),
        op_params=struct.pack(f"<{_PARAMETERS}i", *params),
        inputs=tuple(None if source is None else _tensor(source) for source in node.get("sources", list)),
        output=_tensor(node.get("output", dict)),
        further_outputs=tuple(map(_tensor, node.get("further_outputs", list, []))),
        source=content.get("source", str),
        function=content.get("function", str),
        work_dir=content.get("work_dir", str),
        verbose=content.get("verbose", bool),
    )
    _check(request)
    return request


def _check(request: Request) -> None:
    """The fields that become part of paths and command lines."""
    if re.fullmatch(r"[a-z0-9]+", request.arch) is None:
        raise ProtocolError(f"arch {request.arch!r} is not the name of a generation")
    if not is_plain_path(request.source) or not request.source.endswith(".py"):
        raise ProtocolError(f"source {request.source!r} is not the name of a Python file")
    if not request.function.isidentifier():
        raise ProtocolError(f"function {request.function!r} is not a name")
    if not os.path.isabs(request.work_dir) or "\0" in request.work_dir:
        raise ProtocolError(f"work_dir {request.work_dir!r} is not an absolute path")


def _tensor(tensor: object) -> TensorDesc:
    try:
        return TensorDesc.from_json(tensor)
    except ValueError as error:
        raise ProtocolError(str(error)) from None


class _Fields:
    """An object's fields, with their types checked."""

    def __init__(self, content: object, name: str) -> None:
        if not isinstance(content, dict):
            raise ProtocolError(f"{name} is not an object")
        self._content = content
        self._name = name

    def get(self, field: str, kind: type, default: object = None):
        value = self._content.get(field, default)
        # A boolean is an int to isinstance.
        if type(value) is not kind:
            raise ProtocolError(f"{field} of {self._name} is missing or not of type {kind.__name__}")
        return value
