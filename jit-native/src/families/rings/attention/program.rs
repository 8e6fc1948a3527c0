//! The program of the core: what arrives when, and what is done with it.

use crate::array::{AttentionCore, GO_LOCK, OWN_LOCKS, OWN_MEMORY};
use crate::codegen::{CoreBuilder, CoreError, CoreProgram, LoopForm, Reg};
use crate::families::attention::emit::Kernel;
use crate::families::attention::parameters::{Parameter, SLOPES, SLOPES_STEP};
use crate::families::attention::program::{acquire_empty, acquire_full, release_empty, release_full};
use crate::families::attention::{convert, merge, scores, softmax, values};
use crate::numerics::{Unit, UnitProgram, written_for};
use aie_isa::Isa;

/// The program. It waits for the go lock of each phase.
pub(in crate::families::rings) fn program(isa: &'static Isa, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    written_for(isa, &Phases).finish_with(loops)
}

/// One phase after the other.
struct Phases;

impl UnitProgram for Phases {
    fn write<U: Unit>(&self, b: &mut CoreBuilder, unit: U) {
        let k = Kernel::new(b, unit);
        b.forever(|b| phase(b, k));
    }
}

/// What a phase has for each item, in scalars: slopes, queries in bf16, states.
#[derive(Clone, Copy)]
struct Item {
    slopes: Reg,
    queries: Reg,
    state: Reg,
}

fn phase<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>) {
    b.acquire(OWN_LOCKS + GO_LOCK, -1);
    let begins = k.parameter(b, Parameter::Begins);
    b.when(begins, |b| begin(b, k));
    let has_mask = k.parameter(b, Parameter::HasMask);
    b.when(has_mask, |b| {
        acquire_full(b, AttentionCore::MASK_LOCK);
        let mask = k.parameter(b, Parameter::MaskFirst);
        convert::mask(b, k, mask);
    });
    let buffers = [Parameter::KeysFirst, Parameter::ValuesFirst].map(|first| k.parameter(b, first));
    let item = Item {
        slopes: b.scalar((OWN_MEMORY + SLOPES).into()),
        queries: k.parameter(b, Parameter::Converted),
        state: k.parameter(b, Parameter::Part),
    };
    let items = k.count(b, Parameter::Items, 1);
    b.repeat(items, |b| {
        let [skip, mask] = [Parameter::Skip, Parameter::MaskFirst].map(|first| k.parameter(b, first));
        let tiles = k.count(b, Parameter::Tiles, 1);
        b.repeat(tiles, |b| tile(b, k, buffers, [skip, mask], item));
        b.binary_into(item.slopes, "add", item.slopes, SLOPES_STEP);
        for (place, bytes) in [(item.queries, Parameter::ItemConverted), (item.state, Parameter::ItemState)] {
            let bytes = k.parameter(b, bytes);
            b.emit("add", [place, place, bytes]);
        }
    });
    let has_mask = k.parameter(b, Parameter::HasMask);
    b.when(has_mask, |b| release_empty(b, AttentionCore::MASK_LOCK));
    let states = [(k.parameter(b, Parameter::Part), Parameter::StateBytes)];
    k.each(b, Parameter::States, &states, |b, at| {
        let ends = k.parameter(b, Parameter::Ends);
        b.when(ends, |b| merge::divide(b, k, at[0]));
        acquire_empty(b, AttentionCore::RESULT_LOCK);
        release_full(b, AttentionCore::RESULT_LOCK);
    });
}

/// Queries arrive, and states are those of no keys.
fn begin<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>) {
    acquire_full(b, AttentionCore::QUERIES_LOCK);
    let places = [(Parameter::Queries, Parameter::QueriesBytes), (Parameter::Converted, Parameter::ConvertedBytes)];
    let places = places.map(|(first, bytes)| (k.parameter(b, first), bytes));
    k.each(b, Parameter::States, &places, |b, at| convert::queries(b, k, at[0], at[1]));
    release_empty(b, AttentionCore::QUERIES_LOCK);
    let states = [(k.parameter(b, Parameter::Part), Parameter::StateBytes)];
    k.each(b, Parameter::States, &states, |b, at| softmax::begin(b, k, at[0]));
}

/// One tile of keys and values.
fn tile<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, [keys, values]: [Reg; 2], [skip, mask]: [Reg; 2], item: Item) {
    acquire_full(b, AttentionCore::KEYS_LOCK);
    convert::tile(b, k, keys, Parameter::KeyType, Parameter::KeyConversions);
    acquire_full(b, AttentionCore::VALUES_LOCK);
    convert::tile(b, k, values, Parameter::ValueType, Parameter::ValueConversions);
    let places =
        [(item.queries, Parameter::ConvertedBytes), (mask, Parameter::MaskBytes), (item.state, Parameter::StateBytes)];
    k.each(b, Parameter::Units, &places, |b, at| {
        scores::scores(b, k, [keys, at[0], at[1], item.slopes]);
        scores::leave_out(b, k, skip);
        softmax::exponentials(b, k, at[2]);
        values::values(b, k, values, at[2]);
    });
    release_empty(b, AttentionCore::KEYS_LOCK);
    release_empty(b, AttentionCore::VALUES_LOCK);
    k.other(b, keys, Parameter::KeysBoth);
    k.other(b, values, Parameter::ValuesBoth);
    let step = k.parameter(b, Parameter::SkipStep);
    b.emit("add", [skip, skip, step]);
    // The last tile ends with the keys, wherever it begins.
    let (next, last) = (b.binary("lshl", step, 1), k.parameter(b, Parameter::MaskLast));
    b.emit("add", [next, mask, next]);
    let before = b.binary("lt", next, last);
    let next = b.select(before, next, last);
    b.mov(mask, next);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Program, check};
    use crate::families::testing::without_evidence;
    use aie_isa::InstructionSet;
    use rstest::rstest;

    /// All ways through the program, with the memory of its own tile alone.
    #[rstest]
    fn the_checker_accepts_the_program(
        #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
        #[values(Isa::aie2(), Isa::aie2p())] isa: &'static Isa,
    ) {
        let program = program(isa, loops).unwrap();
        let own = OWN_MEMORY..OWN_MEMORY + 0x1_0000;
        let report = check(&Program::new(isa, &program.code).with_data(vec![own]));
        let rejections: Vec<String> = report.rejections().map(ToString::to_string).collect();
        assert!(rejections.is_empty(), "{}", rejections.join("\n"));
        program.loops.iter().for_each(|report| println!("{report:?}"));
        println!("{} bytes, {} bundles, {} reads followed", report.bytes, report.bundles, report.reads);
        assert!(report.bytes <= 16 * 1024);
        if isa.set() == InstructionSet::Aie2p {
            assert_eq!(without_evidence(&program.code), [""; 0]);
        }
    }
}
