//! PDI: the container around one CDO that configures a partition of the array.
//!
//! The layout is that of a Versal partial PDI without boot header, as bootgen writes it for mlir-aie: four
//! words of bus-width pattern, an image header table, one image header, one partition header, and the CDO
//! at offset 0x150, padded with zeros to 16 bytes. Nothing is encrypted or hashed, and apart from three
//! lengths and the checksums every header word is constant, so a PDI can be written without bootgen. Two words
//! vary in real files without a meaning for the array; both are written as 0:
//!
//! - offset 0x98, the image's revoke id: bootgen does not set it, so its files hold whatever was in memory;
//! - offset 0xC8, the image's measurement register: bootgen for other architectures writes 0xFFFFFFFF.
//!
//! [`canonical`] is a PDI with both as written here: what digests are made of, as two runs of one compiler differ in them.
//!
//! A PDI does not say which generation it is for: the headers are the same for aie2 and aie2p. The header
//! of the instruction stream that belongs to it does ([`Header::generation`]).
//!
//! [`Header::generation`]: super::instructions::Header::generation

use super::cdo::{Cdo, CdoBuilder};
use super::error::FormatError;
use super::words::{WORD, Words, checksum, extend};
use std::borrow::Cow;

/// File offset of the CDO in bytes.
pub const CDO_OFFSET: usize = 0x150;

/// Words in front of the CDO.
const HEADER_WORDS: usize = CDO_OFFSET / WORD;
/// The partition is padded to a multiple of this many words.
const PADDING: usize = 4;

/// A header block: where it starts, and its words with their names. The checksum is the word after it.
struct HeaderBlock {
    name: &'static str,
    /// Index of the first word in the file.
    start: usize,
    /// Words that are not always zero, as (index in the block, name, constant).
    fields: &'static [(usize, &'static str, u32)],
    /// Words in front of the checksum.
    len: usize,
}

/// Word index of the image header, file offset 0x98: the eFuse that would revoke the image. bootgen leaves it uninitialised.
const REVOKE_ID: usize = 0x08 / WORD;

/// Word index of the image header, file offset 0xC8: the register that measurements of the image extend. mlir-aie's
/// PDIs have 0; bootgen for other architectures writes all ones, which says none.
const MEASUREMENT_REGISTER: usize = 0x38 / WORD;

/// Word indices of the partition header that depend on the CDO.
const ENCRYPTED_LENGTH: usize = 0;
const UNENCRYPTED_LENGTH: usize = 1;
const TOTAL_LENGTH: usize = 2;

const BUS_WIDTH: [u32; 4] = [0x0000_00DD, 0x1122_3344, 0x5566_7788, 0x99AA_BBCC];

const IMAGE_HEADER_TABLE: HeaderBlock = HeaderBlock {
    name: "image header table",
    start: 0x010 / WORD,
    fields: &[
        (0, "version", 0x0004_0000),
        (0x04 / WORD, "image count", 1),
        (0x08 / WORD, "image header word offset", 0x24),
        (0x0C / WORD, "partition count", 1),
        (0x10 / WORD, "partition header word offset", 0x34),
        (0x14 / WORD, "secondary boot device", 0),
        (0x18 / WORD, "id code", 0x14CA_8093),
        (0x28 / WORD, "identification \"IDPP\"", u32::from_le_bytes(*b"IDPP")),
        (0x2C / WORD, "header sizes", 0x0020_1020),
        (0x30 / WORD, "meta header words", 0x30),
        (0x44 / WORD, "extended id code", 1),
    ],
    len: 31,
};

const IMAGE_HEADER: HeaderBlock = HeaderBlock {
    name: "image header",
    start: 0x090 / WORD,
    fields: &[
        (0, "partition header word offset", 0x34),
        (0x04 / WORD, "data section count", 1),
        (0x10 / WORD, "image name \"aie_image\"", u32::from_le_bytes(*b"aie_")),
        (0x14 / WORD, "image name \"aie_image\"", u32::from_le_bytes(*b"imag")),
        (0x18 / WORD, "image name \"aie_image\"", u32::from_le_bytes(*b"e\0\0\0")),
        (0x20 / WORD, "image id", 0x1C00_0000),
        (MEASUREMENT_REGISTER, "measurement register", 0),
    ],
    len: 15,
};

const PARTITION_HEADER: HeaderBlock = HeaderBlock {
    name: "partition header",
    start: 0x0D0 / WORD,
    fields: &[
        (0x18 / WORD, "load address (low)", u32::MAX),
        (0x1C / WORD, "load address (high)", u32::MAX),
        (0x20 / WORD, "partition word offset", HEADER_WORDS as u32),
        (0x24 / WORD, "attributes (type CDO)", 0x0200_0006),
        (0x28 / WORD, "data section count", 1),
    ],
    len: 31,
};

impl HeaderBlock {
    /// The block's constant words, without the checksum.
    fn constants(&self) -> Vec<u32> {
        let mut words = vec![0; self.len];
        for &(index, _, value) in self.fields {
            words[index] = value;
        }
        words
    }

    fn field(&self, index: usize) -> &'static str {
        let named = self.fields.iter().find(|field| field.0 == index);
        named.map_or("unused word", |field| field.1)
    }

    /// Checks checksum and constants of the block in `file`, which is long enough; an index and a word for which
    /// `varies` holds are right too.
    fn check(&self, file: Words<'_>, varies: impl Fn(usize, u32) -> bool) -> Result<(), FormatError> {
        let words = file.from(self.start);
        let expected = checksum(words.iter().take(self.len));
        let found = words.get(self.len).unwrap_or_default();
        if found != expected {
            let what = format_args!("PDI {} checksum", self.name);
            return Err(FormatError::word(what, words.offset(self.len), expected, found));
        }
        for (index, (expected, found)) in self.constants().into_iter().zip(words.iter()).enumerate() {
            if found != expected && !varies(index, found) {
                return Err(other_constant(self.name, self.field(index), words.offset(index), expected, found));
            }
        }
        Ok(())
    }
}

fn other_constant(block: &str, field: &str, offset: usize, expected: u32, found: u32) -> FormatError {
    let expected = format_args!("{field} {expected:#010x}");
    let found = format_args!("{found:#010x} (only PDIs as mlir-aie makes them are known)");
    FormatError::new(format_args!("PDI {block}"), offset, expected, found)
}

/// A validated PDI over borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdi<'a> {
    cdo: Cdo<'a>,
}

impl<'a> Pdi<'a> {
    /// Reads and validates a PDI that is the whole of `bytes`.
    ///
    /// # Errors
    /// When any constant, checksum, length or padding word is wrong, or the CDO inside is.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let file = Words::new(bytes, 0);
        if bytes.len() < CDO_OFFSET {
            let expected = format_args!("at least {CDO_OFFSET} bytes of headers");
            return Err(FormatError::new("PDI", 0, expected, format_args!("{} bytes", bytes.len())));
        }
        for (index, (expected, found)) in BUS_WIDTH.into_iter().zip(file.iter()).enumerate() {
            if found != expected {
                return Err(other_constant("start", "bus width pattern", file.offset(index), expected, found));
            }
        }
        IMAGE_HEADER_TABLE.check(file, |_, _| false)?;
        IMAGE_HEADER.check(file, |index, found| match index {
            REVOKE_ID => true,
            MEASUREMENT_REGISTER => found == u32::MAX,
            _ => false,
        })?;
        // The lengths are checked below.
        PARTITION_HEADER.check(file, |index, _| index <= TOTAL_LENGTH)?;

        let lengths = file.from(PARTITION_HEADER.start);
        let length = |what, index: usize, expected: u64, found: u64| {
            let error = || FormatError::new(format_args!("PDI {what}"), lengths.offset(index), expected, found);
            if expected == found { Ok(()) } else { Err(error()) }
        };
        let stated = |index| lengths.get(index).map_or(0, u64::from);
        let total = stated(TOTAL_LENGTH);
        let size = (HEADER_WORDS as u64 + total) * WORD as u64;
        length("file size in bytes by its total partition length", TOTAL_LENGTH, size, bytes.len() as u64)?;
        length("encrypted length in words", ENCRYPTED_LENGTH, total, stated(ENCRYPTED_LENGTH))?;
        let used = stated(UNENCRYPTED_LENGTH);
        let padded = used.next_multiple_of(PADDING as u64);
        length("total partition length in words", TOTAL_LENGTH, padded, total)?;

        // `used <= total`, and the file has exactly `total` words here.
        let partition = file.from(HEADER_WORDS);
        let used = used as usize;
        let padding = partition.from(used);
        if let Some((index, found)) = padding.iter().enumerate().find(|(_, word)| *word != 0) {
            return Err(FormatError::new("PDI padding", padding.offset(index), 0, format_args!("{found:#010x}")));
        }
        let cdo = partition.slice(0, used).unwrap_or(partition);
        Ok(Self { cdo: Cdo::parse_at(cdo.as_bytes(), CDO_OFFSET)? })
    }

    /// The CDO inside. Errors about it named offsets in the PDI file.
    #[must_use]
    pub fn cdo(&self) -> Cdo<'a> {
        self.cdo
    }
}

/// A valid PDI with those header words that vary without a meaning as [`write()`] writes them. PDIs that configure the array alike
/// are equal then; what [`write()`] made is returned as it is.
#[must_use]
pub fn canonical(pdi: &[u8]) -> Cow<'_, [u8]> {
    let start = IMAGE_HEADER.start * WORD;
    let mut words = IMAGE_HEADER.constants();
    words.push(checksum(words.iter().copied()));
    let mut bytes = Vec::with_capacity(words.len() * WORD);
    extend(&mut bytes, words);
    match pdi.get(start..start + bytes.len()) {
        Some(found) if found != bytes => {
            let mut file = pdi.to_vec();
            file[start..start + bytes.len()].copy_from_slice(&bytes);
            Cow::Owned(file)
        }
        _ => Cow::Borrowed(pdi),
    }
}

/// Writes the PDI of a CDO, byte for byte as bootgen does.
///
/// # Errors
/// As [`CdoBuilder::finish`].
pub fn write(cdo: &CdoBuilder) -> Result<Vec<u8>, FormatError> {
    let cdo = cdo.finish()?;
    let used = cdo.len() / WORD;
    let total = used.next_multiple_of(PADDING);
    let mut file = Vec::with_capacity(CDO_OFFSET + total * WORD);
    extend(&mut file, BUS_WIDTH);
    for block in [IMAGE_HEADER_TABLE, IMAGE_HEADER, PARTITION_HEADER] {
        let mut words = block.constants();
        if block.start == PARTITION_HEADER.start {
            // `finish` bounds the CDO far below 32 bits.
            words[ENCRYPTED_LENGTH] = total as u32;
            words[UNENCRYPTED_LENGTH] = used as u32;
            words[TOTAL_LENGTH] = total as u32;
        }
        words.push(checksum(words.iter().copied()));
        extend(&mut file, words);
    }
    file.extend_from_slice(&cdo);
    file.resize(CDO_OFFSET + total * WORD, 0);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::mutation::{put_word, word};
    use rstest::rstest;

    fn sample() -> Vec<u8> {
        let mut cdo = CdoBuilder::new();
        cdo.nop(&[]).mask_write(0x0023_2000, 1, 0).dma_write(0x0022_0000, &[7; 300]).write(0x0021_DE04, 3);
        write(&cdo).unwrap()
    }

    /// Rewrites the checksum of the block with a word at `offset`.
    fn repair(file: &mut [u8], offset: usize) {
        let blocks = [IMAGE_HEADER_TABLE, IMAGE_HEADER, PARTITION_HEADER];
        let holds = |block: &&HeaderBlock| (block.start * WORD..(block.start + block.len) * WORD).contains(&offset);
        if let Some(block) = blocks.iter().find(holds) {
            let sum = checksum(Words::new(file, 0).from(block.start).iter().take(block.len));
            put_word(file, (block.start + block.len) * WORD, sum);
        }
    }

    #[test]
    fn headers_are_byte_exact() {
        let file = write(CdoBuilder::new().nop(&[]).write(0x0021_DE04, 3)).unwrap();
        // 5 header words, 1 + 3 command words, padded from 9 to 12 words.
        assert_eq!(file.len(), 0x150 + 48);
        let words = Words::new(&file, 0).to_vec();
        let mut expected = vec![0x0000_00DD, 0x1122_3344, 0x5566_7788, 0x99AA_BBCC];
        expected.extend([0x0004_0000, 1, 0x24, 1, 0x34, 0, 0x14CA_8093, 0, 0, 0, 0x5050_4449]);
        expected.extend([0x0020_1020, 0x30, 0, 0, 0, 0, 1]);
        expected.extend([0; 13]);
        let table: u32 = expected[4..].iter().fold(0, |sum, word| sum.wrapping_add(*word));
        expected.push(!table);
        expected.extend([0x34, 1, 0, 0, 0x5F65_6961, 0x6761_6D69, 0x65, 0, 0x1C00_0000]);
        expected.extend([0, 0, 0, 0, 0, 0, 0x1D39_289B]);
        expected.extend([12, 9, 12, 0, 0, 0, u32::MAX, u32::MAX, 0x54, 0x0200_0006, 1]);
        expected.extend([0; 20]);
        let partition = [12u32, 9, 12, u32::MAX, u32::MAX, 0x54, 0x0200_0006, 1];
        expected.push(!partition.into_iter().fold(0, u32::wrapping_add));
        expected.extend([4, 0x004F_4443, 0x200, 4, !(4 + 0x004F_4443 + 0x200 + 4)]);
        expected.extend([0x111, 0x0002_0103, 0x0021_DE04, 3, 0, 0, 0]);
        assert_eq!(words, expected);
        assert_eq!(Pdi::parse(&file).unwrap().cdo().len(), 4);
    }

    #[rstest]
    #[case::one_word(1)]
    #[case::two_words(2)]
    #[case::three_words(3)]
    #[case::four_words(4)]
    fn every_padding_is_written_and_read(#[case] words: usize) {
        let file = write(CdoBuilder::new().nop(&vec![1; words])).unwrap();
        assert_eq!(file.len() % 16, 0);
        assert_eq!(Pdi::parse(&file).unwrap().cdo().len(), words + 1);
    }

    #[test]
    fn any_changed_header_bit_is_found() {
        let good = sample();
        // The header of the CDO counts too: five words.
        for bit in 0..(CDO_OFFSET + 20) * 8 {
            let mut file = good.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            let plain = Pdi::parse(&file).unwrap_err();
            repair(&mut file, bit / 8);
            let free = (0x98..0x9C).contains(&(bit / 8));
            assert_eq!(Pdi::parse(&file).is_ok(), free, "bit {bit}");
            if (0x10..CDO_OFFSET).contains(&(bit / 8)) {
                assert!(plain.what.ends_with("checksum"), "bit {bit}: {plain}");
            }
        }
    }

    #[test]
    fn an_image_without_measurement_register_is_read() {
        let (mut file, offset) = (sample(), 0xC8);
        put_word(&mut file, offset, u32::MAX);
        assert_eq!(&*Pdi::parse(&file).unwrap_err().what, "PDI image header checksum");
        repair(&mut file, offset);
        assert_eq!(Pdi::parse(&file), Pdi::parse(&sample()));
        put_word(&mut file, offset, u32::MAX - 1);
        repair(&mut file, offset);
        let expected = other_constant("image header", "measurement register", offset, 0, u32::MAX - 1);
        assert_eq!(Pdi::parse(&file), Err(expected));
    }

    #[test]
    fn any_revoke_id_is_read_with_its_checksum() {
        let good = sample();
        let mut file = good.clone();
        put_word(&mut file, 0x98, 0x5555_AAAA);
        assert_eq!(&*Pdi::parse(&file).unwrap_err().what, "PDI image header checksum");
        repair(&mut file, 0x98);
        assert_eq!(Pdi::parse(&file), Pdi::parse(&good));
    }

    #[test]
    fn the_canonical_form_leaves_out_what_varies_and_nothing_else() {
        let good = sample();
        assert!(matches!(canonical(&good), Cow::Borrowed(same) if same == good));
        for (offset, value) in [(0x98, 7), (0xC8, u32::MAX)] {
            let mut file = good.clone();
            put_word(&mut file, offset, value);
            repair(&mut file, offset);
            assert_eq!(canonical(&file), good, "{offset:#x}");
        }
        let other = write(CdoBuilder::new().nop(&[1])).unwrap();
        assert_eq!(canonical(&other), other);
        assert_eq!(&*canonical(&[1, 2, 3]), [1, 2, 3]);
    }

    #[rstest]
    #[case::bus_width(0x04, "bus width pattern")]
    #[case::version(0x10, "version")]
    #[case::image_count(0x14, "image count")]
    #[case::images(0x18, "image header word offset")]
    #[case::partition_count(0x1C, "partition count")]
    #[case::partitions(0x20, "partition header word offset")]
    #[case::boot(0x24, "secondary boot device")]
    #[case::id_code(0x28, "id code")]
    #[case::attributes(0x2C, "unused word")]
    #[case::identification(0x38, "identification \"IDPP\"")]
    #[case::sizes(0x3C, "header sizes")]
    #[case::meta(0x40, "meta header words")]
    #[case::extended(0x54, "extended id code")]
    #[case::image_partition(0x90, "partition header word offset")]
    #[case::sections(0x94, "data section count")]
    #[case::name(0xA4, "image name \"aie_image\"")]
    #[case::image_id(0xB0, "image id")]
    #[case::measurement(0xC8, "measurement register")]
    #[case::exec(0xE0, "unused word")]
    #[case::load(0xEC, "load address (high)")]
    #[case::offset(0xF0, "partition word offset")]
    #[case::kind(0xF4, "attributes (type CDO)")]
    fn changed_constants_are_named(#[case] offset: usize, #[case] name: &str) {
        let mut file = sample();
        let was = word(&file, offset);
        put_word(&mut file, offset, was ^ 0x40);
        repair(&mut file, offset);
        let error = Pdi::parse(&file).unwrap_err();
        assert_eq!((error.offset, &*error.expected), (offset, &*format!("{name} {was:#010x}")));
        assert!(error.found.starts_with(&format!("{:#010x} (only PDIs", was ^ 0x40)), "{}", error.found);
    }

    #[rstest]
    #[case::table(0x8C, "image header table")]
    #[case::image(0xCC, "image header")]
    #[case::partition(0x14C, "partition header")]
    fn wrong_checksums_are_named(#[case] offset: usize, #[case] name: &'static str) {
        let mut file = sample();
        let was = word(&file, offset);
        put_word(&mut file, offset, !was);
        let expected = FormatError::word(format_args!("PDI {name} checksum"), offset, was, !was);
        assert_eq!(Pdi::parse(&file), Err(expected));
    }

    #[test]
    fn the_cdo_checksum_is_checked_at_its_file_offset() {
        let mut file = sample();
        let was = word(&file, 0x160);
        put_word(&mut file, 0x160, was ^ 1);
        assert_eq!(Pdi::parse(&file), Err(FormatError::word("CDO header checksum", 0x160, was, was ^ 1)));
    }

    #[rstest]
    #[case::encrypted(0xD0, 0xD0, "encrypted length in words")]
    #[case::total(0xD8, 0xD8, "file size in bytes by its total partition length")]
    #[case::unencrypted(0xD4, 0xD8, "total partition length in words")]
    fn wrong_lengths_are_named(#[case] changed: usize, #[case] named: usize, #[case] name: &str) {
        let mut file = sample();
        let was = word(&file, changed);
        put_word(&mut file, changed, was + 4);
        repair(&mut file, changed);
        let error = Pdi::parse(&file).unwrap_err();
        assert_eq!((&*error.what, error.offset), (&*format!("PDI {name}"), named));
        assert_ne!(error.expected, error.found);
    }

    #[test]
    fn the_cdo_must_fill_the_partition() {
        let mut file = write(CdoBuilder::new().nop(&[1, 2, 3])).unwrap();
        // Nine words used; eleven pad to the same twelve.
        let used = word(&file, 0xD4);
        put_word(&mut file, 0xD4, used + 2);
        repair(&mut file, 0xD4);
        let expected = "CDO length at offset 0x15c: expected 36 bytes by the header, found 44 bytes";
        assert_eq!(Pdi::parse(&file).unwrap_err().to_string(), expected);
    }

    #[test]
    fn padding_must_be_zero() {
        let mut file = write(CdoBuilder::new().nop(&[])).unwrap();
        let last = file.len() - 4;
        put_word(&mut file, last, 5);
        let expected = format!("PDI padding at offset {last:#x}: expected 0, found 0x00000005");
        assert_eq!(Pdi::parse(&file).unwrap_err().to_string(), expected);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let file = sample();
        for length in 0..file.len() {
            let error = Pdi::parse(&file[..length]).unwrap_err();
            let truncated = format!("PDI at offset 0x0: expected at least 336 bytes of headers, found {length} bytes");
            assert_eq!(error.to_string() == truncated, length < CDO_OFFSET, "{length}: {error}");
        }
        let mut longer = file;
        longer.push(0);
        assert_eq!(&*Pdi::parse(&longer).unwrap_err().what, "PDI file size in bytes by its total partition length");
    }
}
