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
//! In [rings](super::Rings) such a core is a part of another array. Its operands then come over one channel of the shim, as packets, and are
//! sent in the order in which the program takes their tiles ([`TileOrder`]).
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
use super::order::{Share, TileOrder};
use super::program::ArrayProgram;
use super::region::{Dimension, Region};
use super::ring::{OWN_LOCKS, OWN_MEMORY, Ring};
use super::tile::{Channel, Source, Tile};
use aie_hal::Arch;
use std::ops::Range;
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
    /// Where the first and the second operand come from.
    pub operands: [Source; 2],
    /// Where the result goes to.
    pub result: Channel,
    rings: [Ring; 3],
}

impl ElementsCore {
    /// Gives a tile the program with its data, parameters and rings. The streams are the array's affair: to [`ElementsCore::arrives`] and
    /// from [`ElementsCore::leaves`].
    ///
    /// # Errors
    /// [`ArrayError`]: the tile has no core or a program already, or program or data do not fit.
    pub fn place(
        array: &mut ArrayProgram,
        tile: Tile,
        program: &[u8],
        data: &[(u32, Vec<u8>)],
        operands: [Source; 2],
        result: Channel,
    ) -> Result<Self, ArrayError> {
        array.core(tile, program)?;
        array.parameters(tile, Elements::PARAMETERS_OFFSET, Elements::PARAMETER_WORDS)?;
        for (offset, bytes) in data {
            array.data(tile, *offset, bytes)?;
        }
        let bytes = Elements::RING_BYTES;
        let mut ring = |index: u32| array.ring(tile, Some(index * bytes), bytes / 2, 2);
        Ok(Self { tile, operands, result, rings: [ring(0)?, ring(1)?, ring(2)?] })
    }

    /// Where the operands arrive.
    #[must_use]
    pub const fn arrives(tile: Tile) -> [Channel; 2] {
        [Channel::receive(tile, 0), Channel::receive(tile, 1)]
    }

    /// Where the result leaves.
    #[must_use]
    pub const fn leaves(tile: Tile) -> Channel {
        Channel::send(tile, 0)
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
            let (sources, result) = ([Channel::send(shim, 0), Channel::send(shim, 1)], Channel::receive(shim, 0));
            cores.push(ElementsCore::place(&mut array, tile, program, data, sources.map(Source::from), result)?);
            for (source, arrives) in sources.into_iter().zip(ElementsCore::arrives(tile)) {
                array.stream(source, [arrives])?;
            }
            array.stream(ElementsCore::leaves(tile), [result])?;
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
        let is_used = |flow: &&Flow| !flow.tiles.is_empty();
        let operands = [work.a.as_ref(), work.b.as_ref()].map(|flow| flow.filter(is_used));
        let result = Some(&work.result).filter(is_used);
        let [a, b] = ElementsCore::arrives(core.tile);
        let inside = [(operands[0], a), (operands[1], b), (result, ElementsCore::leaves(core.tile))];
        for ((flow, channel), ring) in inside.into_iter().zip(core.rings) {
            let Some(flow) = flow else { continue };
            let ring = ring.cut(flow.cut.0, flow.cut.1)?;
            for (words, count) in &flow.tiles {
                dispatch.run(channel, &[Part::strided(ring, 0, &[Dimension::new(*words, 1)])], *count)?;
            }
        }
        match operands {
            [Some(a), Some(b)] if core.operands[0].channel == core.operands[1].channel => {
                core.send_in_order(dispatch, [a, b], work.order)?;
            }
            _ => {
                for (flow, source) in operands.into_iter().zip(core.operands) {
                    for region in flow.iter().flat_map(|flow| &flow.regions) {
                        dispatch.transfer(source, region)?;
                    }
                }
            }
        }
        for region in result.iter().flat_map(|flow| &flow.regions) {
            dispatch.transfer(core.result, region)?;
        }
        if !work.parameters.is_empty() {
            dispatch.start(core.tile, &work.parameters)?;
        }
        Ok(())
    }
}

impl Flow {
    fn count(&self) -> u64 {
        self.tiles.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Words of the first `tiles` tiles.
    fn words_of(&self, tiles: u64) -> u64 {
        let (mut left, mut words) = (tiles, 0);
        for (each, count) in &self.tiles {
            let taken = left.min((*count).into());
            (left, words) = (left - taken, words + each * taken);
        }
        words
    }

    /// What of the arguments some of its words are, from the first to the one behind the last.
    fn cut(&self, words: Range<u64>) -> Vec<Region> {
        let (mut parts, mut before) = (Vec::new(), 0);
        for region in &self.regions {
            let of_region = words.start.saturating_sub(before)..words.end.saturating_sub(before);
            parts.extend(region.cut(of_region));
            before += region.words();
        }
        parts
    }
}

impl ElementsCore {
    /// Its rings as they are configured: of both operands and of the result.
    #[cfg(test)]
    pub(super) fn rings(&self) -> [Ring; 3] {
        self.rings
    }

    /// Sends two operands over one channel, tiles of either in the order in which the program takes them.
    fn send_in_order(
        &self,
        dispatch: &mut Dispatch<'_>,
        flows: [&Flow; 2],
        order: TileOrder,
    ) -> Result<(), ArrayError> {
        let tiles @ [a, b] = flows.map(Flow::count);
        if order.tiles_of_b(a) != Some(b) {
            let TileOrder { b_first, a_for_each_b } = order;
            return Err(ArrayError::TileOrder { tile: self.tile, a, b, b_first, a_for_each_b });
        }
        for Share { operand, tiles: share, position } in order.shares(tiles, flows.map(|flow| flow.cut.1)) {
            let flow = flows[operand];
            // Words behind the last tile are sent, too, and then found to be too many.
            let end = if share.end == tiles[operand] { u64::MAX } else { flow.words_of(share.end) };
            for region in flow.cut(flow.words_of(share.start)..end) {
                dispatch.transfer_at(self.operands[operand], &region, Some(position))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
