//! The table beside the programs: how each is run, and what has to come out.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file `programs.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    #[serde(rename = "program", default)]
    programs: Vec<Program>,
}

/// A program: files are relative to the table's folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub name: String,
    /// The generation, by its name in the arch files.
    pub arch: String,
    /// A PDI, or an xclbin with one.
    pub image: PathBuf,
    /// The instruction stream.
    pub instructions: PathBuf,
    /// The stream's arguments in their order.
    #[serde(rename = "argument", default)]
    pub arguments: Vec<Argument>,
}

/// A buffer that the stream is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// What is in it before the run.
    pub input: Option<PathBuf>,
    /// Its size, if it is zero before the run.
    pub output: Option<usize>,
    /// What its first bytes have to be after the run.
    pub expected: Option<PathBuf>,
    /// What it holds, for messages and tolerances.
    #[serde(rename = "type", default)]
    pub element: Element,
    /// The largest difference allowed besides the relative one.
    #[serde(default)]
    pub absolute: f64,
    /// The largest difference allowed, as a share of what is expected.
    #[serde(default)]
    pub relative: f64,
}

impl Argument {
    /// Whether all bits have to be as expected.
    pub fn is_exact(&self) -> bool {
        self.absolute == 0.0 && self.relative == 0.0
    }
}

/// The numbers in a buffer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    #[default]
    U8,
    I8,
    I16,
    I32,
    Bf16,
    F32,
}

impl Element {
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
        }
    }

    /// One element's value; `bytes` are exactly its own.
    pub fn value(self, bytes: &[u8]) -> f64 {
        let word = bytes.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        match self {
            Self::U8 => f64::from(word),
            Self::I8 => f64::from(word as u8 as i8),
            Self::I16 => f64::from(word as u16 as i16),
            Self::I32 => f64::from(word as i32),
            Self::Bf16 => f64::from(f32::from_bits(word << 16)),
            Self::F32 => f64::from(f32::from_bits(word)),
        }
    }
}

/// Reads a table and checks what its types do not.
pub fn read(path: &Path) -> Result<Vec<Program>> {
    let manifest: Manifest = toml::from_str(&crate::read(path)?).with_context(|| format!("{}", path.display()))?;
    for program in &manifest.programs {
        let name = &program.name;
        for argument in &program.arguments {
            ensure!(
                argument.input.is_some() != argument.output.is_some(),
                "{name}: an argument has `input` or `output`"
            );
        }
        let judged = program.arguments.iter().any(|argument| argument.expected.is_some());
        ensure!(judged, "{name}: no argument has `expected`");
    }
    Ok(manifest.programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_numbers() {
        assert_eq!(Element::I16.value(&[0xfe, 0xff]), -2.0);
        assert_eq!(Element::I8.value(&[0x80]), -128.0);
        assert_eq!(Element::Bf16.value(&[0xc0, 0x3f]), 1.5);
        assert_eq!(Element::F32.value(&1.25f32.to_le_bytes()), 1.25);
    }

    #[test]
    fn a_program_that_nothing_judges_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("programs.toml");
        let head =
            "[[program]]\nname = 'a'\narch = 'aie2'\nimage = 'a.pdi'\ninstructions = 'a.txt'\n[[program.argument]]\n";
        std::fs::write(&path, format!("{head}output = 4\n")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("expected"));
        std::fs::write(&path, format!("{head}output = 4\nexpected = 'a.bin'\n")).unwrap();
        assert!(read(&path).unwrap()[0].arguments[0].is_exact());
        std::fs::write(&path, format!("{head}output = 4\ninput = 'a.bin'\nexpected = 'a.bin'\n")).unwrap();
        assert!(read(&path).is_err());
    }
}
