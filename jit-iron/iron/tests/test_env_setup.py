"""env_setup.sh, sourced by shells, with a double of python3.

The shells are bash and sh; TEST_SHELLS="bash sh zsh" adds others.
"""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

from support import DOUBLES, IRON, SECONDS, Case, install

SCRIPT = IRON / "env_setup.sh"
SHELLS = os.environ.get("TEST_SHELLS", "bash sh").split()
# The others, plain sh, cannot tell where a sourced file is, nor that it is one.
SHELLS_WITH_FILES = [shell for shell in SHELLS if Path(shell).name in ("bash", "zsh")]


class EnvironmentTest(Case):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.folder / "log"
        self.venv = self.folder / "data" / "ggml-hsa" / "iron-1.3.1"
        install(DOUBLES / "python3_double.sh", self.folder / "bin" / "python3")
        self.path = f"{self.folder}/bin:/usr/bin:/bin"
        self.home = IRON
        self.iron = self.folder / "designs"
        (self.iron / "kernels").mkdir(parents=True)
        (self.iron / "kernels" / "binary_ops.py").touch()

    def install(self) -> None:
        """The layout that CMake installs: the script and the requirements one folder above the worker."""
        self.home = self.folder / "share" / "ggml-hsa"
        (self.home / "iron").mkdir(parents=True)
        for file in (SCRIPT, *IRON.glob("requirements*.txt")):
            shutil.copy(file, self.home)
        (self.home / "iron" / "worker.py").touch()

    def shell(self, shell: str, text: str, *arguments: str, options: str = "", **variables: str):
        """Runs text in a shell, in the script's folder; `iron` there sources the script with arguments."""
        found = shutil.which(shell)
        self.assertIsNotNone(found, f"the shell {shell} is not installed (Debian: apt-get install {shell})")
        environment = {
            "PATH": self.path,
            "HOME": str(self.folder),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "DOUBLE_LOG": str(self.log),
            "DOUBLE_PYTHON": "",
            "GGML_HSA_IRON_DIR": str(self.iron),
            **variables,
        }
        # In sh the arguments of `.` are not handed on, those of the shell are.
        script = self.home / "env_setup.sh"
        line = [found, *options.split(), "-c", text.replace("SOURCE", f". '{script}'"), shell, *arguments]
        return subprocess.run(
            line, env=environment, cwd=self.home, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def calls(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def each_shell(self, shells: list[str] = SHELLS):
        for shell in shells:
            self.log.unlink(missing_ok=True)
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            with self.subTest(shell=shell):
                yield shell

    def test_installs_and_enters(self):
        show = 'SOURCE "$@"; echo "$? $VIRTUAL_ENV $MLIR_AIE_INSTALL_DIR $PEANO_INSTALL_DIR"; echo "$PATH"'
        for shell in self.each_shell():
            run = self.shell(shell, show)
            self.assertEqual(run.stderr, "")
            self.assertEqual(
                run.stdout.splitlines(),
                [
                    f"env_setup.sh: installing IRON 1.3.1 into {self.venv}",
                    "env_setup.sh: compiling a kernel, to see whether these tools can",
                    "env_setup.sh: IRON 1.3.1 is ready",
                    f"0 {self.venv} {self.venv}/packages/mlir_aie {self.venv}/packages/llvm-aie",
                    f"{self.venv}/packages/mlir_aie/bin:{self.venv}/bin:{self.path}",
                ],
            )
            self.assertEqual(
                self.calls(),
                [
                    "-c import sys; sys.exit(sys.version_info < (3, 10))",
                    f"-m venv {self.venv}",
                    f"-m pip install --requirement {IRON}/requirements.txt",
                    '-c import sysconfig; print(sysconfig.get_path("platlib"))',
                    f"{IRON}/worker.py --toolchain-check --kernels-dir {IRON}",
                    f"{IRON}/worker.py --toolchain-check --trial --kernels-dir {self.iron}/kernels",
                ],
            )

    def test_the_installed_layout(self):
        self.install()
        worker = self.home / "iron" / "worker.py"
        (worker.parent / "kernels").mkdir()
        (worker.parent / "kernels" / "binary_ops.py").touch()
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "$?"', GGML_HSA_IRON_DIR="")
            self.assertEqual(run.stderr, "")
            self.assertEqual(run.stdout.splitlines()[-2:], ["env_setup.sh: IRON 1.3.1 is ready", "0"])
            self.assertEqual(
                self.calls()[-2:],
                [
                    f"{worker} --toolchain-check --kernels-dir {self.home}",
                    f"{worker} --toolchain-check --trial --kernels-dir {worker.parent}/kernels",
                ],
            )

    def test_a_link_to_the_script(self):
        script = self.home / "env_setup.sh"
        self.home = self.folder / "links"
        self.home.mkdir()
        (self.home / "env_setup.sh").symlink_to(script)
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "$?"')
            self.assertEqual(run.stderr, "")
            self.assertEqual(run.stdout.splitlines()[-2:], ["env_setup.sh: IRON 1.3.1 is ready", "0"])
            self.assertIn(f"-m pip install --requirement {IRON}/requirements.txt", self.calls())

    def test_a_library_that_was_built_here_finds_the_designs(self):
        show = 'SOURCE >/dev/null; echo "${GGML_HSA_IRON_DIR:-none}"'
        for shell in self.each_shell():
            self.assertEqual(self.shell(shell, show, GGML_HSA_IRON_DIR="").stdout, f"{IRON}\n")
            self.assertEqual(self.shell(shell, show).stdout, f"{self.iron}\n")
        self.install()
        for shell in self.each_shell():
            self.assertEqual(self.shell(shell, show, GGML_HSA_IRON_DIR="").stdout, "none\n")

    def test_without_designs_nothing_is_ready(self):
        """From an installation without any; the sources have them."""
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "$?"', GGML_HSA_IRON_DIR="")
            self.assertEqual(run.stdout.splitlines()[-2:], ["env_setup.sh: IRON 1.3.1 is ready", "0"])
        self.install()
        designs = self.home / "iron" / "kernels"
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "$?"', GGML_HSA_IRON_DIR="")
            self.assertEqual(run.stdout.splitlines()[-1], "0")
            self.assertNotIn("is ready", run.stdout)
            self.assertIn(f"there are no designs in {designs}: no kernel can be compiled", run.stderr)

    def test_tools_that_compile_nothing_are_not_ready(self):
        for shell in self.each_shell():
            for _ in range(2):
                run = self.shell(shell, 'SOURCE; echo "status $?"', DOUBLE_PYTHON="no-kernel")
                self.assertEqual(run.stdout.splitlines()[-1], "status 1")
                self.assertNotIn("is ready", run.stdout)
                self.assertIn("no kernel can be compiled for aie2: it cannot", run.stderr)
                self.assertIn(f"see {self.venv}/ggml-hsa-trial.log", run.stderr)
            self.assertTrue(self.shell(shell, "SOURCE").stdout.endswith("IRON 1.3.1 is ready\n"))

    def test_what_was_compiled_is_compiled_again_for_other_designs(self):
        others = self.folder / "others"
        (others / "kernels").mkdir(parents=True)
        (others / "kernels" / "binary_ops.py").touch()
        for shell in self.each_shell():
            self.shell(shell, "SOURCE; SOURCE")
            self.assertEqual(len([call for call in self.calls() if "--trial" in call]), 1)
            self.shell(shell, "SOURCE", GGML_HSA_IRON_DIR=str(others))
            self.assertTrue(self.calls()[-1].endswith(f"--trial --kernels-dir {others}/kernels"))

    def test_a_folder_of_other_designs_is_not_tried(self):
        (self.iron / "kernels" / "binary_ops.py").rename(self.iron / "kernels" / "own.py")
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "status $?"')
            self.assertEqual(run.stdout.splitlines()[-1], "status 0")
            self.assertIn("no kernel was compiled to try them", run.stdout)
            self.assertNotIn("is ready", run.stdout)

    def test_an_installation_without_a_worker(self):
        self.install()
        (self.home / "iron" / "worker.py").unlink()
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "status $?"')
            self.assertEqual(run.stdout, "status 1\n")
            self.assertIn(f"there is no worker.py in {self.home} or {self.home}/iron", run.stderr)
            self.assertEqual(self.calls(), [])

    def test_the_second_time_installs_nothing(self):
        for shell in self.each_shell():
            self.shell(shell, "SOURCE")
            self.log.unlink()
            run = self.shell(shell, 'SOURCE; SOURCE; echo "$? $PATH"')
            self.assertEqual(run.stdout.splitlines()[:2], ["env_setup.sh: IRON 1.3.1 is ready"] * 2)
            self.assertTrue(run.stdout.splitlines()[2].startswith(f"0 {self.venv}/packages/mlir_aie/bin:"))
            self.assertEqual([call for call in self.calls() if "-m " in call], [])

    def test_changed_requirements_are_installed(self):
        for shell in self.each_shell():
            self.shell(shell, "SOURCE")
            (self.venv / "ggml-hsa-requirements.txt").write_text("mlir_aie==1.3.0\n", encoding="utf-8")
            self.log.unlink()
            self.shell(shell, "SOURCE")
            self.assertIn(f"-m pip install --requirement {IRON}/requirements.txt", self.calls())

    def test_the_other_version(self):
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE "$@"; echo "$PEANO_INSTALL_DIR"', "--iron", "1.4.4")
            venv = self.venv.with_name("iron-1.4.4")
            self.assertEqual(run.stdout.splitlines()[-1], f"{venv}/packages/llvm-aie")
            self.assertIn(f"-m pip install --requirement {IRON}/requirements-1.4.txt", self.calls())

    def test_a_folder_of_wheels_and_an_environment_elsewhere(self):
        wheels = self.folder / "some wheels"
        wheels.mkdir()
        venv = self.folder / "data" / "my env"
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE "$@"; echo "$VIRTUAL_ENV"', "--wheels", str(wheels), "--dir", str(venv))
            self.assertEqual(run.stdout.splitlines()[-1], str(venv))
            requirements = venv / "requirements-without-pages.txt"
            line = f"-m pip install --no-index --find-links {wheels} --requirement {requirements}"
            self.assertIn(line, self.calls())
            text = requirements.read_text(encoding="utf-8")
            self.assertIn("mlir_aie==1.3.1\n", text)
            self.assertNotIn("github.com", text)

    def test_a_relative_folder_is_made_absolute(self):
        for shell in self.each_shell(SHELLS_WITH_FILES):
            text = f"cd '{self.work}' && SOURCE \"$@\""
            self.shell(shell, text, "--dir", "here")
            self.assertIn(f"-m venv {self.work}/here", self.calls())
            shutil.rmtree(self.work / "here")

    def test_a_failure_leaves_the_shell_as_it_was(self):
        for double, messages in (
            ("old", ["python3 is older than 3.10"]),
            ("no-venv", ["The virtual environment was not created", "python3 -m venv failed", "apt-get install python3-venv"]),
            (
                "no-pip",
                ["no matching distribution", "IRON 1.3.1 could not be installed", f"{IRON}/requirements.txt", "see --wheels"],
            ),
        ):
            for shell in self.each_shell():
                run = self.shell(shell, 'SOURCE; echo "status $? $PATH ${VIRTUAL_ENV-none}"', DOUBLE_PYTHON=double)
                self.assertEqual(run.stdout.splitlines()[-1], f"status 1 {self.path} none")
                self.assertEqual(run.returncode, 0)
                for message in messages:
                    self.assertIn(message, run.stderr)

    def test_an_installation_that_failed_is_taken_up_again(self):
        for shell in self.each_shell():
            self.shell(shell, "SOURCE", DOUBLE_PYTHON="no-pip")
            self.assertTrue(self.shell(shell, "SOURCE").stdout.endswith("IRON 1.3.1 is ready\n"))

    def test_an_incomplete_environment_is_told(self):
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "status $?"', DOUBLE_PYTHON="incomplete")
            self.assertEqual(run.stdout.splitlines()[-1], "status 1")
            self.assertIn('{"missing": ["Peano was not found"]}', run.stderr)
            self.assertIn("active, but incomplete", run.stderr)

    def test_a_damaged_environment_is_told(self):
        for shell in self.each_shell():
            self.shell(shell, "SOURCE")
            (self.venv / "bin" / "activate").unlink()
            run = self.shell(shell, 'SOURCE; echo "status $?"')
            self.assertEqual(run.stdout, "status 1\n")
            self.assertIn(f"remove {self.venv} and source this again", run.stderr)

    def test_no_python(self):
        (self.folder / "bin" / "python3").unlink()
        for tool in ("sh", "dirname", "cmp", "cat", "rm"):
            (self.folder / "bin" / tool).symlink_to(shutil.which(tool))
        self.path = str(self.folder / "bin")
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE; echo "status $?"')
            self.assertEqual(run.stdout, "status 1\n")
            self.assertIn("python3 was not found; install Python 3.10 or later", run.stderr)

    def test_wrong_arguments(self):
        for arguments, message in (
            (["--iron", "1.5.0"], "IRON '1.5.0' is not known; known: 1.3.1, 1.4.4"),
            (["--iron"], "--iron needs a value"),
            (["--dir", ""], "--dir needs a value"),
            (["--wheels", "/nowhere"], "the folder of wheels '/nowhere' does not exist"),
            (["build"], "unknown argument 'build'"),
        ):
            for shell in self.each_shell():
                run = self.shell(shell, 'SOURCE "$@"; echo "status $?"', *arguments)
                self.assertEqual(run.stdout, "status 1\n")
                self.assertIn(message, run.stderr)
                self.assertEqual(self.calls(), [])

    def test_a_place_that_cannot_be_told(self):
        run = self.shell("sh", 'cd / && SOURCE; echo "status $?"')
        self.assertEqual(run.stdout, "status 1\n")
        self.assertIn("go to its folder first", run.stderr)

    def test_no_home(self):
        for shell in self.each_shell():
            run = self.shell(shell, 'unset XDG_DATA_HOME HOME; SOURCE; echo "status $?"')
            self.assertEqual(run.stdout, "status 1\n")
            self.assertIn("give the folder with --dir", run.stderr)

    def test_help(self):
        for shell in self.each_shell():
            run = self.shell(shell, 'SOURCE "$@"; echo "status $?"', "--help")
            self.assertIn("usage: source env_setup.sh", run.stdout)
            self.assertEqual(run.stdout.splitlines()[-1], "status 0")
            self.assertEqual(self.calls(), [])

    def test_strict_shells(self):
        for shell in self.each_shell():
            run = self.shell(shell, "set -u; SOURCE; echo still here", options="-e")
            self.assertEqual((run.stdout.splitlines()[-1], run.stderr), ("still here", ""))

    def test_nothing_else_stays(self):
        for shell in self.each_shell():
            run = self.shell(shell, "SOURCE >/dev/null; set; typeset -f 2>/dev/null || true")
            self.assertNotIn("_iron_", run.stdout)

    def test_not_sourced(self):
        for shell in self.each_shell(SHELLS_WITH_FILES):
            run = subprocess.run(
                [shutil.which(shell), str(SCRIPT)],
                env={"PATH": self.path, "DOUBLE_LOG": str(self.log), "HOME": str(self.folder)},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            self.assertEqual(run.returncode, 1)
            self.assertIn("has to be sourced", run.stderr)
            self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
