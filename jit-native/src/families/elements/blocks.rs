//! Tiles that come and go in blocks: through the chains of the configuration ([`Elements::ARRIVING`]).

use crate::array::{Elements, Place};
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Lanes as _, Unit, Vectors as _};

const BLOCK: i64 = Elements::BLOCK_BYTES as i64;
const TURN: i64 = 4 * Elements::TURN_WORDS as i64;

/// Waits for the first block, which stays where it is.
pub(super) fn wait(b: &mut CoreBuilder, minus_one: Reg) {
    b.acquire(Elements::ARRIVING.full, minus_one);
    b.release(Elements::ARRIVING.full, 1);
}

/// Puts so many turns that arrive in a place.
pub(super) fn take(b: &mut CoreBuilder, place: Place, turns: Reg, minus_one: Reg) {
    let [arriving, taken] = ["arriving blocks", "a tile that is taken"].map(|name| b.region(name));
    let (from, to) = (b.pointer_at(arriving, Elements::ARRIVING.address), b.pointer_at(taken, place.address));
    pass(b, Elements::ARRIVING.full, Elements::ARRIVING.empty, turns, minus_one, |b, block| {
        let words = b.reg(Class::X);
        b.load(words, from, Address::At(block));
        b.store(words, to, Address::Then(BLOCK));
    });
}

/// Sends the result as so many turns, the last of which has its first word where it has none of its own: `kept` says by bits which it has.
pub(super) fn give<U: Unit>(b: &mut CoreBuilder, unit: U, turns: Reg, kept: Reg, minus_one: Reg) {
    let [result, leaving] = ["a result that is sent", "leaving blocks"].map(|name| b.region(name));
    let (from, to) = (b.pointer_at(result, Elements::RESULT.address), b.pointer_at(leaving, Elements::LEAVING.address));
    let first = b.reg(Class::Scalar);
    b.load(first, from, Address::At(0));
    let bytes = b.binary("lshl", turns, i64::from(TURN.ilog2()));
    let last = b.binary("add", bytes, i64::from(Elements::RESULT.address) - TURN);
    let end = b.pointer(result);
    b.mov(end, last);
    for block in [0, 1] {
        let kept = if block == 0 { b.binary("and", kept, 0xFFFF) } else { b.binary("lshl", kept, -16) };
        let mut l = unit.one(b);
        let (words, first) = (l.load(end, Address::At(block * BLOCK)), l.splat(first));
        let (words, mask) = (l.bits(words), l.mask(kept));
        let words = l.select(first, words, mask);
        let words = l.float(words);
        l.store(words, end, Address::At(block * BLOCK));
    }
    pass(b, Elements::LEAVING.empty, Elements::LEAVING.full, turns, minus_one, |b, block| {
        let words = b.reg(Class::X);
        b.load(words, from, Address::Then(BLOCK));
        b.store(words, to, Address::At(block));
    });
}

/// Has both blocks of so many turns, and hands them over.
fn pass(
    b: &mut CoreBuilder,
    acquired: u8,
    released: u8,
    turns: Reg,
    minus_one: Reg,
    mut block: impl FnMut(&mut CoreBuilder, i64),
) {
    let one = b.scalar(1);
    b.repeat(Count::from(turns).at_least(1).in_turn(), |b| {
        for number in [0, 1] {
            b.acquire(acquired, minus_one);
            block(b, number * BLOCK);
            b.release(released, one);
        }
    });
}
