//! The program of a product core.

use super::activations;
use super::kernel::{Kernel, Locks, Parameter};
use super::memory::{PARAMETERS, PARTS, TYPES};
use super::portion::Stream;
use super::sums;
use super::types::Types;
use super::units;
use super::weights::Weights;
use crate::array::{OWN_MEMORY, Rings, SOUTH_MEMORY};
use crate::codegen::{CoreBuilder, CoreError, CoreProgram, Count, LoopForm};
use aie_isa::Isa;

/// Where the cores of a column see their parameters, which are in the memory of the lower one.
const PARAMETERS_AT: [u32; Rings::CORES] = [OWN_MEMORY + PARAMETERS.0, SOUTH_MEMORY + PARAMETERS.0];

/// The programs of a column's cores, the lower one's first.
pub(super) fn programs(
    isa: &'static Isa,
    all: Types,
    loops: LoopForm,
) -> Result<[CoreProgram; Rings::CORES], CoreError> {
    let [lower, upper] = PARAMETERS_AT.map(|parameters| program(isa, all, loops, parameters));
    Ok([lower?, upper?])
}

/// A program. It waits for the first part of a column, which comes once its parameters have been written.
fn program(isa: &'static Isa, all: Types, loops: LoopForm, parameters: u32) -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(isa);
    b.set_data_area(TYPES.0, TYPES.1);
    let types = b.constant(&Weights::table(all), Weights::ENTRY);
    let k = Kernel::new(&mut b, all, types, parameters);
    b.forever(|b| {
        b.acquire(Locks::X.full, -1);
        k.know(b);
        activations::receive(b, k);
        Stream::begin(b, k);
        let phase = k.parameter(b, Parameter::Phases);
        let batches = k.parameter(b, Parameter::Batches);
        b.repeat(Count::from(batches).at_least(1), |b| {
            let parts = k.address(b, PARTS);
            let portions = k.count(b, Parameter::Portions);
            b.repeat(portions, |b| {
                Stream::portion(b, k);
                units::portion(b, k, phase, parts);
            });
            // All weights are gone before the last result says that everything is.
            b.binary_into(batches, "sub", batches, 1);
            b.when_else(batches, |_| {}, |b| Stream::end(b, k));
            sums::rows(b, k);
        });
    });
    b.finish_with(loops)
}

#[cfg(test)]
mod tests {
    use super::super::weights::Weights;
    use super::*;
    use crate::check::{Program, check};
    use crate::families::testing::without_evidence;
    use aie_isa::InstructionSet;
    use rstest::rstest;

    /// Sets of types that files of models have fit the program memory.
    #[rstest]
    #[case(&[Weights::Q4_0, Weights::Q6K])]
    #[case(&[Weights::Q4_1, Weights::Q6K])]
    #[case(&[Weights::Q5K, Weights::Q6K])]
    #[case(&[Weights::Q5_0, Weights::Q8_0, Weights::Q4K, Weights::Q6K])]
    #[case(&[Weights::Q5_1, Weights::Q8_0, Weights::Q5K, Weights::Q6K])]
    #[case(&[Weights::Q4_0, Weights::Q4_1, Weights::Q8_0, Weights::Q6K])]
    fn sets_of_files_fit(
        #[case] types: &[Weights],
        #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
        #[values(Isa::aie2(), Isa::aie2p())] isa: &'static Isa,
    ) {
        let types = Types::with(types);
        let [lower, _] = programs(isa, types, loops).unwrap_or_else(|error| panic!("{types}: {error}"));
        println!("{types} of {}: {} bytes", isa.name(), lower.code.len());
    }

    /// All ways through the programs, with the memory of their own tile, and the parameters.
    #[rstest]
    fn the_checker_accepts_the_programs(
        #[values(Types::DEFAULTS[0], Types::DEFAULTS[1], Types::DEFAULTS[2], Types::DEFAULTS[3])] types: Types,
        #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
        #[values(Isa::aie2(), Isa::aie2p())] isa: &'static Isa,
        #[values(0, 1)] core: usize,
    ) {
        let at = PARAMETERS_AT[core];
        let program = program(isa, types, loops, at).unwrap();
        let data = vec![OWN_MEMORY..OWN_MEMORY + 0x1_0000, at..at + PARAMETERS.1];
        let report = check(&Program::new(isa, &program.code).with_data(data));
        if isa.set() == InstructionSet::Aie2p {
            assert_eq!(without_evidence(&program.code), [""; 0]);
        }
        let rejections: Vec<String> = report.rejections().map(ToString::to_string).collect();
        assert!(rejections.is_empty(), "{}", rejections.join("\n"));
        println!("{types} of {}: {} bytes, {} bundles", isa.name(), report.bytes, report.bundles);
        program.loops.iter().for_each(|report| println!("{report:?}"));
        assert!(report.bytes <= 16 * 1024);
    }
}
