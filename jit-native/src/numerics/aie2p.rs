//! [`Lanes`] as instructions of AIE2P.
//!
//! The unit has accumulators of 64 f32, of which `VECTORS` times sixteen are used, and multiplies bf16 lane by lane: a pair is two
//! registers, and its products are added one after the other, the smaller ones of the second half first. There are five
//! accumulators only, so numbers stay in vector registers until something is computed of them.
//!
//! Only rows with evidence (docs/emulator-evidence.md): the smaller of two signed words is a comparison and a selection, because
//! `vmin_ge.32` of signed words has none.

use super::unit::{Unit, Vectors};
use super::{HalfWords, Lanes};
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use std::collections::HashMap;

/// The vector unit of AIE2P.
#[derive(Clone, Copy, Debug)]
pub struct Aie2p {
    /// [`CoreBuilder::LANES_BF16`], which additions take too.
    lanes: Reg,
    /// A shift by 0.
    no_shift: Reg,
}

/// Numbers, where they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number<const VECTORS: usize> {
    /// The constant 0, of which no product is made.
    Zero,
    /// In the low lanes of an accumulator.
    Sum(Reg),
    /// As bf16 in the low lanes of a vector register.
    Rounded(Reg),
    /// In vector registers.
    Words([Reg; VECTORS]),
}

/// The low lanes of two vector registers with bf16; None for zeros.
type Halves = [Option<Reg>; 2];

/// Writes instructions on `VECTORS` vectors, one or two, into a program.
#[derive(Debug)]
pub struct Wide<'b, const VECTORS: usize> {
    builder: &'b mut CoreBuilder,
    unit: Aie2p,
}

/// Signed words: the larger one, and where it is the second.
const LARGER: &str = "VMAX_LT_32_vaddSign1";

/// The mode of a shuffle: every other element of 16 bits of two vectors.
const EVEN_16: i64 = 2;

impl Aie2p {
    /// The registers that operations need, in a program whose modes have been set.
    pub(super) fn registers(b: &mut CoreBuilder) -> Self {
        let no_shift = b.named(Class::Shift, "no_shift");
        b.constant_into(no_shift, 0);
        Self { lanes: b.scalar(CoreBuilder::LANES_BF16.into()), no_shift }
    }

    /// [`CoreBuilder::LANES_BF16`].
    pub fn lanes(self) -> Reg {
        self.lanes
    }
}

impl Unit for Aie2p {
    type Float = Number<1>;
    type Word = [Reg; 1];
    type Pair = Halves;
    type Floats = Number<2>;
    type Pairs = Halves;
    type One<'b> = Wide<'b, 1>;
    type Two<'b> = Wide<'b, 2>;

    const HOLDS_CONSTANTS: bool = false;

    fn new(b: &mut CoreBuilder) -> Self {
        // To nearest even; integers wrap; shifts are of 64 bits.
        for (name, mode) in [("crRnd", 12), ("crSat", 0), ("crUPSMode", 1), ("crSRSMode", 1)] {
            let register = b.special(name);
            b.constant_into(register, mode);
        }
        b.clear_vectors();
        Self::registers(b)
    }
    fn one(self, builder: &mut CoreBuilder) -> Wide<'_, 1> {
        Wide { builder, unit: self }
    }
    fn two(self, builder: &mut CoreBuilder) -> Wide<'_, 2> {
        Wide { builder, unit: self }
    }
    fn load_pairs<const PAIRS: usize>(
        self,
        b: &mut CoreBuilder,
        pointer: Reg,
        offsets: [[Option<i64>; 2]; PAIRS],
    ) -> [Halves; PAIRS] {
        let mut loaded: HashMap<i64, Reg> = HashMap::new();
        offsets.map(|pair| {
            pair.map(|offset| {
                let half = loaded.entry(offset?).or_insert_with_key(|offset| {
                    let x = self.one(b).part_of(Class::X);
                    b.load(x.lo(), pointer, Address::At(*offset));
                    x
                });
                Some(*half)
            })
        })
    }
    fn store_halves(self, b: &mut CoreBuilder, [[low], [high]]: [[Reg; 1]; 2], pointer: Reg, address: Address) {
        let (mode, halves) = (b.scalar(EVEN_16), b.reg(Class::X));
        b.shuffle(halves, low, high, mode);
        b.store(halves, pointer, address);
    }
    fn joined(self, builder: &mut CoreBuilder, x: Number<2>) -> Number<1> {
        let [low, high] = self.two(builder).bits(x);
        self.one(builder).add(Number::Words([low]), Number::Words([high]))
    }
    fn halves(self, b: &mut CoreBuilder, pair: Halves) -> Reg {
        let both = b.reg(Class::X);
        for (into, half) in [both.lo(), both.hi()].into_iter().zip(pair) {
            let half = half.unwrap_or_else(|| self.one(b).word(0)[0]);
            b.mov(into, half.lo());
        }
        both
    }
    fn with_exponents(self, b: &mut CoreBuilder, x: Number<2>, exponents: Number<2>) -> Reg {
        let (bits, result) = (b.reg(Class::X), b.reg(Class::X));
        let wide = self.two(b).in_sum(exponents).lo();
        HalfWords::new(b).narrowed(b, bits, wide, self.no_shift);
        let mut l = self.two(b);
        let rounded = l.rounded(x).unwrap_or_else(|| l.splat_zero());
        b.emit("vadd.16", [result, rounded, bits]);
        result
    }
    fn add_products(self, builder: &mut CoreBuilder, sum: Number<2>, a: Reg, b: Reg) {
        let sum = self.two(builder).in_sum(sum);
        builder.mac_f(sum, sum, a, b, self.lanes);
    }
}

impl<const VECTORS: usize> Wide<'_, VECTORS> {
    fn x(&mut self) -> Reg {
        self.builder.reg(Class::X)
    }

    /// A register of which a part is written, and the rest never matters.
    fn part_of(&mut self, class: Class) -> Reg {
        let reg = self.builder.reg(class);
        if VECTORS == 1 || class == Class::Acc2048 {
            self.builder.undefined(reg);
        }
        reg
    }

    fn sum(&mut self) -> Reg {
        self.builder.reg(Class::Acc2048)
    }

    /// The vectors of an accumulator.
    fn vectors(sum: Reg) -> [Reg; VECTORS] {
        std::array::from_fn(|index| if index == 0 { sum.lo().lo() } else { sum.lo().hi() })
    }

    /// All of them, as conversions take them.
    fn lanes(sum: Reg) -> Reg {
        if VECTORS == 1 { sum.lo().lo() } else { sum.lo() }
    }

    /// The bf16 of a register, as conversions take them.
    fn narrow_lanes(x: Reg) -> Reg {
        if VECTORS == 1 { x.lo() } else { x }
    }

    fn in_sum(&mut self, x: Number<VECTORS>) -> Reg {
        match x {
            Number::Sum(sum) => sum,
            Number::Zero => {
                let sum = self.sum();
                self.builder.emit("vclr", [sum]);
                sum
            }
            Number::Rounded(narrow) => self.widened(narrow),
            Number::Words(words) => {
                let sum = self.part_of(Class::Acc2048);
                Self::vectors(sum).into_iter().zip(words).for_each(|(part, word)| self.builder.mov(part, word));
                sum
            }
        }
    }

    /// The same bf16 in all lanes.
    fn halves(&mut self, half: u16) -> Option<Reg> {
        let scalar = (half != 0).then(|| self.builder.scalar((u32::from(half) << 16 | u32::from(half)).into()));
        scalar.map(|scalar| self.splat_one(scalar))
    }

    /// `sum`, or nothing, plus or minus the products of two pairs, the smaller ones of the second halves first.
    fn products(&mut self, sum: Option<Number<VECTORS>>, [a, b]: [Halves; 2], subtract: bool) -> Number<VECTORS> {
        let (result, lanes) = (self.sum(), self.unit.lanes);
        let mut before = sum.filter(|sum| *sum != Number::Zero || subtract).map(|sum| self.in_sum(sum));
        for (a, b) in [1, 0].into_iter().filter_map(|half| a[half].zip(b[half])) {
            match before {
                None => self.builder.mul_f(result, a, b, lanes),
                Some(before) if subtract => self.builder.msc_f(result, before, a, b, lanes),
                Some(before) => self.builder.mac_f(result, before, a, b, lanes),
            }
            before = Some(result);
        }
        before.map_or(Number::Zero, Number::Sum)
    }

    /// The nearest bf16; None for zeros.
    fn rounded(&mut self, x: Number<VECTORS>) -> Option<Reg> {
        match x {
            Number::Zero => None,
            Number::Rounded(narrow) => Some(narrow),
            x => {
                let (x, narrow) = (self.in_sum(x), self.part_of(Class::X));
                self.builder.to_bf16(Self::narrow_lanes(narrow), Self::lanes(x));
                Some(narrow)
            }
        }
    }

    fn widened(&mut self, x: Reg) -> Reg {
        let wide = self.part_of(Class::Acc2048);
        self.builder.to_fp32(Self::lanes(wide), Self::narrow_lanes(x));
        wide
    }

    fn sums(&mut self, mnemonic: &str, a: Number<VECTORS>, b: Number<VECTORS>) -> Reg {
        let (a, b, result) = (self.in_sum(a), self.in_sum(b), self.sum());
        self.builder.emit(mnemonic, [result, a, b, self.unit.lanes]);
        result
    }

    fn each(
        &mut self,
        a: [Reg; VECTORS],
        b: [Reg; VECTORS],
        row: impl Fn(&mut Self, Reg, Reg) -> Reg,
    ) -> [Reg; VECTORS] {
        std::array::from_fn(|index| row(self, a[index], b[index]))
    }

    fn words(&mut self, mnemonic: &str, a: [Reg; VECTORS], b: [Reg; VECTORS]) -> [Reg; VECTORS] {
        self.each(a, b, |l, a, b| {
            let x = l.x();
            l.builder.emit(mnemonic, [x, a, b]);
            x
        })
    }

    /// Both results of a comparison: lanes and mask.
    fn compared(&mut self, key: &str, a: Reg, b: Reg) -> [Reg; 2] {
        let (x, mask) = (self.x(), self.builder.reg(Class::Scalar));
        let operands = [("d", x), ("cmp", mask), ("s1", a), ("s2", b)].map(|(name, reg)| (name, reg.into()));
        self.builder.op(key, &operands);
        [x, mask]
    }

    fn shifted(&mut self, x: [Reg; VECTORS], up: Reg, down: Reg) -> [Reg; VECTORS] {
        x.map(|x| {
            let (wide, result) = (self.builder.reg(Class::Acc1024), self.x());
            let operands = [("dst", wide), ("src", x), ("su", up)].map(|(name, reg)| (name, reg.into()));
            self.builder.op("VUPS_2x_mv_ups_x2c_upsSign1", &operands);
            let operands = [("dst", result), ("src", wide), ("su", down)].map(|(name, reg)| (name, reg.into()));
            self.builder.op("VSRS_2x_mv_x_srs_cm_srsSign1", &operands);
            result
        })
    }

    fn shift(&mut self, by: u32) -> Reg {
        let shift = self.builder.reg(Class::Shift);
        self.builder.constant_into(shift, by.into());
        shift
    }

    fn splat_zero(&mut self) -> Reg {
        let zero = self.builder.scalar(0);
        self.splat_one(zero)
    }

    fn splat_one(&mut self, scalar: Reg) -> Reg {
        let x = self.x();
        self.builder.broadcast(32, x, scalar);
        x
    }
}

impl<const VECTORS: usize> Lanes for Wide<'_, VECTORS> {
    type Float = Number<VECTORS>;
    type Word = [Reg; VECTORS];
    type Pair = Halves;
    type Mask = [Reg; VECTORS];

    fn word(&mut self, word: u32) -> Self::Word {
        let scalar = self.builder.scalar(word.into());
        [self.splat_one(scalar); VECTORS]
    }
    fn pair(&mut self, low: u16, high: u16) -> Self::Pair {
        let first = self.halves(low);
        [first, if high == low { first } else { self.halves(high) }]
    }
    fn bits(&mut self, x: Self::Float) -> Self::Word {
        match x {
            Number::Words(words) => words,
            Number::Zero => self.word(0),
            x => Self::vectors(self.in_sum(x)).map(|part| {
                let word = self.x();
                self.builder.mov(word, part);
                word
            }),
        }
    }
    fn float(&mut self, x: Self::Word) -> Self::Float {
        Number::Words(x)
    }
    fn add(&mut self, a: Self::Float, b: Self::Float) -> Self::Float {
        Number::Sum(self.sums("vadd.f", a, b))
    }
    fn sub(&mut self, a: Self::Float, b: Self::Float) -> Self::Float {
        Number::Sum(self.sums("vsub.f", a, b))
    }
    fn constant(&mut self, x: f32) -> Self::Float {
        if x.to_bits() == 0 { Number::Zero } else { Number::Words(self.word(x.to_bits())) }
    }
    fn narrow(&mut self, low: Self::Float, high: Self::Float) -> Self::Pair {
        let first = self.rounded(low);
        [first, if high == low { first } else { self.rounded(high) }]
    }
    fn two_terms(&mut self, x: Self::Float) -> Self::Pair {
        let x = Number::Sum(self.in_sum(x));
        let first = self.head(x);
        let rest = self.sub(x, first);
        self.narrow(first, rest)
    }
    fn three_terms(&mut self, x: Self::Float) -> [Self::Pair; 2] {
        let [first, second, last] = self.split(x).map(|term| self.rounded(term));
        [[first, second], [first, last]]
    }
    fn split(&mut self, x: Self::Float) -> [Self::Float; 3] {
        let x = Number::Sum(self.in_sum(x));
        let first = self.head(x);
        let rest = self.sub(x, first);
        let second = self.head(rest);
        let last = self.sub(rest, second);
        [first, second, self.head(last)]
    }
    fn swapped(&mut self, [low, high]: Self::Pair) -> Self::Pair {
        [high, low]
    }
    fn head(&mut self, x: Self::Float) -> Self::Float {
        self.rounded(x).map_or(Number::Zero, Number::Rounded)
    }
    fn multiply(&mut self, a: Self::Pair, b: Self::Pair) -> Self::Float {
        self.products(None, [a, b], false)
    }
    fn multiply_add(&mut self, sum: Self::Float, a: Self::Pair, b: Self::Pair) -> Self::Float {
        self.products(Some(sum), [a, b], false)
    }
    fn multiply_sub(&mut self, sum: Self::Float, a: Self::Pair, b: Self::Pair) -> Self::Float {
        self.products(Some(sum), [a, b], true)
    }
    fn add_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.words("vadd.32", a, b)
    }
    fn sub_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.words("vsub.32", a, b)
    }
    fn and(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.words("vband", a, b)
    }
    fn or(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.words("vbor", a, b)
    }
    fn shift_left(&mut self, x: Self::Word, by: u32) -> Self::Word {
        let up = self.shift(by);
        self.shifted(x, up, self.unit.no_shift)
    }
    fn shift_right(&mut self, x: Self::Word, by: u32) -> Self::Word {
        let down = self.shift(by);
        self.shifted(x, self.unit.no_shift, down)
    }
    fn less(&mut self, a: Self::Word, b: Self::Word) -> Self::Mask {
        self.each(a, b, |l, a, b| l.compared(LARGER, a, b)[1])
    }
    fn select(&mut self, a: Self::Word, b: Self::Word, mask: Self::Mask) -> Self::Word {
        std::array::from_fn(|index| {
            let x = self.x();
            self.builder.select_lanes(32, x, a[index], b[index], mask[index]);
            x
        })
    }
    fn max_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(a, b, |l, a, b| l.compared(LARGER, a, b)[0])
    }
    fn min_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        let less = self.less(a, b);
        self.select(b, a, less)
    }
}

impl<const VECTORS: usize> Vectors for Wide<'_, VECTORS> {
    fn builder(&mut self) -> &mut CoreBuilder {
        self.builder
    }

    fn load(&mut self, pointer: Reg, address: Address) -> Self::Float {
        let sum = self.part_of(Class::Acc2048);
        Self::vectors(sum).into_iter().for_each(|part| self.builder.load(part, pointer, address));
        Number::Sum(sum)
    }
    fn store(&mut self, x: Self::Float, pointer: Reg, address: Address) {
        let parts = match x {
            Number::Sum(sum) => Self::vectors(sum),
            x => self.bits(x),
        };
        parts.into_iter().for_each(|part| self.builder.store(part, pointer, address));
    }
    fn load_words(&mut self, pointer: Reg, address: Address) -> Self::Word {
        [(); VECTORS].map(|()| {
            let x = self.x();
            self.builder.load(x, pointer, address);
            x
        })
    }
    fn store_words(&mut self, x: Self::Word, pointer: Reg, address: Address) {
        x.into_iter().for_each(|x| self.builder.store(x, pointer, address));
    }
    fn load_bf16(&mut self, pointer: Reg, address: Address) -> Self::Float {
        let sum = self.part_of(Class::Acc2048);
        let parts = Self::vectors(sum).into_iter();
        parts.for_each(|part| self.builder.load_as("vlda.conv.fp32.bf16", part, pointer, address));
        Number::Sum(sum)
    }
    fn store_bf16(&mut self, x: Self::Float, pointer: Reg, address: Address) {
        let parts = Self::vectors(self.in_sum(x)).into_iter();
        parts.for_each(|part| self.builder.store_as("vst.conv.bf16.fp32", part, pointer, address));
    }

    fn splat(&mut self, scalar: Reg) -> Self::Word {
        [self.splat_one(scalar); VECTORS]
    }
    fn splat_pair(&mut self, low: Reg, high: Reg) -> Self::Pair {
        [low, high].map(|half| Some(self.splat_one(half)))
    }
    fn mask(&mut self, bits: Reg) -> Self::Mask {
        [bits; VECTORS]
    }
    fn mask_bits(&mut self, mask: Self::Mask) -> Reg {
        mask[0]
    }

    fn zeros(&mut self) -> Self::Float {
        Number::Sum(self.in_sum(Number::Zero))
    }
    fn add_into(&mut self, sum: Self::Float, x: Self::Float) {
        let (sum, x) = (self.in_sum(sum), self.in_sum(x));
        self.builder.emit("vadd.f", [sum, sum, x, self.unit.lanes]);
    }
    fn copy(&mut self, x: Self::Word) -> Self::Word {
        let copy = [(); VECTORS].map(|()| self.x());
        self.set(copy, x);
        copy
    }
    fn set(&mut self, target: Self::Word, x: Self::Word) {
        target.into_iter().zip(x).for_each(|(target, x)| self.builder.mov(target, x));
    }
    fn turned(&mut self, x: Self::Word, bytes: i64) -> Self::Word {
        let shift = self.builder.scalar(bytes);
        self.each(x, x, |l, x, same| {
            let turned = l.x();
            l.builder.emit("vshift", [turned, x, same, shift]);
            turned
        })
    }
    fn shuffled(&mut self, x: Self::Word, mode: i64) -> Self::Word {
        let mode = self.builder.scalar(mode);
        self.each(x, x, |l, x, same| {
            let shuffled = l.x();
            l.builder.shuffle(shuffled, x, same, mode);
            shuffled
        })
    }
    fn held(&mut self, x: Self::Pair, least: Self::Pair, most: Self::Pair) -> Self::Pair {
        std::array::from_fn(|half| {
            let [x, least, most] = [x, least, most].map(|pair| pair[half].unwrap_or_else(|| self.splat_zero()));
            let below = self.compared("VMIN_GE_bf16", x, most)[0];
            Some(self.compared("VMAX_LT_bf16", below, least)[0])
        })
    }
}
