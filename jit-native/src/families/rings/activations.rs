//! Columns become tiles: second operands of the matrix unit, 8 `k` x 4 units of weights.
//!
//! A group of weights is sixteen units that follow each other, each of which is multiplied with its own part of a column. The matrix
//! unit multiplies four rows with four columns; here row `i` is a unit, column `i` of the tile the part that belongs to it, and of the
//! 4 x 4 results those on the diagonal count. Even units come first: of a group, four tiles begin at units 0, 8, 1 and 9, and take
//! every other one.
//!
//! Rows follow each other without gaps, so a group may begin anywhere in a row. After `units / gcd(units, 16)` groups ([`Parameter::Phases`])
//! it begins where the first did. So the tiles of all phases are made once, from the column in bf16, which is continued with its own
//! front where a group reaches beyond its end. Of K types a phase is eight units, of which a group takes two that follow each other: those of
//! an odd number of eights are there once instead of twice.
//!
//! A column that is longer than its room in bf16 is arranged in pieces of whole phases.
//!
//! Numbers of weights have an offset (a quant `q` is multiplied as `128 + q`). What it adds is the same for all rows, so it is
//! multiplied once for each phase and part of a unit: the offset's product in f32, and the sum of the part as two bf16, by which minimums
//! are multiplied.

use super::kernel::{Kernel, Locks, OfType, Parameter};
use super::memory::{LINEAR, OPERAND, OPERAND_BLOCK, TILES};
use super::weights::{Order, Weights};
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Arrangement, Sixteen, Sums, Tiles};

/// Bytes of 8 `k` for four units.
pub(super) const STEP_BYTES: i64 = 64;
/// Steps of a part.
const STEPS: i64 = 4;
/// One as bf16 in both halves of a word.
const ONE: u32 = 0x3F80_3F80;

/// Receives all columns, of which the first block has been acquired, and puts their tiles and offsets into their places.
pub(super) fn receive(b: &mut CoreBuilder, k: Kernel) {
    let (columns, pieces) = (k.parameter(b, Parameter::Columns), k.parameter(b, Parameter::Pieces));
    let (pieces, blocks) = (b.binary("mul", columns, pieces), k.parameter(b, Parameter::Depth));
    let left = b.binary("mul", pieces, blocks);
    let x_at = k.address(b, OPERAND);
    let tiles = k.address(b, TILES);
    b.repeat(Count::from(pieces).at_least(1), |b| {
        let linear = b.pointer_at(k.linear, OWN_MEMORY + LINEAR.0);
        b.repeat(Count::from(blocks).at_least(1), |b| {
            let from = k.pointer(b, k.x, x_at);
            for _ in 0..2 {
                let numbers = b.reg(Class::Acc512);
                b.load(numbers, from, Address::Then(64));
                b.store_as("vst.conv.bf16.fp32", numbers, linear, Address::Then(32));
            }
            b.release(Locks::X.empty, 1);
            let both = b.scalar(i64::from(2 * (OWN_MEMORY + OPERAND.0) + OPERAND_BLOCK));
            b.emit("sub", [x_at, both, x_at]);
            b.binary_into(left, "sub", left, 1);
            b.when(left, |b| b.acquire(Locks::X.full, -1));
        });
        // The front again, behind the end.
        let front = b.pointer_at(k.linear, OWN_MEMORY + LINEAR.0);
        let repeated = k.parameter(b, Parameter::Repeated);
        b.repeat(repeated, |b| {
            let vector = b.reg(Class::W);
            b.load(vector, front, Address::Then(32));
            b.store(vector, linear, Address::Then(32));
        });
        piece(b, k, tiles);
    });
    offsets(b, k);
}

/// The tiles of a column or a piece of it, from the address `tiles` on, which moves behind them.
fn piece(b: &mut CoreBuilder, k: Kernel, tiles: Reg) {
    let (parity, pair) = (k.address(b, LINEAR), b.add(tiles, 0));
    b.repeat(2, |b| {
        let (first, to) = (b.add(parity, 0), b.add(pair, 0));
        // Both fours of a group, or the one of eight units.
        let across = k.of_type(b, OfType::Across);
        let other = b.binary("eq", across, STEP_BYTES);
        b.repeat_while(|b| {
            k.choose(b, |b, of| phases(b, k, of, first, to));
            let unit = k.of_type(b, OfType::Bytes);
            let eight = b.binary("lshl", unit, 3);
            b.emit("add", [first, first, eight]);
            b.binary_into(to, "add", to, STEP_BYTES);
            let again = b.add(other, 0);
            b.constant_into(other, 0);
            again
        });
        let unit = k.of_type(b, OfType::Bytes);
        b.emit("add", [parity, parity, unit]);
        b.binary_into(pair, "add", pair, Weights::PAIR);
    });
    let (phase, phases) = (k.of_type(b, OfType::Phase), k.parameter(b, Parameter::PiecePhases));
    let bytes = b.binary("mul", phase, phases);
    b.emit("add", [tiles, tiles, bytes]);
}

/// The tiles of all phases that begin with the unit at the address `first` in the first one. Those of the phases follow each other.
fn phases(b: &mut CoreBuilder, k: Kernel, of: Weights, first: Reg, tiles: Reg) {
    let (to, at) = (k.pointer(b, k.tiles, tiles), b.add(first, 0));
    let blocks = k.parameter(b, Parameter::Depth);
    let bytes = b.binary("lshl", blocks, 6);
    let (end, step) = (b.binary("add", first, bytes), k.parameter(b, Parameter::Step));
    let phases = k.count(b, Parameter::PiecePhases);
    b.name_loop(&format!("tiles of {}", of.dtype()));
    b.repeat(phases, |b| {
        let from = k.pointer(b, k.linear, at);
        tile(b, of, from, to);
        let next = b.binary("add", at, step);
        let ends = b.binary("geu", next, end);
        let again = b.binary("sub", next, bytes);
        let next = b.select(ends, again, next);
        b.mov(at, next);
    });
}

/// The tiles of four units, every other one from `from` on.
fn tile(b: &mut CoreBuilder, of: Weights, from: Reg, to: Reg) {
    let arrangement = Arrangement::new(b);
    let orders = of.orders();
    let (pair, apart) = (Weights::PAIR, 2 * of.unit_bytes());
    // From a part to the next one, which begins where loading it has ended unless others are in between.
    let step = 2 * of.part_step();
    let parts = |b: &mut CoreBuilder| {
        for (part, order) in (0i64..).zip(orders) {
            let (front, back): (Vec<Reg>, Vec<Reg>) = (0..2).map(|_| (b.reg(Class::X), b.reg(Class::X))).unzip();
            for index in 0..4i64 {
                // From the second half of a unit to the next one, and from the last to the next part of the first.
                let next = if index < 3 { apart - 32 } else { step - 32 - 3 * apart };
                let into = |half: usize| {
                    let vector = if index < 2 { front[half] } else { back[half] };
                    if index % 2 == 0 { vector.lo() } else { vector.hi() }
                };
                match order {
                    Order::Turned => {
                        let (all, by) = (b.reg(Class::X), b.scalar(4));
                        b.load(all.lo(), from, Address::Then(32));
                        b.load(all.hi(), from, Address::Then(next));
                        let turned = b.reg(Class::X);
                        b.emit("vshift", [turned, all, all, by]);
                        b.mov(into(0), turned.lo());
                        b.mov(into(1), turned.hi());
                    }
                    Order::TurnedHalves | Order::TurnedEights => {
                        for (half, next) in [32, next].into_iter().enumerate() {
                            let (twice, by) = (b.reg(Class::X), b.scalar(4));
                            b.load(twice.lo(), from, Address::At(0));
                            b.load(twice.hi(), from, Address::Then(next));
                            let turned = b.reg(Class::X);
                            b.emit("vshift", [turned, twice, twice, by]);
                            b.mov(into(half), turned.lo());
                        }
                    }
                    Order::Plain | Order::Halves | Order::Eights => {
                        b.load(into(0), from, Address::Then(32));
                        b.load(into(1), from, Address::Then(next));
                    }
                }
            }
            let blocks: Vec<[Reg; 2]> =
                front.iter().zip(&back).map(|(front, back)| arrangement.tiles(b, *front, *back)).collect();
            let ordered = match order {
                Order::Halves | Order::TurnedHalves => {
                    [0, 1].map(|half: usize| arrangement.mixed(b, blocks[0][half], blocks[1][half]))
                }
                Order::Eights | Order::TurnedEights => [0, 1].map(|half: usize| [blocks[0][half], blocks[1][half]]),
                Order::Plain | Order::Turned => [blocks[0], blocks[1]],
            };
            ordered.as_flattened().iter().for_each(|block| b.store(*block, to, Address::Then(2 * pair)));
            // Two parts that take turns: back to the second one, and behind both.
            let taking_turns = if of.has_part_factors() { STEP_BYTES } else { 0 };
            match (taking_turns, part) {
                (0, _) => {}
                (_, 0) => b.advance(to, taking_turns - 2 * STEPS * pair),
                (..) => b.advance(to, -taking_turns),
            }
        }
    };
    match of.parts() / orders.len() {
        1 => parts(b),
        // Every other part, then those in between.
        times if step > 64 => b.repeat(2, |b| {
            b.repeat(times as u32 / 2, parts);
            b.advance(from, 64 - of.unit_bytes());
        }),
        times => b.repeat(times as u32, parts),
    }
}

/// What offsets add, of all phases and parts of all columns.
fn offsets(b: &mut CoreBuilder, k: Kernel) {
    let at = b.pointer_at(k.tiles, OWN_MEMORY + TILES.0);
    let to = k.of_type(b, OfType::Offsets);
    let to = k.pointer(b, k.offsets, to);
    let offset = k.of_type(b, OfType::Offset);
    let factors = [offset, b.scalar(ONE.into())].map(|word| {
        let vector = b.reg(Class::X);
        b.broadcast(32, vector, word);
        vector
    });
    // Where two parts take turns, the other one is left out, then come back to.
    let (across, steps) = (k.of_type(b, OfType::Across), k.of_type(b, OfType::Steps));
    let take_turns = b.binary("ne", across, STEP_BYTES);
    let skipped = b.binary("lshl", take_turns, i64::from(STEP_BYTES.trailing_zeros()));
    let all = b.binary("mul", skipped, steps);
    let both = b.binary("lshl", all, 2);
    let back = b.binary("sub", skipped, both);
    // Offsets of half a part have no sums, whose place the next one takes.
    let bytes = b.binary("lshl", steps, 5);
    let entry = k.modifier(b, bytes);
    let (unit, matrix, sums_of) = (Sixteen::new(b), Tiles::new(b), Sums::new(b));
    let columns = k.count(b, Parameter::Columns);
    b.repeat(columns, |b| {
        let phase = k.parameter(b, Parameter::Phases);
        b.repeat_while(|b| {
            let [to_second, to_next] = k.across(b, phase, Weights::PAIR);
            let (bytes, end) = (k.of_type(b, OfType::Phase), b.reg(Class::Scalar));
            b.mov(end, at);
            b.emit("add", [end, end, bytes]);
            b.repeat_while(|b| {
                // As many sums at a time as the unit has accumulators for.
                let times: Vec<&[Reg]> = factors.chunks(Tiles::at_once(b) / 4).collect();
                let (by, mut found) = (k.modifier(b, back), Vec::new());
                for (time, factors) in times.iter().enumerate() {
                    let from = if time + 1 == times.len() { at } else { k.pointer(b, k.tiles, at) };
                    let sums: Vec<[Reg; 4]> = factors.iter().map(|_| [(); 4].map(|()| matrix.zeros(b))).collect();
                    b.repeat(Count::from(steps).at_least(2), |b| {
                        for tile in 0..4 {
                            let columns = b.reg(Class::X);
                            b.load(columns, from, Address::ThenBy(if tile % 2 == 0 { to_second } else { to_next }));
                            for (factor, sums) in factors.iter().zip(&sums) {
                                matrix.multiply_add(b, sums[tile], *factor, columns);
                            }
                        }
                    });
                    found.extend(sums.into_iter().map(|sums| sums_of.of(b, sums)));
                }
                b.advance(at, by);
                let next = b.binary("add", back, both);
                let none = b.scalar(0);
                b.emit("sub", [back, none, next]);
                b.store(found[0], to, Address::At(0));
                let mut l = unit.one(b);
                let sum = l.float(found[1]);
                let sum = l.two_terms(sum);
                b.store(sum, to, Address::At(64));
                b.advance(to, entry);
                let reached = b.reg(Class::Scalar);
                b.mov(reached, at);
                b.binary("ltu", reached, end)
            });
            b.binary_into(phase, "sub", phase, 1);
            phase
        });
    });
}
