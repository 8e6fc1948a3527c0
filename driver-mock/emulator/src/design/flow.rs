//! Which channels what a channel sends gets to: through circuits and packets, from channel to channel through the locks of a buffer, and
//! through cores.
//!
//! A core takes what comes into its own tile's memory, and what leaves from there is its; whose other buffers it uses, the locks that it
//! names say, and so does its cascade. It is not known what a core makes of what.

use super::routes::{Place, Route};
use super::tile::{ChannelId, Tile, User, neighbour};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, BTreeSet};

/// Column, row, direction, number.
pub(super) type Key = (u8, u8, u8, u8);

pub(super) fn key((column, row): (u8, u8), channel: ChannelId) -> Key {
    (column, row, channel.direction.code(), channel.channel)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Channel(Key),
    Core(u8, u8),
}

/// The ways of words from a channel of a shim.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Channels that get something of what a shim's channel sends.
    reached: BTreeMap<Key, BTreeSet<Key>>,
}

impl Flow {
    pub fn of(tiles: &BTreeMap<(u8, u8), Tile>, routes: &[Route]) -> Self {
        let mut next: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
        let node = |end: super::routes::End| match end.place {
            Place::Dma { direction, channel } => {
                Some(Node::Channel(key(end.tile.key(), ChannelId { direction, channel })))
            }
            Place::Core => Some(Node::Core(end.tile.column, end.tile.row)),
            _ => None,
        };
        let mut add = |from: Option<Node>, to: Option<Node>| {
            if let (Some(from), Some(to)) = (from, to) {
                next.entry(from).or_default().insert(to);
            }
        };
        routes.iter().for_each(|route| add(node(route.from), node(route.to)));
        for tile in tiles.values() {
            let (column, row) = tile.position.key();
            if let Some(core) = &tile.core {
                let here = Some(Node::Core(column, row));
                for channel in 0..2 {
                    let at = |direction| Some(Node::Channel(key((column, row), ChannelId { direction, channel })));
                    add(at(Direction::StreamToMemory), here);
                    add(here, at(Direction::MemoryToStream));
                }
                let output = core.cascade.and_then(|(_, output)| neighbour((column, row), output));
                add(here, output.map(|(column, row)| Node::Core(column, row)));
            }
            for lock in &tile.locks {
                let users =
                    |users: &[User]| -> Vec<Node> { users.iter().flat_map(|user| nodes(tiles, user)).collect() };
                for from in users(&lock.released_by) {
                    users(&lock.acquired_by).into_iter().for_each(|to| add(Some(from), Some(to)));
                }
            }
        }
        let shims = tiles.values().filter(|tile| tile.position.kind == TileKind::Shim);
        let sources = shims.flat_map(|tile| {
            (0..2).map(|channel| key(tile.position.key(), ChannelId { direction: Direction::MemoryToStream, channel }))
        });
        let reached = sources.map(|source| (source, walk(&next, source))).collect();
        Self { reached }
    }

    /// Whether something of what `from`, a shim's channel, sends may be part of what `to` gets.
    pub fn reaches(&self, from: Key, to: Key) -> bool {
        self.reached.get(&from).is_some_and(|reached| reached.contains(&to))
    }
}

/// Who runs a descriptor, or the core.
fn nodes(tiles: &BTreeMap<(u8, u8), Tile>, user: &User) -> Vec<Node> {
    match *user {
        User::Core { column, row } => vec![Node::Core(column, row)],
        User::Descriptor { column, row, descriptor } => {
            let channels = tiles.get(&(column, row)).map_or(&[][..], |tile| &tile.channels);
            let runs =
                channels.iter().filter(|channel| channel.tasks.iter().any(|task| task.chain.contains(&descriptor)));
            runs.map(|channel| Node::Channel(key((column, row), channel.id))).collect()
        }
    }
}

fn walk(next: &BTreeMap<Node, BTreeSet<Node>>, source: Key) -> BTreeSet<Key> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![Node::Channel(source)]);
    while let Some(at) = open.pop() {
        if seen.insert(at) {
            open.extend(next.get(&at).into_iter().flatten());
        }
    }
    seen.into_iter().filter_map(|node| if let Node::Channel(key) = node { Some(key) } else { None }).collect()
}
