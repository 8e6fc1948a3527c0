//! What is known of the descriptors of shims, so that none is written as it is already.
//!
//! Only the stream writes them, in two operations: its words, and then the address of an argument. Where nothing has been written to it since,
//! the same two change nothing. A descriptor with iterations counts them in its own words, so that nothing is known of it.

use crate::format::bd::ShimBd;
use crate::format::instructions::Instruction;
use crate::format::tile_location;
use std::collections::BTreeMap;

/// Descriptors of a shim.
const DESCRIPTORS: u8 = 16;
/// Bytes of one.
const BYTES: u64 = 32;

/// The words of a descriptor, and the argument and offset of its address.
type Known = ([u32; 8], u16, u64);

/// What is known of descriptors, by the address of their first word.
#[derive(Default)]
pub(super) struct Descriptors(BTreeMap<u64, Known>);

impl Descriptors {
    /// Whether operations begin with two that write a descriptor as it is.
    pub fn repeats(&self, operations: &[Instruction<'_>]) -> bool {
        let [words, patch, ..] = operations else { return false };
        written(words, patch).is_some_and(|(address, known)| self.0.get(&address) == Some(&known))
    }

    /// Notes the descriptor that operations end with, if they do.
    pub fn learn(&mut self, operations: &[Instruction<'_>]) {
        let [.., words, patch] = operations else { return };
        if let Some((address, known)) = written(words, patch) {
            self.0.insert(address, known);
        }
    }

    /// Drops what an operation changes.
    pub fn forget(&mut self, operation: &Instruction<'_>) {
        let (first, bytes) = match *operation {
            Instruction::Write { address, .. } | Instruction::MaskWrite { address, .. } => (address, 4),
            Instruction::BlockWrite { address, data } => (u64::from(address), 4 * data.len() as u64),
            Instruction::AddressPatch { register, .. } => (register, 8),
            _ => return,
        };
        self.0.retain(|address, _| *address >= first.saturating_add(bytes) || first >= address + BYTES);
    }
}

/// The descriptor of a shim that two operations write.
fn written(words: &Instruction<'_>, patch: &Instruction<'_>) -> Option<(u64, Known)> {
    let (Instruction::BlockWrite { address, data }, Instruction::AddressPatch { register, argument, offset }) =
        (*words, *patch)
    else {
        return None;
    };
    let (_, 0, register_of_tile) = tile_location(address) else { return None };
    let is_one = (0..DESCRIPTORS).any(|descriptor| ShimBd::register(descriptor) == register_of_tile);
    let words = data.exactly()?;
    let iterates = ShimBd::decode(&words).iteration_wrap > 1;
    let is_patched = register == u64::from(address) + 4;
    (is_one && is_patched && !iterates).then_some((address.into(), (words, argument, offset)))
}
