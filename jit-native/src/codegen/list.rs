//! Schedules of straight sequences.

use super::depend::Edge;
use super::operation::{Op, Row};
use super::reservation::{Formats, Reservation};
use super::timing::RowTiming;

/// How freely operations are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freedom {
    /// Longest way to the end first, within so many operations of the author's order.
    Window(usize),
    /// In the author's order, each in a bundle of its own.
    Naive,
}

/// Where an operation is: the cycle, and which of its rows it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub cycle: usize,
    pub row: usize,
}

/// The longest way from each operation to the end of the sequence, in cycles.
fn heights(timings: &[Vec<RowTiming>], edges: &[Edge]) -> Vec<i32> {
    let own = |rows: &Vec<RowTiming>| rows.iter().map(|row| i32::from(row.last)).max().unwrap_or(1);
    let mut heights: Vec<i32> = timings.iter().map(own).collect();
    let mut by_from: Vec<Vec<&Edge>> = vec![Vec::new(); timings.len()];
    for edge in edges {
        by_from[edge.from].push(edge);
    }
    // Edges go from earlier to later operations.
    for from in (0..timings.len()).rev() {
        for edge in &by_from[from] {
            heights[from] = heights[from].max(heights[edge.to] + edge.distance);
        }
    }
    heights
}

/// Places operations. `early`: operations that come earlier than what depends on them says, by how many cycles.
pub(super) fn schedule(
    timings: &[Vec<RowTiming>],
    edges: &[Edge],
    formats: &Formats,
    freedom: Freedom,
    early: &[(usize, i32)],
) -> Vec<Placement> {
    let count = timings.len();
    let mut heights = heights(timings, edges);
    for (op, cycles) in early {
        heights[*op] += cycles;
    }
    let mut waits = vec![0usize; count];
    let mut by_from: Vec<Vec<&Edge>> = vec![Vec::new(); count];
    for edge in edges {
        waits[edge.to] += 1;
        by_from[edge.from].push(edge);
    }
    let mut earliest = vec![0i32; count];
    let mut placements: Vec<Option<Placement>> = vec![None; count];
    let mut reservation = Reservation::straight(formats);
    let (mut first, mut floor) = (0, 0);
    for _ in 0..count {
        while placements[first].is_some() {
            first += 1;
        }
        let end = match freedom {
            Freedom::Window(window) => first.saturating_add(window.max(1)).min(count),
            Freedom::Naive => first + 1,
        };
        let ready = (first..end).filter(|op| placements[*op].is_none() && waits[*op] == 0);
        // The first that is left waits for nothing: all before it are placed.
        let op = ready.max_by_key(|op| (heights[*op], std::cmp::Reverse(*op))).unwrap_or(first);
        let in_order = !matches!(freedom, Freedom::Window(window) if window > 1);
        let mut cycle = earliest[op].max(0) as usize;
        if in_order {
            cycle = cycle.max(floor);
        }
        let row = loop {
            if let Some(row) = (0..timings[op].len()).find(|row| reservation.free(&timings[op][*row], cycle)) {
                break row;
            }
            cycle += 1;
        };
        reservation.take(&timings[op][row], cycle);
        placements[op] = Some(Placement { cycle, row });
        floor = cycle + usize::from(freedom == Freedom::Naive);
        for edge in &by_from[op] {
            waits[edge.to] -= 1;
            earliest[edge.to] = earliest[edge.to].max(cycle as i32 + edge.distance);
        }
    }
    placements.into_iter().flatten().collect()
}

/// The rows of operations by cycle.
pub(super) fn bundles(ops: &[Op], placements: &[Placement], cycles: usize) -> Vec<Vec<Row>> {
    let mut bundles = vec![Vec::new(); cycles];
    for (op, placement) in ops.iter().zip(placements) {
        bundles[placement.cycle].push(op.rows[placement.row].clone());
    }
    bundles
}
