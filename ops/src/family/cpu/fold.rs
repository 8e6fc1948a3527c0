//! Folding rows and whole tensors into one value, on as many cores as the work is worth.

use super::rows::{PARALLEL_WORK, Row, Scratch, vectorised};
use rayon::prelude::*;
use std::ops::Range;

/// Elements that are folded as one piece.
const PIECE: usize = 16 * 1024;

/// What a fold goes through as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Rows, each as a whole.
    Row,
    /// Rows, long ones in pieces.
    Piece,
}

/// Calls `body` for every row of extents `ne`, or for the pieces of long rows, with the elements it is to go through, and
/// merges the values in the order of the elements. The pieces do not depend on the number of threads, so neither does a result
/// that is rounded. `cost` is the work per element. `None` when there are no elements.
pub fn fold<T: Send>(
    ne: &[usize; 4],
    cost: usize,
    unit: Unit,
    body: impl Fn(&mut Scratch, Row, Range<usize>) -> T + Sync,
    merge: impl Fn(T, T) -> T + Sync,
) -> Option<T> {
    let [length, rows] = [ne[0], ne[1] * ne[2] * ne[3]];
    if length == 0 || rows == 0 {
        return None;
    }
    let columns = if unit == Unit::Piece && length >= 2 * PIECE { PIECE } else { length };
    let across = length.div_ceil(columns);
    let share = if across > 1 { 1 } else { (PIECE / length).max(1) };
    let pieces = across * rows.div_ceil(share);
    let piece = |index: usize| {
        let (first, start) = (index / across * share, index % across * columns);
        vectorised(
            #[inline(always)]
            || {
                let mut scratch = Scratch::default();
                let mut value = None;
                for row in first..(first + share).min(rows) {
                    let next = body(&mut scratch, Row::nth(ne, row), start..(start + columns).min(length));
                    value = Some(match value {
                        Some(value) => merge(value, next),
                        None => next,
                    });
                }
                value
            },
        )
    };
    let values: Vec<Option<T>> = if pieces > 1 && length * rows * cost >= PARALLEL_WORK {
        (0..pieces).into_par_iter().map(piece).collect()
    } else {
        (0..pieces).map(piece).collect()
    };
    values.into_iter().flatten().reduce(merge)
}

/// The sum of a function of the elements, in double precision and in lanes, so that it vectorises.
#[inline(always)]
pub fn sum(values: &[f32], function: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0_f64; 16];
    let (chunks, tail) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += function(f64::from(*value));
        }
    }
    lanes.iter().sum::<f64>() + tail.iter().map(|value| function(f64::from(*value))).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn every_element_is_visited_once_and_in_order(
        #[values([5, 4, 3, 2], [1, 1, 1, 1], [3 * PIECE + 7, 2, 1, 2], [7, 30_000, 1, 1])] ne: [usize; 4],
        #[values(Unit::Row, Unit::Piece)] unit: Unit,
        #[values(0, 100)] cost: usize,
    ) {
        let body = |_: &mut Scratch, row: Row, range: Range<usize>| {
            let [a, b, c] = row.0;
            let first = ne[0] * (a + ne[1] * (b + ne[2] * c));
            Vec::from_iter(std::iter::once(first + range.start..first + range.end))
        };
        let parts = fold(&ne, cost, unit, body, |a, b| [a, b].concat()).unwrap();
        assert_eq!(parts[0].start, 0);
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(parts.last().unwrap().end, ne.iter().product::<usize>());
        assert!(unit == Unit::Piece || parts.len() == ne[1] * ne[2] * ne[3]);
    }

    #[test]
    fn nothing_folds_to_nothing() {
        assert_eq!(fold(&[4, 0, 1, 1], 1, Unit::Row, |_, _, _| 1, |a, b| a + b), None);
        assert_eq!(fold(&[0, 4, 1, 1], 1, Unit::Piece, |_, _, _| 1, |a, b| a + b), None);
    }
}
