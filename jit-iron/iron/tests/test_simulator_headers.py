"""The header that is compiled ahead: what is made with it is what is made without it, and what does not include it does not get it."""

from __future__ import annotations

import ctypes
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

IRON = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(IRON))

from simulator.compiled_header import CompiledHeaders  # noqa: E402  (needs the path above)

OPTIONS = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-D__AIE_ARCH__=20", f"-I{IRON / 'simulator' / 'include'}"]
SUM = 'extern "C" int sum(int value) { return value + ADDED + (ADDED FLAG); }\n'


@unittest.skipUnless(shutil.which("g++"), "g++ is not on this machine, and headers are compiled ahead for no other compiler")
class HeadersTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.headers = CompiledHeaders(self.folder)

    def source(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def compile(self, source: str, number: int):
        library = self.folder / f"{number}.so"
        done = self.headers.compile([*OPTIONS, f"-DADDED={number}", "-DFLAG=* 2"], source, library)
        return done, library

    def compiled_headers(self) -> list[Path]:
        return list(self.folder.glob("*/ahead.h.gch"))

    def test_functions_are_the_same_with_it(self):
        self.source("own.h", "#pragma once\n// The first that is included.\n#include <aie_api/aie.hpp>\n")
        source = self.source("sum.cc", f'#include "own.h"\n#include <cstdint>\n{SUM}')
        for number in range(1, 6):
            done, library = self.compile(source, number)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(ctypes.CDLL(str(library)).sum(100), 100 + 3 * number)
            self.assertEqual(len(self.compiled_headers()), int(number > 3), "it is made when it is worth it")
            self.assertEqual((self.folder / f"{number}.main.cc").exists(), number > 3)

    def test_what_does_not_include_it_does_not_get_it(self):
        source = self.source("sum.cc", f"#include <cstdint>\n{SUM}using Missing = aie::accum<accfloat, 16>;\n")
        for number in range(1, 6):
            done, _ = self.compile(source, number)
            self.assertEqual(done.returncode, 1)
        self.assertEqual(self.compiled_headers(), [])

    def test_mistakes_are_named_where_they_are(self):
        source = self.source("sum.cc", f"#include <aie_api/aie.hpp>\n{SUM}int mistake = ADDED +;\n")
        said = [self.compile(source, number)[0].stderr for number in range(1, 6)]
        self.assertEqual(len(self.compiled_headers()), 1)
        self.assertRegex(said[4], r"sum\.cc:3:\d+: error")
        self.assertEqual(set(said), {said[0]})


if __name__ == "__main__":
    unittest.main()
