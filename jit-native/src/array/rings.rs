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
//! columns do not know of each other, and rows 4 and 5 are not used.
//!
//! A core has no go lock: it waits for the first block of its operand, and then reads its parameters, which were written before
//! the operand was started. It has to have taken all its weights before it hands over its last result: the token of the result is what tells
//! the dispatch that its other tasks have ended.

use super::configured::Configured;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::error::ArrayError;
use super::product::CoreMemory;
use super::program::ArrayProgram;
use super::region::Region;
use super::ring::Ring;
use super::tile::{Channel, Tile};
use aie_hal::Arch;

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

/// The design of chains with the program of its cores.
#[derive(Clone, Debug)]
pub struct Rings {
    configured: Configured,
    parameters: (u32, u32),
}

impl Rings {
    /// Cores of a column.
    pub const CORES: usize = 2;

    const FIRST_ROW: u8 = 2;

    /// The design in the first `columns` columns, the same program on all cores, with data (offset in the core tile's memory, bytes)
    /// that is there when the first dispatch begins. The buffers of a mem tile are as large and as many for each core as the core's own.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or program, data or rings do not fit.
    pub fn new(
        arch: &Arch,
        columns: u8,
        program: &[u8],
        data: &[(u32, Vec<u8>)],
        core: &CoreMemory,
    ) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        (0..columns).try_for_each(|column| add_column(&mut array, column, program, data, core))?;
        Ok(Self { configured: array.finish()?, parameters: core.parameters })
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
        let shim = Tile::new(column, 0);
        let flows = [
            (Channel::send(shim, 1), &work.operand),
            (Channel::send(shim, 0), &work.weights),
            (Channel::receive(shim, 0), &work.result),
        ];
        for (channel, regions) in flows {
            for region in regions {
                dispatch.transfer(channel, region)?;
            }
        }
        Ok(())
    }
}

fn add_column(
    array: &mut ArrayProgram,
    column: u8,
    program: &[u8],
    data: &[(u32, Vec<u8>)],
    memory: &CoreMemory,
) -> Result<(), ArrayError> {
    let (shim, mem) = (Tile::new(column, 0), Tile::new(column, 1));
    let cores = Rings::cores(column);
    let whole = |ring: &Ring| Part::linear(*ring, u64::from(ring.stride) / 4);
    let (mut weights, mut results) = (Vec::new(), Vec::new());
    for (tile, number) in cores.into_iter().zip(0..) {
        array.core(tile, program)?;
        array.reserve(tile, memory.parameters.0, 4 * memory.parameters.1)?;
        for (offset, bytes) in data {
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
    array.stream(Channel::send(shim, 0), [Channel::receive(mem, 0)])?;
    array.stream(Channel::send(shim, 1), cores.map(|core| Channel::receive(core, 1)))?;
    array.stream(Channel::send(mem, 4), [Channel::receive(shim, 0)])?;
    array.chain(Channel::receive(mem, 0), &weights)?;
    array.chain(Channel::send(mem, 4), &results)?;
    array.tokens(Channel::receive(shim, 0))
}
