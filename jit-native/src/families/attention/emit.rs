//! What all parts of the program use.

use super::parameters::{OFFSET, Parameter};
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Aie2, Emission, Lanes};

/// Parts of a core's memory, and registers that hold the same everywhere.
#[derive(Clone, Copy)]
pub(in crate::families) struct Kernel {
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
    /// The configuration word of matrix products.
    pub matrix: Reg,
    pub configuration: Aie2,
}

/// Where a unit's state has what.
pub(in crate::families) const SUM: i64 = 64;
pub(in crate::families) const VALUES: u32 = 128;
/// A maximum that any score exceeds, and what stands in for the scores of keys that do not count.
pub(in crate::families) const LOWEST: f32 = -1e30;

pub(in crate::families) const SIGN: u32 = 0x8000_0000;
/// `T32_4x4`: 16 words as four rows of four, transposed.
const TRANSPOSE_WORDS: i64 = 34;

impl Kernel {
    /// The registers that all parts use. To be written once, where the program begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        let configuration = Aie2::new(b);
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
            matrix: b.scalar(CoreBuilder::MATRIX_BF16.into()),
            configuration,
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
    pub fn lanes(self, b: &mut CoreBuilder) -> Emission<'_> {
        Emission::new(b, self.configuration)
    }

    /// Two pointers, to the first and to the second 128 bytes of an address.
    pub fn pair_of_pointers(self, b: &mut CoreBuilder, region: AliasRegion, address: Reg) -> [Reg; 2] {
        let second = b.add(address, 128);
        [address, second].map(|address| self.pointer(b, region, address))
    }
}

/// A vector of words at an address.
pub(in crate::families) fn words(b: &mut CoreBuilder, pointer: Reg, at: i64) -> Reg {
    let vector = b.reg(Class::X);
    b.load(vector, pointer, Address::At(at));
    vector
}

/// A vector of numbers at an address.
pub(in crate::families) fn numbers(b: &mut CoreBuilder, pointer: Reg, at: i64) -> Reg {
    let vector = b.reg(Class::Acc512);
    b.load(vector, pointer, Address::At(at));
    vector
}

/// Words whose order as signed integers is that of the numbers; and back.
pub(in crate::families) fn ordered(l: &mut Emission<'_>, x: Reg) -> Reg {
    let (sign, zero) = (l.word(SIGN), l.word(0));
    let turned = l.sub_words(sign, x);
    let negative = l.less(x, zero);
    l.select(x, turned, negative)
}

/// The lanes from `bytes` on, then those before.
pub(in crate::families) fn rotated(l: &mut Emission<'_>, x: Reg, bytes: i64) -> Reg {
    let (shift, turned) = (l.builder.scalar(bytes), l.builder.reg(Class::X));
    l.builder.emit("vshift", [turned, x, x, shift]);
    turned
}

/// From lanes that are heads four times over to lanes that are each head four times.
pub(in crate::families) fn by_head(l: &mut Emission<'_>, x: Reg) -> Reg {
    let bits = l.bits(x);
    let (mode, turned) = (l.builder.scalar(TRANSPOSE_WORDS), l.builder.reg(Class::X));
    l.builder.shuffle(turned, bits, bits, mode);
    l.float(turned)
}
