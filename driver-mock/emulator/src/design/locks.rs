//! Locks that can come to more than they hold.
//!
//! A lock keeps six bits, and there is no public measurement of what happens above 63. Descriptors pass on what they take: one that acquires as much
//! of a lock as it releases of another leaves the sum of both as it was. So the locks that descriptors connect with each other hold in all
//! what they began with, and none of them can exceed that, provided that cores pass on what they take as well.
//!
//! Left out, since there is no such bound, are locks whose descriptors release more or less than they acquire, and tasks that a stream
//! starts: a run shows what those come to.

use super::Problem;
use super::check::LOCK_MAX;
use super::descriptor::{Descriptor, LockUse};
use super::tile::{Tile, neighbour};
use std::collections::{BTreeMap, BTreeSet};

type Tiles = BTreeMap<(u8, u8), Tile>;
/// Column, row and number.
type Lock = (u8, u8, u8);

/// The groups of locks that hold more in all than one of them can.
pub(super) fn overfull(tiles: &Tiles) -> Vec<Problem> {
    let mut groups: Vec<BTreeSet<Lock>> = Vec::new();
    let mut unbalanced: BTreeSet<Lock> = BTreeSet::new();
    for tile in tiles.values() {
        let chains = tile.channels.iter().flat_map(|channel| &channel.tasks).flat_map(|task| &task.chain);
        for descriptor in chains.filter_map(|id| tile.descriptor(*id)) {
            let Descriptor { acquire, release, .. } = descriptor;
            let place = |used: &LockUse| neighbour(tile.position.key(), used.owner).map(|(c, r)| (c, r, used.lock));
            let locks: BTreeSet<Lock> = [acquire, release].into_iter().flatten().filter_map(place).collect();
            let change: i32 = [acquire, release].into_iter().flatten().map(|used| i32::from(used.value)).sum();
            if change != 0 {
                unbalanced.extend(&locks);
            }
            // Groups with one of its locks become one.
            let (mut joined, apart): (Vec<_>, Vec<_>) =
                groups.into_iter().partition(|group| !group.is_disjoint(&locks));
            joined.push(locks);
            groups = apart;
            groups.push(joined.into_iter().flatten().collect());
        }
    }
    let value = |(column, row, lock): &Lock| {
        let states = tiles.get(&(*column, *row)).map_or(&[][..], |tile| &tile.locks);
        states.iter().find(|state| state.lock == *lock).map_or(0, |state| u32::from(state.value))
    };
    let doubt = |group: &BTreeSet<Lock>| {
        let total: u32 = group.iter().map(value).sum();
        let (column, row, _) = *group.first().filter(|_| total > LOCK_MAX && group.is_disjoint(&unbalanced))?;
        let locks: Vec<String> =
            group.iter().map(|(column, row, lock)| format!("{lock} of ({column},{row})")).collect();
        let what = format!(
            "locks {} hold {total} in all, which can gather in one of them: a lock holds 0 to {LOCK_MAX}",
            locks.join(", ")
        );
        Some(Problem { tile: tiles.get(&(column, row)).map(|tile| tile.position), what })
    };
    groups.iter().filter_map(doubt).collect()
}
