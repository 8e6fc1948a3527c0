//! The loops of the functions.

use super::functions::Function;
use super::operands::Operands;
use super::repetition;
use super::rotation;
use super::step::VECTOR_BYTES;
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::numerics::{Lanes, Unit, Vectors, exponential, half, logarithm, product, quotient, root, trigonometry};

const SIGN: u32 = 0x8000_0000;

/// A program under construction, a step, and the function of it that is being written.
struct Loop<'a, U> {
    b: &'a mut CoreBuilder,
    unit: U,
    operands: &'a Operands,
    function: Function,
}

/// The loop of a function.
pub(super) fn compute<U: Unit>(b: &mut CoreBuilder, unit: U, o: &Operands, function: Function) {
    use Function as F;
    b.name_loop(&format!("{function:?}"));
    let [c0, c1, c2, c3] = o.constants;
    let mut on = Loop { b, unit, operands: o, function };
    match function {
        F::Add => on.two(|l, x, y| l.add(x, y)),
        F::Sub => on.two(|l, x, y| l.sub(x, y)),
        F::Mul => on.twins_of_two(|l, x, y| product::product(l, x, y)),
        F::Div => on.twins_of_two(|l, x, y| quotient::quotient(l, x, y)),
        F::Scale => {
            let (factor, bias) = {
                let mut l = unit.two(on.b);
                let bias = l.splat(c3);
                ([(c0, c1), (c1, c0), (c2, c0)].map(|(low, high)| l.splat_pair(low, high)), l.float(bias))
            };
            on.twins_of_one(|l, x| {
                let product = product::scaled_by(l, x, factor);
                l.add(product, bias)
            });
        }
        F::Offset => {
            let addend = on.before(|l| {
                let addend = l.splat(c0);
                l.float(addend)
            });
            on.one(|l, x| l.add(x, addend));
        }
        F::Clamp => {
            let (low, high, order) = on.before(|l| (l.splat(c0), l.splat(c1), Order::new(l)));
            on.one(|l, x| {
                let x = order.of_float(l, x);
                let x = l.min_words(x, high);
                let x = l.max_words(x, low);
                let x = order.of(l, x);
                l.float(x)
            });
        }
        F::Bits => {
            let (kept, added) = on.before(|l| (l.splat(c0), l.splat(c1)));
            on.one(|l, x| {
                let x = l.bits(x);
                let x = l.and(x, kept);
                let x = l.add_words(x, added);
                l.float(x)
            });
        }
        F::Sign => {
            let sign = on.before(|l| l.word(SIGN));
            on.two(|l, x, y| {
                let (x, y) = (l.bits(x), l.bits(y));
                let sign = l.and(y, sign);
                let x = l.or(x, sign);
                l.float(x)
            });
        }
        F::Choose => {
            let (bound, order) = on.before(|l| (l.splat(c0), Order::new(l)));
            on.two(|l, x, y| {
                let old = l.load(o.present, Address::ThenBy(o.target.1));
                let (old, y) = (l.bits(old), l.bits(y));
                let x = order.of_float(l, x);
                let above = l.less(bound, x);
                let chosen = l.select(old, y, above);
                l.float(chosen)
            });
        }
        F::Signum => {
            let [positive, negative, zero, sign] = on.before(|l| [l.splat(c0), l.splat(c1), l.word(0), l.word(SIGN)]);
            on.one(|l, x| {
                let x = l.bits(x);
                let above = l.less(zero, x);
                // Of minus zero the turned bits are zero.
                let turned = l.add_words(x, sign);
                let below = l.less(zero, turned);
                let result = l.select(zero, negative, below);
                let result = l.select(result, positive, above);
                l.float(result)
            });
        }
        F::Floor => on.one(|l, x| floor(l, x)),
        F::Root => on.twins_of_one(|l, x| root::root(l, x)),
        F::ReciprocalRoot => on.one(|l, x| root::reciprocal_root(l, x)),
        F::Reciprocal => on.one(|l, x| quotient::reciprocal(l, x)),
        F::Exp => on.twins_of_one(|l, x| exponential::exp(l, x)),
        F::Expm1 => on.one(|l, x| exponential::expm1_held(l, x)),
        F::Sigmoid => on.twins_of_one(|l, x| exponential::sigmoid(l, x)),
        F::Gate => on.two(|l, x, y| exponential::gated(l, x, y)),
        F::NormalTail => on.one(|l, x| exponential::normal_tail(l, x)),
        F::Log => on.one(|l, x| logarithm::log(l, x)),
        F::Sine => on.one(|l, x| {
            let factor = trigonometry::factor(l, trigonometry::QUARTERS_PER_RADIAN);
            let mut angle = trigonometry::angle(l, x, factor);
            let more = l.splat(c0);
            angle.turn(l, more);
            trigonometry::sine(l, &angle)
        }),
        F::Sum => on.sum(),
        F::SumOfSquares => on.sum_of_twins(|l, x| product::square(l, x)),
        F::Largest => on.largest(),
        F::Larger => {
            let order = on.before(|l| Order::new(l));
            on.two(|l, x, y| {
                let (x, y) = (order.of_float(l, x), order.of_float(l, y));
                let larger = l.max_words(x, y);
                let larger = order.of(l, larger);
                l.float(larger)
            });
        }
        F::Pad => {
            let pad = on.before(|l| l.splat(c1));
            on.one(|l, x| {
                let (x, mask) = (l.bits(x), l.mask(c0));
                let x = l.select(pad, x, mask);
                l.float(x)
            });
        }
        F::First => {
            let first = on.b.reg(Class::Scalar);
            on.b.load(first, o.first.0, Address::At(0));
            on.before(|l| {
                let x = l.splat(first);
                let x = l.float(x);
                l.store(x, o.target.0, Address::At(0));
            });
        }
        F::Widen => {
            let back = on.b.reg(Class::Modifier);
            on.b.mov(back, c0);
            on.b.advance(o.first.0, back);
            on.b.repeat(o.count(function), |b| {
                let (mut l, bytes) = (unit.one(b), i64::from(VECTOR_BYTES));
                let x = l.load_bf16(o.first.0, Address::Then(-bytes / 2));
                l.store(x, o.target.0, Address::Then(-bytes));
            });
        }
        F::Narrow => on.b.repeat(o.count(function), |b| {
            let (mut l, bytes) = (unit.one(b), i64::from(VECTOR_BYTES));
            let x = l.load(o.first.0, Address::Then(bytes));
            l.store_bf16(x, o.target.0, Address::Then(bytes / 2));
        }),
        F::Half => on.b.repeat(o.count(function), |b| {
            let words = [(); 2].map(|()| {
                let mut l = unit.one(b);
                let x = next(&mut l, o.first);
                half::half(&mut l, x)
            });
            unit.store_halves(b, words, o.target.0, Address::Then(VECTOR_BYTES.into()));
        }),
        F::Repeat => repetition::repeat(on.b, o),
        F::Again | F::AgainWords => repetition::again(on.b, o, function),
        F::Gather => rotation::gather(on.b, o),
        F::Turns => rotation::turns(on.b, unit, o),
        F::RotatePairs => rotation::rotate_pairs(on.b, unit, o),
        F::RotateHalves => rotation::rotate_halves(on.b, unit, o),
    }
}

fn next<L: Vectors>(l: &mut L, (pointer, step): (Reg, Reg)) -> L::Float {
    l.load(pointer, Address::ThenBy(step))
}

impl<U: Unit> Loop<'_, U> {
    /// For what does not change in the loop.
    fn before<T>(&mut self, constants: impl FnOnce(&mut U::One<'_>) -> T) -> T {
        constants(&mut self.unit.one(self.b))
    }

    fn one(&mut self, function: impl FnOnce(&mut U::One<'_>, U::Float) -> U::Float) {
        let (o, unit) = (self.operands, self.unit);
        self.b.repeat(o.count(self.function), |b| {
            let mut l = unit.one(b);
            let x = next(&mut l, o.first);
            let y = function(&mut l, x);
            l.store(y, o.target.0, Address::ThenBy(o.target.1));
        });
    }

    fn two(&mut self, function: impl FnOnce(&mut U::One<'_>, U::Float, U::Float) -> U::Float) {
        let (o, unit) = (self.operands, self.unit);
        self.b.repeat(o.count(self.function), |b| {
            let mut l = unit.one(b);
            let (x, y) = (next(&mut l, o.first), next(&mut l, o.second));
            let z = function(&mut l, x, y);
            l.store(z, o.target.0, Address::ThenBy(o.target.1));
        });
    }

    /// As [`Loop::one`] on two vectors an iteration.
    fn twins_of_one(&mut self, function: impl FnOnce(&mut U::Two<'_>, U::Floats) -> U::Floats) {
        let (o, unit) = (self.operands, self.unit);
        self.b.repeat(o.count(self.function), |b| {
            let mut l = unit.two(b);
            let x = next(&mut l, o.first);
            let y = function(&mut l, x);
            l.store(y, o.target.0, Address::ThenBy(o.target.1));
        });
    }

    /// As [`Loop::two`] on two vectors an iteration.
    fn twins_of_two(&mut self, function: impl FnOnce(&mut U::Two<'_>, U::Floats, U::Floats) -> U::Floats) {
        let (o, unit) = (self.operands, self.unit);
        self.b.repeat(o.count(self.function), |b| {
            let mut l = unit.two(b);
            let (x, y) = (next(&mut l, o.first), next(&mut l, o.second));
            let z = function(&mut l, x, y);
            l.store(z, o.target.0, Address::ThenBy(o.target.1));
        });
    }

    /// The sum of all vectors, then of its lanes.
    fn sum(&mut self) {
        let (o, unit) = (self.operands, self.unit);
        let sum = self.before(|l| l.zeros());
        self.b.repeat(o.count(self.function), |b| {
            let mut l = unit.one(b);
            let x = next(&mut l, o.first);
            l.add_into(sum, x);
        });
        self.total(sum);
    }

    /// The sum of what `function` makes of all vectors, two an iteration, then of its lanes.
    fn sum_of_twins(&mut self, function: impl FnOnce(&mut U::Two<'_>, U::Floats) -> U::Floats) {
        let (o, unit) = (self.operands, self.unit);
        let sum = unit.two(self.b).zeros();
        self.b.repeat(o.count(self.function), |b| {
            let mut l = unit.two(b);
            let x = next(&mut l, o.first);
            let y = function(&mut l, x);
            l.add_into(sum, y);
        });
        let sum = unit.joined(self.b, sum);
        self.total(sum);
    }

    /// The sum of the lanes: rotations by 8, 4, 2 and 1 lanes leave it in all of them.
    fn total(&mut self, mut sum: U::Float) {
        let target = self.operands.target.0;
        let mut l = self.unit.one(self.b);
        for bytes in [32, 16, 8, 4] {
            let bits = l.bits(sum);
            let turned = l.turned(bits, bytes);
            let turned = l.float(turned);
            sum = l.add(sum, turned);
        }
        l.store(sum, target, Address::At(0));
    }

    /// The largest of all elements, in all lanes.
    fn largest(&mut self) {
        let (o, unit, function) = (self.operands, self.unit, self.function);
        let mut l = unit.one(self.b);
        let order = Order::new(&mut l);
        let start = l.word(f32::NEG_INFINITY.to_bits());
        let start = order.of(&mut l, start);
        let largest = l.copy(start);
        l.builder().repeat(o.count(function), |b| {
            let mut l = unit.one(b);
            let x = next(&mut l, o.first);
            let x = order.of_float(&mut l, x);
            let larger = l.max_words(largest, x);
            l.set(largest, larger);
        });
        let mut result = largest;
        for bytes in [32, 16, 8, 4] {
            let turned = l.turned(result, bytes);
            result = l.max_words(result, turned);
        }
        let result = order.of(&mut l, result);
        let result = l.float(result);
        l.store(result, o.target.0, Address::At(0));
    }
}

/// Words whose order as signed integers is that of the numbers.
#[derive(Clone, Copy)]
struct Order<W> {
    sign: W,
    zero: W,
}

impl<W: Copy> Order<W> {
    fn new<L: Lanes<Word = W>>(l: &mut L) -> Self {
        Self { sign: l.word(SIGN), zero: l.word(0) }
    }

    fn of_float<L: Lanes<Word = W>>(self, l: &mut L, x: L::Float) -> W {
        let x = l.bits(x);
        self.of(l, x)
    }

    /// There and back: the order's words of the words are themselves.
    fn of<L: Lanes<Word = W>>(self, l: &mut L, x: W) -> W {
        let turned = l.sub_words(self.sign, x);
        let negative = l.less(x, self.zero);
        l.select(x, turned, negative)
    }
}

/// Sums with 1.5 * 2^23 are the nearest whole numbers; from 2^22 on there are no others.
fn floor<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
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
