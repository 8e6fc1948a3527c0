//! From instructions back to bytes.

use crate::{Bundle, Decoded, Format, Instruction, Isa, Kind, Slot, Value};
use arrayvec::ArrayVec;

/// Operands or slots that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A register that the operand's class does not have.
    #[error("{key}: operand {operand} cannot be {register}")]
    Register {
        /// The instruction.
        key: &'static str,
        /// The operand.
        operand: &'static str,
        /// The register.
        register: &'static str,
    },
    /// A number out of range, or no multiple of its step.
    #[error("{key}: operand {operand} cannot be {value}; possible are {low} to {high} in steps of {step}")]
    Immediate {
        /// The instruction.
        key: &'static str,
        /// The operand.
        operand: &'static str,
        /// The number.
        value: i64,
        /// Smallest possible value.
        low: i64,
        /// Largest possible value.
        high: i64,
        /// The step.
        step: i64,
    },
    /// A register where a number is needed, the other way round, or none at all.
    #[error("{key}: operand {operand} is missing or of the other kind")]
    Kind {
        /// The instruction.
        key: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// Two instructions for one slot.
    #[error("two instructions of a bundle need the slot {0}")]
    SlotTwice(Slot),
    /// No format has all the slots.
    #[error("no bundle format has the slots {0}")]
    Slots(String),
}

impl Isa {
    /// The word of an instruction. Operands that are tied or implied are not looked at.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when an operand cannot have its value.
    pub fn encode_slot(&self, decoded: &Decoded<'_>) -> Result<u64, EncodeError> {
        let instruction = decoded.instruction;
        let mut word = instruction.value;
        for (index, operand) in instruction.operands.iter().enumerate() {
            let field = match (operand.kind, decoded.values.get(index)) {
                (Kind::Fixed(_) | Kind::Tied { .. }, _) => continue,
                (Kind::Class(class), Some(Value::Register(register))) => {
                    let name = || self.register(*register).name;
                    let error =
                        || EncodeError::Register { key: instruction.key, operand: operand.name, register: name() };
                    self.class(class).number(*register).ok_or_else(error)?.into()
                }
                (Kind::Immediate(immediate), Some(Value::Immediate(value))) => {
                    let ((low, high), step) = (immediate.range(), immediate.step);
                    let (key, operand, value) = (instruction.key, operand.name, *value);
                    immediate.field(value).ok_or(EncodeError::Immediate { key, operand, value, low, high, step })?
                }
                _ => return Err(EncodeError::Kind { key: instruction.key, operand: operand.name }),
            };
            word |= operand.place(field);
        }
        Ok(word)
    }

    /// The bytes of a bundle in its own format.
    ///
    /// # Errors
    ///
    /// As [`Isa::encode_slot`].
    pub fn encode(&self, bundle: &Bundle<'_>) -> Result<ArrayVec<u8, 16>, EncodeError> {
        let format = bundle.format;
        let mut word = format.value;
        for ((_, _, low), decoded) in format.slots.iter().zip(&bundle.slots) {
            word |= u128::from(self.encode_slot(decoded)?) << low;
        }
        Ok(word.to_le_bytes()[..format.bytes()].iter().copied().collect())
    }

    /// A bundle of these instructions in the shortest format that has their slots; the format's other slots do nothing.
    ///
    /// # Errors
    ///
    /// [`EncodeError::SlotTwice`] or [`EncodeError::Slots`] when no bundle can hold them together.
    pub fn bundle<'a>(&'a self, instructions: &[Decoded<'a>]) -> Result<Bundle<'a>, EncodeError> {
        self.bundle_of(instructions, 16)
    }

    /// The same in a format of at least `bits` bits, 16 to 128: hardware loops need 128 for their last bundle.
    ///
    /// # Errors
    ///
    /// As [`Isa::bundle`].
    pub fn bundle_of<'a>(&'a self, instructions: &[Decoded<'a>], bits: u32) -> Result<Bundle<'a>, EncodeError> {
        let used = |slot: Slot| instructions.iter().filter(move |decoded| decoded.instruction.slot == slot);
        if let Some(slot) = Slot::ALL.into_iter().find(|slot| used(*slot).count() > 1) {
            return Err(EncodeError::SlotTwice(slot));
        }
        let holds = |format: &&Format| {
            format.bits >= bits && instructions.iter().all(|decoded| format.has(decoded.instruction.slot))
        };
        let Some(format) = self.all_formats().find(holds) else {
            let names: Vec<&str> = instructions.iter().map(|decoded| decoded.instruction.slot.name()).collect();
            return Err(EncodeError::Slots(names.join(", ")));
        };
        let slots =
            format.slots.iter().map(|(slot, ..)| used(*slot).next().cloned().unwrap_or_else(|| self.nop(*slot)));
        Ok(Bundle { format, slots: slots.collect() })
    }

    /// The instruction of a slot that does nothing.
    fn nop(&self, slot: Slot) -> Decoded<'_> {
        let nop = self.instructions_of(slot).find(|instruction| Instruction::is_nop(instruction));
        Decoded { instruction: nop.expect("every slot has a nop; a test sees to it"), values: Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn every_slot_has_a_nop(#[values("aie2", "aie2p")] arch: &str) {
        let isa = Isa::for_arch(arch).unwrap();
        for slot in Slot::ALL {
            assert!(isa.nop(slot).instruction.operands.is_empty(), "{slot}");
        }
    }
}
