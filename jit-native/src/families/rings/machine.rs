//! The array of the family: what is configured once.

use super::attention;
use super::memory::CORE;
use super::program::programs;
use super::types::Types;
use super::weights::Weights;
use crate::array::{ArrayError, Attention, CoreCode, Memo, Rings};
use crate::codegen::{LoopForm, LoopReport};
use crate::compiler::SOURCE_DIGEST;
use crate::families::elements::dispatch as elements;
use crate::families::elements::functions::Repertoire;
use crate::families::elements::program::program as elements_program;
use crate::kit::{ConfigureError, NativeError, isa_for};
use aie_hal::artifact::Configuration;
use aie_hal::{Arch, KernelArtifact};
use aie_isa::{InstructionSet, Isa};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const NAME: &str = "rings";

/// Those with programs.
pub(super) const INSTRUCTION_SETS: &[InstructionSet] = &[InstructionSet::Aie2, InstructionSet::Aie2p];

/// Those with a family of all products beside this one, and those without.
pub(super) const BESIDE_OTHERS: &[InstructionSet] = &[InstructionSet::Aie2];
pub(super) const ALONE: &[InstructionSet] = &[InstructionSet::Aie2p];

/// The array with the programs of its cores.
pub(super) struct Machine {
    pub rings: Rings,
    /// The cores for vectors.
    pub vectors: Arc<elements::Machine>,
    /// The cores for attention.
    pub attention: Attention,
    /// What is known of the loops of products.
    pub loops: Vec<LoopReport>,
    /// What streams of all its cores have in common: those of vectors and attention need no type of weights.
    configuration: Configuration,
}

impl Machine {
    /// The machine of a generation, for these types of weights.
    pub fn new(arch: &Arch, isa: &'static Isa, types: Types) -> Result<Self, ConfigureError> {
        let form = LoopForm::of(arch);
        let ([lower, upper], vectors) = (programs(isa, types, form)?, elements_program(isa, Repertoire::Token, form)?);
        let attention = attention::program::program(isa, form)?;
        let [of_lower, of_upper, of_vectors] = [&lower, &upper, &vectors].map(|program| -> Vec<(u32, Vec<u8>)> {
            program.data.iter().map(|section| (section.offset, section.bytes.clone())).collect()
        });
        let rings = Rings::new(
            arch,
            arch.array.columns as u8,
            ([(&lower, &of_lower), (&upper, &of_upper)].map(|(of, data)| CoreCode { program: &of.code, data }), &CORE),
            Some(CoreCode { program: &vectors.code, data: &of_vectors }),
            Some((&attention.code, attention::WORDS)),
        )?;
        let missing = || ArrayError::NoParameters(Rings::cores(0)[0]);
        let elements = rings.vectors().cloned().ok_or_else(missing)?;
        let attention = rings.attention().cloned().ok_or_else(missing)?;
        let vectors = Arc::new(elements::Machine { elements, loops: vectors.loops });
        // The self-test may admit one form only.
        let loops = match form {
            LoopForm::Hardware => "",
            LoopForm::Jnz => "-jnz",
        };
        let configuration = Configuration {
            name: format!("{NAME}-{}{loops}-{}", arch.array.columns, &SOURCE_DIGEST[..12]),
            needs: BTreeSet::new(),
            has: types.iter().map(|weights| weights.dtype().to_string()).collect(),
        };
        Ok(Self { rings, vectors, attention, loops: lower.loops, configuration })
    }

    /// A kernel of this array, with what its stream needs: a type of weights, or none.
    pub fn configured(&self, kernel: KernelArtifact, weights: Option<Weights>) -> KernelArtifact {
        let needs = weights.iter().map(|weights| weights.dtype().to_string()).collect();
        kernel.with_configuration(Configuration { needs, ..self.configuration.clone() })
    }
}

/// A machine is the same for all nodes with its types of weights.
static MACHINES: Memo<Types, Machine> = Memo::new();

pub(super) fn machine(arch: &Arch, types: Types) -> Result<Arc<Machine>, NativeError> {
    let isa = isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let machine = MACHINES.get(arch, types, || Machine::new(arch, isa, types));
    machine.map_err(|reason| NativeError::failed(NAME, format!("products of {types}: {reason}")))
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
