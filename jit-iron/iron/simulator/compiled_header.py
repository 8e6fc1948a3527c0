"""The header that stands for aie_api, compiled ahead for g++, which reads it for as long as it compiles the functions that include it."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

# Only g++'s are made: `g++`, also with a target before or a version behind it.
_GXX = re.compile(r"(.*-)?g\+\+(-[\d.]+)?")
# Uses without a compiled header, which takes as long to make as it saves in three.
_PLAIN = 3
_FIRST = re.compile(r'^\s*#\s*include\s*([<"][^>"]+)', re.MULTILINE)


class CompiledHeaders:
    """Compiled headers in a folder, one for each line of options that are not of a single function."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uses: Counter[tuple[str, ...]] = Counter()
        self._headers: dict[tuple[str, ...], Path | None] = {}

    def compile(self, command: list[str], source: str, library: Path, seconds: float | None = None) -> subprocess.CompletedProcess:
        """Compiles `source` into `library`. `command` begins with the compiler; what it says of mistakes is as without a compiled header."""
        shared = tuple(word for word in command if not _is_the_function_s(word))
        self._uses[shared] += 1
        if self._uses[shared] > _PLAIN and _GXX.fullmatch(Path(command[0]).name) and _begins_with_it(Path(source)):
            header = self._header(shared)
            if header is not None:
                main = self._folder / f"{library.stem}.main.cc"
                defines = [_define(word) for word in command if _is_the_function_s(word)]
                main.write_text("\n".join([f'#include "{header}"', *defines, f'#include "{Path(source).absolute()}"', ""]))
                done = _run([*shared, str(main), "-o", str(library)], seconds)
                if done.returncode == 0:
                    return done
        return _run([*command, source, "-o", str(library)], seconds)

    def _header(self, shared: tuple[str, ...]) -> Path | None:
        if shared not in self._headers:
            folder = self._folder / f"header{len(self._headers)}"
            folder.mkdir()
            header = folder / "ahead.h"
            header.write_text("#include <aie_api/aie.hpp>\n")
            done = _run([*shared, "-x", "c++-header", str(header), "-o", f"{header}.gch"], None)
            self._headers[shared] = header if done.returncode == 0 else None
        return self._headers[shared]


def _begins_with_it(source: Path) -> bool:
    """Whether the first file that is included, also by the first file of one's own, is the header: others do not get it from us."""
    found = _FIRST.search(source.read_text()) if source.is_file() else None
    if found is None:
        return False
    return found[1] == "<aie_api/aie.hpp" or (found[1][0] == '"' and _begins_with_it(source.parent / found[1][1:]))


def _is_the_function_s(word: str) -> bool:
    """Whether an option defines a macro that the header does not know; those that it does begin with AIE or underscores."""
    return word.startswith("-D") and not word.startswith(("-DAIE", "-D__"))


def _define(word: str) -> str:
    name, equals, value = word.removeprefix("-D").partition("=")
    return f"#define {name} {value if equals else 1}"


def _run(line: list[str], seconds: float | None) -> subprocess.CompletedProcess:
    return subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)
