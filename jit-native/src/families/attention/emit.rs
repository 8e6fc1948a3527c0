//! What all parts of the program use.

use super::parameters::{OFFSET, Parameter};
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Heads, Lanes, Unit, Vectors};

/// Parts of a core's memory, and registers that hold the same everywhere.
#[derive(Clone, Copy)]
pub(in crate::families) struct Kernel<U> {
    pub parameters: AliasRegion,
    /// Queries as they arrive, and in bf16.
    pub queries: AliasRegion,
    pub converted: AliasRegion,
    /// Keys, values and mask as they arrive; and what is put in their place, which nothing reads in the same loop.
    pub cache: AliasRegion,
    pub placed: AliasRegion,
    pub scores: AliasRegion,
    pub exponentials: AliasRegion,
    /// Maximum, sum and values: of this core, and joined; what other cores send.
    pub state: AliasRegion,
    /// Values of a state that replace those that the same loop reads.
    pub scaled: AliasRegion,
    pub arriving: AliasRegion,
    pub heads: Heads,
    pub unit: U,
}

/// Where a unit's state has what.
pub(in crate::families) const SUM: i64 = 64;
pub(in crate::families) const VALUES: u32 = 128;
/// A maximum that any score exceeds, and what stands in for the scores of keys that do not count.
pub(in crate::families) const LOWEST: f32 = -1e30;

pub(in crate::families) const SIGN: u32 = 0x8000_0000;
/// `T32_4x4`: 16 words as four rows of four, transposed.
const TRANSPOSE_WORDS: i64 = 34;

impl<U: Unit> Kernel<U> {
    /// The registers that all parts use. To be written once, where the program begins.
    pub fn new(b: &mut CoreBuilder, unit: U) -> Self {
        Self {
            parameters: b.region("parameters"),
            queries: b.region("arriving queries"),
            converted: b.region("queries"),
            cache: b.region("keys, values, mask"),
            placed: b.region("converted in place"),
            scores: b.region("scores"),
            exponentials: b.region("exponentials"),
            state: b.region("state"),
            scaled: b.region("values scaled in place"),
            arriving: b.region("parts"),
            heads: Heads::new(b),
            unit,
        }
    }

    /// The other buffer of two: their sum less this one.
    pub fn other(self, b: &mut CoreBuilder, buffer: Reg, both: Parameter) {
        let both = self.parameter(b, both);
        b.emit("sub", [buffer, both, buffer]);
    }

    /// A number of times, with addresses that each move on by a number of bytes.
    pub fn each(
        self,
        b: &mut CoreBuilder,
        count: Parameter,
        addresses: &[(Reg, Parameter)],
        body: impl FnOnce(&mut CoreBuilder, &[Reg]),
    ) {
        let moving: Vec<Reg> = addresses
            .iter()
            .map(|(address, _)| {
                let moving = b.reg(Class::Scalar);
                b.mov(moving, *address);
                moving
            })
            .collect();
        let count = self.count(b, count, 1);
        b.repeat(count, |b| {
            body(b, &moving);
            for (address, (_, bytes)) in moving.iter().zip(addresses) {
                let bytes = self.parameter(b, *bytes);
                b.emit("add", [*address, *address, bytes]);
            }
        });
    }

    /// A parameter in a new scalar.
    pub fn parameter(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let target = b.reg(Class::Scalar);
        let at = b.pointer_at(self.parameters, OWN_MEMORY + OFFSET);
        b.load(target, at, Address::At(4 * i64::from(parameter as u32)));
        target
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

    /// A pointer to an address in a scalar.
    pub fn pointer(self, b: &mut CoreBuilder, region: AliasRegion, address: Reg) -> Reg {
        let pointer = b.pointer(region);
        b.mov(pointer, address);
        pointer
    }

    /// A pointer to an address in a parameter.
    pub fn pointer_to(self, b: &mut CoreBuilder, region: AliasRegion, parameter: Parameter) -> Reg {
        let address = self.parameter(b, parameter);
        self.pointer(b, region, address)
    }

    /// A parameter in all lanes.
    pub fn splat(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let (scalar, vector) = (self.parameter(b, parameter), b.reg(Class::X));
        b.broadcast(32, vector, scalar);
        vector
    }

    /// The vector unit's operations on numbers.
    pub fn lanes(self, b: &mut CoreBuilder) -> U::One<'_> {
        self.unit.one(b)
    }
}

/// A vector of words at an address.
pub(in crate::families) fn words(b: &mut CoreBuilder, pointer: Reg, at: i64) -> Reg {
    let vector = b.reg(Class::X);
    b.load(vector, pointer, Address::At(at));
    vector
}

/// Words whose order as signed integers is that of the numbers; and back.
pub(in crate::families) fn ordered<L: Lanes>(l: &mut L, x: L::Word) -> L::Word {
    let (sign, zero) = (l.word(SIGN), l.word(0));
    let turned = l.sub_words(sign, x);
    let negative = l.less(x, zero);
    l.select(x, turned, negative)
}

/// From lanes that are heads four times over to lanes that are each head four times.
pub(in crate::families) fn by_head<L: Vectors>(l: &mut L, x: L::Float) -> L::Float {
    let bits = l.bits(x);
    let turned = l.shuffled(bits, TRANSPOSE_WORDS);
    l.float(turned)
}
