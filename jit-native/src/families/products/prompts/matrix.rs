//! What a core's matrix unit multiplies, and what that takes in memory.

use super::super::problem::Right;
use super::super::weights::Weights;
use super::plan::HALF;
use crate::numerics::block_float::{EXPONENT_BYTES, MANTISSA_BYTES};
use aie_isa::InstructionSet;

/// The form of both factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matrix {
    /// bf16, in blocks of 4 x 8.
    Floats,
    /// Block floating point, in blocks of 8 x 8.
    Blocks,
}

/// Cycles of the parts of a program, about.
pub(super) struct Cycles {
    /// 64 `k` of a unit of columns, and its sums with their conflicts of banks.
    pub unit: usize,
    pub sums: usize,
    /// Around units, and around the loops that decode and that convert.
    pub group: usize,
    pub decode: usize,
    pub convert: usize,
}

impl Matrix {
    pub fn of(set: InstructionSet) -> Self {
        match set {
            InstructionSet::Aie2 => Self::Floats,
            InstructionSet::Aie2p => Self::Blocks,
        }
    }

    /// Rows and columns of a block of sums.
    pub fn block(self) -> usize {
        match self {
            Self::Floats => 4,
            Self::Blocks => 8,
        }
    }

    /// Bytes of so many numbers as they are multiplied, without exponents, and of these.
    pub fn bytes(self, numbers: usize) -> [usize; 2] {
        match self {
            Self::Floats => [2 * numbers, 0],
            Self::Blocks => [numbers, numbers * EXPONENT_BYTES / MANTISSA_BYTES],
        }
    }

    /// Whether weights are multiplied as they arrive.
    pub fn is_direct(self, weights: Weights) -> bool {
        self == Self::Floats && weights.is_direct()
    }

    /// How many of so many columns can arrive in a core at once, and how many `k` of them.
    pub fn pieces(self, columns: usize) -> Vec<usize> {
        match self {
            Self::Floats => vec![16, 8, 4],
            Self::Blocks => vec![columns],
        }
    }

    pub fn piece_elements(self) -> usize {
        match self {
            Self::Floats => HALF,
            Self::Blocks => HALF / 2,
        }
    }

    pub fn cycles(self) -> Cycles {
        match self {
            Self::Floats => Cycles { unit: 130, sums: 40, group: 300, decode: 180, convert: 150 },
            Self::Blocks => Cycles { unit: 70, sums: 60, group: 200, decode: 100, convert: 60 },
        }
    }

    /// Cycles in which 16 rows of 32 weights are decoded.
    pub fn decode_cycles(self, weights: Weights) -> usize {
        match (self, weights) {
            (Self::Floats, _) => weights.decode_cycles() as usize,
            (Self::Blocks, Weights::Bf16 | Weights::F32) => 40,
            (Self::Blocks, _) => 50,
        }
    }

    /// Cycles in which 32 `k` of four columns are converted.
    pub fn convert_cycles(self, right: Right) -> usize {
        match self {
            Self::Floats => right.convert_cycles(),
            Self::Blocks => 12,
        }
    }
}
