//! The program of the lanes: it takes tiles as they come and does the steps of the parameters with each.
//!
//! Parameters, in words:
//!
//! | word | |
//! |---|---|
//! | 0 | how often the second operand changes; once if there is none |
//! | 1 | tiles of the first operand for each of the second |
//! | 2 | steps |
//! | 3 to 5 | the sums of the addresses of the two buffers of A, B and the result, by which each tile takes the other one |
//! | 6 | whether there is a second operand |
//! | 7 | steps with the first tile of the second operand alone, which come first and prepare something; often 0 |
//! | 8 on | the steps, [`Step::WORDS`] each: see [`Step::encode`] |

use super::super::numerics::{
    Configuration, Emission, Lanes as _, exponential, logarithm, product, quotient, root, trigonometry,
};
use super::rotation;
use super::step::{Function, Slot, Step, VECTOR_BYTES};
use crate::array::Lanes;
use crate::core::{Address, Class, CoreBuilder, CoreError, CoreProgram, Count, Reg, Region, Scheduling};
use aie_isa::Isa;

/// The first word of the steps.
pub const HEADER_WORDS: u32 = 8;
/// Most steps that fit the parameters.
pub const MOST_STEPS: u32 = (Lanes::PARAMETER_WORDS - HEADER_WORDS) / Step::WORDS;

/// Where the addresses of the slots are.
const TABLE: u32 = Lanes::OWN;
/// Two vectors.
const VECTORS: u32 = TABLE + 64;
/// A tile.
const SCRATCH: u32 = VECTORS + 2 * VECTOR_BYTES;
/// Words of rotations: see [`super::rotation`].
const FACTORS: u32 = SCRATCH + 4 * Slot::SCRATCH_WORDS;

/// What the functions of a step have: pointers that move by modifiers, the number of vectors, constants.
pub(super) struct Operands {
    pub first: (Reg, Reg),
    pub second: (Reg, Reg),
    pub target: (Reg, Reg),
    /// What the target has, for the function that leaves some of it.
    pub present: Reg,
    pub vectors: Reg,
    pub constants: [Reg; 4],
}

/// The program.
///
/// # Errors
/// [`CoreError`], when it does not fit.
pub fn program() -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(Isa::aie2());
    let configuration = Configuration::new(&mut b);
    let parameters = b.region("parameters");
    let table_region = b.region("table");
    let minus_one = b.scalar(-1);
    let table = b.pointer_at(table_region, TABLE);
    for (slot, address) in
        [(Slot::Scratch, SCRATCH), (Slot::V0, VECTORS), (Slot::V1, VECTORS + VECTOR_BYTES), (Slot::Factors, FACTORS)]
    {
        let address = b.scalar(address.into());
        b.store(address, table, Address::At(4 * slot as i64));
    }
    b.forever(|b| {
        b.acquire(Lanes::GO, minus_one);
        let block = b.pointer_at(parameters, Lanes::PARAMETERS);
        let word = |b: &mut CoreBuilder, index: i64| {
            let word = b.reg(Class::Scalar);
            b.load(word, block, Address::At(4 * index));
            word
        };
        let [outer, inner, steps, a_sum, b_sum, result_sum, has_b, prepared] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|index| word(b, index));
        let [a, second, result] = [Lanes::A, Lanes::B, Lanes::RESULT].map(|place| b.scalar(place.address.into()));
        // What the next tile of the second operand is for: the preparation, or tiles of the first.
        let one = b.scalar(1);
        let has_a = b.binary("eq", prepared, 0);
        let (now_inner, now_steps) = (b.select(prepared, one, inner), b.select(prepared, prepared, steps));
        let start = b.scalar((Lanes::PARAMETERS + 4 * HEADER_WORDS).into());
        b.repeat(Count::from(outer).at_least(1), |b| {
            b.when(has_b, |b| {
                b.acquire(Lanes::B.full, minus_one);
                b.store(second, table, Address::At(4 * Slot::B as i64));
            });
            b.repeat(Count::from(now_inner).at_least(1), |b| {
                b.when(has_a, |b| {
                    b.acquire(Lanes::A.full, minus_one);
                    b.acquire(Lanes::RESULT.empty, minus_one);
                    b.store(a, table, Address::At(4 * Slot::A as i64));
                    b.store(result, table, Address::At(4 * Slot::Result as i64));
                });
                let record = b.pointer(parameters);
                b.mov(record, start);
                b.repeat(Count::from(now_steps).at_least(1), |b| step(b, configuration, record, table));
                b.when(has_a, |b| {
                    b.release(Lanes::A.empty, 1);
                    b.release(Lanes::RESULT.full, 1);
                    b.binary_into(a, "sub", a_sum, a);
                    b.binary_into(result, "sub", result_sum, result);
                });
            });
            b.when(has_b, |b| {
                b.release(Lanes::B.empty, 1);
                b.binary_into(second, "sub", b_sum, second);
            });
            // The preparation is over.
            let skipped = b.scalar((4 * Step::WORDS).into());
            let skipped = b.binary("mul", skipped, prepared);
            b.binary_into(start, "add", start, skipped);
            b.constant_into(prepared, 0);
            b.constant_into(has_a, 1);
            b.mov(now_inner, inner);
            b.mov(now_steps, steps);
        });
    });
    // Bodies of hundreds of operations gain little from overlapping iterations, and finding out takes long.
    b.finish_with(Scheduling::Straight)
}

/// One step: its operands, then its function.
fn step(b: &mut CoreBuilder, configuration: Configuration, record: Reg, table: Reg) {
    let word = |b: &mut CoreBuilder, class| {
        let word = b.reg(class);
        b.load(word, record, Address::Then(4));
        word
    };
    let function = word(b, Class::Scalar);
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push((word(b, Class::Jump), word(b, Class::Modifier)));
    }
    let offset = word(b, Class::Modifier);
    let vectors = word(b, Class::Scalar);
    let constants = [(); 4].map(|()| word(b, Class::Scalar));
    // Loads and stores of one step do not depend on each other but for what a step reads of the vector that it writes.
    let regions = ["first", "second", "target", "present"].map(|name| b.region(name));
    let pointer = |b: &mut CoreBuilder, region: Region, index: Reg| {
        let pointer = b.pointer(region);
        b.load(pointer, table, Address::Index(index));
        pointer
    };
    let first = pointer(b, regions[0], places[0].0);
    let second = pointer(b, regions[1], places[1].0);
    let target = pointer(b, regions[2], places[2].0);
    b.advance(first, offset);
    b.advance(target, offset);
    let present = b.pointer(regions[3]);
    b.mov(present, target);
    let operands = Operands {
        first: (first, places[0].1),
        second: (second, places[1].1),
        target: (target, places[2].1),
        present,
        vectors,
        constants,
    };
    b.choose(function, Function::COUNT, |b, number| {
        if let Some(function) = FUNCTIONS.iter().find(|function| **function as u32 == number) {
            compute(b, configuration, &operands, *function);
        }
    });
}

const FUNCTIONS: [Function; Function::COUNT as usize] = {
    use Function as F;
    [
        F::Add,
        F::Sub,
        F::Mul,
        F::Div,
        F::Scale,
        F::Offset,
        F::Clamp,
        F::Bits,
        F::Sign,
        F::Choose,
        F::Signum,
        F::Floor,
        F::Root,
        F::ReciprocalRoot,
        F::Reciprocal,
        F::Exp,
        F::Expm1,
        F::Sigmoid,
        F::NormalTail,
        F::Log,
        F::Sine,
        F::Sum,
        F::SumOfSquares,
        F::Largest,
        F::Pad,
        F::First,
        F::Repeat,
        F::Turns,
        F::RotatePairs,
        F::RotateHalves,
    ]
};

const SIGN: u32 = 0x8000_0000;

/// The loop of a function.
fn compute(b: &mut CoreBuilder, configuration: Configuration, o: &Operands, function: Function) {
    use Function as F;
    b.name_loop(&format!("{function:?}"));
    let [c0, c1, c2, c3] = o.constants;
    match function {
        F::Add => pairs(b, configuration, o, |l, x, y| l.add(x, y)),
        F::Sub => two(b, configuration, o, |l, x, y| l.sub(x, y)),
        F::Mul => pairs(b, configuration, o, |l, x, y| product::product(l, x, y)),
        F::Div => two(b, configuration, o, |l, x, y| quotient::quotient(l, x, y)),
        F::Scale => {
            let mut l = Emission::new(b, configuration);
            let terms = [c0, c1, c2].map(|term| l.splat(term));
            one(b, configuration, o, |l, x| {
                let bias = l.splat(c3);
                let bias = l.float(bias);
                let joined = |l: &mut Emission<'_>, low: Reg, high: Reg| {
                    let pair = l.builder.reg(Class::X);
                    l.builder.mov(pair.lo(), low.lo());
                    l.builder.mov(pair.hi(), high.hi());
                    pair
                };
                let [f0, f1, f2] = terms;
                let [x0, x1, x2] = product::split(l, x).numbers();
                let (ends, turned) = (l.narrow(x0, x2), joined(l, f2, f0));
                let sum = l.multiply(ends, turned);
                let (leading, crossed) = (l.narrow(x0, x1), joined(l, f1, f0));
                let sum = l.multiply_add(sum, leading, crossed);
                let straight = joined(l, f0, f1);
                let product = l.multiply_add(sum, leading, straight);
                l.add(product, bias)
            });
        }
        F::Offset => one(b, configuration, o, |l, x| {
            let addend = l.splat(c0);
            let addend = l.float(addend);
            l.add(x, addend)
        }),
        F::Clamp => one(b, configuration, o, |l, x| {
            let x = order(l, x);
            let (low, high) = (l.splat(c0), l.splat(c1));
            let x = l.min_words(x, high);
            let x = l.max_words(x, low);
            let x = in_order(l, x);
            l.float(x)
        }),
        F::Bits => one(b, configuration, o, |l, x| {
            let (x, kept, added) = (l.bits(x), l.splat(c0), l.splat(c1));
            let x = l.and(x, kept);
            let x = l.add_words(x, added);
            l.float(x)
        }),
        F::Sign => two(b, configuration, o, |l, x, y| {
            let (x, y, sign) = (l.bits(x), l.bits(y), l.word(SIGN));
            let sign = l.and(y, sign);
            let x = l.or(x, sign);
            l.float(x)
        }),
        F::Choose => {
            let (present, by) = (o.present, o.target.1);
            two(b, configuration, o, |l, x, y| {
                let old = l.builder.reg(Class::Acc512);
                l.builder.load(old, present, Address::ThenBy(by));
                let (old, y) = (l.bits(old), l.bits(y));
                let (x, bound) = (order(l, x), l.splat(c0));
                let above = l.less(bound, x);
                let chosen = l.select(old, y, above);
                l.float(chosen)
            });
        }
        F::Signum => one(b, configuration, o, |l, x| {
            let (x, zero, sign) = (l.bits(x), l.word(0), l.word(SIGN));
            let above = l.less(zero, x);
            // Of minus zero the turned bits are zero.
            let turned = l.add_words(x, sign);
            let below = l.less(zero, turned);
            let (positive, negative) = (l.splat(c0), l.splat(c1));
            let result = l.select(zero, negative, below);
            let result = l.select(result, positive, above);
            l.float(result)
        }),
        F::Floor => one(b, configuration, o, floor),
        F::Root => one(b, configuration, o, |l, x| root::root(l, x)),
        F::ReciprocalRoot => one(b, configuration, o, |l, x| root::reciprocal_root(l, x)),
        F::Reciprocal => one(b, configuration, o, |l, x| quotient::reciprocal(l, x)),
        F::Exp => one(b, configuration, o, |l, x| exponential::exp(l, x)),
        F::Expm1 => one(b, configuration, o, |l, x| exponential::expm1_held(l, x)),
        F::Sigmoid => one(b, configuration, o, |l, x| exponential::sigmoid(l, x)),
        F::NormalTail => one(b, configuration, o, |l, x| exponential::normal_tail(l, x)),
        F::Log => one(b, configuration, o, |l, x| logarithm::log(l, x)),
        F::Sine => one(b, configuration, o, |l, x| {
            let factor = trigonometry::factor(l, trigonometry::QUARTERS_PER_RADIAN);
            let mut angle = trigonometry::angle(l, x, factor);
            let more = l.splat(c0);
            angle.turn(l, more);
            trigonometry::sine(l, &angle)
        }),
        F::Sum => folded(b, configuration, o, 0, |l, sum, x| l.add(sum, x), |l, x, y| l.add(x, y)),
        F::SumOfSquares => folded(
            b,
            configuration,
            o,
            0,
            |l, sum, x| {
                let square = product::square(l, x);
                l.add(sum, square)
            },
            |l, x, y| l.add(x, y),
        ),
        F::Largest => folded(b, configuration, o, f32::NEG_INFINITY.to_bits(), largest, largest),
        F::Pad => one(b, configuration, o, |l, x| {
            let (x, pad) = (l.bits(x), l.splat(c1));
            let x = l.select(pad, x, c0);
            l.float(x)
        }),
        F::First => {
            let first = b.reg(Class::Scalar);
            b.load(first, o.first.0, Address::At(0));
            let mut l = Emission::new(b, configuration);
            let x = l.splat(first);
            b.store(x, o.target.0, Address::At(0));
        }
        F::Repeat => rotation::repeat(b, o),
        F::Turns => rotation::turns(b, configuration, o),
        F::RotatePairs => rotation::rotate_pairs(b, configuration, o),
        F::RotateHalves => rotation::rotate_halves(b, configuration, o),
    }
}

fn one(
    b: &mut CoreBuilder,
    configuration: Configuration,
    o: &Operands,
    function: impl FnOnce(&mut Emission<'_>, Reg) -> Reg,
) {
    b.repeat(Count::from(o.vectors).at_least(1), |b| {
        let x = b.reg(Class::Acc512);
        b.load(x, o.first.0, Address::ThenBy(o.first.1));
        let y = function(&mut Emission::new(b, configuration), x);
        b.store(y, o.target.0, Address::ThenBy(o.target.1));
    });
}

fn two(
    b: &mut CoreBuilder,
    configuration: Configuration,
    o: &Operands,
    function: impl FnOnce(&mut Emission<'_>, Reg, Reg) -> Reg,
) {
    b.repeat(Count::from(o.vectors).at_least(1), |b| {
        let (x, y) = (b.reg(Class::Acc512), b.reg(Class::Acc512));
        b.load(x, o.first.0, Address::ThenBy(o.first.1));
        b.load(y, o.second.0, Address::ThenBy(o.second.1));
        let z = function(&mut Emission::new(b, configuration), x, y);
        b.store(z, o.target.0, Address::ThenBy(o.target.1));
    });
}

/// As [`two`] on two vectors at a time, which hide each other's latencies: [`Function::vectors_at_once`].
fn pairs(
    b: &mut CoreBuilder,
    configuration: Configuration,
    o: &Operands,
    function: impl Fn(&mut Emission<'_>, Reg, Reg) -> Reg,
) {
    b.repeat(Count::from(o.vectors).at_least(1), |b| {
        let sources = [(); 2].map(|()| {
            let (x, y) = (b.reg(Class::Acc512), b.reg(Class::Acc512));
            b.load(x, o.first.0, Address::ThenBy(o.first.1));
            b.load(y, o.second.0, Address::ThenBy(o.second.1));
            (x, y)
        });
        let results = sources.map(|(x, y)| function(&mut Emission::new(b, configuration), x, y));
        for z in results {
            b.store(z, o.target.0, Address::ThenBy(o.target.1));
        }
    });
}

/// All vectors into one, then its lanes: rotations by 8, 4, 2 and 1 lanes leave the result in all of them.
fn folded(
    b: &mut CoreBuilder,
    configuration: Configuration,
    o: &Operands,
    start: u32,
    take: impl FnOnce(&mut Emission<'_>, Reg, Reg) -> Reg,
    mut merge: impl FnMut(&mut Emission<'_>, Reg, Reg) -> Reg,
) {
    let total = b.reg(Class::Acc512);
    let mut l = Emission::new(b, configuration);
    let start = l.word(start);
    b.mov(total, start);
    b.repeat(Count::from(o.vectors).at_least(1), |b| {
        let x = b.reg(Class::Acc512);
        b.load(x, o.first.0, Address::ThenBy(o.first.1));
        let next = take(&mut Emission::new(b, configuration), total, x);
        b.mov(total, next);
    });
    let mut total = total;
    for bytes in [32, 16, 8, 4] {
        let mut l = Emission::new(b, configuration);
        let bits = l.bits(total);
        let (shift, turned) = (l.builder.scalar(bytes), l.builder.reg(Class::X));
        l.builder.emit("vshift", [turned, bits, bits, shift]);
        let turned = l.float(turned);
        total = merge(&mut l, total, turned);
    }
    b.store(total, o.target.0, Address::At(0));
}

/// Words whose order as signed integers is that of the numbers.
fn order(l: &mut Emission<'_>, x: Reg) -> Reg {
    let x = l.bits(x);
    in_order(l, x)
}

/// There and back: the order's words of the words are themselves.
fn in_order(l: &mut Emission<'_>, x: Reg) -> Reg {
    let (sign, zero) = (l.word(SIGN), l.word(0));
    let turned = l.sub_words(sign, x);
    let negative = l.less(x, zero);
    l.select(x, turned, negative)
}

fn largest(l: &mut Emission<'_>, x: Reg, y: Reg) -> Reg {
    let (x, y) = (order(l, x), order(l, y));
    let larger = l.max_words(x, y);
    let larger = in_order(l, larger);
    l.float(larger)
}

/// Sums with 1.5 * 2^23 are the nearest whole numbers; from 2^22 on there are no others.
fn floor(l: &mut Emission<'_>, x: Reg) -> Reg {
    let whole = l.constant(12_582_912.0);
    let sum = l.add(x, whole);
    let nearest = l.sub(sum, whole);
    let rest = l.sub(x, nearest);
    let one = l.constant(1.0);
    let below = l.sub(nearest, one);
    let (rest, zero) = (l.bits(rest), l.word(0));
    let too_large = l.less(rest, zero);
    let (nearest, below) = (l.bits(nearest), l.bits(below));
    let result = l.select(nearest, below, too_large);
    let (x, magnitude, limit) = (l.bits(x), l.word(!SIGN), l.word(4_194_304f32.to_bits()));
    let size = l.and(x, magnitude);
    let small = l.less(size, limit);
    let result = l.select(x, result, small);
    l.float(result)
}
