//! Chains of descriptors without an end, which the configuration starts.
//!
//! Other channels get their tasks from each dispatch. A chain costs a dispatch nothing, and it keeps its place from one to the next: it
//! stands in front of the first descriptor again only if whole turns of it have passed ([`balance`](super::balance)).

use super::descriptor::{self, Link, Part};
use super::error::ArrayError;
use super::tile::Channel;
use aie_hal::format::register::TileKind;
use std::ops::Range;

/// An endless chain of one channel.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub channel: Channel,
    /// What it goes through, in turn.
    pub parts: Vec<Part>,
    /// The first descriptor; the others follow it.
    pub first: u8,
    /// Offset and words of each.
    pub descriptors: Vec<(u32, Vec<u32>)>,
    /// The id of the packet that each of them sends, where others send to the same end.
    pub packet: Option<u8>,
}

impl Chain {
    /// A chain with descriptors of a pool, behind those that are `used`.
    pub fn new(
        kind: TileKind,
        dimensions: usize,
        (channel, packet): (Channel, Option<u8>),
        parts: &[Part],
        (pool, used): (Range<u8>, usize),
    ) -> Result<Self, ArrayError> {
        if parts.is_empty() || !parts.iter().all(|part| part.acquire && part.release && part.advance) {
            return Err(ArrayError::Part(channel));
        }
        parts.iter().try_for_each(|part| part.ring.check())?;
        let (limit, rounds) = (pool.len(), descriptor::round(parts));
        let needed = usize::try_from(rounds).unwrap_or(usize::MAX).saturating_mul(parts.len());
        let free = limit - used;
        if needed > free {
            return Err(ArrayError::Descriptors { channel, needed, free, limit });
        }
        let first = pool.start + used as u8;
        let runs = (0..rounds).flat_map(|round| parts.iter().map(move |part| (round, part)));
        let encoded = runs.zip(first..).map(|((round, part), number)| {
            let is_last = usize::from(number - first) + 1 == needed;
            let next = Some(if is_last { first } else { number + 1 });
            let link = Link { channel, next, slot: round % u64::from(part.ring.depth), packet };
            descriptor::encode(kind, dimensions, number, &Part { advance: false, ..part.clone() }, &link)
        });
        let descriptors = encoded.collect::<Result<_, _>>()?;
        Ok(Self { channel, parts: parts.to_vec(), first, descriptors, packet })
    }

    /// Buffers of each part in a turn.
    pub fn rounds(&self) -> u64 {
        (self.descriptors.len() / self.parts.len()) as u64
    }

    /// Words of a turn.
    pub fn turn(&self) -> u64 {
        self.rounds() * self.parts.iter().map(Part::words).sum::<u64>()
    }
}

#[cfg(test)]
mod tests;
