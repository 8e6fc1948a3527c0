//! What is in a cache: kernels and their state, failures, leftovers, and foreign files.
//!
//! The store never lists its directory; people and [`crate::clear`] do. A file is the store's when its manifest or note says so,
//! or when it has the name of an unfinished one. Links and foreign directories are not followed.

use crate::cache::{DAMAGED, Found, KernelCache, SELF_TEST};
use crate::failure::FailureRecord;
use crate::kernel_files::{KernelFiles, UNFINISHED};
use crate::lock;
use crate::manifest::{Manifest, Origin};
use crate::wanted::Wanted;
use aie_hal::ArchRegistry;
use aie_ops::compiler::KernelCompiler;
use aie_ops::table;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest manifest or note that is read.
const NOTE_LIMIT: u64 = 1 << 20;

/// State of something the store wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// A kernel that is used.
    Good,
    /// A kernel that is rebuilt on its next use.
    Stale {
        /// What differs.
        reason: String,
    },
    /// Files that are no kernel.
    Damaged {
        /// What is wrong.
        reason: String,
    },
    /// The note of a compilation that failed.
    Failed {
        /// Why.
        cause: String,
    },
    /// A file whose writer is not done, or was killed.
    #[default]
    Unfinished,
    /// A damaged kernel that was moved away.
    Aside,
}

/// Something the store wrote.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Item {
    /// Kernel name, or the file's name where no kernel is known.
    pub kernel: String,
    /// Generation; empty where it is not known.
    pub arch: String,
    /// Name of the compiler; empty where it is not known.
    pub compiler: String,
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Bytes of all files.
    pub bytes: u64,
    /// When it was made, in seconds since 1970; 0 where it is not known.
    pub made: u64,
    /// How long compiling took; 0 where it is not known.
    pub milliseconds: u64,
    /// State.
    #[serde(flatten)]
    pub state: State,
}

impl Item {
    /// Those of `files` that are there.
    fn of(files: impl IntoIterator<Item = PathBuf>, state: State) -> Self {
        let there = |path: PathBuf| Some((path.symlink_metadata().ok()?.len(), path));
        let (bytes, files): (Vec<u64>, Vec<PathBuf>) = files.into_iter().filter_map(there).unzip();
        Self { files, bytes: bytes.iter().sum(), state, ..Self::default() }
    }
}

/// The content of a cache.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Inventory {
    /// What the store wrote, by path.
    pub items: Vec<Item>,
    /// What it did not write.
    pub foreign: Vec<PathBuf>,
}

/// How carefully to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Manifests and sizes are read.
    Quick,
    /// Every byte is.
    Whole,
}

impl Inventory {
    /// Lists `cache`. A kernel of one of `compilers` that would be made otherwise now is stale; those of compilers that are not
    /// among them are taken as they are. Generations are looked up in `arches`.
    ///
    /// # Errors
    /// A directory of the cache cannot be read.
    pub fn take(
        cache: &KernelCache,
        compilers: &[Arc<dyn KernelCompiler>],
        arches: &ArchRegistry,
        care: Care,
    ) -> io::Result<Self> {
        let mut inventory = Self::default();
        let walk = Walk { cache, compilers, arches, care };
        let folders: BTreeSet<&str> = compilers.iter().map(|compiler| compiler.folder()).collect();
        for entry in sorted(cache.root())? {
            let (path, name) = (entry.path(), entry.file_name());
            if !entry.file_type()?.is_dir() {
                let own = [lock::FILE, "CACHEDIR.TAG", SELF_TEST].iter().any(|own| name == *own);
                if !own {
                    inventory.foreign.push(path);
                }
            } else if name == DAMAGED {
                walk.aside(&path, &mut inventory)?;
            } else if name.to_str().is_some_and(|name| folders.contains(name) || name == "reference") {
                for inner in sorted(&path)? {
                    if inner.file_type()?.is_dir() {
                        walk.folder(&inner.path(), &mut inventory)?;
                    } else {
                        inventory.foreign.push(inner.path());
                    }
                }
            } else {
                walk.folder(&path, &mut inventory)?;
            }
        }
        Ok(inventory)
    }

    /// Bytes of everything the store wrote.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }
}

struct Walk<'a> {
    cache: &'a KernelCache,
    compilers: &'a [Arc<dyn KernelCompiler>],
    arches: &'a ArchRegistry,
    care: Care,
}

impl Walk<'_> {
    /// A folder of kernels of one generation.
    fn folder(&self, folder: &Path, inventory: &mut Inventory) -> io::Result<()> {
        let mut names: BTreeMap<String, DirEntry> = BTreeMap::new();
        for entry in sorted(folder)? {
            match entry.file_name().into_string() {
                Ok(name) if entry.file_type()?.is_file() => {
                    names.insert(name, entry);
                }
                _ => inventory.foreign.push(entry.path()),
            }
        }
        let mut own = BTreeSet::new();
        for name in names.keys() {
            let item = if name.starts_with(UNFINISHED) {
                Some(Item { kernel: name.clone(), ..Item::of([folder.join(name)], State::Unfinished) })
            } else if let Some(stem) = name.strip_suffix(".failed.json") {
                failure(&KernelFiles::new(folder, stem))
            } else if let Some(stem) = name.strip_suffix(".json") {
                self.kernel(&KernelFiles::new(folder, stem))
            } else {
                None
            };
            let Some(item) = item else { continue };
            own.extend(item.files.iter().filter_map(|path| path.file_name().map(OsStr::to_owned)));
            inventory.items.push(item);
        }
        inventory.foreign.extend(names.values().filter(|entry| !own.contains(&entry.file_name())).map(DirEntry::path));
        Ok(())
    }

    /// The kernel that a manifest describes; `None` when the file is not a manifest of ours.
    fn kernel(&self, files: &KernelFiles) -> Option<Item> {
        let manifest = Manifest::parse(&note(&files.manifest())?).ok()?;
        let state = self.state(files, &manifest);
        Some(Item {
            kernel: manifest.kernel,
            arch: manifest.arch,
            compiler: manifest.origin.compiler,
            made: manifest.made,
            milliseconds: manifest.milliseconds,
            ..Item::of(files.all(), state)
        })
    }

    fn state(&self, files: &KernelFiles, manifest: &Manifest) -> State {
        let damaged = |reason: String| State::Damaged { reason };
        let Some(op) = table::lookup(&manifest.node.op) else {
            return State::Stale { reason: format!("operation {} is not in the table", manifest.node.op) };
        };
        let Some(arch) = self.arches.get(&manifest.arch) else {
            return State::Stale { reason: format!("generation {} is not known", manifest.arch) };
        };
        let wanted = Wanted { name: manifest.kernel.clone(), ..Wanted::of(op, &manifest.node, &arch) };
        let compiler = self.compilers.iter().find(|compiler| compiler.name() == manifest.origin.compiler);
        let origin = compiler.map(|compiler| Origin::of(&**compiler));
        if self.care == Care::Whole {
            return match self.cache.look(files, &wanted, origin.as_ref()) {
                Found::Kernel(_) => State::Good,
                Found::Stale(reason) => State::Stale { reason },
                Found::Damaged(path, reason) => damaged(format!("{}: {reason}", path.display())),
                Found::Absent => damaged("its PDI is missing".into()),
                Found::Foreign(how) => damaged(how),
            };
        }
        let sizes = [(files.pdi(), manifest.pdi_bytes), (files.instructions(), manifest.instructions_bytes)];
        for (path, expected) in sizes {
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_file() && metadata.len() == expected as u64 => {}
                Ok(_) => return damaged(format!("{} is not a file of {expected} bytes", path.display())),
                Err(error) => return damaged(format!("{}: {error}", path.display())),
            }
        }
        let difference = origin.and_then(|origin| manifest.origin.difference(&origin));
        difference.map_or(State::Good, |reason| State::Stale { reason })
    }

    /// Kernels that were moved away, a folder each.
    fn aside(&self, parent: &Path, inventory: &mut Inventory) -> io::Result<()> {
        for entry in sorted(parent)? {
            let path = entry.path();
            if !entry.file_type()?.is_dir() {
                inventory.foreign.push(path);
                continue;
            }
            let mut own = Vec::new();
            for inner in sorted(&path)? {
                let name = inner.file_name().into_string().unwrap_or_default();
                let kernel = [".pdi", "_insts.bin", ".json"].iter().any(|ending| name.ends_with(ending));
                // A link in a kernel's place was moved as a link, and goes as one.
                let ours = kernel && !inner.file_type()?.is_dir();
                if ours { own.push(inner.path()) } else { inventory.foreign.push(inner.path()) }
            }
            let kernel = entry.file_name().to_string_lossy().into_owned();
            inventory.items.push(Item { kernel, ..Item::of(own, State::Aside) });
        }
        Ok(())
    }
}

fn failure(files: &KernelFiles) -> Option<Item> {
    let record = FailureRecord::parse(&note(&FailureRecord::path(files))?)?;
    let paths = [FailureRecord::path(files), FailureRecord::output_path(files)];
    Some(Item {
        kernel: files.stem().into(),
        arch: files.folder().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        compiler: record.origin.compiler,
        made: record.failed,
        ..Item::of(paths, State::Failed { cause: record.cause })
    })
}

/// A small regular file; `None` for anything else.
fn note(path: &Path) -> Option<Vec<u8>> {
    let metadata = path.symlink_metadata().ok()?;
    (metadata.is_file() && metadata.len() <= NOTE_LIMIT).then(|| fs::read(path).ok())?
}

fn sorted(folder: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}
