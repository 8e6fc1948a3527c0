//! CDO version 2: the list of register and memory writes that configures the tiles of a partition.
//!
//! A header of five words (4, `"CDO\0"`, 0x200, length, checksum) is followed by commands. A command is one
//! word `[7:0] API id, [15:8] module (1: platform loader), [23:16] payload words, [31:24] zero`, then its
//! payload; a payload of 255 words or more writes 255 in the command word and its length in the word after
//! it. Source: Versal bootgen and the output of mlir-aie.
//!
//! mlir-aie's PDIs hold only [`Nop`](CdoCommand::Nop), [`Write`](CdoCommand::Write),
//! [`MaskWrite`](CdoCommand::MaskWrite) and [`DmaWrite`](CdoCommand::DmaWrite), with 32-bit addresses; the CDO files
//! that go into them have the forms with 64-bit addresses instead. The reader understands both and the other register
//! commands, and hands over the rest undecoded. The writer takes the short form where the address fits 32 bits, as
//! bootgen does when it merges CDOs.

use super::MAX_WORDS;
use super::error::FormatError;
use super::words::{WORD, Words, checksum, extend};

/// Command codes: module 1 in the high byte, API id in the low one.
mod opcode {
    /// Not written by bootgen.
    pub const END: u16 = 0x100;
    pub const MASK_POLL: u16 = 0x101;
    pub const MASK_WRITE: u16 = 0x102;
    pub const WRITE: u16 = 0x103;
    pub const DELAY: u16 = 0x104;
    pub const DMA_WRITE: u16 = 0x105;
    pub const MASK_POLL64: u16 = 0x106;
    pub const MASK_WRITE64: u16 = 0x107;
    pub const WRITE64: u16 = 0x108;
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

/// One command of a CDO.
///
/// Addresses are tile addresses (see [`tile_address`](super::tile_address)) in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of the command")]
pub enum CdoCommand<'a> {
    /// End of the list. The reader continues after it; bootgen does not write it.
    End,
    /// No operation. Loaders skip the payload, so it can carry data (see [`reference`](mod@super::reference)).
    Nop { payload: Words<'a> },
    /// `*address = value`.
    Write { address: u64, value: u32 },
    /// `*address = (*address & !mask) | (value & mask)`.
    MaskWrite { address: u64, mask: u32, value: u32 },
    /// Waits until `*address & mask == expected`. The unit of `timeout` is the loader's.
    MaskPoll { address: u64, mask: u32, expected: u32, timeout: u32 },
    /// Waits for a number of the loader's cycles.
    Delay { cycles: u32 },
    /// Writes `data` to consecutive words from `address` on.
    DmaWrite { address: u64, data: Words<'a> },
    /// A command that mlir-aie does not write, undecoded.
    Other { opcode: u16, payload: Words<'a> },
}

impl<'a> CdoCommand<'a> {
    /// Decodes a payload whose length is the one stated in the command word.
    fn decode(opcode: u16, payload: Words<'a>, offset: usize) -> Result<Self, FormatError> {
        /// The words of a payload of fixed length.
        fn fixed<const N: usize>(opcode: u16, payload: Words<'_>, offset: usize) -> Result<[u32; N], FormatError> {
            payload.exactly().ok_or_else(|| wrong_length(opcode, payload, offset, N))
        }
        let wide = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        Ok(match opcode {
            opcode::END => fixed::<0>(opcode, payload, offset).map(|_| Self::End)?,
            opcode::NOP => Self::Nop { payload },
            opcode::WRITE => {
                let [address, value] = fixed(opcode, payload, offset)?;
                Self::Write { address: address.into(), value }
            }
            opcode::WRITE64 => {
                let [high, low, value] = fixed(opcode, payload, offset)?;
                Self::Write { address: wide(high, low), value }
            }
            opcode::MASK_WRITE => {
                let [address, mask, value] = fixed(opcode, payload, offset)?;
                Self::MaskWrite { address: address.into(), mask, value }
            }
            opcode::MASK_WRITE64 => {
                let [high, low, mask, value] = fixed(opcode, payload, offset)?;
                Self::MaskWrite { address: wide(high, low), mask, value }
            }
            opcode::MASK_POLL => {
                let [address, mask, expected, timeout] = fixed(opcode, payload, offset)?;
                Self::MaskPoll { address: address.into(), mask, expected, timeout }
            }
            opcode::MASK_POLL64 => {
                let [high, low, mask, expected, timeout] = fixed(opcode, payload, offset)?;
                Self::MaskPoll { address: wide(high, low), mask, expected, timeout }
            }
            opcode::DELAY => {
                let [cycles] = fixed(opcode, payload, offset)?;
                Self::Delay { cycles }
            }
            opcode::DMA_WRITE => {
                let (Some(high), Some(low)) = (payload.get(0), payload.get(1)) else {
                    return Err(wrong_length(opcode, payload, offset, 2));
                };
                Self::DmaWrite { address: wide(high, low), data: payload.from(2) }
            }
            opcode => Self::Other { opcode, payload },
        })
    }
}

/// A command has another number of words than its kind (or for block writes, fewer).
fn wrong_length(opcode: u16, payload: Words<'_>, offset: usize, expected: usize) -> FormatError {
    let expected = format_args!("{expected} words of payload");
    FormatError::new(format_args!("CDO command {opcode:#05x}"), offset, expected, payload.len())
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
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        Self::parse_at(bytes, 0)
    }

    /// Reads a CDO that starts at file offset `offset`.
    pub(super) fn parse_at(bytes: &'a [u8], offset: usize) -> Result<Self, FormatError> {
        let words = Words::new(bytes, offset);
        let found = format_args!("{} bytes", bytes.len());
        let header = words.slice(0, HEADER_WORDS).and_then(|header| header.exactly());
        let header: [u32; HEADER_WORDS] =
            header.ok_or_else(|| FormatError::new("CDO", offset, "a header of 20 bytes", found))?;
        for (index, ((expected, field), word)) in HEADER.into_iter().zip(header).enumerate() {
            if word != expected {
                let expected = format_args!("{field} {expected:#x}");
                return Err(FormatError::new("CDO header", words.offset(index), expected, format_args!("{word:#x}")));
            }
        }
        let [.., length, stated] = header;
        let expected = checksum(header.into_iter().take(HEADER_WORDS - 1));
        if stated != expected {
            return Err(FormatError::word("CDO header checksum", words.offset(4), expected, stated));
        }
        let expected = (u64::from(length) + HEADER_WORDS as u64) * WORD as u64;
        if expected != bytes.len() as u64 {
            let expected = format_args!("{expected} bytes by the header");
            return Err(FormatError::new("CDO length", words.offset(3), expected, found));
        }
        let cdo = Self { commands: words.from(HEADER_WORDS) };
        let mut rest = cdo.commands;
        while let Some((_, after)) = next_command(rest)? {
            rest = after;
        }
        Ok(cdo)
    }

    /// The commands in order.
    pub fn commands(&self) -> impl Iterator<Item = CdoCommand<'a>> + use<'a> {
        let mut rest = self.commands;
        std::iter::from_fn(move || {
            // `Cdo` is only made after this very walk succeeded.
            let (command, after) = next_command(rest).ok()??;
            rest = after;
            Some(command)
        })
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

/// Decodes the first command of `words` and returns it with the words after it.
fn next_command(words: Words<'_>) -> Result<Option<(CdoCommand<'_>, Words<'_>)>, FormatError> {
    let Some(word) = words.get(0) else { return Ok(None) };
    let offset = words.offset(0);
    if word >> 24 != 0 {
        let found = format_args!("command word {word:#010x}");
        return Err(FormatError::new("CDO command", offset, "bits 31:24 to be 0", found));
    }
    let opcode = word as u16;
    let overrun = |expected: usize, found: usize| {
        let expected = format_args!("{expected} words of payload");
        let found = format_args!("the end of the CDO after {found}");
        FormatError::new(format_args!("CDO command {opcode:#05x}"), offset, expected, found)
    };
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
/// Commands stay in call order. Each DMA_WRITE's command word is put on a 16-byte file offset with a NOP
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

    /// Adds a command, with alignment in front of block writes.
    pub fn push(&mut self, command: &CdoCommand<'_>) -> &mut Self {
        match *command {
            CdoCommand::End => self.emit(opcode::END, &[], []),
            CdoCommand::Nop { payload } => self.emit(opcode::NOP, &[], payload.iter()),
            CdoCommand::Write { address, value } => self.addressed([opcode::WRITE, opcode::WRITE64], address, [value]),
            CdoCommand::MaskWrite { address, mask, value } => {
                self.addressed([opcode::MASK_WRITE, opcode::MASK_WRITE64], address, [mask, value])
            }
            CdoCommand::MaskPoll { address, mask, expected, timeout } => {
                self.addressed([opcode::MASK_POLL, opcode::MASK_POLL64], address, [mask, expected, timeout])
            }
            CdoCommand::Delay { cycles } => self.emit(opcode::DELAY, &[cycles], []),
            CdoCommand::DmaWrite { address, data } => self.block(address, data.iter()),
            CdoCommand::Other { opcode, payload } => self.emit(opcode, &[], payload.iter()),
        }
    }

    /// Adds the commands of another CDO as bootgen merges them: in order, including own NOPs.
    pub fn append(&mut self, cdo: &Cdo<'_>) -> &mut Self {
        cdo.commands().fold(self, |builder, command| builder.push(&command))
    }

    /// Adds a NOP that carries `payload`.
    pub fn nop(&mut self, payload: &[u32]) -> &mut Self {
        self.emit(opcode::NOP, &[], payload.iter().copied())
    }

    /// Adds `*address = value`.
    pub fn write(&mut self, address: u64, value: u32) -> &mut Self {
        self.push(&CdoCommand::Write { address, value })
    }

    /// Adds `*address = (*address & !mask) | (value & mask)`.
    pub fn mask_write(&mut self, address: u64, mask: u32, value: u32) -> &mut Self {
        self.push(&CdoCommand::MaskWrite { address, mask, value })
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
    pub fn finish(&self) -> Result<Vec<u8>, FormatError> {
        let length = self.commands.len() / WORD;
        let found = length + HEADER_WORDS;
        let length = match u32::try_from(length) {
            Ok(length) if found <= MAX_WORDS => length,
            _ => return Err(FormatError::too_long("CDO", found)),
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
        self.emit(opcode::DMA_WRITE, &split(address), data)
    }

    /// Adds a command that has a short and a long form, for addresses of 32 and of 64 bits.
    fn addressed<const N: usize>(&mut self, [short, long]: [u16; 2], address: u64, words: [u32; N]) -> &mut Self {
        match u32::try_from(address) {
            Ok(address) => self.emit(short, &[address], words),
            Err(_) => self.emit(long, &split(address), words),
        }
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
            // A length beyond 32 bits is far beyond MAX_WORDS, which `finish` rejects.
            extend(&mut self.commands, [u32::try_from(length).unwrap_or(u32::MAX)]);
        }
        extend(&mut self.commands, fixed.iter().copied().chain(rest));
        self
    }
}

/// High and low word.
fn split(address: u64) -> [u32; 2] {
    [(address >> 32) as u32, address as u32]
}

#[cfg(test)]
mod tests;
