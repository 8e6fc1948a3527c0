//! Block floating point, which AIE2P multiplies as matrices: eight numbers have an exponent, and a mantissa of eight bits each.
//!
//! A register has 8 x 8 numbers. Its rows are those of the first factor, or the columns of the second, so that both lie in memory alike: 64
//! mantissas, and eight exponents somewhere else, since no single load brings both.

use crate::codegen::{Address, Class, CoreBuilder, Reg};

/// Rows of a register, and numbers of a row.
pub const ROWS: usize = 8;
/// What mantissas and exponents of a register take in memory.
pub const MANTISSA_BYTES: usize = ROWS * ROWS;
/// The latter.
pub const EXPONENT_BYTES: usize = ROWS;

/// The unit that multiplies, which rounds to the nearest number where `crRnd` says so.
#[derive(Clone, Copy, Debug)]
pub struct BlockFloat {
    configuration: Reg,
}

impl BlockFloat {
    /// To be written where a loop with products begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        Self { configuration: b.scalar(CoreBuilder::MATRIX_BLOCKS.into()) }
    }

    /// Adds to 64 sums, row by row.
    pub fn multiply_add(self, b: &mut CoreBuilder, sum: Reg, rows: Reg, columns: Reg) {
        b.mac_f(sum, sum, rows, columns, self.configuration);
    }

    /// 64 numbers of f32.
    pub fn of(b: &mut CoreBuilder, numbers: Reg) -> Reg {
        let blocks = b.reg(Class::Blocks);
        b.emit("vconv.bfp16ebs8.fp32", [blocks, numbers]);
        blocks
    }

    /// Loads the registers that follow each other at two pointers, and moves these on by modifiers.
    pub fn load(b: &mut CoreBuilder, blocks: &[Reg], [mantissas, exponents]: [Reg; 2], [by, exponents_by]: [Reg; 2]) {
        for (index, block) in blocks.iter().enumerate().rev() {
            let address = if index == 0 { Address::ThenBy(by) } else { Address::At((index * MANTISSA_BYTES) as i64) };
            b.load(block.mantissas(), mantissas, address);
        }
        for (index, block) in blocks.iter().enumerate().rev() {
            for (part, offset) in block.exponents().into_iter().zip([0, 4]).rev() {
                let at = (index * EXPONENT_BYTES) as i64 + offset;
                let address = if at == 0 { Address::ThenBy(exponents_by) } else { Address::At(at) };
                b.load(part, exponents, address);
            }
        }
    }

    /// Stores the exponents, and moves the pointer on.
    pub fn store_exponents(b: &mut CoreBuilder, blocks: Reg, pointer: Reg, by: i64) {
        let [low, high] = blocks.exponents();
        b.store(low, pointer, Address::Then(4));
        b.store(high, pointer, Address::Then(by - 4));
    }
}
