//! CDO version 2: the list of register and memory writes that configures the tiles of a partition.
//!
//! A header of five words (4, `"CDO\0"`, 0x200, length, checksum) is followed by commands. A command is one
//! word `[7:0] API id, [15:8] module (1: platform loader), [23:16] payload words, [31:24] zero`, then its
//! payload; a payload of 255 words or more writes 255 in the command word and its length in the word after
//! it. Source: Versal bootgen and the output of mlir-aie.
//!
//! mlir-aie's PDIs hold only [`Nop`](CdoCommand::Nop), [`Write`](CdoCommand::Write),
//! [`MaskWrite`](CdoCommand::MaskWrite) and [`DmaWrite`](CdoCommand::DmaWrite); the CDO files that go into them
//! have the 64-bit forms instead. The reader understands both and the other register commands, and hands
//! over the rest undecoded.

use super::MAX_WORDS;
use super::words::{WORD, Words, checksum, extend};
use std::iter::FusedIterator;

/// CdoCommand codes: module 1 in the high byte, API id in the low one.
pub mod opcode {
    /// End of the list; not written by bootgen.
    pub const END: u16 = 0x100;
    /// Wait until masked bits have a value.
    pub const MASK_POLL: u16 = 0x101;
    /// Change some bits of a register.
    pub const MASK_WRITE: u16 = 0x102;
    /// Write a register.
    pub const WRITE: u16 = 0x103;
    /// Wait a number of cycles.
    pub const DELAY: u16 = 0x104;
    /// Write a block of words.
    pub const DMA_WRITE: u16 = 0x105;
    /// [`MASK_POLL`] with a 64-bit address.
    pub const MASK_POLL64: u16 = 0x106;
    /// [`MASK_WRITE`] with a 64-bit address.
    pub const MASK_WRITE64: u16 = 0x107;
    /// [`WRITE`] with a 64-bit address.
    pub const WRITE64: u16 = 0x108;
    /// No operation.
    pub const NOP: u16 = 0x111;
}

/// Words of the header in front of the commands.
pub(super) const HEADER_WORDS: usize = 5;
/// The constant words of the header: count of the words after this one, magic, version.
const HEADER: [(u32, &str); 3] =
    [(4, "remaining header words"), (u32::from_le_bytes(*b"CDO\0"), "magic \"CDO\\0\""), (0x200, "version")];
/// Payload length that says: the real one is in the next word.
const LONG: usize = 255;
/// DMA_WRITE command words lie on multiples of this many bytes, as bootgen of 2025 puts them.
const DMA_ALIGNMENT: usize = 16;

/// Why bytes are not a CDO, or why none could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdoError {
    /// Fewer bytes than the header has.
    #[error("CDO at offset {offset:#x}: expected a header of 20 bytes, found {found} bytes")]
    Truncated {
        /// File offset of the CDO.
        offset: usize,
        /// Bytes there are.
        found: usize,
    },
    /// A constant of the header is different.
    #[error("CDO header at offset {offset:#x}: expected {field} {expected:#x}, found {found:#x}")]
    Header {
        /// File offset of the word.
        offset: usize,
        /// What the word is.
        field: &'static str,
        /// The constant of version 2.
        expected: u32,
        /// The word there is.
        found: u32,
    },
    /// The header's checksum is wrong.
    #[error("CDO header checksum at offset {offset:#x}: expected {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// File offset of the checksum.
        offset: usize,
        /// Checksum of the header there is.
        expected: u32,
        /// Checksum it states.
        found: u32,
    },
    /// The stated length does not fit the bytes.
    #[error("CDO length at offset {offset:#x}: expected {expected} bytes by the header, found {found} bytes")]
    Length {
        /// File offset of the length word.
        offset: usize,
        /// Bytes of header and commands that the header states.
        expected: u64,
        /// Bytes there are.
        found: usize,
    },
    /// The reserved bits of a command word are set.
    #[error("CDO command at offset {offset:#x}: expected bits 31:24 to be 0, found command word {found:#010x}")]
    Reserved {
        /// File offset of the command word.
        offset: usize,
        /// The command word.
        found: u32,
    },
    /// A command's payload goes past the end of the CDO.
    #[error(
        "CDO command {opcode:#05x} at offset {offset:#x}: expected {expected} words of payload, found the \
         end of the CDO after {found}"
    )]
    Overrun {
        /// File offset of the command word.
        offset: usize,
        /// CdoCommand code.
        opcode: u16,
        /// Words stated.
        expected: usize,
        /// Words left.
        found: usize,
    },
    /// A command's payload has the wrong length for its kind.
    #[error("CDO command {opcode:#05x} at offset {offset:#x}: expected {expected} words of payload, found {found}")]
    Payload {
        /// File offset of the command word.
        offset: usize,
        /// CdoCommand code.
        opcode: u16,
        /// Words this kind has (at least, for block writes).
        expected: usize,
        /// Words stated.
        found: usize,
    },
    /// The commands to write do not fit the device heap.
    #[error("a CDO of {found} words was asked for, the device heap holds {MAX_WORDS}: split the kernel")]
    TooLong {
        /// Words of the CDO.
        found: usize,
    },
}

/// One command of a CDO.
///
/// Addresses are tile addresses (see [`tile_address`](super::tile_address)) in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of the command")]
pub enum CdoCommand<'a> {
    /// End of the list. The reader goes on after it; bootgen does not write it.
    End,
    /// No operation. Loaders skip the payload, so it can carry data (see [`reference`](mod@super::reference)).
    Nop { payload: Words<'a> },
    /// `*address = value`.
    Write { address: u32, value: u32 },
    /// `*address = (*address & !mask) | (value & mask)`.
    MaskWrite { address: u32, mask: u32, value: u32 },
    /// Waits until `*address & mask == expected`. The unit of `timeout` is the loader's.
    MaskPoll { address: u32, mask: u32, expected: u32, timeout: u32 },
    /// Waits for a number of the loader's cycles.
    Delay { cycles: u32 },
    /// Writes `data` to consecutive words from `address` on.
    DmaWrite { address: u64, data: Words<'a> },
    /// [`Write`](Self::Write) with a 64-bit address.
    Write64 { address: u64, value: u32 },
    /// [`MaskWrite`](Self::MaskWrite) with a 64-bit address.
    MaskWrite64 { address: u64, mask: u32, value: u32 },
    /// [`MaskPoll`](Self::MaskPoll) with a 64-bit address.
    MaskPoll64 { address: u64, mask: u32, expected: u32, timeout: u32 },
    /// A command that mlir-aie does not write, undecoded.
    Other { opcode: u16, payload: Words<'a> },
}

impl<'a> CdoCommand<'a> {
    /// The command's code.
    #[must_use]
    pub fn opcode(&self) -> u16 {
        match self {
            Self::End => opcode::END,
            Self::Nop { .. } => opcode::NOP,
            Self::Write { .. } => opcode::WRITE,
            Self::MaskWrite { .. } => opcode::MASK_WRITE,
            Self::MaskPoll { .. } => opcode::MASK_POLL,
            Self::Delay { .. } => opcode::DELAY,
            Self::DmaWrite { .. } => opcode::DMA_WRITE,
            Self::Write64 { .. } => opcode::WRITE64,
            Self::MaskWrite64 { .. } => opcode::MASK_WRITE64,
            Self::MaskPoll64 { .. } => opcode::MASK_POLL64,
            Self::Other { opcode, .. } => *opcode,
        }
    }

    /// The same command as bootgen writes it: the short form where the address fits 32 bits.
    #[must_use]
    fn shortened(self) -> Self {
        let short = |address: u64| u32::try_from(address).ok();
        match self {
            Self::Write64 { address, value } => short(address).map_or(self, |address| Self::Write { address, value }),
            Self::MaskWrite64 { address, mask, value } => {
                short(address).map_or(self, |address| Self::MaskWrite { address, mask, value })
            }
            other => other,
        }
    }

    /// Decodes a payload whose length is the one stated in the command word.
    fn decode(opcode: u16, payload: Words<'a>, offset: usize) -> Result<Self, CdoError> {
        let wrong = |expected| CdoError::Payload { offset, opcode, expected, found: payload.len() };
        let wide = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        Ok(match opcode {
            opcode::END => payload.exactly::<0>().map(|_| Self::End).ok_or_else(|| wrong(0))?,
            opcode::NOP => Self::Nop { payload },
            opcode::WRITE => {
                let [address, value] = payload.exactly().ok_or_else(|| wrong(2))?;
                Self::Write { address, value }
            }
            opcode::MASK_WRITE => {
                let [address, mask, value] = payload.exactly().ok_or_else(|| wrong(3))?;
                Self::MaskWrite { address, mask, value }
            }
            opcode::MASK_POLL => {
                let [address, mask, expected, timeout] = payload.exactly().ok_or_else(|| wrong(4))?;
                Self::MaskPoll { address, mask, expected, timeout }
            }
            opcode::DELAY => {
                let [cycles] = payload.exactly().ok_or_else(|| wrong(1))?;
                Self::Delay { cycles }
            }
            opcode::DMA_WRITE => {
                let (Some(high), Some(low)) = (payload.get(0), payload.get(1)) else {
                    return Err(wrong(2));
                };
                Self::DmaWrite { address: wide(high, low), data: payload.from(2) }
            }
            opcode::WRITE64 => {
                let [high, low, value] = payload.exactly().ok_or_else(|| wrong(3))?;
                Self::Write64 { address: wide(high, low), value }
            }
            opcode::MASK_WRITE64 => {
                let [high, low, mask, value] = payload.exactly().ok_or_else(|| wrong(4))?;
                Self::MaskWrite64 { address: wide(high, low), mask, value }
            }
            opcode::MASK_POLL64 => {
                let [high, low, mask, expected, timeout] = payload.exactly().ok_or_else(|| wrong(5))?;
                Self::MaskPoll64 { address: wide(high, low), mask, expected, timeout }
            }
            opcode => Self::Other { opcode, payload },
        })
    }
}

/// A validated CDO over borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdo<'a> {
    commands: Words<'a>,
}

impl<'a> Cdo<'a> {
    /// Reads a CDO that is the whole of `bytes`, as in the files that go into a PDI.
    ///
    /// # Errors
    /// When the header is not that of a CDO version 2, its checksum or length is wrong, or a command does
    /// not keep to its format.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CdoError> {
        Self::parse_at(bytes, 0)
    }

    /// Reads a CDO that starts at file offset `offset`.
    pub(super) fn parse_at(bytes: &'a [u8], offset: usize) -> Result<Self, CdoError> {
        let words = Words::new(bytes, offset);
        let header: [u32; HEADER_WORDS] = words
            .slice(0, HEADER_WORDS)
            .and_then(|header| header.exactly())
            .ok_or(CdoError::Truncated { offset, found: bytes.len() })?;
        for (index, ((expected, field), found)) in HEADER.into_iter().zip(header).enumerate() {
            if found != expected {
                return Err(CdoError::Header { offset: words.offset(index), field, expected, found });
            }
        }
        let [.., length, found] = header;
        let expected = checksum(header.into_iter().take(HEADER_WORDS - 1));
        if found != expected {
            return Err(CdoError::Checksum { offset: words.offset(4), expected, found });
        }
        let expected = (u64::from(length) + HEADER_WORDS as u64) * WORD as u64;
        if expected != bytes.len() as u64 {
            return Err(CdoError::Length { offset: words.offset(3), expected, found: bytes.len() });
        }
        let cdo = Self { commands: words.from(HEADER_WORDS) };
        let mut rest = cdo.commands;
        while let Some((_, after)) = next_command(rest)? {
            rest = after;
        }
        Ok(cdo)
    }

    /// The commands in order.
    #[must_use]
    pub fn commands(&self) -> Commands<'a> {
        Commands { rest: self.commands }
    }

    /// Length of the command list in words, the header not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is no command at all. mlir-aie's CDOs have at least an empty NOP.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// Iterator over the commands of a [`Cdo`].
#[derive(Clone, Debug)]
pub struct Commands<'a> {
    rest: Words<'a>,
}

impl<'a> Iterator for Commands<'a> {
    type Item = CdoCommand<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        // `Cdo` is only made after this very walk succeeded.
        let (command, rest) = next_command(self.rest).ok()??;
        self.rest = rest;
        Some(command)
    }
}

impl FusedIterator for Commands<'_> {}

/// Decodes the first command of `words` and returns it with the words after it.
fn next_command(words: Words<'_>) -> Result<Option<(CdoCommand<'_>, Words<'_>)>, CdoError> {
    let Some(word) = words.get(0) else { return Ok(None) };
    let offset = words.offset(0);
    if word >> 24 != 0 {
        return Err(CdoError::Reserved { offset, found: word });
    }
    let opcode = word as u16;
    let overrun = |expected, found| CdoError::Overrun { offset, opcode, expected, found };
    let (start, length) = match (word >> 16) as usize {
        // The length word itself is missing: at least the escape's own length was meant.
        LONG => (2, words.get(1).ok_or_else(|| overrun(LONG, 0))? as usize),
        length => (1, length),
    };
    let after = words.from(start);
    let payload = after.slice(0, length).ok_or_else(|| overrun(length, after.len()))?;
    Ok(Some((CdoCommand::decode(opcode, payload, offset)?, after.from(length))))
}

/// Makes a CDO, laid out as bootgen lays it out.
///
/// Commands are kept in call order. Each DMA_WRITE's command word is put on a 16-byte file offset with a NOP
/// in front of it where needed, as bootgen of 2025 does (the loader is faster that way; readers do not care).
#[derive(Clone, Debug, Default)]
pub struct CdoBuilder {
    commands: Vec<u8>,
}

impl CdoBuilder {
    /// A CDO without commands.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command as it is, with alignment in front of block writes.
    pub fn push(&mut self, command: &CdoCommand<'_>) -> &mut Self {
        let code = command.opcode();
        let split = |address: u64| [(address >> 32) as u32, address as u32];
        match *command {
            CdoCommand::End => self.emit(code, &[], []),
            CdoCommand::Nop { payload } | CdoCommand::Other { payload, .. } => self.emit(code, &[], payload.iter()),
            CdoCommand::Write { address, value } => self.emit(code, &[address, value], []),
            CdoCommand::MaskWrite { address, mask, value } => self.emit(code, &[address, mask, value], []),
            CdoCommand::MaskPoll { address, mask, expected, timeout } => {
                self.emit(code, &[address, mask, expected, timeout], [])
            }
            CdoCommand::Delay { cycles } => self.emit(code, &[cycles], []),
            CdoCommand::DmaWrite { address, data } => self.block(address, data.iter()),
            CdoCommand::Write64 { address, value } => {
                let [high, low] = split(address);
                self.emit(code, &[high, low, value], [])
            }
            CdoCommand::MaskWrite64 { address, mask, value } => {
                let [high, low] = split(address);
                self.emit(code, &[high, low, mask, value], [])
            }
            CdoCommand::MaskPoll64 { address, mask, expected, timeout } => {
                let [high, low] = split(address);
                self.emit(code, &[high, low, mask, expected, timeout], [])
            }
        }
    }

    /// Adds the commands of another CDO as bootgen merges them: in order, own NOPs kept, 64-bit writes to
    /// addresses below 4 GiB in their short form.
    pub fn append(&mut self, cdo: &Cdo<'_>) -> &mut Self {
        cdo.commands().for_each(|command| {
            self.push(&command.shortened());
        });
        self
    }

    /// Adds a NOP that carries `payload`.
    pub fn nop(&mut self, payload: &[u32]) -> &mut Self {
        self.emit(opcode::NOP, &[], payload.iter().copied())
    }

    /// Adds `*address = value`, in the short form where the address allows it.
    pub fn write(&mut self, address: u64, value: u32) -> &mut Self {
        self.push(&CdoCommand::Write64 { address, value }.shortened())
    }

    /// Adds `*address = (*address & !mask) | (value & mask)`, in the short form where the address allows it.
    pub fn mask_write(&mut self, address: u64, mask: u32, value: u32) -> &mut Self {
        self.push(&CdoCommand::MaskWrite64 { address, mask, value }.shortened())
    }

    /// Adds a write of `data` to consecutive words from `address` on.
    pub fn dma_write(&mut self, address: u64, data: &[u32]) -> &mut Self {
        self.block(address, data.iter().copied())
    }

    /// The CDO with its header.
    ///
    /// # Errors
    /// When it is longer than [`MAX_WORDS`], or a pushed [`CdoCommand::Other`] has a known code and
    /// a payload that does not fit it.
    pub fn finish(&self) -> Result<Vec<u8>, CdoError> {
        let length = self.commands.len() / WORD;
        let found = length + HEADER_WORDS;
        let length = match u32::try_from(length) {
            Ok(length) if found <= MAX_WORDS => length,
            _ => return Err(CdoError::TooLong { found }),
        };
        let header = [HEADER[0].0, HEADER[1].0, HEADER[2].0, length];
        let mut bytes = Vec::with_capacity(found * WORD);
        extend(&mut bytes, header);
        extend(&mut bytes, [checksum(header)]);
        bytes.extend_from_slice(&self.commands);
        Cdo::parse(&bytes)?;
        Ok(bytes)
    }

    fn block(&mut self, address: u64, data: impl ExactSizeIterator<Item = u32>) -> &mut Self {
        let offset = HEADER_WORDS * WORD + self.commands.len();
        let padding = offset.next_multiple_of(DMA_ALIGNMENT) - offset;
        if let Some(words) = (padding / WORD).checked_sub(1) {
            self.emit(opcode::NOP, &[], std::iter::repeat_n(0, words));
        }
        self.emit(opcode::DMA_WRITE, &[(address >> 32) as u32, address as u32], data)
    }

    /// Adds a command word and its payload, of which `fixed` are the first words.
    fn emit<I>(&mut self, opcode: u16, fixed: &[u32], rest: I) -> &mut Self
    where
        I: IntoIterator<Item = u32, IntoIter: ExactSizeIterator>,
    {
        let rest = rest.into_iter();
        let length = fixed.len() + rest.len();
        let command = u32::from(opcode) | ((length.min(LONG) as u32) << 16);
        extend(&mut self.commands, [command]);
        if length >= LONG {
            // A length beyond 32 bits is far beyond MAX_WORDS, which `finish` refuses.
            extend(&mut self.commands, [u32::try_from(length).unwrap_or(u32::MAX)]);
        }
        extend(&mut self.commands, fixed.iter().copied().chain(rest));
        self
    }
}

#[cfg(test)]
mod tests;
