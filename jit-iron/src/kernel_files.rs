//! The files of one kernel: `<stem>.pdi`, `<stem>_insts.bin` and its manifest `<stem>.json`.
//!
//! Three files cannot appear at one moment, so one of them decides: **a kernel exists when its PDI does**. Writers create the PDI
//! last and remove it first, each file atomically, so that a reader who sees the PDI finds the rest, whichever
//! backend it belongs to. Writers hold the kernel's lock ([`crate::lock`]); readers need none: a pair that was replaced
//! while being read does not fit its manifest, and reading again under the lock decides.

use crate::manifest::Manifest;
use aie_hal::artifact::ArtifactError;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Prefix of files that are being written. What a killed writer leaves is removed.
pub const UNFINISHED: &str = ".making-";

/// A file that cannot be read, and why.
pub type Fault = (PathBuf, String);
/// One of a kernel's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Pdi,
    Instructions,
}
/// A file's content and the user it belongs to.
pub(crate) type Owned = (Arc<[u8]>, u32);

/// Where the files of a kernel are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFiles {
    folder: PathBuf,
    stem: String,
}

/// The content of a kernel's files.
#[derive(Debug)]
pub struct Content {
    /// The PDI.
    pub pdi: Arc<[u8]>,
    /// The instruction stream; `None` when there is no such file.
    pub instructions: Option<Arc<[u8]>>,
    /// The manifest; `None` when there is no such file.
    pub manifest: Option<Arc<[u8]>>,
    /// The user all files belong to; `None` when they belong to several.
    pub owner: Option<u32>,
}

impl KernelFiles {
    /// The kernel with this stem in `folder`. Touches nothing.
    pub fn new(folder: impl Into<PathBuf>, stem: impl Into<String>) -> Self {
        Self { folder: folder.into(), stem: stem.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The beginning of the files' names.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// The PDI.
    pub fn pdi(&self) -> PathBuf {
        self.folder.join(format!("{}.pdi", self.stem))
    }

    /// The instruction stream.
    pub fn instructions(&self) -> PathBuf {
        self.folder.join(format!("{}_insts.bin", self.stem))
    }

    /// The manifest.
    pub fn manifest(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem))
    }

    /// The code object that may be there in the place of PDI and stream.
    pub fn hsaco(&self) -> PathBuf {
        self.folder.join(format!("{}.hsaco", self.stem))
    }

    /// All three, the PDI first.
    pub fn all(&self) -> [PathBuf; 3] {
        [self.pdi(), self.instructions(), self.manifest()]
    }

    /// Writes the kernel, replacing an existing one. Creates the folder. The caller holds the kernel's lock.
    ///
    /// # Errors
    /// Errors of the file system. The kernel is not there then, neither the old one nor half of the new one.
    pub fn publish(&self, artifact: &KernelArtifact, manifest: &Manifest) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let instructions = unfinished(&self.folder, artifact.instructions())?;
        let description = unfinished(&self.folder, &manifest.to_json()?)?;
        let pdi = unfinished(&self.folder, artifact.pdi())?;
        remove(&self.pdi())?;
        instructions.persist(self.instructions())?;
        description.persist(self.manifest())?;
        pdi.persist(self.pdi())?;
        Ok(())
    }

    /// Reads the files, each at most `limit` bytes. `None` when there is no PDI, so no kernel.
    ///
    /// # Errors
    /// The file and why it cannot be read.
    pub fn read(&self, limit: usize) -> Result<Option<Content>, Fault> {
        let Some((pdi, owner)) = read(&self.pdi(), limit)? else { return Ok(None) };
        let (instructions, manifest) = (read(&self.instructions(), limit)?, read(&self.manifest(), limit)?);
        let same = [&instructions, &manifest].into_iter().flatten().all(|(_, other)| *other == owner);
        let owner = same.then_some(owner);
        let bytes = |file: Option<Owned>| file.map(|(bytes, _)| bytes);
        Ok(Some(Content { pdi, instructions: bytes(instructions), manifest: bytes(manifest), owner }))
    }

    /// Where a fault of a kernel is.
    pub(crate) fn fault(&self, (part, reason): (Part, String)) -> Fault {
        (if part == Part::Pdi { self.pdi() } else { self.instructions() }, reason)
    }
}

/// Puts an artifact together, which validates both files, and compares it with its manifest and the node it is for, as far as
/// they are known.
pub(crate) fn assemble(
    name: &str,
    arch: &Arch,
    pdi: Arc<[u8]>,
    instructions: Arc<[u8]>,
    manifest: Option<&Manifest>,
    node: Option<&Node>,
) -> Result<KernelArtifact, (Part, String)> {
    let artifact = KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, pdi, instructions).map_err(|error| {
        let part = if matches!(error, ArtifactError::Pdi { .. }) { Part::Pdi } else { Part::Instructions };
        (part, error.to_string())
    })?;
    let artifact = match manifest {
        Some(Manifest { ahead, kept, configuration, .. }) => {
            let artifact = artifact.with_ahead(ahead.as_slice()).with_kept(kept.as_slice());
            configuration.iter().cloned().fold(artifact, KernelArtifact::with_configuration)
        }
        None => artifact,
    };
    manifest.map_or(Ok(()), |manifest| manifest.check(&artifact)).map_err(|error| (Part::Pdi, error.to_string()))?;
    let (found, expected) = (artifact.argument_count(), node.map_or(usize::MAX, |node| node.arguments().count()));
    if found > expected {
        let reason = format!("it uses {found} arguments, the operation has {expected}");
        return Err((Part::Instructions, reason));
    }
    Ok(artifact)
}

/// Writes `bytes` to a file of its own in `folder`, readable by all users as far as the user's mask allows, as files are.
pub(crate) fn unfinished(folder: &Path, bytes: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(UNFINISHED).permissions(fs::Permissions::from_mode(0o644)).tempfile_in(folder)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Removes a file that may not be there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

static FILES_OPENED: AtomicU64 = AtomicU64::new(0);

/// How many kernel files this process has tried to open: the cost of looking kernels up, for tests and statistics.
pub fn files_opened() -> u64 {
    FILES_OPENED.load(Relaxed)
}

/// The content and the owner of a file, if there is one. Files larger than `limit` are rejected before they are read.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Option<Owned>, Fault> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    let file = |reason: &dyn ToString| (path.to_owned(), reason.to_string());
    FILES_OPENED.fetch_add(1, Relaxed);
    // Opening a pipe must not block.
    let opened = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        opened => opened.map_err(|error| file(&error))?,
    };
    let metadata = opened.metadata().map_err(|error| file(&error))?;
    if !metadata.is_file() {
        return Err(file(&"it is not a regular file"));
    }
    let too_large = || file(&format!("it is larger than the device heap of {limit} bytes"));
    let size = usize::try_from(metadata.len()).ok().filter(|size| *size <= limit).ok_or_else(too_large)?;
    let mut bytes = Vec::with_capacity(size + 1);
    // One byte more than allowed, so that a file that has grown since is noticed.
    opened.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(|error| file(&error))?;
    if bytes.len() > limit {
        return Err(too_large());
    }
    Ok(Some((bytes.into(), metadata.uid())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::arch;
    use crate::manifest::tests::described;

    #[test]
    fn what_is_published_is_read_back() {
        let root = tempfile::tempdir().unwrap();
        let (artifact, manifest) = described(64);
        let files = KernelFiles::new(root.path().join("a/b"), "kernel");
        assert!(files.read(1 << 20).unwrap().is_none());
        files.publish(&artifact, &manifest).unwrap();
        let content = files.read(1 << 20).unwrap().unwrap();
        assert_eq!(content.owner, Some(rustix::process::geteuid().as_raw()));
        let instructions = content.instructions.unwrap();
        let read = assemble(artifact.name(), &arch("aie2p"), content.pdi, instructions, Some(&manifest), None).unwrap();
        assert_eq!(read.identity(), artifact.identity());
        assert_eq!(Manifest::parse(&content.manifest.unwrap()).unwrap(), manifest);
        files.publish(&described(32).0, &described(32).1).unwrap();
        assert_eq!(files.read(1 << 20).unwrap().unwrap().pdi[..], *described(32).0.pdi());
        assert_eq!(fs::read_dir(files.folder()).unwrap().count(), 3);
    }

    #[test]
    fn nothing_is_published_where_nothing_can_be_written() {
        let root = tempfile::tempdir().unwrap();
        let (artifact, manifest) = described(64);
        let files = KernelFiles::new(root.path(), "kernel");
        fs::create_dir(files.manifest()).unwrap();
        files.publish(&artifact, &manifest).unwrap_err();
        assert!(files.read(1 << 20).unwrap().is_none());
        fs::write(root.path().join("file"), "").unwrap();
        KernelFiles::new(root.path().join("file"), "kernel").publish(&artifact, &manifest).unwrap_err();
    }

    #[test]
    fn pipes_do_not_block() {
        let root = tempfile::tempdir().unwrap();
        let files = KernelFiles::new(root.path(), "kernel");
        nix::unistd::mkfifo(&files.pdi(), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(files.read(100).unwrap_err().1, "it is not a regular file");
    }
}
