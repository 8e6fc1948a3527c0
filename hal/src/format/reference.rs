//! Reference artifacts: a PDI that describes a kernel instead of configuring tiles.
//!
//! The description, whose content is the caller's, travels in NOP payloads, which loaders skip. So a
//! reference artifact is a valid PDI and takes the same way through stores, loaders, packets and devices as
//! a compiled one; only a simulated device looks inside and runs the kernel it names. On silicon it would
//! configure nothing.
//!
//! Each NOP that carries a part starts with four words: magic `"AIER"`, format version (low half) and part
//! number (high half), byte length of the whole description, and the first word of its SHA-256. The bytes
//! follow, the last word filled up with zeros. Other commands may stand between the parts.

use super::cdo::{Cdo, CdoBuilder, CdoCommand};
use super::error::FormatError;
use super::pdi;
use super::words::{WORD, Words};
use sha2::{Digest as _, Sha256};

const MAGIC: u32 = u32::from_le_bytes(*b"AIER");
const VERSION: u16 = 1;
const HEADER_WORDS: usize = 4;
/// Words of description in every part but the last: 16 KiB, the size of a core's program memory, which is
/// the largest block that compiled PDIs have.
const PART_WORDS: usize = 4096;
/// The part number has 16 bits.
const MAX_BYTES: usize = PART_WORDS * WORD * (u16::MAX as usize + 1);

/// Where a description is wrong: `what` of it, with the words that the headers of its parts ask for.
fn wrong(what: &str, offset: usize, expected: u32, found: u32) -> FormatError {
    FormatError::word(format_args!("kernel description, {what}"), offset, expected, found)
}

/// Makes the PDI of a reference artifact.
///
/// # Errors
/// When the description does not fit a PDI ([`MAX_WORDS`](super::MAX_WORDS)).
pub fn wrap(description: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut cdo = CdoBuilder::new();
    // As in compiled PDIs, the list starts with an empty NOP.
    cdo.nop(&[]);
    describe(&mut cdo, description)?;
    pdi::write(&cdo)
}

/// Adds a description to a CDO, which must not have one yet.
///
/// # Errors
/// When the description does not fit a PDI.
pub fn describe(cdo: &mut CdoBuilder, description: &[u8]) -> Result<(), FormatError> {
    let too_long = FormatError::too_long("CDO", description.len() / WORD);
    let length = match u32::try_from(description.len()) {
        Ok(length) if description.len() <= MAX_BYTES => length,
        _ => return Err(too_long),
    };
    let checksum = checksum(description);
    let mut part = Vec::new();
    let mut parts = description.chunks(PART_WORDS * WORD);
    // An empty description still has its part, so that it differs from none.
    let parts = std::iter::once(parts.next().unwrap_or_default()).chain(parts);
    for (bytes, number) in parts.zip(0u32..) {
        part.clear();
        part.extend([MAGIC, u32::from(VERSION) | (number << 16), length, checksum]);
        part.extend(bytes.chunks(WORD).map(|bytes| {
            let mut word = [0; WORD];
            word[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(word)
        }));
        cdo.nop(&part);
    }
    Ok(())
}

/// The description in a CDO, or nothing when it has none, as compiled PDIs.
///
/// # Errors
/// When there are parts of a description that do not make a whole one of this version.
pub fn extract(cdo: &Cdo<'_>) -> Result<Option<Vec<u8>>, FormatError> {
    let mut whole: Option<Whole> = None;
    for command in cdo.commands() {
        let CdoCommand::Nop { payload } = command else { continue };
        if payload.get(0) == Some(MAGIC) {
            whole.get_or_insert_default().add(payload)?;
        }
    }
    whole.map(Whole::finish).transpose()
}

/// A description put together from its parts.
#[derive(Default)]
struct Whole {
    parts: u32,
    /// File offset of the last part.
    end: usize,
    length: u32,
    checksum: u32,
    bytes: Vec<u8>,
}

impl Whole {
    fn add(&mut self, part: Words<'_>) -> Result<(), FormatError> {
        let offset = part.offset(0);
        let header = part.slice(0, HEADER_WORDS).and_then(|header| header.exactly::<HEADER_WORDS>());
        let too_short = || wrong("header words", offset, HEADER_WORDS as u32, part.len() as u32);
        let [_, version, length, checksum] = header.ok_or_else(too_short)?;
        let found = version as u16;
        if found != VERSION {
            let found = format_args!("{found}: rebuild the kernel with this version of the software");
            return Err(FormatError::new("kernel description", offset, format_args!("version {VERSION}"), found));
        }
        if self.parts == 0 {
            (self.length, self.checksum) = (length, checksum);
        }
        for (what, expected, found) in [
            ("part", self.parts, version >> 16),
            ("length", self.length, length),
            ("checksum", self.checksum, checksum),
        ] {
            if found != expected {
                return Err(wrong(what, offset, expected, found));
            }
        }
        self.parts += 1;
        self.end = offset;
        self.bytes.extend_from_slice(part.from(HEADER_WORDS).as_bytes());
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u8>, FormatError> {
        let end = self.end;
        let whole =
            |what, expected, found| if expected == found { Ok(()) } else { Err(wrong(what, end, expected, found)) };
        // A PDI has less than 2^32 bytes.
        whole("words", self.length.div_ceil(WORD as u32), (self.bytes.len() / WORD) as u32)?;
        whole("padding", 0, self.bytes.drain(self.length as usize..).map(u32::from).sum())?;
        whole("checksum", self.checksum, checksum(&self.bytes))?;
        Ok(self.bytes)
    }
}

fn checksum(description: &[u8]) -> u32 {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(description).into();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::mutation::{mutate, put_word, word};
    use crate::format::pdi::Pdi;
    use rstest::rstest;

    fn description(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 7 + index / 256) as u8 | 1).collect()
    }

    fn extract_from(file: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
        extract(&Pdi::parse(file).unwrap().cdo())
    }

    #[rstest]
    #[case::empty(0, 1)]
    #[case::one_byte(1, 1)]
    #[case::not_a_word(7, 1)]
    #[case::short_nop(1000, 1)]
    #[case::long_nop(1004, 1)]
    #[case::one_part(16384, 1)]
    #[case::two_parts(16385, 2)]
    #[case::many_parts(1_000_001, 62)]
    fn descriptions_come_back(#[case] length: usize, #[case] parts: usize) {
        let description = description(length);
        let file = wrap(&description).unwrap();
        assert_eq!(extract_from(&file).unwrap().as_deref(), Some(&description[..]));
        let commands = Pdi::parse(&file).unwrap().cdo().commands().count();
        assert_eq!(commands, 1 + parts);
    }

    #[test]
    fn a_compiled_pdi_has_no_description() {
        let mut cdo = CdoBuilder::new();
        cdo.nop(&[]).nop(&[0, 0]).write(0x0023_2000, 1);
        assert_eq!(extract_from(&pdi::write(&cdo).unwrap()), Ok(None));
    }

    #[test]
    fn other_commands_may_stand_between() {
        let description = description(40_000);
        let mut plain = CdoBuilder::new();
        describe(&mut plain, &description).unwrap();
        let plain = plain.finish().unwrap();
        let mut mixed = CdoBuilder::new();
        for command in Cdo::parse(&plain).unwrap().commands() {
            mixed.dma_write(0x0022_0000, &[1, 2, 3]).push(&command).write(0x0023_2000, 1);
        }
        let file = pdi::write(&mixed).unwrap();
        assert_eq!(extract_from(&file), Ok(Some(description)));
    }

    #[test]
    fn too_long_descriptions_are_rejected() {
        assert!(wrap(&vec![0; 64 << 20]).unwrap_err().expected.contains("as many as the device heap holds"));
    }

    /// File offset of the first part of a wrapped description: PDI header, CDO header, empty NOP, NOP.
    const PART: usize = 0x150 + 20 + 4 + 4;

    #[rstest]
    #[case::number(PART + 4, 0x0003_0001, wrong("part", PART, 0, 3))]
    #[case::longer(PART + 8, 11, wrong("words", PART, 3, 2))]
    #[case::shorter(PART + 8, 4, wrong("words", PART, 1, 2))]
    #[case::huge(PART + 8, u32::MAX, wrong("words", PART, 1 << 30, 2))]
    #[case::padding(PART + 8, 5, wrong("padding", PART, 0, 0x6c))]
    fn changed_words_are_found(#[case] offset: usize, #[case] value: u32, #[case] expected: FormatError) {
        let mut file = wrap(b"kernel").unwrap();
        put_word(&mut file, offset, value);
        assert_eq!(extract_from(&file), Err(expected));
    }

    #[test]
    fn another_version_says_what_to_do() {
        let mut file = wrap(b"kernel").unwrap();
        put_word(&mut file, PART + 4, 2);
        let message = "kernel description at offset 0x16c: expected version 1, found 2: rebuild the kernel with this version \
                       of the software";
        assert_eq!(extract_from(&file).unwrap_err().to_string(), message);
    }

    #[test]
    fn changed_bytes_are_found() {
        let mut file = wrap(b"kernel").unwrap();
        let stated = word(&file, PART + 12);
        file[PART + 16] ^= 1;
        let found = checksum(b"jernel");
        assert_eq!(extract_from(&file), Err(wrong("checksum", PART, stated, found)));
    }

    #[rstest]
    #[case::doubled(&[0, 0], "part", 1, 0)]
    #[case::missing(&[0, 2], "part", 1, 2)]
    fn parts_are_counted(#[case] order: &[usize], #[case] field: &str, #[case] asked: u32, #[case] there: u32) {
        let mut cdo = CdoBuilder::new();
        describe(&mut cdo, &description(40_000)).unwrap();
        let bytes = cdo.finish().unwrap();
        let parts: Vec<CdoCommand> = Cdo::parse(&bytes).unwrap().commands().collect();
        let mut cdo = CdoBuilder::new();
        for index in order {
            cdo.push(&parts[*index]);
        }
        let error = extract_from(&pdi::write(&cdo).unwrap()).unwrap_err();
        assert_eq!(error, wrong(field, error.offset, asked, there));
    }

    #[rstest]
    #[case::length(b"kernel, longer")]
    #[case::checksum(b"Kernel")]
    fn parts_of_two_descriptions_do_not_mix(#[case] other: &[u8]) {
        let mut cdo = CdoBuilder::new();
        describe(&mut cdo, other).unwrap();
        let bytes = cdo.finish().unwrap();
        let mut second = Cdo::parse(&bytes).unwrap().commands().next().map(|command| match command {
            CdoCommand::Nop { payload } => payload.to_vec(),
            other => panic!("{other:?}"),
        });
        let second = second.as_mut().unwrap();
        second[1] |= 1 << 16;
        let mut cdo = CdoBuilder::new();
        describe(&mut cdo, b"kernel").unwrap();
        cdo.nop(second);
        let error = extract_from(&pdi::write(&cdo).unwrap()).unwrap_err();
        let field = if other.len() == 6 { "checksum" } else { "length" };
        assert_eq!(*error.what, format!("kernel description, {field}"));
    }

    #[test]
    fn a_bare_magic_is_rejected() {
        let mut cdo = CdoBuilder::new();
        cdo.nop(&[MAGIC, 1]);
        let error = extract_from(&pdi::write(&cdo).unwrap()).unwrap_err();
        assert_eq!(error, wrong("header words", 0x168, 4, 2));
    }

    #[test]
    fn mutated_files_give_the_description_or_an_error() {
        let description = description(300);
        let file = wrap(&description).unwrap();
        let (mut right, mut rejected) = (0, 0);
        mutate(&file, 20_000, |bytes| {
            match Pdi::parse(bytes).ok().map(|pdi| extract(&pdi.cdo())) {
                Some(Ok(Some(found))) => {
                    assert_eq!(found, description);
                    right += 1;
                }
                // Another magic makes an ordinary NOP of it.
                Some(Ok(None)) => {}
                Some(Err(_)) => rejected += 1,
                None => {}
            }
        });
        assert!(right > 10 && rejected > 1000, "{right} right, {rejected} rejected");
    }
}
