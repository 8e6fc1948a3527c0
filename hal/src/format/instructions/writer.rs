//! Making instruction streams.

use super::{
    BLOCK_HEADER_BYTES, CUSTOM_HEADER_BYTES, FormatError, HEADER_BYTES, HEADER_WORDS, Header, Instruction,
    InstructionStream, MASK_BYTES, MAX_WORDS, PATCH_BYTES, SYNC_BYTES, WORD, WRITE_BYTES, opcode,
};
use crate::format::words::extend;

/// Makes an instruction stream, word for word as mlir-aie writes it.
#[derive(Clone, Debug)]
pub struct InstructionWriter {
    pub(super) header: Header,
    operations: Vec<u8>,
    count: u32,
}

impl InstructionWriter {
    /// A stream without operations.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self { header, operations: Vec::new(), count: 0 }
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: &Instruction<'_>) -> &mut Self {
        match *operation {
            Instruction::Write { address, value } => {
                let [low, high] = split(address);
                self.emit(opcode::WRITE, &[0, low, high, value, WRITE_BYTES], [])
            }
            Instruction::BlockWrite { address, data } => self.block(address, data.iter()),
            Instruction::MaskWrite { address, value, mask } => self.masked(opcode::MASK_WRITE, address, value, mask),
            Instruction::MaskPoll { address, value, mask } => self.masked(opcode::MASK_POLL, address, value, mask),
            Instruction::MaskPollBusy { address, value, mask } => {
                self.masked(opcode::MASK_POLL_BUSY, address, value, mask)
            }
            Instruction::Noop => self.emit(opcode::NOOP, &[], []),
            Instruction::Preempt { level } => {
                self.emit_word(u32::from_le_bytes([opcode::PREEMPT, level, 0, 0]), &[], [])
            }
            Instruction::LoadPdi { id, size, address } => {
                let [low, high] = split(address);
                self.emit_word(u32::from(opcode::LOAD_PDI) | (u32::from(id) << 16), &[size, low, high], [])
            }
            Instruction::Sync { direction, column, row, columns, rows, channel } => {
                let tile = u32::from_le_bytes([direction.code(), row, column, 0]);
                let shape = u32::from_le_bytes([0, rows, columns, channel]);
                self.emit(opcode::SYNC, &[SYNC_BYTES, tile, shape], [])
            }
            Instruction::AddressPatch { register, argument, offset } => {
                let ([register, register_high], [low, high]) = (split(register), split(offset));
                let argument = [u32::from(argument), 0];
                let words = [register, register_high, argument[0], argument[1], low, high];
                self.emit(opcode::ADDRESS_PATCH, &[PATCH_BYTES, 0, 0, 0, 0], words)
            }
            Instruction::Custom { opcode, payload } => {
                let size = stated_size(CUSTOM_HEADER_BYTES, payload.len());
                self.emit(opcode, &[size], payload.iter())
            }
        }
    }

    /// Bytes of the stream so far.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.operations.len()
    }

    /// Adds a write of `data` to consecutive registers from `address` on.
    pub fn block_write(&mut self, address: u32, data: &[u32]) -> &mut Self {
        self.block(address, data.iter().copied())
    }

    /// Adds an operation that states its size, with `payload` after the size.
    pub fn custom(&mut self, opcode: u8, payload: &[u32]) -> &mut Self {
        let size = stated_size(CUSTOM_HEADER_BYTES, payload.len());
        self.emit(opcode, &[size], payload.iter().copied())
    }

    /// The stream with its header.
    ///
    /// # Errors
    /// When it is longer than [`MAX_WORDS`], or an operation was pushed that cannot be read back: a custom
    /// one with a code that is not custom or is another operation's, or an argument index of 65535.
    pub fn finish(&self) -> Result<Vec<u8>, FormatError> {
        let found = HEADER_WORDS + self.operations.len() / WORD;
        if found > MAX_WORDS {
            return Err(FormatError::too_long("instructions", found));
        }
        let mut bytes = Vec::with_capacity(found * WORD);
        extend(&mut bytes, self.header.encode());
        // MAX_WORDS is far below 32 bits.
        extend(&mut bytes, [self.count, (found * WORD) as u32]);
        bytes.extend_from_slice(&self.operations);
        InstructionStream::parse(&bytes)?;
        Ok(bytes)
    }

    fn block(&mut self, address: u32, data: impl ExactSizeIterator<Item = u32>) -> &mut Self {
        let size = stated_size(BLOCK_HEADER_BYTES, data.len());
        self.emit(opcode::BLOCK_WRITE, &[0, address, size], data)
    }

    fn masked(&mut self, opcode: u8, address: u64, value: u32, mask: u32) -> &mut Self {
        let [low, high] = split(address);
        self.emit(opcode, &[0, low, high, value, mask, MASK_BYTES], [])
    }

    fn emit(&mut self, opcode: u8, fixed: &[u32], rest: impl IntoIterator<Item = u32>) -> &mut Self {
        self.emit_word(opcode.into(), fixed, rest)
    }

    fn emit_word(&mut self, word: u32, fixed: &[u32], rest: impl IntoIterator<Item = u32>) -> &mut Self {
        extend(&mut self.operations, [word]);
        extend(&mut self.operations, fixed.iter().copied().chain(rest));
        // Each operation has four bytes: the count cannot wrap before `finish` rejects the length.
        self.count = self.count.saturating_add(1);
        self
    }
}

fn split(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

/// The size of an operation in bytes; one beyond 32 bits is far beyond what `finish` accepts.
fn stated_size(header: u32, words: usize) -> u32 {
    u32::try_from(words * WORD).map_or(u32::MAX, |bytes| bytes.saturating_add(header))
}
