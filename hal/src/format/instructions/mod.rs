//! NPU instruction streams, transaction format 0.1: what the command processor does for each dispatch.
//!
//! A header of four words is followed by operations. The standard way to move one operand is: write a shim
//! buffer descriptor ([`Instruction::BlockWrite`]), patch the argument's address into it
//! ([`Instruction::AddressPatch`]), ask for a completion token if one is waited for
//! ([`Instruction::MaskWrite`]), start the channel's queue ([`Instruction::Write`]), and wait
//! ([`Instruction::Sync`]). [`InstructionWriter::transfer`] writes that sequence. Source: aie-rt's transaction
//! structs and the output of mlir-aie. Masked writes and polls have 28 bytes from mlir-aie and 32 from aie-rt, whose
//! structure ends with a word of padding; both are read, and 28 are written.
//!
//! The "optimised" transaction format (header version 1.0) that XRT's ELF flow has is another one and is rejected.

mod address;
mod ahead;
mod join;
mod kept;
mod text;
mod transfer;
mod writer;

pub use address::{ARRAY_OFFSET, AddressError, TRANSLATED_ARGUMENTS};
pub use ahead::AheadChannel;
pub use join::{ArgumentPlace, JoinError, JoinFailure, JoinPart, JoinedStream, can_replace, join};
pub use kept::KeptMemory;
pub use text::from_text;
pub use transfer::Transfer;
pub use writer::InstructionWriter;

use super::MAX_WORDS;
use super::dma_channel::Direction;
use super::error::FormatError;
use super::words::{WORD, Words};
use std::fmt::Display;

/// Operation codes: the low byte of an instruction's first word.
pub(super) mod opcode {
    pub const WRITE: u8 = 0x00;
    pub const BLOCK_WRITE: u8 = 0x01;
    pub const MASK_WRITE: u8 = 0x03;
    pub const MASK_POLL: u8 = 0x04;
    pub const NOOP: u8 = 0x05;
    pub const PREEMPT: u8 = 0x06;
    pub const MASK_POLL_BUSY: u8 = 0x07;
    pub const LOAD_PDI: u8 = 0x08;
    /// Operations from this code on state their size in the second word.
    pub const FIRST_CUSTOM: u8 = 0x80;
    pub const SYNC: u8 = 0x80;
    pub const ADDRESS_PATCH: u8 = 0x81;
    pub const READ_REGISTERS: u8 = 0x82;
    pub const RECORD_TIMER: u8 = 0x83;
    /// Waits for tokens of several channels.
    pub const MERGE_SYNC: u8 = 0x84;
}

/// Words of the stream's header.
const HEADER_WORDS: usize = 4;
/// The same in bytes.
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * WORD;
/// Bytes of [`Instruction::LoadPdi`].
pub(super) const LOAD_PDI_BYTES: usize = 4 * WORD;
/// Format version 0.1, as (major, minor).
const VERSION: (u8, u8) = (0, 1);
/// Byte sizes that operations state about themselves.
const WRITE_BYTES: u32 = 24;
/// Masked operations as mlir-aie writes them.
const MASK_BYTES: u32 = 28;
/// The same as aie-rt writes them: its C structure ends with a word of padding.
const PADDED_MASK_BYTES: u32 = 32;
const SYNC_BYTES: u32 = 16;
const PATCH_BYTES: u32 = 48;
const BLOCK_HEADER_BYTES: u32 = 16;
const CUSTOM_HEADER_BYTES: u32 = 8;

/// What a stream says about the partition it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Generation of the device: 3 is aie2 (NPU1), 4 is aie2p (NPU2).
    pub generation: u8,
    /// Rows of tiles, the shim's included.
    pub rows: u8,
    /// Columns.
    pub columns: u8,
    /// Rows of mem tiles.
    pub mem_tile_rows: u8,
}

impl Header {
    fn encode(self) -> [u32; 2] {
        [
            u32::from_le_bytes([VERSION.0, VERSION.1, self.generation, self.rows]),
            u32::from_le_bytes([self.columns, self.mem_tile_rows, 0, 0]),
        ]
    }
}

/// One operation of a stream.
///
/// Addresses are tile addresses (see [`tile_address`](super::tile_address)) in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of the operation")]
pub enum Instruction<'a> {
    /// `*address = value`. Also used for runtime parameters and locks.
    Write { address: u64, value: u32 },
    /// Writes `data` to consecutive registers; mlir-aie writes one buffer descriptor at a time.
    BlockWrite { address: u32, data: Words<'a> },
    /// `*address = (*address & !mask) | (value & mask)`.
    MaskWrite { address: u64, value: u32, mask: u32 },
    /// Waits until `*address & mask == value`.
    MaskPoll { address: u64, value: u32, mask: u32 },
    /// [`MaskPoll`](Self::MaskPoll) without giving way to other work.
    MaskPollBusy { address: u64, value: u32, mask: u32 },
    /// No operation.
    Noop,
    /// A point at which another context may take over.
    Preempt { level: u8 },
    /// Loads another PDI, of `size` bytes at device address `address`.
    LoadPdi { id: u16, size: u32, address: u64 },
    /// Waits for a completion token of each channel of a rectangle of tiles.
    Sync { direction: Direction, column: u8, row: u8, columns: u8, rows: u8, channel: u8 },
    /// Puts the address of byte `offset` of argument `argument` into the buffer descriptor whose word 1 is at `register`: bits 31:0
    /// there, bits 47:32 into the low half of the word after it. How the [array's offset](ARRAY_OFFSET) gets into it is not for those who
    /// read and write operations.
    AddressPatch { register: u64, argument: u16, offset: u64 },
    /// An operation that states its size, undecoded. `payload` starts after the size.
    Custom { opcode: u8, payload: Words<'a> },
}

/// Words of a block write that take as long as any other operation: those of a shim's descriptor.
const CHARGED_WORDS: usize = 8;

impl<'a> Instruction<'a> {
    /// As how many operations of equal time it counts: a block write once for every eight words that it begins, anything else once.
    ///
    /// Measured on npu1 were 100 cycles for a write and 200 for a block write of eight words, so that a longer block write saves headers
    /// and not the time of its words.
    #[must_use]
    pub fn charge(&self) -> u64 {
        match self {
            Self::BlockWrite { data, .. } => data.len().div_ceil(CHARGED_WORDS).max(1) as u64,
            _ => 1,
        }
    }

    /// Decodes the first operation of `words` and returns it with the words after it.
    fn decode(words: Words<'a>) -> Result<Option<(Self, Words<'a>)>, FormatError> {
        let Some(first) = words.get(0) else { return Ok(None) };
        let offset = words.offset(0);
        let [opcode, level, ..] = first.to_le_bytes();
        let error = |expected: &dyn Display, found: &dyn Display| {
            FormatError::new(format_args!("instruction {opcode:#04x}"), offset, expected, found)
        };
        let take = |count: usize| {
            let found = words.len() * WORD;
            let overrun = || {
                let found = format_args!("the end of the stream after {found}");
                error(&format_args!("{} bytes", count * WORD), &found)
            };
            words.slice(0, count).ok_or_else(overrun)
        };
        let wrong_size = |size: u32, expected: &str| error(&expected, &format_args!("{size} bytes"));
        let sized = |found: u32, bytes: u32, expected| {
            if found == bytes { Ok(()) } else { Err(wrong_size(found, expected)) }
        };
        let field = |expected: &str, found: u64| error(&expected, &format_args!("{found:#x}"));
        let wide = |low: u32, high: u32| (u64::from(high) << 32) | u64::from(low);

        let (operation, length) = match opcode {
            opcode::WRITE => {
                let [_, _, low, high, value, size] = fixed(take(6)?);
                sized(size, WRITE_BYTES, "24")?;
                (Self::Write { address: wide(low, high), value }, 6)
            }
            opcode::BLOCK_WRITE => {
                let [_, _, address, size] = fixed(take(4)?);
                if size < BLOCK_HEADER_BYTES || size % 4 != 0 {
                    return Err(wrong_size(size, "a multiple of 4 of at least 16"));
                }
                let length = size as usize / WORD;
                (Self::BlockWrite { address, data: take(length)?.from(4) }, length)
            }
            opcode::MASK_WRITE | opcode::MASK_POLL | opcode::MASK_POLL_BUSY => {
                let [_, _, low, high, value, mask, size] = fixed(take(7)?);
                if size != PADDED_MASK_BYTES {
                    sized(size, MASK_BYTES, "28 or 32")?;
                }
                let length = take(size as usize / WORD)?.len();
                let address = wide(low, high);
                let operation = match opcode {
                    opcode::MASK_WRITE => Self::MaskWrite { address, value, mask },
                    opcode::MASK_POLL => Self::MaskPoll { address, value, mask },
                    _ => Self::MaskPollBusy { address, value, mask },
                };
                (operation, length)
            }
            opcode::NOOP => (Self::Noop, 1),
            opcode::PREEMPT => (Self::Preempt { level }, 1),
            opcode::LOAD_PDI => {
                let [first, size, low, high] = fixed(take(4)?);
                (Self::LoadPdi { id: (first >> 16) as u16, size, address: wide(low, high) }, 4)
            }
            opcode::SYNC => {
                let [_, size, tile, shape] = fixed(take(4)?);
                sized(size, SYNC_BYTES, "16")?;
                let [direction, row, column, _] = tile.to_le_bytes();
                let [_, rows, columns, channel] = shape.to_le_bytes();
                let direction =
                    Direction::from_code(direction).ok_or_else(|| field("direction 0 or 1", direction.into()))?;
                (Self::Sync { direction, column, row, columns, rows, channel }, 4)
            }
            opcode::ADDRESS_PATCH => {
                let words: [u32; 12] = fixed(take(12)?);
                let [_, size, _, _, action, _, register, register_high, index, index_high, low, high] = words;
                sized(size, PATCH_BYTES, "48")?;
                if action != 0 {
                    return Err(field("action 0", action.into()));
                }
                let index = wide(index, index_high);
                // ROCR's packets count arguments in 16 bits.
                let argument = u16::try_from(index).ok().filter(|index| *index < u16::MAX);
                let argument = argument.ok_or_else(|| field("argument index below 65535", index))?;
                let register = wide(register, register_high);
                (Self::AddressPatch { register, argument, offset: wide(low, high) }, 12)
            }
            code if code >= opcode::FIRST_CUSTOM => {
                let [_, size] = fixed(take(2)?);
                if size < CUSTOM_HEADER_BYTES || size % 4 != 0 {
                    return Err(wrong_size(size, "a multiple of 4 of at least 8"));
                }
                let length = size as usize / WORD;
                (Self::Custom { opcode, payload: take(length)?.from(2) }, length)
            }
            _ => {
                let found = format_args!("code {opcode:#04x}");
                return Err(FormatError::new("instruction", offset, "an operation of known length", found));
            }
        };
        Ok(Some((operation, words.from(length))))
    }
}

/// The words of an operation of fixed length, which were taken with that length.
fn fixed<const N: usize>(words: Words<'_>) -> [u32; N] {
    words.exactly().unwrap_or([0; N])
}

/// A validated instruction stream over borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionStream<'a> {
    header: Header,
    operations: Words<'a>,
    argument_count: usize,
    has_completion_token: bool,
    /// Whether the offsets of late arguments have [`ARRAY_OFFSET`] in the file.
    has_array_offset: bool,
}

impl<'a> InstructionStream<'a> {
    /// Reads and validates a stream that is the whole of `bytes`.
    ///
    /// # Errors
    /// When the header is not that of transaction format 0.1, its size or count is wrong, an operation does not keep to its format,
    /// some late arguments have the [array's offset](ARRAY_OFFSET) and others do not, or their offsets have more than 32 bits.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let words = Words::new(bytes, 0);
        let found = format_args!("{} bytes", bytes.len());
        let [version, shape, expected_count, size] =
            words
                .slice(0, HEADER_WORDS)
                .and_then(|header| header.exactly())
                .ok_or_else(|| FormatError::new("instructions", 0, "a header of 16 bytes", found))?;
        let [major, minor, generation, rows] = version.to_le_bytes();
        let [columns, mem_tile_rows, ..] = shape.to_le_bytes();
        if (major, minor) != VERSION {
            let found = format_args!(
                "{major}.{minor} (1.0 is the optimised format of XRT's ELF files: use the insts.bin that mlir-aie writes)"
            );
            return Err(FormatError::new("instructions", 0, "transaction format 0.1", found));
        }
        if size as usize != bytes.len() || size % 4 != 0 {
            let expected = format_args!("{size} bytes by the header");
            return Err(FormatError::new("instructions size", 0xC, expected, found));
        }
        let mut stream = Self {
            header: Header { generation, rows, columns, mem_tile_rows },
            operations: words.from(HEADER_WORDS),
            argument_count: 0,
            has_completion_token: false,
            has_array_offset: false,
        };
        let (mut rest, mut count, mut late_arguments) = (stream.operations, 0, None);
        while let Some((operation, after)) = Instruction::decode(rest)? {
            match operation {
                Instruction::AddressPatch { argument, offset, .. } => {
                    stream.argument_count = stream.argument_count.max(usize::from(argument) + 1);
                    if address::is_late(argument) {
                        stream.has_array_offset = offset >= ARRAY_OFFSET;
                        let fits = offset <= u32::MAX.into();
                        if !fits || *late_arguments.get_or_insert(stream.has_array_offset) != stream.has_array_offset {
                            let expected = "32 bits, and in all of those into arguments from 5 on the array's offset 0x80000000 or in none";
                            let found = format_args!("{offset:#x} for argument {argument}");
                            return Err(FormatError::new("address offsets", rest.offset(0), expected, found));
                        }
                    }
                }
                Instruction::Sync { .. } => stream.has_completion_token = true,
                Instruction::Custom { opcode: opcode::MERGE_SYNC, .. } => {
                    stream.has_completion_token = true;
                }
                _ => {}
            }
            (rest, count) = (after, count + 1);
        }
        if count != expected_count as usize {
            let expected = format_args!("{expected_count} operations by the header");
            return Err(FormatError::new("instructions", 8, expected, count));
        }
        Ok(stream)
    }

    /// What the stream says about the partition it is for.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// The operations in order. Offsets into arguments are relative, also where the file has the array's offset in them.
    pub fn operations(&self) -> impl Iterator<Item = Instruction<'a>> + use<'a> {
        self.places().map(|(_, operation)| operation)
    }

    /// As how many operations of equal time all of them count: the sum of [`Instruction::charge`].
    #[must_use]
    pub fn charged_operations(&self) -> u64 {
        self.operations().map(|operation| operation.charge()).sum()
    }

    /// The operations with the bytes in front of each.
    fn places(&self) -> impl Iterator<Item = (usize, Instruction<'a>)> + use<'a> {
        let (mut rest, has_array_offset) = (self.operations, self.has_array_offset);
        std::iter::from_fn(move || {
            let at = rest.offset(0);
            // `InstructionStream` is only made after this very walk succeeded.
            let (mut operation, after) = Instruction::decode(rest).ok()??;
            if let Instruction::AddressPatch { argument, offset, .. } = &mut operation
                && has_array_offset
                && address::is_late(*argument)
            {
                *offset -= ARRAY_OFFSET;
            }
            rest = after;
            Some((at, operation))
        })
    }

    /// Arguments the stream uses: its highest argument index plus one.
    ///
    /// An argument is the position in the dispatch's list of addresses. Arguments below the highest need
    /// not all be used.
    #[must_use]
    pub fn argument_count(&self) -> usize {
        self.argument_count
    }

    /// Whether the stream waits for any completion token. One that does not is complete before its data has
    /// arrived.
    #[must_use]
    pub fn has_completion_token(&self) -> bool {
        self.has_completion_token
    }
}

#[cfg(test)]
mod tests;
