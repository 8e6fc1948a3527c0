//! Sixteen lanes at a time in plain registers, on whichever vector unit a program is for.
//!
//! Programs that place their own registers, as those of products do, have numbers in a `bm`, words in an `x` and twice sixteen bf16 in an `x`.
//! That is how [`Aie2`] has them. AIE2P computes on the first lanes of accumulators four times as wide, and multiplies one pair of bf16 a lane:
//! numbers are moved there, unless they are there already, and pairs taken apart.

use super::aie2p::Number;
use super::{Aie2, Aie2p, Lanes, Unit, Vectors};
use crate::codegen::{Class, CoreBuilder, Reg};
use aie_isa::InstructionSet;

/// The vector unit of the program's instruction set.
#[derive(Clone, Copy, Debug)]
pub enum Sixteen {
    /// Of AIE2.
    Aie2(Aie2),
    /// Of AIE2P.
    Aie2p(Aie2p),
}

/// Writes instructions on one vector.
#[derive(Debug)]
pub struct SixteenLanes<'b> {
    builder: &'b mut CoreBuilder,
    unit: Sixteen,
}

impl Sixteen {
    /// Sets the modes of the unit. To be written once, where a program begins.
    pub fn begin(b: &mut CoreBuilder) -> Self {
        match b.isa().set() {
            InstructionSet::Aie2 => Self::Aie2(Aie2::new(b)),
            InstructionSet::Aie2p => Self::Aie2p(Unit::new(b)),
        }
    }

    /// The registers that its operations need, where the modes have been set.
    pub fn new(b: &mut CoreBuilder) -> Self {
        match b.isa().set() {
            InstructionSet::Aie2 => Self::Aie2(Aie2::new(b)),
            InstructionSet::Aie2p => Self::Aie2p(Aie2p::registers(b)),
        }
    }

    /// Writes instructions on one vector.
    pub fn one(self, builder: &mut CoreBuilder) -> SixteenLanes<'_> {
        SixteenLanes { builder, unit: self }
    }
}

/// A number in a register as AIE2P has them.
fn number(b: &CoreBuilder, x: Reg) -> Number<1> {
    let whole = b.whole(x);
    let is_there = whole.class() == Class::Acc2048 && whole.lo().lo() == x;
    if is_there { Number::Sum(whole) } else { Number::Words([x]) }
}

/// A number in a register.
fn register(b: &mut CoreBuilder, unit: Aie2p, x: Number<1>) -> Reg {
    match x {
        Number::Sum(sum) => sum.lo().lo(),
        x => unit.one(b).bits(x)[0],
    }
}

/// The halves of a register, each in the low lanes of one.
fn halves(b: &mut CoreBuilder, x: Reg) -> [Option<Reg>; 2] {
    let high = b.reg(Class::X);
    b.undefined(high);
    b.mov(high.lo(), x.hi());
    [Some(x), Some(high)]
}

/// Computes with the unit at hand: numbers in, numbers out.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($($x:ident),*);)*) => {
        $($(#[$doc])* pub fn $name(&mut self, $($x: Reg),*) -> Reg {
            match self.unit {
                Sixteen::Aie2(unit) => unit.one(self.builder).$name($($x),*),
                Sixteen::Aie2p(unit) => {
                    let ($($x,)*) = ($(number(self.builder, $x),)*);
                    let result = unit.one(self.builder).$name($($x),*);
                    register(self.builder, unit, result)
                }
            }
        })*
    };
}

/// The same for words.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident($($x:ident),*);)*) => {
        $($(#[$doc])* pub fn $name(&mut self, $($x: Reg),*) -> Reg {
            match self.unit {
                Sixteen::Aie2(unit) => unit.one(self.builder).$name($($x),*),
                Sixteen::Aie2p(unit) => unit.one(self.builder).$name($([$x]),*)[0],
            }
        })*
    };
}

impl SixteenLanes<'_> {
    numbers! {
        /// `a + b`.
        add(a, b);
        /// `a - b`.
        sub(a, b);
    }

    words! {
        /// `a + b`, wrapping.
        add_words(a, b);
        /// Bit by bit.
        and(a, b);
        /// Bit by bit.
        or(a, b);
    }

    /// The program.
    pub fn builder(&mut self) -> &mut CoreBuilder {
        self.builder
    }

    /// The same word in all lanes.
    pub fn word(&mut self, word: u32) -> Reg {
        let (scalar, x) = (self.builder.scalar(word.into()), self.builder.reg(Class::X));
        self.builder.broadcast(32, x, scalar);
        x
    }

    /// [`Lanes::shift_left`].
    pub fn shift_left(&mut self, x: Reg, by: u32) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).shift_left(x, by),
            Sixteen::Aie2p(unit) => unit.one(self.builder).shift_left([x], by)[0],
        }
    }

    /// [`Lanes::shift_right`].
    pub fn shift_right(&mut self, x: Reg, by: u32) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).shift_right(x, by),
            Sixteen::Aie2p(unit) => unit.one(self.builder).shift_right([x], by)[0],
        }
    }

    /// Where `a < b`, as signed words.
    pub fn less(&mut self, a: Reg, b: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).less(a, b),
            Sixteen::Aie2p(unit) => unit.one(self.builder).less([a], [b])[0],
        }
    }

    /// `b` where the mask is set, `a` elsewhere.
    pub fn select(&mut self, a: Reg, b: Reg, mask: Reg) -> Reg {
        let x = self.builder.reg(Class::X);
        self.builder.select_lanes(32, x, a, b, mask);
        x
    }

    /// The lanes moved down by bytes, those at the end to the other end.
    pub fn turned(&mut self, x: Reg, bytes: i64) -> Reg {
        let (shift, turned) = (self.builder.scalar(bytes), self.builder.reg(Class::X));
        self.builder.emit("vshift", [turned, x, x, shift]);
        turned
    }

    /// The bits of numbers.
    pub fn bits(&mut self, x: Reg) -> Reg {
        let bits = self.builder.reg(Class::X);
        self.builder.mov(bits, x);
        bits
    }

    /// The numbers of bits.
    pub fn float(&mut self, x: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).float(x),
            // They are moved where they are computed with.
            Sixteen::Aie2p(_) => x,
        }
    }

    /// Zeros of their own, for [`SixteenLanes::add_into`].
    pub fn zeros(&mut self) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).zeros(),
            Sixteen::Aie2p(unit) => {
                let zeros = unit.one(self.builder).zeros();
                register(self.builder, unit, zeros)
            }
        }
    }

    /// `sum + x` into `sum`.
    pub fn add_into(&mut self, sum: Reg, x: Reg) {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).add_into(sum, x),
            Sixteen::Aie2p(unit) => {
                let [sum, x] = [sum, x].map(|x| number(self.builder, x));
                unit.one(self.builder).add_into(sum, x);
            }
        }
    }

    /// Both rounded to bf16.
    pub fn narrow(&mut self, low: Reg, high: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).narrow(low, high),
            Sixteen::Aie2p(unit) => {
                let [low, high] = [low, high].map(|x| number(self.builder, x));
                let terms = unit.one(self.builder).narrow(low, high);
                unit.halves(self.builder, terms)
            }
        }
    }

    /// The nearest bf16 and the nearest bf16 of what that leaves.
    pub fn two_terms(&mut self, x: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).two_terms(x),
            Sixteen::Aie2p(unit) => {
                let x = number(self.builder, x);
                let terms = unit.one(self.builder).two_terms(x);
                unit.halves(self.builder, terms)
            }
        }
    }

    /// The halves exchanged.
    pub fn swapped(&mut self, x: Reg) -> Reg {
        let swapped = self.builder.reg(Class::X);
        self.builder.mov(swapped.lo(), x.hi());
        self.builder.mov(swapped.hi(), x.lo());
        swapped
    }

    /// `a.low * b.low + a.high * b.high`.
    pub fn multiply(&mut self, a: Reg, b: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).multiply(a, b),
            Sixteen::Aie2p(unit) => {
                let [a, b] = [a, b].map(|x| halves(self.builder, x));
                let product = unit.one(self.builder).multiply(a, b);
                register(self.builder, unit, product)
            }
        }
    }

    /// `sum + a.low * b.low + a.high * b.high`.
    pub fn multiply_add(&mut self, sum: Reg, a: Reg, b: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).multiply_add(sum, a, b),
            Sixteen::Aie2p(unit) => {
                let sum = number(self.builder, sum);
                let [a, b] = [a, b].map(|x| halves(self.builder, x));
                let product = unit.one(self.builder).multiply_add(sum, a, b);
                register(self.builder, unit, product)
            }
        }
    }

    /// Zeros of their own, for [`SixteenLanes::add_pairs`].
    pub fn zero_pairs(&mut self) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).zeros(),
            Sixteen::Aie2p(_) => {
                let sum = self.builder.reg(Class::Acc2048);
                self.builder.emit("vclr", [sum]);
                sum
            }
        }
    }

    /// `sum + a.low * (b.low - less.low) + a.high * (b.high - less.high)` into `sum`, where AIE2P leaves halves apart.
    pub fn add_pairs(&mut self, sum: Reg, a: Reg, [b, less]: [Reg; 2]) {
        match self.unit {
            Sixteen::Aie2(unit) => {
                let mut l = unit.one(self.builder);
                let more = l.multiply_add(sum, a, b);
                let next = l.multiply_sub(more, a, less);
                self.builder.mov(sum, next);
            }
            Sixteen::Aie2p(unit) => {
                self.builder.mac_f(sum, sum, a, b, unit.lanes());
                self.builder.msc_f(sum, sum, a, less, unit.lanes());
            }
        }
    }

    /// The numbers that [`SixteenLanes::add_pairs`] has added up.
    pub fn pairs(&mut self, sum: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(_) => sum,
            Sixteen::Aie2p(_) => {
                let high = self.bits(sum.lo().hi());
                self.add(sum.lo().lo(), high)
            }
        }
    }

    /// `sum - a.low * b.low - a.high * b.high`.
    pub fn multiply_sub(&mut self, sum: Reg, a: Reg, b: Reg) -> Reg {
        match self.unit {
            Sixteen::Aie2(unit) => unit.one(self.builder).multiply_sub(sum, a, b),
            Sixteen::Aie2p(unit) => {
                let sum = number(self.builder, sum);
                let [a, b] = [a, b].map(|x| halves(self.builder, x));
                let product = unit.one(self.builder).multiply_sub(sum, a, b);
                register(self.builder, unit, product)
            }
        }
    }
}
