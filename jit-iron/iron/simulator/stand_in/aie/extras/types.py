"""Stands for `aie.extras.types`."""

from simulator.installation import unknown_name
from simulator.scalars import TYPES

globals().update(TYPES)

__getattr__ = unknown_name(__name__, list(TYPES))
