"""Stands for `aie.dialects.aiex`."""

from simulator.installation import unknown_name
from simulator.placed import (
    dma_await_task, dma_free_task, dma_start_task, dma_wait, npu_dma_memcpy_nd, npu_rtp_write, npu_write_rtp, runtime_sequence,
    set_lock_value, shim_dma_single_bd_task,
)

__getattr__ = unknown_name(__name__, dir())
