//! Finding the generations: those built in, and files of the user's search path.
//!
//! A file of the user overrides a built-in generation of the same name, whole: there is no merging of keys. A file that cannot
//! be used is reported and left out; the others still load, so that one broken file does not hide a working NPU.

use super::Arch;
use super::check::{ContradictionError, check};
use crate::environment::Environment;
use crate::settings::AIE_HAL_ARCH_PATH;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Names and texts of the files that are built in.
macro_rules! files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../arch/", $name, ".toml")))),*]
    };
}

const BUILTIN: &[(&str, &str)] = files!["aie2", "aie2p"];

/// An arch file cannot be used.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArchError {
    /// A file or directory cannot be read.
    #[error("cannot read arch file or directory {path}: {reason}; directories come from {AIE_HAL_ARCH_PATH}", path = path.display())]
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
    #[error("arch file {origin}: {source}")]
    Invalid {
        /// The file, or the name of a built-in one.
        origin: String,
        /// Key, value and what is expected.
        source: ContradictionError,
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
        check(&arch).map_err(|source| ArchError::Invalid { origin: origin.to_owned(), source })?;
        Ok(arch)
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

    /// [`ArchRegistry::load`] with the directories of [`AIE_HAL_ARCH_PATH`] in the environment of this process.
    pub fn from_environment() -> (Self, Vec<ArchError>) {
        let value = Environment::process().get(&AIE_HAL_ARCH_PATH).unwrap_or_default();
        Self::load(std::env::split_paths(value).filter(|path| !path.as_os_str().is_empty()))
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
                .and_then(|text| Arch::from_toml(&file.display().to_string(), &text))
                .and_then(|arch| self.check_pci(&file, arch));
            match loaded {
                Ok(arch) => drop(self.by_name.insert(arch.name.clone(), Arc::new(arch))),
                Err(problem) => problems.push(problem),
            }
        }
    }

    /// A product belongs to one generation only.
    fn check_pci(&self, file: &Path, arch: Arch) -> Result<Arch, ArchError> {
        for other in self.by_name.values().filter(|other| other.name != arch.name) {
            if let Some(id) =
                arch.pci.iter().find(|id| other.pci.iter().any(|o| (o.device, o.revision) == (id.device, id.revision)))
            {
                return Err(ArchError::Invalid {
                    origin: file.display().to_string(),
                    source: ContradictionError(format!(
                        "PCI id {id} belongs to generation `{}`; remove it, or name this generation `{}` to replace that one",
                        other.name, other.name
                    )),
                });
            }
        }
        Ok(arch)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::fs;
    use tempfile::TempDir;

    const AIE2P: &str = BUILTIN[1].1;

    fn edited(from: &str, to: &str) -> String {
        assert!(AIE2P.contains(from), "{from}");
        AIE2P.replacen(from, to, 1)
    }

    fn directory(files: &[(&str, &str)]) -> TempDir {
        let directory = TempDir::new().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn every_built_in_file_is_valid_and_named_as_listed() {
        for (name, text) in BUILTIN {
            assert_eq!(Arch::from_toml(name, text).unwrap().name, *name);
        }
        assert!(ArchRegistry::builtin().names().eq(BUILTIN.iter().map(|(name, _)| *name)), "one for each, by name");
    }

    // Published figures: mlir-aie's target model, aie-rt, the amdxdna kernel driver.
    #[rstest]
    #[case("aie2", 3, 4, 16, 6, 256, 2 << 20)]
    #[case("aie2p", 4, 8, 32, 16, 512, 4 << 20)]
    fn generations_have_their_published_figures(
        #[case] name: &str,
        #[case] dev_gen: u8,
        #[case] columns: usize,
        #[case] cores: usize,
        #[case] contexts: usize,
        #[case] i8_macs: usize,
        #[case] l2_bytes: usize,
    ) {
        let arch = ArchRegistry::builtin().get(name).unwrap();
        let (array, limits) = (&arch.array, &arch.limits);
        assert_eq!((arch.dev_gen, array.columns, array.columns * array.core_rows), (dev_gen, columns, cores));
        assert_eq!((array.rows, array.mem_rows, limits.contexts), (6, 1, contexts));
        assert_eq!(array.columns * array.mem_rows * arch.mem_tile.data_bytes, l2_bytes);
        assert_eq!((arch.core.data_bytes, arch.core.banks, arch.core.program_bytes), (64 << 10, 4, 16 << 10));
        assert_eq!((limits.pdis_per_context, limits.commands_per_chain, limits.chain_buffer_bytes), (32, 64, 4096));
        assert_eq!((limits.device_heap_bytes, limits.granule, limits.queue_packets), (64 << 20, 4096, 64));
        let dma = |tile: &crate::arch::Tile| {
            (tile.dma.s2mm, tile.dma.mm2s, tile.dma.bds, tile.dma.bd_dimensions, tile.dma.locks)
        };
        assert_eq!(dma(&arch.core), (2, 2, 16, 3, 16));
        assert_eq!(dma(&arch.mem_tile), (6, 6, 48, 4, 64));
        assert_eq!(dma(&arch.shim), (2, 2, 16, 3, 16));
        let i8 = arch.mmul.iter().find(|shape| shape.types == "i8 x i8").unwrap();
        assert_eq!(i8.macs_per_cycle, i8_macs);
    }

    #[rstest]
    #[case(0x1502, 0x00, Some("aie2"))]
    #[case(0x17f0, 0x10, Some("aie2p"))]
    #[case(0x17f0, 0x11, Some("aie2p"))]
    #[case(0x17f0, 0x20, Some("aie2p"))]
    #[case(0x17f0, 0x00, None)]
    #[case(0x17f1, 0x10, None)]
    fn products_are_found_by_pci_id(#[case] device: u16, #[case] revision: u8, #[case] expected: Option<&str>) {
        let found = ArchRegistry::builtin().by_pci(device, revision);
        assert_eq!(found.as_ref().map(|arch| arch.name.as_str()), expected);
    }

    #[test]
    fn an_entry_without_revision_serves_the_rest() {
        let any = edited("name = \"aie2p\"", "name = \"aie3\"")
            .replace("device = 0x17f0\nrevision = 0x10", "device = 0x17f0");
        let any = any.split("[[pci]]").take(2).collect::<Vec<_>>().join("[[pci]]");
        let directory = directory(&[("aie3.toml", &any)]);
        let (registry, problems) = ArchRegistry::load([directory.path()]);
        assert_eq!(problems, []);
        assert_eq!(registry.by_pci(0x17f0, 0x77).unwrap().name, "aie3");
        assert_eq!(registry.by_pci(0x17f0, 0x20).unwrap().name, "aie2p");
    }

    #[test]
    fn the_users_files_win_and_broken_ones_are_reported() {
        let newer = edited("columns = 8", "columns = 6");
        let first = directory(&[
            ("a.toml", "name = "),
            ("b.toml", &edited("columns = 8", "columns = 7")),
            ("ignored.txt", "no"),
            ("z.toml", &edited("name = \"aie2p\"", "name = \"copy\"")),
        ]);
        let second = directory(&[("b.toml", &newer)]);
        let missing = first.path().join("missing");
        let (registry, problems) = ArchRegistry::load([first.path(), second.path(), &missing]);
        assert_eq!(registry.get("aie2p").unwrap().array.columns, 6);
        assert_eq!(registry.get("aie2").unwrap().array.columns, 4);
        assert_eq!(registry.names().count(), 2);
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 3, "{messages:#?}");
        assert!(messages[0].contains("a.toml is malformed: TOML parse error at line 1, column 8"), "{}", messages[0]);
        assert!(messages[1].contains("z.toml: PCI id 0x17f0:0x10 belongs to generation `aie2p`"), "{}", messages[1]);
        assert!(messages[2].starts_with("cannot read arch file or directory"), "{}", messages[2]);
        assert!(messages[2].ends_with("directories come from AIE_HAL_ARCH_PATH"), "{}", messages[2]);
    }

    #[rstest]
    #[case::unknown_key("columns = 8", "columns = 8\ncolums = 8", "unknown field `colums`")]
    #[case::missing_key("columns = 8\n", "", "missing field `columns`")]
    #[case::wrong_type("columns = 8", "columns = \"8\"", "invalid type: string")]
    #[case::firmware("\"1.0.0.63\"", "\"6.15\"", "\"6.15\" is not a firmware version; expected four numbers")]
    #[case::negative("columns = 8", "columns = -8", "invalid value: integer `-8`")]
    fn malformed_files_name_the_line(#[case] from: &str, #[case] to: &str, #[case] reason: &str) {
        let error = Arch::from_toml("test.toml", &edited(from, to)).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, ArchError::Malformed { .. }), "{message}");
        assert!(message.contains("test.toml") && message.contains("at line") && message.contains(reason), "{message}");
    }
}
