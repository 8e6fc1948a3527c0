//! The array of the family: the product design with another program.

use super::memory::ARENA;
use super::parameters::{OFFSET, WORDS};
use super::program::program;
use crate::array::{CoreMemory, MemMemory, Product};
use crate::codegen::LoopForm;
use crate::kit::ConfigureError;
use aie_hal::Arch;
use aie_isa::Isa;

/// The array with the program of its cores.
pub(super) struct Machine {
    pub product: Product,
}

impl Machine {
    /// The machine of a generation.
    pub fn new(arch: &Arch, isa: &'static Isa) -> Result<Self, ConfigureError> {
        let program = program(isa, LoopForm::of(arch))?;
        // Each dispatch divides the memory behind the parameters anew.
        let part = |index: u32| (ARENA + 64 * index, 32, 2);
        let memory = CoreMemory { weights: part(0), operand: part(1), result: part(2), parameters: (OFFSET, WORDS) };
        let columns = arch.array.columns as u8;
        let product = Product::new(arch, columns, &program.code, &[], &memory, MemMemory::default())?;
        Ok(Self { product })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::OWN_MEMORY;
    use crate::check::{Program, check};
    use rstest::rstest;

    /// All ways through the program, with the memory of its own tile alone.
    #[rstest]
    fn the_checker_accepts_the_program(#[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm) {
        let isa = Isa::aie2();
        let program = program(isa, loops).unwrap();
        let own = OWN_MEMORY..OWN_MEMORY + 0x1_0000;
        let report = check(&Program::new(isa, &program.code).with_data(vec![own]));
        let rejections: Vec<String> = report.rejections().map(ToString::to_string).collect();
        assert!(rejections.is_empty(), "{}", rejections.join("\n"));
        for report in &program.loops {
            println!("{report:?}");
        }
        println!("{} bytes, {} bundles, {} reads followed", report.bytes, report.bundles, report.reads);
        assert!(report.bytes <= 16 * 1024);
    }
}
