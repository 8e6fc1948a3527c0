"""Small C++ functions against the header that stands for aie_api, compiled for this machine and called on numpy's arrays."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent
INCLUDE = TESTS.parent / "simulator" / "include"
ARCHITECTURES = {"aie2": 20, "aie2p": 21}
"""The value of __AIE_ARCH__ by generation."""
ROUNDING = {
    "floor": 0, "ceil": 1, "symmetric_floor": 2, "symmetric_ceil": 3, "negative_inf": 8, "positive_inf": 9, "symmetric_zero": 10,
    "symmetric_inf": 11, "conv_even": 12, "conv_odd": 13,
}  # fmt: skip
"""The modes of aie::rounding_mode and their numbers."""
OPTIONS = ["-std=c++20", "-O1", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]


def compilers() -> list[str]:
    """The C++ compilers of this machine that core functions must compile with."""
    named = [os.environ["CXX"]] if os.environ.get("CXX") else []
    found = named + [name for name in ("g++", "clang++") if shutil.which(name)]
    return list(dict.fromkeys(found))


def compile_lines(arch: str, arguments: list[str], compiler: str | None = None) -> subprocess.CompletedProcess:
    """Runs a compiler with the options of core functions."""
    line = [compiler or compilers()[0], *OPTIONS, f"-D__AIE_ARCH__={ARCHITECTURES[arch]}", f"-I{INCLUDE}", *arguments]
    return subprocess.run(line, capture_output=True, text=True)


class Snippets:
    """Compiles snippets into a folder of its own; `close` removes it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._made: dict[tuple, ctypes.CDLL] = {}

    def close(self) -> None:
        self._folder.cleanup()

    def library(self, arch: str, source: str, *flags: str, compiler: str | None = None) -> ctypes.CDLL:
        """The functions of `source`, which begins behind the include of aie_api."""
        key = (arch, source, flags, compiler)
        if key not in self._made:
            done, path = self.attempt(arch, source, *flags, compiler=compiler)
            if done.returncode:
                raise AssertionError(f"{source}\n{done.stderr}")
            self._made[key] = ctypes.CDLL(str(path))
        return self._made[key]

    def attempt(self, arch: str, source: str, *flags: str, compiler: str | None = None) -> tuple[subprocess.CompletedProcess, Path]:
        """What the compiler says of `source`, and the library if it compiled."""
        number = len(list(Path(self._folder.name).iterdir()))
        text, library = (Path(self._folder.name) / f"{number}{suffix}" for suffix in (".cc", ".so"))
        text.write_text(f"#include <aie_api/aie.hpp>\n{source}\n")
        return compile_lines(arch, [*flags, "-shared", str(text), "-o", str(library)], compiler), library


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    memory = np.zeros(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def call(library: ctypes.CDLL, name: str, *arguments: object, modes: int = 0) -> None:
    """Calls a function with arrays and integers, from a core's state after a reset but for `modes`; its error is raised."""
    library.aie_simulator_error.restype = ctypes.c_char_p
    library.aie_simulator_clear_error()
    library.aie_simulator_set_modes(modes)
    getattr(library, name)(*[ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int32(a) for a in arguments])
    error = library.aie_simulator_error()
    if error:
        raise AssertionError(error.decode())
