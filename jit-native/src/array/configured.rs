//! A finished array program: its PDI, and what dispatches have to know of it.

use super::contents::Parameters;
use super::error::ArrayError;
use super::grid::Grid;
use super::ring::Ring;
use super::route::{Circuit, Stream};
use super::tile::{Channel, End, Tile};
use aie_hal::KernelArtifact;
use aie_hal::artifact::ArtifactError;
use std::collections::BTreeMap;
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
        KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, self.pdi.as_slice(), stream)
    }

    /// The partition.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The streams in the order in which they were added, each with the circuits that were found for it.
    pub fn routes(&self) -> impl Iterator<Item = (&Stream, &[Circuit])> {
        self.streams.iter().zip(self.routes.iter().map(Vec::as_slice))
    }

    /// What a phase uses has to be a ring in its tile's memory, apart from the parameters.
    pub(super) fn check_ring(&self, ring: &Ring) -> Result<(), ArrayError> {
        ring.check()?;
        let (tile, (start, end)) = (ring.tile, ring.bytes());
        let limit = self.grid.limits(tile)?.data_bytes;
        if u64::from(end) > limit as u64 {
            return Err(ArrayError::Memory { tile, start: start.into(), end: end.into(), limit });
        }
        match self.parameters.get(&tile) {
            Some(Parameters { offset, words }) if start < offset + 4 * words && *offset < end => {
                let (used_start, used_end) = (*offset, offset + 4 * words);
                Err(ArrayError::Overlap { tile, start, end, used_start, used_end })
            }
            _ => Ok(()),
        }
    }

    /// Whether a stream begins or ends at a channel.
    pub(super) fn is_connected(&self, channel: Channel) -> bool {
        let end = End::Dma(channel);
        self.streams.iter().any(|stream| stream.from == end || stream.to.contains(&end))
    }
}
