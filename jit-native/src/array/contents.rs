//! What a tile is configured with.

use super::chain::Chain;
use super::memory::Memory;
use aie_hal::format::dma_channel::DmaChannel;
use std::collections::{BTreeMap, BTreeSet};

/// A core's lock that a dispatch sets to 1 to start it; its number in the tile.
pub const GO_LOCK: u8 = 15;

/// The place of a core's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Offset in the core tile's data memory, in bytes.
    pub offset: u32,
    /// Number of words.
    pub words: u32,
}

/// What a tile is configured with.
#[derive(Clone, Debug, Default)]
pub(super) struct TileContents {
    /// Machine code of the core.
    pub program: Option<Vec<u8>>,
    /// What data memory has at first, by offset.
    pub data: BTreeMap<u32, Vec<u8>>,
    /// Locks in use with the values that they start with.
    pub locks: BTreeMap<u8, u8>,
    pub parameters: Option<Parameters>,
    pub memory: Memory,
    /// Channels in use, by code of direction and number.
    pub channels: BTreeSet<(u8, u8)>,
    /// What the configuration starts.
    pub chains: Vec<Chain>,
    /// Channels of a shim whose tokens the configuration leads out of the array, by number.
    pub controllers: Vec<DmaChannel>,
}
