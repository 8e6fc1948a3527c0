//! The program of a core: what arrives when, and which loop works on it.

use super::kernel::{Kernel, Locks, Purpose};
use super::memory::{ARRIVING, SUMS, WEIGHTS};
use super::parameters::Parameter;
use super::vectors::program::phase;
use super::{columns, decode, product};
use crate::array::{GO_LOCK, OWN_LOCKS};
use crate::codegen::{Class, CoreBuilder, CoreError, CoreProgram, LoopForm, Reg};
use aie_isa::Isa;

/// The program of every core, for one purpose.
pub(super) fn program(isa: &'static Isa, purpose: Purpose, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(isa);
    let kernel = Kernel::new(&mut b, purpose);
    b.forever(|b| kernel.dispatch(b));
    b.finish_with(loops)
}

impl Kernel {
    /// One phase: waits for the go lock, and computes what the parameters say.
    fn dispatch(self, b: &mut CoreBuilder) {
        b.acquire(OWN_LOCKS + GO_LOCK, -1);
        if self.purpose != Purpose::Token {
            return self.product(b);
        }
        let tiles = self.parameter(b, Parameter::Tiles);
        b.when_else(tiles, |b| self.product(b), |b| phase(b, self));
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
