"""The designs' core functions: only calls that exist on the generation, no warnings, and small enough for a core."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from core_snippets import ARCHITECTURES, INCLUDE, compile_lines, compilers
from core_variants import MASK, ONE, ROW, TAIL, programs, variants
from program_size import OTHER_CODE, PROGRAM_MEMORY, estimate

CORES = INCLUDE.parents[1] / "kernels" / "cores"
CALLS = json.loads((INCLUDE.parent / "aie_api_calls.json").read_text())["calls"]
# Members of vectors and accumulators are called with a type, so they can be told from a design's own functions.
NAMES = re.compile(r"\b(aie::(?!simulation)[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)|\.\s*template\s+([A-Za-z_]\w*)")

# In CI every fifteenth, since each is compiled by every compiler for both generations (KERNELS: see test_kernels_simulated.py).
VARIANTS = variants()[:: 1 if os.environ.get("KERNELS") == "all" else 15]


def flags(macros: dict[str, str]) -> list[str]:
    return ["-DCORE_FUNCTION=core_function", *[f"-D{name}={value}" for name, value in macros.items()], f"-I{CORES}"]


def own_lines(preprocessed: str) -> list[tuple[str, str]]:
    """(file and line, text) of what is from the cores' folder, without what another generation's #if leaves out."""
    found, place, number = [], "", 0
    for line in preprocessed.splitlines():
        marker = re.match(r'# (\d+) "([^"]*)"', line)
        if marker:
            number, place = int(marker[1]), marker[2]
        else:
            if place.startswith(str(CORES)):
                found.append((f"{Path(place).name}:{number}", line))
            number += 1
    return found


def unknown_calls(lines: list[tuple[str, str]], arch: str) -> set[str]:
    """Calls of aie_api in these lines that are not listed for the generation, with their places."""
    unknown = set()
    for place, text in lines:
        for found in NAMES.finditer(text):
            name = found[1] or found[2]
            if arch not in CALLS.get(name, {}):
                available = ", ".join(CALLS.get(name, {})) or "nowhere"
                unknown.add(f"{place}: {name} is listed for {available}, not for {arch}")
    return unknown


@unittest.skipUnless(compilers(), "there is no C++ compiler on this machine")
class CoresTest(unittest.TestCase):
    def test_every_core_has_variants(self):
        self.assertEqual({path.name for path in CORES.glob("*.cc")}, {source for source, _ in variants()})

    def test_calls_are_listed_for_the_generation(self):
        files = {source: macros for source, macros in variants()}
        for arch, number in ARCHITECTURES.items():
            for source, macros in files.items():
                done = compile_lines(arch, ["-E", *flags(macros), str(CORES / source)])
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = own_lines(done.stdout)
                self.assertTrue(any("core_function" in text for _, text in lines), source)
                self.assertEqual(unknown_calls(lines, arch), set(), "add what is missing, with its public place, to aie_api_calls.json")

    def test_a_call_that_is_not_listed_is_found(self):
        lines = [("x.cc:1", "out = aie::tanh<bfloat16>(in);"), ("x.cc:2", "aie::frobnicate(v.template to_vector<float>());")]
        self.assertEqual(unknown_calls(lines, "aie2p"), {"x.cc:2: aie::frobnicate is listed for nowhere, not for aie2p"})
        self.assertEqual(len(unknown_calls(lines, "aie2")), 2)

    def test_listed_places_name_a_repository_and_a_path(self):
        for name, places in CALLS.items():
            self.assertTrue(places, name)
            for arch, place in places.items():
                self.assertIn(arch, ARCHITECTURES)
                self.assertRegex(place, r"^[\w-]+/[\w.-]+ [\w./-]+\.(?:cc|hpp|h)$", name)

    def test_no_warnings(self):
        for compiler in compilers():
            for arch in ARCHITECTURES:
                for source, macros in VARIANTS:
                    done = compile_lines(arch, ["-fsyntax-only", *flags(macros), str(CORES / source)], compiler)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), f"{compiler} {arch} {source} {macros}")

    @unittest.skipUnless(shutil.which("c++filt"), "c++filt, which reads the compiler's names, is not on this machine")
    def test_programs_fit_into_program_memory(self):
        # The largest programs of the larger files, however few cases CI has.
        largest = [
            ("unary.cc", {"FUNCTION": "gelu_erf"}),
            ("glu.cc", {"GATE": "gelu_erf"}),
            ("binary_repeated.cc", {"FUNCTION": "div"}),
            ("soft_max.cc", MASK),
            ("mul_mat.cc", {"A_TYPE": "int16"}),
        ]
        every = programs(variants())
        for chosen, macros in largest:
            self.assertTrue(any(self.is_of(program, chosen, macros) for program in every), chosen)
        for arch in ARCHITECTURES:
            for index, program in enumerate(every):
                if os.environ.get("KERNELS") != "all" and index % 7 and not any(self.is_of(program, *one) for one in largest):
                    continue
                sizes = [self.size(arch, source, macros) for source, macros in program]
                self.assertGreater(min(sizes), 60, f"{program}: nothing was counted")
                self.assertLess(sum(sizes), PROGRAM_MEMORY - OTHER_CODE, f"{arch} {program}")

    @staticmethod
    def is_of(program: list[tuple[str, dict[str, str]]], source: str, macros: dict[str, str]) -> bool:
        return program[0][0] == source and macros.items() <= program[0][1].items()

    @unittest.skipUnless(shutil.which("c++filt"), "c++filt, which reads the compiler's names, is not on this machine")
    def test_sizes_count_what_a_function_calls(self):
        sizes = {name: self.size("aie2", source, macros) for name, source, macros in (
            ("exp", "unary.cc", {"FUNCTION": "exp", "INPUT_TYPE": "float", "OUTPUT_TYPE": "float"}),
            ("soft_max", "soft_max.cc", {**ROW, "FACTOR": ONE}),
            ("relu", "unary.cc", {"FUNCTION": "relu", "INPUT_TYPE": "float", "OUTPUT_TYPE": "float"}),
        )}  # fmt: skip
        self.assertGreater(sizes["exp"], 3 * sizes["relu"])
        # It calls the exponential function once as well, through a template whose result is a vector, and does more besides.
        self.assertGreater(sizes["soft_max"], sizes["exp"])

    @unittest.skipUnless(shutil.which("c++filt"), "c++filt, which reads the compiler's names, is not on this machine")
    def test_a_second_name_costs_next_to_nothing(self):
        macros = {"FUNCTION": "exp", "INPUT_TYPE": "float", "OUTPUT_TYPE": "float"}
        one, two = (self.size("aie2", "unary.cc", macros | more) for more in ({}, {"TAIL_FUNCTION": TAIL}))
        self.assertTrue(one < two < one + 100, f"{one} bytes, {two} with the tail's name")

    @staticmethod
    def size(arch: str, source: str, macros: dict[str, str]) -> int:
        with tempfile.TemporaryDirectory() as folder:
            assembly = Path(folder) / "core.s"
            options = ["-fno-inline", "-fno-optimize-sibling-calls", "-S", "-o", str(assembly)]
            done = compile_lines(arch, [*options, *flags(macros), str(CORES / source)])
            if done.returncode:
                raise AssertionError(done.stderr)
            return estimate(assembly.read_text(), "core_function", *([TAIL] if "TAIL_FUNCTION" in macros else []))


if __name__ == "__main__":
    unittest.main()
