//! The order of a deadlock's report: from the operation that waits back to where nothing comes.
//!
//! A report of a whole array has dozens of lines, and most of them only say that others wait too. Whoever reads it follows one
//! way through it: a token waits for a channel, the channel for words, those for a port, a core or a lock. That way comes first.

use super::dma::{self, Descriptor};
use super::report::{Report, Waiter, What, Who};
use super::stream::Sink;
use super::tiles::Array;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use std::collections::{BTreeSet, VecDeque};

impl Array {
    /// The report of what `first` waits for: `first`, then those that it waits for directly or through others, nearest first,
    /// then all others tile by tile.
    pub(super) fn report_of(&self, first: Waiter) -> Report {
        let mut rest = self.report().waiters;
        let mut waiters = vec![first];
        let mut next = 0;
        while let Some(waiter) = waiters.get(next) {
            let mut found = Vec::new();
            for cause in self.causes(waiter, &rest) {
                if let Some(index) = rest.iter().position(|other| *other == cause) {
                    found.push(rest.remove(index));
                }
            }
            waiters.extend(found);
            next += 1;
        }
        waiters.extend(rest);
        Report { waiters }
    }

    /// Those of `others` that a waiter waits for.
    fn causes(&self, waiter: &Waiter, others: &[Waiter]) -> Vec<Waiter> {
        let at = (waiter.column, waiter.row);
        let Ok(tile) = self.index(at.0, at.1) else { return Vec::new() };
        let waiting = Waiting(others);
        let source = |who: &Who| match who {
            Who::Channel { channel, .. } => Some(Self::source_port(self.tiles[tile].kind, *channel)),
            _ => StreamSwitch(self.tiles[tile].kind).slave_index(Port::Core).ok().map(|port| port as usize),
        };
        match &waiter.what {
            What::Token { direction, channel } => waiting.channel(at, *direction, usize::from(*channel)),
            What::Lock { column, row, lock, .. } => self.releasers(waiter, (*column, *row), *lock, others),
            What::Words { .. } | What::Header => {
                let sink = match waiter.who {
                    Who::Channel { channel, .. } => Sink::Dma(channel),
                    _ => Sink::Core,
                };
                self.senders(tile, sink, waiting)
            }
            What::Space { .. } => source(&waiter.who).map_or_else(Vec::new, |port| self.port(tile, port, waiting)),
            What::CascadeInput => {
                let beside = [(at.0.checked_sub(1), Some(at.1)), (Some(at.0), at.1.checked_add(1))];
                beside.into_iter().filter_map(|(column, row)| waiting.core((column?, row?))).collect()
            }
            What::CascadeOutput => {
                let beside = [(at.0.checked_add(1), Some(at.1)), (Some(at.0), at.1.checked_sub(1))];
                beside.into_iter().filter_map(|(column, row)| waiting.core((column?, row?))).collect()
            }
            What::Arbiter { port: Some(port), .. } => {
                let slave = StreamSwitch(self.tiles[tile].kind).slave_index(*port);
                slave.map_or_else(|_| Vec::new(), |slave| self.sources(tile, slave as usize, waiting))
            }
            What::Masters { ports } => {
                let switch = StreamSwitch(self.tiles[tile].kind);
                let masters = ports.iter().filter_map(|(port, _)| switch.master_index((*port)?).ok());
                masters.flat_map(|master| self.taker(tile, master as usize, waiting)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Who waits in what a master port leads to.
    fn taker(&self, tile: usize, master: usize, waiting: Waiting<'_>) -> Vec<Waiter> {
        let at = (self.tiles[tile].column, self.tiles[tile].row);
        match self.tiles[tile].sinks[master] {
            Sink::Slave { column, row, port } => {
                self.index(column, row).map_or_else(|_| Vec::new(), |tile| self.port(tile, port, waiting))
            }
            Sink::Dma(channel) => waiting.channel(at, Direction::StreamToMemory, channel),
            Sink::Core => waiting.core(at).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// A slave port that holds words.
    fn port(&self, tile: usize, slave: usize, waiting: Waiting<'_>) -> Vec<Waiter> {
        let found = waiting.0.iter().filter(|other| {
            let Who::Port { port: Some(port), .. } = other.who else { return false };
            (other.column, other.row) == (self.tiles[tile].column, self.tiles[tile].row)
                && StreamSwitch(self.tiles[tile].kind).slave_index(port).is_ok_and(|index| index as usize == slave)
        });
        found.cloned().collect()
    }

    /// Who should send words into a sink of a tile, past ports that are empty.
    fn senders(&self, tile: usize, sink: Sink, waiting: Waiting<'_>) -> Vec<Waiter> {
        let masters = (0..self.tiles[tile].sinks.len()).filter(|master| self.tiles[tile].sinks[*master] == sink);
        let slaves = masters.flat_map(|master| self.tiles[tile].switch.slaves_of(master));
        slaves.flat_map(|slave| self.sources(tile, slave, waiting)).collect()
    }

    /// Who should send words into a slave port: the port itself if it has some that do not move.
    fn sources(&self, tile: usize, slave: usize, waiting: Waiting<'_>) -> Vec<Waiter> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut ports = VecDeque::from([(tile, slave)]);
        while let Some((tile, slave)) = ports.pop_front() {
            if !seen.insert((tile, slave)) {
                continue;
            }
            let held = self.port(tile, slave, waiting);
            if !held.is_empty() {
                found.extend(held);
                continue;
            }
            let Some(at) = self.tiles.get(tile).map(|tile| (tile.column, tile.row)) else { continue };
            let kind = self.tiles[tile].kind;
            if StreamSwitch(kind).slave_index(Port::Core).is_ok_and(|core| core as usize == slave) {
                found.extend(waiting.core(at));
            }
            let channels = 0..self.tiles[tile].channels[Direction::MemoryToStream as usize].len();
            let channel = channels.into_iter().find(|channel| Self::source_port(kind, *channel) == slave);
            found.extend(
                channel.map(|channel| waiting.channel(at, Direction::MemoryToStream, channel)).unwrap_or_default(),
            );
            for (index, other) in self.tiles.iter().enumerate() {
                let leads_here = Sink::Slave { column: at.0, row: at.1, port: slave };
                for master in (0..other.sinks.len()).filter(|master| other.sinks[*master] == leads_here) {
                    ports.extend(other.switch.slaves_of(master).into_iter().map(|slave| (index, slave)));
                }
            }
        }
        found
    }

    /// Who may release a lock: channels with a descriptor that does, and cores that reach it.
    fn releasers(&self, waiter: &Waiter, at: (u8, u8), lock: usize, others: &[Waiter]) -> Vec<Waiter> {
        let Ok(owner) = self.index(at.0, at.1) else { return Vec::new() };
        let releases = |other: &&Waiter| {
            let Ok(index) = self.index(other.column, other.row) else { return false };
            let tile = &self.tiles[index];
            match other.who {
                Who::Core { .. } => {
                    other.who != waiter.who && (0..4).any(|side| self.core_neighbour(index, side) == Some(owner))
                }
                Who::Channel { direction, channel, descriptor } => tile.chain(descriptor).any(|number| {
                    let register = dma::descriptor_register(tile.kind, number);
                    let words = std::array::from_fn(|word| tile.register(register + 4 * word as u32));
                    let descriptor = Descriptor::load(tile.kind, &words, direction, tile.column, tile.row);
                    let released = descriptor.release.and_then(|(lock, _)| self.lock_of_channel(index, channel, lock));
                    released == Some((owner, lock))
                }),
                _ => false,
            }
        };
        others.iter().filter(releases).cloned().collect()
    }
}

/// Those who wait.
#[derive(Clone, Copy)]
struct Waiting<'a>(&'a [Waiter]);

impl Waiting<'_> {
    fn core(&self, at: (u8, u8)) -> Option<Waiter> {
        let is_core = |other: &&Waiter| (other.column, other.row) == at && matches!(other.who, Who::Core { .. });
        self.0.iter().find(is_core).cloned()
    }

    fn channel(&self, at: (u8, u8), direction: Direction, channel: usize) -> Vec<Waiter> {
        let is_channel = |other: &&Waiter| {
            let Who::Channel { direction: has, channel: number, .. } = other.who else { return false };
            (other.column, other.row, has, number) == (at.0, at.1, direction, channel)
        };
        self.0.iter().filter(is_channel).cloned().collect()
    }
}
