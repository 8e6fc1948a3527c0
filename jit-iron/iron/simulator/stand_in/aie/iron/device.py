"""Stands for `aie.iron.device`."""

from simulator.devices import CLASSES, XCVC1902, Device
from simulator.hardware import Tile
from simulator.installation import unknown_name
from simulator.iron_objects import AnyComputeTile, AnyMemTile, AnyShimTile

globals().update(CLASSES)

__getattr__ = unknown_name(__name__, ["Device", "Tile", "AnyComputeTile", "AnyMemTile", "AnyShimTile", "XCVC1902", *CLASSES])
