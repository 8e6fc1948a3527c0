//! A program that moves blocks as the real one does and computes something else: for tests of the array.
//!
//! Of each row it makes a number in which every word has its place, of each column another one; a result is their sum.

use super::memory::{
    BLOCK, DEPTH, OPERAND, OPERAND_BLOCK, OPERAND_DEPTH, OPERAND_LOCKS, RESULT, RESULT_LOCKS, WEIGHTS, WEIGHTS_LOCKS,
};
use super::parameters::{OFFSET, Parameter};
use super::problem::{BATCH_ROWS, Problem};
use crate::array::{OWN_LOCKS, OWN_MEMORY};
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, LoopForm, Reg};
use aie_isa::Isa;

/// Where it keeps the numbers of the columns and of a batch's rows.
const COLUMN_NUMBERS: u32 = 0x1000;
const ROW_NUMBERS: u32 = 0x1040;

/// What a row or a column becomes.
fn number(words: &[u32]) -> u32 {
    words.iter().fold(1, |sum, word| sum.wrapping_mul(3).wrapping_add(*word))
}

/// What the program makes of weights and columns: the words of the result.
pub(super) fn expected(problem: &Problem, weights: &[u32], columns: &[u32]) -> Vec<u32> {
    let rows: Vec<u32> = weights.chunks(problem.row_bytes() / 4).map(number).collect();
    let column = |column: &[u32]| rows.iter().map(|row| row.wrapping_add(number(column))).collect::<Vec<_>>();
    columns.chunks(problem.depth).flat_map(column).collect()
}

#[derive(Clone, Copy)]
struct StandIn {
    parameters: AliasRegion,
    arriving: AliasRegion,
    kept: AliasRegion,
    results: AliasRegion,
}

/// What arrives word by word in a circle of buffers.
#[derive(Clone, Copy)]
struct Arriving {
    pointer: Reg,
    /// Words left of the buffer at hand.
    left: Reg,
    words: u32,
    start: u32,
    end: u32,
    empty: u8,
}

impl Arriving {
    fn new(b: &mut CoreBuilder, region: AliasRegion, start: u32, block: u32, depth: u8, lock: u8) -> Self {
        let start = OWN_MEMORY + start;
        let (pointer, left) = (b.pointer_at(region, start), b.scalar(0));
        let (words, end) = (block / 4, start + block * u32::from(depth));
        Self { pointer, left, words, start, end, empty: OWN_LOCKS + lock }
    }

    /// The next word, from the next buffer if this one is empty.
    fn next(self, b: &mut CoreBuilder, target: Reg) {
        b.when_else(self.left, |_| {}, |b| self.take(b));
        b.load(target, self.pointer, Address::Then(4));
        b.binary_into(self.left, "add", self.left, -1);
        b.when_else(self.left, |_| {}, |b| self.give(b));
    }

    fn take(self, b: &mut CoreBuilder) {
        b.acquire(self.empty + 1, -1);
        b.constant_into(self.left, self.words.into());
    }

    /// Gives the buffer back, and goes on to the next.
    fn give(self, b: &mut CoreBuilder) {
        b.release(self.empty, 1);
        let at = b.reg(Class::Scalar);
        b.mov(at, self.pointer);
        let end = b.scalar(self.end.into());
        let is_end = b.binary("eq", at, end);
        b.when(is_end, |b| b.constant_into(self.pointer, self.start.into()));
    }
}

impl StandIn {
    fn parameter(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let target = b.reg(Class::Scalar);
        let at = b.pointer_at(self.parameters, OWN_MEMORY + OFFSET);
        b.load(target, at, Address::At(4 * i64::from(parameter as u32)));
        target
    }

    fn count(self, b: &mut CoreBuilder, parameter: Parameter) -> Count {
        Count::from(self.parameter(b, parameter)).at_least(1)
    }

    /// The number of so many words, at a pointer, which moves on.
    fn number(self, b: &mut CoreBuilder, from: Arriving, words: Reg, to: Reg) {
        let (number, word) = (b.scalar(1), b.reg(Class::Scalar));
        b.repeat(Count::from(words).at_least(1), |b| {
            from.next(b, word);
            let twice = b.add(number, number);
            b.emit("add", [number, number, twice]);
            b.emit("add", [number, number, word]);
        });
        b.store(number, to, Address::Then(4));
    }

    fn dispatch(self, b: &mut CoreBuilder, weights: Arriving, operand: Arriving) {
        // Parameters are there when the first block of the operand is.
        operand.take(b);
        let depth = self.parameter(b, Parameter::Depth);
        let depth = b.binary("lshl", depth, 5);
        let numbers = b.pointer_at(self.kept, OWN_MEMORY + COLUMN_NUMBERS);
        let columns = self.count(b, Parameter::Columns);
        b.repeat(columns, |b| self.number(b, operand, depth, numbers));
        let skipped = self.parameter(b, Parameter::Skip);
        let skipped = b.binary("lshl", skipped, -2);
        self.drop_words(b, weights, skipped);
        let [units, unit_words] = [Parameter::Units, Parameter::UnitWords].map(|place| self.parameter(b, place));
        let words = b.binary("mul", units, unit_words);
        let batches = self.parameter(b, Parameter::Batches);
        b.repeat(Count::from(batches).at_least(1), |b| {
            let numbers = b.pointer_at(self.kept, OWN_MEMORY + ROW_NUMBERS);
            b.repeat(BATCH_ROWS as u32, |b| self.number(b, weights, words, numbers));
            b.binary_into(batches, "add", batches, -1);
            // All weights are gone in front of the last result.
            b.when_else(batches, |_| {}, |b| self.drop_rest(b, weights, words, skipped));
            self.results(b);
        });
    }

    fn drop_words(self, b: &mut CoreBuilder, weights: Arriving, words: Reg) {
        let dropped = b.reg(Class::Scalar);
        b.repeat(Count::from(words).at_least(0), |b| weights.next(b, dropped));
    }

    fn drop_rest(self, b: &mut CoreBuilder, weights: Arriving, row_words: Reg, skipped: Reg) {
        let [blocks, batches] = [Parameter::Blocks, Parameter::Batches].map(|place| self.parameter(b, place));
        let all = b.binary("mul", blocks, BLOCK / 4);
        let rows = b.binary("mul", batches, BATCH_ROWS as u32);
        let words = b.binary("mul", rows, row_words);
        let rest = b.binary("sub", all, words);
        let rest = b.binary("sub", rest, skipped);
        self.drop_words(b, weights, rest);
    }

    fn results(self, b: &mut CoreBuilder) {
        let columns = self.count(b, Parameter::Columns);
        let of_column = b.pointer_at(self.kept, OWN_MEMORY + COLUMN_NUMBERS);
        b.repeat(columns, |b| {
            b.acquire(OWN_LOCKS + RESULT_LOCKS, -1);
            let column = b.reg(Class::Scalar);
            b.load(column, of_column, Address::Then(4));
            let row = b.pointer_at(self.kept, OWN_MEMORY + ROW_NUMBERS);
            let to = b.pointer_at(self.results, OWN_MEMORY + RESULT);
            b.repeat(BATCH_ROWS as u32, |b| {
                let sum = b.reg(Class::Scalar);
                b.load(sum, row, Address::Then(4));
                b.emit("add", [sum, sum, column]);
                b.store(sum, to, Address::Then(4));
            });
            b.release(OWN_LOCKS + RESULT_LOCKS + 1, 1);
        });
    }
}

/// The program's code.
pub(super) fn program() -> Vec<u8> {
    let mut b = CoreBuilder::new(Isa::aie2());
    let stand_in = StandIn {
        parameters: b.region("parameters"),
        arriving: b.region("arriving"),
        kept: b.region("kept"),
        results: b.region("results"),
    };
    let weights = Arriving::new(&mut b, stand_in.arriving, WEIGHTS, BLOCK, DEPTH, WEIGHTS_LOCKS);
    let operand = Arriving::new(&mut b, stand_in.arriving, OPERAND, OPERAND_BLOCK, OPERAND_DEPTH, OPERAND_LOCKS);
    b.forever(|b| stand_in.dispatch(b, weights, operand));
    b.finish_with(LoopForm::Jnz).unwrap().code
}
