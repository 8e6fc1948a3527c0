//! Streams as text: one hexadecimal word a line, as older releases of mlir-aie write `insts.txt`.

use super::FormatError;
use crate::format::words::extend;

/// The bytes of a stream that is given as text. None if `text` is not text in this form: then it is the stream itself.
///
/// A stream in its own format has zero bytes in its header, so that no file is both.
#[must_use]
pub fn from_text(text: &[u8]) -> Option<Result<Vec<u8>, FormatError>> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.is_empty() && !text.contains('\0'))?;
    let mut bytes = Vec::with_capacity(text.len() / 2);
    for (number, line) in text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty()) {
        let digits = line.strip_prefix("0x").unwrap_or(line);
        let Some(word) = u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= 8) else {
            let what = format_args!("instructions as text, line {}", number + 1);
            let found: String = line.chars().take(20).collect();
            let offset = line.as_ptr() as usize - text.as_ptr() as usize;
            return Some(Err(FormatError::new(what, offset, "a hexadecimal word", format_args!("`{found}`"))));
        };
        extend(&mut bytes, [word]);
    }
    Some(Ok(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::instructions::{Header, InstructionStream, InstructionWriter};

    #[test]
    fn a_stream_and_its_text_are_the_same() {
        let bytes = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 })
            .block_write(0x1D000, &[1, 0xFFFF_FFFF])
            .finish()
            .unwrap();
        let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let text: String = words.map(|word| format!("{word:08X}\n")).collect();
        let read = from_text(text.as_bytes()).unwrap().unwrap();
        assert_eq!(read, bytes);
        assert!(InstructionStream::parse(&read).is_ok());
        assert!(from_text(&bytes).is_none() && from_text(b"").is_none());
    }

    #[test]
    fn a_line_that_is_no_word_is_named() {
        let error = from_text(b"06030100\n0x1\nhello\n").unwrap().unwrap_err();
        assert_eq!((&*error.what, error.offset, &*error.found), ("instructions as text, line 3", 13, "`hello`"));
        assert!(from_text(b"123456789\n").unwrap().is_err());
    }
}
