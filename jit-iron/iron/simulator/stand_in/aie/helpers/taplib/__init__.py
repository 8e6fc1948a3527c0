"""Stands for `aie.helpers.taplib`."""

from simulator.installation import unknown_name
from simulator.taps import TensorAccessPattern, TensorAccessSequence, TensorTiler2D

__getattr__ = unknown_name(__name__, ["TensorAccessPattern", "TensorAccessSequence", "TensorTiler2D"])
