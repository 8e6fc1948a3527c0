//! Concatenates instruction streams.

use super::{Instruction, InstructionStream, InstructionWriter, address, opcode};

/// Where an argument of a stream lies in a stream that it becomes part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgumentPlace {
    /// Position of the argument that holds it.
    pub argument: u16,
    /// Bytes from the start of that one.
    pub offset: u64,
}

/// Why a stream cannot be a part of another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {operation} of the stream {reason}")]
pub struct JoinError {
    operation: usize,
    reason: String,
}

impl InstructionStream<'_> {
    /// Whether it can be part of another stream: it waits for a completion token, and its operations access registers and wait, and do
    /// nothing else.
    ///
    /// That nothing moves any more at its end is for the stream's maker to see to, as it is for dispatches that follow each other in
    /// a chain.
    #[must_use]
    pub fn can_be_joined(&self) -> bool {
        self.has_completion_token() && self.operations().all(|operation| refusal(&operation).is_none())
    }
}

/// Why an operation cannot be executed as part of another stream.
fn refusal(operation: &Instruction<'_>) -> Option<String> {
    match operation {
        Instruction::Write { .. }
        | Instruction::BlockWrite { .. }
        | Instruction::MaskWrite { .. }
        | Instruction::MaskPoll { .. }
        | Instruction::MaskPollBusy { .. }
        | Instruction::Noop
        | Instruction::Sync { .. }
        | Instruction::AddressPatch { .. }
        | Instruction::Custom { opcode: opcode::MERGE_SYNC, .. } => None,
        Instruction::Preempt { .. } => Some("lets another context take over".to_owned()),
        Instruction::LoadPdi { .. } => Some("loads another PDI".to_owned()),
        Instruction::Custom { opcode, .. } => Some(format!("has code {opcode:#04x}, which may mean anything")),
    }
}

impl InstructionWriter {
    /// Adds all operations of `stream`, whose arguments lie where `places` says.
    ///
    /// # Errors
    /// [`JoinError`] for a stream for another partition, an operation that cannot be part of another stream, or an argument that has no
    /// place. What was added before stays.
    pub fn append(&mut self, stream: &InstructionStream<'_>, places: &[ArgumentPlace]) -> Result<&mut Self, JoinError> {
        let (own, header) = (self.header, stream.header());
        if own != header {
            let reason = format!("is for another partition: {header:?} instead of {own:?}");
            return Err(JoinError { operation: 0, reason });
        }
        for (number, operation) in stream.operations().enumerate() {
            let error = |reason: String| JoinError { operation: number, reason };
            if let Some(reason) = refusal(&operation) {
                return Err(error(reason));
            }
            let Instruction::AddressPatch { register, argument, offset } = operation else {
                self.push(&operation);
                continue;
            };
            let place = places.get(usize::from(argument));
            let place = place.ok_or_else(|| error(format!("uses argument {argument} of {}", places.len())))?;
            let moved = place.offset.checked_add(offset).filter(|moved| *moved < address::limit(place.argument));
            let offset = moved.ok_or_else(|| error(format!("has an address {offset:#x} bytes behind its argument")))?;
            self.push(&Instruction::AddressPatch { register, argument: place.argument, offset });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
