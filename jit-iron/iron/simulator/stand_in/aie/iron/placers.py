"""Stands for `aie.iron.placers`, which IRON has up to 1.3.1."""

from simulator.installation import release

if release() != "1.3":
    raise ImportError(f"IRON {release()} has no aie.iron.placers; resolve_program takes no placer")


class Placer:
    """Chooses tiles."""


class SequentialPlacer(Placer):
    """Column by column, from below."""

    def __init__(self, cores_per_col: int | None = None) -> None:
        self.cores_per_col = cores_per_col
