//! A finished array program: its PDI, and what dispatches have to know of it.

use super::dispatch::Dispatch;
use super::grid::Grid;
use super::program::Parameters;
use super::route::{Circuit, Stream};
use super::tile::{Channel, End, Tile};
use std::collections::BTreeMap;

/// An array program with everything placed and routed.
#[derive(Clone, Debug)]
pub struct Configured {
    pub(super) grid: Grid,
    pub(super) pdi: Vec<u8>,
    pub(super) streams: Vec<Stream>,
    pub(super) routes: Vec<Vec<Circuit>>,
    pub(super) parameters: BTreeMap<Tile, Parameters>,
}

impl Configured {
    /// The PDI. The same program gives the same bytes.
    #[must_use]
    pub fn pdi(&self) -> &[u8] {
        &self.pdi
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

    /// Begins the instruction stream of a dispatch.
    #[must_use]
    pub fn dispatch(&self) -> Dispatch<'_> {
        Dispatch::new(self)
    }

    /// Whether a stream begins or ends at a channel.
    pub(super) fn is_connected(&self, channel: Channel) -> bool {
        let end = End::Dma(channel);
        self.streams.iter().any(|stream| stream.from == end || stream.to.contains(&end))
    }
}
