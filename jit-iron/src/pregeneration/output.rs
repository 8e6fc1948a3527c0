//! The directory that kernels are written to, with links under the names that backends look for, and packs.
//!
//! A configuration may call a kernel's files as it likes, and the documents of the C++ tool do, with names like
//! `add_f32_1024`. No backend ever looks for such a name. So a kernel's files are written under the requested name, and
//! links with the names that are looked for point to them: the C++ backend accepts links. Links are
//! relative and stay in their folder, so a directory can be moved or packed.

use crate::configuration::{KernelRequest, Problem};
use crate::directory;
use crate::kernel_files::{KernelFiles, UNFINISHED, read, unfinished};
use crate::lock::{Lock, Locks};
use crate::manifest::{Manifest, Origin};
use crate::pack::{self, PackError, pack};
use crate::wanted::{LONGEST, Wanted};
use aie_hal::format::hsaco::{HsacoCode, HsacoEntry};
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::{self, FormatError};
use aie_hal::{Arch, KernelArtifact};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest manifest that is read, in bytes.
const MANIFEST_LIMIT: usize = 1 << 20;

/// An output directory or a file in it cannot be used: which, and the error of the file system.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum OutputError {
    /// The directory, and what was tried.
    #[error(
        "output directory {}: cannot {action}: {source}; name a directory that you may write to with --output-dir",
        path.display()
    )]
    Directory { path: PathBuf, action: &'static str, source: io::Error },
    /// Another process makes a kernel, and waiting for it failed.
    #[error("cannot lock the output directory: {0}")]
    Lock(#[source] io::Error),
    /// A kernel or a pack is not written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A link is not made.
    #[error("link {}: {source}", path.display())]
    Link { path: PathBuf, source: io::Error },
    /// A file is where a link has to be.
    #[error("{} exists and is not a link; remove it, or leave out 'exported_name'", .0.display())]
    Occupied(PathBuf),
    /// Kernels cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// An output directory. Thread-safe; several processes may write to one.
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    locks: Locks,
}

impl OutputDirectory {
    /// Uses `path`, creating it if needed. Partial files of killed runs are removed.
    ///
    /// # Errors
    /// It cannot be created or written.
    pub fn open(path: &Path) -> Result<Self, OutputError> {
        let failed = |action| move |source| OutputError::Directory { path: path.into(), action, source };
        fs::create_dir_all(path).map_err(failed("create it"))?;
        let this = Self { path: path.into(), locks: Locks::of(path) };
        // Only when no other process is writing: its unfinished files are its own.
        if let Some(_everything) = this.locks.try_lock_all().map_err(failed("create the file .lock in it"))? {
            this.sweep().map_err(failed("remove unfinished files of an earlier run"))?;
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

    /// Waits until no other process generates this kernel.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn lock(&self, kernel: &KernelRequest) -> Result<Lock, OutputError> {
        self.locks.lock(&format!("{}/{}", kernel.arch.name, kernel.exported_name)).map_err(OutputError::Lock)
    }

    /// Writes a kernel. The caller holds its lock.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(
        &self,
        kernel: &KernelRequest,
        artifact: &KernelArtifact,
        manifest: &Manifest,
    ) -> Result<(), OutputError> {
        let files = kernel.files(&self.path);
        files.publish(artifact, manifest).map_err(|source| OutputError::Write { path: files.pdi(), source })
    }

    /// Makes links to an existing kernel. The caller holds its lock.
    ///
    /// # Errors
    /// Errors of the file system, or what is in the way.
    pub fn link(&self, kernel: &KernelRequest, names: &[String]) -> Result<(), OutputError> {
        let folder = self.path.join(&kernel.arch.name);
        names.iter().try_for_each(|name| make_links(&folder, name, &kernel.exported_name))
    }
}

impl KernelRequest {
    /// Where its files are in the output directory `output`.
    fn files(&self, output: &Path) -> KernelFiles {
        KernelFiles::new(output.join(&self.arch.name), self.exported_name.as_str())
    }
}

/// What is in the place of a kernel.
#[derive(Debug)]
pub(super) enum Existing {
    /// The kernel, complete and of the requested origin.
    Current(KernelArtifact),
    /// Something else, and what is wrong with it.
    Stale(String),
    /// Nothing.
    Absent,
}

/// What the output directory `output` has of a kernel that has to be built from `origin` (`None`: any).
pub(super) fn existing(output: &Path, kernel: &KernelRequest, origin: Option<&Origin>) -> Existing {
    let files = kernel.files(output);
    if !files.pdi().exists() {
        return Existing::Absent;
    }
    let manifest = match read(&files.manifest(), MANIFEST_LIMIT) {
        Ok(Some((text, _))) => Manifest::parse(&text).map_err(|error| error.to_string()),
        Ok(None) => Err("it has no manifest".into()),
        Err((_, reason)) => Err(reason),
    };
    let difference = |manifest: Manifest| origin.and_then(|origin| manifest.origin.difference(origin));
    let current = manifest.and_then(|manifest| difference(manifest).map_or(Ok(()), Err)).and_then(|()| {
        let loaded = directory::load(&files, &Wanted::of(kernel.op, &kernel.node, &kernel.arch));
        loaded.map_err(|error| error.to_string())?.ok_or_else(|| "the files are not those of this kernel".into())
    });
    current.map_or_else(Existing::Stale, Existing::Current)
}

/// Writes `<generation>/<name>.hsaco` for each kernel and name: the code object that newer versions of the C++ backend look for. It holds
/// its kernel under the file's name, so it is written once for each name and no link. Each file appears whole or not at all.
///
/// # Errors
/// A kernel cannot be read or is damaged, or a file cannot be written.
pub fn write_hsacos<'a>(
    output: &OutputDirectory,
    kernels: impl IntoIterator<Item = (&'a KernelRequest, &'a [String])>,
) -> Result<Vec<PathBuf>, OutputError> {
    let mut written = Vec::new();
    for (kernel, links) in kernels {
        let _lock = output.lock(kernel)?;
        let (files, folder) = (kernel.files(&output.path), output.path.join(&kernel.arch.name));
        let loaded = directory::load(&files, &Wanted::of(kernel.op, &kernel.node, &kernel.arch));
        let read = |reason: String| OutputError::Write { path: files.hsaco(), source: io::Error::other(reason) };
        let artifact = loaded.map_err(|error| read(error.to_string()))?;
        let artifact = artifact.ok_or_else(|| read(format!("there is no {}", files.pdi().display())))?;
        for name in [&kernel.exported_name].into_iter().chain(links) {
            let bytes = hsaco(&artifact, name, kernel.node.arguments().count());
            let bytes = bytes.map_err(|error| read(error.to_string()))?;
            let path = KernelFiles::new(&folder, name.as_str()).hsaco();
            let failed = |source| OutputError::Write { path: path.clone(), source };
            let file = unfinished(&folder, &bytes).map_err(failed)?;
            file.persist(&path).map_err(|error| failed(error.error))?;
            written.push(path);
        }
    }
    Ok(written)
}

fn hsaco(artifact: &KernelArtifact, name: &str, arguments: usize) -> Result<Vec<u8>, FormatError> {
    let code = HsacoCode { pdi: artifact.pdi(), instructions: artifact.instructions() };
    let columns = u32::from(InstructionStream::parse(code.instructions)?.header().columns);
    let arguments = u32::try_from(arguments).unwrap_or(u32::MAX);
    format::hsaco::write(artifact.arch(), &[HsacoEntry { name, columns, arguments, code }])
}

/// Writes `<output directory>/<generation>.pack` for each of `arches`, with every kernel in its folder. Each file appears whole or
/// not at all.
///
/// # Errors
/// A kernel cannot be read or is damaged, or a pack cannot be written.
pub fn write_packs<'a>(
    output: &OutputDirectory,
    arches: impl IntoIterator<Item = &'a Arch>,
) -> Result<Vec<PathBuf>, OutputError> {
    let _lock = output.locks.lock(pack::ENDING).map_err(OutputError::Lock)?;
    let mut written = Vec::new();
    for arch in arches {
        let (bytes, _) = pack(&output.path.join(&arch.name), arch)?;
        let path = output.path.join(format!("{}.{}", arch.name, pack::ENDING));
        let failed = |source| OutputError::Write { path: path.clone(), source };
        let file = unfinished(&output.path, &bytes).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        written.push(path);
    }
    Ok(written)
}

/// Which kernels have links with which names.
#[derive(Debug, Default)]
pub struct Links {
    /// Names of links, by index of the kernel.
    pub names: Vec<Vec<String>>,
    /// Names that could not be given.
    pub notes: Vec<Problem>,
}

/// Decides on the links of `kernels`, whose own names are distinct.
pub fn plan_links(kernels: &[KernelRequest]) -> Links {
    let mut taken: HashSet<(&str, &str)> =
        kernels.iter().map(|kernel| (kernel.arch.name.as_str(), kernel.exported_name.as_str())).collect();
    let mut by_name: HashMap<(&str, &str), Vec<&KernelRequest>> = HashMap::new();
    for kernel in kernels {
        by_name.entry((&kernel.arch.name, &kernel.name)).or_default().push(kernel);
    }
    let mut links = Links::default();
    for kernel in kernels {
        let mut names = Vec::new();
        if taken.insert((&kernel.arch.name, &kernel.stem)) {
            names.push(kernel.stem.clone());
        }
        // Several kernels can have one name where names leave out parameters. A link could lead to one of them only.
        let namesakes = by_name.get(&(kernel.arch.name.as_str(), kernel.name.as_str())).map_or(&[][..], Vec::as_slice);
        if kernel.name.len() > LONGEST {
            let message =
                format!("the name {} is longer than file names; the C++ backend will not find it", kernel.name);
            links.notes.push(Problem::new(&kernel.place, message));
        } else if let Some(other) = namesakes.iter().find(|other| !other.same_kernel(kernel)) {
            let message = format!(
                "{} has the name {} too, because names of {} leave out parameters; the C++ backend will find neither",
                other.place, kernel.name, kernel.node.op
            );
            links.notes.push(Problem::new(&kernel.place, message));
        } else if taken.insert((&kernel.arch.name, &kernel.name)) {
            names.push(kernel.name.clone());
        }
        links.names.push(names);
    }
    links
}

/// Makes the links of a kernel under `name` to the files `stem` in the same folder, the PDI's last.
///
/// # Errors
/// Errors of the file system, or that something else than a link is in the way.
fn make_links(folder: &Path, name: &str, stem: &str) -> Result<(), OutputError> {
    let (links, files) = (KernelFiles::new(folder, name), KernelFiles::new(folder, stem));
    let pairs = links.all().into_iter().zip(files.all()).rev();
    let mut missing = Vec::new();
    for (link, file) in pairs {
        let target = Path::new(file.file_name().unwrap_or_default());
        match fs::symlink_metadata(&link) {
            Ok(there) if !there.is_symlink() => return Err(OutputError::Occupied(link)),
            Ok(_) if fs::read_link(&link).is_ok_and(|found| found == target) => {}
            _ => missing.push((link, target.to_owned())),
        }
    }
    for (link, target) in missing {
        replace(folder, &link, &target).map_err(|source| OutputError::Link { path: link, source })?;
    }
    Ok(())
}

/// Puts a link in place at once, also where there is another one.
fn replace(folder: &Path, link: &Path, target: &Path) -> io::Result<()> {
    let made = tempfile::Builder::new().prefix(UNFINISHED).make_in(folder, |path| symlink(target, path))?;
    made.into_temp_path().persist(link).map_err(|error| error.error)
}
