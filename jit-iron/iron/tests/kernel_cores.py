"""Core functions of the designs, compiled for this machine and called on numpy's arrays."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

try:
    import numpy as np
    from ml_dtypes import bfloat16
except ImportError as error:
    raise unittest.SkipTest(f"{error}; what the kernels compute is compared with numpy, which IRON needs too") from None

IRON = Path(__file__).resolve().parent.parent
CORES = IRON / "kernels" / "cores"
sys.path.insert(0, str(IRON))
from simulator.compiled_header import CompiledHeaders  # noqa: E402  (needs the path above)

INCLUDE = IRON / "simulator" / "include"
# The value of __AIE_ARCH__ by generation.
ARCHITECTURES = {"aie2": 20, "aie2p": 21}
CPP_TYPES = {"i8": "int8", "i16": "int16", "i32": "int32", "bf16": "bfloat16", "f32": "float"}
NUMPY_TYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "bf16": bfloat16, "f32": np.float32}
# Alignment of a core's buffers, and what lies behind a buffer to see that nothing is written there.
ALIGNMENT = 64
GUARD = 64


def architectures(test):
    """The generations that a test goes through: both with KERNELS=all or some, else one, in turn by the test's name."""
    if os.environ.get("KERNELS", "few") != "few":
        return ARCHITECTURES
    return list(ARCHITECTURES)[zlib.crc32(test.id().encode()) % 2 :][:1]


def compiler() -> str:
    """The C++ compiler of this machine."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "c++"


class CoreFunctions:
    """Compiles core functions into a folder of its own; `close` removes it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._headers = CompiledHeaders(Path(self._folder.name))
        self._made: dict[tuple, ctypes.CDLL] = {}

    def close(self) -> None:
        self._folder.cleanup()

    def function(self, arch: str, source: str, **macros: str):
        """The function of `source`, compiled with `macros`."""
        key = (arch, source, *sorted(macros.items()))
        if key not in self._made:
            library = Path(self._folder.name) / f"{len(self._made)}.so"
            flags = [f"-D{name}={value}" for name, value in macros.items()]
            line = [compiler(), "-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
            line += [f"-D__AIE_ARCH__={ARCHITECTURES[arch]}", "-DCORE_FUNCTION=core_function", *flags]
            line += ["-I", str(INCLUDE), "-I", str(CORES)]
            done = self._headers.compile(line, str(CORES / source), library)
            if done.returncode:
                raise AssertionError(f"{' '.join(line)}\n{done.stderr}")
            self._made[key] = ctypes.CDLL(str(library))
        return self._made[key].core_function


class Buffer:
    """A buffer as a core has it: aligned, and readable, but not to be written, behind its end."""

    def __init__(self, dtype: str, elements: int, values: np.ndarray | None = None) -> None:
        of_type = np.dtype(NUMPY_TYPES[dtype])
        size = elements * of_type.itemsize
        self._bytes = np.full(size + GUARD + 2 * ALIGNMENT, 0x5A, dtype=np.uint8)
        start = -self._bytes.ctypes.data % ALIGNMENT
        self._guard = self._bytes[start + size : start + size + GUARD]
        self.values = self._bytes[start : start + size].view(of_type)
        if values is not None:
            self.values[: len(values)] = values

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.values.ctypes.data)

    @property
    def intact(self) -> bool:
        """Whether nothing was written behind the end."""
        return bool((self._guard == 0x5A).all())
