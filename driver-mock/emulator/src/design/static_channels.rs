//! Channels of mem tiles and cores that the configuration starts, and what streams may do to them: nothing.
//!
//! A channel is static or pushed. What a stream pushes behind an endless task never runs, a descriptor of it that is written changes
//! under the channel, and a lock that is set tells a channel or a core of buffers that are not as it says. Where a stream resets a
//! channel and starts it again, as repairs of designs do, the channel is both: that has worked on silicon, and may not on all
//! (mlir-aie pull request 3393, silicon that hung on channels which a stream had started).
//!
//! A descriptor of an endless chain that acquires nothing moves words that are not known to be there, and one that releases
//! nothing signals nothing: what holds such a chain back is outside of it.

use super::Problem;
use super::flow::{Key, key};
use super::stream::{Action, Stream};
use super::tile::{CHANNEL_RESET, Tile, neighbour};
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, BTreeSet};

type Tiles = BTreeMap<(u8, u8), Tile>;

/// What belongs to channels that the configuration starts.
#[derive(Default)]
pub(super) struct Static {
    channels: BTreeSet<Key>,
    descriptors: BTreeSet<(u8, u8, u8)>,
    locks: BTreeSet<(u8, u8, u8)>,
}

impl Static {
    pub fn of(tiles: &Tiles) -> Self {
        let mut found = Self::default();
        for tile in tiles.values().filter(|tile| tile.position.kind != TileKind::Shim) {
            let (column, row) = tile.position.key();
            for channel in tile.channels.iter().filter(|channel| !channel.tasks.is_empty()) {
                found.channels.insert(key(tile.position.key(), channel.id));
                for id in channel.tasks.iter().flat_map(|task| &task.chain) {
                    found.descriptors.insert((column, row, *id));
                    let descriptor = tile.descriptor(*id);
                    let used = descriptor.iter().flat_map(|found| [found.acquire, found.release]).flatten();
                    let places = used.filter_map(|used| Some((neighbour((column, row), used.owner)?, used.lock)));
                    found.locks.extend(places.map(|((column, row), lock)| (column, row, lock)));
                }
            }
        }
        found
    }

    /// Whether all that moves in mem tiles and cores is what the configuration has started.
    pub fn is_whole_design(&self, stream: &Stream) -> bool {
        let pushes = |action: &Action| matches!(action, Action::Start { tile, .. } if tile.kind != TileKind::Shim);
        !self.channels.is_empty() && !stream.actions().any(pushes)
    }

    /// What a stream does to them: what cannot work, and what may not.
    pub fn touched(&self, stream: &Stream) -> (Vec<Problem>, Vec<Problem>) {
        let (mut problems, mut doubts) = (Vec::new(), Vec::new());
        let (mut reset, mut said) = (BTreeSet::new(), BTreeSet::new());
        for step in &stream.steps {
            for action in &step.actions {
                let (tile, does, what) = match action {
                    Action::Start { tile, channel, .. } if self.channels.contains(&key(tile.key(), *channel)) => {
                        (*tile, format!("pushes a task of {channel}"), Some(*channel))
                    }
                    Action::Control { tile, channel, mask, value, .. }
                        if self.channels.contains(&key(tile.key(), *channel)) =>
                    {
                        if mask & value & CHANNEL_RESET != 0 {
                            reset.insert(key(tile.key(), *channel));
                        }
                        (*tile, format!("writes the control register of {channel}"), Some(*channel))
                    }
                    Action::Descriptor { tile, descriptor } => {
                        match self.descriptors.contains(&(tile.column, tile.row, descriptor.id)) {
                            true => (*tile, format!("writes BD {}", descriptor.id), None),
                            false => continue,
                        }
                    }
                    Action::DescriptorWord { tile, descriptor, .. }
                        if self.descriptors.contains(&(tile.column, tile.row, *descriptor)) =>
                    {
                        (*tile, format!("writes BD {descriptor}"), None)
                    }
                    Action::Lock { tile, lock, .. } if self.locks.contains(&(tile.column, tile.row, *lock)) => {
                        (*tile, format!("sets lock {lock}"), None)
                    }
                    // From here on the configuration is another one.
                    Action::LoadPdi { .. } => return (problems, doubts),
                    _ => continue,
                };
                if !said.insert((tile.key(), does.clone())) {
                    continue;
                }
                // A repair of a tile begins with a reset of its channels.
                let of_tile = |key: &Key| (key.0, key.1) == tile.key();
                let is_reset =
                    what.map_or_else(|| reset.iter().any(of_tile), |channel| reset.contains(&key(tile.key(), channel)));
                let what = format!(
                    "operation {} {does}, which belongs to a channel that the configuration starts: a channel is static or pushed",
                    step.index
                );
                let list = if is_reset { &mut doubts } else { &mut problems };
                list.push(Problem { tile: Some(tile), what });
            }
        }
        (problems, doubts)
    }
}

/// Descriptors of endless chains that wait for nothing or signal nothing, and those that move nothing.
pub(super) fn unsynchronised(tiles: &Tiles) -> Vec<Problem> {
    let mut found = Vec::new();
    for tile in tiles.values().filter(|tile| tile.position.kind != TileKind::Shim) {
        for channel in &tile.channels {
            for id in channel.tasks.iter().filter(|task| task.endless).flat_map(|task| &task.chain) {
                let Some(descriptor) = tile.descriptor(*id) else { continue };
                let missing = match (descriptor.acquire.is_some(), descriptor.release.is_some()) {
                    _ if descriptor.words == 0 => "moves nothing",
                    (true, true) => continue,
                    (false, true) => "acquires no lock",
                    (true, false) => "releases no lock",
                    (false, false) => "uses no lock",
                };
                let what = format!("{} runs BD {id} in an endless chain, and it {missing}", channel.id);
                found.push(Problem { tile: Some(tile.position), what });
            }
        }
    }
    found
}
