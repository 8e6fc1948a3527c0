//! xclbin: the container in which XRT's tools hand out PDIs, read as far as that.
//!
//! A header is followed by the headers of sections: kind, name, offset, size. The section of kind 32 describes a
//! partition of the array and holds its PDIs; all offsets in it are from its own start. Kernels are never loaded from an
//! xclbin here; reading one is for tools that are given a file of somebody else. Source: the structures of XRT's public
//! header `xclbin.h` (`axlf`, `aie_partition`, `aie_pdi`), and files of mlir-aie.

use super::error::FormatError;

const MAGIC: &[u8] = b"xclbin2\0";
const SECTION_COUNT: usize = 0x1C0;
const SECTIONS: usize = 0x1C8;
const SECTION_BYTES: usize = 40;
const SECTION_OFFSET: usize = 0x18;
const SECTION_SIZE: usize = 0x20;
const AIE_PARTITION: u64 = 32;
const PDI_COUNT: usize = 0x78;
const FIRST_PDI: usize = 0x7C;
const PDI_BYTES: usize = 96;
const PDI_SIZE: usize = 0x10;
const PDI_OFFSET: usize = 0x14;

/// Whether `bytes` start as an xclbin does.
#[must_use]
pub fn is_xclbin(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// The PDIs of the partitions of an xclbin, in file order. They are not validated.
///
/// # Errors
/// When `bytes` are no xclbin, one of its parts lies outside of the file, or it has no PDI.
pub fn pdis(bytes: &[u8]) -> Result<Vec<&[u8]>, FormatError> {
    if !is_xclbin(bytes) {
        let found = format_args!("{} bytes that start with something else", bytes.len());
        return Err(FormatError::new("xclbin", 0, "magic \"xclbin2\\0\"", found));
    }
    let mut pdis = Vec::new();
    let file = Part { bytes, start: 0 };
    for index in 0..file.number::<4>("section count", SECTION_COUNT)? {
        let header = file.item(SECTIONS, index, SECTION_BYTES)?;
        if header.number::<4>("section kind", 0)? != AIE_PARTITION {
            continue;
        }
        let offset = header.number::<8>("section offset", SECTION_OFFSET)?;
        let section = file.part("partition section", offset, header.number::<8>("section size", SECTION_SIZE)?)?;
        let first = section.number::<4>("PDI table offset", FIRST_PDI)?;
        for number in 0..section.number::<4>("PDI count", PDI_COUNT)? {
            let entry = section.item(first as usize, number, PDI_BYTES)?;
            let offset = entry.number::<4>("PDI offset", PDI_OFFSET)?;
            pdis.push(section.part("PDI", offset, entry.number::<4>("PDI size", PDI_SIZE)?)?.bytes);
        }
    }
    if pdis.is_empty() {
        return Err(FormatError::new("xclbin", SECTIONS, "a PDI in a section of kind 32 (AIE_PARTITION)", "none"));
    }
    Ok(pdis)
}

/// A part of the file, and where in the file it starts.
#[derive(Clone, Copy)]
struct Part<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Part<'a> {
    /// The little-endian number of `N` bytes, at most 8, at `at`.
    fn number<const N: usize>(self, what: &str, at: usize) -> Result<u64, FormatError> {
        let bytes = self.part(what, at as u64, N as u64)?.bytes;
        Ok(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// Entry `index` of the table at `first`.
    fn item(self, first: usize, index: u64, bytes: usize) -> Result<Self, FormatError> {
        let offset = index.saturating_mul(bytes as u64).saturating_add(first as u64);
        self.part("table entry", offset, bytes as u64)
    }

    fn part(self, what: &str, offset: u64, size: u64) -> Result<Self, FormatError> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(offset.saturating_add(size)).ok());
        let bytes = range.and_then(|(from, to)| self.bytes.get(from..to));
        let start = self.start.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX));
        let error = || {
            let found = format_args!("the end after {}", self.bytes.len());
            FormatError::new(format_args!("xclbin {what}"), start, format_args!("{size} bytes at {offset:#x}"), found)
        };
        bytes.map(|bytes| Self { bytes, start }).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An xclbin with a section of another kind and a partition with `pdis`.
    fn sample(pdis: &[&[u8]]) -> Vec<u8> {
        let mut section = vec![0; 0xB8];
        let put = |bytes: &mut Vec<u8>, at: usize, value: usize| {
            bytes[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap().to_le_bytes());
        };
        put(&mut section, 0x78, pdis.len());
        put(&mut section, 0x7C, 0xB8);
        section.resize(0xB8 + 96 * pdis.len(), 0);
        for (index, pdi) in pdis.iter().enumerate() {
            put(&mut section, 0xB8 + 96 * index + 0x10, pdi.len());
            let end = section.len();
            put(&mut section, 0xB8 + 96 * index + 0x14, end);
            section.extend(*pdi);
        }
        let mut file = vec![0; 0x1C8 + 2 * 40];
        file[..8].copy_from_slice(b"xclbin2\0");
        put(&mut file, 0x1C0, 2);
        put(&mut file, 0x1C8, 6);
        put(&mut file, 0x1F0, 32);
        let end = file.len();
        put(&mut file, 0x1F0 + 0x18, end);
        put(&mut file, 0x1F0 + 0x20, section.len());
        file.extend(section);
        file
    }

    #[test]
    fn pdis_are_found() {
        let file = sample(&[b"first", b"second one"]);
        assert_eq!(pdis(&file).unwrap(), [&b"first"[..], b"second one"]);
    }

    #[test]
    fn an_xclbin_without_a_pdi_and_other_files_are_named() {
        assert!(pdis(&sample(&[])).unwrap_err().to_string().contains("AIE_PARTITION"));
        assert!(pdis(b"\x7fELF").unwrap_err().to_string().contains("magic"));
    }

    #[test]
    fn no_cut_panics_or_is_read() {
        let file = sample(&[b"first", b"second one"]);
        for end in 0..file.len() {
            assert!(pdis(&file[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn counts_and_offsets_are_checked_against_the_file() {
        for at in (8..0x1C8 + 80 + 0xB8 + 192 - 4).step_by(4) {
            let mut file = sample(&[b"first", b"second one"]);
            file[at..at + 4].copy_from_slice(&[0xFF; 4]);
            // Whatever comes out lies in the file.
            let _ = pdis(&file);
        }
    }
}
