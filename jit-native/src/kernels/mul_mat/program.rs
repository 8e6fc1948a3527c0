//! The program of a core: what arrives when, and which loop works on it.

use super::arithmetic::Arithmetic;
use super::machine::{ARRIVING, SUMS, WEIGHTS};
use super::parameters::{OFFSET, Parameter};
use super::{columns, decode, product, vectors};
use crate::array::{GO_LOCK, OWN_LOCKS, OWN_MEMORY};
use crate::core::{Address, Class, CoreBuilder, CoreError, CoreProgram, Count, LoopForm, Reg, Region};
use aie_isa::Isa;

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
    pub parameters: Region,
    /// Columns as they arrive, and in bf16.
    pub arriving: Region,
    pub columns: Region,
    /// Weights as they arrive; what is put in their place, which nothing reads in the same loop; and decoded ones.
    pub weights: Region,
    pub placed: Region,
    pub decoded: Region,
    /// Sums.
    pub sums: Region,
    /// The configuration word of matrix products.
    pub matrix: Reg,
}

/// Rounding to the nearest number, ties to even.
const NEAREST_EVEN: i64 = 12;

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

/// The program of every core, for one purpose.
pub(super) fn program(isa: &'static Isa, purpose: Purpose, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(isa);
    let rounding = b.special("crRnd");
    b.constant_into(rounding, NEAREST_EVEN);
    // Quants have no sign, nor have packed scales, and nothing is saturated.
    for control in ["crUnpackSign", "crUPSSign", "crSRSSign", "crSat"] {
        let control = b.special(control);
        b.constant_into(control, 0);
    }
    let kernel = Kernel {
        purpose,
        parameters: b.region("parameters"),
        arriving: b.region("arriving columns"),
        columns: b.region("columns"),
        weights: b.region("weights"),
        placed: b.region("weights in place"),
        decoded: b.region("decoded weights"),
        sums: b.region("sums"),
        matrix: b.scalar(purpose.arithmetic().configuration().into()),
    };
    b.forever(|b| kernel.dispatch(b));
    b.finish_with(loops)
}

impl Kernel {
    /// A parameter in a new scalar.
    pub fn parameter(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let target = b.reg(Class::Scalar);
        self.parameter_into(b, target, parameter);
        target
    }

    fn parameter_into(self, b: &mut CoreBuilder, target: Reg, parameter: Parameter) {
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
    pub fn pointer(self, b: &mut CoreBuilder, region: Region, address: Reg) -> Reg {
        let pointer = b.pointer(region);
        b.mov(pointer, address);
        pointer
    }

    /// The other buffer of two: their sum less this one.
    fn other(self, b: &mut CoreBuilder, buffer: Reg, both: Parameter) {
        let both = self.parameter(b, both);
        b.emit("sub", [buffer, both, buffer]);
    }

    /// The next buffer of arriving columns.
    fn next(self, b: &mut CoreBuilder, buffer: Reg) {
        let [stride, end] = [Parameter::ArrivingStride, Parameter::ArrivingEnd].map(|place| self.parameter(b, place));
        b.emit("add", [buffer, buffer, stride]);
        let is_last = b.binary("eq", buffer, end);
        b.when(is_last, |b| self.parameter_into(b, buffer, Parameter::ArrivingFirst));
    }

    /// One phase: waits for the go lock, and computes what the parameters say.
    fn dispatch(self, b: &mut CoreBuilder) {
        b.acquire(OWN_LOCKS + GO_LOCK, -1);
        if self.purpose != Purpose::Token {
            return self.product(b);
        }
        let tiles = self.parameter(b, Parameter::Tiles);
        b.when_else(tiles, |b| self.product(b), |b| vectors::phase(b, self));
    }

    /// A product.
    fn product(self, b: &mut CoreBuilder) {
        let weights_at = self.parameter(b, Parameter::WeightsFirst);
        let arriving_at = self.parameter(b, Parameter::ArrivingFirst);
        let sums_at = self.parameter(b, Parameter::SumsFirst);
        // Columns are due at first, and later if they do not stay.
        let due = b.scalar(1);
        let tiles = self.count(b, Parameter::Tiles, 1);
        b.repeat(tiles, |b| {
            let groups = self.parameter(b, Parameter::Groups);
            b.when(groups, |b| b.acquire(Locks::of(SUMS).empty, -1));
            let first = b.scalar(1);
            let columns = self.parameter(b, Parameter::Columns);
            let chunks = self.count(b, Parameter::Chunks, 1);
            b.repeat(chunks, |b| {
                b.when(due, |b| self.columns(b, arriving_at, columns));
                let group_sums = b.reg(Class::Scalar);
                b.mov(group_sums, sums_at);
                let groups = self.count(b, Parameter::Groups, 0);
                b.repeat(groups, |b| {
                    self.group(b, weights_at, [group_sums, columns, first]);
                    let bytes = product::GROUP_ROWS * 4 * self.purpose.arithmetic().lanes();
                    b.binary_into(group_sums, "add", group_sums, bytes as u32);
                });
                b.constant_into(first, 0);
                let bytes = self.parameter(b, Parameter::ChunkBytes);
                b.emit("add", [columns, columns, bytes]);
            });
            self.parameter_into(b, due, Parameter::ColumnsEveryTime);
            let groups = self.parameter(b, Parameter::Groups);
            b.when(groups, |b| b.release(Locks::of(SUMS).full, 1));
            self.other(b, sums_at, Parameter::SumsBoth);
        });
    }

    /// Converts the columns of a chunk as they arrive, a block at a time.
    fn columns(self, b: &mut CoreBuilder, arriving_at: Reg, columns: Reg) {
        let unit = b.reg(Class::Scalar);
        b.mov(unit, columns);
        let units = self.count(b, Parameter::Units, 1);
        b.repeat(units, |b| {
            let target = b.reg(Class::Scalar);
            b.mov(target, unit);
            let blocks = self.count(b, Parameter::BlocksPerUnit, 1);
            b.repeat(blocks, |b| {
                b.acquire(Locks::of(ARRIVING).full, -1);
                columns::convert(b, self, arriving_at, target);
                b.release(Locks::of(ARRIVING).empty, 1);
                self.next(b, arriving_at);
                b.binary_into(target, "add", target, product::BLOCK_BYTES);
            });
            let bytes = self.parameter(b, Parameter::UnitBytes);
            b.emit("add", [unit, unit, bytes]);
        });
    }

    /// Decodes 16 rows of weights of a chunk and multiplies them with all columns.
    fn group(self, b: &mut CoreBuilder, weights_at: Reg, [group_sums, columns, first]: [Reg; 3]) {
        b.acquire(Locks::of(WEIGHTS).full, -1);
        let source = self.parameter(b, Parameter::Decoded);
        decode::decode(b, self, weights_at, source);
        let operands = [source, columns, group_sums, first];
        if self.purpose.has_many_columns() {
            let wide = self.parameter(b, Parameter::Wide);
            b.choose(wide, 2, |b, wide| product::product(b, self, operands, wide == 1));
        } else {
            product::product(b, self, operands, false);
        }
        b.release(Locks::of(WEIGHTS).empty, 1);
        self.other(b, weights_at, Parameter::WeightsBoth);
    }
}
