//! Kernels as one 32-bit ELF each, PDI and instruction stream together: what XRT loads as a "full ELF".
//!
//! AMD's `aiebu-asm -t aie2_config` makes them, which mlir-aie's `aiecc` runs. Whole ELFs in an [`hsaco`](super::hsaco) are taken to
//! be these; none of the C++ backend's was at hand. Sections:
//!
//! ```text
//!   .pdi.N         a PDI with the number N
//!   .ctrltext.N    an instruction stream, byte for byte as it was given; its first operation loads a PDI, by its number
//!   .group.N, .rela.dyn, symbols, notes
//! ```
//!
//! XRT writes the addresses of arguments into the stream at the places that the relocations name. The stream has its own
//! operations for that too ([`Instruction::AddressPatch`]), so the relocations are not needed here. The operation that loads the
//! PDI is: where drivers configure a context with the PDI before the first dispatch, it has been done by then, and it is left
//! out. Source: files that the program makes (`cargo xtask formats` compares), and mlir-aie's description of its input.

use super::error::FormatError;
use super::instructions::{HEADER_BYTES, Instruction, InstructionStream, LOAD_PDI_BYTES};
use object::read::elf::ElfFile32;
use object::{Object as _, ObjectSection as _};

const PDI: &str = ".pdi.";
const INSTRUCTIONS: &str = ".ctrltext";
/// Sections that a stream needs beside it, which nothing here passes on: control packets and what they hold, saved state.
const OTHERS: [&str; 3] = [".ctrlpkt", ".ctrldata", ".preempt"];

/// A kernel from such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelElf<'a> {
    /// The PDI. Not validated.
    pub pdi: &'a [u8],
    /// The instruction stream, without the operation that loads the PDI.
    pub instructions: Vec<u8>,
}

impl<'a> KernelElf<'a> {
    /// Reads a file with one kernel.
    ///
    /// # Errors
    /// When `bytes` are no 32-bit ELF, have not exactly one instruction stream, or that stream loads a PDI that is not there, loads
    /// one later than first, or needs control packets.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let wrong = |expected: &str, found: &dyn std::fmt::Display| FormatError::new("kernel ELF", 0, expected, found);
        let damaged = |error: object::Error| wrong("a 32-bit ELF", &error);
        let elf = ElfFile32::<object::Endianness>::parse(bytes).map_err(damaged)?;
        let (mut pdis, mut streams) = (Vec::new(), Vec::new());
        for section in elf.sections() {
            let (name, data) = (section.name().map_err(damaged)?, section.data().map_err(damaged)?);
            if let Some(number) = name.strip_prefix(PDI).and_then(|number| number.parse::<u16>().ok()) {
                pdis.push((number, data));
            } else if name.starts_with(INSTRUCTIONS) {
                streams.push(data);
            } else if OTHERS.iter().any(|other| name.starts_with(other)) {
                return Err(wrong("PDIs and an instruction stream alone", &format_args!("a section {name}")));
            }
        }
        let [stream] = streams[..] else {
            return Err(wrong("one section .ctrltext", &format_args!("{} of them", streams.len())));
        };
        let (loaded, instructions) = unloaded(stream)?;
        let numbers = || pdis.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(", ");
        let pdi = match (loaded, &pdis[..]) {
            (None, [(_, only)]) => *only,
            (None, _) => {
                return Err(wrong("one PDI, or a stream that says which", &format_args!("PDIs {}", numbers())));
            }
            (Some(wanted), pdis) => {
                let found = pdis.iter().find(|(number, _)| *number == wanted).map(|(_, pdi)| *pdi);
                let none =
                    || wrong(&format!("the PDI {wanted}, which the stream loads"), &format_args!("{}", numbers()));
                found.ok_or_else(none)?
            }
        };
        Ok(Self { pdi, instructions })
    }
}

/// The number of the PDI that `stream` loads first, and the stream without that.
fn unloaded(stream: &[u8]) -> Result<(Option<u16>, Vec<u8>), FormatError> {
    let parsed = InstructionStream::parse(stream)?;
    let loads = |operation: &Instruction<'_>| matches!(operation, Instruction::LoadPdi { .. });
    let mut operations = parsed.operations();
    let first = operations.next();
    if let Some(later) = operations.position(|operation| loads(&operation)) {
        let found = format_args!("another one at operation {}", later + 1);
        return Err(FormatError::new("kernel ELF", 0, "a stream that loads one PDI, first", found));
    }
    let Some(Instruction::LoadPdi { id, .. }) = first else { return Ok((None, stream.to_vec())) };
    let mut rest = [&stream[..HEADER_BYTES], &stream[HEADER_BYTES + LOAD_PDI_BYTES..]].concat();
    // The last two words of the header: how many operations, and how many bytes with the header.
    let count = u32::from_le_bytes([stream[8], stream[9], stream[10], stream[11]]) - 1;
    rest[8..12].copy_from_slice(&count.to_le_bytes());
    let bytes = (stream.len() - LOAD_PDI_BYTES) as u32;
    rest[12..16].copy_from_slice(&bytes.to_le_bytes());
    Ok((Some(id), rest))
}

#[cfg(test)]
mod tests {
    use super::super::instructions::{Header, InstructionWriter};
    use super::super::mutation::mutate;
    use super::*;
    use rstest::rstest;

    /// An ELF with these sections, as `aiebu-asm` lays them out as far as a reader can tell.
    fn elf(sections: &[(&str, &[u8])]) -> Vec<u8> {
        const HEADER: usize = 52;
        let (mut data, mut names, mut headers) = (Vec::new(), b"\0.shstrtab\0".to_vec(), vec![[0u32; 10]]);
        for (name, bytes) in sections {
            headers.push([names.len() as u32, 1, 6, 0, (HEADER + data.len()) as u32, bytes.len() as u32, 0, 0, 16, 0]);
            names.extend(name.bytes().chain([0]));
            data.extend_from_slice(bytes);
        }
        headers.push([1, 3, 0, 0, (HEADER + data.len()) as u32, names.len() as u32, 0, 0, 1, 0]);
        data.extend(names);
        let mut file = b"\x7FELF\x01\x01\x01\x45\x21\0\0\0\0\0\0\0\x02\0\0\x80\x01\0\0\0".to_vec();
        for word in [0, 0, (HEADER + data.len()) as u32, 0] {
            file.extend(word.to_le_bytes());
        }
        for half in [HEADER, 0, 0, 40, headers.len(), headers.len() - 1] {
            file.extend((half as u16).to_le_bytes());
        }
        file.extend(data);
        file.extend(headers.iter().flatten().flat_map(|word| word.to_le_bytes()));
        file
    }

    const LOAD: Instruction<'_> = Instruction::LoadPdi { id: 2, size: 4, address: 0 };
    const WRITE: Instruction<'_> = Instruction::Write { address: 0x20_0000, value: 7 };

    fn stream(operations: &[Instruction<'_>]) -> Vec<u8> {
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 8, mem_tile_rows: 1 });
        for operation in operations {
            writer.push(operation);
        }
        writer.finish().unwrap()
    }

    #[test]
    fn the_pdi_that_the_stream_loads_is_taken() {
        let code = stream(&[LOAD, WRITE]);
        let file = elf(&[(".pdi.1", b"one!"), (".pdi.2", b"two!"), (".ctrltext.0", &code), (".group.0", b"")]);
        let kernel = KernelElf::parse(&file).unwrap();
        assert_eq!((kernel.pdi, kernel.instructions), (&b"two!"[..], stream(&[WRITE])));
    }

    #[test]
    fn the_only_pdi_need_not_be_loaded() {
        let code = stream(&[WRITE]);
        let file = elf(&[(".pdi.9", b"only"), (".ctrltext", &code)]);
        let kernel = KernelElf::parse(&file).unwrap();
        assert_eq!((kernel.pdi, kernel.instructions), (&b"only"[..], code));
    }

    /// Sections with the operations in them: L loads PDI 2, W writes.
    #[rstest]
    #[case::none(".pdi.2:", "one section .ctrltext, found 0")]
    #[case::two(".pdi.2: .ctrltext.0:L .ctrltext.1:L", "one section .ctrltext, found 2")]
    #[case::missing(".pdi.1: .ctrltext.0:LW", "the PDI 2, which the stream loads, found 1")]
    #[case::which(".pdi.1: .pdi.2: .ctrltext.0:W", "found PDIs 1, 2")]
    #[case::twice(".pdi.2: .ctrltext.0:LWL", "first, found another one at operation 2")]
    #[case::late(".pdi.2: .ctrltext.0:WL", "first, found another one at operation 1")]
    #[case::packets(".pdi.2: .ctrlpkt.0: .ctrltext.0:L", "a section .ctrlpkt.0")]
    fn what_cannot_be_used_is_named(#[case] sections: &str, #[case] expected: &str) {
        let parts: Vec<(&str, Vec<u8>)> = sections
            .split(' ')
            .map(|text| {
                let (name, letters) = text.split_once(':').unwrap();
                let operations: Vec<_> = letters.chars().map(|c| if c == 'L' { LOAD } else { WRITE }).collect();
                (name, stream(&operations))
            })
            .collect();
        let parts: Vec<_> = parts.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
        let error = KernelElf::parse(&elf(&parts)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let file = elf(&[(".pdi.2", b"PDI!"), (".ctrltext.0", &stream(&[LOAD, WRITE]))]);
        for end in 0..file.len() {
            assert!(KernelElf::parse(&file[..end]).is_err(), "{end} bytes");
        }
        mutate(&file, 20_000, |bytes| drop(KernelElf::parse(bytes)));
    }
}
