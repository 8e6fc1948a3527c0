//! A core of elements whose channels never stop: its operands come over one of them in small blocks, and so leaves the result.
//!
//! The configuration starts both chains ([`ArrayProgram::chain`]), so that a dispatch writes parameters and has the shim move words, nothing
//! else. Blocks know nothing of tiles: the program copies what arrives to where the tile's place is ([`Elements::A`], [`Elements::B`]), and
//! sends the result in the same way. So it does not matter how long tiles are, but for whole turns of the chains
//! ([`Elements::TURN_WORDS`]): behind an operand's tile its first word follows until a turn is full, and the program does the same behind
//! a tile of the result, whose first word is then written again and again in its place.
//!
//! The program waits for the first block, by which its parameters are there. It takes all tiles of a dispatch before it hands over the last
//! block of its result.

use super::{Elements, ElementsColumn, ElementsCore, Flow, Place, Way};
use crate::array::descriptor::Part;
use crate::array::dispatch::Dispatch;
use crate::array::error::ArrayError;
use crate::array::order::{Share, TileOrder};
use crate::array::program::ArrayProgram;
use crate::array::region::{Dimension, Region};
use crate::array::ring::{OWN_LOCKS, OWN_MEMORY};
use crate::array::tile::{Channel, Source, Tile};
use std::ops::Range;

/// Blocks of a turn.
const DEPTH: u8 = 2;
/// Where the blocks of the operands are, behind which are those of the result: at the end of the core's memory.
const BLOCKS_OFFSET: u32 = 0x1_0000 - 2 * DEPTH as u32 * Elements::BLOCK_BYTES;

const fn place(index: u32) -> Place {
    let lock = OWN_LOCKS + 2 * index as u8;
    let address = OWN_MEMORY + BLOCKS_OFFSET + index * DEPTH as u32 * Elements::BLOCK_BYTES;
    Place { address, empty: lock, full: lock + 1 }
}

impl Elements {
    /// Bytes of a block of a core with chains: a vector.
    pub const BLOCK_BYTES: u32 = 64;
    /// Words of a turn of its chains: two blocks, which follow each other. A tile is sent as whole turns.
    pub const TURN_WORDS: u32 = DEPTH as u32 * Self::BLOCK_BYTES / 4;
    /// Memory of its program that it only reads, as it does its parameters: offset and bytes.
    pub const TABLE: (u32, u32) = (0xED40, 0x1000);
    /// Where its program finds blocks of operands in turn.
    pub const ARRIVING: Place = place(0);
    /// Where it puts blocks of the result in turn.
    pub const LEAVING: Place = place(1);
}

impl ElementsCore {
    /// Gives a tile the program, its parameters and chains. The streams to [`ElementsCore::arrives`] and from [`ElementsCore::leaves`] are
    /// the array's affair, and are there already if the latter shares its end.
    pub(in crate::array) fn chained(
        array: &mut ArrayProgram,
        tile: Tile,
        program: &[u8],
        data: &[(u32, Vec<u8>)],
        operands: Source,
        result: Channel,
    ) -> Result<Self, ArrayError> {
        array.core(tile, program)?;
        array.reserve(tile, 0, Elements::PARAMETERS_OFFSET + 4 * Elements::PARAMETER_WORDS)?;
        array.keep(tile, Elements::PARAMETERS_OFFSET, 4 * Elements::PARAMETER_WORDS)?;
        array.keep(tile, Elements::TABLE.0, Elements::TABLE.1)?;
        for (offset, bytes) in data {
            array.data(tile, *offset, bytes)?;
        }
        for (place, channel) in [(Elements::ARRIVING, Self::arrives(tile)), (Elements::LEAVING, Self::leaves(tile))] {
            let ring = array.ring(tile, Some(place.address - OWN_MEMORY), Elements::BLOCK_BYTES, DEPTH)?;
            array.chain(channel, &[Part::linear(ring, u64::from(Elements::BLOCK_BYTES) / 4)])?;
        }
        Ok(Self { tile, result, way: Way::Chains(operands) })
    }

    /// Where operands arrive.
    pub(in crate::array) const fn arrives(tile: Tile) -> Channel {
        Channel::receive(tile, 0)
    }

    /// Where the result leaves.
    pub(in crate::array) const fn leaves(tile: Tile) -> Channel {
        Channel::send(tile, 0)
    }

    /// Sends tiles of the operands in the order in which the program takes them.
    pub(super) fn add_to_chains(
        &self,
        dispatch: &mut Dispatch<'_>,
        work: &ElementsColumn,
        source: Source,
    ) -> Result<(), ArrayError> {
        let nothing = Flow::default();
        let flows = [work.a.as_ref(), work.b.as_ref()].map(|flow| flow.unwrap_or(&nothing));
        let tiles @ [a, b] = flows.map(Flow::count);
        let wrong = || {
            let TileOrder { b_first, a_for_each_b } = work.order;
            ArrayError::TileOrder { tile: self.tile, a, b, b_first, a_for_each_b }
        };
        let shares = work.order.shares(tiles).ok_or_else(wrong)?;
        let (arrives, leaves) = (Self::arrives(self.tile), Self::leaves(self.tile));
        for flow in flows {
            flow.check(source, arrives)?;
        }
        work.result.check(leaves.into(), self.result)?;
        for Share { operand, tiles, position } in shares {
            let flow = flows[operand];
            let together = flow.turns(tiles.clone(), Region::again);
            if operand == 1 || matches!(&together[..], [one] if one.tasks()? == 1) {
                for region in together {
                    dispatch.transfer_at(source, &region, Some(position))?;
                }
                continue;
            }
            // None is waited for that needs the result of a tile before it, unless that is on its way.
            for tile in tiles {
                for region in flow.turns(tile..tile + 1, Region::again) {
                    dispatch.transfer_at(source, &region, Some(tile as f64 / a as f64))?;
                }
            }
        }
        let results = work.result.turns(0..work.result.count(), Region::again_first);
        for region in &results {
            dispatch.transfer(self.result, region)?;
        }
        dispatch.sends(leaves, results.iter().map(Region::words).sum());
        if !work.parameters.is_empty() {
            let (value, max) = (work.parameters.len() as u64, Elements::PARAMETER_WORDS.into());
            if value > max {
                return Err(ArrayError::Range { what: "the number of parameters", value, min: 0, max });
            }
            dispatch.write(self.tile, Elements::PARAMETERS_OFFSET, &work.parameters)?;
        }
        Ok(())
    }
}

impl Flow {
    fn count(&self) -> u64 {
        self.tiles.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Whether it has as many words as its tiles.
    fn check(&self, from: Source, to: Channel) -> Result<(), ArrayError> {
        let (sent, received) = (self.regions.iter().map(Region::words).sum(), self.words_of(self.count()));
        if sent == received { Ok(()) } else { Err(ArrayError::Unbalanced { from, sent, to, received }) }
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

    /// Tiles as whole turns: what they lack is filled up `with` something, from the regions of a tile and the words that are missing.
    fn turns(&self, tiles: Range<u64>, with: fn(Vec<Region>, u64) -> Vec<Region>) -> Vec<Region> {
        let turn = u64::from(Elements::TURN_WORDS);
        if self.tiles.iter().all(|(words, _)| words.is_multiple_of(turn)) {
            return self.cut(self.words_of(tiles.start)..self.words_of(tiles.end));
        }
        let of_tile = |tile| {
            let words = self.words_of(tile)..self.words_of(tile + 1);
            let missing = (words.end - words.start).next_multiple_of(turn) - (words.end - words.start);
            with(self.cut(words), missing)
        };
        tiles.flat_map(of_tile).collect()
    }
}

impl Region {
    /// Words of a tile, and `missing` more of it: as often as they fit, or its first one.
    fn again(mut regions: Vec<Self>, missing: u64) -> Vec<Self> {
        match &mut regions[..] {
            [one] if missing.is_multiple_of(one.words()) => {
                one.dimensions.push(Dimension::new(1 + missing / one.words(), 0));
                regions
            }
            _ => Self::again_first(regions, missing),
        }
    }

    /// Words of a tile, and its first one `missing` times.
    fn again_first(mut regions: Vec<Self>, missing: u64) -> Vec<Self> {
        let again = |first: &Self| Self { dimensions: vec![Dimension::new(missing, 0)], ..first.clone() };
        let again = regions.first().filter(|_| missing > 0).map(again);
        regions.extend(again);
        regions
    }
}
