//! How the address of an argument gets into a buffer descriptor.
//!
//! The array sees the host's memory at an offset: the descriptor of a shim DMA holds the host's address plus [`ARRAY_OFFSET`]. Who adds it
//! depends on how a stream is submitted:
//!
//! - **START_CU**, which all drivers here use: the command processor's firmware executes [`Instruction::AddressPatch`], and adds the offset for
//!   the first [`TRANSLATED_ARGUMENTS`] arguments of a dispatch only. For the others the operation's own offset has to hold it. It is the
//!   one way that both generations have, in single dispatches and in chains.
//! - **START_NPU, ELF**: firmware patches nothing, and the host writes final addresses into a copy of the stream for every dispatch. Nothing
//!   here submits so.
//!
//! The streams of kernels are *relative*: an operation's offset counts from the first byte of its argument, whatever the argument's number.
//! [`InstructionStream::for_firmware`] makes of one what firmware has to get. Compilers that write for START_CU alone add the offset
//! themselves from the sixth argument on; [`InstructionStream::parse`] recognises that, and [`InstructionStream::operations`] shows
//! such a stream as a relative one. Source: mlir-aie pull requests 3252 and 3345, whose tests ran on both generations.

use super::{Instruction, InstructionStream, WORD};
use crate::format::FormatError;
use std::borrow::Cow;

/// What has to be added to an address of the host for the array, in bytes.
pub const ARRAY_OFFSET: u64 = 0x8000_0000;
/// To the addresses of how many arguments, the first ones, firmware adds [`ARRAY_OFFSET`].
pub const TRANSLATED_ARGUMENTS: u16 = 5;
/// Words of an [`Instruction::AddressPatch`] in front of its offset.
const WORDS_BEFORE_OFFSET: usize = 10;

/// A stream that cannot be made one for firmware.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is no stream.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// An offset into an argument that does not fit.
    #[error(
        "operation {operation} of the stream uses argument {argument} from byte {offset:#x} on; firmware adds 32 bits, so a stream can \
         name bytes below {limit:#x} of this argument: divide the buffer, or pass its parts as arguments"
    )]
    TooFar {
        /// Index of the operation.
        operation: usize,
        /// The argument.
        argument: u16,
        /// Bytes from its first one.
        offset: u64,
        /// The first offset that does not fit.
        limit: u64,
    },
}

/// Whether firmware leaves [`ARRAY_OFFSET`] to the stream.
pub(super) fn is_late(argument: u16) -> bool {
    argument >= TRANSLATED_ARGUMENTS
}

/// The first offset of an argument that does not fit into the 32 bits which firmware is known to add.
pub(super) fn limit(argument: u16) -> u64 {
    (1 << 32) - if is_late(argument) { ARRAY_OFFSET } else { 0 }
}

impl<'a> InstructionStream<'a> {
    /// Whether the file has [`ARRAY_OFFSET`] in the operations of late arguments, so that it is for START_CU alone.
    #[must_use]
    pub fn is_for_firmware(&self) -> bool {
        self.has_array_offset
    }

    /// The stream `bytes` as firmware has to get it: with [`ARRAY_OFFSET`] where firmware does not add it.
    ///
    /// # Errors
    /// As [`InstructionStream::parse`], and for an offset into an argument that is too large to be passed so.
    pub fn for_firmware(bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, AddressError> {
        let (stream, mut bytes) = (Self::parse(bytes)?, Cow::Borrowed(bytes));
        for (operation, (at, instruction)) in stream.places().enumerate() {
            let Instruction::AddressPatch { argument, offset, .. } = instruction else { continue };
            let limit = limit(argument);
            if offset >= limit {
                return Err(AddressError::TooFar { operation, argument, offset, limit });
            }
            if is_late(argument) && !stream.has_array_offset {
                let at = at + WORDS_BEFORE_OFFSET * WORD;
                bytes.to_mut()[at..at + 2 * WORD].copy_from_slice(&(offset + ARRAY_OFFSET).to_le_bytes());
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::instructions::{Header, InstructionWriter};
    use rstest::rstest;

    const REGISTER: u64 = 0x1_D004;

    fn written(patches: &[(u16, u64)]) -> Result<Vec<u8>, FormatError> {
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 4, mem_tile_rows: 1 });
        for (argument, offset) in patches {
            writer.push(&Instruction::Write { address: 0x1_D200, value: 1 });
            writer.push(&Instruction::AddressPatch { register: REGISTER, argument: *argument, offset: *offset });
        }
        writer.finish()
    }

    fn stream(patches: &[(u16, u64)]) -> Vec<u8> {
        written(patches).unwrap()
    }

    fn patches(stream: &InstructionStream<'_>) -> Vec<(u16, u64)> {
        let patch = |instruction| match instruction {
            Instruction::AddressPatch { argument, offset, .. } => Some((argument, offset)),
            _ => None,
        };
        stream.operations().filter_map(patch).collect()
    }

    #[test]
    fn late_arguments_get_the_offset_once() {
        let relative = [(0, 16), (4, 0), (5, 0), (15, 0x7fff_fffc)];
        let bytes = stream(&relative);
        let parsed = InstructionStream::parse(&bytes).unwrap();
        assert!(!parsed.is_for_firmware());
        let bound = InstructionStream::for_firmware(&bytes).unwrap();
        let raw = stream(&[(0, 16), (4, 0), (5, ARRAY_OFFSET), (15, 0xffff_fffc)]);
        assert_eq!(*bound, *raw);
        // It is recognised, shown as relative, and not changed again.
        let parsed = InstructionStream::parse(&bound).unwrap();
        assert!(parsed.is_for_firmware());
        assert_eq!(patches(&parsed), relative);
        assert!(matches!(InstructionStream::for_firmware(&bound).unwrap(), Cow::Borrowed(bytes) if bytes == raw));
    }

    #[test]
    fn early_arguments_need_nothing() {
        // 2 GiB into one of them is no array offset.
        let bytes = stream(&[(0, 0), (4, ARRAY_OFFSET)]);
        assert!(!InstructionStream::parse(&bytes).unwrap().is_for_firmware());
        assert!(matches!(InstructionStream::for_firmware(&bytes).unwrap(), Cow::Borrowed(bound) if bound == bytes));
    }

    #[rstest]
    #[case::for_two_ways(&[(5, 0), (6, ARRAY_OFFSET)], "argument 6")]
    #[case::too_far(&[(5, ARRAY_OFFSET), (5, 1 << 32)], "0x100000000")]
    fn late_arguments_of_no_known_form_are_rejected(#[case] patches: &[(u16, u64)], #[case] expected: &str) {
        let error = written(patches).unwrap_err().to_string();
        assert!(error.contains("0x80000000") && error.contains(expected), "{error}");
    }

    #[test]
    fn offsets_beyond_the_field_are_rejected() {
        let bytes = stream(&[(0, 0), (4, 1 << 32)]);
        let error = InstructionStream::for_firmware(&bytes).unwrap_err().to_string();
        assert!(error.contains("argument 4") && error.contains("below 0x100000000"), "{error}");
    }
}
