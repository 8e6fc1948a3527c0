//! Regions of a kernel's arguments, and the fewest buffer descriptors of a shim that cover them.
//!
//! A shim's descriptor walks three dimensions of 32-bit words, the outermost of them without a limit, and starts at the next
//! step of a fourth one (its *iteration*) each time that its task repeats it. Sizes have 10 bits, 6 for iterations, and steps
//! 20 bits. A region has any number of dimensions of any size. So contiguous dimensions are merged, a dimension too large for
//! its field is split into two where a divisor allows it, and what is left over becomes several tasks, in order.

use super::error::ArrayError;
use aie_hal::format::bd::ShimBd;
use std::ops::Range;

/// A dimension of a region, in 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dimension {
    /// How often it steps, plus one.
    pub size: u64,
    /// Words from one to the next. 0 repeats the same words, which only an outer dimension can do at a low cost.
    pub step: u64,
}

impl Dimension {
    /// A dimension of `size` with steps of `step` words.
    #[must_use]
    pub const fn new(size: u64, step: u64) -> Self {
        Self { size, step }
    }
}

/// Words of an argument in the order in which they are moved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Position in the dispatch's list of arguments.
    pub argument: u16,
    /// First byte, from the beginning of the argument: a multiple of 4.
    pub offset: u64,
    /// The innermost, which changes fastest, first. Without any it is one word.
    pub dimensions: Vec<Dimension>,
}

/// One task of a shim's channel for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub bd: ShimBd,
    /// Bytes from the beginning of the argument.
    pub offset: u64,
    /// How often the descriptor runs again.
    pub repeat: u8,
    /// Words in all.
    pub words: u64,
}

/// Sizes of dimensions 0 and 1.
const SIZE: u64 = 0x3FF;
/// Steps of all dimensions.
const STEP: u64 = 1 << 20;
const ITERATIONS: u64 = 64;
const REPEATS: u64 = 256;
/// Shims have addresses of 48 bits.
const ADDRESSES: u64 = 1 << 48;
/// A region that needs more tasks is rejected: its instruction stream would have more than a megabyte.
const MOST_TASKS: u64 = 16384;

impl Region {
    /// Consecutive bytes from `offset` on, up to the end of the last word.
    #[must_use]
    pub fn linear(argument: u16, offset: u64, bytes: u64) -> Self {
        Self { argument, offset, dimensions: vec![Dimension::new(bytes.div_ceil(4), 1)] }
    }

    /// The elements of a tensor, or of a part of one: their number and their distance in bytes, by dimension, as ggml's `ne`
    /// and `nb` have them.
    ///
    /// # Errors
    /// When elements that are no whole words are not packed to whole words, each row by itself.
    pub fn tensor(
        argument: u16,
        offset: u64,
        element_bytes: u64,
        elements: &[u64],
        strides: &[u64],
    ) -> Result<Self, ArrayError> {
        let error = |reason: String| ArrayError::Region { argument, reason };
        let mut dimensions = Vec::new();
        // An element is a dimension of bytes within the first one of the tensor.
        let bytes = [(element_bytes, 1)].into_iter().chain(elements.iter().copied().zip(strides.iter().copied()));
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (size, stride) in bytes.filter(|(size, _)| *size != 1) {
            match merged.last_mut() {
                Some((inner, step)) if inner.checked_mul(*step) == Some(stride) => *inner = inner.saturating_mul(size),
                _ => merged.push((size, stride)),
            }
        }
        if merged.first().is_none_or(|(_, stride)| *stride != 1) {
            merged.insert(0, (1, 1));
        }
        if let [(bytes, _)] = merged[..] {
            return Ok(Self::linear(argument, offset, bytes));
        }
        for (index, (size, stride)) in merged.into_iter().enumerate() {
            if index == 0 && size % 4 != 0 {
                return Err(error(format!("{size} consecutive bytes are no whole words")));
            }
            if index > 0 && stride % 4 != 0 {
                return Err(error(format!("a stride of {stride} bytes is no multiple of 4")));
            }
            dimensions.push(if index == 0 { Dimension::new(size / 4, 1) } else { Dimension::new(size, stride / 4) });
        }
        Ok(Self { argument, offset, dimensions })
    }

    /// Words that it moves.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.dimensions.iter().fold(1u64, |words, dimension| words.saturating_mul(dimension.size))
    }

    /// Those of its words from `words.start` up to `words.end`, in their order, in as few regions as they make.
    pub(super) fn cut(&self, words: Range<u64>) -> Vec<Self> {
        let mut parts = Vec::new();
        let words = words.start..words.end.min(self.words());
        if !words.is_empty() {
            self.cut_into(&self.dimensions, self.offset, words, &mut parts);
        }
        parts
    }

    /// The same of what some of its dimensions move from an offset on.
    fn cut_into(&self, dimensions: &[Dimension], offset: u64, Range { start, end }: Range<u64>, parts: &mut Vec<Self>) {
        let part = |offset, dimensions| Self { argument: self.argument, offset, dimensions };
        let Some((outer, inner)) = dimensions.split_last() else {
            parts.push(part(offset, Vec::new()));
            return;
        };
        let each = inner.iter().map(|dimension| dimension.size).product::<u64>();
        let at = |index: u64| offset + 4 * outer.step * index;
        let (first, last) = (start / each, end / each);
        if first == last {
            return self.cut_into(inner, at(first), start % each..end % each, parts);
        }
        let whole = start.div_ceil(each);
        if whole > first {
            self.cut_into(inner, at(first), start % each..each, parts);
        }
        if last > whole {
            parts.push(part(at(whole), [inner, &[Dimension::new(last - whole, outer.step)]].concat()));
        }
        if !end.is_multiple_of(each) {
            self.cut_into(inner, at(last), 0..end % each, parts);
        }
    }

    /// How many tasks of a shim's channel it takes.
    ///
    /// # Errors
    /// As [`Dispatch::transfer`](super::Dispatch::transfer).
    pub fn tasks(&self) -> Result<usize, ArrayError> {
        Ok(self.runs(0)?.len())
    }

    /// The byte behind the last one, and behind as many bytes as it moves. None when that has no number.
    fn end(&self) -> Option<u64> {
        let (mut words, mut last) = (1u64, 0u64);
        for Dimension { size, step } in &self.dimensions {
            words = words.checked_mul(*size)?;
            last = last.checked_add(step.checked_mul(size.saturating_sub(1))?)?;
        }
        last.max(words).checked_add(1)?.checked_mul(4)?.checked_add(self.offset)
    }

    /// The tasks that move it, in order.
    pub(super) fn runs(&self, burst: u32) -> Result<Vec<Run>, ArrayError> {
        let error = |reason: String| ArrayError::Region { argument: self.argument, reason };
        if !self.offset.is_multiple_of(4) {
            return Err(error(format!("it begins at byte {}, no multiple of 4", self.offset)));
        }
        if self.end().is_none_or(|end| end > ADDRESSES) {
            return Err(error("it ends beyond any address".into()));
        }
        let dimensions = merge(&self.dimensions);
        if dimensions.iter().any(|dimension| dimension.size == 0) {
            return Ok(Vec::new());
        }
        let plans = (0..=dimensions.len().min(3)).filter_map(|inner| Plan::new(&dimensions, inner));
        // Of those with as few tasks the one with the fewest iterations: each of these is a piece of memory of its own, and a shim's
        // channel that sends with iterations and no second dimension hung on npu1, 30 times of 30 (FIM43-Redeye/xdna-emu, 2026-06-12).
        let plan = plans.min_by_key(|plan| (plan.tasks(), plan.repeated.size));
        let plan = plan.ok_or_else(|| error(format!("{} words in a row", dimensions[0].size)))?;
        if plan.tasks() > MOST_TASKS {
            return Err(error(format!("it takes {} tasks, more than {MOST_TASKS}", plan.tasks())));
        }
        Ok(plan.runs(self.offset, burst))
    }
}

/// The same walk in as few dimensions as possible, none of them of size 1.
fn merge(dimensions: &[Dimension]) -> Vec<Dimension> {
    let mut merged: Vec<Dimension> = Vec::new();
    for dimension in dimensions.iter().filter(|dimension| dimension.size != 1) {
        match merged.last_mut() {
            Some(inner) if inner.step > 0 && inner.size.checked_mul(inner.step) == Some(dimension.step) => {
                inner.size = inner.size.saturating_mul(dimension.size);
            }
            _ => merged.push(*dimension),
        }
    }
    merged
}

/// How a region is divided among a descriptor, its iterations, and tasks.
struct Plan {
    /// Up to three dimensions of the descriptor.
    inner: Vec<Dimension>,
    /// Runs of one descriptor, at most as many as `limit` in a task.
    repeated: Dimension,
    limit: u64,
    /// Each of these is a task of its own.
    outer: Vec<Dimension>,
}

impl Plan {
    /// Puts the first `count` dimensions into the descriptor. None if they do not fit.
    fn new(dimensions: &[Dimension], count: usize) -> Option<Self> {
        let (first, rest) = dimensions.split_at_checked(count)?;
        let mut inner = Vec::new();
        for (index, dimension) in first.iter().enumerate() {
            let Dimension { size, step } = *dimension;
            // What is outermost ends with the length.
            if index + 1 == count || size <= SIZE {
                inner.push(*dimension);
            } else {
                let low = (2..=SIZE).rev().find(|low| size.is_multiple_of(*low) && size / low <= SIZE)?;
                inner.extend([Dimension::new(low, step), Dimension::new(size / low, step * low)]);
            }
        }
        let length = inner.iter().try_fold(1u64, |words, dimension| words.checked_mul(dimension.size))?;
        let in_range = inner.iter().all(|dimension| (1..=STEP).contains(&dimension.step));
        if inner.len() > 3 || !in_range || length > u32::MAX.into() {
            return None;
        }
        let (repeated, limit, outer) = match rest.split_first() {
            Some((next, outer)) if next.step == 0 => (*next, REPEATS, outer),
            Some((next, outer)) if next.step <= STEP => (*next, ITERATIONS, outer),
            _ => (Dimension::new(1, 1), 1, rest),
        };
        Some(Self { inner, repeated, limit, outer: outer.to_vec() })
    }

    fn tasks(&self) -> u64 {
        let each = self.repeated.size.div_ceil(self.limit);
        self.outer.iter().fold(each, |tasks, dimension| tasks.saturating_mul(dimension.size))
    }

    fn runs(&self, offset: u64, burst: u32) -> Vec<Run> {
        let length: u64 = self.inner.iter().map(|dimension| dimension.size).product();
        // Lengths, sizes and steps were compared with their fields.
        let mut shape = ShimBd::linear(length as u32, burst);
        let at = |index: usize| self.inner.get(index);
        let size = |index: usize| match at(index + 1) {
            Some(_) => at(index).map_or(0, |dimension| dimension.size as u32),
            None => 0,
        };
        let step = |index: usize| at(index).map_or(1, |dimension| dimension.step as u32);
        (shape.d0_wrap, shape.d1_wrap) = (size(0), size(1));
        (shape.d0_step, shape.d1_step, shape.d2_step) = (step(0), step(1), step(2));
        let mut starts = vec![offset];
        for dimension in &self.outer {
            let step = 4 * dimension.step;
            starts =
                (0..dimension.size).flat_map(|index| starts.iter().map(move |start| start + index * step)).collect();
        }
        let mut runs = Vec::new();
        for start in starts {
            let mut done = 0;
            while done < self.repeated.size {
                let count = (self.repeated.size - done).min(self.limit);
                let mut bd = shape;
                if self.repeated.step > 0 && count > 1 {
                    (bd.iteration_wrap, bd.iteration_step) = (count as u32, self.repeated.step as u32);
                }
                let offset = start + 4 * done * self.repeated.step;
                runs.push(Run { bd, offset, repeat: (count - 1) as u8, words: length * count });
                done += count;
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests;
