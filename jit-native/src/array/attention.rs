//! The part of attention: a core with keys on one channel, what else there is on the other, and results back.
//!
//! ```text
//!        +--------------+
//!        |  core        |      keys: S2MM 0     queries, mask, values: S2MM 1     results: MM2S 0
//!        +--^--^--+-----+
//!           |  |  |            passes through
//!        +--+--+--v-----+
//!   row 0|  K  V  result|
//!        +--------------+
//! ```
//!
//! In the design of [rings](super::Rings) it is in the uppermost row, and shares the channels of the shims. The columns do not know of each other:
//! heads are dealt over them. Channels of the core go through [`Part`]s that a dispatch says, and so
//! rows of keys and values are put in blocks as they arrive. Each dispatch divides the core's memory behind its parameters anew; what is
//! configured of its rings are their locks and numbers of buffers, so that a dispatch that keeps these sets none.

use super::configured::Configured;
use super::descriptor::Part;
use super::dispatch::Dispatch;
use super::error::ArrayError;
use super::program::ArrayProgram;
use super::region::Region;
use super::ring::Ring;
use super::tile::{Channel, Source, Tile};
use std::sync::Arc;

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
    /// What the core's channel goes through, and how often, one after the other: tiles last. A phase has four tasks of up to 256 runs.
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
    /// Where keys, and queries, mask and values come from.
    operands: [Source; 2],
    /// Where the result goes to.
    result: Channel,
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

    /// Puts a program that has `words` of parameters at the beginning of its memory on a core: `operands` are where keys, and all else,
    /// come from, `result` is the shim's channel that receives. The streams are the array's affair: to [`AttentionCore::arrives`] and
    /// from [`AttentionCore::leaves`].
    ///
    /// # Errors
    /// [`ArrayError`]: there is no such core, it is used already, or the program does not fit.
    pub fn place(
        array: &mut ArrayProgram,
        tile: Tile,
        program: &[u8],
        words: u32,
        operands: [Source; 2],
        result: Channel,
    ) -> Result<Self, ArrayError> {
        array.core(tile, program)?;
        array.parameters(tile, 0, words)?;
        array.keep(tile, 0, 4 * words)?;
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
        Ok(Self { tile, operands, result, rings })
    }

    /// Where keys, and queries, mask and values arrive.
    #[must_use]
    pub const fn arrives(tile: Tile) -> [Channel; 2] {
        [Channel::receive(tile, 0), Channel::receive(tile, 1)]
    }

    /// Where the result leaves.
    #[must_use]
    pub const fn leaves(tile: Tile) -> Channel {
        Channel::send(tile, 0)
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
        let [keys, values] = Self::arrives(self.tile);
        let inside = [(&work.keys, keys), (&work.values, values), (&work.result, Self::leaves(self.tile))];
        for (moves, channel) in inside {
            for (parts, count) in &moves.runs {
                dispatch.run(channel, parts, *count)?;
            }
        }
        for (moves, source) in [&work.keys, &work.values].into_iter().zip(self.operands) {
            for region in &moves.regions {
                dispatch.transfer(source, region)?;
            }
        }
        // Tiles of values go with those of keys, so that no task is waited for that needs one behind it.
        let words = |(parts, count): &(Vec<Part>, u32)| parts.iter().map(Part::words).sum::<u64>() * u64::from(*count);
        let front = work.values.runs.split_last().map_or(0, |(_, front)| front.iter().map(words).sum());
        dispatch.in_front(self.operands[1].channel, front);
        // A result that is started behind all operands is all that has to be waited for.
        for region in &work.result.regions {
            dispatch.transfer_at(self.result, region, Some(1.0))?;
        }
        dispatch.start(self.tile, &work.parameters)?;
        Ok(())
    }
}

/// The cores of an array that compute attention, one in each column ([`Rings::attention`](super::Rings::attention)).
#[derive(Clone, Debug)]
pub struct Attention {
    configured: Arc<Configured>,
    cores: Vec<AttentionCore>,
}

impl Attention {
    /// The part of an array that these cores are.
    pub(super) fn of(configured: Arc<Configured>, cores: Vec<AttentionCore>) -> Self {
        Self { configured, cores }
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

    /// A column with a core that has nothing else beside it.
    fn alone(array: &mut ArrayProgram, row: u8, words: u32) -> Result<AttentionCore, ArrayError> {
        let (shim, tile) = (Tile::new(0, 0), Tile::new(0, row));
        let (operands, result) = ([0, 1].map(|number| Channel::send(shim, number)), Channel::receive(shim, 0));
        let core = AttentionCore::place(array, tile, &[0; 16], words, operands.map(Source::from), result)?;
        for (from, to) in operands.into_iter().zip(AttentionCore::arrives(tile)) {
            array.stream(from, [to])?;
        }
        array.stream(AttentionCore::leaves(tile), [result])?;
        Ok(core)
    }

    /// Its program knows rings by their locks, whichever tile it is on.
    #[rstest]
    fn rings_have_their_locks(#[values("aie2", "aie2p")] name: &str, #[values(2, 5)] row: u8) {
        let mut array = ArrayProgram::new(&arch(name), 1).unwrap();
        let core = alone(&mut array, row, 128).unwrap();
        let AttentionRings { keys, values, queries, mask, result } = *core.rings();
        let locks = [keys, values, queries, mask, result].map(|ring| (ring.empty, ring.depth));
        assert_eq!(locks, [(0, 2), (2, 2), (4, 1), (6, 1), (8, 1)]);
        let again = alone(&mut array, row, 128).unwrap_err();
        assert_eq!(again.to_string(), format!("core 0 of tile (0,{row}) is in use already"));
        array.finish().unwrap();
    }

    /// What the two ends of a channel move has to be the same.
    #[test]
    fn regions_are_counted() {
        let mut array = ArrayProgram::new(&arch("aie2"), 1).unwrap();
        let core = alone(&mut array, 2, 16).unwrap();
        let configured = array.finish().unwrap();
        let ring = Ring { address: 0x400, stride: 64, capacity: 128, ..core.rings().keys };
        let keys = Moves { runs: vec![(vec![Part::linear(ring, 16)], 3)], regions: vec![Region::linear(0, 0, 128)] };
        let work = AttentionColumn { keys, ..AttentionColumn::default() };
        let mut dispatch = configured.dispatch();
        core.add(&mut dispatch, &work).unwrap();
        let error = dispatch.finish().unwrap_err().to_string();
        assert_eq!(error, "MM2S 0 of tile (0,0) sends 32 words in a phase, and S2MM 0 of tile (0,2) receives 48");
        let mut dispatch = configured.dispatch();
        let parameters = vec![0; 17];
        let error = core.add(&mut dispatch, &AttentionColumn { parameters, ..AttentionColumn::default() }).unwrap_err();
        assert_eq!(error.to_string(), "the number of parameters is 17: it has to be 0 to 16");
    }
}
