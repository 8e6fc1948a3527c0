//! [`Lanes`] as instructions of AIE2.
//!
//! Only rows that published programs use: comparisons are the second result of `vmax_lt.s32`, shifts are `vups` and `vsrs` with a
//! number of bits.

use super::unit::{Unit, Vectors};
use super::{HalfWords, Lanes, Twins};
use crate::codegen::{Address, Class, CoreBuilder, Reg};

/// The mode of a shuffle: every other element of 16 bits of two vectors.
const EVEN_16: i64 = 2;

/// The vector unit of AIE2: registers that all functions of a program share.
#[derive(Clone, Copy, Debug)]
pub struct Aie2 {
    /// [`CoreBuilder::LANES_BF16`].
    lanes: Reg,
    /// [`CoreBuilder::MATRIX_BF16`], which additions of f32 are given.
    addition: Reg,
    /// A shift by 0.
    no_shift: Reg,
}

/// Writes instructions into a program.
#[derive(Debug)]
pub struct Emission<'a> {
    /// The program.
    pub builder: &'a mut CoreBuilder,
    configuration: Aie2,
}

impl Aie2 {
    /// Sets the rounding and saturation that [`Lanes`] counts on, and the registers that its operations need. To be written once,
    /// where a program begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        // To nearest even; integers wrap.
        for (name, mode) in [("crRnd", 12), ("crSat", 0)] {
            let register = b.special(name);
            b.constant_into(register, mode);
        }
        let no_shift = b.named(Class::Shift, "no_shift");
        b.constant_into(no_shift, 0);
        Self {
            lanes: b.scalar(CoreBuilder::LANES_BF16.into()),
            addition: b.scalar(CoreBuilder::MATRIX_BF16.into()),
            no_shift,
        }
    }
}

impl<'a> Emission<'a> {
    /// Into a program with the registers of [`Aie2::new`].
    pub fn new(builder: &'a mut CoreBuilder, configuration: Aie2) -> Self {
        Self { builder, configuration }
    }

    fn words(&mut self, mnemonic: &str, a: Reg, b: Reg) -> Reg {
        let x = self.builder.reg(Class::X);
        self.builder.emit(mnemonic, [x, a, b]);
        x
    }

    /// Both results of a comparison: lanes and mask.
    fn compared(&mut self, mnemonic: &str, a: Reg, b: Reg) -> (Reg, Reg) {
        let (x, mask) = (self.builder.reg(Class::X), self.builder.reg(Class::Scalar));
        self.builder.emit(mnemonic, [x, mask, a, b]);
        (x, mask)
    }

    fn shifted(&mut self, x: Reg, up: Reg, down: Reg) -> Reg {
        let (wide, result) = (self.builder.reg(Class::Acc1024), self.builder.reg(Class::X));
        self.builder.emit("vups.s64.s32", [wide, x, up]);
        self.builder.emit("vsrs.s32.s64", [result, wide, down]);
        result
    }

    fn shift(&mut self, by: u32) -> Reg {
        let shift = self.builder.reg(Class::Shift);
        self.builder.constant_into(shift, by.into());
        shift
    }

    fn accumulator(&mut self) -> Reg {
        self.builder.reg(Class::Acc512)
    }
}

impl Lanes for Emission<'_> {
    type Float = Reg;
    type Word = Reg;
    type Pair = Reg;
    type Mask = Reg;

    fn word(&mut self, word: u32) -> Reg {
        let scalar = self.builder.scalar(word.into());
        self.splat(scalar)
    }

    fn pair(&mut self, low: u16, high: u16) -> Reg {
        let both = |half: u16| u32::from(half) << 16 | u32::from(half);
        let x = self.word(both(low));
        if high != low {
            let y = self.word(both(high));
            self.builder.mov(x.hi(), y.hi());
        }
        x
    }

    fn bits(&mut self, x: Reg) -> Reg {
        let bits = self.builder.reg(Class::X);
        self.builder.mov(bits, x);
        bits
    }

    fn float(&mut self, x: Reg) -> Reg {
        let float = self.accumulator();
        self.builder.mov(float, x);
        float
    }

    fn add(&mut self, a: Reg, b: Reg) -> Reg {
        let sum = self.accumulator();
        self.builder.add_f(sum, a, b, self.configuration.addition);
        sum
    }

    fn sub(&mut self, a: Reg, b: Reg) -> Reg {
        let difference = self.accumulator();
        self.builder.sub_f(difference, a, b, self.configuration.addition);
        difference
    }

    fn narrow(&mut self, low: Reg, high: Reg) -> Reg {
        let pair = self.builder.reg(Class::X);
        self.builder.to_bf16(pair.lo(), low);
        self.builder.to_bf16(pair.hi(), high);
        pair
    }

    fn two_terms(&mut self, x: Reg) -> Reg {
        let (pair, first) = (self.builder.reg(Class::X), self.accumulator());
        self.builder.to_bf16(pair.lo(), x);
        self.builder.to_fp32(first, pair.lo());
        let rest = self.sub(x, first);
        self.builder.to_bf16(pair.hi(), rest);
        pair
    }

    fn three_terms(&mut self, x: Reg) -> [Reg; 2] {
        let (leading, ends) = (self.builder.reg(Class::X), self.builder.reg(Class::X));
        let (first, second) = (self.accumulator(), self.accumulator());
        self.builder.to_bf16(leading.lo(), x);
        self.builder.mov(ends.lo(), leading.lo());
        self.builder.to_fp32(first, leading.lo());
        let rest = self.sub(x, first);
        self.builder.to_bf16(leading.hi(), rest);
        self.builder.to_fp32(second, leading.hi());
        let last = self.sub(rest, second);
        self.builder.to_bf16(ends.hi(), last);
        [leading, ends]
    }

    fn swapped(&mut self, x: Reg) -> Reg {
        let swapped = self.builder.reg(Class::X);
        self.builder.mov(swapped.lo(), x.hi());
        self.builder.mov(swapped.hi(), x.lo());
        swapped
    }

    fn head(&mut self, x: Reg) -> Reg {
        let (narrow, wide) = (self.builder.reg(Class::W), self.accumulator());
        self.builder.to_bf16(narrow, x);
        self.builder.to_fp32(wide, narrow);
        wide
    }

    fn multiply(&mut self, a: Reg, b: Reg) -> Reg {
        let product = self.accumulator();
        self.builder.mul_f(product, a, b, self.configuration.lanes);
        product
    }

    fn multiply_add(&mut self, sum: Reg, a: Reg, b: Reg) -> Reg {
        let result = self.accumulator();
        self.builder.mac_f(result, sum, a, b, self.configuration.lanes);
        result
    }

    fn multiply_sub(&mut self, sum: Reg, a: Reg, b: Reg) -> Reg {
        let result = self.accumulator();
        self.builder.msc_f(result, sum, a, b, self.configuration.lanes);
        result
    }

    fn add_words(&mut self, a: Reg, b: Reg) -> Reg {
        self.words("vadd.32", a, b)
    }

    fn sub_words(&mut self, a: Reg, b: Reg) -> Reg {
        self.words("vsub.32", a, b)
    }

    fn and(&mut self, a: Reg, b: Reg) -> Reg {
        self.words("vband", a, b)
    }

    fn or(&mut self, a: Reg, b: Reg) -> Reg {
        self.words("vbor", a, b)
    }

    fn shift_left(&mut self, x: Reg, by: u32) -> Reg {
        let up = self.shift(by);
        self.shifted(x, up, self.configuration.no_shift)
    }

    fn shift_right(&mut self, x: Reg, by: u32) -> Reg {
        let down = self.shift(by);
        self.shifted(x, self.configuration.no_shift, down)
    }

    fn less(&mut self, a: Reg, b: Reg) -> Reg {
        self.compared("vmax_lt.s32", a, b).1
    }

    fn select(&mut self, a: Reg, b: Reg, mask: Reg) -> Reg {
        let x = self.builder.reg(Class::X);
        self.builder.select_lanes(32, x, a, b, mask);
        x
    }

    fn max_words(&mut self, a: Reg, b: Reg) -> Reg {
        self.compared("vmax_lt.s32", a, b).0
    }

    fn min_words(&mut self, a: Reg, b: Reg) -> Reg {
        self.compared("vmin_ge.s32", a, b).0
    }
}

impl Vectors for Emission<'_> {
    fn builder(&mut self) -> &mut CoreBuilder {
        self.builder
    }

    fn load(&mut self, pointer: Reg, address: Address) -> Reg {
        let x = self.accumulator();
        self.builder.load(x, pointer, address);
        x
    }
    fn store(&mut self, x: Reg, pointer: Reg, address: Address) {
        self.builder.store(x, pointer, address);
    }
    fn load_words(&mut self, pointer: Reg, address: Address) -> Reg {
        let x = self.builder.reg(Class::X);
        self.builder.load(x, pointer, address);
        x
    }
    fn store_words(&mut self, x: Reg, pointer: Reg, address: Address) {
        self.builder.store(x, pointer, address);
    }
    fn load_bf16(&mut self, pointer: Reg, address: Address) -> Reg {
        let x = self.accumulator();
        self.builder.load_as("vlda.conv.fp32.bf16", x, pointer, address);
        x
    }
    fn store_bf16(&mut self, x: Reg, pointer: Reg, address: Address) {
        self.builder.store_as("vst.conv.bf16.fp32", x, pointer, address);
    }

    fn splat(&mut self, scalar: Reg) -> Reg {
        let x = self.builder.reg(Class::X);
        self.builder.broadcast(32, x, scalar);
        x
    }
    fn splat_pair(&mut self, low: Reg, high: Reg) -> Reg {
        let (low, high, pair) = (self.splat(low), self.splat(high), self.builder.reg(Class::X));
        self.builder.mov(pair.lo(), low.lo());
        self.builder.mov(pair.hi(), high.hi());
        pair
    }
    fn mask(&mut self, bits: Reg) -> Reg {
        bits
    }
    fn mask_bits(&mut self, mask: Reg) -> Reg {
        mask
    }

    fn zeros(&mut self) -> Reg {
        self.constant(0.0)
    }
    fn add_into(&mut self, sum: Reg, x: Reg) {
        self.builder.add_f(sum, sum, x, self.configuration.addition);
    }
    fn copy(&mut self, x: Reg) -> Reg {
        let copy = self.builder.reg(Class::X);
        self.builder.mov(copy, x);
        copy
    }
    fn set(&mut self, target: Reg, x: Reg) {
        self.builder.mov(target, x);
    }
    fn turned(&mut self, x: Reg, bytes: i64) -> Reg {
        let (shift, turned) = (self.builder.scalar(bytes), self.builder.reg(Class::X));
        self.builder.emit("vshift", [turned, x, x, shift]);
        turned
    }
    fn shuffled(&mut self, x: Reg, mode: i64) -> Reg {
        let (mode, shuffled) = (self.builder.scalar(mode), self.builder.reg(Class::X));
        self.builder.shuffle(shuffled, x, x, mode);
        shuffled
    }
    fn held(&mut self, x: Reg, least: Reg, most: Reg) -> Reg {
        let below = self.compared("vmin_ge.bf16", x, most).0;
        self.compared("vmax_lt.bf16", below, least).0
    }
}

impl Unit for Aie2 {
    type Float = Reg;
    type Word = Reg;
    type Pair = Reg;
    type Floats = [Reg; 2];
    type Pairs = [Reg; 2];
    type One<'b> = Emission<'b>;
    type Two<'b> = Twins<'b>;

    const HOLDS_CONSTANTS: bool = true;

    fn new(b: &mut CoreBuilder) -> Self {
        Self::new(b)
    }
    fn one(self, builder: &mut CoreBuilder) -> Emission<'_> {
        Emission::new(builder, self)
    }
    fn two(self, builder: &mut CoreBuilder) -> Twins<'_> {
        Twins(self.one(builder))
    }
    fn load_pairs<const PAIRS: usize>(
        self,
        b: &mut CoreBuilder,
        pointer: Reg,
        offsets: [[Option<i64>; 2]; PAIRS],
    ) -> [Reg; PAIRS] {
        offsets.map(|offsets| {
            let pair = b.reg(Class::X);
            for (half, offset) in [pair.lo(), pair.hi()].into_iter().zip(offsets) {
                match offset {
                    Some(offset) => b.load(half, pointer, Address::At(offset)),
                    None => {
                        let zero = self.one(b).word(0);
                        b.mov(half, zero.lo());
                    }
                }
            }
            pair
        })
    }
    fn store_halves(self, b: &mut CoreBuilder, [low, high]: [Reg; 2], pointer: Reg, address: Address) {
        let (mode, halves) = (b.scalar(EVEN_16), b.reg(Class::X));
        b.shuffle(halves, low, high, mode);
        b.store(halves, pointer, address);
    }
    fn joined(self, builder: &mut CoreBuilder, [a, b]: [Reg; 2]) -> Reg {
        self.one(builder).add(a, b)
    }
    fn halves(self, _: &mut CoreBuilder, pair: Reg) -> Reg {
        pair
    }
    fn with_exponents(self, b: &mut CoreBuilder, [low, high]: [Reg; 2], exponents: [Reg; 2]) -> Reg {
        let (wide, bits, result) = (b.reg(Class::Acc1024), b.reg(Class::X), b.reg(Class::X));
        [wide.lo(), wide.hi()].into_iter().zip(exponents).for_each(|(part, word)| b.mov(part, word));
        HalfWords::new(b).narrowed(b, bits, wide, self.no_shift);
        let rounded = self.one(b).narrow(low, high);
        b.emit("vadd.16", [result, rounded, bits]);
        result
    }
    fn add_products(self, builder: &mut CoreBuilder, [sum, _]: [Reg; 2], a: Reg, b: Reg) {
        builder.mac_f(sum, sum, a, b, self.lanes);
    }
}
