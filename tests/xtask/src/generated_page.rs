//! A page of the documentation that a command writes, prints, or compares with what is there.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// A page and its command.
#[derive(Debug, Clone, Copy)]
pub struct GeneratedPage {
    /// The file, from the root of the workspace.
    pub file: &'static str,
    /// The command that makes it: `cargo xtask gen COMMAND`.
    pub command: &'static str,
}

impl GeneratedPage {
    pub fn path(&self) -> PathBuf {
        workspace::root().join(self.file)
    }

    /// Writes `text`, compares with it, or prints it.
    pub fn make(&self, text: &str, write: bool, check: bool) -> Result<()> {
        if write {
            let path = self.path();
            return fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
        }
        if check {
            return self.compare(text);
        }
        print!("{text}");
        Ok(())
    }

    /// Errors when the file is not `text`, naming the first line that differs.
    pub fn compare(&self, text: &str) -> Result<()> {
        let path = self.path();
        let there = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if there == text {
            return Ok(());
        }
        let line = there.lines().zip(text.lines()).take_while(|(there, here)| there == here).count() + 1;
        let Self { file, command } = self;
        bail!("{file} is out of date from line {line} on; write it with `cargo xtask gen {command} --write`");
    }
}
