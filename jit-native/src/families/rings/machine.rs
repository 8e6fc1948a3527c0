//! The array of the family: what is configured once.

use super::memory::CORE;
use super::program::program;
use super::weights::Weights;
use crate::array::{CoreCode, Memo, Rings};
use crate::codegen::{LoopForm, LoopReport};
use crate::kit::{ConfigureError, NativeError, isa_for};
use aie_hal::Arch;
use aie_isa::{InstructionSet, Isa};
use std::sync::Arc;

pub(super) const NAME: &str = "rings";

/// Its blocks are those of the matrix unit of this instruction set.
pub(super) const INSTRUCTION_SETS: &[InstructionSet] = &[InstructionSet::Aie2];

/// The array with the program of its cores.
pub(super) struct Machine {
    pub rings: Rings,
    /// What is known of the program's loops.
    pub loops: Vec<LoopReport>,
}

impl Machine {
    /// The machine of a generation, for these types of weights.
    pub fn new(arch: &Arch, isa: &'static Isa, types: &'static [Weights]) -> Result<Self, ConfigureError> {
        let program = program(isa, types, LoopForm::of(arch))?;
        let data: Vec<(u32, Vec<u8>)> =
            program.data.iter().map(|section| (section.offset, section.bytes.clone())).collect();
        let products = CoreCode { program: &program.code, data: &data };
        let rings = Rings::new(arch, arch.array.columns as u8, (products, &CORE), None)?;
        Ok(Self { rings, loops: program.loops })
    }
}

/// A machine is the same for all nodes with its types of weights.
static MACHINES: Memo<&'static [Weights], Machine> = Memo::new();

pub(super) fn machine(arch: &Arch, types: &'static [Weights]) -> Result<Arc<Machine>, NativeError> {
    let isa = isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let machine = MACHINES.get(arch, types, || Machine::new(arch, isa, types));
    machine.map_err(|reason| NativeError::failed(NAME, reason))
}
