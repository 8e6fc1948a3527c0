"""Stands for `aie.dialects.aie`."""

from simulator.control_flow import range_
from simulator.hardware import Tile
from simulator.installation import unknown_name
from simulator.placed import (
    AIEDevice, LockAction, ObjectFifoPort, buffer, core, device, external_func, lock, npu_write_rtp, object_fifo, object_fifo_link, tile,
    use_lock,
)

__getattr__ = unknown_name(__name__, dir())
