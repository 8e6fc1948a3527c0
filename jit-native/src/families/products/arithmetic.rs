//! What the matrix unit multiplies. The type decides the shapes of its operands, and a core has the program of one type.

use crate::codegen::{Class, CoreBuilder, Reg};

/// Rows of weights in a block of the matrix unit, and its `k`.
pub(super) const BLOCK_ROWS: usize = 4;
const BLOCK_DEPTH: usize = 8;
/// Columns in a unit of the wide loop.
pub(super) const WIDE_COLUMNS: usize = 16;

/// The types of both operands and of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    /// bf16 to f32: 4x8 times 8x4.
    Floats,
    /// i8 to i32: 4x8 times 8x8.
    Integers,
}

impl Arithmetic {
    /// Bytes of an element of an operand.
    pub fn bytes(self) -> usize {
        match self {
            Self::Floats => 2,
            Self::Integers => 1,
        }
    }

    /// Columns in a block.
    pub fn lanes(self) -> usize {
        match self {
            Self::Floats => 4,
            Self::Integers => 8,
        }
    }

    /// Blocks of columns in a unit of the loop.
    pub fn blocks(self, wide: bool) -> usize {
        if wide { WIDE_COLUMNS / self.lanes() } else { 1 }
    }

    /// Cycles of a step of 8 `k` of the loop for 16 rows.
    pub fn step_cycles(self, wide: bool) -> u64 {
        match (self, wide) {
            (Self::Floats, true) => 16,
            (Self::Floats, false) => 5,
            (Self::Integers, true) => 8,
            (Self::Integers, false) => 4,
        }
    }

    /// Bytes of the sums of a block.
    pub fn sums_bytes(self) -> usize {
        4 * BLOCK_ROWS * self.lanes()
    }

    /// Bytes of a block of rows.
    pub fn rows_bytes(self) -> usize {
        BLOCK_ROWS * BLOCK_DEPTH * self.bytes()
    }

    /// What holds the sums of a block.
    pub fn accumulator(self) -> Class {
        match self {
            Self::Floats => Class::Acc512,
            Self::Integers => Class::Acc1024,
        }
    }

    /// The configuration word of its multiplications.
    pub fn configuration(self) -> u32 {
        match self {
            Self::Floats => CoreBuilder::MATRIX_BF16,
            Self::Integers => CoreBuilder::MATRIX_I8,
        }
    }

    /// Adds the product of a block of rows and a block of columns to `sums`.
    pub fn mac(self, b: &mut CoreBuilder, sums: Reg, [rows, columns]: [Reg; 2], configuration: Reg) {
        match self {
            Self::Floats => b.mac_f(sums, sums, rows, columns, configuration),
            Self::Integers => b.mac(sums, sums, rows, columns, configuration),
        }
    }
}
