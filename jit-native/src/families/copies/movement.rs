//! What a copy moves: loops over the words of its result, with the steps of both sides.
//!
//! Shim DMAs move words of 32 bits. A copy within a type is one of bytes: an element or a block of quantised elements is a run of
//! them, and runs that follow each other on both sides are one. The longest runs have to be whole words. A copy from f32 to a
//! type of 16 bits makes one word of two elements, which may lie anywhere in the source but are adjacent in the result.

use crate::array::{Dimension, Region};
use aie_ops::{DataType, Tensor};

/// A loop, with steps in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Number of iterations.
    pub size: u64,
    /// Step in the source.
    pub from: u64,
    /// Step in the result.
    pub to: u64,
}

/// A copy, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    /// First word in the source.
    pub from: u64,
    /// First word in the result.
    pub to: u64,
    /// Step between the two words of the source that become one of the result; none where a word stays one.
    pub pair: Option<u64>,
    /// The innermost first.
    pub loops: Vec<Loop>,
}

impl Movement {
    /// The copy of `from` to `to`, which have as many elements.
    ///
    /// # Errors
    /// Why words cannot do it.
    pub fn between(from: &Tensor, to: &Tensor) -> Result<Self, String> {
        let (mut from, mut to) = (*from, *to);
        for (what, tensor) in [("the source", &from), ("the result", &to)] {
            tensor.validate().map_err(|error| format!("{what}: {error}"))?;
        }
        if from.elements() != to.elements() || from.elements() == 0 {
            return Err(format!("{} elements into {}", from.elements(), to.elements()));
        }
        if from.ne != to.ne {
            if from.is_contiguous() && to.ne[0].is_multiple_of(from.dtype.block_elements()) {
                from = Tensor::contiguous(from.dtype, to.ne);
            } else if to.is_contiguous() && from.ne[0].is_multiple_of(to.dtype.block_elements()) {
                to = Tensor::contiguous(to.dtype, from.ne);
            } else {
                return Err(format!("extents {:?} into {:?}, both with gaps", from.ne, to.ne));
            }
        }
        match (from.dtype, to.dtype) {
            (a, b) if a == b => Self::of_bytes(&from, &to),
            (DataType::F32, DataType::F16 | DataType::BF16) => Self::of_pairs(&from, &to),
            (a, b) => Err(format!("{a} to {b}; possible: a type to itself, f32 to f16 and bf16")),
        }
    }

    fn of_bytes(from: &Tensor, to: &Tensor) -> Result<Self, String> {
        let unit = from.dtype.block_bytes() as u64;
        let loops = dimensions(from, to, unit, unit);
        let loops = merged([Loop { size: unit, from: 1, to: 1 }].into_iter().chain(loops));
        let Some((run, others)) = loops.split_first() else { return Err("no bytes".into()) };
        if !run.size.is_multiple_of(4) || (run.from, run.to) != (1, 1) {
            return Err(format!("runs of {unit} bytes or of some of them, no whole words: extents {:?}", to.ne));
        }
        if let Some(odd) = others.iter().find(|l| !l.from.is_multiple_of(4) || !l.to.is_multiple_of(4)) {
            return Err(format!("steps of {} and {} bytes, no whole words", odd.from, odd.to));
        }
        let words = |l: &Loop| Loop { size: l.size, from: l.from / 4, to: l.to / 4 };
        let run = Loop { size: run.size / 4, from: 1, to: 1 };
        Ok(Self { from: 0, to: 0, pair: None, loops: merged([run].into_iter().chain(others.iter().map(words))) })
    }

    fn of_pairs(from: &Tensor, to: &Tensor) -> Result<Self, String> {
        let loops = merged(dimensions(from, to, 4, 2).into_iter());
        let Some((run, others)) = loops.split_first() else {
            return Err("one element of 16 bits, no whole word".into());
        };
        if run.to != 2 || !run.size.is_multiple_of(2) {
            return Err(format!("runs of {} elements of 16 bits, {} bytes apart: no whole words", run.size, run.to));
        }
        if let Some(odd) = loops.iter().find(|l| !l.from.is_multiple_of(4)) {
            return Err(format!("a step of {} bytes in the source, no whole words", odd.from));
        }
        if let Some(odd) = others.iter().find(|l| !l.to.is_multiple_of(4)) {
            return Err(format!("a step of {} bytes in the result, no whole words", odd.to));
        }
        let words = |l: &Loop| Loop { size: l.size, from: l.from / 4, to: l.to / 4 };
        let pairs = Loop { size: run.size / 2, from: run.from / 2, to: 1 };
        let loops = merged([pairs].into_iter().chain(others.iter().map(words)));
        Ok(Self { from: 0, to: 0, pair: Some(run.from / 4), loops })
    }

    /// Words of the result.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.loops.iter().map(|l| l.size).product()
    }

    /// This movement in at least `count` parts, if there are as many words, of about the same size.
    #[must_use]
    pub fn parts(self, count: u64) -> Vec<Self> {
        // The outermost loop that is long enough leaves the parts most of what is contiguous.
        let long = self.loops.iter().rposition(|l| l.size >= count);
        let largest = || (0..self.loops.len()).max_by_key(|index| self.loops[*index].size);
        let Some(index) = long.or_else(largest).filter(|index| count > 1 && self.loops[*index].size > 1) else {
            return vec![self];
        };
        let cut = self.loops[index];
        let here = cut.size.min(count);
        let mut parts = Vec::new();
        for part in 0..here {
            let (start, end) = (cut.size * part / here, cut.size * (part + 1) / here);
            let mut movement = self.clone();
            movement.loops[index].size = end - start;
            movement.from += start * cut.from;
            movement.to += start * cut.to;
            parts.extend(movement.parts(count.div_ceil(here)));
        }
        parts
    }

    /// The words of the source's side, in order, with `more` around them.
    #[must_use]
    pub fn source(&self, argument: u16, start: u64, more: Option<Dimension>) -> Region {
        let pair = self.pair.map(|step| Dimension::new(2, step));
        let loops = self.loops.iter().map(|l| Dimension::new(l.size, l.from));
        let dimensions = pair.into_iter().chain(loops).chain(more).collect();
        Region { argument, offset: 4 * (self.from + start), dimensions }
    }

    /// The words of the result's side, in order, with `more` around them.
    #[must_use]
    pub fn result(&self, argument: u16, start: u64, more: Option<Dimension>) -> Region {
        let loops = self.loops.iter().map(|l| Dimension::new(l.size, l.to));
        Region { argument, offset: 4 * (self.to + start), dimensions: loops.chain(more).collect() }
    }
}

/// The dimensions of both, steps in bytes, in the order of the result's steps. `units` are the bytes of an element or block.
fn dimensions(from: &Tensor, to: &Tensor, from_unit: u64, to_unit: u64) -> Vec<Loop> {
    let mut loops: Vec<Loop> = (0..4)
        .map(|d| {
            let blocks = if d == 0 { from.dtype.block_elements().max(to.dtype.block_elements()) } else { 1 };
            let size = (to.ne[d] / blocks) as u64;
            Loop { size, from: from.nb[d] as u64, to: to.nb[d] as u64 }
        })
        .filter(|l| l.size != 1)
        .collect();
    loops.sort_by_key(|l| (l.to, l.from));
    if loops.is_empty() {
        loops.push(Loop { size: 1, from: from_unit, to: to_unit });
    }
    loops
}

/// Loops that go on where the one inside ends, on both sides, become one; those of one iteration go.
fn merged(loops: impl Iterator<Item = Loop>) -> Vec<Loop> {
    let mut merged: Vec<Loop> = Vec::new();
    for next in loops {
        match merged.last_mut() {
            Some(Loop { size, from, to }) if *size * *from == next.from && *size * *to == next.to => *size *= next.size,
            Some(last) if last.size == 1 => *last = next,
            Some(_) if next.size == 1 => {}
            _ => merged.push(next),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
