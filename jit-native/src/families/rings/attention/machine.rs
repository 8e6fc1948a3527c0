//! The array of the family: what is configured once.

use super::program::program;
use crate::array::{Attention, Memo};
use crate::codegen::LoopForm;
use crate::families::attention::parameters::WORDS;
use crate::kit::{ConfigureError, NativeError, isa_for};
use aie_hal::Arch;
use aie_isa::InstructionSet;
use std::sync::Arc;

pub(super) const NAME: &str = "rings-attention";

/// Its blocks are those of the matrix unit of this instruction set.
pub(super) const INSTRUCTION_SETS: &[InstructionSet] = &[InstructionSet::Aie2];

/// The array is the same for all nodes.
static MACHINES: Memo<(), Attention> = Memo::new();

/// The array of a generation, with the program of its cores.
pub(super) fn machine(arch: &Arch) -> Result<Arc<Attention>, NativeError> {
    let isa = isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let machine = MACHINES.get(arch, (), || -> Result<_, ConfigureError> {
        let program = program(isa, LoopForm::of(arch))?;
        Ok(Attention::new(arch, arch.array.columns as u8, &program.code, WORDS)?)
    });
    machine.map_err(|reason| NativeError::failed(NAME, reason))
}
