//! The design of products with few columns: chains that never end, fed by shims alone.
//!
//! ```text
//!   row 3   core 1   <- S2MM 0: weights, S2MM 1: operand      -> MM2S 0: result
//!   row 2   core 0   the same
//!
//!              MM2S 0 1                         S2MM 2 3    S2MM 1 <- MM2S 4 of the next column
//!                   | |                              | |       |
//!             weights rings 0, 1                result rings 0, 1, of the next columns
//!   row 1           ^                                | (in turn)
//!                 S2MM 0 (fills them in turn)      MM2S 4 -> S2MM 1 of the column before
//!                   |                                | in the first column
//!   row 0         MM2S 0                           S2MM 0    MM2S 1 (to the cores of all columns)
//! ```
//!
//! The configuration starts all channels of cores and mem tiles ([`ArrayProgram::chain`]), so that a dispatch consists of parameters and weights
//! for each column, and of one operand and one result for all. The words of these have to be whole turns of the chains;
//! [`Configured::dispatch`] rejects others. So each core has as many blocks of results as the others.
//!
//! An operand goes to all cores at once, each of which takes all of it before it waits for anything else. A block of results waits for those
//! that come before it in the turn, while its core waits for nothing of other cores: so columns do not wait for each other in a circle.
//!
//! A core has no go lock: it waits for the first block of its operand, and then reads its parameters, which were written before
//! the operand was started. Both cores of a column read those in the memory of core 0, which core 1 sees as that of the tile below. It has to have taken all its weights before it hands over its last result: the token of the result is what tells
//! the dispatch that its other tasks have ended. So weights may wait in their rings for a product that has not begun: in joined dispatches
//! they [run ahead](ArrayProgram::run_ahead). The operand may not, as it is what a core takes its parameters by.
//!
//! # With vectors and attention
//!
//! The rows above can have cores for what is between the products of a token, so that one configuration does all of it:
//!
//! ```text
//!   row 5   attention   <- S2MM 0: keys, S2MM 1: queries, mask, values     -> MM2S 0: result
//!   row 4   vectors     <- S2MM 0: both operands, tile by tile             -> MM2S 0: result
//! ```
//!
//! Vectors have chains ([`Elements::ARRIVING`]); attention gets its tasks from each dispatch. A shim's channels are then shared by packets
//! ([`ArrayProgram::split`], [`ArrayProgram::merge`]):
//!
//! | channel | packet | |
//! |---|---|---|
//! | MM2S 0 | 0 | weights |
//! | MM2S 0 | 1 | keys of attention |
//! | MM2S 1 | 2 | operand of products, in the first column |
//! | MM2S 1 | 3 | operands of vectors |
//! | MM2S 1 | 4 | queries, mask and values of attention |
//! | S2MM 0 | none | results of products, in the first column |
//! | S2MM 1 | merged | results of vectors and of attention |
//!
//! A channel with one user has no packets. A mem tile passes six lines upwards and four downwards: at most three go up, the third with
//! the operand of products or the results of other columns, and three down for this. Weights
//! share their channel with keys alone, so that they can be sent before what is in front of their product has ended. What is sent
//! waits for its taker, and all behind it on the same channel with it: a dispatch sends nothing that its cores do not take.

use super::attention::{Attention, AttentionCore};
use super::configured::Configured;
use super::descriptor::Part;
use super::elements::{Elements, ElementsCore};
use super::error::ArrayError;
use super::product::CoreMemory;
use super::program::ArrayProgram;
use super::region::Region;
use super::ring::Ring;
use super::tile::{Channel, Source, Tile};
use aie_hal::Arch;
use std::sync::Arc;

/// What the cores that multiply do in a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingsWork {
    /// What each column does.
    pub columns: Vec<RingsColumn>,
    /// What all cores get.
    pub operand: Vec<Region>,
    /// Blocks of results of all cores in turn: of a column core 0 and core 1, then of the next column.
    pub result: Vec<Region>,
}

/// What is one column's of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingsColumn {
    /// The first words of the parameters of both cores, in the memory of core 0.
    pub parameters: Vec<u32>,
    /// Blocks of weights for core 0 and core 1 in turn.
    pub weights: Vec<Region>,
}

/// What a core executes.
#[derive(Clone, Copy, Debug)]
pub struct CoreCode<'a> {
    /// Its machine code.
    pub program: &'a [u8],
    /// What its memory has when the first dispatch begins: offset in the core tile's memory, bytes.
    pub data: &'a [(u32, Vec<u8>)],
}

/// The design of chains with the programs of its cores.
#[derive(Clone, Debug)]
pub struct Rings {
    configured: Arc<Configured>,
    parameters: (u32, u32),
    shared: Shared,
    vectors: Option<Elements>,
    attention: Option<Attention>,
}

/// How many columns there are, and who shares their shims with the products.
#[derive(Clone, Copy, Debug)]
struct Shared {
    columns: u8,
    vectors: bool,
    attention: bool,
}

/// The column whose shim has the operand and the results of products.
const HUB: u8 = 0;
/// The channel of a mem tile by which results leave it.
const RETURNS: u8 = 4;

/// Where words of a column come from, by what they are.
#[derive(Clone, Copy)]
enum Operand {
    Weights,
    Keys,
    Products,
    Vectors,
    Queries,
}

impl Operand {
    const ALL: [Self; 5] = [Self::Weights, Self::Keys, Self::Products, Self::Vectors, Self::Queries];

    /// The shim's channel, and the id of packets where others share it.
    fn place(self) -> (u8, u8) {
        let channel = u8::from(!matches!(self, Self::Weights | Self::Keys));
        (channel, self as u8)
    }

    /// Where it goes to from the shim of a column; to none where its core is not there.
    fn ends(self, shared: Shared, column: u8) -> Vec<Channel> {
        let tile = |row| Tile::new(column, row);
        let [keys, queries] = AttentionCore::arrives(tile(Rings::ATTENTION_ROW));
        match self {
            Self::Weights => vec![Channel::receive(tile(1), 0)],
            Self::Products if column == HUB => {
                (0..shared.columns).flat_map(Rings::cores).map(|core| Channel::receive(core, 1)).collect()
            }
            Self::Vectors if shared.vectors => vec![ElementsCore::arrives(tile(Rings::VECTORS_ROW))],
            Self::Keys if shared.attention => vec![keys],
            Self::Queries if shared.attention => vec![queries],
            _ => Vec::new(),
        }
    }

    /// What brings it to a column. Only the hub's shim has the operand of products.
    fn source(self, shared: Shared, column: u8) -> Source {
        let (channel, id) = self.place();
        let users =
            Self::ALL.into_iter().filter(|other| other.place().0 == channel && !other.ends(shared, column).is_empty());
        let channel = Channel::send(Tile::new(column, 0), channel);
        if users.count() > 1 { Source::packet(channel, id) } else { channel.into() }
    }
}

impl Rings {
    /// Cores of a column that multiply.
    pub const CORES: usize = 2;

    const FIRST_ROW: u8 = 2;
    const VECTORS_ROW: u8 = 4;
    const ATTENTION_ROW: u8 = 5;

    /// The design in the first `columns` columns: a program for core 0 of each column and one for core 1, whose memory is divided as `memory`
    /// says, one on those of vectors and one, with its words of parameters, on those of attention, if there are any. The buffers of a mem tile are as large and as many for each core as the core's own.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or a program, its data or rings do not fit.
    pub fn new(
        arch: &Arch,
        columns: u8,
        (products, memory): ([CoreCode<'_>; Self::CORES], &CoreMemory),
        vectors: Option<CoreCode<'_>>,
        attention: Option<(&[u8], u32)>,
    ) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let shared = Shared { columns, vectors: vectors.is_some(), attention: attention.is_some() };
        let (mut elements, mut attending) = (Vec::new(), Vec::new());
        for column in 0..columns {
            add_products(&mut array, column, products, memory)?;
            add_results(&mut array, column, columns, memory)?;
            connect(&mut array, column, shared)?;
            if let Some(CoreCode { program, data }) = vectors {
                let tile = Tile::new(column, Self::VECTORS_ROW);
                let operands = Operand::Vectors.source(shared, column);
                elements.push(ElementsCore::chained(&mut array, tile, program, data, operands, guests_result(column))?);
            }
            if let Some((program, words)) = attention {
                let tile = Tile::new(column, Self::ATTENTION_ROW);
                let operands = [Operand::Keys, Operand::Queries].map(|operand| operand.source(shared, column));
                attending.push(AttentionCore::place(
                    &mut array,
                    tile,
                    program,
                    words,
                    operands,
                    guests_result(column),
                )?);
            }
        }
        let configured = Arc::new(array.finish()?);
        let vectors = vectors.map(|_| Elements::of(Arc::clone(&configured), elements));
        let attention = attention.map(|_| Attention::of(Arc::clone(&configured), attending));
        Ok(Self { configured, parameters: memory.parameters, shared, vectors, attention })
    }

    /// The cores of a column, from the lowest row on.
    #[must_use]
    pub fn cores(column: u8) -> [Tile; Self::CORES] {
        std::array::from_fn(|core| Tile::new(column, Self::FIRST_ROW + core as u8))
    }

    /// The configured array, with the PDI.
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The cores for vectors, if there are any: dispatches of theirs are dispatches of this array.
    #[must_use]
    pub fn vectors(&self) -> Option<&Elements> {
        self.vectors.as_ref()
    }

    /// The cores for attention, if there are any: dispatches of theirs are dispatches of this array.
    #[must_use]
    pub fn attention(&self) -> Option<&Attention> {
        self.attention.as_ref()
    }

    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.configured.grid().columns()
    }

    /// The instruction stream of a dispatch.
    ///
    /// # Errors
    /// [`ArrayError`]: there are more or fewer columns, the parameters do not fit, a region cannot be covered, or words are no whole turns
    /// of the chains ([`ArrayError::Turn`]).
    pub fn dispatch(&self, work: &RingsWork) -> Result<Vec<u8>, ArrayError> {
        let (value, columns) = (work.columns.len() as u64, u64::from(self.columns()));
        if value != columns {
            let what = "the number of columns with products";
            return Err(ArrayError::Range { what, value, min: columns, max: columns });
        }
        let mut dispatch = self.configured.dispatch();
        let mut transfer = |source, regions: &[Region]| -> Result<(), ArrayError> {
            regions.iter().try_for_each(|region| dispatch.transfer(source, region).map(drop))
        };
        transfer(Operand::Products.source(self.shared, HUB), &work.operand)?;
        for (column, of_column) in (0..).zip(&work.columns) {
            transfer(Operand::Weights.source(self.shared, column), &of_column.weights)?;
        }
        transfer(products_result().into(), &work.result)?;
        let (offset, words) = self.parameters;
        for (column, RingsColumn { parameters, .. }) in (0..).zip(&work.columns) {
            let (value, max) = (parameters.len() as u64, words.into());
            if value > max {
                return Err(ArrayError::Range { what: "the number of parameters", value, min: 0, max });
            }
            dispatch.write(Self::cores(column)[0], offset, parameters)?;
        }
        dispatch.finish()
    }
}

/// Where results of products go to.
fn products_result() -> Channel {
    Channel::receive(Tile::new(HUB, 0), 0)
}

/// Where results of vectors and of attention go to.
fn guests_result(column: u8) -> Channel {
    Channel::receive(Tile::new(column, 0), 1)
}

/// The cores of a column that multiply, and its mem tile.
fn add_products(
    array: &mut ArrayProgram,
    column: u8,
    code: [CoreCode<'_>; Rings::CORES],
    memory: &CoreMemory,
) -> Result<(), ArrayError> {
    let mem = Tile::new(column, 1);
    let cores = Rings::cores(column);
    array.keep(cores[0], memory.parameters.0, 4 * memory.parameters.1)?;
    let whole = |ring: &Ring| Part::linear(*ring, u64::from(ring.stride) / 4);
    let mut weights = Vec::new();
    for ((tile, code), number) in cores.into_iter().zip(code).zip(0..) {
        array.core(tile, code.program)?;
        array.reserve(tile, memory.parameters.0, 4 * memory.parameters.1)?;
        for (offset, bytes) in code.data {
            array.data(tile, *offset, bytes)?;
        }
        let mut ring = |tile, address, (_, stride, depth)| array.ring(tile, address, stride, depth);
        let mut of_core = |cut: super::Cut| ring(tile, Some(cut.0), cut);
        let (arriving, operand, sums) = (of_core(memory.weights)?, of_core(memory.operand)?, of_core(memory.result)?);
        let leaving = ring(mem, None, memory.weights)?;
        array.stream(Channel::send(mem, number), [Channel::receive(tile, 0)])?;
        for (channel, ring) in [
            (Channel::receive(tile, 0), arriving),
            (Channel::receive(tile, 1), operand),
            (Channel::send(tile, 0), sums),
            (Channel::send(mem, number), leaving),
        ] {
            array.chain(channel, &[whole(&ring)])?;
        }
        weights.push(whole(&leaving));
    }
    array.chain(Channel::receive(mem, 0), &weights)
}

/// What a mem tile does with results: those of its cores in turn, then those of the columns behind it, go to the column before it, and from
/// the first one to the shim.
fn add_results(array: &mut ArrayProgram, column: u8, columns: u8, memory: &CoreMemory) -> Result<(), ArrayError> {
    let mem = Tile::new(column, 1);
    let (_, stride, depth) = memory.result;
    let behind = u32::from(columns - column - 1) * Rings::CORES as u32;
    let own = (2..).zip(Rings::cores(column)).map(|(number, core)| (number, Channel::send(core, 0), stride));
    let others = (1, Channel::send(Tile::new(column + 1, 1), RETURNS), stride * behind);
    let mut parts = Vec::new();
    for (number, from, bytes) in own.chain((behind > 0).then_some(others)) {
        let (arrives, ring) = (Channel::receive(mem, number), array.ring(mem, None, bytes, depth)?);
        let part = Part::linear(ring, u64::from(bytes) / 4);
        array.stream(from, [arrives])?;
        array.chain(arrives, std::slice::from_ref(&part))?;
        parts.push(part);
    }
    if column == HUB {
        array.stream(Channel::send(mem, RETURNS), [products_result()])?;
        array.tokens(products_result())?;
    }
    array.chain(Channel::send(mem, RETURNS), &parts)
}

/// What leads from the shim of a column to its tiles, and back to it.
fn connect(array: &mut ArrayProgram, column: u8, shared: Shared) -> Result<(), ArrayError> {
    let (shim, tile) = (Tile::new(column, 0), |row| Tile::new(column, row));
    for number in 0..2 {
        let of_channel = Operand::ALL.into_iter().map(|operand| (operand.place(), operand.ends(shared, column)));
        let users: Vec<(u8, Vec<Channel>)> = of_channel
            .filter(|((channel, _), ends)| *channel == number && !ends.is_empty())
            .map(|((_, id), ends)| (id, ends))
            .collect();
        match &users[..] {
            [] => {}
            [(_, ends)] => array.stream(Channel::send(shim, number), ends.iter().copied())?,
            users => {
                let users: Vec<(u8, &[Channel])> = users.iter().map(|(id, ends)| (*id, &ends[..])).collect();
                array.split(Channel::send(shim, number), &users)?;
            }
        }
    }
    array.run_ahead(Operand::Weights.source(shared, column), products_result())?;
    let vectors = shared.vectors.then(|| ElementsCore::leaves(tile(Rings::VECTORS_ROW)));
    let attention = shared.attention.then(|| AttentionCore::leaves(tile(Rings::ATTENTION_ROW)));
    let guests: Vec<Channel> = vectors.into_iter().chain(attention).collect();
    if guests.is_empty() {
        return Ok(());
    }
    array.merge(&guests, guests_result(column))?;
    array.tokens(guests_result(column))?;
    // Operands in more tasks than the channel queues are waited for.
    array.tokens(Channel::send(shim, 1))
}

#[cfg(test)]
mod tests;
