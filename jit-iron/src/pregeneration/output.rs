//! The directory that kernels are written to.

use super::links::make_links;
use crate::configuration::KernelRequest;
use crate::directory;
use crate::kernel_files::{KernelFiles, UNFINISHED};
use crate::lock::{Lock, Locks};
use crate::manifest::{Manifest, Origin};
use crate::pack;
use aie_hal::KernelArtifact;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest manifest that is read, in bytes.
const MANIFEST_LIMIT: usize = 1 << 20;

/// An output directory cannot be used.
#[derive(Debug, Error)]
#[error("output directory {}: cannot {action}: {source}; name a directory that you may write to with --output-dir", path.display())]
pub struct OutputError {
    /// The directory.
    pub path: PathBuf,
    /// What was tried.
    pub action: &'static str,
    /// What the file system said.
    pub source: io::Error,
}

/// An output directory. Thread-safe; several processes may write to one.
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    locks: Locks,
}

impl OutputDirectory {
    /// Uses `path`, making it when it is not there. What killed runs have left half written is swept up.
    ///
    /// # Errors
    /// It cannot be created or written.
    pub fn open(path: &Path) -> Result<Self, OutputError> {
        let failed = |action| move |source| OutputError { path: path.into(), action, source };
        fs::create_dir_all(path).map_err(failed("create it"))?;
        let this = Self { path: path.into(), locks: Locks::of(path) };
        // Only when nobody else is writing: their unfinished files are theirs.
        if let Some(_everything) = this.locks.try_lock_all().map_err(failed("create the file .lock in it"))? {
            this.sweep().map_err(failed("remove what an earlier run left unfinished"))?;
        }
        Ok(this)
    }

    fn sweep(&self) -> io::Result<()> {
        let folders =
            fs::read_dir(&self.path)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for folder in folders.map(|entry| entry.path()).chain([self.path.clone()]) {
            for file in fs::read_dir(folder)?.flatten() {
                if file.file_name().to_string_lossy().starts_with(UNFINISHED) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the kernels of a generation are.
    pub fn folder(&self, arch: &str) -> PathBuf {
        self.path.join(arch)
    }

    /// Waits until nobody else makes this kernel.
    ///
    /// # Errors
    /// What the file system said.
    pub fn lock(&self, kernel: &KernelRequest) -> io::Result<Lock> {
        self.locks.lock(&format!("{}/{}", kernel.arch.name, kernel.exported_name))
    }

    /// Waits until nobody else makes a pack.
    ///
    /// # Errors
    /// What the file system said.
    pub fn lock_packs(&self) -> io::Result<Lock> {
        self.locks.lock(pack::ENDING)
    }

    /// The kernel that is there, if it is whole and made from `origin`.
    ///
    /// # Errors
    /// Why the kernel has to be made again; empty when there is none.
    pub fn current(&self, kernel: &KernelRequest, origin: &Origin) -> Result<KernelArtifact, String> {
        current(&self.folder(&kernel.arch.name), kernel, Some(origin))
    }

    /// Writes a kernel. The caller holds its lock.
    ///
    /// # Errors
    /// What the file system said.
    pub fn write(&self, kernel: &KernelRequest, artifact: &KernelArtifact, manifest: &Manifest) -> Result<(), String> {
        let files = KernelFiles::new(self.folder(&kernel.arch.name), kernel.exported_name.as_str());
        let failed = |error: io::Error| format!("cannot write {}: {error}", files.pdi().display());
        files.publish(artifact, manifest).map_err(failed)
    }

    /// Makes links to a kernel that is there. The caller holds its lock.
    ///
    /// # Errors
    /// What the file system said, or what is in the way.
    pub fn link(&self, kernel: &KernelRequest, names: &[String]) -> Result<(), String> {
        let folder = self.folder(&kernel.arch.name);
        names.iter().try_for_each(|name| make_links(&folder, name, &kernel.exported_name))
    }
}

/// The kernel in `folder`, if it is whole and was made from `origin` (`None`: from whatever).
///
/// # Errors
/// Why not; empty when there is none.
pub(super) fn current(
    folder: &Path,
    kernel: &KernelRequest,
    origin: Option<&Origin>,
) -> Result<KernelArtifact, String> {
    let files = KernelFiles::new(folder, kernel.exported_name.as_str());
    if !files.pdi().exists() {
        return Err(String::new());
    }
    let again = |reason: &dyn ToString| format!("made again: {}", reason.to_string());
    let read = crate::kernel_files::read(&files.manifest(), MANIFEST_LIMIT);
    let manifest = match read.map_err(|(_, reason)| again(&reason))? {
        Some((text, _)) => Manifest::parse(&text).map_err(|reason| again(&reason))?,
        None => return Err(again(&"it has no manifest")),
    };
    if let Some(difference) = origin.and_then(|origin| manifest.origin.difference(origin)) {
        return Err(again(&difference));
    }
    let loaded = directory::load(&files, kernel.op, &kernel.name, &kernel.node, &kernel.arch);
    match loaded.map_err(|error| again(&error))? {
        Some(artifact) => Ok(artifact),
        None => Err(again(&"the files are not those of this kernel")),
    }
}
