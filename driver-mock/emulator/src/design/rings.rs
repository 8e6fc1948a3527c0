//! Rings that do not end a dispatch where they began it.
//!
//! A ring is an endless chain of descriptors that the configuration starts. Like everything that is not loaded again, it keeps its place
//! from one dispatch to the next. If the words of a dispatch are not a whole number of turns, the next dispatch begins with another
//! buffer, or in the middle of one, and a program that begins with the first buffer reads the wrong one (mlir-air pull request 2014). Nothing
//! is wrong if both ends of each ring continue where they are, so this is a doubt and not an error.
//!
//! A turn is the sum of the lengths of the descriptors, padding included. The words of a dispatch are known if the ring has a circuit
//! from or to a channel of a shim: they are the lengths of the tasks that the instruction stream starts there, repetitions included. Left
//! out are
//!
//! - rings behind other rings, and iterations of descriptors, which can take several turns;
//! - routes of packets, and descriptors with a header: whether headers are stored depends on each switch on the way;
//! - compressed words, channels with out-of-order packets or an end at TLAST, chains that do not return to their first descriptor;
//! - tiles whose DMA the stream configures or starts, and streams that load a PDI or change switches.

use super::Problem;
use super::position::Position;
use super::routes::{Place, Route};
use super::stream::{Action, Stream};
use super::tile::{Channel, ChannelId, Tile};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, BTreeSet};

type Tiles = BTreeMap<(u8, u8), Tile>;

/// The rings that a dispatch leaves in the middle of a turn.
pub(super) fn unfinished(tiles: &Tiles, routes: &[Route], stream: &Stream) -> Vec<Problem> {
    let Some(moved) = Moved::of(tiles, stream) else { return Vec::new() };
    let untouched = tiles.values().filter(|tile| !moved.touched.contains(&tile.position.key()));
    let channels = untouched.flat_map(|tile| tile.channels.iter().map(move |channel| (tile, channel)));
    let doubt = |(tile, channel): (&Tile, &Channel)| {
        let ring = ring(tile, channel)?;
        let turn: u64 = ring.iter().map(|(_, words)| words).sum();
        let (far, other) = other_end(routes, tile.position, channel.id)?;
        let words = moved.words(far, other)?;
        let mut into = words.checked_rem(turn).filter(|rest| *rest != 0)?;
        let mut at = 0;
        while into >= ring[at].1 {
            into -= ring[at].1;
            at += 1;
        }
        let place = if into == 0 { "in front of".to_owned() } else { format!("{into} words into") };
        let (does, towards) = match channel.id.direction {
            Direction::StreamToMemory => ("gets", "from"),
            Direction::MemoryToStream => ("sends", "to"),
        };
        let what = format!(
            "{} {does} {words} words {towards} {far} {other} in a dispatch, which is not a multiple of the {turn} words of its ring of {} BDs: it \
             ends {place} BD {}, number {} of them, and the next dispatch begins there unless the configuration is loaded again",
            channel.id,
            ring.len(),
            ring[at].0,
            at + 1
        );
        Some(Problem { tile: Some(tile.position), what })
    };
    channels.filter_map(doubt).collect()
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

/// The other end of a channel's only route, if that is a circuit from or to a channel.
fn other_end(routes: &[Route], tile: Position, channel: ChannelId) -> Option<(Position, ChannelId)> {
    let ends = |route: &Route| match channel.direction {
        Direction::StreamToMemory => (route.to, route.from),
        Direction::MemoryToStream => (route.from, route.to),
    };
    let place = Place::Dma { direction: channel.direction, channel: channel.channel };
    let mut found = routes.iter().filter(|route| ends(route).0.tile == tile && ends(route).0.place == place);
    let (Some(route), None) = (found.next(), found.next()) else { return None };
    let far = ends(route).1;
    match far.place {
        Place::Dma { direction, channel } if !route.hops.iter().any(|hop| hop.packets) => {
            Some((far.tile, ChannelId { direction, channel }))
        }
        _ => None,
    }
}

/// What an instruction stream moves and configures.
#[derive(Default)]
struct Moved {
    /// Words of shims' channels, by column, direction and number; None if they are not known.
    shims: BTreeMap<(u8, u8, u8), Option<u64>>,
    /// Other tiles whose DMA it configures or starts.
    touched: BTreeSet<(u8, u8)>,
}

impl Moved {
    /// None if the stream changes routes or loads another configuration.
    fn of(tiles: &Tiles, stream: &Stream) -> Option<Self> {
        let mut moved = Self::default();
        let mut headers = BTreeSet::new();
        for tile in tiles.values().filter(|tile| tile.position.kind == TileKind::Shim) {
            let with_header = tile.descriptors.iter().filter(|descriptor| descriptor.packet.is_some());
            headers.extend(with_header.map(|descriptor| (tile.position.column, descriptor.id)));
            for channel in &tile.channels {
                if !channel.tasks.is_empty() || channel.out_of_order || channel.finish_on_tlast {
                    moved.shims.insert(key(tile.position, channel.id), None);
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
                    let known = !task.endless && !task.chain.iter().any(|id| headers.contains(&(tile.column, *id)));
                    let words = transfers.iter().map(|transfer| transfer.words).sum::<u64>() * u64::from(task.runs);
                    let sum = moved.shims.entry(key(*tile, *channel)).or_insert(Some(0));
                    *sum = sum.filter(|_| known).map(|sum| sum.saturating_add(words));
                }
                Action::Control { tile, channel, controller: None, .. } if tile.kind == TileKind::Shim => {
                    moved.shims.insert(key(*tile, *channel), None);
                }
                Action::Descriptor { tile, descriptor } if tile.kind == TileKind::Shim => {
                    let place = (tile.column, descriptor.id);
                    if descriptor.packet.is_some() {
                        headers.insert(place)
                    } else {
                        headers.remove(&place)
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

    /// The words that a channel of a shim moves, if they are known.
    fn words(&self, tile: Position, channel: ChannelId) -> Option<u64> {
        let words = self.shims.get(&key(tile, channel)).copied().unwrap_or(Some(0));
        words.filter(|_| tile.kind == TileKind::Shim)
    }
}

fn key(tile: Position, channel: ChannelId) -> (u8, u8, u8) {
    (tile.column, channel.direction.code(), channel.channel)
}
