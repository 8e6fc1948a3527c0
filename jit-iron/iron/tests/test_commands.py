"""The command lines, word by word, for each generation of IRON."""

import unittest
from pathlib import Path

import support  # noqa: F401  (sets the path of the modules below)
import commands
from toolchain import Toolchain


def tools(flags: str, states_peano: bool) -> Toolchain:
    return Toolchain(
        aiecc=Path("/iron/bin/aiecc"),
        peano=Path("/peano"),
        include=Path("/iron/include"),
        flags=flags,
        states_peano=states_peano,
        mlir_aie="M",
        llvm_aie="L",
    )


OLD = tools("1.3", True)
NEW = tools("1.4", False)


class CoreFunctionTest(unittest.TestCase):
    def test_1_3(self):
        line = commands.core_function(
            OLD, "aie2", Path("/k/add.cc"), Path("/w/add.o"), [Path("/k/a"), Path("/k/b")], ["-DINPUT_DTYPE=bf16"]
        )
        self.assertEqual(
            line,
            "/peano/bin/clang++ /k/add.cc -c -o /w/add.o -I/iron/include -std=c++20 -Wno-parentheses -Wno-attributes "
            "-Wno-macro-redefined -Wno-empty-body -O2 -DNDEBUG --target=aie2-none-unknown-elf -I /k/a -I /k/b "
            "-DINPUT_DTYPE=bf16".split(),
        )

    def test_1_4(self):
        line = commands.core_function(NEW, "aie2p", Path("/k/add.cc"), Path("/w/add.o"))
        self.assertEqual(
            line,
            "/peano/bin/clang++ /k/add.cc -c -o /w/add.o -I/iron/include -std=c++20 -Wno-parentheses -Wno-attributes "
            "-Wno-macro-redefined -Wno-empty-body -O2 -DNDEBUG -MD -MF /w/add.o.d -D__AIE_API_AIE_ADF_HPP__ "
            "--target=aie2p-none-unknown-elf".split(),
        )


class ModuleTest(unittest.TestCase):
    def test_1_3(self):
        self.assertEqual(
            commands.module(OLD, Path("/w"), verbose=False),
            "/iron/bin/aiecc /w/aie.mlir --no-compile-host --no-xchesscc --no-xbridge --peano=/peano "
            "--aie-generate-npu-insts --npu-insts-name=/w/kernel_insts.bin --aie-generate-pdi --pdi-name=/w/kernel.pdi "
            "--tmpdir=/w --alloc-scheme=basic-sequential".split(),
        )

    def test_1_4(self):
        self.assertEqual(
            commands.module(NEW, Path("/w"), verbose=False),
            "/iron/bin/aiecc /w/aie.mlir --peano=/peano --get-npu-insts --npu-insts-name=/w/kernel_insts.bin --get-pdi "
            "--pdi-name=/w/kernel.pdi --tmpdir=/w --output-dir=/w --alloc-scheme=basic-sequential".split(),
        )

    def test_verbose(self):
        for generation in (OLD, NEW):
            quiet, verbose = (commands.module(generation, Path("/w"), verbose=said) for said in (False, True))
            self.assertEqual(verbose, [*quiet[:-1], "--verbose", quiet[-1]])

    def test_1_4_before_peano_was_the_default(self):
        line = commands.module(tools("1.4", True), Path("/w"), verbose=False)
        self.assertEqual(line[2:5], ["--no-xchesscc", "--no-xbridge", "--peano=/peano"])
        self.assertEqual(line[:2] + line[4:], commands.module(NEW, Path("/w"), verbose=False))


class IdentityTest(unittest.TestCase):
    def test_versions_and_options(self):
        options = "-std=c++20 -Wno-parentheses -Wno-attributes -Wno-macro-redefined -Wno-empty-body -O2 -DNDEBUG"
        self.assertEqual(
            commands.identity(OLD),
            "mlir_aie M; llvm-aie L; options 1.3, aiecc --no-xchesscc --no-xbridge --alloc-scheme=basic-sequential, "
            f"clang++ {options}",
        )
        self.assertEqual(
            commands.identity(NEW),
            f"mlir_aie M; llvm-aie L; options 1.4, aiecc --alloc-scheme=basic-sequential, clang++ {options} "
            "-D__AIE_API_AIE_ADF_HPP__",
        )


if __name__ == "__main__":
    unittest.main()
