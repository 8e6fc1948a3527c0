//! Sums of units become sums of rows.

use super::kernel::{Kernel, Locks, OfType, Parameter};
use super::memory::{PARTS, RESULT, SPARE};
use super::order::{Turns, interleave};
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::Sixteen;

/// Adds neighbours among the sums of a portion's groups, which are of one row, as often as the parameters say, and puts what is left to the
/// address `kept`.
pub(super) fn fold(b: &mut CoreBuilder, k: Kernel, kept: Reg) {
    let (at, left) = (k.unfolded(b), k.parameter(b, Parameter::Groups));
    let (unit, halvings) = (Sixteen::new(b), k.count(b, Parameter::Halvings));
    b.repeat(halvings, |b| {
        let (half, all) = (b.binary("lshl", left, -1), k.parameter(b, Parameter::Kept));
        b.mov(left, half);
        let is_last = b.binary("eq", left, all);
        // No sum is written before those that it is made of, and all behind them, have been read.
        let to = b.select(is_last, kept, at);
        let (from, to) = (k.pointer(b, k.words, at), k.pointer(b, k.ordered, to));
        b.name_loop("sums of neighbours");
        b.repeat(Count::from(left).at_least(2), |b| {
            let [one, other] = [(); 2].map(|()| {
                let sum = b.reg(Class::Acc512);
                b.load(sum, from, Address::Then(64));
                sum
            });
            let sum = unit.one(b).add(one, other);
            b.store(sum, to, Address::Then(64));
        });
    });
}

/// Adds the sums of the units of each of sixteen rows, for every column, and hands the results on.
pub(super) fn rows(b: &mut CoreBuilder, k: Kernel) {
    let columns = k.count(b, Parameter::Columns);
    let parts = k.address(b, PARTS);
    b.repeat(columns, |b| {
        let bytes = k.of_type(b, OfType::ColumnSums);
        let units = b.binary("lshl", bytes, -6);
        let spare = k.address(b, SPARE);
        let (from, to) = (b.add(parts, 0), b.add(spare, 0));
        let both = b.binary("add", from, to);
        b.repeat(3, |b| {
            interleave(b, k, [k.words, k.ordered], [from, to], units);
            b.mov(from, to);
            b.emit("sub", [to, both, to]);
        });
        let half = b.binary("lshl", units, 5);
        let second = b.add(spare, half);
        let (first, second) = (k.pointer(b, k.words, spare), k.pointer(b, k.words, second));
        let turns = Turns::new(b);
        let unit = Sixteen::new(b);
        let sum = unit.one(b).zeros();
        b.name_loop("sums of rows");
        b.repeat(Count::from(units).at_least(4), |b| {
            let words = turns.next(b, [first, second], [Address::Then(32); 2]);
            let mut l = unit.one(b);
            let x = l.float(words);
            l.add_into(sum, x);
        });
        b.acquire(Locks::RESULT.empty, -1);
        let to = b.pointer_at(k.result, OWN_MEMORY + RESULT.0);
        b.store(sum, to, Address::At(0));
        b.release(Locks::RESULT.full, 1);
        b.emit("add", [parts, parts, bytes]);
    });
}
