//! The design of matrix products: all cores, weights split over the rows of a column, the other operand broadcast.
//!
//! ```text
//!   row 5   core 3   <- S2MM 0: weights, S2MM 1: operand      -> MM2S 0: result       (cores 0 to 3 alike)
//!   row 4   core 2
//!   row 3   core 1
//!   row 2   core 0
//!
//!              MM2S 0 1 2 3       MM2S 4             S2MM 2 3 4 5
//!                 | | | |         | (to all four)       | | | |
//!             weights rings 0-3   operand ring        result rings 0-3
//!   row 1         ^                ^                    | (in turn)
//!              S2MM 0, 1 (each fills any of them)     MM2S 5
//!                 |                                     |
//!   row 0      MM2S 0, 1                              S2MM 0
//! ```
//!
//! Every channel of the mem tile is in use. Which of a column's two streams carries what is the dispatch's choice, because a
//! channel of the mem tile goes through rings in any order: for example, channel 0 first fills the operand's ring and then
//! those of the weights of cores 0 and 1, and channel 1 those of cores 2 and 3. Layouts are transformed where a mem tile sends or
//! receives, in four dimensions ([`Part`](super::Part)). An operand that stays is sent again and again from its ring
//! (`Part::release` only the last time). The columns do not know of each other.

use super::configured::Configured;
use super::contents::GO_LOCK;
use super::error::ArrayError;
use super::program::ArrayProgram;
use super::ring::{OWN_LOCKS, Ring};
use super::tile::{Channel, Tile};
use aie_hal::Arch;

/// A ring's place: its address, bytes from one buffer to the next, and the number of buffers.
pub type Cut = (u32, u32, u8);

/// How data memory of the cores is divided. All cores are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreMemory {
    /// Weights; locks 0 (empty) and 1 (full).
    pub weights: Cut,
    /// The other operand; locks 2 and 3.
    pub operand: Cut,
    /// The result; locks 4 and 5.
    pub result: Cut,
    /// Offset of the parameters, and their words.
    pub parameters: (u32, u32),
}

/// Bytes of the rings of a mem tile. Each begins as two buffers; see [`Ring::cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemMemory {
    /// Weights of one core.
    pub weights: u32,
    /// The other operand.
    pub operand: u32,
    /// The result of one core.
    pub result: u32,
}

impl Default for MemMemory {
    /// Half for weights, and a quarter for each of the others: 512 KiB.
    fn default() -> Self {
        Self { weights: 0x1_0000, operand: 0x2_0000, result: 0x8000 }
    }
}

/// One core of a column: its rings, and the channels of its DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductCore {
    /// The tile.
    pub tile: Tile,
    /// Weights as the core gets them, and the channel that fills them.
    pub weights: (Ring, Channel),
    /// The other operand.
    pub operand: (Ring, Channel),
    /// The result, and the channel that empties it.
    pub result: (Ring, Channel),
}

/// What of a mem tile belongs to one core of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemPart {
    /// Weights for the core, and the channel that sends them.
    pub weights: (Ring, Channel),
    /// The core's result, and the channel that it arrives at.
    pub result: (Ring, Channel),
}

/// One column of the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductColumn {
    /// The shim's two channels for operands; each leads to the [`arrival`](Self::arrival) with its index.
    pub sources: [Channel; 2],
    /// The mem tile's channels for what comes from the shim.
    pub arrival: [Channel; 2],
    /// The mem tile's ring for the operand that all cores get, and the channel that sends it to them.
    pub operand: (Ring, Channel),
    /// What of the mem tile belongs to each core.
    pub parts: Vec<MemPart>,
    /// The mem tile's channel that sends results to the shim.
    pub departure: Channel,
    /// The shim's channel for results.
    pub result: Channel,
    /// The cores, from the lowest row on.
    pub cores: Vec<ProductCore>,
}

/// The product design with the program of its cores.
#[derive(Clone, Debug)]
pub struct Product {
    configured: Configured,
    columns: Vec<ProductColumn>,
}

impl Product {
    /// The lock that a core acquires by -1 when it waits for a dispatch.
    pub const GO: u8 = OWN_LOCKS + GO_LOCK;

    /// The design in the first `columns` columns, the same program on all cores, with data (offset in the core tile's memory,
    /// bytes) that is there when the first dispatch begins.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or program, data or rings do not fit.
    pub fn new(
        arch: &Arch,
        columns: u8,
        program: &[u8],
        data: &[(u32, Vec<u8>)],
        core: &CoreMemory,
        mem: MemMemory,
    ) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let columns = (0..columns).map(|column| {
            let rows = array.grid().core_rows();
            let cores: Result<Vec<_>, _> =
                rows.map(|row| add_core(&mut array, Tile::new(column, row), program, data, core)).collect();
            add_column(&mut array, column, cores?, mem)
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Self { configured: array.finish()?, columns })
    }

    /// The configured array, with the PDI, for [`Configured::dispatch`].
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[ProductColumn] {
        &self.columns
    }
}

fn add_core(
    array: &mut ArrayProgram,
    tile: Tile,
    program: &[u8],
    data: &[(u32, Vec<u8>)],
    memory: &CoreMemory,
) -> Result<ProductCore, ArrayError> {
    array.core(tile, program)?;
    array.parameters(tile, memory.parameters.0, memory.parameters.1)?;
    for (offset, bytes) in data {
        array.data(tile, *offset, bytes)?;
    }
    let mut ring = |(address, stride, depth): Cut| array.ring(tile, Some(address), stride, depth);
    Ok(ProductCore {
        tile,
        weights: (ring(memory.weights)?, Channel::receive(tile, 0)),
        operand: (ring(memory.operand)?, Channel::receive(tile, 1)),
        result: (ring(memory.result)?, Channel::send(tile, 0)),
    })
}

fn add_column(
    array: &mut ArrayProgram,
    column: u8,
    cores: Vec<ProductCore>,
    memory: MemMemory,
) -> Result<ProductColumn, ArrayError> {
    let (shim, mem) = (Tile::new(column, 0), Tile::new(column, 1));
    let mut ring = |bytes: u32| array.ring(mem, None, bytes / 2, 2);
    let count = cores.len() as u8;
    let operand = (ring(memory.operand)?, Channel::send(mem, count));
    let parts = (0..count).map(|index| {
        let weights = (ring(memory.weights)?, Channel::send(mem, index));
        Ok(MemPart { weights, result: (ring(memory.result)?, Channel::receive(mem, 2 + index)) })
    });
    let parts: Vec<MemPart> = parts.collect::<Result<_, ArrayError>>()?;
    let (sources, arrival) = ([0, 1].map(|n| Channel::send(shim, n)), [0, 1].map(|n| Channel::receive(mem, n)));
    let (departure, result) = (Channel::send(mem, count + 1), Channel::receive(shim, 0));
    // What can pass a mem tile only with its own number comes before what can take any.
    for (part, core) in parts.iter().zip(&cores) {
        array.stream(core.result.1, [part.result.1])?;
        array.stream(part.weights.1, [core.weights.1])?;
    }
    array.stream(operand.1, cores.iter().map(|core| core.operand.1))?;
    for (source, arrival) in sources.into_iter().zip(arrival) {
        array.stream(source, [arrival])?;
    }
    array.stream(departure, [result])?;
    Ok(ProductColumn { sources, arrival, operand, parts, departure, result, cores })
}

#[cfg(test)]
mod tests;
