//! Which operations have to keep which distance.
//!
//! Nothing interlocks and registers are read and written in the cycles of the tables, so distances may be negative: what
//! overwrites a register late may be issued before the last reader of the old value.

use super::operation::{Effect, Op};
use super::register::AliasRegion;
use super::timing::{Leaf, RowTiming};
use aie_isa::Bypass;
use std::collections::HashMap;

/// `to` is issued at least `distance` cycles after `from` of so many iterations before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Edge {
    pub from: usize,
    pub to: usize,
    pub distance: i32,
    pub iterations: u32,
}

/// A read or write of a leaf by an operation, whatever row it becomes.
#[derive(Clone, Copy, Debug)]
struct Reach {
    op: usize,
    iteration: u32,
    first: i32,
    last: i32,
    bypass: Option<Bypass>,
    dead: bool,
}

type Reaches = Vec<(Leaf, Reach)>;

#[derive(Default)]
struct History {
    write: Option<Reach>,
    reads: Vec<Reach>,
}

/// An operation that has an effect, and its memory stages.
#[derive(Clone, Copy)]
struct Touch {
    op: usize,
    iteration: u32,
    effect: Effect,
    read: i32,
    write: i32,
    /// The first cycle in which it reaches memory.
    reaches: i32,
}

/// The cycle of an acquire in which the core has certainly gone on after waiting (LLVM's model).
const ACQUIRED: i32 = 8;

/// The distances between operations of a sequence; `carried`: that is repeated, from each iteration to the next too.
pub(super) fn edges(ops: &[Op], timings: &[Vec<RowTiming>], carried: bool) -> Vec<Edge> {
    let mut edges = HashMap::new();
    let mut add = |from: usize, from_iteration: u32, to: usize, iteration: u32, distance: i32| {
        let iterations = iteration - from_iteration;
        // The second pass finds again what the first has found.
        if iteration == 0 || iterations == 1 {
            let edge = edges.entry((from, to, iterations)).or_insert(distance);
            *edge = distance.max(*edge);
        }
    };
    let mut leaves: HashMap<Leaf, History> = HashMap::new();
    let mut touches: Vec<Touch> = Vec::new();
    for iteration in 0..=u32::from(carried) {
        for (op, rows) in timings.iter().enumerate() {
            let (reads, writes) = reaches(op, iteration, rows);
            for (leaf, read) in &reads {
                let history = leaves.entry(*leaf).or_default();
                if let Some(write) = history.write {
                    let shared = write.bypass.is_some() && write.bypass == read.bypass;
                    let distance = write.last - read.first + i32::from(!shared);
                    add(write.op, write.iteration, op, iteration, distance);
                }
            }
            for (leaf, write) in &writes {
                let history = leaves.entry(*leaf).or_default();
                if let Some(before) = history.write {
                    add(before.op, before.iteration, op, iteration, before.last - write.first + 1);
                }
                for read in &history.reads {
                    // A read over a bypass may still take part in its own cycle.
                    let distance = read.last - write.first + i32::from(read.bypass.is_some() || write.dead);
                    add(read.op, read.iteration, op, iteration, distance);
                }
            }
            for (leaf, read) in reads {
                leaves.entry(leaf).or_default().reads.push(read);
            }
            for (leaf, write) in writes {
                leaves.insert(leaf, History { write: Some(write), reads: Vec::new() });
            }
            let touch = touch(op, iteration, ops[op].effect, rows);
            if touch.effect != Effect::None {
                for before in &touches {
                    if let Some(distance) = apart(before, &touch) {
                        add(before.op, before.iteration, op, iteration, distance);
                    }
                }
                touches.push(touch);
            }
        }
    }
    let edges = edges.into_iter();
    let mut edges: Vec<Edge> =
        edges.map(|((from, to, iterations), distance)| Edge { from, to, distance, iterations }).collect();
    // A map has no order; schedules should be the same each time.
    edges.sort_by_key(|edge| (edge.from, edge.to, edge.iterations));
    // An operation that reads and writes a leaf does not wait for itself.
    edges.retain(|edge| edge.from != edge.to || edge.iterations > 0);
    edges
}

/// The reads and writes of an operation: the widest ranges over its rows.
fn reaches(op: usize, iteration: u32, rows: &[RowTiming]) -> (Reaches, Reaches) {
    let mut found: Vec<(Leaf, bool, Reach)> = Vec::new();
    for access in rows.iter().flat_map(|row| &row.accesses) {
        let (cycle, bypass) = (i32::from(access.cycle), access.bypass);
        // An unused result must not be on its way while older values are read.
        let first = if access.dead { 1 } else { cycle };
        match found.iter_mut().find(|(leaf, write, _)| (*leaf, *write) == (access.leaf, access.write)) {
            Some((.., reach)) => {
                reach.first = reach.first.min(first);
                reach.last = reach.last.max(cycle);
                reach.bypass = reach.bypass.filter(|network| Some(*network) == bypass);
            }
            None => {
                let reach = Reach { op, iteration, first, last: cycle, bypass, dead: access.dead };
                found.push((access.leaf, access.write, reach));
            }
        }
    }
    let (writes, reads): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, write, _)| *write);
    let plain = |list: Vec<(Leaf, bool, Reach)>| list.into_iter().map(|(leaf, _, reach)| (leaf, reach)).collect();
    (plain(reads), plain(writes))
}

fn touch(op: usize, iteration: u32, effect: Effect, rows: &[RowTiming]) -> Touch {
    let stage = |get: fn(&RowTiming) -> Option<u8>| rows.iter().filter_map(get).max().map_or(1, i32::from);
    let (read, write) = (stage(|row| row.memory_read), stage(|row| row.memory_write));
    let last = rows.iter().map(|row| i32::from(row.last)).max().unwrap_or(1);
    // Tile registers have no memory stages: they are through when the instruction is.
    let write = if rows.iter().any(|row| row.memory_write.is_some()) { write } else { last };
    let stages = |row: &RowTiming| row.memory_read.into_iter().chain(row.memory_write).min();
    let reaches = rows.iter().filter_map(stages).min().map_or(1, i32::from);
    Touch { op, iteration, effect, read, write, reaches }
}

fn meet(a: Option<AliasRegion>, b: Option<AliasRegion>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// The distance between two effects, if they are ordered.
fn apart(before: &Touch, after: &Touch) -> Option<i32> {
    use Effect as E;
    Some(match (before.effect, after.effect) {
        (E::None, _) | (_, E::None) | (E::Load(_), E::Load(_)) => return None,
        (E::Store(a), E::Load(b)) => meet(a, b).then_some(before.write + 1 - after.read)?,
        (E::Load(a), E::Store(b)) => meet(a, b).then_some(before.read + 1 - after.write)?,
        (E::Store(a), E::Store(b)) => meet(a, b).then_some(before.write + 1 - after.write)?,
        // The core stops: all has to be done.
        (E::Load(_), E::Done) => before.read + 1,
        (E::Store(_), E::Acquire | E::Release | E::Done) => before.write + 1,
        (E::Load(_), E::Acquire | E::Release) => before.read,
        (E::Acquire, E::Load(_) | E::Store(_)) => (ACQUIRED + 1 - after.reaches).max(1),
        (E::Load(_) | E::Store(_), E::Ordered) | (E::Ordered, E::Load(_) | E::Store(_)) => return None,
        (E::Acquire | E::Release | E::Ordered, _) | (E::Done, _) => 1,
    })
}
