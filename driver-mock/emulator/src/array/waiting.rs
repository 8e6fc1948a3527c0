//! What everything that cannot continue waits for at the moment: how a [`Report`] is made.

use super::dma::Activity;
use super::report::{Report, Waiter, What, Who};
use super::stream::{Blocked, Sink};
use super::tile::Tile;
use super::tiles::Array;
use crate::core::Wait;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{Port, StreamSwitch};

/// All ports that a kind of tile can have.
fn ports() -> impl Iterator<Item = Port> {
    let sides = (0..8).flat_map(|n| [Port::Dma(n), Port::South(n), Port::West(n), Port::North(n), Port::East(n)]);
    [Port::Core, Port::TileControl, Port::Fifo, Port::Trace(0), Port::Trace(1)].into_iter().chain(sides)
}

fn slave_port(kind: TileKind, index: usize) -> Option<Port> {
    ports().find(|port| StreamSwitch(kind).slave_index(*port).is_ok_and(|found| found as usize == index))
}

fn master_port(kind: TileKind, index: usize) -> Option<Port> {
    ports().find(|port| StreamSwitch(kind).master_index(*port).is_ok_and(|found| found as usize == index))
}

impl Array {
    /// Who waits for what.
    pub fn report(&self) -> Report {
        let mut waiters = Vec::new();
        for (index, tile) in self.tiles.iter().enumerate() {
            let mut add = |who, what| waiters.push(Waiter { column: tile.column, row: tile.row, who, what });
            if let Some(core) = tile.core.as_ref().filter(|_| tile.core_enabled) {
                add(Who::Core { pc: core.pc() }, self.core_waits_for(index));
            }
            for direction in [Direction::StreamToMemory, Direction::MemoryToStream] {
                for channel in 0..tile.channels[direction as usize].len() {
                    if let Some((descriptor, what)) = self.channel_waits_for(index, direction, channel) {
                        add(Who::Channel { direction, channel, descriptor }, what);
                    }
                }
            }
            for slave in tile.switch.waiting() {
                let who = Who::Port { port: slave_port(tile.kind, slave), words: tile.switch.held(slave) };
                add(who, self.port_waits_for(index, slave));
            }
        }
        Report { waiters }
    }

    fn lock(&self, tile: &Tile, lock: usize, value: i32) -> What {
        let (wanted, at_least) = (value.abs(), value < 0);
        What::Lock { column: tile.column, row: tile.row, lock, value: tile.locks[lock], wanted, at_least }
    }

    fn core_waits_for(&self, index: usize) -> What {
        let tile = &self.tiles[index];
        if !tile.clocked {
            return What::Clock;
        }
        match tile.wait {
            Some(Wait::Lock { id, value }) => match self.core_neighbour(index, id / 16) {
                Some(other) => self.lock(&self.tiles[other], id as usize % 16, value),
                None => What::Nothing,
            },
            Some(Wait::StreamRead) => What::Words { moved: None },
            Some(Wait::StreamWrite) => What::Space { moved: None },
            Some(Wait::CascadeRead) => What::CascadeInput,
            Some(Wait::CascadeWrite) => What::CascadeOutput,
            _ => What::Nothing,
        }
    }

    /// The descriptor of a channel that has a task, and what it waits for.
    fn channel_waits_for(&self, index: usize, direction: Direction, channel: usize) -> Option<(u8, What)> {
        let tile = &self.tiles[index];
        let state = &tile.channels[direction as usize][channel];
        let descriptor = match (&state.running, state.queue.front()) {
            (Some(running), _) => running.descriptor_id,
            (None, Some((task, _))) => task.descriptor,
            (None, None) => return None,
        };
        let what = match state.running.as_ref().map(|running| (running, running.activity)) {
            _ if !tile.clocked => What::Clock,
            _ if state.control.holds(tile.kind) => What::Release,
            _ if !self.shim_dma_is_connected(index, direction, channel) => What::Multiplexer,
            None => What::Nothing,
            Some((_, Activity::Header)) => What::Header,
            Some((running, Activity::Acquire)) => match running.descriptor.acquire {
                Some((lock, value)) => match self.lock_of_channel(index, channel, lock) {
                    Some((other, lock)) => self.lock(&self.tiles[other], lock, value),
                    None => What::Nothing,
                },
                None => What::Nothing,
            },
            Some((running, Activity::Move(position))) => {
                let moved = Some((position.moved, running.descriptor.length));
                match direction {
                    Direction::StreamToMemory => What::Words { moved },
                    Direction::MemoryToStream => What::Space { moved },
                }
            }
        };
        Some((descriptor, what))
    }

    fn port_waits_for(&self, index: usize, slave: usize) -> What {
        let tile = &self.tiles[index];
        if !tile.clocked {
            return What::Clock;
        }
        match tile.switch.blocked(slave) {
            Blocked::Disabled => What::Configuration,
            Blocked::Unrouted => What::Route,
            Blocked::Arbiter { number, slave } => What::Arbiter { number, port: slave_port(tile.kind, slave) },
            Blocked::Full { masters } => {
                let full = masters.into_iter().filter(|master| !self.has_space(index, tile.sinks[*master]));
                let ports = full.map(|master| (master_port(tile.kind, master), self.leads_nowhere(index, master)));
                let ports: Vec<_> = ports.collect();
                if ports.is_empty() { What::Nothing } else { What::Masters { ports } }
            }
        }
    }

    fn leads_nowhere(&self, index: usize, master: usize) -> bool {
        match self.tiles[index].sinks[master] {
            Sink::Nowhere => true,
            Sink::Dma(channel) => !self.shim_dma_is_connected(index, Direction::StreamToMemory, channel),
            _ => false,
        }
    }
}
