"""Core functions, compiled by the host's C++ compiler against `include` and called on the buffers of the simulated cores."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .array_program import array_dtype, array_shape, type_text
from .compiled_header import CompiledHeaders
from .errors import BadCall, SimulationError, caller
from .memory import View, is_number, number_of, require_intact
from .scheduler import current

INCLUDE = Path(__file__).resolve().parent / "include"
ARCH_MACRO = {"aie2": "20", "aie2p": "21"}
_SECONDS = 300

_SCALARS = {
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


@dataclass(frozen=True)
class CoreSource:
    """A C++ file, or its text, and how it is compiled."""

    path: str = ""
    text: str = ""
    include_dirs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class Libraries:
    """Compiled core functions. The folder that holds them is removed with the object."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory | None = None
        self._headers: CompiledHeaders | None = None
        self._loaded: dict[str, ctypes.CDLL] = {}

    def get(self, source: CoreSource, arch: str) -> ctypes.CDLL:
        """The library of `source` for `arch`. Raises SimulationError with the compiler's words when it does not compile."""
        text = source.text or _read(source.path)
        key = hashlib.sha256(repr((arch, source, text, os.environ.get("CXX"))).encode()).hexdigest()[:24]
        if key not in self._loaded:
            self._loaded[key] = self._compile(source, text, arch, key)
        return self._loaded[key]

    def _compile(self, source: CoreSource, text: str, arch: str, key: str) -> ctypes.CDLL:
        if self._folder is None or self._headers is None:
            self._folder = tempfile.TemporaryDirectory(prefix="iron-simulator-")
            self._headers = CompiledHeaders(Path(self._folder.name))
        folder = Path(self._folder.name)
        path = source.path
        if not path:
            path = str(folder / f"{key}.cc")
            Path(path).write_text(text)
        library = folder / f"{key}.so"
        command = [
            *compiler(), "-std=c++20", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", f"-I{INCLUDE}",
            f"-D__AIE_ARCH__={ARCH_MACRO[arch]}", *(f"-I{folder}" for folder in source.include_dirs), *source.flags,
        ]
        try:
            done = self._headers.compile(command, path, library, _SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            what = source.path or "a core function"
            raise SimulationError(f"{command[0]} could not compile {what}: {error}; CXX names another compiler") from None
        if done.returncode:
            raise SimulationError(f"{command[0]} does not compile {source.path or 'a core function'}:\n{_first_errors(done.stderr)}")
        return ctypes.CDLL(str(library))


def compiler() -> list[str]:
    """The host's C++ compiler: CXX, else g++, else clang++."""
    named = os.environ.get("CXX", "").split()
    if named:
        return named
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise SimulationError("no C++ compiler for the core functions: neither CXX is set nor are g++ or clang++ on PATH; install one")


def call(name: str, library: ctypes.CDLL, source: str, types: list, arguments: tuple) -> None:
    """Calls core function `name` with what a core's program gives it. Raises BadCall when it does not fit `types`."""
    check(name, types, arguments)
    try:
        function = getattr(library, name)
    except AttributeError:
        raise BadCall(f'{source} has no function {name}; it is looked up by that name, so it is declared extern "C"') from None
    function.restype = None
    passed, keep = [], []
    for of_type, argument in zip(types, arguments):
        if isinstance(argument, View):
            array = argument.array()
            keep.append(array)
            passed.append(ctypes.c_void_p(array.ctypes.data))
        else:
            passed.append(_scalar(of_type, number_of(argument)))
    report = getattr(library, "aie_simulator_error", None)
    function(*passed)
    for argument in arguments:
        if isinstance(argument, View):
            require_intact(argument.region(), f"core function {name}")
    if report is not None:
        report.restype = ctypes.c_char_p
        message = report()
        if message:
            raise SimulationError(f"core function {name}: {message.decode(errors='replace')}")
    current().context["machine"].core_calls += 1


def check(name: str, types: list, arguments: tuple) -> None:
    """Raises BadCall when arguments and declared types differ in number, kind, extents or element type."""
    if len(arguments) != len(types):
        declared = ", ".join(map(type_text, types))
        raise BadCall(f"core function {name} takes {len(types)} arguments ({declared}) and is given {len(arguments)}")
    for index, (of_type, argument) in enumerate(zip(types, arguments)):
        if hasattr(of_type, "__args__"):
            if not isinstance(argument, View):
                raise BadCall(f"argument {index} of core function {name} is a buffer of {type_text(of_type)}, not {argument!r}")
            if argument.shape != array_shape(of_type) or argument.dtype != array_dtype(of_type):
                raise BadCall(f"argument {index} of core function {name} is declared {type_text(of_type)} and given {argument}")
        elif not is_number(argument):
            raise BadCall(f"argument {index} of core function {name} is a number of type {type_text(of_type)}, not {argument!r}")


def _scalar(of_type: object, number: object) -> object:
    dtype = np.dtype(of_type)
    if dtype.name == "bfloat16":
        return ctypes.c_uint16(int(np.array(number, dtype=dtype).view(np.uint16)))
    kind = _SCALARS.get(dtype.name)
    if kind is None:
        raise BadCall(f"numbers of type {dtype.name} are not passed to core functions; possible: {', '.join(_SCALARS)}, bfloat16")
    if dtype.kind == "f":
        return kind(float(number))
    return kind(int(number))


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise SimulationError(f"the core functions' file {path} cannot be read: {error.strerror}", caller()) from None


def _first_errors(text: str, lines: int = 30) -> str:
    rows = text.strip().splitlines()
    return "\n".join(rows[:lines] + ([f"({len(rows) - lines} more lines)"] if len(rows) > lines else []))
