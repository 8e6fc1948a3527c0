//! Why bytes are not what their format says.

use super::MAX_WORDS;
use std::fmt::Display;

/// A file is not in its format, or cannot be written in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at offset {offset:#x}: expected {expected}, found {found}")]
#[non_exhaustive]
pub struct FormatError {
    /// What is wrong, with the kind of file.
    pub what: Box<str>,
    /// Where it is in the file, in bytes.
    pub offset: usize,
    /// What the format asks for.
    pub expected: Box<str>,
    /// What is there.
    pub found: Box<str>,
}

impl FormatError {
    pub(super) fn new(what: impl Display, offset: usize, expected: impl Display, found: impl Display) -> Self {
        let [what, expected, found] = [what.to_string(), expected.to_string(), found.to_string()].map(Into::into);
        Self { what, offset, expected, found }
    }

    /// A word is another one.
    pub(super) fn word(what: impl Display, offset: usize, expected: u32, found: u32) -> Self {
        Self::new(what, offset, format_args!("{expected:#010x}"), format_args!("{found:#010x}"))
    }

    /// A file to be written has more words than the device heap.
    pub(super) fn too_long(what: &str, words: usize) -> Self {
        let expected = format_args!("at most {MAX_WORDS} words, as many as the device heap holds");
        Self::new(what, 0, expected, format_args!("{words} words: split the kernel"))
    }
}
