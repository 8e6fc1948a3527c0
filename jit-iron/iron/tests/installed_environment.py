#!/usr/bin/env python3
"""Sources the env_setup.sh of an installation, or of the sources, and has its worker compile its designs, on doubles.

    python3 installed_environment.py FOLDER        FOLDER has env_setup.sh

The virtual environment is there already, with doubles of aiecc and Peano and the simulator's stand-in for IRON; pip installs nothing.
Everything else is the folder's own: the script, the requirements, the worker, the designs. Needs numpy and ml_dtypes. The exit code is 0
when the script says ready after it has compiled, and stops saying so when aiecc fails.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support import Installation, stand_in

RELEASES = {"1.3.1": "1.3", "1.4.4": "1.4"}


def source(script: Path, release: str, folder: Path, **variables: str) -> tuple[str, list]:
    """What the script prints, and the runs of the doubles meanwhile."""
    root = folder / "environment"
    if not root.is_dir():
        root.mkdir()
        stand_in(Installation(root, release), RELEASES[release])
        (root / "bin" / "activate").write_text(f'PATH="{root}/bin:$PATH"\n', encoding="utf-8")
        # The note of what is installed: nothing is left to do.
        requirements = {"1.3.1": "requirements.txt", "1.4.4": "requirements-1.4.txt"}[release]
        (root / "ggml-hsa-requirements.txt").write_bytes((script.parent / requirements).read_bytes())
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    environment = {**kept, "HOME": str(folder), "DOUBLE_IRON": release, "DOUBLE_LOG": str(log), **variables}
    for name, file in (("DOUBLE_PDI", "given.pdi"), ("DOUBLE_INSTRUCTIONS", "given_insts.bin")):
        environment[name] = str(root / file)
    line = ["bash", "-c", 'source "$1" --iron "$2" --dir "$3"; echo "status $?"', "bash", str(script), release, str(root)]
    run = subprocess.run(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return run.stdout, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def main() -> int:
    """Checks both releases; returns the exit code."""
    script = Path(sys.argv[1]).resolve() / "env_setup.sh"
    for release in RELEASES:
        with tempfile.TemporaryDirectory(prefix="ggml-hsa-environment-") as name:
            folder = Path(name)
            said, _ = source(script, release, folder, DOUBLE_AIECC="fail")
            if "is ready" in said or "no kernel can be compiled for aie2:" not in said or not said.endswith("status 1\n"):
                print(f"{script}: with an aiecc that fails, it said:\n{said}", file=sys.stderr)
                return 1
            said, runs = source(script, release, folder)
            cores = [run for run in runs if '"clang++"' in run and "add_tile" in run]
            kernels = [run for run in runs if '"aiecc"' in run]
            if not said.endswith(f"IRON {release} is ready\nstatus 0\n") or (len(cores), len(kernels)) != (2, 2):
                print(f"{script}: with tools that compile, it said:\n{said}", file=sys.stderr)
                return 1
    print(f"{script}: ready with {' and '.join(RELEASES)} after compiling a kernel for each generation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
