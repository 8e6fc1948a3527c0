//! Schedules of loops whose iterations overlap: iterative modulo scheduling.
//!
//! An iteration begins each `interval` cycles. Variables keep one register: an iteration does not overwrite what the one before
//! still reads, which the dependences from one iteration to the next say. That costs little here, because a register is not in
//! use while a load or a product is on its way to it; where it does cost, the body is unrolled first, with variables of its own
//! for each copy.

use super::depend::Edge;
use super::list::Placement;
use super::reservation::{Formats, Reservation, bit};
use super::timing::RowTiming;
use aie_isa::Slot;
use std::collections::HashMap;

/// A loop's body of fewer bundles is not used: no compiled program has one whose first bundle is also its last.
const FEWEST_BUNDLES: usize = 2;

/// The schedule of a loop's body.
#[derive(Clone, Debug)]
pub(super) struct Modulo {
    pub interval: usize,
    pub stages: usize,
    pub placements: Vec<Placement>,
    /// The branch back, if that is an operation.
    pub back: Option<Back>,
}

/// Where counter and branch of a loop without hardware support are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    /// Where the counter is decremented, and where the branch is, in the bundles of the steady state.
    pub placements: [Placement; 2],
    /// By how many decrements the branch lags behind: it sees those of iterations before.
    pub lag: i64,
}

/// The fewest cycles that slots and units allow.
pub(super) fn resource_bound(timings: &[Vec<RowTiming>]) -> usize {
    // The long slot takes two others.
    let slots = |row: &RowTiming| match row.slot {
        Slot::Lng => bit(Slot::Alu) | bit(Slot::Mv),
        slot => bit(slot),
    };
    let simple = [Slot::Lda, Slot::Ldb, Slot::St, Slot::Alu, Slot::Mv, Slot::Vec];
    let mut bound = 1;
    for set in 1..1u32 << simple.len() {
        let chosen = simple.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        let chosen: u32 = chosen.map(|(_, slot)| bit(*slot)).sum();
        let within = timings.iter().filter(|rows| rows.iter().all(|row| slots(row) & !chosen == 0));
        let needed: usize =
            within.map(|rows| rows.iter().map(|row| slots(row).count_ones()).min().unwrap_or(0) as usize).sum();
        bound = bound.max(needed.div_ceil(chosen.count_ones() as usize));
    }
    let mut units: HashMap<u16, usize> = HashMap::new();
    for rows in timings.iter().filter(|rows| rows.len() == 1) {
        for unit in rows[0].units.iter().filter(|unit| !unit.weak) {
            *units.entry(unit.unit).or_default() += usize::from(unit.last - unit.first) + 1;
        }
    }
    units.into_values().fold(bound, usize::max)
}

/// The fewest cycles that dependences from one iteration to the next allow; None beyond `most`.
pub(super) fn recurrence_bound(count: usize, edges: &[Edge], most: usize) -> Option<usize> {
    let (mut low, mut high) = (1, most);
    longest(count, edges, high)?;
    while low < high {
        let middle = (low + high) / 2;
        if longest(count, edges, middle).is_some() { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

/// The longest way from each operation to any, or None if one comes back to itself later than it went.
fn longest(count: usize, edges: &[Edge], interval: usize) -> Option<Vec<i32>> {
    let mut heights = vec![0; count];
    for _ in 0..=count {
        let mut changed = false;
        for edge in edges.iter().rev() {
            let height = heights[edge.to] + weight(edge, interval);
            if height > heights[edge.from] {
                heights[edge.from] = height;
                changed = true;
            }
        }
        if !changed {
            return Some(heights);
        }
    }
    None
}

fn weight(edge: &Edge, interval: usize) -> i32 {
    edge.distance - interval as i32 * edge.iterations as i32
}

/// The schedule with the shortest interval in a range, if there is one. `free`: operations that may be late, because what they
/// read is there anyway. `behind`: the last two operations count and branch back, with so many bundles behind the branch.
pub(super) fn schedule(
    timings: &[Vec<RowTiming>],
    edges: &[Edge],
    formats: &Formats,
    intervals: std::ops::Range<usize>,
    free: &[bool],
    behind: Option<usize>,
) -> Option<Modulo> {
    let least = intervals.start.max(FEWEST_BUNDLES);
    let mut interval = least;
    let (mut step, mut tried) = (1, 0);
    while interval < intervals.end {
        if let Some(found) = at_interval(timings, edges, formats, interval, free, behind) {
            return Some(found);
        }
        // A body without a schedule near its bounds is searched with longer steps.
        tried += 1;
        step += tried / 4;
        interval += step;
    }
    None
}

struct Search<'s> {
    timings: &'s [Vec<RowTiming>],
    interval: i32,
    reservation: Reservation<'s>,
    placed: Vec<Option<(i32, usize)>>,
    into: Vec<Vec<&'s Edge>>,
    out: Vec<Vec<&'s Edge>>,
}

fn at_interval(
    timings: &[Vec<RowTiming>],
    edges: &[Edge],
    formats: &Formats,
    interval: usize,
    free: &[bool],
    behind: Option<usize>,
) -> Option<Modulo> {
    let count = timings.len();
    let heights = longest(count, edges, interval)?;
    let (mut into, mut out) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for edge in edges {
        into[edge.to].push(edge);
        out[edge.from].push(edge);
    }
    let reservation = Reservation::repeating(formats, interval);
    let mut search = Search { timings, interval: interval as i32, reservation, placed: vec![None; count], into, out };
    let mut last: Vec<Option<i32>> = vec![None; count];
    let mut budget = 6 * count + 40;
    loop {
        let left = (0..count).filter(|op| search.placed[*op].is_none());
        let Some(op) = left.max_by_key(|op| (heights[*op], std::cmp::Reverse(*op))) else {
            break;
        };
        budget = budget.checked_sub(1)?;
        let earliest = search.earliest(op);
        let latest = search.latest(op).map_or(i32::MAX, |latest| latest);
        let window = earliest..=(earliest + interval as i32 - 1);
        let found =
            window.clone().filter(|cycle| *cycle <= latest).find_map(|cycle| Some((cycle, search.row(op, cycle)?)));
        let (cycle, row) = match found {
            Some(found) => found,
            None => {
                // Force-place it somewhere new, and evict what conflicts.
                let cycle = last[op].map_or(earliest, |last| earliest.max(last + 1));
                (cycle, search.make_room(op, cycle)?)
            }
        };
        last[op] = Some(cycle);
        search.place(op, cycle, row);
    }
    search.delay(free);
    if let Some(behind) = behind {
        return search.turned(behind);
    }
    let first = search.placed.iter().flatten().map(|(cycle, _)| *cycle).min().unwrap_or(0);
    let placements = search.placed.iter().flatten();
    let placements: Vec<Placement> =
        placements.map(|(cycle, row)| Placement { cycle: (cycle - first) as usize, row: *row }).collect();
    let stages = placements.iter().map(|placement| placement.cycle / interval + 1).max().unwrap_or(1);
    Some(Modulo { interval, stages, placements, back: None })
}

impl Search<'_> {
    /// The first cycle that the operations it depends on allow.
    fn earliest(&self, op: usize) -> i32 {
        let before = self.into[op].iter().filter(|edge| edge.from != op);
        let cycles = before.filter_map(|edge| Some(self.placed[edge.from]?.0 + self.weight(edge)));
        cycles.max().unwrap_or(0).max(0)
    }

    /// The last cycle that the operations which depend on it allow.
    fn latest(&self, op: usize) -> Option<i32> {
        let after = self.out[op].iter().filter(|edge| edge.to != op);
        after.filter_map(|edge| Some(self.placed[edge.to]?.0 - self.weight(edge))).min()
    }

    /// Moves what was placed as early as it could be to where it is needed, so that results wait in registers for less long.
    fn delay(&mut self, free: &[bool]) {
        let mut order: Vec<usize> = (0..self.placed.len()).filter(|op| free[*op]).collect();
        order.sort_by_key(|op| std::cmp::Reverse(self.placed[*op].map(|(cycle, _)| cycle)));
        // Not beyond the last one: that would be another stage.
        let end = self.placed.iter().flatten().map(|(cycle, _)| *cycle).max().unwrap_or(0);
        for op in order {
            let (Some((cycle, row)), Some(latest)) = (self.placed[op], self.latest(op)) else {
                continue;
            };
            self.remove(op);
            let latest = latest.min(cycle + self.interval - 1).min(end);
            let later = (cycle + 1..=latest).rev().find_map(|later| Some((later, self.row(op, later)?)));
            let (cycle, row) = later.unwrap_or((cycle, row));
            self.reservation.take(&self.timings[op][row], cycle.rem_euclid(self.interval) as usize);
            self.placed[op] = Some((cycle, row));
        }
    }

    /// Takes counter and branch out, and turns the schedule so that the branch has `behind` bundles behind it: in that of its free
    /// cycles in which the fewest stages come of it. Both are only in the steady state, whose iterations alone are counted.
    fn turned(mut self, behind: usize) -> Option<Modulo> {
        let (interval, branch) = (self.interval, self.placed.len().checked_sub(1)?);
        let counter = branch.checked_sub(1)?;
        self.remove(branch);
        self.remove(counter);
        let body: Vec<(i32, usize)> = self.placed.iter().flatten().copied().collect();
        let (low, high) = (body.iter().map(|at| at.0).min()?, body.iter().map(|at| at.0).max()?);
        let place = interval - 1 - i32::try_from(behind).ok()?;
        let mut ways: Vec<(i32, i32, i32)> = (0..interval)
            .map(|at| {
                let shift = (place - at).rem_euclid(interval);
                ((high + shift) / interval - (low + shift) / interval + 1, shift, at)
            })
            .collect();
        ways.sort_unstable();
        let apart = |edges: &[&Edge], from: usize, to: usize| {
            let between = edges.iter().filter(|edge| (edge.from, edge.to) == (from, to));
            between.map(|edge| self.weight(edge)).max()
        };
        let after = apart(&self.into[branch], counter, branch)?;
        let before = apart(&self.out[branch], branch, counter).unwrap_or(-interval);
        let found = ways.into_iter().find_map(|(stages, shift, at)| {
            let branch_row = self.row(branch, at)?;
            self.reservation.take(&self.timings[branch][branch_row], at as usize);
            let found = (at + before..=at - after).rev().find_map(|cycle| Some((cycle, self.row(counter, cycle)?)));
            self.reservation.release(&self.timings[branch][branch_row], at as usize);
            let (cycle, counter_row) = found?;
            let stage = |cycle: i32| (cycle + shift).div_euclid(interval);
            let within =
                |cycle: i32, row: usize| Placement { cycle: (cycle + shift).rem_euclid(interval) as usize, row };
            let placements = [within(cycle, counter_row), within(at, branch_row)];
            Some((stages, shift, Back { placements, lag: i64::from(stage(at) - stage(cycle)) }))
        });
        let (stages, shift, back) = found?;
        let first = (low + shift) / interval * interval;
        let moved = |(cycle, row): (i32, usize)| Placement { cycle: (cycle + shift - first) as usize, row };
        let placements = body.into_iter().map(moved).collect();
        Some(Modulo { interval: interval as usize, stages: stages as usize, placements, back: Some(back) })
    }

    fn weight(&self, edge: &Edge) -> i32 {
        weight(edge, self.interval as usize)
    }

    fn row(&self, op: usize, cycle: i32) -> Option<usize> {
        let at = cycle.rem_euclid(self.interval) as usize;
        (0..self.timings[op].len()).find(|row| self.reservation.free(&self.timings[op][*row], at))
    }

    /// Takes away what uses the slot or units of an operation in a cycle. None if it cannot be there even alone.
    fn make_room(&mut self, op: usize, cycle: i32) -> Option<usize> {
        loop {
            if let Some(row) = self.row(op, cycle) {
                return Some(row);
            }
            let wanted = &self.timings[op][0];
            let at = |cycle: i32, stage: u8| (cycle + i32::from(stage)).rem_euclid(self.interval);
            let clashes = |other: usize| {
                let Some((place, row)) = self.placed[other] else {
                    return false;
                };
                let found = &self.timings[other][row];
                at(place, 0) == at(cycle, 0)
                    || wanted.units.iter().any(|unit| {
                        found.units.iter().any(|taken| {
                            taken.unit == unit.unit
                                && (unit.first..=unit.last)
                                    .any(|a| (taken.first..=taken.last).any(|b| at(cycle, a) == at(place, b)))
                        })
                    })
            };
            // Those of the same slot first.
            let same = |other: &usize| {
                let row = self.placed[*other].map(|(_, row)| self.timings[*other][row].slot);
                row == Some(wanted.slot)
            };
            let in_the_way: Vec<usize> = (0..self.placed.len()).filter(|other| clashes(*other)).collect();
            let victim = in_the_way.iter().copied().find(same).or_else(|| in_the_way.first().copied())?;
            self.remove(victim);
        }
    }

    fn remove(&mut self, op: usize) {
        if let Some((cycle, row)) = self.placed[op].take() {
            self.reservation.release(&self.timings[op][row], cycle.rem_euclid(self.interval) as usize);
        }
    }

    fn place(&mut self, op: usize, cycle: i32, row: usize) {
        self.reservation.take(&self.timings[op][row], cycle.rem_euclid(self.interval) as usize);
        self.placed[op] = Some((cycle, row));
        // What is too early or too late now goes.
        let weights = |edge: &&Edge| edge.distance - self.interval * edge.iterations as i32;
        let late = self.out[op]
            .iter()
            .filter(|edge| edge.to != op)
            .filter(|edge| self.placed[edge.to].is_some_and(|(other, _)| other < cycle + weights(edge)));
        let early = self.into[op]
            .iter()
            .filter(|edge| edge.from != op)
            .filter(|edge| self.placed[edge.from].is_some_and(|(other, _)| cycle < other + weights(edge)));
        let gone: Vec<usize> = late.map(|edge| edge.to).chain(early.map(|edge| edge.from)).collect();
        for other in gone {
            self.remove(other);
        }
    }
}
