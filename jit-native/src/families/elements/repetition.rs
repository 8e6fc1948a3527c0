//! Repetitions: what the core does with a second operand that is shorter than the first.

use super::functions::Function;
use super::operands::Operands;
use crate::codegen::{Address, Class, CoreBuilder, Count};

/// Copies `c0` words of the first source, each `c1` times.
pub(super) fn repeat(b: &mut CoreBuilder, o: &Operands) {
    let [count, times, ..] = o.constants;
    b.repeat(Count::from(count).at_least(1), |b| {
        let word = b.reg(Class::Scalar);
        b.load(word, o.first.0, Address::Then(4));
        b.repeat(Count::from(times).at_least(1).in_turn(), |b| b.store(word, o.target.0, Address::Then(4)));
    });
}

/// Copies vectors, or words, of the first source, and that `c0` times.
pub(super) fn again(b: &mut CoreBuilder, o: &Operands, function: Function) {
    let [times, ..] = o.constants;
    let (class, bytes) = if function == Function::Again { (Class::X, 64) } else { (Class::Scalar, 4) };
    let start = b.reg(Class::Scalar);
    b.mov(start, o.first.0);
    let region = b.region("repeated");
    b.repeat(Count::from(times).at_least(1), |b| {
        let from = b.pointer(region);
        b.mov(from, start);
        b.repeat(o.count(function), |b| {
            let some = b.reg(class);
            b.load(some, from, Address::Then(bytes));
            b.store(some, o.target.0, Address::Then(bytes));
        });
    });
}
