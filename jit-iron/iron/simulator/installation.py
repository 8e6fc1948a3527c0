"""Puts the stand-in for IRON's Python package where designs import it from."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

STAND_IN = Path(__file__).resolve().parent / "stand_in"
RELEASES = ("1.3", "1.4")
_chosen = RELEASES[0]


def install(release: str = RELEASES[0]) -> None:
    """From now on `import aie` gives the stand-in in the form of IRON `release`. An `aie` that was imported is forgotten."""
    global _chosen
    if release not in RELEASES:
        raise ValueError(f"no stand-in for IRON {release}; there are {', '.join(RELEASES)}")
    _chosen = release
    for name in [name for name in sys.modules if name == "aie" or name.startswith("aie.")]:
        del sys.modules[name]
    if str(STAND_IN) in sys.path:
        sys.path.remove(str(STAND_IN))
    sys.path.insert(0, str(STAND_IN))
    importlib.invalidate_caches()


def release() -> str:
    """The form that was chosen."""
    return _chosen


def unknown_name(module: str, simulated: list[str]):
    """A module's `__getattr__` that says what there is."""
    from .errors import UnknownName

    def get(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        shown = ", ".join(sorted(one for one in simulated if not one.startswith("_")))
        raise UnknownName(f"{module} has no {name!r} here; simulated: {shown}")

    return get
