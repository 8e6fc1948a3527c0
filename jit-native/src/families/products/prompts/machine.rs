//! The array of the family: what is configured once.

use super::super::memory::ARENA;
use super::super::parameters::{OFFSET, WORDS};
use super::matrix::Matrix;
use super::program::program;
use crate::array::{Broadcast, CoreMemory, Memo};
use crate::codegen::{LoopForm, LoopReport};
use crate::kit::{ConfigureError, NativeError, isa_for};
use aie_hal::Arch;
use aie_isa::{InstructionSet, Isa};
use std::sync::Arc;

pub(super) const NAME: &str = "prompts";
/// Those that multiply matrices of bf16 or of block floating point.
pub(super) const INSTRUCTION_SETS: &[InstructionSet] = &[InstructionSet::Aie2, InstructionSet::Aie2p];

/// The array with the program of its cores.
pub(super) struct Machine {
    pub broadcast: Broadcast,
    pub matrix: Matrix,
    /// What is known of the program's loops.
    pub loops: Vec<LoopReport>,
}

impl Machine {
    fn new(arch: &Arch, isa: &'static Isa) -> Result<Self, ConfigureError> {
        let program = program(isa, LoopForm::of(arch))?;
        // Each dispatch divides the memory behind the parameters anew.
        let part = |index: u32| (ARENA + 64 * index, 32, 2);
        let memory = CoreMemory { weights: part(0), operand: part(1), result: part(2), parameters: (OFFSET, WORDS) };
        let broadcast = Broadcast::new(arch, arch.array.columns as u8, &program.code, &memory)?;
        Ok(Self { broadcast, matrix: Matrix::of(isa.set()), loops: program.loops })
    }
}

/// A machine is the same for all nodes.
static MACHINES: Memo<(), Machine> = Memo::new();

pub(super) fn machine(arch: &Arch) -> Result<Arc<Machine>, NativeError> {
    let isa = isa_for(NAME, INSTRUCTION_SETS, arch)?;
    MACHINES.get(arch, (), || Machine::new(arch, isa)).map_err(|reason| NativeError::failed(NAME, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::OWN_MEMORY;
    use crate::check::{Program, check};
    use crate::families::testing::without_evidence;
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
        assert!(report.bytes <= 16 * 1024, "{} bytes", report.bytes);
        if isa.set() == InstructionSet::Aie2p {
            assert_eq!(without_evidence(&program.code), [""; 0]);
        }
        println!("{} bytes", report.bytes);
        program.loops.iter().for_each(|report| println!("{} {}", report.name, report.interval));
    }
}
