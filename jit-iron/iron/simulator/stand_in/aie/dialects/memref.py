"""Stands for `aie.dialects.memref`."""

from simulator.installation import unknown_name
from simulator.scalars import Operation, load, store


def LoadOp(memref, indices) -> Operation:  # noqa: N802 - IRON's name.
    """An element, as `.result`."""
    return Operation(load(memref, indices))


def StoreOp(value, memref, indices) -> Operation:  # noqa: N802 - IRON's name.
    """Writes an element."""
    store(value, memref, indices)
    return Operation()


__getattr__ = unknown_name(__name__, ["LoadOp", "StoreOp", "load", "store"])
