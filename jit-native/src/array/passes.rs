//! The design of copies: words of one argument become words of another, and no core touches them on the way.
//!
//! ```text
//!                column 0                column 1        ...
//!            +------------------+
//!   row 2    |       core       |   packs: f32 comes in, two f16 or bf16 to a word go out
//!            +----^--------+----+
//!   row 1    |  mem tile: ring  |   passes: what one channel has filled, another one empties
//!            +--^---+--^---+----+
//!   row 0    |  0   0  1   1    |   MM2S 0 and S2MM 0: passes; MM2S 1 and S2MM 1: to the core and back
//!            +------------------+
//! ```
//!
//! A pass needs no program: the ring in the mem tile has one channel that fills its buffers and one that empties them, each with the
//! locks of the ring, and the layout is changed where words leave the first argument and where they arrive in the second, by
//! the shims' descriptors. So a pass works on every generation, and it could go through any tile of any design in which one
//! channel comes from a shim and one leads to a shim.
//!
//! The cores are there for copies that change the type. Their program ([`Passes::new`]) gets, for each dispatch, the number of
//! tiles, words that a tile and the last tile make, and which type they are to be.

use super::configured::Configured;
use super::contents::GO_LOCK;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::elements::Place;
use super::error::ArrayError;
use super::program::ArrayProgram;
use super::region::Region;
use super::ring::{OWN_LOCKS, OWN_MEMORY, Ring};
use super::tile::{Channel, Tile};
use aie_hal::Arch;

/// What one column moves in a phase: as many words from the first regions as into the second ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// What is read, in order.
    pub from: Vec<Region>,
    /// What is written, in order.
    pub to: Vec<Region>,
}

impl Pass {
    /// Words that it writes.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.to.iter().map(Region::words).sum()
    }
}

/// The design with its PDI.
#[derive(Clone, Debug)]
pub struct Passes {
    configured: Configured,
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    ring: Ring,
    packing: Option<(Ring, Ring)>,
}

impl Passes {
    /// Words of a buffer of a mem tile.
    const BUFFER_WORDS: u32 = 4096;
    /// Buffers of a mem tile.
    const BUFFERS: u8 = 4;
    /// Words that the core makes of a tile, at most; it reads twice as many.
    pub const PACKED_WORDS: u32 = 1024;
    /// Tiles of one phase: three tasks of 256, and one for a last tile that is shorter.
    const MOST_TILES: u64 = 768;
    /// Words that one column passes in a phase, at most.
    pub const MOST_PASSED: u64 = Self::MOST_TILES * Self::BUFFER_WORDS as u64;
    /// Words that one column makes of pairs in a phase, at most.
    pub const MOST_PACKED: u64 = Self::MOST_TILES * Self::PACKED_WORDS as u64;

    /// The core's operand: two buffers.
    pub const INPUT: Place = Place { address: OWN_MEMORY, empty: OWN_LOCKS, full: OWN_LOCKS + 1 };
    /// The core's result: two buffers.
    pub const RESULT: Place =
        Place { address: OWN_MEMORY + Self::RESULT_OFFSET, empty: OWN_LOCKS + 2, full: OWN_LOCKS + 3 };
    /// Bytes between the two buffers of the operand; those of the result are half as far apart.
    pub const INPUT_STRIDE: u32 = 8 * Self::PACKED_WORDS;
    /// Bytes between the two buffers of the result.
    pub const RESULT_STRIDE: u32 = 4 * Self::PACKED_WORDS;
    /// Where the core sees its parameters.
    pub const PARAMETERS: u32 = OWN_MEMORY + Self::PARAMETERS_OFFSET;
    /// The lock that the core acquires by -1 when it waits for a dispatch.
    pub const GO: u8 = OWN_LOCKS + GO_LOCK;

    const RESULT_OFFSET: u32 = 0x8000;
    const PARAMETERS_OFFSET: u32 = 0xC000;
    const PARAMETER_WORDS: u32 = 16;
    const CORE_ROW: u8 = 2;

    /// The design in the first `columns` columns; with a `program` the cores pack, without one there is nothing but passes.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or the program does not fit.
    pub fn new(arch: &Arch, columns: u8, program: Option<&[u8]>) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let mut made = Vec::new();
        for column in 0..columns {
            let [shim, mem, core] = [0, 1, Self::CORE_ROW].map(|row| Tile::new(column, row));
            let ring = array.ring(mem, None, 4 * Self::BUFFER_WORDS, Self::BUFFERS)?;
            array.stream(Channel::send(shim, 0), [Channel::receive(mem, 0)])?;
            array.stream(Channel::send(mem, 0), [Channel::receive(shim, 0)])?;
            let mut packing = None;
            if let Some(program) = program {
                array.core(core, program)?;
                array.parameters(core, Self::PARAMETERS_OFFSET, Self::PARAMETER_WORDS)?;
                let input = array.ring(core, Some(0), Self::INPUT_STRIDE, 2)?;
                let result = array.ring(core, Some(Self::RESULT_OFFSET), Self::RESULT_STRIDE, 2)?;
                array.stream(Channel::send(shim, 1), [Channel::receive(core, 0)])?;
                array.stream(Channel::send(core, 0), [Channel::receive(shim, 1)])?;
                packing = Some((input, result));
            }
            made.push(Column { ring, packing });
        }
        Ok(Self { configured: array.finish()?, columns: made })
    }

    /// The configured array, with the PDI.
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.configured.grid().columns()
    }

    /// Adds a pass of one column to a phase: through its mem tile, as it is.
    ///
    /// # Errors
    /// [`ArrayError`]: there is no such column, the regions differ in their words, they have more than [`Passes::MOST_PASSED`],
    /// or no descriptors can cover them.
    pub fn pass(&self, dispatch: &mut Dispatch<'_>, column: u8, pass: &Pass) -> Result<(), ArrayError> {
        let (shim, mem) = (Tile::new(column, 0), Tile::new(column, 1));
        let ring = self.column(column)?.ring;
        let words = pass.words();
        let tile = tile(dispatch.block(shim, &pass.to)?, Self::BUFFER_WORDS);
        for channel in [Channel::receive(mem, 0), Channel::send(mem, 0)] {
            run(dispatch, channel, ring, words, tile, 1)?;
        }
        transfer(dispatch, [Channel::send(shim, 0), Channel::receive(shim, 0)], pass)
    }

    /// Adds a pass of one column through its core, which makes one word of two. `format` is handed to its program.
    ///
    /// # Errors
    /// As [`Passes::pass`], with [`Passes::MOST_PACKED`] words, and when the design was made without a program.
    pub fn pack(&self, dispatch: &mut Dispatch<'_>, column: u8, pass: &Pass, format: u32) -> Result<(), ArrayError> {
        let (shim, core) = (Tile::new(column, 0), Tile::new(column, Self::CORE_ROW));
        let (input, result) = self.column(column)?.packing.ok_or(ArrayError::NoParameters(core))?;
        let (words, tile) = (pass.words(), tile(dispatch.block(shim, &pass.to)?, Self::PACKED_WORDS));
        run(dispatch, Channel::receive(core, 0), input, words, tile, 2)?;
        run(dispatch, Channel::send(core, 0), result, words, tile, 1)?;
        let (tiles, last) = (words.div_ceil(tile), words - (words.max(1) - 1) / tile * tile);
        dispatch.start(core, &[tiles as u32, tile as u32, last as u32, format])?;
        transfer(dispatch, [Channel::send(shim, 1), Channel::receive(shim, 1)], pass)
    }

    fn column(&self, column: u8) -> Result<Column, ArrayError> {
        let (columns, rows) = (self.columns.len(), self.configured.grid().arch().array.rows);
        let found = self.columns.get(usize::from(column)).copied();
        found.ok_or(ArrayError::NoTile { tile: Tile::new(column, 0), columns, rows })
    }
}

/// Words of a tile: as many as a buffer has, or the most that divide the blocks that must not be held back.
fn tile(block: Option<u64>, buffer: u32) -> u64 {
    let buffer = u64::from(buffer);
    block.map_or(buffer, |block| (1..=buffer).rev().find(|tile| block.is_multiple_of(*tile)).unwrap_or(1))
}

/// `words` in tiles of `tile` and what is left, each word of which is `factor` words in this ring.
fn run(
    dispatch: &mut Dispatch<'_>,
    channel: Channel,
    ring: Ring,
    words: u64,
    tile: u64,
    factor: u64,
) -> Result<(), ArrayError> {
    let (whole, rest) = (words / tile, words % tile);
    let whole = u32::try_from(whole).unwrap_or(u32::MAX);
    dispatch.run(channel, &[Part::linear(ring, factor * tile)], whole)?;
    dispatch.run(channel, &[Part::linear(ring, (factor * rest).max(1))], u32::from(rest > 0))?;
    Ok(())
}

fn transfer(dispatch: &mut Dispatch<'_>, [from, to]: [Channel; 2], pass: &Pass) -> Result<(), ArrayError> {
    for (channel, regions) in [(from, &pass.from), (to, &pass.to)] {
        for region in regions {
            dispatch.transfer(channel, region)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
