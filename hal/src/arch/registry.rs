//! Finding the generations: those built in, and files of the user's search path.
//!
//! A file of the user overrides a built-in generation of the same name, whole: there is no merging of keys. A file that cannot
//! be used is reported and left out; the others still load, so that one broken file does not hide a working NPU.

use super::Arch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Environment variable with the search path: directories of `*.toml`, separated by colons.
pub const SEARCH_PATH_VARIABLE: &str = "AIE_HAL_ARCH_PATH";

const BUILTIN: [(&str, &str); 2] =
    [("aie2", include_str!("../../arch/aie2.toml")), ("aie2p", include_str!("../../arch/aie2p.toml"))];

/// An arch file cannot be used.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ArchError {
    /// A file or directory cannot be read.
    #[error("cannot read arch file or directory {path}: {reason}; directories come from {SEARCH_PATH_VARIABLE}", path = path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// Not TOML, a key is missing or unknown, or a value has another type.
    #[error("arch file {origin} is malformed: {reason}")]
    Malformed {
        /// The file, or the name of a built-in one.
        origin: String,
        /// The parser's message with line and column.
        reason: String,
    },
    /// A value contradicts another or makes no sense.
    #[error("arch file {origin}: {reason}")]
    Invalid {
        /// The file, or the name of a built-in one.
        origin: String,
        /// Key, value and what is expected.
        reason: String,
    },
}

impl Arch {
    /// Reads and checks one arch file. `origin` is the file's name for messages.
    ///
    /// # Errors
    /// [`ArchError::Malformed`], [`ArchError::Invalid`].
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ArchError> {
        let arch: Self = toml::from_str(text).map_err(|error| ArchError::Malformed {
            origin: origin.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })?;
        arch.check().map_err(|reason| ArchError::Invalid { origin: origin.to_owned(), reason })?;
        Ok(arch)
    }

    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// The key, its value and what is expected.
    pub fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The known generations. Immutable after loading, cheap to clone.
#[derive(Debug, Clone)]
pub struct ArchRegistry {
    by_name: BTreeMap<String, Arc<Arch>>,
}

impl ArchRegistry {
    /// The generations built into this crate.
    pub fn builtin() -> Self {
        let mut by_name = BTreeMap::new();
        for (origin, text) in BUILTIN {
            match Arch::from_toml(origin, text) {
                Ok(arch) => drop(by_name.insert(arch.name.clone(), Arc::new(arch))),
                // Unreachable while the tests pass: they load every built-in file.
                Err(error) => tracing::error!("built-in {error}"),
            }
        }
        Self { by_name }
    }

    /// The built-in generations and those of all `*.toml` in `directories`. Later directories and files (by name) win, and all
    /// win over built-in ones of the same name.
    pub fn load<P: AsRef<Path>>(directories: impl IntoIterator<Item = P>) -> (Self, Vec<ArchError>) {
        let (mut registry, mut problems) = (Self::builtin(), Vec::new());
        for directory in directories {
            registry.load_directory(directory.as_ref(), &mut problems);
        }
        (registry, problems)
    }

    /// [`ArchRegistry::load`] with the directories of [`SEARCH_PATH_VARIABLE`].
    pub fn from_environment() -> (Self, Vec<ArchError>) {
        let value = std::env::var_os(SEARCH_PATH_VARIABLE).unwrap_or_default();
        Self::load(std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()))
    }

    fn load_directory(&mut self, directory: &Path, problems: &mut Vec<ArchError>) {
        let unreadable =
            |path: &Path, error: std::io::Error| ArchError::Unreadable { path: path.into(), reason: error.to_string() };
        let mut files: Vec<PathBuf> = match std::fs::read_dir(directory) {
            Ok(entries) => entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect(),
            Err(error) => return problems.push(unreadable(directory, error)),
        };
        files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
        files.sort();
        for file in files {
            let loaded = std::fs::read_to_string(&file)
                .map_err(|error| unreadable(&file, error))
                .and_then(|text| Arch::from_toml(&file.display().to_string(), &text));
            match loaded {
                Ok(arch) => drop(self.by_name.insert(arch.name.clone(), Arc::new(arch))),
                Err(problem) => problems.push(problem),
            }
        }
    }

    /// The generation called `name`, e.g. `aie2p`.
    pub fn get(&self, name: &str) -> Option<Arc<Arch>> {
        self.by_name.get(name).cloned()
    }

    /// The generation and product of a PCI device of vendor 0x1022. An entry with this very revision wins over one for any.
    pub fn by_pci(&self, device: u16, revision: u8) -> Option<Arc<Arch>> {
        let find = |wanted: Option<u8>| {
            self.by_name.values().find(|arch| arch.pci.iter().any(|id| id.device == device && id.revision == wanted))
        };
        find(Some(revision)).or_else(|| find(None)).cloned()
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}
