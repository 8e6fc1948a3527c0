"""The doubles reject what the programs they stand for reject. A double that accepts everything would prove nothing."""

import subprocess

from support import Case, Installation


class DoublesTest(Case):
    def run_tool(self, installation: Installation, tool: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        path = {"aiecc": installation.mlir_aie_root, "clang++": installation.peano}[tool] / "bin" / tool
        environment = installation.environment | variables
        return subprocess.run([path, *arguments], env=environment, cwd=self.work, capture_output=True, text=True, check=False)

    def assert_rejected(self, run: subprocess.CompletedProcess, message: str) -> None:
        self.assertEqual(run.returncode, 1)
        self.assertIn(message, run.stderr)
        self.assertEqual(list(self.work.glob("*.pdi")), [])

    def aiecc_line(self, installation: Installation) -> list[str]:
        (self.work / "aie.mlir").write_text("module {}", encoding="utf-8")
        line = [str(self.work / "aie.mlir"), f"--peano={installation.peano}", f"--tmpdir={self.work}"]
        line += ["--pdi-name=k.pdi", "--npu-insts-name=k.bin"]
        if installation.mlir_aie == "1.4.4":
            return [*line, "--get-pdi", "--get-npu-insts"]
        return [*line, "--no-xchesscc", "--no-xbridge", "--aie-generate-pdi", "--aie-generate-npu-insts"]

    def test_a_right_line_writes_what_was_given(self):
        for version in ("1.3.1", "1.4.4"):
            installation = self.installation(version)
            run = self.run_tool(installation, "aiecc", *self.aiecc_line(installation))
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertEqual((self.work / "k.pdi").read_bytes(), installation.pdi.read_bytes())
            self.assertEqual((self.work / "k.bin").read_bytes(), installation.instructions.read_bytes())

    def test_options_of_the_other_generation_are_rejected(self):
        old, new = self.installation("1.3.1"), self.installation("1.4.4")
        for installation, foreign in (
            (old, "--get-pdi"),
            (old, "--output-dir=x"),
            (new, "--aie-generate-pdi"),
            (new, "--aie-generate-npu-insts"),
            (new, "--no-compile-host"),
            (new, "--no-xchesscc"),
            (new, "--no-xbridge"),
            (new, "--no-such-option"),
            (new, "--peano"),
        ):
            with self.subTest(version=installation.mlir_aie, option=foreign):
                run = self.run_tool(installation, "aiecc", *self.aiecc_line(installation), foreign)
                self.assert_rejected(run, f"Unknown command line argument '{foreign}'.  Try: 'aiecc --help'")
        run = self.run_tool(new, "aiecc", *self.aiecc_line(new), "--get-pdf")
        self.assert_rejected(run, "unknown output selector '--get-pdf'")

    def test_what_a_line_refers_to_is_looked_at(self):
        installation = self.installation("1.3.1")
        line = self.aiecc_line(installation)
        for wrong, message in (
            (line[1:], "one input file is needed"),
            ([str(self.work / "other.mlir"), *line[1:]], "one input file is needed"),
            ([word for word in line if word != "--no-xbridge"], "Chess is the default"),
            ([word for word in line if not word.startswith("--peano")], "Could not find Peano"),
            ([*line[:1], "--peano=/nowhere", *line[2:]], "Could not find Peano"),
            ([word.replace(str(self.work), "/nowhere") if "tmpdir" in word else word for word in line], "is not a folder"),
            ([*line, line[1]], "may only occur zero or one times"),
        ):
            with self.subTest(message=message):
                self.assert_rejected(self.run_tool(installation, "aiecc", *wrong), message)
        (self.work / "aie.mlir").write_text('link_with = "missing.o"', encoding="utf-8")
        self.assert_rejected(self.run_tool(installation, "aiecc", *line), "cannot open missing.o")

    def test_peano(self):
        installation = self.installation()
        (self.work / "a.cc").write_text("// nothing\n", encoding="utf-8")
        line = ["a.cc", "-c", "-o", "a.o", "-O2", "--target=aie2-none-unknown-elf"]
        run = self.run_tool(installation, "clang++", *line)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("test double of Peano for aie2-none", (self.work / "a.o").read_text(encoding="utf-8"))
        for wrong, message in (
            ([*line, "--frobnicate"], "unknown argument: '--frobnicate'"),
            ([*line[:-1], "--target=x86_64-linux-gnu"], "unknown target triple"),
            (line[1:], "no such file or directory"),
            (line[:1] + line[2:], "only compiles"),
        ):
            with self.subTest(message=message):
                self.assert_rejected(self.run_tool(installation, "clang++", *wrong), message)
