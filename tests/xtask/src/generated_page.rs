//! A page of the documentation that a command writes, prints, or compares with what is there.

use crate::workspace;
use anyhow::{Result, bail};
use std::path::PathBuf;

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
            return crate::files::write(&path, text);
        }
        if check {
            return self.compare(text);
        }
        crate::output::put(format_args!("{text}"));
        Ok(())
    }

    /// Errors when the file is not `text`, naming the first line that differs.
    pub fn compare(&self, text: &str) -> Result<()> {
        let path = self.path();
        let there = crate::files::read(&path)?;
        if there == text {
            return Ok(());
        }
        let line = there.lines().zip(text.lines()).take_while(|(there, here)| there == here).count() + 1;
        let Self { file, command } = self;
        bail!("{file} is out of date from line {line} on; write it with `cargo xtask gen {command} --write`");
    }
}
