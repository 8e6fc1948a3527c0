//! Ways of streams through the switches.
//!
//! A slave port of a switch feeds one or more masters. A stream is therefore a tree over the tiles' ports, and no port belongs to two of
//! them, but for streams of packets: those with one beginning are one tree together, and those with one end are such a tree the other way
//! round ([`switching`](super::switching) says how packets find their way in it). The router grows the tree of one stream after another, each
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
    /// The id of its packets, if it shares its beginning, a shim's channel, or its end with others. No header arrives.
    pub packet: Option<u8>,
}

impl Stream {
    /// Whether it shares its end with others, and not its beginning: only a shim's tasks have an id each.
    pub(super) fn is_merged(&self) -> bool {
        self.packet.is_some() && self.from.tile().row > 0
    }
}

/// A connection within one switch. Streams of packets can share it.
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

/// Streams that are routed together, by their place: those of a split, those of a merge, or one that is neither.
pub(super) fn groups(streams: &[Stream]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        let shares = |other: &Stream| {
            let is_same = if stream.is_merged() { other.to == stream.to } else { other.from == stream.from };
            stream.packet.is_some() && other.packet.is_some() && stream.is_merged() == other.is_merged() && is_same
        };
        match groups.iter_mut().find(|group| shares(&streams[group[0]])) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// Finds connections for all streams, in their order.
///
/// # Errors
/// [`ArrayError::Unroutable`] when the switches are too small, [`ArrayError::WrongEnd`], [`ArrayError::InUse`].
pub(super) fn route(grid: &Grid, streams: &[Stream], reserved: &[Master]) -> Result<Vec<Vec<Circuit>>, ArrayError> {
    let mut order = groups(streams);
    let most = order.len() * 2;
    let mut attempts = 0;
    loop {
        let mut router = Router::new(grid, reserved);
        let mut routes = vec![Vec::new(); streams.len()];
        let mut failed = None;
        for (at, group) in order.iter().enumerate() {
            let of_group: Vec<&Stream> = group.iter().map(|index| &streams[*index]).collect();
            let found = if of_group[0].is_merged() { router.merge(&of_group) } else { router.split(&of_group) };
            match found {
                Ok(found) => group.iter().zip(found).for_each(|(index, circuits)| routes[*index] = circuits),
                Err(error) => {
                    failed = Some((at, error));
                    break;
                }
            }
        }
        match failed {
            None => return Ok(routes),
            Some((at, ArrayError::Unroutable { .. })) if at > 0 && attempts < most => {
                order[..=at].rotate_right(1);
                attempts += 1;
            }
            Some((_, error)) => return Err(error),
        }
    }
}

struct Router<'a> {
    grid: &'a Grid,
    slaves: HashSet<Slave>,
    masters: HashSet<Master>,
}

impl<'a> Router<'a> {
    fn new(grid: &'a Grid, reserved: &[Master]) -> Self {
        Self { grid, slaves: HashSet::new(), masters: reserved.iter().copied().collect() }
    }

    /// The connections of each of some streams with one beginning.
    fn split(&mut self, streams: &[&Stream]) -> Result<Vec<Vec<Circuit>>, ArrayError> {
        let from = streams[0].from;
        let start = self.begin(from)?;
        // The slaves that the streams have reached already.
        let mut tree = vec![start];
        let mut circuits = Vec::new();
        for to in streams.iter().flat_map(|stream| &stream.to) {
            let goal = self.free_end(*to)?;
            let way = self.branch(&tree, &[goal]).ok_or(ArrayError::Unroutable { from, to: *to })?;
            tree.extend(self.take(&way));
            circuits.extend(way);
        }
        let [_] = streams else { return streams.iter().map(|stream| self.ways_to(&circuits, &stream.to)).collect() };
        Ok(vec![circuits])
    }

    /// The connections of each of some streams with one end: each joins those before it as soon as it can.
    fn merge(&mut self, streams: &[&Stream]) -> Result<Vec<Vec<Circuit>>, ArrayError> {
        let to = streams[0].to[0];
        let mut goals = vec![self.free_end(to)?];
        let mut circuits: Vec<Circuit> = Vec::new();
        let mut found = Vec::new();
        for Stream { from, .. } in streams {
            let start = self.begin(*from)?;
            let way = self.branch(&[start], &goals).ok_or(ArrayError::Unroutable { from: *from, to })?;
            self.take(&way);
            goals.extend(
                way.iter()
                    .map(|circuit| (circuit.tile, circuit.master))
                    .filter(|master| !goals.contains(master))
                    .collect::<Vec<_>>(),
            );
            let mut whole = way.clone();
            circuits.extend(way);
            let mut at = whole.last().and_then(|last| self.across(last.tile, last.master));
            while let Some(next) = at.and_then(|at| circuits.iter().find(|circuit| (circuit.tile, circuit.slave) == at))
            {
                whole.push(*next);
                at = self.across(next.tile, next.master);
            }
            found.push(whole);
        }
        Ok(found)
    }

    /// The slave at which a stream begins, from now on in use.
    fn begin(&mut self, from: End) -> Result<Slave, ArrayError> {
        let start = (from.tile(), slave_of(self.grid, from)?);
        if self.slaves.insert(start) { Ok(start) } else { Err(in_use(from)) }
    }

    /// The master at which a stream ends.
    fn free_end(&self, to: End) -> Result<Master, ArrayError> {
        let goal = (to.tile(), master_of(self.grid, to)?);
        if self.masters.contains(&goal) { Err(in_use(to)) } else { Ok(goal) }
    }

    /// Takes the ports of a way; gives the slaves that it reaches.
    fn take(&mut self, way: &[Circuit]) -> Vec<Slave> {
        self.masters.extend(way.iter().map(|circuit| (circuit.tile, circuit.master)));
        let reached: Vec<Slave> = way.iter().filter_map(|circuit| self.across(circuit.tile, circuit.master)).collect();
        self.slaves.extend(&reached);
        reached
    }

    /// Those of a tree's connections, from its root on, that lead to some of its ends.
    fn ways_to(&self, circuits: &[Circuit], to: &[End]) -> Result<Vec<Circuit>, ArrayError> {
        let ends: Vec<Master> =
            to.iter().map(|end| Ok((end.tile(), master_of(self.grid, *end)?))).collect::<Result<_, ArrayError>>()?;
        let mut needed: HashSet<Slave> = HashSet::new();
        let mut ways = Vec::new();
        for circuit in circuits.iter().rev() {
            let Circuit { tile, slave, master } = *circuit;
            if ends.contains(&(tile, master)) || self.across(tile, master).is_some_and(|next| needed.contains(&next)) {
                needed.insert((tile, slave));
                ways.push(*circuit);
            }
        }
        ways.reverse();
        Ok(ways)
    }

    /// The shortest way from any slave of the tree to one of some masters, over free ports.
    fn branch(&self, tree: &[Slave], goals: &[Master]) -> Option<Vec<Circuit>> {
        let mut before: HashMap<Slave, Circuit> = HashMap::new();
        let mut seen: HashSet<Slave> = tree.iter().copied().collect();
        let mut queue: VecDeque<Slave> = tree.iter().copied().collect();
        while let Some((tile, slave)) = queue.pop_front() {
            let switch = StreamSwitch(self.grid.kind(tile).ok()?);
            let goal = goals.iter().find(|goal| tile == goal.0 && switch.has_wire(slave, goal.1));
            if let Some((_, master)) = goal {
                let mut way = vec![Circuit { tile, slave, master: *master }];
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
}

/// Where the words of an end enter its tile's switch.
fn slave_of(grid: &Grid, end: End) -> Result<Port, ArrayError> {
    match end {
        End::Core(tile) => grid.core(tile).map(|()| Port::Core),
        End::Dma(channel) if channel.direction == Direction::MemoryToStream => dma_port(grid, channel),
        End::Dma(_) => Err(ArrayError::WrongEnd(end, "beginning")),
    }
}

/// Where the words of an end leave its tile's switch.
pub(super) fn master_of(grid: &Grid, end: End) -> Result<Port, ArrayError> {
    match end {
        End::Core(tile) => grid.core(tile).map(|()| Port::Core),
        End::Dma(channel) if channel.direction == Direction::StreamToMemory => dma_port(grid, channel),
        End::Dma(_) => Err(ArrayError::WrongEnd(end, "end")),
    }
}

fn dma_port(grid: &Grid, channel: Channel) -> Result<Port, ArrayError> {
    let Channel { direction, number, .. } = channel;
    match grid.channel(channel)? {
        TileKind::Core | TileKind::Mem => Ok(Port::Dma(number)),
        TileKind::Shim => shim_mux::port(direction, number).ok_or(ArrayError::Unconnected(channel)),
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
