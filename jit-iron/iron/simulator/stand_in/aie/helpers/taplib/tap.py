"""Stands for `aie.helpers.taplib.tap`."""

from simulator.taps import TensorAccessPattern  # noqa: F401
