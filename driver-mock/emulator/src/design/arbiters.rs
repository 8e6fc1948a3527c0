//! Packets that can wait for each other.
//!
//! An arbiter belongs to one packet until its last word has passed, and takes the packets that wait in any order. So where the
//! packet that has it is held up by something that waits, by whatever way, for a packet that waits for the arbiter, both stop for
//! ever: in one run of ten on one machine, and never on another (mlir-air issue 1984). What holds a packet up is taken from the
//! configuration: a core may wait with everything that comes in and goes out for everything else, and a mem tile's channels for
//! those they share locks with. That is more than a program has to do, so what is found here is a doubt and no error.

use super::Problem;
use super::position::Position;
use super::routes::{End, Place, Route};
use super::tile::{ChannelId, Tile};
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, BTreeSet};

/// Routes beyond which nothing is looked for: the ways through them grow with their square.
const MOST_ROUTES: usize = 1000;

/// An arbiter of a tile's switch.
type Arbiter = ((u8, u8), u8);

/// Ends of routes that can wait for each other: a tile, and a number within it.
type Group = ((u8, u8), usize);

struct Flow<'a> {
    route: &'a Route,
    arbiters: BTreeSet<Arbiter>,
    from: Option<Group>,
    to: Option<Group>,
}

impl Flow<'_> {
    /// Whether this one, when it is held up at its end, can wait for another.
    fn waits_for(&self, other: &Self) -> bool {
        self.to.is_some() && (self.to == other.to || self.to == other.from)
    }

    /// Whether they are packets of one sender, whose order is the sender's.
    fn has_sender_of(&self, other: &Self) -> bool {
        self.route.from == other.route.from
    }
}

/// Arbiters at which packets can wait for each other, each once.
pub(super) fn mutual_waits(tiles: &BTreeMap<(u8, u8), Tile>, routes: &[Route]) -> Vec<Problem> {
    if routes.len() > MOST_ROUTES {
        return Vec::new();
    }
    let groups: BTreeMap<(u8, u8), Vec<Vec<ChannelId>>> = tiles
        .iter()
        .filter(|(_, tile)| tile.position.kind == TileKind::Mem)
        .map(|(at, tile)| (*at, sharing(tile)))
        .collect();
    let flows: Vec<Flow<'_>> = routes
        .iter()
        .filter(|route| route.to.place.is_end())
        .map(|route| Flow {
            route,
            arbiters: arbiters(tiles, route),
            from: group(&groups, route.from),
            to: group(&groups, route.to),
        })
        .collect();
    let mut found = BTreeMap::new();
    for (index, holder) in flows.iter().enumerate() {
        let mut held_up = None;
        for waiter in flows.iter().filter(|waiter| !waiter.has_sender_of(holder)) {
            let Some(shared) =
                holder.arbiters.intersection(&waiter.arbiters).find(|shared| !found.contains_key(*shared))
            else {
                continue;
            };
            let behind = held_up.get_or_insert_with(|| behind(&flows, index));
            if flows.iter().zip(&*behind).any(|(flow, is_behind)| *is_behind && std::ptr::eq(flow, waiter)) {
                let (one, other) = (holder.route, waiter.route);
                let what = format!(
                    "arbiter {}: packets from {} to {} can hold it while they wait for those from {} to {}, which wait for it; \
                     in some order both stop",
                    shared.1, one.from, one.to, other.from, other.to
                );
                found.insert(*shared, what);
            }
        }
    }
    let position = |(column, row): (u8, u8)| tiles.get(&(column, row)).map(|tile| tile.position);
    found.into_iter().map(|((at, _), what)| Problem { tile: position(at), what }).collect()
}

/// Which flows a flow can come to wait for, once it has its arbiters.
fn behind(flows: &[Flow<'_>], first: usize) -> Vec<bool> {
    let mut reached = vec![false; flows.len()];
    let mut open: Vec<usize> =
        (0..flows.len()).filter(|other| *other != first && flows[first].waits_for(&flows[*other])).collect();
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut reached[index], true) {
            continue;
        }
        let flow = &flows[index];
        let is_next = |(number, other): (usize, &Flow<'_>)| {
            let at_arbiter = !flow.has_sender_of(other) && !flow.arbiters.is_disjoint(&other.arbiters);
            (number != first && !reached[number] && (flow.waits_for(other) || at_arbiter)).then_some(number)
        };
        open.extend(flows.iter().enumerate().filter_map(is_next));
    }
    reached
}

/// The arbiters that a route goes through.
fn arbiters(tiles: &BTreeMap<(u8, u8), Tile>, route: &Route) -> BTreeSet<Arbiter> {
    let through = route.hops.iter().filter(|hop| hop.packets).filter_map(|hop| {
        let rules = &tiles.get(&hop.tile.key())?.switch.rules;
        let takes = |id: u8, mask: u8| {
            let common = mask & route.packets.map_or(0, |packets| packets.mask);
            (id ^ route.packets.map_or(0, |packets| packets.id)) & common == 0
        };
        let rule = rules.iter().find(|rule| {
            rule.enabled
                && rule.slave == hop.slave
                && takes(rule.id, rule.mask)
                && rule.masters.iter().any(|master| master.port == hop.master)
        })?;
        Some((hop.tile.key(), rule.arbiter))
    });
    through.collect()
}

/// Channels of a mem tile that share locks, directly or through others.
fn sharing(tile: &Tile) -> Vec<Vec<ChannelId>> {
    let mut groups: Vec<(Vec<_>, Vec<ChannelId>)> = Vec::new();
    for channel in &tile.channels {
        let chains = channel.tasks.iter().flat_map(|task| &task.chain);
        let locks = chains.filter_map(|id| tile.descriptor(*id)).flat_map(|bd| [bd.acquire, bd.release]).flatten();
        let mut group: (Vec<_>, _) = (locks.map(|lock| (lock.owner, lock.lock)).collect(), vec![channel.id]);
        let touches = |other: &(Vec<_>, Vec<ChannelId>)| other.0.iter().any(|lock| group.0.contains(lock));
        let (joined, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(touches);
        for (locks, channels) in joined {
            group.0.extend(locks);
            group.1.extend(channels);
        }
        groups = others;
        groups.push(group);
    }
    groups.into_iter().map(|(_, channels)| channels).collect()
}

fn group(groups: &BTreeMap<(u8, u8), Vec<Vec<ChannelId>>>, end: End) -> Option<Group> {
    let Position { kind, .. } = end.tile;
    let channel = match end.place {
        Place::Core => return Some((end.tile.key(), 0)),
        Place::Dma { direction, channel } => ChannelId { direction, channel },
        _ => return None,
    };
    match kind {
        TileKind::Core => Some((end.tile.key(), 0)),
        // Host memory waits for nothing.
        TileKind::Shim => None,
        TileKind::Mem => {
            let number = groups.get(&end.tile.key())?.iter().position(|group| group.contains(&channel))?;
            Some((end.tile.key(), number))
        }
    }
}
