//! What switches do with packets, and where these need nothing of it.
//!
//! Streams of packets share ports: those of a split have one beginning, those of a merge one end. Where all packets that come in through a
//! port go the same way, the connection is a circuit, headers and all. Where they part, the ids in their headers choose the way; where they
//! meet, an arbiter lets one after the other through. The last of these leaves the headers out, so that a channel gets the words that it
//! would get from a stream of its own.

use super::error::ArrayError;
use super::grid::Grid;
use super::route::{self, Circuit, Stream};
use super::tile::Tile;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::stream_switch::{PacketSlot, Port, StreamSwitch};
use std::collections::{BTreeMap, BTreeSet};

/// The arbiter and the selector of a shim's tokens are those that mlir-aie chooses; other packets have the arbiters below.
pub(super) const TOKENS: PacketSlot = PacketSlot { id: 15, mask: 31, arbiter: 5, msel: 3 };

/// All connections of an array.
#[derive(Clone, Debug, Default)]
pub(super) struct Switching {
    /// What one port sends to another, whatever it is.
    pub circuits: Vec<Circuit>,
    pub exchanges: Vec<Exchange>,
}

/// Ports of one switch that share an arbiter.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub tile: Tile,
    arbiter: u8,
    /// Where packets come in, with the selector of each id.
    slaves: Vec<(Port, Vec<(u8, u8)>)>,
    masters: Vec<Outlet>,
}

/// Where packets leave a switch.
#[derive(Clone, Copy, Debug)]
struct Outlet {
    port: Port,
    /// Mask of the selectors whose packets it takes.
    selectors: u8,
    drops_header: bool,
}

/// A connection within a switch, and the ids of the packets that take it.
type Hop = (Circuit, BTreeSet<u8>);

impl Switching {
    /// The connections along the routes that were found for streams.
    pub fn new(grid: &Grid, streams: &[Stream], routes: &[Vec<Circuit>]) -> Result<Self, ArrayError> {
        let mut switching = Self::default();
        for (_, route) in streams.iter().zip(routes).filter(|(stream, _)| stream.packet.is_none()) {
            switching.circuits.extend(route);
        }
        let mut used: BTreeMap<Tile, u8> = BTreeMap::new();
        for group in route::groups(streams) {
            let is_merge = streams[group[0]].is_merged();
            let mut ends = Vec::new();
            let mut joints: Vec<Vec<Hop>> = Vec::new();
            for index in &group {
                let stream = &streams[*index];
                let Some(id) = stream.packet else { continue };
                for end in &stream.to {
                    ends.push((end.tile(), route::master_of(grid, *end)?));
                }
                routes[*index].iter().for_each(|circuit| add(&mut joints, *circuit, id, is_merge));
            }
            for hops in joints {
                let exchange =
                    if is_merge { Exchange::meeting(&hops, group.len()) } else { Exchange::parting(&hops, &ends) };
                let Some(mut exchange) = exchange else {
                    switching.circuits.extend(hops.iter().map(|(circuit, _)| *circuit));
                    continue;
                };
                let tile = exchange.tile;
                exchange.arbiter = arbiter(grid, tile, used.entry(tile).or_default())?;
                let limit = usize::from(StreamSwitch::SLOTS);
                if exchange.slaves.iter().any(|(_, selectors)| selectors.len() > limit) {
                    return Err(ArrayError::Exhausted { tile, what: "slots for packet ids at a port", limit });
                }
                switching.exchanges.push(exchange);
            }
        }
        Ok(switching)
    }
}

/// The next arbiter of a tile's switch.
fn arbiter(grid: &Grid, tile: Tile, used: &mut u8) -> Result<u8, ArrayError> {
    let limit = if grid.kind(tile)? == TileKind::Shim { TOKENS.arbiter } else { StreamSwitch::ARBITERS };
    if *used >= limit {
        return Err(ArrayError::Exhausted { tile, what: "arbiters for packets", limit: limit.into() });
    }
    *used += 1;
    Ok(*used - 1)
}

/// Adds a connection to those that have its slave, where packets part, or its master, where they meet.
fn add(joints: &mut Vec<Vec<Hop>>, circuit: Circuit, id: u8, is_merge: bool) {
    let key = |circuit: &Circuit| (circuit.tile, if is_merge { circuit.master } else { circuit.slave });
    let found = joints.iter().position(|hops| key(&hops[0].0) == key(&circuit));
    let at = found.unwrap_or_else(|| {
        joints.push(Vec::new());
        joints.len() - 1
    });
    match joints[at].iter_mut().find(|(other, _)| *other == circuit) {
        Some((_, ids)) => drop(ids.insert(id)),
        None => joints[at].push((circuit, BTreeSet::from([id]))),
    }
}

impl Exchange {
    /// What one slave does with packets that end here or part. None if they all go on together.
    fn parting(hops: &[Hop], ends: &[(Tile, Port)]) -> Option<Self> {
        let Circuit { tile, slave, .. } = hops[0].0;
        let ids: BTreeSet<u8> = hops.iter().flat_map(|(_, ids)| ids).copied().collect();
        let masters = |id: u8| -> Vec<bool> { hops.iter().map(|(_, ids)| ids.contains(&id)).collect() };
        let ends = |master: Port| ends.contains(&(tile, master));
        // Packets that go to the same masters have the same selector.
        let mut ways: Vec<Vec<bool>> = Vec::new();
        let selectors: Vec<(u8, u8)> = ids
            .into_iter()
            .map(|id| {
                let way = masters(id);
                let known = ways.iter().position(|known| *known == way);
                let selector = known.unwrap_or_else(|| {
                    ways.push(way);
                    ways.len() - 1
                });
                (id, selector as u8)
            })
            .collect();
        let is_needed = ways.len() > 1 || hops.iter().any(|(circuit, _)| ends(circuit.master));
        let outlet = |(at, (circuit, _)): (usize, &Hop)| {
            let taken = ways.iter().enumerate().filter(|(_, way)| way[at]);
            let selectors = taken.fold(0, |mask, (selector, _)| mask | 1 << selector);
            Outlet { port: circuit.master, selectors, drops_header: ends(circuit.master) }
        };
        let masters = hops.iter().enumerate().map(outlet).collect();
        is_needed.then(|| Self { tile, arbiter: 0, slaves: vec![(slave, selectors)], masters })
    }

    /// What one master takes from several slaves; nothing is left to meet once all `streams` have. None if there is one slave.
    fn meeting(hops: &[Hop], streams: usize) -> Option<Self> {
        let Circuit { tile, master, .. } = hops[0].0;
        let ids: BTreeSet<u8> = hops.iter().flat_map(|(_, ids)| ids).copied().collect();
        let slaves = hops.iter().map(|(circuit, ids)| (circuit.slave, ids.iter().map(|id| (*id, 0)).collect()));
        let outlet = Outlet { port: master, selectors: 1, drops_header: ids.len() == streams };
        (hops.len() > 1).then(|| Self { tile, arbiter: 0, slaves: slaves.collect(), masters: vec![outlet] })
    }

    /// The ports through which packets leave.
    pub fn masters(&self) -> impl Iterator<Item = Port> + '_ {
        self.masters.iter().map(|outlet| outlet.port)
    }

    /// What the switch's registers get. Slots that are not used are off, whatever another configuration has left in them.
    pub fn writes(&self, kind: TileKind) -> Result<Vec<RegisterWrite>, ArrayError> {
        let switch = StreamSwitch(kind);
        let mut writes = Vec::new();
        for (port, selectors) in &self.slaves {
            for number in 0..StreamSwitch::SLOTS {
                writes.push(match selectors.get(usize::from(number)) {
                    Some((id, msel)) => {
                        let slot = PacketSlot { id: *id, mask: 31, arbiter: self.arbiter, msel: *msel };
                        switch.slot(*port, number, slot)?
                    }
                    None => switch.no_slot(*port, number)?,
                });
            }
            writes.push(switch.packet_slave(*port)?);
        }
        for Outlet { port, selectors, drops_header } in &self.masters {
            writes.push(switch.packet_master(*port, self.arbiter, *selectors, *drops_header)?);
        }
        Ok(writes)
    }
}

#[cfg(test)]
mod tests;
