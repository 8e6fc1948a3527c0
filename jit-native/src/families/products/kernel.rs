//! What all parts of the program use.

use super::arithmetic::Arithmetic;
use super::parameters::{OFFSET, Parameter};
use crate::array::{OWN_LOCKS, OWN_MEMORY};
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, Reg};

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// All products of numbers that are multiplied as bf16.
    Floats,
    /// Products of i8.
    Integers,
    /// What a decoded token needs: products of up to four columns of f32, and functions of vectors.
    Token,
}

impl Purpose {
    /// What is multiplied.
    pub fn arithmetic(self) -> Arithmetic {
        match self {
            Self::Floats | Self::Token => Arithmetic::Floats,
            Self::Integers => Arithmetic::Integers,
        }
    }

    /// Whether it has the loop for units of 16 columns, and takes columns of bf16.
    pub fn has_many_columns(self) -> bool {
        self != Self::Token
    }

    /// The fewest elements of a chunk of `k`. Loops whose iterations overlap and that may be too short for it are there twice.
    pub fn least_depth(self) -> u32 {
        if self == Self::Token { 256 } else { 32 }
    }
}

/// What all parts of the program use.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    pub purpose: Purpose,
    pub parameters: AliasRegion,
    /// Columns as they arrive, and in bf16.
    pub arriving: AliasRegion,
    pub columns: AliasRegion,
    /// Weights as they arrive; what is put in their place, which nothing reads in the same loop; and decoded ones.
    pub weights: AliasRegion,
    pub placed: AliasRegion,
    pub decoded: AliasRegion,
    /// Sums.
    pub sums: AliasRegion,
    /// The configuration word of matrix products.
    pub matrix: Reg,
}

/// The locks of a ring, as its core names them.
#[derive(Clone, Copy)]
pub(super) struct Locks {
    pub empty: u8,
    pub full: u8,
}

impl Locks {
    pub const fn of(empty: u8) -> Self {
        Self { empty: OWN_LOCKS + empty, full: OWN_LOCKS + empty + 1 }
    }
}

/// Rounding to the nearest number, ties to even.
const NEAREST_EVEN: i64 = 12;

impl Kernel {
    /// Sets the control registers, and names the parts of memory.
    pub fn new(b: &mut CoreBuilder, purpose: Purpose) -> Self {
        let rounding = b.special("crRnd");
        b.constant_into(rounding, NEAREST_EVEN);
        // Quants have no sign, nor have packed scales, and nothing is saturated.
        for control in ["crUnpackSign", "crUPSSign", "crSRSSign", "crSat"] {
            let control = b.special(control);
            b.constant_into(control, 0);
        }
        Self::without_modes(b, purpose)
    }

    /// The same without control registers.
    pub fn without_modes(b: &mut CoreBuilder, purpose: Purpose) -> Self {
        Self {
            purpose,
            parameters: b.region("parameters"),
            arriving: b.region("arriving columns"),
            columns: b.region("columns"),
            weights: b.region("weights"),
            placed: b.region("weights in place"),
            decoded: b.region("decoded weights"),
            sums: b.region("sums"),
            matrix: b.scalar(purpose.arithmetic().configuration().into()),
        }
    }

    /// A parameter in a new scalar.
    pub fn parameter(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let target = b.reg(Class::Scalar);
        self.parameter_into(b, target, parameter);
        target
    }

    pub fn parameter_into(self, b: &mut CoreBuilder, target: Reg, parameter: Parameter) {
        let at = b.pointer_at(self.parameters, OWN_MEMORY + OFFSET);
        b.load(target, at, Address::At(4 * i64::from(parameter as u32)));
    }

    /// A parameter as what a pointer moves by.
    pub fn modifier(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let (value, modifier) = (self.parameter(b, parameter), b.reg(Class::Modifier));
        b.mov(modifier, value);
        modifier
    }

    /// A parameter as a number of iterations.
    pub fn count(self, b: &mut CoreBuilder, parameter: Parameter, at_least: u32) -> Count {
        Count::from(self.parameter(b, parameter)).at_least(at_least)
    }

    /// A number of blocks of so many elements in a chunk.
    pub fn blocks(self, b: &mut CoreBuilder, parameter: Parameter, elements: u32) -> Count {
        self.count(b, parameter, (self.purpose.least_depth() / elements).max(1))
    }

    /// The count of a loop that takes little of the time, so that it overlaps only where there is room for that.
    pub fn short(self, count: Count) -> Count {
        if self.purpose.has_many_columns() { count } else { count.in_turn() }
    }

    /// A pointer to an address in a scalar.
    pub fn pointer(self, b: &mut CoreBuilder, region: AliasRegion, address: Reg) -> Reg {
        let pointer = b.pointer(region);
        b.mov(pointer, address);
        pointer
    }

    /// The other buffer of two: their sum less this one.
    pub fn other(self, b: &mut CoreBuilder, buffer: Reg, both: Parameter) {
        let both = self.parameter(b, both);
        b.emit("sub", [buffer, both, buffer]);
    }

    /// The next buffer of arriving columns.
    pub fn next(self, b: &mut CoreBuilder, buffer: Reg) {
        let [stride, end] = [Parameter::ArrivingStride, Parameter::ArrivingEnd].map(|place| self.parameter(b, place));
        b.emit("add", [buffer, buffer, stride]);
        let is_last = b.binary("eq", buffer, end);
        b.when(is_last, |b| self.parameter_into(b, buffer, Parameter::ArrivingFirst));
    }
}
