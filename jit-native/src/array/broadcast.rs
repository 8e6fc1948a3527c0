//! The design of products with many columns: each word is read once and goes to a whole row or column of cores.
//!
//! ```text
//!              column 0     column 1     column 2     column 3
//!   row 5      core <------ core <------ core <------ core      weights of mem tile 3 to the cores of row 5
//!   row 4      core <------ core <------ core ------> core      weights of mem tile 2 to those of row 4
//!   row 3      core <------ core ------> core ------> core
//!   row 2      core ------> core ------> core ------> core      weights of mem tile 0 to those of row 2
//!               ^            ^            ^            ^        the operand of each mem tile to its column of cores
//!   row 1      mem tile     mem tile     mem tile     mem tile
//!   row 0      shim         shim         shim         shim
//! ```
//!
//! | tile | channel | |
//! |---|---|---|
//! | shim | MM2S 0, 1 | weights of the row with the column's number; operand of the column |
//! | mem tile | S2MM 0, 1 | the same, into a ring each |
//! | mem tile | MM2S 0 | weights, to all cores of a row |
//! | mem tile | MM2S 1 | operand, to all cores of the column |
//! | core | S2MM 0, 1 | weights, operand |
//! | core | MM2S 0 | result, to the mem tile of its column |
//! | mem tile | S2MM 2 to 5 | results of its cores, into a ring each |
//! | mem tile | MM2S 2, 3 | results of the lower and of the upper half of its cores, in turn, to the shim |
//! | shim | S2MM 0, 1 | the same |
//!
//! A word goes on when all its takers can take it, so all cores do the same work. With fewer columns there are as many rows of cores.

use super::configured::Configured;
use super::error::ArrayError;
use super::product::{CoreMemory, ProductCore};
use super::program::ArrayProgram;
use super::ring::Ring;
use super::tile::{Channel, Tile};
use aie_hal::Arch;
use std::ops::Range;

/// One column of the design, and the weights of the row of cores with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastColumn {
    /// The shim's channel for weights, and that of the mem tile that they arrive at.
    pub weights_from: [Channel; 2],
    /// The mem tile's ring for weights, and the channel that sends them to a row of cores.
    pub weights: (Ring, Channel),
    /// The shim's channel for the operand, and that of the mem tile that it arrives at.
    pub operand_from: [Channel; 2],
    /// The mem tile's ring for the operand, and the channel that sends it to the column's cores.
    pub operand: (Ring, Channel),
    /// The mem tile's ring for the result of each core, and the channel that it arrives at.
    pub results: Vec<(Ring, Channel)>,
    /// The mem tile's channels that send results to the shim, and those that they arrive at there: of the lower and of the upper half
    /// of the cores, if there are several.
    pub departures: Vec<[Channel; 2]>,
    /// The cores, from the lowest row on.
    pub cores: Vec<ProductCore>,
}

impl BroadcastColumn {
    /// The cores whose results each departure has.
    #[must_use]
    pub fn departing(&self, departure: usize) -> Range<usize> {
        let part = |number: usize| number * self.cores.len() / self.departures.len().max(1);
        part(departure)..part(departure + 1)
    }
}

/// The design with the program of its cores.
#[derive(Clone, Debug)]
pub struct Broadcast {
    configured: Configured,
    columns: Vec<BroadcastColumn>,
}

/// Bytes of a mem tile's rings as they are configured. Each dispatch cuts them as it needs them.
const CONFIGURED_BYTES: u32 = 64;

impl Broadcast {
    /// The design in the first `columns` columns, as many rows of cores at most, and the same program on all of them.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or program or rings do not fit.
    pub fn new(arch: &Arch, columns: u8, program: &[u8], memory: &CoreMemory) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let rows: Vec<u8> = array.grid().core_rows().take(columns.into()).collect();
        let columns: Vec<BroadcastColumn> = (0..columns)
            .map(|column| add_column(&mut array, column, &rows, program, memory))
            .collect::<Result<_, _>>()?;
        // What can pass a mem tile only with its own number comes before what can take any.
        for column in &columns {
            for (core, (_, arrival)) in column.cores.iter().zip(&column.results) {
                array.stream(core.result.1, [*arrival])?;
            }
            for [from, to] in &column.departures {
                array.stream(*from, [*to])?;
            }
        }
        for (row, column) in columns.iter().enumerate() {
            array.stream(column.operand.1, column.cores.iter().map(|core| core.operand.1))?;
            array.stream(column.operand_from[0], [column.operand_from[1]])?;
            let cores: Vec<Channel> =
                columns.iter().filter_map(|column| Some(column.cores.get(row)?.weights.1)).collect();
            if !cores.is_empty() {
                array.stream(column.weights.1, cores)?;
                array.stream(column.weights_from[0], [column.weights_from[1]])?;
            }
        }
        Ok(Self { configured: array.finish()?, columns })
    }

    /// The configured array, with the PDI, for [`Configured::dispatch`].
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[BroadcastColumn] {
        &self.columns
    }

    /// Rows of cores.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cores.len())
    }
}

fn add_column(
    array: &mut ArrayProgram,
    column: u8,
    rows: &[u8],
    program: &[u8],
    memory: &CoreMemory,
) -> Result<BroadcastColumn, ArrayError> {
    let (shim, mem) = (Tile::new(column, 0), Tile::new(column, 1));
    let mut core = |row: &u8| {
        let tile = Tile::new(column, *row);
        array.core(tile, program)?;
        array.parameters(tile, memory.parameters.0, memory.parameters.1)?;
        let mut ring = |(address, stride, depth)| array.ring(tile, Some(address), stride, depth);
        Ok(ProductCore {
            tile,
            weights: (ring(memory.weights)?, Channel::receive(tile, 0)),
            operand: (ring(memory.operand)?, Channel::receive(tile, 1)),
            result: (ring(memory.result)?, Channel::send(tile, 0)),
        })
    };
    let cores: Vec<ProductCore> = rows.iter().map(&mut core).collect::<Result<_, ArrayError>>()?;
    let mut ring = || array.ring(mem, None, CONFIGURED_BYTES, 2);
    let (weights, operand) = ((ring()?, Channel::send(mem, 0)), (ring()?, Channel::send(mem, 1)));
    let results = (0..rows.len() as u8).map(|row| Ok((ring()?, Channel::receive(mem, 2 + row))));
    Ok(BroadcastColumn {
        weights_from: [Channel::send(shim, 0), Channel::receive(mem, 0)],
        weights,
        operand_from: [Channel::send(shim, 1), Channel::receive(mem, 1)],
        operand,
        results: results.collect::<Result<_, ArrayError>>()?,
        departures: (0..rows.len().min(2) as u8)
            .map(|number| [Channel::send(mem, 2 + number), Channel::receive(shim, number)])
            .collect(),
        cores,
    })
}

#[cfg(test)]
mod tests;
