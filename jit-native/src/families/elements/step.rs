//! Steps: what a core does with a tile.
//!
//! A program serves whole families. It has functions of vectors, and a dispatch says which of them run on each tile,
//! in which order, and from where to where: a list of [`Step`]s in the parameters. So a norm with weights, a softmax
//! with a mask and a gated unit are lists over the same few functions, and no new operation that is made of them needs a new PDI.
//!
//! A step reads one or two [`Slot`]s and writes one, a vector of sixteen f32 at a time. The work of a step on a vector is some tens of cycles
//! or more, of which two loads and a store more are little.

pub use super::functions::Function;
use crate::codegen::LoopReport;
use crate::numerics::three_terms;

/// What a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Slot {
    /// The tile of the first operand. Steps may write it, too.
    A = 0,
    /// The tile of the second operand.
    B = 1,
    /// The tile of the result.
    Result = 2,
    /// A tile of the core's own, of [`Slot::SCRATCH_WORDS`].
    Scratch = 3,
    /// One vector.
    V0 = 4,
    /// Another vector.
    V1 = 5,
    /// What divides the frequencies of a rotation, a word for each element of its table: see [`super::rotation`].
    Factors = 6,
    /// A third vector.
    V2 = 7,
    /// A quarter of the scratch tile: the position of each element of a rotation's table.
    Positions = 8,
}

impl Slot {
    /// Words of [`Slot::Scratch`].
    pub const SCRATCH_WORDS: u32 = 2048;
    /// Number of slots of one vector, and one more, so that tiles begin at their multiples.
    pub const VECTORS: u32 = 4;
    /// Number of slots.
    pub const COUNT: u32 = 9;
}

/// A slot as vectors, or its first vector again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    slot: Slot,
    step: u32,
}

/// Bytes of a vector.
pub const VECTOR_BYTES: u32 = 64;

impl From<Slot> for Operand {
    /// Vectors of a tile; of [`Slot::V0`] and others of one vector the same one for all.
    fn from(slot: Slot) -> Self {
        let step = if matches!(slot, Slot::V0 | Slot::V1 | Slot::V2) { 0 } else { VECTOR_BYTES };
        Self { slot, step }
    }
}

/// The unit of offsets: half of a rotation's row may be an odd number of halves of a vector.
pub const OFFSET_BYTES: u32 = VECTOR_BYTES / 2;

/// A function with its operands and constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    function: Function,
    first: Operand,
    second: Operand,
    target: Operand,
    /// Bytes from the first vectors of first source and target to those where it begins.
    offset: u32,
    /// Number of vectors; all of a tile if 0.
    vectors: u32,
    constants: [u32; 4],
}

/// A number whose order as a signed integer is that of floats.
fn ordered(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits >> 31 == 1 { 0x8000_0000u32.wrapping_sub(bits) } else { bits }
}

impl Step {
    /// Most words in the parameters.
    pub const MOST_WORDS: u32 = 6;

    /// What it computes.
    #[must_use]
    pub fn function(&self) -> Function {
        self.function
    }

    /// What it reads and writes: both sources and the target.
    #[must_use]
    pub fn slots(&self) -> [Slot; 3] {
        [self.first.slot, self.second.slot, self.target.slot]
    }

    /// Iterations of its loop on tiles of `vectors` vectors.
    fn count(&self, vectors: u32) -> u32 {
        let all = if self.vectors == 0 { vectors } else { self.vectors };
        all.div_ceil(self.function.vectors_at_once())
    }

    /// Cycles on a tile of `vectors` vectors, by the schedule of its loop in a program; 0 where that is not known.
    #[must_use]
    pub fn cycles(&self, vectors: u32, loops: &[LoopReport]) -> u64 {
        let name = format!("{:?}", self.function);
        // One whose iterations overlap is there a second time, for few of them.
        let named = loops.iter().filter(|report| report.name == name);
        let found = named.min_by_key(|report| report.interval.div_ceil(report.unrolled.max(1)));
        let heads = match self.function {
            Function::RotatePairs | Function::RotateHalves => self.constants[0],
            _ => 1,
        };
        let iterations = u64::from(heads) * u64::from(self.count(vectors));
        found.map_or(0, |found| iterations * u64::from(found.interval) / u64::from(found.unrolled.max(1)))
    }

    /// Words of the parameters of a step over tiles of `vectors` vectors, of the function with a number in its program, as few as they can
    /// be, since a stream carries them. In the first one are a byte of the function and one of each operand, four times its slot and, where
    /// it has all vectors, 64; in the second one iterations, from bit 12 on the offset in half vectors and from bit 24 on the bytes of constants;
    /// behind them the constants that the function uses.
    #[must_use]
    pub fn encode(&self, number: u32, vectors: u32) -> Vec<u32> {
        let all = if self.vectors == 0 { vectors } else { self.vectors };
        let mut constants = self.constants;
        let mut offset = self.offset;
        if self.function == Function::Widen {
            // From the last vector to the first; the source's vectors are half as long.
            offset += VECTOR_BYTES * (all.max(1) - 1);
            constants[0] = (VECTOR_BYTES / 2 * (all.max(1) - 1)).wrapping_neg();
        }
        let used = &constants[..self.function.constants()];
        let byte =
            |operand: Operand| (4 * operand.slot as u32) | if operand.step == VECTOR_BYTES { VECTOR_BYTES } else { 0 };
        let operands = [number, byte(self.first), byte(self.second), byte(self.target)];
        let operands = operands.into_iter().rev().fold(0, |word, byte| word << 8 | byte);
        let bytes = 4 * used.len() as u32;
        let counts = self.count(vectors) | (offset / OFFSET_BYTES) << 12 | bytes << 24;
        [&[operands, counts], used].concat()
    }

    /// A function of one source.
    #[must_use]
    pub fn unary(function: Function, first: Slot, target: Slot) -> Self {
        Self::binary(function, first, first, target)
    }

    /// A function of two sources.
    #[must_use]
    pub fn binary(function: Function, first: Slot, second: Slot, target: Slot) -> Self {
        let (first, second, target) = (first.into(), second.into(), target.into());
        Self { function, first, second, target, offset: 0, vectors: 0, constants: [0; 4] }
    }

    /// Widens the bf16 of a tile to f32, in place: backwards, so that nothing is overwritten before it is read.
    #[must_use]
    pub fn widen(slot: Slot) -> Self {
        let operand = |step: u32| Operand { slot, step: step.wrapping_neg() };
        let (first, target) = (operand(VECTOR_BYTES / 2), operand(VECTOR_BYTES));
        Self { first, target, ..Self::unary(Function::Widen, slot, slot) }
    }

    /// Rounds the f32 of a tile to bf16, in place.
    #[must_use]
    pub fn narrow(slot: Slot) -> Self {
        Self::narrow_to(slot, slot)
    }

    /// Rounds the f32 of a tile to bf16.
    #[must_use]
    pub fn narrow_to(first: Slot, target: Slot) -> Self {
        let operand = Operand { slot: target, step: VECTOR_BYTES / 2 };
        Self { target: operand, ..Self::unary(Function::Narrow, first, target) }
    }

    /// Rounds the f32 of a tile to f16.
    #[must_use]
    pub fn halves(first: Slot, target: Slot) -> Self {
        Self::unary(Function::Half, first, target)
    }

    /// Each of some words of a slot some times.
    #[must_use]
    pub fn repeat(first: Slot, words: u64, times: u64, target: Slot) -> Self {
        Self::unary(Function::Repeat, first, target).once().constants([words as u32, times as u32, 0, 0])
    }

    /// Some words of a slot, all of them some times: by vectors, if they are whole ones.
    #[must_use]
    pub fn again(first: Slot, words: u64, times: u64, target: Slot) -> Self {
        let (function, count) =
            if words.is_multiple_of(16) { (Function::Again, words / 16) } else { (Function::AgainWords, words) };
        Self::unary(function, first, target).part(0, count as u32).constants([times as u32, 0, 0, 0])
    }

    /// Words of a slot by the list of their offsets that a rotation has.
    #[must_use]
    pub fn gather(first: Slot, words: u64, target: Slot) -> Self {
        Self::unary(Function::Gather, first, target).part(0, words as u32)
    }

    /// Only so many vectors, from this one on, in bytes.
    #[must_use]
    pub fn part(self, offset: u32, vectors: u32) -> Self {
        Self { offset, vectors, ..self }
    }

    /// Only the first vector.
    #[must_use]
    pub fn once(self) -> Self {
        Self { vectors: 1, ..self }
    }

    /// With these constants.
    #[must_use]
    pub(super) fn constants(self, constants: [u32; 4]) -> Self {
        Self { constants, ..self }
    }

    /// `first * factor + addend`.
    #[must_use]
    pub fn scale(first: Slot, factor: f32, addend: f32, target: Slot) -> Self {
        let [f0, f1, f2] = three_terms(factor).map(|term| u32::from(term) << 16 | u32::from(term));
        Self::unary(Function::Scale, first, target).constants([f0, f1, f2, addend.to_bits()])
    }

    /// `first + addend`.
    #[must_use]
    pub fn offset(first: Slot, addend: f32, target: Slot) -> Self {
        Self::unary(Function::Offset, first, target).constants([addend.to_bits(), 0, 0, 0])
    }

    /// `first` between two bounds, of which `low` is the smaller one; where they contradict each other, `low` counts.
    #[must_use]
    pub fn clamp(first: Slot, low: f32, high: f32, target: Slot) -> Self {
        Self::unary(Function::Clamp, first, target).constants([ordered(low), ordered(high), 0, 0])
    }

    /// The bits of `first` that are in `kept`, plus `added`.
    #[must_use]
    pub fn bits(first: Slot, kept: u32, added: u32, target: Slot) -> Self {
        Self::unary(Function::Bits, first, target).constants([kept, added, 0, 0])
    }

    /// `-first`.
    #[must_use]
    pub fn negative(first: Slot, target: Slot) -> Self {
        Self::bits(first, !0, 0x8000_0000, target)
    }

    /// `|first|`.
    #[must_use]
    pub fn absolute(first: Slot, target: Slot) -> Self {
        Self::bits(first, 0x7fff_ffff, 0, target)
    }

    /// `second` where `first > bound`, else `target` stays.
    #[must_use]
    pub fn choose(first: Slot, bound: f32, second: Slot, target: Slot) -> Self {
        Self::binary(Function::Choose, first, second, target).constants([ordered(bound), 0, 0, 0])
    }

    /// `above` where `first` is positive, `below` where it is negative, else 0.
    #[must_use]
    pub fn signum(first: Slot, above: f32, below: f32, target: Slot) -> Self {
        Self::unary(Function::Signum, first, target).constants([above.to_bits(), below.to_bits(), 0, 0])
    }

    /// The sine of `first` plus quarters of a turn.
    #[must_use]
    pub fn sine(first: Slot, quarters: u32, target: Slot) -> Self {
        Self::unary(Function::Sine, first, target).constants([quarters, 0, 0, 0])
    }

    /// The sum of the squares of `words` words of a slot, in all lanes of a vector. Clears what is behind them.
    #[must_use]
    pub fn sum_of_squares(first: Slot, words: u32, target: Slot) -> Vec<Self> {
        let vectors = words.div_ceil(16);
        let behind = Self::padding(first, 0, 0.0, vectors);
        let mut steps: Vec<Self> = Self::pad(first, words, 0.0).into_iter().collect();
        steps.extend((vectors % 2 == 1).then_some(behind));
        steps.push(Self::unary(Function::SumOfSquares, first, target));
        steps
    }

    /// Sets what is behind `words` words in the last vector of a tile, which then has no end that counts. None when nothing is.
    #[must_use]
    pub fn pad(slot: Slot, words: u32, with: f32) -> Option<Self> {
        let rest = words % 16;
        (rest != 0).then(|| Self::padding(slot, rest, with, words / 16))
    }

    /// Sets what is behind `kept` words of a vector.
    fn padding(slot: Slot, kept: u32, with: f32, vector: u32) -> Self {
        let step = Self::unary(Function::Pad, slot, slot).constants([(1 << kept) - 1, with.to_bits(), 0, 0]);
        step.part(vector * VECTOR_BYTES, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest rows and tiles that any program has.
    #[test]
    fn the_largest_numbers_have_room() {
        let fields = |step: Step, vectors| {
            let words = step.encode(200, vectors);
            (words[1] & 0xFFF, (words[1] >> 12 & 0xFFF) * OFFSET_BYTES, words[1] >> 24, words.len())
        };
        let pad = Step::pad(Slot::A, 16_382, 0.0).unwrap();
        assert_eq!(fields(pad, 1), (1, 1023 * VECTOR_BYTES, 8, 4));
        assert_eq!(fields(Step::again(Slot::B, 2047, 3, Slot::Scratch), 1), (2047, 0, 4, 3));
        assert_eq!(fields(Step::binary(Function::Add, Slot::A, Slot::B, Slot::Result), 1024), (1024, 0, 0, 2));
        assert_eq!(fields(Step::widen(Slot::A), 128), (128, 127 * VECTOR_BYTES, 4, 3));
        let half = Step::binary(Function::RotateHalves, Slot::A, Slot::Scratch, Slot::Result).part(160, 5);
        assert_eq!(fields(half.constants([1, 2, 3, 4]), 1), (5, 160, 16, 6));
        let operands = Step::binary(Function::Add, Slot::V2, Slot::Positions, Slot::A).encode(200, 1)[0];
        assert_eq!(operands.to_le_bytes(), [200, 4 * 7, 4 * 8 + 64, 64]);
    }
}
