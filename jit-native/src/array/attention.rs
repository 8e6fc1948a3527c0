//! The part of attention: a core with keys on one channel, what else there is on the other, and results back.
//!
//! ```text
//!                column 0          column 1          ...
//!            +--------------+  +--------------+
//!   row 2    |  core        |  |  core        |      keys: S2MM 0     queries, mask, values: S2MM 1     results: MM2S 0
//!            +--^--^--+-----+  +--^--^--+-----+
//!   row 1       |  |  |           |  |  |            passes through
//!            +--+--+--v-----+  +--+--+--v-----+
//!   row 0    |  K  V  result|  |  K  V  result|      MM2S 0, MM2S 1   S2MM 0
//!            +--------------+  +--------------+
//! ```
//!
//! The columns do not know of each other: heads are dealt over them. Channels of the core go through [`Part`]s that a dispatch says, and so
//! rows of keys and values are put in blocks as they arrive. Each dispatch divides the core's memory behind its parameters anew; what is
//! configured of its rings are their locks and numbers of buffers, so that a dispatch that keeps these sets none.

use super::configured::Configured;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::error::ArrayError;
use super::program::ArrayProgram;
use super::region::Region;
use super::ring::Ring;
use super::tile::{Channel, Tile};
use aie_hal::Arch;
use aie_hal::format::dma_channel::Direction;

/// The rings of the core: their locks. Where their memory is and how it is cut dispatches say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionRings {
    /// Two buffers.
    pub keys: Ring,
    /// Two buffers.
    pub values: Ring,
    /// One buffer.
    pub queries: Ring,
    /// One buffer.
    pub mask: Ring,
    /// One buffer.
    pub result: Ring,
}

/// What moves through a channel of the core in a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// What the core's channel goes through, and how often, one after the other. A phase has four tasks of up to 256 runs.
    pub runs: Vec<(Vec<Part>, u32)>,
    /// What of the arguments that is, in the same order; together as many words.
    pub regions: Vec<Region>,
}

/// What one column does in a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttentionColumn {
    /// The first words of the core's parameters.
    pub parameters: Vec<u32>,
    /// Keys.
    pub keys: Moves,
    /// All that the other channel takes: queries, mask, values.
    pub values: Moves,
    /// Results.
    pub result: Moves,
}

/// A core that computes attention, wherever its words come from.
#[derive(Clone, Copy, Debug)]
pub struct AttentionCore {
    tile: Tile,
    /// Keys, values, result: the shim's channel and the core's.
    ends: [(Channel, Channel); 3],
    rings: AttentionRings,
}

impl AttentionCore {
    /// Locks of the rings, as their program knows them: that of empty buffers, behind which is that of full ones.
    pub const KEYS_LOCK: u8 = 0;
    /// See [`AttentionCore::KEYS_LOCK`].
    pub const VALUES_LOCK: u8 = 2;
    /// See [`AttentionCore::KEYS_LOCK`].
    pub const QUERIES_LOCK: u8 = 4;
    /// See [`AttentionCore::KEYS_LOCK`].
    pub const MASK_LOCK: u8 = 6;
    /// See [`AttentionCore::KEYS_LOCK`].
    pub const RESULT_LOCK: u8 = 8;

    /// Puts a program that has `words` of parameters at the beginning of its memory on a core: `keys` and `values` are the shim's channels
    /// that send to it, `result` the one that receives. The streams between them and the core are added.
    ///
    /// # Errors
    /// [`ArrayError`]: there is no such core, it is used already, or the program does not fit.
    pub fn place(
        array: &mut ArrayProgram,
        tile: Tile,
        program: &[u8],
        words: u32,
        [keys, values, result]: [Channel; 3],
    ) -> Result<Self, ArrayError> {
        array.core(tile, program)?;
        array.parameters(tile, 0, words)?;
        let mut ring = |number: u32, first, depth| {
            let ring = Ring {
                tile,
                address: 4 * words + 64 * number,
                stride: 64 / u32::from(depth),
                depth,
                capacity: 64,
                empty: array.lock(tile, Some(first), depth)?,
                full: array.lock(tile, Some(first + 1), 0)?,
            };
            Ok::<_, ArrayError>(ring)
        };
        let rings = AttentionRings {
            keys: ring(0, Self::KEYS_LOCK, 2)?,
            values: ring(1, Self::VALUES_LOCK, 2)?,
            queries: ring(2, Self::QUERIES_LOCK, 1)?,
            mask: ring(3, Self::MASK_LOCK, 1)?,
            result: ring(4, Self::RESULT_LOCK, 1)?,
        };
        let core = [Channel::receive(tile, 0), Channel::receive(tile, 1), Channel::send(tile, 0)];
        array.stream(keys, [core[0]])?;
        array.stream(values, [core[1]])?;
        array.stream(core[2], [result])?;
        array.tokens(result)?;
        Ok(Self { tile, ends: [(keys, core[0]), (values, core[1]), (result, core[2])], rings })
    }

    /// The core's rings.
    #[must_use]
    pub fn rings(&self) -> &AttentionRings {
        &self.rings
    }

    /// Adds what the core does in a phase of a dispatch, and starts it.
    ///
    /// # Errors
    /// [`ArrayError`]: rings do not fit, runs and regions differ in their words, or more tasks than a channel queues are needed.
    pub fn add(&self, dispatch: &mut Dispatch<'_>, work: &AttentionColumn) -> Result<(), ArrayError> {
        for (moves, (outside, inside)) in [&work.keys, &work.values, &work.result].into_iter().zip(self.ends) {
            for (parts, count) in &moves.runs {
                dispatch.run(inside, parts, *count)?;
            }
            // A result that is started behind all operands is all that has to be waited for.
            let position = (outside.direction == Direction::StreamToMemory).then_some(1.0);
            for region in &moves.regions {
                dispatch.transfer_at(outside, region, position)?;
            }
        }
        dispatch.start(self.tile, &work.parameters)?;
        Ok(())
    }
}

/// An array of nothing else: one core in each column.
#[derive(Clone, Debug)]
pub struct Attention {
    configured: Configured,
    cores: Vec<AttentionCore>,
}

impl Attention {
    const ROW: u8 = 2;

    /// The first `columns` columns with the same program, which has `words` of parameters.
    ///
    /// # Errors
    /// [`ArrayError`]: there are not as many columns, or the program does not fit.
    pub fn new(arch: &Arch, columns: u8, program: &[u8], words: u32) -> Result<Self, ArrayError> {
        let mut array = ArrayProgram::new(arch, columns)?;
        let place = |column| {
            let shim = Tile::new(column, 0);
            let ends = [Channel::send(shim, 0), Channel::send(shim, 1), Channel::receive(shim, 0)];
            AttentionCore::place(&mut array, Tile::new(column, Self::ROW), program, words, ends)
        };
        let cores = (0..columns).map(place).collect::<Result<_, _>>()?;
        Ok(Self { configured: array.finish()?, cores })
    }

    /// The configured array, with the PDI.
    #[must_use]
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The cores, column by column.
    #[must_use]
    pub fn cores(&self) -> &[AttentionCore] {
        &self.cores
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::arch;
    use super::*;
    use rstest::rstest;

    /// Its program knows rings by their locks, whichever tile it is on.
    #[rstest]
    fn rings_have_their_locks(#[values("aie2", "aie2p")] name: &str, #[values(2, 5)] row: u8) {
        let mut array = ArrayProgram::new(&arch(name), 1).unwrap();
        let (shim, tile) = (Tile::new(0, 0), Tile::new(0, row));
        let ends = [Channel::send(shim, 0), Channel::send(shim, 1), Channel::receive(shim, 0)];
        let core = AttentionCore::place(&mut array, tile, &[0; 16], 128, ends).unwrap();
        let AttentionRings { keys, values, queries, mask, result } = *core.rings();
        let locks = [keys, values, queries, mask, result].map(|ring| (ring.empty, ring.depth));
        assert_eq!(locks, [(0, 2), (2, 2), (4, 1), (6, 1), (8, 1)]);
        let again = AttentionCore::place(&mut array, tile, &[0; 16], 128, ends).unwrap_err();
        assert_eq!(again.to_string(), format!("core 0 of tile (0,{row}) is in use already"));
        array.finish().unwrap();
    }

    /// What the two ends of a channel move has to be the same.
    #[test]
    fn regions_are_counted() {
        let attention = Attention::new(&arch("aie2"), 1, &[0; 16], 16).unwrap();
        let core = attention.cores()[0];
        let ring = Ring { address: 0x400, stride: 64, capacity: 128, ..core.rings().keys };
        let keys = Moves { runs: vec![(vec![Part::linear(ring, 16)], 3)], regions: vec![Region::linear(0, 0, 128)] };
        let work = AttentionColumn { keys, ..AttentionColumn::default() };
        let mut dispatch = attention.configured().dispatch();
        core.add(&mut dispatch, &work).unwrap();
        let error = dispatch.finish().unwrap_err().to_string();
        assert_eq!(error, "MM2S 0 of tile (0,0) sends 32 words in a phase, and S2MM 0 of tile (0,2) receives 48");
        let mut dispatch = attention.configured().dispatch();
        let parameters = vec![0; 17];
        let error = core.add(&mut dispatch, &AttentionColumn { parameters, ..AttentionColumn::default() }).unwrap_err();
        assert_eq!(error.to_string(), "the number of parameters is 17: it has to be 0 to 16");
    }
}
