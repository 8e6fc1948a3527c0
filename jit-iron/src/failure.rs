//! Compile failures, cached where the kernels would be.
//!
//! `<stem>.failed.json` says why a kernel could not be compiled and from what, `<stem>.failed.log` holds all that the compiler
//! printed. As long as sources, options and toolchain stay the same, it is not retried. They are notes of the store's own: one that
//! cannot be read is ignored.

use crate::kernel_files::{KernelFiles, read, remove, unfinished};
use crate::manifest::Origin;
use aie_ops::Node;
use aie_ops::compiler::{CompileError, Failure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest note that is read.
const LIMIT: usize = 1 << 20;
/// Most of the compiler's output that comes with a remembered failure; the file has all of it.
const OUTPUT_LIMIT: usize = 64 << 20;

/// The content of `<stem>.failed.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRecord {
    version: u32,
    program: String,
    /// What it was to be built from.
    pub origin: Origin,
    /// The normalised node.
    pub node: Node,
    /// Why there is no kernel.
    pub cause: String,
    /// When that was found, in seconds since 1970.
    pub failed: u64,
}

impl FailureRecord {
    /// The note of a kernel.
    pub fn path(files: &KernelFiles) -> PathBuf {
        files.folder().join(format!("{}.failed.json", files.stem()))
    }

    /// What the compiler printed.
    pub fn output_path(files: &KernelFiles) -> PathBuf {
        files.folder().join(format!("{}.failed.log", files.stem()))
    }

    /// Reads a note.
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|record: &Self| record.version == 1 && record.program == "aie-hal")
    }

    /// The failure of an earlier attempt with the same origin, as an error that says where it comes from.
    pub fn find(files: &KernelFiles, origin: &Origin) -> Option<CompileError> {
        let path = Self::path(files);
        let (text, _) = read(&path, LIMIT).ok()??;
        let record = Self::parse(&text).filter(|record| record.origin.difference(origin).is_none())?;
        let output = read(&Self::output_path(files), OUTPUT_LIMIT).ok().flatten().map(|(bytes, _)| bytes);
        let note = format!("{} (cached in {}; remove it to try again)", record.cause, path.display());
        Some(CompileError::Failed(Failure { cause: note, output: output.unwrap_or_else(|| Arc::from([])) }))
    }

    /// Writes a failure.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn keep(files: &KernelFiles, node: &Node, origin: Origin, failure: &Failure) -> io::Result<()> {
        fs::create_dir_all(files.folder())?;
        let failed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (program, cause, node) = ("aie-hal".into(), failure.cause.clone(), node.clone());
        let record = Self { version: 1, program, origin, node, cause, failed };
        let mut text = serde_json::to_vec(&record)?;
        text.push(b'\n');
        if failure.output.is_empty() {
            remove(&Self::output_path(files))?;
        } else {
            unfinished(files.folder(), &failure.output)?.persist(Self::output_path(files))?;
        }
        unfinished(files.folder(), &text)?.persist(Self::path(files))?;
        Ok(())
    }

    /// Forgets the failure of a kernel that is there now.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn forget(files: &KernelFiles) -> io::Result<()> {
        remove(&Self::path(files))?;
        remove(&Self::output_path(files))
    }
}
