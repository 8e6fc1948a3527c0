//! The beginning of a GGUF file: its entries, and the names, types and shapes of its tensors.
//!
//! Every count in a file may be wrong, so nothing is allocated for more than the file has bytes for. Elements of long lists, which are
//! vocabularies, are skipped. Keys are taken as they are: names of architectures have hyphens, which GGUF's own rules do not allow.
//! Source of the layout: ggml's `docs/gguf.md`, versions 2 and 3.

use gguf_rs_lib::format::metadata::{MetadataArray, MetadataValue};
use gguf_rs_lib::format::{GGUFTensorType, GGUFValueType, Metadata};
use std::io::{self, Read};

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];
/// Longest list whose elements are read: one for each layer.
const LONGEST_LIST: u64 = 4096;
/// Deepest list in lists.
const DEEPEST: usize = 4;

/// A file that is no GGUF file, or a damaged one.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It ends early, or cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// What is wrong, and where.
    #[error("at byte {at}: {what}")]
    Content {
        /// Byte of the file.
        at: u64,
        /// What is wrong.
        what: String,
    },
}

/// A tensor's name, ggml's name of its type, and its extents.
pub type TensorInfo = (String, &'static str, Vec<u64>);

/// Reads the beginning of a file of `length` bytes.
///
/// # Errors
/// [`GgufError`].
pub fn read(source: impl Read, length: u64) -> Result<(Metadata, Vec<TensorInfo>), GgufError> {
    let mut reader = Reader { source, at: 0, length };
    if reader.bytes()? != MAGIC {
        return Err(reader.wrong("it does not begin with GGUF".into()));
    }
    let version = u32::from_le_bytes(reader.bytes()?);
    if !VERSIONS.contains(&version) {
        return Err(reader.wrong(format!("version {version}; versions 2 and 3 are known")));
    }
    // A tensor has a name, a number of dimensions, a type and an offset; an entry a key and a type.
    let tensors = reader.count("tensors", 8 + 4 + 4 + 8)?;
    let entries = reader.count("entries", 8 + 4 + 1)?;
    let mut metadata = Metadata::new();
    for _ in 0..entries {
        let key = reader.text()?;
        let kind = reader.kind()?;
        let value = reader.value(kind, 0)?;
        metadata.insert(key, value);
    }
    let mut infos = Vec::new();
    for _ in 0..tensors {
        let name = reader.text()?;
        let dimensions = u32::from_le_bytes(reader.bytes()?);
        if dimensions > 8 {
            return Err(reader.wrong(format!("tensor {name} has {dimensions} dimensions, ggml knows four")));
        }
        let extents = (0..dimensions).map(|_| reader.bytes().map(u64::from_le_bytes)).collect::<Result<_, _>>()?;
        let number = u32::from_le_bytes(reader.bytes()?);
        let kind = GGUFTensorType::from_u32(number);
        let kind = kind.map_err(|_| reader.wrong(format!("tensor {name} has the unknown type {number}")))?;
        let _offset: [u8; 8] = reader.bytes()?;
        infos.push((name, kind.name(), extents));
    }
    Ok((metadata, infos))
}

struct Reader<R> {
    source: R,
    at: u64,
    length: u64,
}

impl<R: Read> Reader<R> {
    fn wrong(&self, what: String) -> GgufError {
        GgufError::Content { at: self.at, what }
    }

    fn left(&self) -> u64 {
        self.length.saturating_sub(self.at)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// A number of things that have at least `least` bytes each.
    fn count(&mut self, what: &str, least: u64) -> Result<u64, GgufError> {
        let count = u64::from_le_bytes(self.bytes()?);
        if count > self.left() / least {
            let left = self.left();
            return Err(self.wrong(format!("{count} {what}, with {left} bytes left in the file")));
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<String, GgufError> {
        let length = self.count("characters", 1)?;
        let mut bytes = Vec::new();
        let read = (&mut self.source).take(length).read_to_end(&mut bytes)? as u64;
        self.at += read;
        if read < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        String::from_utf8(bytes).map_err(|_| self.wrong("a text that is not UTF-8".into()))
    }

    fn skip(&mut self, length: u64) -> Result<(), GgufError> {
        let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
        self.at += skipped;
        if skipped < length { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) } else { Ok(()) }
    }

    fn kind(&mut self) -> Result<GGUFValueType, GgufError> {
        let number = u32::from_le_bytes(self.bytes()?);
        GGUFValueType::from_u32(number).map_err(|_| self.wrong(format!("a value of the unknown type {number}")))
    }

    fn value(&mut self, kind: GGUFValueType, depth: usize) -> Result<MetadataValue, GgufError> {
        Ok(match kind {
            GGUFValueType::U8 => MetadataValue::U8(u8::from_le_bytes(self.bytes()?)),
            GGUFValueType::I8 => MetadataValue::I8(i8::from_le_bytes(self.bytes()?)),
            GGUFValueType::U16 => MetadataValue::U16(u16::from_le_bytes(self.bytes()?)),
            GGUFValueType::I16 => MetadataValue::I16(i16::from_le_bytes(self.bytes()?)),
            GGUFValueType::U32 => MetadataValue::U32(u32::from_le_bytes(self.bytes()?)),
            GGUFValueType::I32 => MetadataValue::I32(i32::from_le_bytes(self.bytes()?)),
            GGUFValueType::F32 => MetadataValue::F32(f32::from_le_bytes(self.bytes()?)),
            GGUFValueType::Bool => MetadataValue::Bool(self.bytes::<1>()? != [0]),
            GGUFValueType::U64 => MetadataValue::U64(u64::from_le_bytes(self.bytes()?)),
            GGUFValueType::I64 => MetadataValue::I64(i64::from_le_bytes(self.bytes()?)),
            GGUFValueType::F64 => MetadataValue::F64(f64::from_le_bytes(self.bytes()?)),
            GGUFValueType::String => MetadataValue::String(self.text()?),
            GGUFValueType::Array if depth < DEEPEST => self.list(depth)?,
            GGUFValueType::Array => return Err(self.wrong("lists in lists in lists".into())),
        })
    }

    fn list(&mut self, depth: usize) -> Result<MetadataValue, GgufError> {
        let element_type = self.kind()?;
        let size = match element_type {
            GGUFValueType::U8 | GGUFValueType::I8 | GGUFValueType::Bool => 1,
            GGUFValueType::U16 | GGUFValueType::I16 => 2,
            GGUFValueType::U32 | GGUFValueType::I32 | GGUFValueType::F32 => 4,
            // A text has at least its length, a list type and length.
            _ => 8,
        };
        let length = self.count("elements", size)?;
        let mut values = Vec::new();
        match element_type {
            _ if length <= LONGEST_LIST => {
                for _ in 0..length {
                    values.push(self.value(element_type, depth + 1)?);
                }
            }
            GGUFValueType::String => {
                for _ in 0..length {
                    let length = self.count("characters", 1)?;
                    self.skip(length)?;
                }
            }
            GGUFValueType::Array => return Err(self.wrong(format!("a list of {length} lists"))),
            _ => self.skip(length * size)?,
        }
        Ok(MetadataValue::Array(Box::new(MetadataArray { element_type, length, values })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
    }

    /// A file of an architecture with a hyphen: two entries, a vocabulary and one tensor.
    fn sample() -> Vec<u8> {
        let mut file = [&MAGIC[..], &3u32.to_le_bytes(), &1u64.to_le_bytes(), &3u64.to_le_bytes()].concat();
        file.extend([text("general.architecture"), 8u32.to_le_bytes().into(), text("gpt-oss")].concat());
        file.extend([text("gpt-oss.block_count"), 4u32.to_le_bytes().into(), 2u32.to_le_bytes().into()].concat());
        file.extend([text("tokens"), 9u32.to_le_bytes().into(), 8u32.to_le_bytes().into()].concat());
        file.extend(5000u64.to_le_bytes());
        (0..5000).for_each(|_| file.extend(text("x")));
        file.extend([text("blk.0.a"), 2u32.to_le_bytes().into()].concat());
        file.extend([&32u64.to_le_bytes()[..], &4u64.to_le_bytes(), &8u32.to_le_bytes(), &0u64.to_le_bytes()].concat());
        file
    }

    fn parse(file: &[u8]) -> Result<(Metadata, Vec<TensorInfo>), GgufError> {
        read(file, file.len() as u64)
    }

    #[test]
    fn names_with_hyphens_and_long_vocabularies_are_read() {
        let (metadata, tensors) = parse(&sample()).unwrap();
        assert_eq!(metadata.get_string("general.architecture"), Some("gpt-oss"));
        assert_eq!(metadata.get("gpt-oss.block_count"), Some(&MetadataValue::U32(2)));
        assert!(matches!(metadata.get("tokens"), Some(MetadataValue::Array(list)) if list.values.is_empty()));
        assert_eq!(tensors, [("blk.0.a".to_owned(), "Q8_0", vec![32, 4])]);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let file = sample();
        for length in (0..200).chain(file.len() - 60..file.len()) {
            assert!(parse(&file[..length]).is_err(), "{length}");
        }
    }

    /// Counts larger than the file, at every place where a file has eight bytes: none may ask for memory or time.
    #[rstest]
    #[case(u64::MAX)]
    #[case(1 << 40)]
    #[case(u64::from(u32::MAX))]
    fn counts_are_bound_by_what_the_file_holds(#[case] count: u64) {
        let file = sample();
        for at in (8..200).chain(file.len() - 60..file.len() - 8) {
            let mut changed = file.clone();
            changed[at..at + 8].copy_from_slice(&count.to_le_bytes());
            if let Ok((_, tensors)) = parse(&changed) {
                assert!(tensors.len() <= 1, "{at}");
            }
        }
        let mut changed = file;
        changed[8..16].copy_from_slice(&count.to_le_bytes());
        let message = parse(&changed).unwrap_err().to_string();
        assert!(message.contains(&format!("{count} tensors, with ")), "{message}");
    }
}
