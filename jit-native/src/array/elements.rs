//! The design of element-wise and row-wise operations: one core in each column, two operands, one result.
//!
//! ```text
//!                column 0          column 1          ...
//!            +--------------+  +--------------+
//!   row 2    |  core        |  |  core        |      A, B: S2MM 0, 1      result: MM2S 0
//!            +--^--^--+-----+  +--^--^--+-----+
//!   row 1       |  |  |           |  |  |            passes through
//!            +--+--+--v-----+  +--+--+--v-----+
//!   row 0    |  A  B  result|  |  A  B  result|      A, B: MM2S 0, 1      result: S2MM 0
//!            +--------------+  +--------------+
//! ```
//!
//! The columns do not know of each other: the work is dealt over them. A core's data memory has four banks of 16 KiB. The
//! rings of A, B and the result have one each, so that loads and stores of a loop over them never meet in a bank; the fourth
//! has the parameters ([`Elements::PARAMETERS`]) and is the program's own beyond them.
//!
//! A core's program waits for [`Elements::GO`], reads its parameters, and for each tile acquires a full buffer of each operand
//! that it uses and an empty one of the result, computes, and hands all of them over. It begins each dispatch with buffer 0
//! of each ring.

use super::configured::Configured;
use super::contents::GO_LOCK;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::error::ArrayError;
use super::program::ArrayProgram;
use super::region::{Dimension, Region};
use super::ring::{OWN_LOCKS, OWN_MEMORY, Ring};
use super::tile::{Channel, Tile};
use aie_hal::Arch;

/// A place of the design of elements, as the program of a core sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Address of buffer 0.
    pub address: u32,
    /// Lock to acquire by -1 for a full buffer of an operand, or to release by 1 for one of the result.
    pub full: u8,
    /// Lock to release by 1 for an empty buffer of an operand, or to acquire by -1 for one of the result.
    pub empty: u8,
}

const fn place(index: u32) -> Place {
    let lock = OWN_LOCKS + 2 * index as u8;
    Place { address: OWN_MEMORY + index * Elements::RING_BYTES, empty: lock, full: lock + 1 }
}

/// What moves through one ring of a core in a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Bytes from one buffer to the next, and the number of buffers.
    pub cut: (u32, u8),
    /// Tiles in their order: the words of one, and how many of them follow each other. A tile fills a buffer or a part of one.
    pub tiles: Vec<(u64, u32)>,
    /// What of the arguments they are, in the order of the tiles; together as many words.
    pub regions: Vec<Region>,
}

/// What one column does in a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementsColumn {
    /// The first words of the core's parameters.
    pub parameters: Vec<u32>,
    /// The first operand, if the program uses it.
    pub a: Option<Flow>,
    /// The second operand, if the program uses it.
    pub b: Option<Flow>,
    /// The result.
    pub result: Flow,
}

/// The design of elements with the program of its cores.
#[derive(Clone, Debug)]
pub struct Elements {
    configured: Configured,
    rings: Vec<[Ring; 3]>,
}

impl Elements {
    /// Bytes of each ring: a bank of the core's data memory.
    pub const RING_BYTES: u32 = 0x4000;
    /// The first operand.
    pub const A: Place = place(0);
    /// The second operand.
    pub const B: Place = place(1);
    /// The result.
    pub const RESULT: Place = place(2);
    /// Where the core sees its parameters.
    pub const PARAMETERS: u32 = OWN_MEMORY + Self::PARAMETERS_OFFSET;
    /// Words of parameters.
    pub const PARAMETER_WORDS: u32 = 256;
    /// First byte that is the program's own, as [`Elements::new`] takes it for data: 15 KiB up to the end of data memory.
    pub const OWN_OFFSET: u32 = Self::PARAMETERS_OFFSET + 4 * Self::PARAMETER_WORDS;
    /// Where the core sees it.
    pub const OWN: u32 = OWN_MEMORY + Self::OWN_OFFSET;
    /// The lock that the core acquires by -1 when it waits for a dispatch.
    pub const GO: u8 = OWN_LOCKS + GO_LOCK;

    const PARAMETERS_OFFSET: u32 = 3 * Self::RING_BYTES;
    const ROW: u8 = 2;

    /// The design in the first `columns` columns, all with the same program, and with data (offset in the core tile's memory, bytes)
    /// that is there when the first dispatch begins, for example tables.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or program or data do not fit.
    pub fn new(arch: &Arch, columns: u8, program: &[u8], data: &[(u32, Vec<u8>)]) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let mut rings = Vec::new();
        for column in 0..columns {
            let (shim, core) = (Tile::new(column, 0), Tile::new(column, Self::ROW));
            array.core(core, program)?;
            array.parameters(core, Self::PARAMETERS_OFFSET, Self::PARAMETER_WORDS)?;
            for (offset, bytes) in data {
                array.data(core, *offset, bytes)?;
            }
            let mut ring = |index: u32| array.ring(core, Some(index * Self::RING_BYTES), Self::RING_BYTES / 2, 2);
            rings.push([ring(0)?, ring(1)?, ring(2)?]);
            for operand in 0..2 {
                array.stream(Channel::send(shim, operand), [Channel::receive(core, operand)])?;
            }
            array.stream(Channel::send(core, 0), [Channel::receive(shim, 0)])?;
        }
        Ok(Self { configured: array.finish()?, rings })
    }

    /// The tile of a column's core.
    #[must_use]
    pub const fn core(column: u8) -> Tile {
        Tile::new(column, Self::ROW)
    }

    /// The configured array, with the PDI.
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The number of columns that compute.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.configured.grid().columns()
    }

    /// The instruction stream of a dispatch in which the first columns do what `columns` says, the others nothing.
    ///
    /// # Errors
    /// As [`Elements::add`] and [`Dispatch::finish`].
    pub fn dispatch(&self, columns: &[ElementsColumn]) -> Result<Vec<u8>, ArrayError> {
        let mut dispatch = self.configured.dispatch();
        for (column, work) in (0..=u8::MAX).zip(columns) {
            self.add(&mut dispatch, column, work)?;
        }
        dispatch.finish()
    }

    /// Adds what one column does in a phase of a dispatch. One without parameters and tiles is not started.
    ///
    /// # Errors
    /// [`ArrayError`]: there is no such column, a flow does not fit its ring, its tiles and regions differ in their words, or
    /// it needs more tasks than a channel queues. A tile takes part of a task: up to 256 equal ones are one task, and a phase
    /// has four of them for each ring.
    pub fn add(&self, dispatch: &mut Dispatch<'_>, column: u8, work: &ElementsColumn) -> Result<(), ArrayError> {
        let (shim, core) = (Tile::new(column, 0), Tile::new(column, Self::ROW));
        let (columns, rows) = (self.rings.len(), self.configured.grid().arch().array.rows);
        let rings = self.rings.get(usize::from(column)).ok_or(ArrayError::NoTile { tile: core, columns, rows })?;
        let operand = |number| (Channel::send(shim, number), Channel::receive(core, number));
        let result = (Channel::receive(shim, 0), Channel::send(core, 0));
        let flows = [(work.a.as_ref(), operand(0)), (work.b.as_ref(), operand(1)), (Some(&work.result), result)];
        for ((flow, (outside, inside)), ring) in flows.into_iter().zip(rings) {
            let Some(flow) = flow.filter(|flow| !flow.tiles.is_empty()) else { continue };
            let ring = ring.cut(flow.cut.0, flow.cut.1)?;
            for (words, count) in &flow.tiles {
                dispatch.run(inside, &[Part::strided(ring, 0, &[Dimension::new(*words, 1)])], *count)?;
            }
            for region in &flow.regions {
                dispatch.transfer(outside, region)?;
            }
        }
        if !work.parameters.is_empty() {
            dispatch.start(core, &work.parameters)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
