//! Two vectors at a time.

use super::unit::Vectors;
use super::{Emission, Lanes};
use crate::codegen::{Address, CoreBuilder, Reg};

/// [`Lanes`] of two vectors: each operation is written for one and then for the other, so that they hide each other's latencies,
/// and constants are made once for both.
#[derive(Debug)]
pub struct Twins<'b>(pub Emission<'b>);

type Two = [Reg; 2];

impl Twins<'_> {
    fn each(&mut self, x: Two, operation: impl Fn(&mut Emission<'_>, Reg) -> Reg) -> Two {
        x.map(|x| operation(&mut self.0, x))
    }

    fn both(&mut self, [a0, a1]: Two, [b0, b1]: Two, operation: impl Fn(&mut Emission<'_>, Reg, Reg) -> Reg) -> Two {
        [operation(&mut self.0, a0, b0), operation(&mut self.0, a1, b1)]
    }

    fn three(
        &mut self,
        [a0, a1]: Two,
        [b0, b1]: Two,
        [c0, c1]: Two,
        operation: impl Fn(&mut Emission<'_>, Reg, Reg, Reg) -> Reg,
    ) -> Two {
        [operation(&mut self.0, a0, b0, c0), operation(&mut self.0, a1, b1, c1)]
    }
}

impl Lanes for Twins<'_> {
    type Float = Two;
    type Word = Two;
    type Pair = Two;
    type Mask = Two;

    fn word(&mut self, word: u32) -> Two {
        [self.0.word(word); 2]
    }
    fn pair(&mut self, low: u16, high: u16) -> Two {
        [self.0.pair(low, high); 2]
    }
    fn constant(&mut self, x: f32) -> Two {
        [self.0.constant(x); 2]
    }
    fn bits(&mut self, x: Two) -> Two {
        self.each(x, |l, x| l.bits(x))
    }
    fn float(&mut self, x: Two) -> Two {
        self.each(x, |l, x| l.float(x))
    }
    fn add(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.add(a, b))
    }
    fn sub(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.sub(a, b))
    }
    fn narrow(&mut self, low: Two, high: Two) -> Two {
        self.both(low, high, |l, low, high| l.narrow(low, high))
    }
    fn two_terms(&mut self, x: Two) -> Two {
        self.each(x, |l, x| l.two_terms(x))
    }
    fn three_terms(&mut self, [x0, x1]: Two) -> [Two; 2] {
        let ([leading0, ends0], [leading1, ends1]) = (self.0.three_terms(x0), self.0.three_terms(x1));
        [[leading0, leading1], [ends0, ends1]]
    }
    fn swapped(&mut self, x: Two) -> Two {
        self.each(x, |l, x| l.swapped(x))
    }
    fn head(&mut self, x: Two) -> Two {
        self.each(x, |l, x| l.head(x))
    }
    fn multiply(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.multiply(a, b))
    }
    fn multiply_add(&mut self, sum: Two, a: Two, b: Two) -> Two {
        self.three(sum, a, b, |l, sum, a, b| l.multiply_add(sum, a, b))
    }
    fn multiply_sub(&mut self, sum: Two, a: Two, b: Two) -> Two {
        self.three(sum, a, b, |l, sum, a, b| l.multiply_sub(sum, a, b))
    }
    fn add_words(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.add_words(a, b))
    }
    fn sub_words(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.sub_words(a, b))
    }
    fn and(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.and(a, b))
    }
    fn or(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.or(a, b))
    }
    fn shift_left(&mut self, x: Two, by: u32) -> Two {
        self.each(x, |l, x| l.shift_left(x, by))
    }
    fn shift_right(&mut self, x: Two, by: u32) -> Two {
        self.each(x, |l, x| l.shift_right(x, by))
    }
    fn less(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.less(a, b))
    }
    fn select(&mut self, a: Two, b: Two, mask: Two) -> Two {
        self.three(a, b, mask, |l, a, b, mask| l.select(a, b, mask))
    }
    fn max_words(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.max_words(a, b))
    }
    fn min_words(&mut self, a: Two, b: Two) -> Two {
        self.both(a, b, |l, a, b| l.min_words(a, b))
    }
}

impl Vectors for Twins<'_> {
    fn builder(&mut self) -> &mut CoreBuilder {
        self.0.builder()
    }

    fn load(&mut self, pointer: Reg, address: Address) -> Two {
        std::array::from_fn(|_| self.0.load(pointer, address))
    }
    fn store(&mut self, x: Two, pointer: Reg, address: Address) {
        x.into_iter().for_each(|x| self.0.store(x, pointer, address));
    }
    fn load_words(&mut self, pointer: Reg, address: Address) -> Two {
        std::array::from_fn(|_| self.0.load_words(pointer, address))
    }
    fn store_words(&mut self, x: Two, pointer: Reg, address: Address) {
        x.into_iter().for_each(|x| self.0.store_words(x, pointer, address));
    }
    fn load_bf16(&mut self, pointer: Reg, address: Address) -> Two {
        std::array::from_fn(|_| self.0.load_bf16(pointer, address))
    }
    fn store_bf16(&mut self, x: Two, pointer: Reg, address: Address) {
        x.into_iter().for_each(|x| self.0.store_bf16(x, pointer, address));
    }

    fn splat(&mut self, scalar: Reg) -> Two {
        [self.0.splat(scalar); 2]
    }
    fn splat_pair(&mut self, low: Reg, high: Reg) -> Two {
        [self.0.splat_pair(low, high); 2]
    }
    fn mask(&mut self, bits: Reg) -> Two {
        [bits; 2]
    }
    fn mask_bits(&mut self, mask: Two) -> Reg {
        mask[0]
    }

    fn zeros(&mut self) -> Two {
        std::array::from_fn(|_| self.0.zeros())
    }
    fn add_into(&mut self, sum: Two, x: Two) {
        sum.into_iter().zip(x).for_each(|(sum, x)| self.0.add_into(sum, x));
    }
    fn copy(&mut self, x: Two) -> Two {
        x.map(|x| self.0.copy(x))
    }
    fn set(&mut self, target: Two, x: Two) {
        target.into_iter().zip(x).for_each(|(target, x)| self.0.set(target, x));
    }
    fn turned(&mut self, x: Two, bytes: i64) -> Two {
        x.map(|x| self.0.turned(x, bytes))
    }
    fn shuffled(&mut self, x: Two, mode: i64) -> Two {
        self.each(x, |l, x| l.shuffled(x, mode))
    }
    fn held(&mut self, x: Two, least: Two, most: Two) -> Two {
        self.three(x, least, most, |l, x, least, most| l.held(x, least, most))
    }
}
