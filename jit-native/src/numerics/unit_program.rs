//! Programs that are written for whatever vector unit there is.

use super::aie2::Aie2;
use super::aie2p::Aie2p;
use super::unit::Unit;
use crate::codegen::CoreBuilder;
use aie_isa::{InstructionSet, Isa};

/// A program in terms of a [`Unit`].
pub trait UnitProgram {
    /// Writes it. `unit` has been set up, which is the first thing that the program does.
    fn write<U: Unit>(&self, b: &mut CoreBuilder, unit: U);
}

/// A program as instructions of an instruction set, to be finished.
pub fn written_for(isa: &'static Isa, program: &impl UnitProgram) -> CoreBuilder {
    match isa.set() {
        InstructionSet::Aie2 => written::<Aie2>(isa, program),
        InstructionSet::Aie2p => written::<Aie2p>(isa, program),
    }
}

fn written<U: Unit>(isa: &'static Isa, program: &impl UnitProgram) -> CoreBuilder {
    let mut b = CoreBuilder::new(isa);
    let unit = U::new(&mut b);
    program.write(&mut b, unit);
    b
}
