//! A finished array program: its PDI, and what dispatches have to know of it.

use super::chain::Chain;
use super::contents::Parameters;
use super::dispatch;
use super::error::ArrayError;
use super::grid::Grid;
use super::ring::Ring;
use super::route::{Circuit, Stream};
use super::tile::{Channel, End, Key, Source, Tile};
use aie_hal::KernelArtifact;
use aie_hal::artifact::ArtifactError;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{AheadChannel, KeptMemory};
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// An array program with everything placed and routed.
#[derive(Clone, Debug)]
pub struct Configured {
    pub(super) grid: Grid,
    pub(super) pdi: Vec<u8>,
    pub(super) streams: Vec<Stream>,
    pub(super) routes: Vec<Vec<Circuit>>,
    pub(super) parameters: BTreeMap<Tile, Parameters>,
    /// The values that locks start with, and that they have between dispatches.
    pub(super) locks: BTreeMap<(Tile, u8), u8>,
    /// What goes on from dispatch to dispatch.
    pub(super) chains: Vec<Chain>,
    /// Channels of shims whose tokens find their way without a word of the dispatch.
    pub(super) controllers: BTreeSet<Key>,
    /// Channels of shims whose tasks may run ahead.
    pub(super) ahead: Vec<AheadChannel>,
    /// Memory that nothing but streams writes.
    pub(super) kept: Vec<KeptMemory>,
}

impl Configured {
    /// The PDI. The same program gives the same bytes.
    #[must_use]
    pub fn pdi(&self) -> &[u8] {
        &self.pdi
    }

    /// The artifact of a kernel with this PDI. `stream` is that of a dispatch of it.
    ///
    /// # Errors
    /// When PDI and stream do not make one: a name that no file can have, or a stream that is not in its format.
    pub fn artifact(&self, name: impl Into<Arc<str>>, stream: Vec<u8>) -> Result<KernelArtifact, ArtifactError> {
        let arch = self.grid.arch();
        let artifact = KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, self.pdi.as_slice(), stream)?;
        Ok(artifact.with_ahead(self.ahead.as_slice()).with_kept(self.kept.as_slice()))
    }

    /// The channels of shims whose tasks may run ahead in joined streams.
    #[must_use]
    pub fn ahead(&self) -> &[AheadChannel] {
        &self.ahead
    }

    /// The memory that nothing but streams writes.
    #[must_use]
    pub fn kept(&self) -> &[KeptMemory] {
        &self.kept
    }

    /// What joined streams have to know of a source that runs ahead, whose results arrive in a column.
    pub(super) fn ahead_channel(&self, source: Source, results: u8) -> Result<AheadChannel, ArrayError> {
        if !self.leads_to_chains(source) {
            return Err(ArrayError::Ahead(source));
        }
        let Source { channel, packet } = source;
        let descriptors = dispatch::descriptors(&self.grid, channel)?;
        Ok(AheadChannel {
            column: channel.tile.column,
            channel: channel.number,
            packet,
            first_descriptor: descriptors.start,
            descriptors: descriptors.len() as u8,
            results,
        })
    }

    /// Whether all that a source sends gets to chains, and from those of mem tiles to chains again.
    fn leads_to_chains(&self, Source { channel, packet }: Source) -> bool {
        let of_source = |stream: &&Stream| stream.from == End::Dma(channel) && stream.packet == packet;
        let mut streams = self.streams.iter().filter(of_source);
        let passed_on = |ring: &Ring| {
            let mut chains = self.chains.iter().filter(|chain| {
                chain.channel.direction == Direction::MemoryToStream
                    && chain.parts.iter().any(|part| part.ring == *ring)
            });
            chains.any(|chain| self.leads_to_chains(chain.channel.into()))
        };
        streams.any(|stream| {
            stream.to.iter().all(|end| match end {
                End::Core(_) => false,
                End::Dma(end) => self.chain(*end).is_some_and(|chain| {
                    // The rings of a core its program empties.
                    let is_last = self.grid.kind(end.tile).is_ok_and(|kind| kind == TileKind::Core);
                    is_last || chain.parts.iter().all(|part| passed_on(&part.ring))
                }),
            })
        })
    }

    /// The partition.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The streams in the order in which they were added, each with the connections that were found for it. Streams of packets can
    /// share some.
    pub fn routes(&self) -> impl Iterator<Item = (&Stream, &[Circuit])> {
        self.streams.iter().zip(self.routes.iter().map(Vec::as_slice))
    }

    /// Checks that tasks of a shim's channel can have packets of this id, or none if there is no id.
    pub(super) fn check_source(&self, source: Source) -> Result<(), ArrayError> {
        let Source { channel, packet } = source;
        let from = End::Dma(channel);
        let ids: Vec<u8> =
            self.streams.iter().filter(|stream| stream.from == from).filter_map(|stream| stream.packet).collect();
        let is_right = packet.map_or(ids.is_empty(), |id| ids.contains(&id));
        if is_right { Ok(()) } else { Err(ArrayError::Packet { channel, packet, ids }) }
    }

    /// The id of the packets that a channel of a core or mem tile sends, if others send to the same end.
    pub(super) fn merged_packet(&self, channel: Channel) -> Option<u8> {
        let from = End::Dma(channel);
        self.streams.iter().find(|stream| stream.from == from && stream.is_merged())?.packet
    }

    /// What a phase uses has to be a ring in its tile's memory, apart from the parameters.
    pub(super) fn check_ring(&self, ring: &Ring) -> Result<(), ArrayError> {
        ring.check()?;
        let (tile, (start, end)) = (ring.tile, ring.bytes());
        let limit = self.grid.limits(tile)?.data_bytes;
        if u64::from(end) > limit as u64 {
            return Err(ArrayError::Memory { tile, start: start.into(), end: end.into(), limit });
        }
        self.check_no_chain(tile, (start, end))?;
        self.check_not_kept(tile, (start, end))?;
        [ring.empty, ring.full].into_iter().try_for_each(|lock| self.check_no_chain_lock(tile, lock))?;
        match self.parameters.get(&tile) {
            Some(Parameters { offset, words }) if start < offset + 4 * words && *offset < end => {
                let (used_start, used_end) = (*offset, offset + 4 * words);
                Err(ArrayError::Overlap { tile, start, end, used_start, used_end })
            }
            _ => Ok(()),
        }
    }

    /// The chain that the configuration starts at a channel.
    pub(super) fn chain(&self, channel: Channel) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.channel == channel)
    }

    /// The rings of a tile that chains go through, with the channel of the chain.
    fn chained_rings(&self, tile: Tile) -> impl Iterator<Item = (Channel, &Ring)> {
        let chains = self.chains.iter().filter(move |chain| chain.channel.tile == tile);
        chains.flat_map(|chain| chain.parts.iter().map(|part| (chain.channel, &part.ring)))
    }

    /// Memory that a dispatch uses has to be of no chain's ring.
    pub(super) fn check_no_chain(&self, tile: Tile, (start, end): (u32, u32)) -> Result<(), ArrayError> {
        let mut used = self.chained_rings(tile).map(|(_, ring)| ring.bytes());
        let overlap = used.find(|(used_start, used_end)| start < *used_end && *used_start < end);
        overlap.map_or(Ok(()), |(used_start, used_end)| {
            Err(ArrayError::Overlap { tile, start, end, used_start, used_end })
        })
    }

    /// Memory that a channel writes is not kept.
    pub(super) fn check_not_kept(&self, tile: Tile, (start, end): (u32, u32)) -> Result<(), ArrayError> {
        let of_tile = self.kept.iter().filter(|kept| (kept.column, kept.row) == (tile.column, tile.row));
        let mut used = of_tile.map(|kept| (kept.offset, kept.offset.saturating_add(kept.bytes)));
        let overlap = used.find(|(used_start, used_end)| start < *used_end && *used_start < end);
        overlap.map_or(Ok(()), |(used_start, used_end)| {
            Err(ArrayError::Overlap { tile, start, end, used_start, used_end })
        })
    }

    /// A lock that a dispatch sets has to be of no chain's ring.
    pub(super) fn check_no_chain_lock(&self, tile: Tile, lock: u8) -> Result<(), ArrayError> {
        let of = self.chained_rings(tile).find(|(_, ring)| [ring.empty, ring.full].contains(&lock));
        of.map_or(Ok(()), |(channel, _)| Err(ArrayError::Chained(channel)))
    }

    /// How many of a pool of descriptors are of chains: its first ones.
    pub(super) fn chained_descriptors(&self, tile: Tile, pool: &Range<u8>) -> usize {
        let chains = self.chains.iter().filter(|chain| chain.channel.tile == tile && pool.contains(&chain.first));
        chains.map(|chain| chain.descriptors.len()).sum()
    }

    /// Whether a stream begins or ends at a channel.
    pub(super) fn is_connected(&self, channel: Channel) -> bool {
        let end = End::Dma(channel);
        self.streams.iter().any(|stream| stream.from == end || stream.to.contains(&end))
    }
}
