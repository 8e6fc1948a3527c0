"""Conversations with a worker on the doubles of both generations."""

import os
import signal
import subprocess
import time
import unittest

from support import DESIGNS, IRON, PACKAGES, SECONDS, Case, Installation, Worker, request, tensor

import commands  # noqa: E402  (support sets its path)

DONE = {"done": {"id": 7, "pdi": "kernel.pdi", "instructions": "kernel_insts.bin"}}


class GreetingTest(Case):
    def test_hello(self):
        for version, flags in (("1.3.1", "1.3"), ("1.4.4", "1.4")):
            installation = self.installation(version)
            hello = self.worker(installation).receive()["hello"]
            self.assertEqual((hello["protocol"], hello["compiler"]), (1, "iron"))
            start = f"mlir_aie {version}; llvm-aie {installation.llvm_aie}; options {flags}, aiecc "
            self.assertEqual(hello["identity"][: len(start)], start)

    def test_a_missing_import(self):
        installation = self.installation()
        for module in ("aie.iron", "ml_dtypes", "numpy"):
            place = installation.mlir_aie_root / "python" / "aie" / "iron.py"
            (place if module == "aie.iron" else installation.packages / f"{module}.py").unlink()
            worker = self.worker(installation)
            message = f"Failed to import kernel build module: No module named '{module}'"
            self.assertEqual(worker.receive(), {"unavailable": message})
            self.assertEqual(worker.wait(), 1)
            self.assertIsNone(worker.receive())
        # Designs that write text do without.
        self.greeted(installation, "--text-only")

    def test_a_broken_import(self):
        installation = self.installation()
        (installation.packages / "numpy.py").write_text("raise RuntimeError('built for another Python')", encoding="utf-8")
        answer = self.worker(installation).receive()
        self.assertEqual(
            answer["unavailable"],
            "Failed to import kernel build module: numpy: RuntimeError: built for another Python",
        )

    def test_a_missing_tool(self):
        installation = self.installation()
        (installation.peano / "bin" / "clang++").unlink()
        self.assertRegex(self.worker(installation).receive()["unavailable"], "^Peano was not found; tried: ")

    def test_no_designs(self):
        installation = self.installation()
        line = [str(installation.python), str(IRON / "worker.py"), "--kernels-dir", "/nowhere"]
        answer = self.worker(installation, line=line).receive()
        self.assertRegex(answer["unavailable"], "^the folder of designs /nowhere does not exist")

    def test_warnings_go_to_standard_error(self):
        installation = self.installation("1.3.2")
        installation.environment["DOUBLE_IRON"] = "1.3.1"
        worker = self.greeted(installation)
        self.assertIn("warning: mlir_aie 1.3.2 is not among the versions known here", worker.errors())

    def test_help_and_wrong_options(self):
        installation = self.installation()
        for arguments, code, text in ((["--help"], 0, b"examples:"), (["--toolchain"], 2, b"unrecognized arguments")):
            line = installation.worker(*arguments)
            run = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
            self.assertEqual(run.returncode, code)
            self.assertIn(text, run.stdout)


class CompileTest(Case):
    def test_a_text_design_by_both_generations(self):
        for version in ("1.3.1", "1.4.4", "1.4.0"):
            with self.subTest(version=version):
                installation = self.installation(version)
                worker = self.greeted(installation, "--text-only")
                self.assertEqual(worker.ask("ggml_op_copy", self.work), DONE)
                self.assertEqual((self.work / "kernel.pdi").read_bytes(), installation.pdi.read_bytes())
                self.assertEqual((self.work / "kernel_insts.bin").read_bytes(), installation.instructions.read_bytes())
                self.assertIn("memref<64xi32>", (self.work / "aie.mlir").read_text(encoding="utf-8"))
                self.check_lines(installation, version)

    def check_lines(self, installation, version):
        """Every word that the two tools got."""
        new = version != "1.3.1"
        cxx = [str(DESIGNS / "copy_line.cc"), "-c", "-o", f"{self.work}/copy_line.o"]
        cxx += [f"-I{installation.mlir_aie_root}/include", "-std=c++20", "-Wno-parentheses", "-Wno-attributes"]
        cxx += ["-Wno-macro-redefined", "-Wno-empty-body", "-O2", "-DNDEBUG"]
        if new:
            cxx += ["-MD", "-MF", f"{self.work}/copy_line.o.d", "-D__AIE_API_AIE_ADF_HPP__"]
        cxx += ["--target=aie2p-none-unknown-elf", "-I", str(DESIGNS / "include"), "-DINPUT_DTYPE=i32"]
        self.assertEqual(installation.logged("clang++"), [cxx])
        instructions = f"--npu-insts-name={self.work}/kernel_insts.bin"
        pdi = f"--pdi-name={self.work}/kernel.pdi"
        peano = f"--peano={installation.peano}"
        line = [f"{self.work}/aie.mlir"]
        if new:
            line += ["--no-xchesscc", "--no-xbridge"] if version == "1.4.0" else []
            line += [peano, "--get-npu-insts", instructions, "--get-pdi", pdi]
            line += [f"--tmpdir={self.work}", f"--output-dir={self.work}"]
        else:
            line += ["--no-compile-host", "--no-xchesscc", "--no-xbridge", peano, "--aie-generate-npu-insts", instructions]
            line += ["--aie-generate-pdi", pdi, f"--tmpdir={self.work}"]
        line.append("--alloc-scheme=basic-sequential")
        self.assertEqual(installation.logged("aiecc"), [line])

    def test_many_kernels_by_one_worker(self):
        installation = self.installation()
        worker = self.greeted(installation)
        for number in range(5):
            work = self.folder / f"work {number}"
            work.mkdir()
            answer = worker.ask("ggml_op_generated", work, id=number)
            self.assertEqual(answer, {"done": DONE["done"] | {"id": number}})
        # The core function that is in a design twice is compiled once.
        self.assertEqual(len(installation.logged("clang++")), 5)

    def test_requests_wait_for_each_other(self):
        worker = self.greeted(self.installation())
        worker.send(b"".join(request("ggml_op_generated", self.work, id=number) for number in range(3)))
        self.assertEqual([worker.receive()["done"]["id"] for _ in range(3)], [0, 1, 2])

    def test_what_a_design_is_called_with(self):
        worker = self.greeted(self.installation())
        worker.ask("ggml_op_describe", self.work, params=[1] + [0] * 14 + [-1], sources=[tensor(), None], arch="aie2")
        source = "('i32', (64, 1, 1, 1), (4, 256, 256, 256))"
        params = "01000000" + 14 * "00000000" + "ffffffff"
        self.assertEqual(
            (self.work / "aie.mlir").read_text(encoding="utf-8"),
            f"// aie2 [{source}, None] i32 (64, 1, 1, 1) {params}\n",
        )

    def test_designs_in_folders_below(self):
        designs = self.folder / "designs"
        (designs / "below").mkdir(parents=True)
        design = 'def ggml_op_below(arch, input_tensors, output_tensor, op_params):\n    return f"// {MARK}"\n'
        for folder, mark in ((designs, "above"), (designs / "below", "below")):
            (folder / "marks.py").write_text(f"MARK = {mark!r}\n", encoding="utf-8")
            (folder / "text.py").write_text(f"from .marks import MARK\n\n\n{design}", encoding="utf-8")
        installation = self.installation()
        line = [str(installation.python), str(IRON / "worker.py"), "--kernels-dir", str(designs)]
        worker = self.worker(installation, line=line)
        self.assertIn("hello", worker.receive())
        for source, mark in (("text.py", "above"), ("below/text.py", "below"), ("text.py", "above")):
            self.assertEqual(worker.ask("ggml_op_below", self.work, source=source), DONE)
            self.assertEqual((self.work / "aie.mlir").read_text(encoding="utf-8").strip(), f"// {mark}")

    def test_several_results(self):
        worker = self.greeted(self.installation())
        self.assertEqual(worker.ask("ggml_op_several", self.work, further_outputs=[tensor("f32", 8)]), DONE)
        self.assertEqual((self.work / "aie.mlir").read_text(encoding="utf-8"), "// [(8, 1, 1, 1)]\n")
        self.assertEqual(worker.ask("ggml_op_several", self.work), DONE)
        answer = worker.ask("ggml_op_copy", self.work, further_outputs=[tensor()])
        self.assertEqual(answer["unsupported"]["cause"], "text_ops.py: ggml_op_copy makes one result, COPY has several")

    def test_verbose(self):
        installation = self.installation()
        self.greeted(installation).ask("ggml_op_copy", self.work, verbose=True)
        self.assertEqual(installation.logged("aiecc")[0][-2:], ["--verbose", "--alloc-scheme=basic-sequential"])

    def test_command_lines_are_told(self):
        worker = self.greeted(self.installation())
        worker.ask("ggml_op_copy", self.work)
        told = [line for line in worker.errors().splitlines() if line.startswith("+ ")]
        self.assertEqual(len(told), 2)
        self.assertIn("--aie-generate-pdi", told[1])

    def test_core_functions_of_iron(self):
        installation = self.installation()
        worker = self.greeted(installation)
        iron = {"source": "iron_ops.py"}
        self.assertEqual(worker.ask("ggml_op_functions", self.work, **iron), DONE)
        first, second = installation.logged("clang++")
        self.assertEqual((first[0], first[3]), (f"{self.work}/first.o.cc", f"{self.work}/first.o"))
        self.assertEqual((second[0], second[3]), (f"{DESIGNS}/copy_line.cc", f"{self.work}/second.o"))
        self.assertEqual(second[-3:], ["-I", f"{DESIGNS}/include", "-DTWO"])
        # What one design registered is not the next one's, also when it failed.
        self.assertIn("after a core function", worker.ask("ggml_op_forgets", self.work, **iron)["failed"]["cause"])
        self.assertEqual(worker.ask("ggml_op_plain", self.work, **iron), DONE)
        self.assertEqual(len(installation.logged("clang++")), 2)

    def test_printing_does_not_reach_the_protocol(self):
        worker = self.greeted(self.installation(), DOUBLE_AIECC="print", DOUBLE_PEANO="print")
        self.assertEqual(worker.ask("ggml_op_prints", self.work), DONE)
        self.assertEqual(worker.ask("ggml_op_copy", self.work), DONE)
        errors = worker.errors()
        for text in ("forged", "by descriptor", "by a process", "a message on standard error"):
            self.assertIn(text, errors)
        # Import of the double prints too, before the greeting.
        self.assertIn("the double of aie.iron is imported", errors)

    def test_designs_that_return_specifications(self):
        installation = self.installation()
        line = [str(installation.python), str(IRON / "worker.py"), "--kernels-dir", str(PACKAGES / "specified")]
        worker = self.greeted(installation, line=line)
        for function in ("own_unbound", "own_bound", "own_alternatives"):
            self.assertEqual(worker.ask(function, self.work, source="ops.py", arch="aie2"), DONE, function)
            text = (self.work / "aie.mlir").read_text(encoding="utf-8")
            tensor = "('I32', (64, 1, 1, 1), True)"
            self.assertEqual(text, f"// IRON aie2 [{tensor}, {tensor}] 64\n", function)
            (self.work / "aie.mlir").unlink()
        answer = worker.ask("own_of_another", self.work, source="ops.py")
        self.assertEqual(answer["unsupported"]["cause"], "ops.py: own_of_another is for OTHER, not for IRON")

    def test_changed_designs_are_imported_anew(self):
        installation = self.installation()
        designs = self.folder / "designs"
        designs.mkdir()
        helper = designs / "shared_text.py"
        helper.write_text("TEXT = '// one'\n", encoding="utf-8")
        design = "import shared_text\nCOUNT = []\ndef f(*_):\n    COUNT.append(0)\n    return shared_text.TEXT + str(len(COUNT))\n"
        (designs / "own.py").write_text(design, encoding="utf-8")
        line = [str(installation.python), str(IRON / "worker.py"), "--kernels-dir", str(designs)]
        worker = self.greeted(installation, line=line)
        for expected in ("// one1", "// one2"):
            self.assertEqual(worker.ask("f", self.work, source="own.py"), DONE)
            self.assertEqual((self.work / "aie.mlir").read_text(encoding="utf-8"), expected)
        helper.write_text("TEXT = '// changed'\n", encoding="utf-8")
        worker.ask("f", self.work, source="own.py")
        self.assertEqual((self.work / "aie.mlir").read_text(encoding="utf-8"), "// changed1")
        self.assertEqual(sorted(path.name for path in designs.iterdir()), ["own.py", "shared_text.py"])


class FailureTest(Case):
    def ask(self, function: str, **changes: object) -> dict:
        """One answer of a fresh worker, whose environment `variables` change."""
        variables = changes.pop("variables", {})
        arguments = changes.pop("arguments", ())
        installation = self.installation()
        worker = self.greeted(installation, *arguments, **variables)
        answer = worker.ask(function, self.work, **changes)
        self.errors = worker.errors()
        # Whatever it was, the worker continues.
        self.assertIsNone(worker.process.poll())
        return answer

    def test_no_design(self):
        answer = self.ask("f", source="no_ops.py")
        self.assertEqual(answer, {"unsupported": {"id": 7, "cause": f"Kernel source not found: {DESIGNS}/no_ops.py"}})

    def test_no_function(self):
        answer = self.ask("ggml_op_other")
        self.assertEqual(answer["unsupported"]["cause"], f"{DESIGNS}/text_ops.py has no function ggml_op_other")

    def test_a_design_that_declines(self):
        answer = self.ask("ggml_op_copy", sources=[tensor("f32")])
        self.assertEqual(answer["unsupported"]["cause"], "copies i32 only to itself")

    def test_a_design_that_raises(self):
        answer = self.ask("ggml_op_raises")
        self.assertEqual(answer["failed"]["cause"], "text_ops.py: ggml_op_raises failed: KeyError: 'tile \\udc80'")
        self.assertIn("Traceback", self.errors)

    def test_a_design_that_exits(self):
        self.assertIn("ggml_op_exits failed: SystemExit: 0", self.ask("ggml_op_exits")["failed"]["cause"])

    def test_a_design_that_returns_something_else(self):
        self.assertIn("not int", self.ask("ggml_op_returns_number")["failed"]["cause"])

    def test_an_invalid_module(self):
        answer = self.ask("ggml_op_invalid", source="iron_ops.py")
        self.assertIn("the MLIR module that the design made is not valid", answer["failed"]["cause"])

    def test_an_option_that_no_process_can_get(self):
        self.assertIn("cannot be compiled: ValueError", self.ask("ggml_op_wrong_option")["failed"]["cause"])

    def test_a_file_that_cannot_be_imported(self):
        answer = self.ask("f", source="broken_ops.py")
        self.assertEqual(
            answer["failed"]["cause"], "broken_ops.py could not be imported: RuntimeError: half an import"
        )

    def test_an_import_that_fails_inside_a_design_does_not_blame_the_environment(self):
        for line, kind, text in (
            ("import not_installed", "unavailable", "design.py: No module named 'not_installed'; put the module beside"),
            ("import aie.not_there", "unavailable", "design.py: No module named 'aie.not_there'; put the module beside"),
            ("from helper import nothing", "failed", "could not be imported: ImportError: cannot import name 'nothing'"),
        ):
            for design in (f"{line}\ndef f(*_): pass\n", f"def f(*_):\n    {line}\n"):
                with self.subTest(design=design):
                    folder = self.folder / f"designs {len(list(self.folder.iterdir()))}"
                    folder.mkdir()
                    (folder / "helper.py").touch()
                    (folder / "design.py").write_text(design, encoding="utf-8")
                    root = self.folder / f"environment {len(list(self.folder.iterdir()))}"
                    root.mkdir()
                    worker = self.greeted(Installation(root), "--kernels-dir", str(folder))
                    answer = worker.ask("f", self.work, source="design.py")
                    self.assertIn(text, answer[kind]["cause"])
                    self.assertNotIn("Failed to import kernel build module", answer[kind]["cause"])

    def test_imports_that_are_missing_in_text_only_mode(self):
        installation = self.installation()
        (installation.packages / "numpy.py").unlink()
        worker = self.greeted(installation, "--text-only")
        cause = "Failed to import kernel build module: No module named 'numpy'"
        for function, source in (("ggml_op_needs_numpy", "text_ops.py"), ("ggml_op_plain", "iron_ops.py")):
            answer = worker.ask(function, self.work, source=source)
            self.assertEqual(answer, {"unavailable": {"id": 7, "cause": cause}})

    def test_peano_fails(self):
        answer = self.ask("ggml_op_wrong_source")
        source = f"{self.work}/copy_line.o.cc"
        self.assertEqual(
            answer["failed"]["cause"],
            f"[Peano] compilation failed:\n{source}:2:2: error: no such type\n1 error generated.",
        )
        self.assertIn("error: no such type", self.errors)

    def test_peano_fails_without_a_message(self):
        answer = self.ask("ggml_op_copy", variables={"DOUBLE_PEANO": "fail"})
        self.assertEqual(answer["failed"]["cause"], "[Peano] compilation failed:\nexit code 1, and no message")

    def test_peano_makes_nothing(self):
        answer = self.ask("ggml_op_copy", variables={"DOUBLE_PEANO": "nothing"})
        self.assertEqual(answer["failed"]["cause"], "[Peano] ended with success and left no copy_line.o")

    def test_a_core_function_without_source(self):
        answer = self.ask("ggml_op_two_of_a_name")
        self.assertEqual(answer["failed"]["cause"], "two different core functions are to become copy_line.o")

    def test_aiecc_fails(self):
        answer = self.ask("ggml_op_copy", variables={"DOUBLE_AIECC": "fail"})
        self.assertEqual(answer["failed"]["cause"], "[aiecc] Compilation failed with exit code 3")
        self.assertIn("no free shim channel", self.errors)

    def test_an_object_is_missing(self):
        answer = self.ask("ggml_op_no_object")
        self.assertEqual(answer["failed"]["cause"], "[aiecc] Compilation failed with exit code 1")
        self.assertIn("cannot open copy_line.o", self.errors)

    def test_aiecc_crashes(self):
        answer = self.ask("ggml_op_copy", variables={"DOUBLE_AIECC": "crash"})
        self.assertEqual(answer["failed"]["cause"], "[aiecc] Compilation failed with exit code -11 (SIGSEGV)")

    def test_aiecc_is_killed(self):
        answer = self.ask("ggml_op_copy", variables={"DOUBLE_AIECC": "killed"})
        self.assertRegex(answer["unavailable"]["cause"], r"aiecc was killed \(SIGKILL\)")

    def test_aiecc_makes_nothing(self):
        # What an earlier run left is not taken for a result.
        for name in (commands.PDI, commands.INSTRUCTIONS):
            (self.work / name).write_bytes(b"stale")
        answer = self.ask("ggml_op_copy", variables={"DOUBLE_AIECC": "nothing"})
        self.assertEqual(answer["failed"]["cause"], "[aiecc] ended with success and left no kernel.pdi")

    def test_a_tool_that_went_away(self):
        installation = self.installation()
        worker = self.greeted(installation)
        (installation.mlir_aie_root / "bin" / "aiecc").unlink()
        answer = worker.ask("ggml_op_copy", self.work)
        self.assertRegex(answer["unavailable"]["cause"], "aiecc could not be started: .*No such file")

    def test_no_work_folder(self):
        answer = self.ask("ggml_op_copy", work_dir="/nowhere")
        self.assertEqual(answer["unavailable"]["cause"], "the work folder /nowhere does not exist")

    def test_a_work_folder_that_cannot_be_written(self):
        (self.work / "aie.mlir").mkdir()
        self.assertRegex(self.ask("ggml_op_copy")["unavailable"]["cause"], "^IsADirectoryError: ")


class EndTest(Case):
    def test_lines_that_are_no_requests(self):
        installation = self.installation()
        for line, message in (
            (b"hello\n", "line 1 of standard input is not a request of protocol 1: it is not JSON"),
            (b'{"compile":{"id":7}}\n', "node of compile is missing"),
            (b"x" * ((1 << 20) + 1), "it is longer than 1048576 bytes"),
        ):
            with self.subTest(message=message):
                worker = self.greeted(installation)
                worker.send(line)
                self.assertEqual(worker.wait(), 2)
                self.assertIsNone(worker.receive())
                self.assertIn(f"{message}", worker.errors())

    def test_the_line_number_is_told(self):
        worker = self.greeted(self.installation())
        worker.ask("ggml_op_copy", self.work)
        worker.send(b'{"later":1}\n')
        self.assertEqual(worker.wait(), 2)
        self.assertIn('line 2 of standard input is not a request of protocol 1: it is not an object', worker.errors())
        self.assertIn('It begins: {"later":1}', worker.errors())

    def test_the_end_of_standard_input_ends_an_idle_worker(self):
        worker = self.greeted(self.installation())
        worker.process.stdin.close()
        self.assertEqual(worker.wait(), -signal.SIGKILL)

    def hanging(self, behaviour: str, **variables: str) -> tuple[Worker, int, int]:
        """A worker amid a compilation that does not end, and the processes of the tool and the tool's child."""
        pids = self.folder / "pids"
        worker = self.greeted(self.installation(), DOUBLE_AIECC=f"{behaviour}={pids}", **variables)
        worker.send(request("ggml_op_copy", self.work))
        deadline = time.monotonic() + SECONDS
        while not pids.exists():
            self.assertLess(time.monotonic(), deadline, worker.errors())
            time.sleep(0.01)
        tool, child = map(int, pids.read_text(encoding="utf-8").split())
        return worker, tool, child

    def assert_all_end(self, worker: Worker, *processes: int) -> None:
        """The end of standard input ends the worker and these processes."""
        worker.process.stdin.close()
        self.assertEqual(worker.wait(), -signal.SIGKILL)
        for process in processes:
            self.assert_gone(process)
        self.assertIsNone(worker.receive())

    def test_the_end_of_standard_input_ends_a_hanging_compilation(self):
        worker, tool, child = self.hanging("hang")
        self.assertEqual(os.getpgid(child), worker.process.pid)
        self.assert_all_end(worker, tool, child)

    def test_what_has_left_the_group_is_ended_by_its_mark(self):
        worker, tool, child = self.hanging("stray", GGML_HSA_JIT_JOB=f"test-{os.getpid()}")
        self.assertNotEqual(os.getpgid(child), worker.process.pid)
        self.assert_all_end(worker, tool, child)

    def test_a_worker_in_a_foreign_group_makes_its_own(self):
        installation = self.installation()
        line = [str(installation.python), str(IRON / "worker.py"), "--kernels-dir", str(DESIGNS)]
        script = '"$@" </dev/null; echo "status $?"'
        run = subprocess.run(
            ["sh", "-c", script, "sh", *line],
            env=installation.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            start_new_session=True,
        )
        # The script continues after the worker's end.
        self.assertEqual(run.stdout.splitlines()[-1:], ["status 137"])


if __name__ == "__main__":
    unittest.main()
