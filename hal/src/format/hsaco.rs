//! hsaco: the code object in which newer tools for ROCR hand out kernels, each a PDI and an instruction stream.
//!
//! It is a 64-bit ELF with a section for each generation, which is named after it. All numbers in the section are little-endian
//! 32-bit words, all offsets are in bytes from its start:
//!
//! ```text
//!   header        magic `AIEK`, major and minor version (16 bits each), size of the header, kernels, size of an entry,
//!                 offset and size of the names, offset of the blobs, four words of zero
//!   an entry for  offset of the name within the names, offset and size of the instructions, offset and size of the PDI, bytes of
//!   each kernel   kernel arguments, columns, kind, three words of zero
//!   names         each with a zero behind it
//!   blobs         up to the end of the section; what several kernels have in common is there once
//! ```
//!
//! Kind 0 is a PDI with a stream of its own. Kind 1 is a whole ELF in the place of the instructions, with both in it
//! ([`kernel_elf`](super::kernel_elf)). Higher kinds are rejected, as ROCR does. The names of sections decide the
//! generation; one that does not start with the magic is something else. Source: the structures of ROCR's public header
//! `amd_aie_section.h`, its reader `amd_aie_code.cpp`, and mlir-aie's packer `aie/compiler/hsaco`.

use super::error::FormatError;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _};

const MAGIC: u32 = 0x4B45_4941;
const MAJOR: u16 = 1;
const HEADER_BYTES: u32 = 48;
const ENTRY_BYTES: u32 = 44;
const PDI_AND_INSTRUCTIONS: u32 = 0;
const WHOLE_ELF: u32 = 1;
/// An address and a size of 64 bits for each argument (ggml's `ggml-hsa`, and ROCR's kernel argument buffer).
const ARGUMENT_BYTES: u32 = 16;

/// A kernel of one generation. Borrows from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HsacoKernel<'a> {
    /// Its name.
    pub name: &'a str,
    /// Columns of the array that it takes.
    pub columns: u32,
    /// Tensors that it is dispatched with, from the bytes of its arguments.
    pub arguments: u32,
    /// What it is made of.
    pub content: HsacoContent<'a>,
}

/// What is in the file of a kernel. Nothing in it is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the kinds of the format's version; others are rejected")]
pub enum HsacoContent<'a> {
    /// Kind 0.
    Code(HsacoCode<'a>),
    /// Kind 1: what [`KernelElf::parse`](super::kernel_elf::KernelElf::parse) reads.
    WholeElf(&'a [u8]),
}

/// What a kernel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HsacoCode<'a> {
    /// The PDI.
    pub pdi: &'a [u8],
    /// The instruction stream.
    pub instructions: &'a [u8],
}

/// A validated hsaco. Borrows the file.
#[derive(Clone, Debug)]
pub struct Hsaco<'a> {
    generations: Vec<(&'a str, Vec<HsacoKernel<'a>>)>,
}

impl<'a> Hsaco<'a> {
    /// Reads all sections of a file.
    ///
    /// # Errors
    /// When `bytes` are no 64-bit ELF, no section has kernels, or one is not what the format says: the offset in the error is from
    /// the start of the section then.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let damaged = |error| FormatError::new("hsaco", 0, "a 64-bit ELF", error);
        let elf = ElfFile64::<object::Endianness>::parse(bytes).map_err(damaged)?;
        let mut generations: Vec<(&str, Vec<HsacoKernel<'_>>)> = Vec::new();
        let mut others = Vec::new();
        for section in elf.sections() {
            let name = section.name().map_err(damaged)?;
            let data = section.data().map_err(damaged)?;
            if data.get(..4) != Some(&MAGIC.to_le_bytes()) {
                others.push(name);
            } else if generations.iter().any(|(known, _)| *known == name) {
                return Err(FormatError::new(
                    "hsaco section",
                    0,
                    "one section for a generation",
                    format_args!("two {name}"),
                ));
            } else {
                generations.push((name, Section { name, data }.kernels()?));
            }
        }
        if generations.is_empty() {
            let found = format_args!("{} others: {}", others.len(), others.join(" "));
            return Err(FormatError::new("hsaco", 0, "a section that starts with AIEK", found));
        }
        Ok(Self { generations })
    }

    /// The generations that it has kernels for, in file order.
    pub fn generations(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.generations.iter().map(|(name, _)| *name)
    }

    /// The kernels of a generation, in file order; none where it has no section.
    #[must_use]
    pub fn kernels(&self, generation: &str) -> &[HsacoKernel<'a>] {
        self.generations.iter().find(|(name, _)| *name == generation).map_or(&[], |(_, kernels)| kernels)
    }
}

/// A section with kernels.
#[derive(Clone, Copy)]
struct Section<'a> {
    name: &'a str,
    data: &'a [u8],
}

/// A range of a section.
#[derive(Clone, Copy)]
struct Extent {
    from: u64,
    to: u64,
}

impl<'a> Section<'a> {
    fn kernels(self) -> Result<Vec<HsacoKernel<'a>>, FormatError> {
        let [_, version, header, count, entry, names_at, names_bytes, blobs_at] = self.words::<8>("header", 0)?;
        let major = version as u16;
        if major != MAJOR {
            return Err(self.error("version", 4, format_args!("{MAJOR}"), format_args!("{major}")));
        }
        for (what, at, bytes, least) in [("header", 8, header, HEADER_BYTES), ("entry", 16, entry, ENTRY_BYTES)] {
            if bytes < least {
                return Err(self.error(&format!("size of the {what}"), at, format_args!("at least {least}"), bytes));
            }
        }
        let table = Extent { from: header.into(), to: u64::from(header) + u64::from(count) * u64::from(entry) };
        let names = Extent { from: names_at.into(), to: u64::from(names_at) + u64::from(names_bytes) };
        let blobs = Extent { from: blobs_at.into(), to: self.data.len() as u64 };
        // One behind the other: a name in the table, or a blob in the names, is damage.
        for (what, at, before, part) in [("names", 20, table, names), ("blobs", 28, names, blobs)] {
            if part.from < before.to || part.to < part.from || part.to > self.data.len() as u64 {
                let expected = format_args!("between {} and the end at {}", before.to, self.data.len());
                return Err(self.error(what, at, expected, format_args!("{} to {}", part.from, part.to)));
            }
        }
        let names = &self.data[names.from as usize..names.to as usize];
        let mut kernels: Vec<HsacoKernel<'a>> = Vec::new();
        for index in 0..u64::from(count) {
            let kernel = self.kernel((table.from + index * u64::from(entry)) as usize, names, blobs)?;
            if kernels.iter().any(|known| known.name == kernel.name) {
                return Err(self.error(
                    "kernel",
                    table.from as usize,
                    "names that differ",
                    format_args!("{} twice", kernel.name),
                ));
            }
            kernels.push(kernel);
        }
        if kernels.is_empty() {
            return Err(self.error("kernel count", 12, "a kernel", "none"));
        }
        Ok(kernels)
    }

    fn kernel(self, at: usize, names: &'a [u8], blobs: Extent) -> Result<HsacoKernel<'a>, FormatError> {
        let [name, code_at, code_bytes, pdi_at, pdi_bytes, argument_bytes, columns, kind] =
            self.words::<8>("entry", at)?;
        let text = names.get(name as usize..).and_then(|rest| rest.split_inclusive(|byte| *byte == 0).next());
        let text = text.and_then(|text| std::str::from_utf8(text.strip_suffix(&[0])?).ok());
        let Some(name) = text else {
            let expected = "the offset of a name in UTF-8 with a zero behind it";
            return Err(self.error("name", at, expected, format_args!("{name} of {} bytes", names.len())));
        };
        let blob = |what: &str, field: usize, offset: u32, bytes: u32| {
            let (from, to) = (u64::from(offset), u64::from(offset) + u64::from(bytes));
            let range = from as usize..to as usize;
            self.data.get(range).filter(|_| from >= blobs.from).ok_or_else(|| {
                let expected = format_args!("bytes between {} and {}", blobs.from, blobs.to);
                self.error(&format!("{what} of {name}"), at + field, expected, format_args!("{from} to {to}"))
            })
        };
        let instructions = blob("instructions", 4, code_at, code_bytes)?;
        if instructions.is_empty() {
            return Err(self.error(&format!("instructions of {name}"), at + 8, "some", "none"));
        }
        let content = match (kind, pdi_bytes) {
            (PDI_AND_INSTRUCTIONS, 0) => {
                return Err(self.error(&format!("PDI of {name}"), at + 16, "some bytes", "none"));
            }
            (PDI_AND_INSTRUCTIONS, _) => {
                HsacoContent::Code(HsacoCode { pdi: blob("PDI", 12, pdi_at, pdi_bytes)?, instructions })
            }
            (WHOLE_ELF, 0) => HsacoContent::WholeElf(instructions),
            (WHOLE_ELF, _) => {
                let what = format!("PDI of {name}");
                return Err(self.error(&what, at + 16, "none beside a whole ELF", format_args!("{pdi_bytes} bytes")));
            }
            _ => return Err(self.error(&format!("kind of {name}"), at + 28, "0 or 1", kind)),
        };
        Ok(HsacoKernel { name, columns, arguments: argument_bytes / ARGUMENT_BYTES, content })
    }

    /// The first `N` words of a part.
    fn words<const N: usize>(self, what: &str, at: usize) -> Result<[u32; N], FormatError> {
        let bytes = at.checked_add(4 * N).and_then(|end| self.data.get(at..end));
        let Some(bytes) = bytes else {
            let found = format_args!("the end after {}", self.data.len());
            return Err(self.error(what, at, format_args!("{} bytes", 4 * N), found));
        };
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(words)
    }

    fn error(
        self,
        what: &str,
        at: usize,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> FormatError {
        FormatError::new(format_args!("hsaco section {}, {what}", self.name), at, expected, found)
    }
}

/// A kernel to be written.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by callers, field by field")]
pub struct HsacoEntry<'a> {
    /// Its name, without zeros in it.
    pub name: &'a str,
    /// Columns of the array that it takes.
    pub columns: u32,
    /// Tensors that it is dispatched with.
    pub arguments: u32,
    /// What it is made of.
    pub code: HsacoCode<'a>,
}

/// Writes an hsaco with kernels of one generation.
///
/// # Errors
/// There is no kernel, two have one name, a name has a zero in it, a blob is empty, or together they take 4 GiB or more.
pub fn write(generation: &str, kernels: &[HsacoEntry<'_>]) -> Result<Vec<u8>, FormatError> {
    let section = section(kernels)?;
    let names = format!("\0{generation}\0.shstrtab\0");
    let at = |bytes: usize| bytes.next_multiple_of(8);
    let names_at = ELF_BYTES + at(section.len());
    let headers_at = names_at + at(names.len());
    let mut file = Vec::with_capacity(headers_at + 3 * SECTION_HEADER_BYTES);
    // 64 bits, little-endian, version 1; relocatable, for AMD GPUs, as the packer has it.
    file.extend(b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\xE0\0\x01\0\0\0");
    for word in [0, 0, headers_at as u64] {
        file.extend(word.to_le_bytes());
    }
    // Flags; sizes of this header and of program headers, of which there are none; sections, and the one with the names.
    file.extend([0; 4]);
    for half in [ELF_BYTES, 0, 0, SECTION_HEADER_BYTES, 3, 2] {
        file.extend((half as u16).to_le_bytes());
    }
    for part in [&section[..], names.as_bytes()] {
        file.extend(part);
        file.resize(at(file.len()), 0);
    }
    let (data, strings) = (1, 3);
    let parts = [[0; 4], [1, data, ELF_BYTES, section.len()], [generation.len() + 2, strings, names_at, names.len()]];
    for [name, kind, offset, bytes] in parts {
        file.extend((name as u32).to_le_bytes());
        file.extend((kind as u32).to_le_bytes());
        let alignment = usize::from(kind != 0);
        for word in [0, 0, offset, bytes, 0, alignment, 0] {
            file.extend((word as u64).to_le_bytes());
        }
    }
    Ok(file)
}

const ELF_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;

/// The content of a section.
fn section(kernels: &[HsacoEntry<'_>]) -> Result<Vec<u8>, FormatError> {
    let wrong =
        |what: &str, expected: &str, found: &str| FormatError::new(format_args!("hsaco {what}"), 0, expected, found);
    if kernels.is_empty() {
        return Err(wrong("kernels", "at least one", "none"));
    }
    let (mut names, mut blobs) = (Vec::new(), Vec::<&[u8]>::new());
    for (index, kernel) in kernels.iter().enumerate() {
        if kernel.name.contains('\0') {
            return Err(wrong("name", "no zero in it", kernel.name));
        }
        if kernels[..index].iter().any(|other| other.name == kernel.name) {
            return Err(wrong("names", "names that differ", kernel.name));
        }
        names.extend(kernel.name.bytes().chain([0]));
        for (what, blob) in [("instructions", kernel.code.instructions), ("PDI", kernel.code.pdi)] {
            if blob.is_empty() {
                return Err(wrong(what, "some bytes", "none"));
            }
            if !blobs.contains(&blob) {
                blobs.push(blob);
            }
        }
    }
    let names_at = HEADER_BYTES as usize + ENTRY_BYTES as usize * kernels.len();
    let blobs_at = names_at + names.len();
    let total = blobs_at + blobs.iter().map(|blob| blob.len()).sum::<usize>();
    if u32::try_from(total).is_err() {
        return Err(wrong("kernels", "less than 4 GiB together", &format!("{total} bytes")));
    }
    let place = |wanted: &[u8]| -> [u32; 2] {
        let before = blobs.iter().take_while(|blob| **blob != wanted).map(|blob| blob.len()).sum::<usize>();
        [blobs_at + before, wanted.len()].map(|number| number as u32)
    };
    let mut words = vec![MAGIC, u32::from(MAJOR), HEADER_BYTES, kernels.len() as u32, ENTRY_BYTES];
    words.extend([names_at, names.len(), blobs_at].map(|number| number as u32));
    words.extend([0; 4]);
    let mut name_at = 0;
    for HsacoEntry { name, columns, arguments, code } in kernels {
        words.push(name_at);
        words.extend(place(code.instructions).into_iter().chain(place(code.pdi)));
        words.extend([arguments * ARGUMENT_BYTES, *columns, PDI_AND_INSTRUCTIONS, 0, 0, 0]);
        name_at += name.len() as u32 + 1;
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.extend(names);
    blobs.into_iter().for_each(|blob| bytes.extend(blob));
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::mutation::{mutate, put_word};
    use super::*;
    use rstest::rstest;

    fn entry<'a>(name: &'a str, pdi: &'a [u8], instructions: &'a [u8]) -> HsacoEntry<'a> {
        HsacoEntry { name, columns: 4, arguments: 3, code: HsacoCode { pdi, instructions } }
    }

    fn sample() -> Vec<u8> {
        write("aie2", &[entry("add", b"PDI!", b"one stream"), entry("mul", b"PDI!", b"another")]).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let file = sample();
        let hsaco = Hsaco::parse(&file).unwrap();
        assert_eq!(hsaco.generations().collect::<Vec<_>>(), ["aie2"]);
        let [add, mul] = hsaco.kernels("aie2") else { panic!() };
        assert_eq!((add.name, add.columns, add.arguments), ("add", 4, 3));
        let code = |instructions| HsacoContent::Code(HsacoCode { pdi: b"PDI!", instructions });
        assert_eq!((add.content, mul.content), (code(b"one stream"), code(b"another")));
        // The PDI is there once.
        assert_eq!(file.windows(4).filter(|window| window == b"PDI!").count(), 1);
        assert!(hsaco.kernels("aie2p").is_empty());
    }

    /// The layout, byte by byte, as the public header has it.
    #[test]
    fn the_section_is_that_of_the_public_header() {
        let section = section(&[entry("k", b"PD", b"STREAM")]).unwrap();
        let mut expected = b"AIEK\x01\0\0\0".to_vec();
        let numbers = [48, 1, 44, 92, 2, 94, 0, 0, 0, 0, 0, 94, 6, 100, 2, 48, 4, 0, 0, 0, 0u32];
        expected.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        expected.extend(b"k\0STREAMPD");
        assert_eq!(section, expected);
    }

    #[rstest]
    #[case::magic(0, 0x4B45_4940, "a section that starts with AIEK")]
    #[case::version(4, 2, "version at offset 0x4: expected 1, found 2")]
    #[case::header(8, 47, "size of the header")]
    #[case::count(12, 9_999_999, "names at offset 0x14")]
    #[case::none(12, 0, "kernel count")]
    #[case::entry(16, 40, "size of the entry")]
    #[case::huge_entry(16, u32::MAX, "names at offset 0x14")]
    #[case::names_in_the_table(20, 50, "names at offset 0x14")]
    #[case::names_beyond(24, u32::MAX, "names at offset 0x14")]
    #[case::blobs_in_the_names(28, 137, "blobs at offset 0x1c")]
    #[case::blobs_beyond(28, 4096, "blobs at offset 0x1c")]
    #[case::name_beyond(48, 8, "the offset of a name")]
    #[case::instructions_in_the_names(52, 137, "instructions of add")]
    #[case::instructions_beyond(56, 4096, "instructions of add")]
    #[case::instructions_overflow(56, u32::MAX, "instructions of add")]
    #[case::no_instructions(56, 0, "instructions of add")]
    #[case::pdi_beyond(60, u32::MAX, "PDI of add")]
    #[case::no_pdi(64, 0, "PDI of add")]
    #[case::elf_with_a_pdi(76, 1, "none beside a whole ELF")]
    #[case::kind(76, 2, "kind of add")]
    #[case::same_name(92, 0, "add twice")]
    fn damage_is_named(#[case] at: usize, #[case] word: u32, #[case] expected: &str) {
        let mut file = sample();
        put_word(&mut file, ELF_BYTES + at, word);
        let error = Hsaco::parse(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_whole_elf_is_in_the_place_of_the_instructions() {
        let mut file = sample();
        for (at, word) in [(60, 0), (64, 0), (76, WHOLE_ELF)] {
            put_word(&mut file, ELF_BYTES + at, word);
        }
        let hsaco = Hsaco::parse(&file).unwrap();
        let [add, mul] = hsaco.kernels("aie2") else { panic!() };
        assert_eq!(add.content, HsacoContent::WholeElf(b"one stream"));
        assert!(matches!(mul.content, HsacoContent::Code(_)));
    }

    #[test]
    fn names_are_text_that_ends() {
        let mut file = sample();
        let names = ELF_BYTES + 48 + 2 * 44;
        file[names] = 0xFF;
        assert!(Hsaco::parse(&file).unwrap_err().to_string().contains("UTF-8"));
        // The last one without its zero.
        let mut file = sample();
        put_word(&mut file, ELF_BYTES + 24, 7);
        assert!(Hsaco::parse(&file).unwrap_err().to_string().contains("a zero behind it"));
    }

    #[rstest]
    #[case::none(&[], "at least one")]
    #[case::same(&[("a", "p"), ("a", "p")], "names that differ")]
    #[case::zero(&[("a\0b", "p")], "no zero in it")]
    #[case::empty(&[("a", "")], "some bytes")]
    fn what_cannot_be_written_is_rejected(#[case] kernels: &[(&str, &str)], #[case] expected: &str) {
        let entries: Vec<_> = kernels.iter().map(|(name, pdi)| entry(name, pdi.as_bytes(), b"s")).collect();
        assert!(write("aie2", &entries).unwrap_err().to_string().contains(expected));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let file = sample();
        for end in 0..file.len() {
            assert!(Hsaco::parse(&file[..end]).is_err(), "{end} bytes");
        }
        mutate(&file, 20_000, |bytes| {
            if let Ok(hsaco) = Hsaco::parse(bytes) {
                hsaco.generations().for_each(|generation| drop(hsaco.kernels(generation).to_vec()));
            }
        });
    }
}
