"""Stands for `aie.helpers.taplib.tensortiler2d`."""

from simulator.taps import TensorTiler2D  # noqa: F401
