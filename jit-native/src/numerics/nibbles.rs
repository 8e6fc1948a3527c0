//! Numbers of four bits become bytes.

use crate::codegen::{Class, CoreBuilder, Reg};
use aie_isa::InstructionSet;

/// Where the bytes are: those of the lower half of a vector of numbers without a sign, and those of the upper half.
#[derive(Clone, Copy, Debug)]
pub struct Nibbles {
    /// In a vector each.
    pub bytes: [Reg; 2],
    /// Both, where one instruction writes them.
    both: Option<Reg>,
}

impl Nibbles {
    /// Of a loop.
    pub fn new(b: &mut CoreBuilder) -> Self {
        match b.isa().set() {
            InstructionSet::Aie2 => Self { bytes: [(); 2].map(|()| b.reg(Class::X)), both: None },
            InstructionSet::Aie2p => {
                let both = b.reg(Class::Y);
                Self { bytes: [both.lo(), both.hi()], both: Some(both) }
            }
        }
    }

    /// Says that numbers have four bits and no sign. To be written once, where a program begins.
    pub fn begin(b: &mut CoreBuilder) {
        let control = match b.isa().set() {
            InstructionSet::Aie2 => "crUnpackSign",
            InstructionSet::Aie2p => "crUnpackSize",
        };
        let control = b.special(control);
        b.constant_into(control, 0);
    }

    /// Unpacks a vector.
    pub fn unpack(self, b: &mut CoreBuilder, packed: Reg) {
        match self.both {
            None => {
                let halves = [packed.lo(), packed.hi()];
                self.bytes.into_iter().zip(halves).for_each(|(bytes, half)| b.emit("vunpack.d8.d4", [bytes, half]));
            }
            // The form of half a vector has no evidence.
            Some(both) => {
                let operands = [("dst", both), ("src", packed)].map(|(name, reg)| (name, reg.into()));
                b.op("VUNPACK_mv_unpack_x_unpackSign0", &operands);
            }
        }
    }
}
