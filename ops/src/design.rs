//! What a kernel occupies on the array: columns, cores, buffers and DMA channels, and the check against a generation.

use serde::{Deserialize, Serialize};

/// One buffer of a design.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileBuffer {
    /// What it holds, e.g. "source 0".
    pub role: String,
    /// Bytes of one element of its ObjectFifo.
    pub bytes: usize,
    /// ObjectFifo depth (2 is ping-pong).
    pub depth: usize,
}

/// Resources of one kernel. Counts are per core or per column as stated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    /// Columns used.
    pub columns: usize,
    /// Cores used in each column.
    pub cores_per_column: usize,
    /// Buffers in each core's data memory.
    pub core_buffers: Vec<TileBuffer>,
    /// Buffers in each column's mem tile.
    pub mem_tile_buffers: Vec<TileBuffer>,
    /// DMA input streams of each core.
    pub core_inputs: usize,
    /// DMA output streams of each core.
    pub core_outputs: usize,
    /// Stack of each core in bytes.
    pub stack_bytes: usize,
    /// How often the largest source passes through the array.
    pub passes: usize,
}
