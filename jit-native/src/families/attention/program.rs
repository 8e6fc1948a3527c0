//! The program of a core: what arrives when, and what is done with it.

use super::emit::Kernel;
use super::memory::lock;
use super::parameters::{Parameter, SLOPES, SLOPES_STEP};
use super::{convert, merge, scores, softmax, values};
use crate::array::{GO_LOCK, OWN_LOCKS, OWN_MEMORY};
use crate::codegen::{CoreBuilder, CoreError, CoreProgram, Count, LoopForm, Reg};
use crate::numerics::{Unit, UnitProgram, written_for};
use aie_isa::Isa;

/// Cores whose parts are joined.
const PARTS: u32 = 4;

pub(in crate::families) fn acquire_full(b: &mut CoreBuilder, ring: u8) {
    b.acquire(OWN_LOCKS + ring + 1, -1);
}

pub(in crate::families) fn release_empty(b: &mut CoreBuilder, ring: u8) {
    b.release(OWN_LOCKS + ring, 1);
}

pub(in crate::families) fn acquire_empty(b: &mut CoreBuilder, ring: u8) {
    b.acquire(OWN_LOCKS + ring, -1);
}

pub(in crate::families) fn release_full(b: &mut CoreBuilder, ring: u8) {
    b.release(OWN_LOCKS + ring + 1, 1);
}

/// The program of every core of the family.
pub(super) fn program(isa: &'static Isa, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    written_for(isa, &Dispatches).finish_with(loops)
}

/// One dispatch after the other.
struct Dispatches;

impl UnitProgram for Dispatches {
    fn write<U: Unit>(&self, b: &mut CoreBuilder, unit: U) {
        let kernel = Kernel::new(b, unit);
        b.forever(|b| kernel.dispatch(b));
    }
}

impl<U: Unit> Kernel<U> {
    /// One dispatch: waits for the go lock, and computes what the parameters say.
    fn dispatch(self, b: &mut CoreBuilder) {
        b.acquire(OWN_LOCKS + GO_LOCK, -1);
        let buffers = [Parameter::KeysFirst, Parameter::ValuesFirst, Parameter::MaskFirst];
        let buffers = buffers.map(|first| self.parameter(b, first));
        let slopes = b.scalar((OWN_MEMORY + SLOPES).into());
        let items = self.count(b, Parameter::Items, 1);
        b.repeat(items, |b| {
            self.item(b, buffers, slopes);
            b.binary_into(slopes, "add", slopes, SLOPES_STEP);
        });
    }

    /// One pass over the keys of a head.
    fn item(self, b: &mut CoreBuilder, buffers: [Reg; 3], slopes: Reg) {
        acquire_full(b, lock::QUERIES);
        let places = [(Parameter::Queries, Parameter::QueriesBytes), (Parameter::Converted, Parameter::ConvertedBytes)];
        let places = places.map(|(first, bytes)| (self.parameter(b, first), bytes));
        self.each(b, Parameter::Units, &places, |b, at| convert::queries(b, self, at[0], at[1]));
        release_empty(b, lock::QUERIES);

        acquire_empty(b, lock::PART);
        let part = (self.parameter(b, Parameter::Part), Parameter::StateBytes);
        self.each(b, Parameter::Units, &[part], |b, at| softmax::begin(b, self, at[0]));
        let skip = self.parameter(b, Parameter::Skip);
        let tiles = self.count(b, Parameter::Tiles, 1);
        b.repeat(tiles, |b| self.tile(b, buffers, [skip, slopes]));
        release_full(b, lock::PART);
        self.join(b);
    }

    /// One tile of keys and values.
    fn tile(self, b: &mut CoreBuilder, [keys, values, mask]: [Reg; 3], [skip, slopes]: [Reg; 2]) {
        acquire_full(b, lock::KEYS);
        convert::tile(b, self, keys, Parameter::KeyType, Parameter::KeyConversions);
        acquire_full(b, lock::VALUES);
        convert::tile(b, self, values, Parameter::ValueType, Parameter::ValueConversions);
        let has_mask = self.parameter(b, Parameter::HasMask);
        b.when(has_mask, |b| {
            acquire_full(b, lock::MASK);
            convert::mask(b, self, mask);
        });
        let places = [
            (self.parameter(b, Parameter::Converted), Parameter::ConvertedBytes),
            (mask, Parameter::MaskBytes),
            (self.parameter(b, Parameter::Part), Parameter::StateBytes),
        ];
        self.each(b, Parameter::Units, &places, |b, at| {
            scores::scores(b, self, [keys, at[0], at[1], slopes]);
            scores::leave_out(b, self, skip);
            softmax::exponentials(b, self, at[2]);
            values::values(b, self, values, at[2]);
        });
        release_empty(b, lock::KEYS);
        release_empty(b, lock::VALUES);
        let has_mask = self.parameter(b, Parameter::HasMask);
        b.when(has_mask, |b| release_empty(b, lock::MASK));
        self.other(b, keys, Parameter::KeysBoth);
        self.other(b, values, Parameter::ValuesBoth);
        self.other(b, mask, Parameter::MaskBoth);
        let step = self.parameter(b, Parameter::SkipStep);
        b.emit("add", [skip, skip, step]);
    }

    /// Sinks, if there are any, and the parts of all cores come to every core; one of them joins them.
    fn join(self, b: &mut CoreBuilder) {
        let joins = self.parameter(b, Parameter::Joins);
        let result = (self.parameter(b, Parameter::Result), Parameter::StateBytes);
        b.when(joins, |b| acquire_empty(b, lock::RESULT));
        let begins = self.parameter(b, Parameter::Begins);
        b.when(begins, |b| self.each(b, Parameter::Units, &[result], |b, at| softmax::begin(b, self, at[0])));
        let has_sinks = self.parameter(b, Parameter::HasSinks);
        b.when(has_sinks, |b| {
            acquire_full(b, lock::ARRIVING);
            b.when(joins, |b| {
                let sinks = self.parameter(b, Parameter::Arriving);
                self.each(b, Parameter::Units, &[result], |b, at| softmax::begin_with_sinks(b, self, sinks, at[0]));
            });
            release_empty(b, lock::ARRIVING);
        });
        b.repeat(Count::from(PARTS), |b| {
            acquire_full(b, lock::ARRIVING);
            b.when(joins, |b| {
                let arriving = (self.parameter(b, Parameter::Arriving), Parameter::StateBytes);
                self.each(b, Parameter::Units, &[arriving, result], |b, at| merge::join(b, self, at[0], at[1]));
            });
            release_empty(b, lock::ARRIVING);
        });
        b.when(joins, |b| {
            self.each(b, Parameter::Units, &[result], |b, at| merge::divide(b, self, at[0]));
            release_full(b, lock::RESULT);
        });
    }
}
