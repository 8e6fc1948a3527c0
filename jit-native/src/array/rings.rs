//! The design of products with few columns: chains that never end, fed by shims alone.
//!
//! ```text
//!   row 3   core 1   <- S2MM 0: weights, S2MM 1: operand      -> MM2S 0: result
//!   row 2   core 0   the same
//!
//!              MM2S 0 1                         S2MM 2 3
//!                   | |                              | |
//!             weights rings 0, 1                result rings 0, 1
//!   row 1           ^                                | (in turn)
//!                 S2MM 0 (fills them in turn)      MM2S 4
//!                   |                                |
//!   row 0         MM2S 0    MM2S 1 (to both cores)   S2MM 0
//! ```
//!
//! The configuration starts all channels of cores and mem tiles ([`ArrayProgram::chain`]), so that a dispatch consists of parameters and three
//! tasks of the shim for each column. The words of these have to be whole turns of the chains; [`Configured::dispatch`] rejects others. The
//! columns do not know of each other.
//!
//! A core has no go lock: it waits for the first block of its operand, and then reads its parameters, which were written before
//! the operand was started. It has to have taken all its weights before it hands over its last result: the token of the result is what tells
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
//! | MM2S 1 | 2 | operand of products |
//! | MM2S 1 | 3 | operands of vectors |
//! | MM2S 1 | 4 | queries, mask and values of attention |
//! | S2MM 0 | none | results of products |
//! | S2MM 1 | merged | results of vectors and of attention |
//!
//! A channel with one user has no packets. A mem tile passes six lines upwards and four downwards: two go up and three down for this. Weights
//! share their channel with keys alone, so that they can be sent before what is in front of their product has ended. What is sent
//! waits for its taker, and all behind it on the same channel with it: a dispatch sends nothing that its cores do not take.

use super::attention::{Attention, AttentionCore};
use super::configured::Configured;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::elements::{Elements, ElementsCore};
use super::error::ArrayError;
use super::product::CoreMemory;
use super::program::ArrayProgram;
use super::region::Region;
use super::ring::Ring;
use super::tile::{Channel, Source, Tile};
use aie_hal::Arch;
use std::sync::Arc;

/// What one column does in a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingsColumn {
    /// The first words of the parameters of both cores.
    pub parameters: Vec<u32>,
    /// Blocks of weights for core 0 and core 1 in turn.
    pub weights: Vec<Region>,
    /// What both cores get.
    pub operand: Vec<Region>,
    /// Blocks of results of core 0 and core 1 in turn.
    pub result: Vec<Region>,
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

/// Who shares a column's shim with the products.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    vectors: bool,
    attention: bool,
}

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

    /// Where it goes to in a column; to none where its core is not there.
    fn ends(self, shared: Shared, column: u8) -> Vec<Channel> {
        let tile = |row| Tile::new(column, row);
        let [keys, queries] = AttentionCore::arrives(tile(Rings::ATTENTION_ROW));
        match self {
            Self::Weights => vec![Channel::receive(tile(1), 0)],
            Self::Products => Rings::cores(column).map(|core| Channel::receive(core, 1)).to_vec(),
            Self::Vectors if shared.vectors => vec![ElementsCore::arrives(tile(Rings::VECTORS_ROW))],
            Self::Keys if shared.attention => vec![keys],
            Self::Queries if shared.attention => vec![queries],
            _ => Vec::new(),
        }
    }

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

    /// The design in the first `columns` columns: the same program on all cores that multiply, whose memory is divided as `memory` says, one on
    /// those of vectors and one, with its words of parameters, on those of attention, if there are any. The buffers of a mem tile are as large and as many for each core as the core's own.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or a program, its data or rings do not fit.
    pub fn new(
        arch: &Arch,
        columns: u8,
        (products, memory): (CoreCode<'_>, &CoreMemory),
        vectors: Option<CoreCode<'_>>,
        attention: Option<(&[u8], u32)>,
    ) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let shared = Shared { vectors: vectors.is_some(), attention: attention.is_some() };
        let (mut elements, mut attending) = (Vec::new(), Vec::new());
        for column in 0..columns {
            add_products(&mut array, column, products, memory)?;
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

    /// The instruction stream of a dispatch in which the first columns do what `columns` says, the others nothing.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, the parameters do not fit, a region cannot be covered, or words are no whole turns
    /// of the chains ([`ArrayError::Turn`]).
    pub fn dispatch(&self, columns: &[RingsColumn]) -> Result<Vec<u8>, ArrayError> {
        let mut dispatch = self.configured.dispatch();
        for (column, work) in (0..=u8::MAX).zip(columns) {
            self.add(&mut dispatch, column, work)?;
        }
        dispatch.finish()
    }

    fn add(&self, dispatch: &mut Dispatch<'_>, column: u8, work: &RingsColumn) -> Result<(), ArrayError> {
        let (offset, words) = self.parameters;
        let (value, max) = (work.parameters.len() as u64, words.into());
        if value > max {
            return Err(ArrayError::Range { what: "the number of parameters", value, min: 0, max });
        }
        for core in Self::cores(column) {
            dispatch.write(core, offset, &work.parameters)?;
        }
        let flows = [
            (Operand::Products.source(self.shared, column), &work.operand),
            (Operand::Weights.source(self.shared, column), &work.weights),
            (Channel::receive(Tile::new(column, 0), 0).into(), &work.result),
        ];
        for (source, regions) in flows {
            for region in regions {
                dispatch.transfer(source, region)?;
            }
        }
        Ok(())
    }
}

/// Where results of vectors and of attention go to.
fn guests_result(column: u8) -> Channel {
    Channel::receive(Tile::new(column, 0), 1)
}

/// The cores of a column that multiply, and its mem tile.
fn add_products(
    array: &mut ArrayProgram,
    column: u8,
    code: CoreCode<'_>,
    memory: &CoreMemory,
) -> Result<(), ArrayError> {
    let mem = Tile::new(column, 1);
    let cores = Rings::cores(column);
    let whole = |ring: &Ring| Part::linear(*ring, u64::from(ring.stride) / 4);
    let (mut weights, mut results) = (Vec::new(), Vec::new());
    for (tile, number) in cores.into_iter().zip(0..) {
        array.core(tile, code.program)?;
        array.reserve(tile, memory.parameters.0, 4 * memory.parameters.1)?;
        array.keep(tile, memory.parameters.0, 4 * memory.parameters.1)?;
        for (offset, bytes) in code.data {
            array.data(tile, *offset, bytes)?;
        }
        let mut ring = |tile, address, (_, stride, depth)| array.ring(tile, address, stride, depth);
        let mut of_core = |cut: super::Cut| ring(tile, Some(cut.0), cut);
        let (arriving, operand, sums) = (of_core(memory.weights)?, of_core(memory.operand)?, of_core(memory.result)?);
        let (leaving, returning) = (ring(mem, None, memory.weights)?, ring(mem, None, memory.result)?);
        // Weights to the core, and its results back.
        array.stream(Channel::send(mem, number), [Channel::receive(tile, 0)])?;
        array.stream(Channel::send(tile, 0), [Channel::receive(mem, 2 + number)])?;
        for (channel, ring) in [
            (Channel::receive(tile, 0), arriving),
            (Channel::receive(tile, 1), operand),
            (Channel::send(tile, 0), sums),
            (Channel::send(mem, number), leaving),
            (Channel::receive(mem, 2 + number), returning),
        ] {
            array.chain(channel, &[whole(&ring)])?;
        }
        weights.push(whole(&leaving));
        results.push(whole(&returning));
    }
    array.chain(Channel::receive(mem, 0), &weights)?;
    array.chain(Channel::send(mem, 4), &results)
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
            [(_, ends)] => array.stream(Channel::send(shim, number), ends.iter().copied())?,
            users => {
                let users: Vec<(u8, &[Channel])> = users.iter().map(|(id, ends)| (*id, &ends[..])).collect();
                array.split(Channel::send(shim, number), &users)?;
            }
        }
    }
    array.run_ahead(Operand::Weights.source(shared, column))?;
    array.stream(Channel::send(tile(1), 4), [Channel::receive(shim, 0)])?;
    array.tokens(Channel::receive(shim, 0))?;
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
