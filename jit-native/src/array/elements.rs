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
//! In [rings](super::Rings) such a core is a part of another array, and has [chains](chained) in place of tasks from each dispatch.
//!
//! The columns do not know of each other: the work is dealt over them. A core's data memory has four banks of 16 KiB. The
//! rings of A, B and the result have one each, so that loads and stores of a loop over them never meet in a bank; the fourth
//! has the parameters ([`Elements::PARAMETERS`]) and is the program's own beyond them.
//!
//! A core's program waits for [`Elements::GO`], reads its parameters, and for each tile acquires a full buffer of each operand
//! that it uses and an empty one of the result, computes, and hands all of them over. It begins each dispatch with buffer 0
//! of each ring.

mod chained;

use super::configured::Configured;
use super::contents::GO_LOCK;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::error::ArrayError;
use super::order::TileOrder;
use super::program::ArrayProgram;
use super::region::{Dimension, Region};
use super::ring::{OWN_LOCKS, OWN_MEMORY, Ring};
use super::tile::{Channel, Source, Tile};
use aie_hal::Arch;
use std::sync::Arc;

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
    /// In which order the program takes tiles of the operands. Of no importance where each has a channel of its own.
    pub order: TileOrder,
}

/// A core of the design: where it stands, and what leads to it and from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementsCore {
    /// The tile.
    pub tile: Tile,
    /// Where the result goes to.
    pub result: Channel,
    way: Way,
}

/// How words get into the core's memory and out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Its channels get tasks from each dispatch: where both operands come from, and their rings and that of the result.
    Tasks { operands: [Channel; 2], rings: [Ring; 3] },
    /// The configuration has started them: where both operands come from.
    Chains(Source),
}

impl ElementsCore {
    /// Gives a tile the program with its data, parameters and rings. The streams are the array's affair: from the operands' channels to both
    /// that receive, and from the one that sends to the result's.
    fn place(
        array: &mut ArrayProgram,
        tile: Tile,
        program: &[u8],
        data: &[(u32, Vec<u8>)],
        operands: [Channel; 2],
        result: Channel,
    ) -> Result<Self, ArrayError> {
        array.core(tile, program)?;
        array.parameters(tile, Elements::PARAMETERS_OFFSET, Elements::PARAMETER_WORDS)?;
        for (offset, bytes) in data {
            array.data(tile, *offset, bytes)?;
        }
        let bytes = Elements::RING_BYTES;
        let mut ring = |index: u32| array.ring(tile, Some(index * bytes), bytes / 2, 2);
        let rings = [ring(0)?, ring(1)?, ring(2)?];
        Ok(Self { tile, result, way: Way::Tasks { operands, rings } })
    }
}

/// The design of elements with the program of its cores: an array of its own ([`Elements::new`]), or a part of another
/// ([`Rings::vectors`](super::Rings::vectors)).
#[derive(Clone, Debug)]
pub struct Elements {
    configured: Arc<Configured>,
    cores: Vec<ElementsCore>,
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
        let mut cores = Vec::new();
        for column in 0..columns {
            let (shim, tile) = (Tile::new(column, 0), Tile::new(column, Self::ROW));
            let (sources, result) = ([0, 1].map(|number| Channel::send(shim, number)), Channel::receive(shim, 0));
            cores.push(ElementsCore::place(&mut array, tile, program, data, sources, result)?);
            for (number, source) in (0..).zip(sources) {
                array.stream(source, [Channel::receive(tile, number)])?;
            }
            array.stream(Channel::send(tile, 0), [result])?;
        }
        Ok(Self::of(Arc::new(array.finish()?), cores))
    }

    /// The part of an array that these cores are, one in each column.
    pub(super) fn of(configured: Arc<Configured>, cores: Vec<ElementsCore>) -> Self {
        Self { configured, cores }
    }

    /// The core of a column.
    ///
    /// # Errors
    /// [`ArrayError::NoTile`]: there is no such column.
    pub fn core(&self, column: u8) -> Result<&ElementsCore, ArrayError> {
        let row = self.cores.first().map_or(Self::ROW, |core| core.tile.row);
        let (tile, columns, rows) =
            (Tile::new(column, row), self.cores.len(), self.configured.grid().arch().array.rows);
        self.cores.get(usize::from(column)).ok_or(ArrayError::NoTile { tile, columns, rows })
    }

    /// The configured array, with the PDI.
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The number of columns that compute.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.cores.len() as u8
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
    /// has four of them for each ring. [`ArrayError::TileOrder`] where both operands come over one channel, and their tiles are not those of
    /// [`ElementsColumn::order`].
    pub fn add(&self, dispatch: &mut Dispatch<'_>, column: u8, work: &ElementsColumn) -> Result<(), ArrayError> {
        let core = self.core(column)?;
        match core.way {
            Way::Tasks { operands, rings } => core.add_tasks(dispatch, work, operands, rings),
            Way::Chains(source) => core.add_to_chains(dispatch, work, source),
        }
    }
}

impl ElementsCore {
    fn add_tasks(
        &self,
        dispatch: &mut Dispatch<'_>,
        work: &ElementsColumn,
        operands: [Channel; 2],
        rings: [Ring; 3],
    ) -> Result<(), ArrayError> {
        let [a, b] = [0, 1].map(|number| Channel::receive(self.tile, number));
        let leaves = Channel::send(self.tile, 0);
        let ends = [(work.a.as_ref(), operands[0], a), (work.b.as_ref(), operands[1], b)];
        let ends = ends.into_iter().chain([(Some(&work.result), self.result, leaves)]);
        for ((flow, outside, inside), ring) in ends.zip(rings) {
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
            dispatch.start(self.tile, &work.parameters)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
