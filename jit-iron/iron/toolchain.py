"""Finds the two tools that make a kernel, aiecc and Peano, and says which versions they are.

Nothing of IRON is imported here: a design that writes its MLIR as text needs the tools alone.

The versions that this project knows are a table. Any other version works as its nearest relative does, with a warning. What
decides is the aiecc that will run, not the version that Python's package metadata gives: the two differ when PATH has another
aiecc in front.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path


class ToolchainError(Exception):
    """A tool is missing or does not run. The message says what was tried and what to do."""


@dataclass(frozen=True)
class Release:
    """A version of IRON that this project knows."""

    mlir_aie: str
    """Version of the package that has aiecc."""
    llvm_aie: str
    """Version of the package that has Peano, as pinned with it."""
    flags: str
    """Spelling of aiecc's options, as in `commands.py`."""
    requirements: str
    """The file that installs both, beside this one."""


# IRON's releases name no Peano. The pins are the published pairing nearest to each release: for 1.3.1 that of amd/IRON
# (with an mlir_aie of one week later), for 1.4.4 mlir-aie's own utils/peano-requirements.txt of that time.
RELEASES = (
    Release("1.3.1", "21.0.0.2026050601+2c363ce", "1.3", "requirements.txt"),
    Release("1.4.4", "22.0.0.2026090701+3e93bf7b", "1.4", "requirements-1.4.txt"),
)

# From which version on (major, minor) aiecc's options have which spelling, newest first.
_FLAGS_SINCE = (((1, 4), "1.4"), ((1, 0), "1.3"))
# What aiecc and the core functions need of Peano.
_PEANO_PROGRAMS = ("clang++", "opt", "llc", "ld.lld")
_HELP_SECONDS = 60


@dataclass(frozen=True)
class Toolchain:
    """The tools, all of them there."""

    aiecc: Path
    peano: Path
    """Root of Peano; the programs are in its `bin`."""
    include: Path
    """mlir_aie's C++ headers."""
    flags: str
    """Spelling of aiecc's options."""
    states_peano: bool
    """Whether aiecc needs an option to use Peano: all of 1.3, and those of 1.4 that still list the options for it."""
    mlir_aie: str
    """Version, or another identity of this aiecc."""
    llvm_aie: str
    """Version, or another identity of this Peano."""
    warnings: tuple[str, ...] = field(default=())
    """What the user should know; the tools are used all the same."""


def find() -> Toolchain:
    """Finds the tools as this process's environment says.

    Raises ToolchainError when one is missing.
    """
    roots = _mlir_aie_roots()
    aiecc = _find_aiecc(roots)
    # The folder of the very aiecc that runs is the first to ask for headers.
    include = _find_include([aiecc.resolve().parent.parent, *roots])
    peano = _find_peano()
    warnings: list[str] = []
    installed = _version("mlir_aie", aiecc)
    llvm_aie = _version("llvm-aie", peano)
    flags, states_peano = _choose_flags(aiecc, installed, warnings)
    _compare_with_releases(installed, llvm_aie, warnings)
    return Toolchain(
        aiecc=aiecc,
        peano=peano,
        include=include,
        flags=flags,
        states_peano=states_peano,
        mlir_aie=installed or f"unknown ({_file_identity(aiecc)})",
        llvm_aie=llvm_aie or f"unknown ({_file_identity(peano / 'bin' / 'clang++')})",
        warnings=tuple(warnings),
    )


def flags_of_version(version: str) -> str | None:
    """The spelling of aiecc's options in a version; None when the version does not tell, as in nightly builds (0.0.1...)."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return None
    since = (int(numbers[1]), int(numbers[2]))
    return next((flags for first, flags in _FLAGS_SINCE if since >= first), None)


def flags_of_help(text: str) -> str | None:
    """The spelling of aiecc's options by what `aiecc --help` printed; None when it shows neither.

    aiecc 1.4 rewrites `--get-pdi` and its relatives before it parses its options, so its help has them only as examples of
    `--get=<name>`. Not to look for: `--pdi-name`, which both have.
    """
    if re.search(r"--aie-generate-pdi\b", text):
        return "1.3"
    if re.search(r"--get\b", text):
        return "1.4"
    return None


def _choose_flags(aiecc: Path, installed: str | None, warnings: list[str]) -> tuple[str, bool]:
    """Spelling of the options, and whether Peano needs an option."""
    text = _help_of(aiecc)
    listed = flags_of_help(text)
    expected = flags_of_version(installed) if installed else None
    flags = listed or expected
    if flags is None:
        raise ToolchainError(
            f"{aiecc} is of an unknown version: `aiecc --help` lists neither --aie-generate-pdi (IRON 1.3) nor --get (1.4), "
            f"and mlir_aie's version is {installed or 'not known'}. Known: {_known()}"
        )
    if listed is None:
        warnings.append(f"`{aiecc} --help` lists neither spelling of the options; those of IRON {flags} are used")
    elif expected not in (None, listed):
        warnings.append(
            f"{aiecc} takes the options of IRON {listed}, but the installed mlir_aie is {installed}; "
            f"the options that aiecc lists are used"
        )
    return flags, flags == "1.3" or "--no-xchesscc" in text


def _compare_with_releases(installed: str | None, llvm_aie: str | None, warnings: list[str]) -> None:
    release = next((release for release in RELEASES if release.mlir_aie == installed), None)
    if release is None:
        version = f"mlir_aie {installed}" if installed else "an mlir_aie whose version is not known"
        warnings.append(f"{version} is not among the versions known here ({_known()}); the nearest one's options are used")
    elif llvm_aie not in (None, release.llvm_aie):
        warnings.append(f"llvm-aie is {llvm_aie}; pinned with mlir_aie {installed} is {release.llvm_aie}")


def _known() -> str:
    return ", ".join(release.mlir_aie for release in RELEASES)


def _aie_package() -> Path | None:
    """The folder of the Python package `aie`, without importing it."""
    spec = importlib.util.find_spec("aie")
    locations = list(spec.submodule_search_locations or []) if spec else []
    return Path(locations[0]) if locations else None


def _platlib() -> Path:
    return Path(sysconfig.get_path("platlib"))


def _mlir_aie_roots() -> list[Path]:
    """Where mlir_aie may be installed, the explicit place first."""
    roots = []
    if explicit := os.environ.get("MLIR_AIE_INSTALL_DIR"):
        roots.append(Path(explicit))
    if package := _aie_package():
        # In the wheel the package is <root>/python/aie.
        roots.append(package.parent.parent)
    roots.append(_platlib() / "mlir_aie")
    return roots


def _find_aiecc(roots: list[Path]) -> Path:
    if on_path := shutil.which("aiecc"):
        return Path(on_path).absolute()
    candidates = [root / "bin" / "aiecc" for root in roots]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise ToolchainError(f"aiecc was not found; tried: PATH, {_list(candidates)}. The package mlir_aie has it")


def _find_include(roots: list[Path]) -> Path:
    # A virtual environment has an `include` of its own, hence the look below it.
    for root in roots:
        if (root / "include" / "aie_api").is_dir():
            return (root / "include").absolute()
    tried = _list(dict.fromkeys(root / "include" / "aie_api" for root in roots))
    raise ToolchainError(f"the C++ headers of mlir_aie were not found; tried: {tried}. MLIR_AIE_INSTALL_DIR can name its root")


def _find_peano() -> Path:
    """In IRON's own order, without the path that is compiled into IRON, which is one of the machine that built it."""
    if explicit := os.environ.get("PEANO_INSTALL_DIR"):
        root = Path(explicit).absolute()
        # An explicit place that fails is an error: another Peano was not requested.
        if missing := _missing_programs(root):
            raise ToolchainError(f"PEANO_INSTALL_DIR is {explicit}, where {_list(missing)} is missing")
        return root
    candidates = []
    if package := _aie_package():
        candidates += [package / "peano", package.parent / "peano"]
    candidates.append(_platlib() / "llvm-aie")
    for root in candidates:
        if not _missing_programs(root):
            return root.absolute()
    raise ToolchainError(
        f"Peano was not found; tried: PEANO_INSTALL_DIR (not set), {_list(candidates)}. The package llvm-aie has it; "
        f"its bin has {', '.join(_PEANO_PROGRAMS)}"
    )


def _missing_programs(root: Path) -> list[Path]:
    programs = [root / "bin" / name for name in _PEANO_PROGRAMS]
    return [program for program in programs if not program.is_file()]


def _list(paths) -> str:
    return ", ".join(str(path) for path in paths)


def _version(package: str, tool: Path) -> str | None:
    """Version of a Python package, if the tool is of that package and not of another installation."""
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    homes = (Path(str(distribution.locate_file(""))), Path(sysconfig.get_path("scripts")))
    if any(tool.resolve().is_relative_to(home.resolve()) for home in homes):
        return distribution.version
    return None


def _file_identity(program: Path) -> str:
    """Distinguishes a program without a version from its next build."""
    status = program.stat()
    return f"{program}, {status.st_size} bytes, changed {status.st_mtime_ns}"


def _help_of(aiecc: Path) -> str:
    command = [str(aiecc), "--help"]
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_HELP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"`{aiecc} --help` did not end within {_HELP_SECONDS} s") from None
    except OSError as error:
        raise ToolchainError(f"{aiecc} does not run: {error}") from None
    return run.stdout.decode(errors="replace")
