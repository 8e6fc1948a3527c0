"""Stands for `aie.extras.context`."""

from simulator.placed import mlir_mod_ctx  # noqa: F401
