"""An installation of test doubles to run the worker in, and a host that talks to it.

IRON itself is nowhere in these tests: aiecc, Peano and IRON's Python package are the doubles of `doubles/`.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
IRON = TESTS.parent
DOUBLES = TESTS / "doubles"
DESIGNS = TESTS / "designs"
# Packages whose imports only the worker resolves. No package itself, so that unittest does not look for tests in it.
PACKAGES = TESTS / "packages"
INTERPRETER = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
# Long enough for a busy machine.
SECONDS = 60

sys.dont_write_bytecode = True
sys.path.insert(0, str(IRON))

import toolchain  # noqa: E402  (needs the path above)


class Installation:
    """A virtual environment, as pip would fill it, in a folder of its own: nothing of the machine's packages is in it."""

    def __init__(self, root: Path, mlir_aie: str = "1.3.1", llvm_aie: str | None = None) -> None:
        self.root = root
        self.mlir_aie = mlir_aie
        pins = {release.mlir_aie: release.llvm_aie for release in toolchain.RELEASES}
        self.llvm_aie = llvm_aie or pins.get(mlir_aie, "22.0.0.1")
        self.python = root / "bin" / "python3"
        self.packages = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        self.mlir_aie_root = self.packages / "mlir_aie"
        self.peano = self.packages / "llvm-aie"
        self.log = root / "log.jsonl"
        self.pdi = root / "given.pdi"
        self.instructions = root / "given_insts.bin"
        self.environment = {
            "HOME": str(root),
            "PATH": os.pathsep.join([str(root / "bin"), str(self.mlir_aie_root / "bin"), os.defpath]),
            "DOUBLE_IRON": mlir_aie,
            "DOUBLE_LOG": str(self.log),
            "DOUBLE_PDI": str(self.pdi),
            "DOUBLE_INSTRUCTIONS": str(self.instructions),
        }
        self._fill()

    def _fill(self) -> None:
        (self.root / "bin").mkdir()
        self.python.symlink_to(INTERPRETER)
        (self.root / "pyvenv.cfg").write_text(f"home = {INTERPRETER.parent}\n", encoding="utf-8")
        self.packages.mkdir(parents=True)
        self.pdi.write_bytes(b"the PDI that the double was given")
        self.instructions.write_bytes(b"the instructions that the double was given")
        self._distribution("mlir_aie", self.mlir_aie)
        self._distribution("llvm_aie", self.llvm_aie)
        (self.mlir_aie_root / "include" / "aie_api").mkdir(parents=True)
        install(DOUBLES / "aiecc_double.py", self.mlir_aie_root / "bin" / "aiecc")
        for program in ("clang++", "opt", "llc", "ld.lld"):
            install(DOUBLES / "peano_double.py", self.peano / "bin" / program)
        packages = DOUBLES / "packages"
        for name in ("numpy.py", "ml_dtypes.py"):
            shutil.copy(packages / name, self.packages)
        shutil.copytree(packages / "aie", self.mlir_aie_root / "python" / "aie")
        (self.packages / "mlir_aie.pth").write_text("mlir_aie/python\n", encoding="utf-8")

    def _distribution(self, name: str, version: str) -> None:
        folder = self.packages / f"{name}-{version}.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(text, encoding="utf-8")

    def worker(self, *arguments: str) -> list[str]:
        """The worker's command line, with the tests' designs."""
        return [str(self.python), str(IRON / "worker.py"), "--kernels-dir", str(DESIGNS), *arguments]

    def check(self, *arguments: str) -> tuple[int, dict]:
        """Exit code and report of `--toolchain-check`."""
        line = self.worker("--toolchain-check", *arguments)
        run = subprocess.run(line, env=self.environment, stdout=subprocess.PIPE, timeout=SECONDS, check=False)
        text = run.stdout.decode()
        return run.returncode, json.loads(text[text.index("{") :])

    def logged(self, program: str) -> list[list[str]]:
        """The argument lists that a double was called with."""
        if not self.log.exists():
            return []
        runs = map(json.loads, self.log.read_text(encoding="utf-8").splitlines())
        return [run["arguments"] for run in runs if run["program"] == program]


def stand_in(installation: Installation, release: str) -> None:
    """Has the simulator's stand-in for IRON in place of its double, in the form of a release, with this process's numpy."""
    import ml_dtypes
    import numpy

    for double in ("numpy.py", "ml_dtypes.py"):
        (installation.packages / double).unlink()
    needed = [str(Path(module.__file__).parents[1]) for module in (numpy, ml_dtypes)]
    start = f"import sys; from simulator import installation; installation.install({release!r})"
    lines = "\n".join([str(IRON), *needed, start])
    (installation.packages / "mlir_aie.pth").write_text(lines + "\n", encoding="utf-8")


def install(source: Path, target: Path) -> None:
    """Copies a double to where its original would be. Python starts it without site packages: the stand-in for IRON imports numpy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text(encoding="utf-8")
    target.write_text(text.replace("#!/usr/bin/env python3\n", f"#!{INTERPRETER} -S\n", 1), encoding="utf-8")
    target.chmod(0o755)


class Worker:
    """The host's side of one worker."""

    def __init__(self, installation: Installation, *arguments: str, line: list[str] | None = None, **variables: str) -> None:
        # A worker that dies makes no broken pipe here, so a test sees its own failure.
        self.errors_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            line or installation.worker(*arguments),
            env=installation.environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors_file,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def receive(self) -> dict | None:
        """The next line; None at the end."""
        try:
            line = self._lines.get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError(f"no line within {SECONDS} s; standard error: {self.errors()}") from None
        return json.loads(line) if line else None

    def send(self, line: bytes) -> None:
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def ask(self, function: str, work_dir: Path, /, **changes: object) -> dict:
        """One request and its answer."""
        self.send(request(function, work_dir, **changes))
        return self.receive()

    def wait(self) -> int:
        return self.process.wait(timeout=SECONDS)

    def errors(self) -> str:
        """What came on standard error so far."""
        self.errors_file.seek(0)
        return self.errors_file.read().decode(errors="replace")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=SECONDS)
        self.process.stdout.close()
        self.errors_file.close()


def tensor(dtype: str = "i32", elements: int = 64) -> dict:
    """A contiguous tensor of the protocol, of a type of 4 bytes."""
    return {"dtype": dtype, "ne": [elements, 1, 1, 1], "nb": [4, 4 * elements, 4 * elements, 4 * elements]}


def request(function: str, work_dir: Path, /, **changes: object) -> bytes:
    """A request line; `changes` replace fields of the request or of its node."""
    node = {"op": "COPY", "params": [0] * 16, "output": tensor(), "sources": [tensor()]}
    content = {
        "id": 7,
        "kernel": "copy-64i32-64i32",
        "arch": "aie2p",
        "node": node,
        "source": "text_ops.py",
        "function": function,
        "work_dir": str(work_dir),
        "verbose": False,
    }
    for name, value in changes.items():
        (node if name in node or name == "further_outputs" else content)[name] = value
    return json.dumps({"compile": content}).encode() + b"\n"


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ggml-hsa iron test ")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.work = self.folder / "work"
        self.work.mkdir()

    def installation(self, mlir_aie: str = "1.3.1", **more: str) -> Installation:
        root = self.folder / f"environment {mlir_aie}"
        root.mkdir()
        return Installation(root, mlir_aie, **more)

    def worker(self, installation: Installation, *arguments: str, **more) -> Worker:
        worker = Worker(installation, *arguments, **more)
        self.addCleanup(worker.close)
        return worker

    def greeted(self, installation: Installation, *arguments: str, **more) -> Worker:
        """A worker that has said hello."""
        worker = self.worker(installation, *arguments, **more)
        hello = worker.receive()
        self.assertIsNotNone(hello, worker.errors())
        self.assertIn("hello", hello)
        return worker

    def assert_gone(self, process: int) -> None:
        """A process has ended; zombies count as ended."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state in "ZX":
                return
            self.assertLess(time.monotonic(), deadline, f"process {process} still runs")
            time.sleep(0.01)
