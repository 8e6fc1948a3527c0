//! What a run has taken: the differences of the clocks between its start and its end.

use super::clock::{Resource, Timing, Use};
use super::tiles::Array;
use aie_hal::format::dma_channel::Direction;

/// The clock at the start of a run.
pub(super) struct Start {
    now: u64,
    uses: Vec<Use>,
}

impl Array {
    /// The cycles of the last instruction stream that [`Array::execute`] has executed, up to its end or its failure.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The cycle of the array's clock that instruction streams have come to.
    pub fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn start_timing(&mut self) -> Start {
        self.tiles
            .iter_mut()
            .flat_map(|tile| tile.channels.iter_mut().flatten())
            .for_each(|channel| channel.started = None);
        Start { now: self.now, uses: self.uses() }
    }

    pub(super) fn end_timing(&mut self, start: &Start) {
        let mut uses = self.uses();
        for (used, before) in uses.iter_mut().zip(&start.uses) {
            // What was reset meanwhile counts from there.
            used.busy = used.busy.checked_sub(before.busy).unwrap_or(used.busy);
            used.stalled = used.stalled.checked_sub(before.stalled).unwrap_or(used.stalled);
            used.pieces = used.pieces.checked_sub(before.pieces).unwrap_or(used.pieces);
        }
        uses.retain(|used| used.busy > 0);
        if self.now == start.now {
            let clocks = self.tiles.iter().flat_map(|tile| tile.channels.iter().flatten());
            self.now = clocks.map(|channel| channel.clock).max().unwrap_or(0).max(self.now);
        }
        self.timing = Timing { cycles: self.now - start.now, uses };
    }

    /// How long everything has been busy since reset, in one order.
    fn uses(&self) -> Vec<Use> {
        let mut uses = Vec::new();
        for tile in &self.tiles {
            let (column, row) = (tile.column, tile.row);
            let mut add =
                |resource, busy, stalled, pieces| uses.push(Use { column, row, resource, busy, stalled, pieces });
            if let Some(core) = &tile.core {
                add(Resource::Core, core.cycles(), tile.core_delay, 0);
            }
            for direction in [Direction::StreamToMemory, Direction::MemoryToStream] {
                for (channel, state) in tile.channels[direction as usize].iter().enumerate() {
                    add(Resource::Channel { direction, channel }, state.words, 0, state.pieces);
                }
            }
            for (port, words) in tile.switch.passed().enumerate() {
                add(Resource::Stream { port }, words, 0, 0);
            }
        }
        uses
    }
}
