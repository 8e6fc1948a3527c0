//! Rings that do not end a dispatch where they began it.
//!
//! A ring is an endless chain of descriptors that the configuration starts. Like everything that is not loaded again, it keeps its place
//! from one dispatch to the next. If the words of a dispatch are not a whole number of turns, the next dispatch begins with another
//! buffer, or in the middle of one, and a program that begins with the first buffer reads the wrong one (mlir-air pull request 2014). Nothing
//! is wrong if both ends of each ring continue where they are, so this is a doubt and not an error.
//!
//! A turn is the sum of the lengths of the descriptors, padding included. The words of a dispatch are known where a circuit leads from or to a
//! channel of a shim, or packets lead from it: they are the lengths of the tasks that the instruction stream starts there, repetitions included. They are followed
//! from there: a circuit has as many words at both ends, and a lock that one ring alone releases and one other alone acquires is taken as
//! often as it is given, so that it ends a dispatch as it began it. Rings of cores are reached from both sides; that a core uses the
//! buffers of its rings one by one, and all that are full, is what a run shows. Left out are
//!
//! - rings that only cores connect with a shim, and iterations of descriptors, which can take several turns;
//! - routes of packets, but for those of one id from a shim whose last switch leaves the header out; rings that send headers;
//! - compressed words, channels with out-of-order packets or an end at TLAST, chains that do not return to their first descriptor;
//! - locks that are waited for to be equal to a value;
//! - tiles whose DMA the stream configures or starts, and streams that load a PDI or change switches.

use super::Problem;
use super::descriptor::Descriptor;
use super::flow::{Key, key};
use super::position::Position;
use super::routes::{Hop, Place, Route};
use super::stream::{Action, Stream};
use super::switch::PacketRule;
use super::tile::{Channel, ChannelId, Tile, User, neighbour};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, BTreeSet};

type Tiles = BTreeMap<(u8, u8), Tile>;

/// The rings that a dispatch leaves in the middle of a turn, and the locks between rings that it does not leave as it found them.
pub(super) fn unfinished(tiles: &Tiles, routes: &[Route], stream: &Stream) -> Vec<Problem> {
    let Some(moved) = Moved::of(tiles, stream) else { return Vec::new() };
    let untouched = tiles.values().filter(|tile| !moved.touched.contains(&tile.position.key()));
    let channels = untouched.flat_map(|tile| tile.channels.iter().map(move |channel| (tile, channel)));
    let rings = channels.filter_map(|(tile, channel)| {
        let ring = Ring { tile, id: channel.id, descriptors: ring(tile, channel)? };
        (ring.turn() > 0).then(|| (key(tile.position.key(), channel.id), ring))
    });
    let mut walk = Walk { rings: rings.collect(), words: BTreeMap::new(), doubts: Vec::new() };
    let ends: Vec<_> = walk.rings.iter().filter_map(|(at, ring)| Some((*at, ring.other_end(tiles, routes)?))).collect();
    let mut open = Vec::new();
    for (at, (far, other, id)) in &ends {
        if let Some(words) = moved.words(*far, *other, *id) {
            open.extend(walk.enter(*at, words, &format!("{far} {other}")));
        }
    }
    while let Some((at, turns)) = open.pop() {
        // Locks of the ring, and what is at the other end of its circuits.
        let next = walk.through_locks(tiles, at, turns);
        open.extend(next);
        let words = walk.words[&at];
        let from = format!("{} {}", walk.rings[&at].tile.position, walk.rings[&at].id);
        let is_end = |(far, other, _): &FarEnd| key(far.key(), *other) == at;
        let neighbours: Vec<Key> = ends.iter().filter(|(_, end)| is_end(end)).map(|(ring, _)| *ring).collect();
        let own = ends.iter().find(|(ring, _)| *ring == at).map(|(_, (far, other, _))| key(far.key(), *other));
        for ring in neighbours.into_iter().chain(own) {
            open.extend(walk.enter(ring, words, &from));
        }
    }
    walk.doubts
}

/// A ring of a channel.
struct Ring<'a> {
    tile: &'a Tile,
    id: ChannelId,
    /// Descriptors and their words.
    descriptors: Vec<(u8, u64)>,
}

impl Ring<'_> {
    fn turn(&self) -> u64 {
        self.descriptors.iter().map(|(_, words)| words).sum()
    }

    fn other_end(&self, tiles: &Tiles, routes: &[Route]) -> Option<FarEnd> {
        other_end(tiles, routes, self.tile.position, self.id)
    }

    /// Locks that a turn acquires or releases, with how much of each; None for one that is waited for to be equal.
    fn locks(&self, acquired: bool) -> BTreeMap<(u8, u8, u8), Option<u64>> {
        let mut found = BTreeMap::new();
        for descriptor in self.descriptors.iter().filter_map(|(id, _)| self.tile.descriptor(*id)) {
            let Some(used) = (if acquired { descriptor.acquire } else { descriptor.release }) else { continue };
            let Some((column, row)) = neighbour(self.tile.position.key(), used.owner) else { continue };
            let value = if acquired { -i64::from(used.value) } else { used.value.into() };
            let sum = found.entry((column, row, used.lock)).or_insert(Some(0));
            *sum = sum.zip(u64::try_from(value).ok().filter(|value| *value > 0)).map(|(sum, value)| sum + value);
        }
        found
    }
}

/// Words of rings, as far as they are known.
struct Walk<'a> {
    rings: BTreeMap<Key, Ring<'a>>,
    words: BTreeMap<Key, u64>,
    doubts: Vec<Problem>,
}

impl Walk<'_> {
    /// Enters what a ring gets or sends by its circuit. Gives its turns if they are whole, and were not known.
    fn enter(&mut self, at: Key, words: u64, far: &str) -> Option<(Key, u64)> {
        let ring = self.rings.get(&at)?;
        if let Some(known) = self.words.get(&at) {
            if *known != words {
                let what = format!(
                    "{} moves {known} words in a dispatch by its locks or its circuit, and {words} by its circuit with {far}",
                    ring.id
                );
                self.doubts.push(Problem { tile: Some(ring.tile.position), what });
            }
            return None;
        }
        self.words.insert(at, words);
        let turn = ring.turn();
        if words.is_multiple_of(turn) {
            return Some((at, words / turn));
        }
        let (mut into, mut number) = (words % turn, 0);
        while into >= ring.descriptors[number].1 {
            into -= ring.descriptors[number].1;
            number += 1;
        }
        let place = if into == 0 { "in front of".to_owned() } else { format!("{into} words into") };
        let (does, towards) = match ring.id.direction {
            Direction::StreamToMemory => ("gets", "from"),
            Direction::MemoryToStream => ("sends", "to"),
        };
        let what = format!(
            "{} {does} {words} words {towards} {far} in a dispatch, which is not a multiple of the {turn} words of its ring of {} BDs: it \
             ends {place} BD {}, number {} of them, and the next dispatch begins there unless the configuration is loaded again",
            ring.id,
            ring.descriptors.len(),
            ring.descriptors[number].0,
            number + 1
        );
        self.doubts.push(Problem { tile: Some(ring.tile.position), what });
        None
    }

    /// The rings that share a lock with one that makes so many turns, with theirs.
    fn through_locks(&mut self, tiles: &Tiles, at: Key, turns: u64) -> Vec<(Key, u64)> {
        let mut found = Vec::new();
        for acquires in [true, false] {
            for (lock, each) in self.rings[&at].locks(acquires) {
                let Some(each) = each.filter(|_| self.users(tiles, lock, acquires) == Some(at)) else { continue };
                let Some(other) = self.users(tiles, lock, !acquires) else { continue };
                let other_ring = &self.rings[&other];
                let Some(Some(theirs)) = other_ring.locks(!acquires).get(&lock).copied() else { continue };
                let uses = turns * each;
                let turn = other_ring.turn();
                let known = self.words.get(&other).copied();
                if uses.is_multiple_of(theirs) && known.is_none_or(|words| words == uses / theirs * turn) {
                    if known.is_none() {
                        self.words.insert(other, uses / theirs * turn);
                        found.push((other, uses / theirs));
                    }
                    continue;
                }
                let (column, row, number) = lock;
                let [own, others] = if acquires { ["acquires", "releases"] } else { ["releases", "acquires"] };
                let ring = &self.rings[&at];
                let then = match known {
                    Some(words) => format!("which moves {words} words"),
                    None => "which would end within a turn".to_owned(),
                };
                let what = format!(
                    "{} {own} lock {number} of ({column},{row}) by {uses} in a dispatch; {} of {} {others} it by {theirs} in a turn of {turn} \
                     words, {then}: the lock does not end as it began",
                    ring.id, other_ring.id, other_ring.tile.position
                );
                let doubt = Problem { tile: Some(ring.tile.position), what };
                // Seen from one end it is said.
                if known.is_none() || acquires {
                    self.doubts.push(doubt);
                }
            }
        }
        found
    }

    /// The ring that alone acquires or releases a lock.
    fn users(&self, tiles: &Tiles, lock: (u8, u8, u8), acquires: bool) -> Option<Key> {
        let (column, row, number) = lock;
        let state = tiles.get(&(column, row))?.locks.iter().find(|state| state.lock == number)?;
        let mut only = None;
        for user in if acquires { &state.acquired_by } else { &state.released_by } {
            let User::Descriptor { column, row, descriptor } = *user else { return None };
            let runs = |ring: &Ring<'_>| {
                ring.tile.position.key() == (column, row) && ring.descriptors.iter().any(|(id, _)| *id == descriptor)
            };
            let tile = tiles.get(&(column, row))?;
            let tasks = tile
                .channels
                .iter()
                .filter(|channel| channel.tasks.iter().any(|task| task.chain.contains(&descriptor)));
            // One that no channel runs does nothing.
            for _ in tasks {
                let (found, _) = self.rings.iter().find(|(_, ring)| runs(ring))?;
                if *only.get_or_insert(*found) != *found {
                    return None;
                }
            }
        }
        only
    }
}

/// The descriptors of a channel's ring and their words; None if it has no ring, or one whose words cannot be counted.
fn ring(tile: &Tile, channel: &Channel) -> Option<Vec<(u8, u64)>> {
    let [task] = &channel.tasks[..] else { return None };
    let chain: Vec<_> = task.chain.iter().map(|id| tile.descriptor(*id)).collect::<Option<_>>()?;
    let is_ring = task.endless && chain.last()?.next == Some(task.descriptor) && tile.position.kind != TileKind::Shim;
    let sends = channel.id.direction == Direction::MemoryToStream;
    let counted = !channel.out_of_order && !channel.finish_on_tlast;
    let plain = !chain.iter().any(|descriptor| descriptor.compress || sends && descriptor.packet.is_some());
    (is_ring && counted && plain).then(|| chain.iter().map(|descriptor| (descriptor.id, descriptor.words)).collect())
}

/// The other end of a channel's only route, if that is a circuit from or to a channel, or packets of one id come from one without their
/// header.
fn other_end(tiles: &Tiles, routes: &[Route], tile: Position, channel: ChannelId) -> Option<FarEnd> {
    let ends = |route: &Route| match channel.direction {
        Direction::StreamToMemory => (route.to, route.from),
        Direction::MemoryToStream => (route.from, route.to),
    };
    let place = Place::Dma { direction: channel.direction, channel: channel.channel };
    let mut found = routes.iter().filter(|route| ends(route).0.tile == tile && ends(route).0.place == place);
    let (Some(route), None) = (found.next(), found.next()) else { return None };
    let far = ends(route).1;
    match far.place {
        Place::Dma { direction, channel: number } => {
            let is_circuit = !route.hops.iter().any(|hop| hop.packets);
            let id = if is_circuit { None } else { Some(id_without_header(tiles, route)?) };
            let is_counted = is_circuit || channel.direction == Direction::StreamToMemory;
            is_counted.then_some((far.tile, ChannelId { direction, channel: number }, id))
        }
        _ => None,
    }
}

/// The id of a route's packets if there is one, and the last switch that routes them, and no other, leaves the header out.
fn id_without_header(tiles: &Tiles, route: &Route) -> Option<u8> {
    let id = route.packets.filter(|packets| packets.mask == 31)?.id;
    let drops = |hop: &Hop| {
        let rules = tiles.get(&hop.tile.key()).map_or(&[][..], |tile| &tile.switch.rules);
        let takes = |rule: &&PacketRule| rule.slave == hop.slave && (rule.id ^ id) & rule.mask == 0;
        let masters = rules.iter().find(takes).map_or(&[][..], |rule| &rule.masters);
        masters.iter().any(|master| master.port == hop.master && master.drop_header)
    };
    let drops: Vec<bool> = route.hops.iter().filter(|hop| hop.packets).map(drops).collect();
    let (last, before) = drops.split_last()?;
    (*last && !before.contains(&true)).then_some(id)
}

/// A tile, its channel, and the id of packets that lead from it.
type FarEnd = (Position, ChannelId, Option<u8>);

/// What an instruction stream moves and configures.
#[derive(Default)]
struct Moved {
    /// Words of shims' channels, by the id of their packets if they have a header.
    shims: BTreeMap<(Key, Option<u8>), u64>,
    /// Channels of shims of which they are not known.
    unknown: BTreeSet<Key>,
    /// Other tiles whose DMA it configures or starts.
    touched: BTreeSet<(u8, u8)>,
}

impl Moved {
    /// None if the stream changes routes or loads another configuration.
    fn of(tiles: &Tiles, stream: &Stream) -> Option<Self> {
        let mut moved = Self::default();
        let mut headers = BTreeMap::new();
        for tile in tiles.values().filter(|tile| tile.position.kind == TileKind::Shim) {
            let place = |descriptor: &Descriptor| (tile.position.column, descriptor.id);
            headers.extend(tile.descriptors.iter().filter_map(|found| Some((place(found), found.packet?.id))));
            for channel in &tile.channels {
                if !channel.tasks.is_empty() || channel.out_of_order || channel.finish_on_tlast {
                    moved.unknown.insert(key(tile.position.key(), channel.id));
                }
            }
        }
        for action in stream.actions() {
            match action {
                Action::LoadPdi { .. } => return None,
                Action::Register { name: Some(name), .. }
                    if matches!(&name[..], "stream switch" | "shim multiplexer") =>
                {
                    return None;
                }
                Action::Start { tile, channel, task, transfers } if tile.kind == TileKind::Shim => {
                    let at = key(tile.key(), *channel);
                    let ids: BTreeSet<Option<u8>> =
                        task.chain.iter().map(|id| headers.get(&(tile.column, *id)).copied()).collect();
                    let words = transfers.iter().map(|transfer| transfer.words).sum::<u64>() * u64::from(task.runs);
                    match ids.first() {
                        Some(id) if ids.len() == 1 && !task.endless => {
                            let sum = moved.shims.entry((at, *id)).or_insert(0);
                            *sum = sum.saturating_add(words);
                        }
                        _ => drop(moved.unknown.insert(at)),
                    }
                }
                Action::Control { tile, channel, controller: None, .. } if tile.kind == TileKind::Shim => {
                    moved.unknown.insert(key(tile.key(), *channel));
                }
                Action::Descriptor { tile, descriptor } if tile.kind == TileKind::Shim => {
                    let place = (tile.column, descriptor.id);
                    match descriptor.packet {
                        Some(header) => headers.insert(place, header.id),
                        None => headers.remove(&place),
                    };
                }
                Action::Descriptor { tile, .. }
                | Action::DescriptorWord { tile, .. }
                | Action::Start { tile, .. }
                | Action::Control { tile, .. } => {
                    moved.touched.insert(tile.key());
                }
                _ => {}
            }
        }
        Some(moved)
    }

    /// The words that a channel of a shim moves in packets of an id, or without packets, if they are known. Headers where there is a circuit
    /// arrive, and words without one where packets are routed go anywhere.
    fn words(&self, tile: Position, channel: ChannelId, id: Option<u8>) -> Option<u64> {
        let at = key(tile.key(), channel);
        let mut of_channel = self.shims.keys().filter(|(key, _)| *key == at);
        let is_known = !self.unknown.contains(&at) && of_channel.all(|(_, other)| other.is_some() == id.is_some());
        (is_known && tile.kind == TileKind::Shim).then(|| self.shims.get(&(at, id)).copied().unwrap_or(0))
    }
}
