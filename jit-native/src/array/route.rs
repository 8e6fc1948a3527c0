//! Ways of streams through the switches.
//!
//! Streams are switched by circuits: a slave port of a switch feeds one or more masters, forever. A stream is therefore a tree
//! over the tiles' ports, and no port belongs to two of them. The router grows the tree of one stream after another, each
//! branch along the fewest switches ([`StreamSwitch::has_wire`] says which pairs of ports a switch can connect). When a stream
//! finds no way, it is routed first in another attempt, so that those that have no choice come before those that have.

use super::error::ArrayError;
use super::grid::Grid;
use super::tile::{Channel, End, Tile};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use aie_hal::format::shim_mux;
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use std::collections::{HashMap, HashSet, VecDeque};

/// A stream: what one end sends arrives at all of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Where the words come from.
    pub from: End,
    /// Where they go to, the same words to each.
    pub to: Vec<End>,
}

/// A connection within one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Circuit {
    /// The tile.
    pub tile: Tile,
    /// Where the words enter the switch.
    pub slave: Port,
    /// Where they leave it.
    pub master: Port,
}

/// A port through which words enter a switch.
type Slave = (Tile, Port);
/// A port through which words leave a switch.
type Master = (Tile, Port);

/// Finds circuits for all streams, in their order.
///
/// # Errors
/// [`ArrayError::Unroutable`] when the switches are too small, [`ArrayError::WrongEnd`], [`ArrayError::InUse`].
pub(super) fn route(grid: &Grid, streams: &[Stream], reserved: &[Master]) -> Result<Vec<Vec<Circuit>>, ArrayError> {
    let mut order: Vec<usize> = (0..streams.len()).collect();
    let mut attempts = 0;
    loop {
        let mut router = Router::new(grid, reserved);
        let mut routes = vec![Vec::new(); streams.len()];
        let failed = order.iter().position(|index| match router.stream(&streams[*index]) {
            Ok(circuits) => {
                routes[*index] = circuits;
                false
            }
            Err(error) => {
                router.error = Some(error);
                true
            }
        });
        match (failed, router.error) {
            (None, _) => return Ok(routes),
            (Some(at), Some(ArrayError::Unroutable { .. })) if at > 0 && attempts < streams.len() * 2 => {
                order[..=at].rotate_right(1);
                attempts += 1;
            }
            (Some(_), error) => {
                let at = order[failed.unwrap_or_default()];
                let (from, to) = (streams[at].from, streams[at].to.first().copied().unwrap_or(streams[at].from));
                return Err(error.unwrap_or(ArrayError::Unroutable { from, to }));
            }
        }
    }
}

struct Router<'a> {
    grid: &'a Grid,
    slaves: HashSet<Slave>,
    masters: HashSet<Master>,
    error: Option<ArrayError>,
}

impl<'a> Router<'a> {
    fn new(grid: &'a Grid, reserved: &[Master]) -> Self {
        Self { grid, slaves: HashSet::new(), masters: reserved.iter().copied().collect(), error: None }
    }

    fn stream(&mut self, stream: &Stream) -> Result<Vec<Circuit>, ArrayError> {
        let start = (stream.from.tile(), self.slave_of(stream.from)?);
        if !self.slaves.insert(start) {
            return Err(in_use(stream.from));
        }
        // The slaves that the stream has reached already.
        let mut tree = vec![start];
        let mut circuits = Vec::new();
        for to in &stream.to {
            let goal = (to.tile(), self.master_of(*to)?);
            if self.masters.contains(&goal) {
                return Err(in_use(*to));
            }
            let unroutable = ArrayError::Unroutable { from: stream.from, to: *to };
            for circuit in self.branch(&tree, goal).ok_or(unroutable)? {
                self.masters.insert((circuit.tile, circuit.master));
                if let Some(next) = self.across(circuit.tile, circuit.master) {
                    self.slaves.insert(next);
                    tree.push(next);
                }
                circuits.push(circuit);
            }
        }
        Ok(circuits)
    }

    /// The shortest way from any slave of the tree to a master, over free ports.
    fn branch(&self, tree: &[Slave], goal: Master) -> Option<Vec<Circuit>> {
        let mut before: HashMap<Slave, Circuit> = HashMap::new();
        let mut seen: HashSet<Slave> = tree.iter().copied().collect();
        let mut queue: VecDeque<Slave> = tree.iter().copied().collect();
        while let Some((tile, slave)) = queue.pop_front() {
            let switch = StreamSwitch(self.grid.kind(tile).ok()?);
            if tile == goal.0 && switch.has_wire(slave, goal.1) {
                let mut way = vec![Circuit { tile, slave, master: goal.1 }];
                let mut at = (tile, slave);
                while let Some(circuit) = before.get(&at) {
                    way.push(*circuit);
                    at = (circuit.tile, circuit.slave);
                }
                way.reverse();
                return Some(way);
            }
            for master in switch.masters().filter(|master| switch.has_wire(slave, *master)) {
                let Some(next) = self.across(tile, master) else { continue };
                let free = !self.masters.contains(&(tile, master)) && !self.slaves.contains(&next);
                if free && seen.insert(next) {
                    before.insert(next, Circuit { tile, slave, master });
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// The slave of the neighbour that a master is wired to.
    fn across(&self, tile: Tile, master: Port) -> Option<Slave> {
        let Tile { column, row } = tile;
        let next = match master {
            Port::South(_) => Tile::new(column, row.checked_sub(1)?),
            Port::North(_) => Tile::new(column, row.checked_add(1)?),
            Port::West(_) => Tile::new(column.checked_sub(1)?, row),
            Port::East(_) => Tile::new(column.checked_add(1)?, row),
            _ => return None,
        };
        let slave = master.across()?;
        let switch = StreamSwitch(self.grid.kind(next).ok()?);
        switch.slave_index(slave).is_ok().then_some((next, slave))
    }

    /// Where the words of an end enter its tile's switch.
    fn slave_of(&self, end: End) -> Result<Port, ArrayError> {
        match end {
            End::Core(tile) => self.grid.core(tile).map(|()| Port::Core),
            End::Dma(channel) if channel.direction == Direction::MemoryToStream => self.dma_port(channel),
            End::Dma(_) => Err(ArrayError::WrongEnd(end, "beginning")),
        }
    }

    /// Where the words of an end leave its tile's switch.
    fn master_of(&self, end: End) -> Result<Port, ArrayError> {
        match end {
            End::Core(tile) => self.grid.core(tile).map(|()| Port::Core),
            End::Dma(channel) if channel.direction == Direction::StreamToMemory => self.dma_port(channel),
            End::Dma(_) => Err(ArrayError::WrongEnd(end, "end")),
        }
    }

    fn dma_port(&self, channel: Channel) -> Result<Port, ArrayError> {
        let Channel { direction, number, .. } = channel;
        match self.grid.channel(channel)? {
            TileKind::Core | TileKind::Mem => Ok(Port::Dma(number)),
            TileKind::Shim => shim_mux::port(direction, number).ok_or(ArrayError::Unconnected(channel)),
        }
    }
}

fn in_use(end: End) -> ArrayError {
    let (what, number) = match end {
        End::Core(_) => ("the stream port of the core", 0),
        End::Dma(channel) if channel.direction == Direction::MemoryToStream => ("MM2S channel", channel.number),
        End::Dma(channel) => ("S2MM channel", channel.number),
    };
    ArrayError::InUse { tile: end.tile(), what, number }
}

#[cfg(test)]
mod tests;
