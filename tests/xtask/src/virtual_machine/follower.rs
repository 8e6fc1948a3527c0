//! A program's output as it arrives in a file.

use super::guest::Stream;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Reads a file that grows.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    stream: Stream,
    file: Option<File>,
    text: Vec<u8>,
}

impl Follower {
    /// The file need not be there yet.
    pub fn new(path: PathBuf, stream: Stream) -> Self {
        Self { path, stream, file: None, text: Vec::new() }
    }

    /// Takes what was added since the last time; a file that is not there yet has nothing.
    pub fn follow(&mut self, on_output: &mut impl FnMut(Stream, &[u8])) -> Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let before = self.text.len();
        file.read_to_end(&mut self.text).with_context(|| format!("cannot read {}", self.path.display()))?;
        if self.text.len() > before {
            on_output(self.stream, &self.text[before..]);
        }
        Ok(())
    }

    /// Everything that was read.
    pub fn into_text(self) -> Vec<u8> {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_growing_file_is_read_piece_by_piece() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.out");
        let mut follower = Follower::new(path.clone(), Stream::Output);
        let mut seen = Vec::new();
        for text in ["", "a", "ab", "ab"] {
            if !text.is_empty() {
                fs::write(&path, text).unwrap();
            }
            follower.follow(&mut |_, bytes| seen.push(String::from_utf8_lossy(bytes).into_owned())).unwrap();
        }
        assert_eq!(seen, ["a", "b"]);
        assert_eq!(follower.text, b"ab");
    }
}
