"""Stands for `aie.helpers.taplib.tas`."""

from simulator.taps import TensorAccessSequence  # noqa: F401
