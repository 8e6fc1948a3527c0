//! The loops of the functions.

use super::super::numerics::{
    Configuration, Emission, Lanes as _, Twins, exponential, logarithm, product, quotient, root, trigonometry,
};
use super::functions::{Form, Function};
use super::repetition;
use super::rotation;
use super::step::VECTOR_BYTES;
use crate::core::{Address, Class, CoreBuilder, Count, Reg};

/// What the functions of a step have: pointers that move by modifiers, the number of iterations, constants.
pub(super) struct Operands {
    pub first: (Reg, Reg),
    pub second: (Reg, Reg),
    pub target: (Reg, Reg),
    /// What the target has, for the function that leaves some of it.
    pub present: Reg,
    pub vectors: Reg,
    pub constants: [Reg; 4],
}

impl Operands {
    /// The count of the loop of a function.
    pub(super) fn count(&self, function: Function) -> Count {
        let count = Count::from(self.vectors).at_least(1);
        match function.form() {
            Form::Overlapped | Form::OverlappedTwins => count,
            Form::Twins | Form::InTurn => count.in_turn(),
        }
    }
}

const SIGN: u32 = 0x8000_0000;

/// A program under construction, a step, and the function of it that is being written.
struct Loop<'a> {
    b: &'a mut CoreBuilder,
    configuration: Configuration,
    operands: &'a Operands,
    function: Function,
}

/// The loop of a function.
pub(super) fn compute(b: &mut CoreBuilder, configuration: Configuration, o: &Operands, function: Function) {
    use Function as F;
    b.name_loop(&format!("{function:?}"));
    let [c0, c1, c2, c3] = o.constants;
    let mut on = Loop { b, configuration, operands: o, function };
    match function {
        F::Add => on.two(|l, x, y| l.add(x, y)),
        F::Sub => on.two(|l, x, y| l.sub(x, y)),
        F::Mul => on.twins_of_two(|l, x, y| product::product(l, x, y)),
        F::Div => on.twins_of_two(|l, x, y| quotient::quotient(l, x, y)),
        F::Scale => {
            let mut l = on.before();
            let [f0, f1, f2, bias] = [c0, c1, c2, c3].map(|term| l.splat(term));
            let joined = |l: &mut Emission<'_>, low: Reg, high: Reg| {
                let pair = l.builder.reg(Class::X);
                l.builder.mov(pair.lo(), low.lo());
                l.builder.mov(pair.hi(), high.hi());
                pair
            };
            let factor = [(f0, f1), (f1, f0), (f2, f0)].map(|(low, high)| joined(&mut l, low, high));
            let bias = l.float(bias);
            on.twins_of_one(|l, x| {
                let product = product::scaled_by(l, x, factor.map(|pair| [pair; 2]));
                l.add(product, [bias; 2])
            });
        }
        F::Offset => {
            let mut l = on.before();
            let addend = l.splat(c0);
            let addend = l.float(addend);
            on.one(|l, x| l.add(x, addend));
        }
        F::Clamp => {
            let mut l = on.before();
            let (low, high, order) = (l.splat(c0), l.splat(c1), Order::new(&mut l));
            on.one(|l, x| {
                let x = order.of_float(l, x);
                let x = l.min_words(x, high);
                let x = l.max_words(x, low);
                let x = order.of(l, x);
                l.float(x)
            });
        }
        F::Bits => {
            let mut l = on.before();
            let (kept, added) = (l.splat(c0), l.splat(c1));
            on.one(|l, x| {
                let x = l.bits(x);
                let x = l.and(x, kept);
                let x = l.add_words(x, added);
                l.float(x)
            });
        }
        F::Sign => {
            let sign = on.before().word(SIGN);
            on.two(|l, x, y| {
                let (x, y) = (l.bits(x), l.bits(y));
                let sign = l.and(y, sign);
                let x = l.or(x, sign);
                l.float(x)
            });
        }
        F::Choose => {
            let mut l = on.before();
            let (bound, order) = (l.splat(c0), Order::new(&mut l));
            on.two(|l, x, y| {
                let old = l.builder.reg(Class::Acc512);
                l.builder.load(old, o.present, Address::ThenBy(o.target.1));
                let (old, y) = (l.bits(old), l.bits(y));
                let x = order.of_float(l, x);
                let above = l.less(bound, x);
                let chosen = l.select(old, y, above);
                l.float(chosen)
            });
        }
        F::Signum => {
            let mut l = on.before();
            let (positive, negative, zero, sign) = (l.splat(c0), l.splat(c1), l.word(0), l.word(SIGN));
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
        F::Floor => on.one(floor),
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
        F::Sum => on.sum(|_, x| x),
        F::SumOfSquares => on.sum_of_twins(|l, x| product::square(l, x)),
        F::Largest => on.largest(),
        F::Larger => {
            let order = Order::new(&mut on.before());
            on.two(|l, x, y| {
                let (x, y) = (order.of_float(l, x), order.of_float(l, y));
                let larger = l.max_words(x, y);
                let larger = order.of(l, larger);
                l.float(larger)
            });
        }
        F::Pad => {
            let pad = on.before().splat(c1);
            on.one(|l, x| {
                let x = l.bits(x);
                let x = l.select(pad, x, c0);
                l.float(x)
            });
        }
        F::First => {
            let first = on.b.reg(Class::Scalar);
            on.b.load(first, o.first.0, Address::At(0));
            let x = on.before().splat(first);
            on.b.store(x, o.target.0, Address::At(0));
        }
        F::Widen => {
            let back = on.b.reg(Class::Modifier);
            on.b.mov(back, c0);
            on.b.advance(o.first.0, back);
            on.b.repeat(o.count(function), |b| {
                let x = b.reg(Class::Acc512);
                let bytes = i64::from(VECTOR_BYTES);
                b.load_as("vlda.conv.fp32.bf16", x, o.first.0, Address::Then(-bytes / 2));
                b.store(x, o.target.0, Address::Then(-bytes));
            });
        }
        F::Narrow => on.b.repeat(o.count(function), |b| {
            let x = b.reg(Class::Acc512);
            let bytes = i64::from(VECTOR_BYTES);
            b.load(x, o.first.0, Address::Then(bytes));
            b.store_as("vst.conv.bf16.fp32", x, o.target.0, Address::Then(bytes / 2));
        }),
        F::Repeat => repetition::repeat(on.b, o),
        F::Again | F::AgainWords => repetition::again(on.b, o, function),
        F::Gather => rotation::gather(on.b, o),
        F::Turns => rotation::turns(on.b, configuration, o),
        F::RotatePairs => rotation::rotate_pairs(on.b, configuration, o),
        F::RotateHalves => rotation::rotate_halves(on.b, configuration, o),
    }
}

fn next(b: &mut CoreBuilder, (pointer, step): (Reg, Reg)) -> Reg {
    let x = b.reg(Class::Acc512);
    b.load(x, pointer, Address::ThenBy(step));
    x
}

impl Loop<'_> {
    /// For what does not change in the loop.
    fn before(&mut self) -> Emission<'_> {
        Emission::new(self.b, self.configuration)
    }

    fn one(&mut self, function: impl FnOnce(&mut Emission<'_>, Reg) -> Reg) {
        let (o, configuration) = (self.operands, self.configuration);
        self.b.repeat(o.count(self.function), |b| {
            let x = next(b, o.first);
            let y = function(&mut Emission::new(b, configuration), x);
            b.store(y, o.target.0, Address::ThenBy(o.target.1));
        });
    }

    fn two(&mut self, function: impl FnOnce(&mut Emission<'_>, Reg, Reg) -> Reg) {
        let (o, configuration) = (self.operands, self.configuration);
        self.b.repeat(o.count(self.function), |b| {
            let (x, y) = (next(b, o.first), next(b, o.second));
            let z = function(&mut Emission::new(b, configuration), x, y);
            b.store(z, o.target.0, Address::ThenBy(o.target.1));
        });
    }

    /// As [`Loop::one`] on two vectors an iteration.
    fn twins_of_one(&mut self, function: impl FnOnce(&mut Twins<'_, '_>, [Reg; 2]) -> [Reg; 2]) {
        let (o, configuration) = (self.operands, self.configuration);
        self.b.repeat(o.count(self.function), |b| {
            let x = [next(b, o.first), next(b, o.first)];
            let y = function(&mut Twins(&mut Emission::new(b, configuration)), x);
            y.into_iter().for_each(|y| b.store(y, o.target.0, Address::ThenBy(o.target.1)));
        });
    }

    /// As [`Loop::two`] on two vectors an iteration.
    fn twins_of_two(&mut self, function: impl FnOnce(&mut Twins<'_, '_>, [Reg; 2], [Reg; 2]) -> [Reg; 2]) {
        let (o, configuration) = (self.operands, self.configuration);
        self.b.repeat(o.count(self.function), |b| {
            let x = [next(b, o.first), next(b, o.first)];
            let y = [next(b, o.second), next(b, o.second)];
            let z = function(&mut Twins(&mut Emission::new(b, configuration)), x, y);
            z.into_iter().for_each(|z| b.store(z, o.target.0, Address::ThenBy(o.target.1)));
        });
    }

    /// The sum of what `function` makes of all vectors, then of its lanes: rotations by 8, 4, 2 and 1 lanes leave it in all of them.
    fn sum(&mut self, function: impl FnOnce(&mut Emission<'_>, Reg) -> Reg) {
        let (o, configuration) = (self.operands, self.configuration);
        self.sum_of(|b, sum| {
            let x = next(b, o.first);
            let mut l = Emission::new(b, configuration);
            let y = function(&mut l, x);
            l.add_into(sum, y);
        });
    }

    /// As [`Loop::sum`] on two vectors an iteration.
    fn sum_of_twins(&mut self, function: impl FnOnce(&mut Twins<'_, '_>, [Reg; 2]) -> [Reg; 2]) {
        let (o, configuration) = (self.operands, self.configuration);
        self.sum_of(|b, sum| {
            let x = [next(b, o.first), next(b, o.first)];
            let mut l = Emission::new(b, configuration);
            let y = function(&mut Twins(&mut l), x);
            y.into_iter().for_each(|y| l.add_into(sum, y));
        });
    }

    fn sum_of(&mut self, body: impl FnOnce(&mut CoreBuilder, Reg)) {
        let o = self.operands;
        let sum = self.b.reg(Class::Acc512);
        let zero = self.before().word(0);
        self.b.mov(sum, zero);
        self.b.repeat(o.count(self.function), |b| body(b, sum));
        let mut l = self.before();
        for bytes in [32, 16, 8, 4] {
            let bits = l.bits(sum);
            let turned = turned(&mut l, bits, bytes);
            let turned = l.float(turned);
            l.add_into(sum, turned);
        }
        self.b.store(sum, o.target.0, Address::At(0));
    }

    /// The largest of all elements, in all lanes.
    fn largest(&mut self) {
        let (o, configuration) = (self.operands, self.configuration);
        let largest = self.b.reg(Class::X);
        let mut l = self.before();
        let order = Order::new(&mut l);
        let start = l.word(f32::NEG_INFINITY.to_bits());
        let start = order.of(&mut l, start);
        self.b.mov(largest, start);
        self.b.repeat(o.count(self.function), |b| {
            let x = next(b, o.first);
            let mut l = Emission::new(b, configuration);
            let x = order.of_float(&mut l, x);
            let larger = l.max_words(largest, x);
            l.builder.mov(largest, larger);
        });
        let mut l = self.before();
        for bytes in [32, 16, 8, 4] {
            let turned = turned(&mut l, largest, bytes);
            let larger = l.max_words(largest, turned);
            l.builder.mov(largest, larger);
        }
        let result = order.of(&mut l, largest);
        self.b.store(result, o.target.0, Address::At(0));
    }
}

/// All lanes moved by bytes, those at the end to the other end.
fn turned(l: &mut Emission<'_>, x: Reg, bytes: i64) -> Reg {
    let (shift, turned) = (l.builder.scalar(bytes), l.builder.reg(Class::X));
    l.builder.emit("vshift", [turned, x, x, shift]);
    turned
}

/// Words whose order as signed integers is that of the numbers.
#[derive(Clone, Copy)]
struct Order {
    sign: Reg,
    zero: Reg,
}

impl Order {
    fn new(l: &mut Emission<'_>) -> Self {
        Self { sign: l.word(SIGN), zero: l.word(0) }
    }

    fn of_float(self, l: &mut Emission<'_>, x: Reg) -> Reg {
        let x = l.bits(x);
        self.of(l, x)
    }

    /// There and back: the order's words of the words are themselves.
    fn of(self, l: &mut Emission<'_>, x: Reg) -> Reg {
        let turned = l.sub_words(self.sign, x);
        let negative = l.less(x, self.zero);
        l.select(x, turned, negative)
    }
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
