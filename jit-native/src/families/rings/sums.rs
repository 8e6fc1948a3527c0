//! Sums of units become sums of rows.

use super::kernel::{Kernel, Locks, Parameter};
use super::memory::{PARTS, RESULT, SPARE};
use super::order::{Turns, interleave};
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, CoreBuilder, Count, Reg};
use crate::numerics::Sixteen;

/// Adds the sums of the units of each of sixteen rows, for every column, and hands the results on.
pub(super) fn rows(b: &mut CoreBuilder, k: Kernel) {
    let columns = k.count(b, Parameter::Columns);
    let parts = k.address(b, PARTS);
    b.repeat(columns, |b| {
        let units = k.parameter(b, Parameter::Units);
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
        let bytes: Reg = b.binary("lshl", units, 6);
        b.emit("add", [parts, parts, bytes]);
    });
}
