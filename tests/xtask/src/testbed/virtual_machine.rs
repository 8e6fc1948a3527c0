//! What a virtual machine with an NPU is made of: QEMU, kernels with the driver for NPUs, and a static busybox.
//!
//! It lies in `vm` of the testbed's folder and is a part of its own, with a stamp of its own, because it is large and only
//! `cargo xtask vm` needs it. Of the packages only what boots is kept: QEMU with the libraries it is linked to and the
//! firmware a PC starts with, and of each kernel its image, its configuration, and the modules that are loaded.

mod kernels;
mod modules;
mod qemu;

pub use kernels::{KERNELS, Kernel};
pub use modules::DRIVER;

use crate::apt::{self, PrivateApt};
use crate::process;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Where kernels and QEMU are from; kernels that are to come are in the second.
const SUITES: [&str; 2] = ["sid", "experimental"];
/// Raised when what an older version of this file made is not good enough any more.
const SCHEMA: u32 = 1;
const STAMP: &str = "stamp.json";
/// Folder in the testbed.
const FOLDER: &str = "vm";
/// The only architecture NPUs come with, and the only one these packages are for.
const ARCHITECTURE: &str = "amd64";
/// How to get what is missing.
const REMAKE: &str = "make it anew with `cargo xtask vm prepare --force`";

/// What was downloaded, as written into the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    schema: u32,
    /// Package to version of what QEMU needs.
    pub packages: BTreeMap<String, String>,
    /// The kernels, by the first two numbers of their version.
    pub kernels: BTreeMap<String, Kernel>,
    /// Bytes of the packages.
    pub downloaded_bytes: u64,
    /// Bytes of the files kept of them.
    pub kept_bytes: u64,
    /// How long making it took.
    pub seconds: u64,
}

/// What machines are made of, complete.
#[derive(Debug, Clone)]
pub struct Parts {
    dir: PathBuf,
    stamp: Stamp,
}

impl Parts {
    /// Opens what is in the testbed's folder. Errors if it is missing, incomplete or made by an older version of this program.
    pub fn open(testbed: &Path) -> Result<Self> {
        let dir = testbed.join(FOLDER);
        let path = dir.join(STAMP);
        let next = "make them with `cargo xtask vm prepare` (it downloads about 280 MB of Debian packages)";
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no parts of virtual machines in {} (no {STAMP}); {next}", dir.display()))?;
        let stamp: Stamp =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged; {REMAKE}", path.display()))?;
        if stamp.schema != SCHEMA {
            bail!("{} has format {}, needed is {SCHEMA}; {next}", dir.display(), stamp.schema);
        }
        let dir = fs::canonicalize(&dir).with_context(|| format!("cannot resolve {}", dir.display()))?;
        let parts = Self { dir, stamp };
        let kernels = parts.stamp.kernels.keys().map(|series| parts.image(series));
        for file in qemu::FILES.iter().map(|file| parts.dir.join(file)).chain(kernels) {
            if !file.exists() {
                bail!("{} is missing; {REMAKE}", file.display());
            }
        }
        Ok(parts)
    }

    /// Makes them in the testbed's folder, replacing what is there. `mirror` overrides the machine's own Debian mirror.
    pub fn make(testbed: &Path, mirror: Option<&str>) -> Result<Self> {
        let started = Instant::now();
        let architecture = apt::architecture()?;
        if architecture != ARCHITECTURE {
            bail!(
                "virtual machines with an NPU are PCs, and the packages for them are taken for {ARCHITECTURE} hosts only; \
                 this machine is {architecture}"
            );
        }
        let mirror = match mirror {
            Some(mirror) => mirror.to_owned(),
            None => apt::machine_mirror()?,
        };
        fs::create_dir_all(testbed).with_context(|| format!("cannot make {}", testbed.display()))?;
        // Built beside its place and moved there whole, so that a run broken off leaves nothing half-made.
        let building = tempfile::Builder::new()
            .prefix(".making-vm-")
            .tempdir_in(testbed)
            .with_context(|| format!("cannot write in {}", testbed.display()))?;
        let work = fs::canonicalize(building.path())?;
        let made = work.join(FOLDER);
        fs::create_dir(&made)?;
        let apt = PrivateApt::new(&work.join("apt"), &mirror, &SUITES, &qemu::ASSUMED)?;
        let (packages, of_qemu) = qemu::make(&apt, &work.join("qemu"), &made)?;
        let (kernels, of_kernels) = kernels::make(&apt, &work.join("kernels"), &made)?;
        let stamp = Stamp {
            schema: SCHEMA,
            packages,
            kernels,
            downloaded_bytes: of_qemu + of_kernels,
            kept_bytes: size(&made)?,
            seconds: started.elapsed().as_secs(),
        };
        fs::write(made.join(STAMP), serde_json::to_string_pretty(&stamp)?)?;
        let place = testbed.join(FOLDER);
        if place.exists() {
            fs::rename(&place, work.join("old")).with_context(|| format!("cannot replace {}", place.display()))?;
        }
        fs::rename(&made, &place).with_context(|| format!("cannot put {} in its place", place.display()))?;
        Self::open(testbed)
    }

    /// Opens them or makes them, unless `offline`.
    pub fn ensure(testbed: &Path, offline: bool) -> Result<Self> {
        match Self::open(testbed) {
            Ok(parts) => Ok(parts),
            Err(error) if offline => {
                Err(error.context("virtual machines cannot be made, and --offline forbids downloading their parts"))
            }
            Err(_) => {
                eprintln!("making the parts of virtual machines in {} ...", testbed.join(FOLDER).display());
                Self::make(testbed, None)
            }
        }
    }

    /// Their folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was downloaded.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// A kernel, as in `7.2`.
    pub fn kernel(&self, series: &str) -> Result<&Kernel> {
        let known = || self.stamp.kernels.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        self.stamp.kernels.get(series).with_context(|| {
            format!("Debian had no kernel {series} when these parts were downloaded, but {}; {REMAKE}", known())
        })
    }

    /// A kernel's image.
    pub fn image(&self, series: &str) -> PathBuf {
        self.dir.join(kernels::FOLDER).join(series).join(kernels::IMAGE)
    }

    /// The file of a kernel's module.
    pub fn module(&self, series: &str, module: &str) -> PathBuf {
        self.dir.join(kernels::FOLDER).join(series).join(kernels::MODULES).join(format!("{module}.ko"))
    }

    /// The static busybox, which runs on the host as well.
    pub fn busybox(&self) -> PathBuf {
        self.dir.join(qemu::BUSYBOX)
    }

    /// A command for QEMU, with where it finds its firmware.
    pub fn qemu(&self) -> Command {
        let mut command = Command::new(self.dir.join(qemu::LOADER));
        command.arg("--library-path").arg(self.dir.join(qemu::LIBRARIES)).arg(self.dir.join(qemu::PROGRAM));
        command.arg("-L").arg(self.dir.join(qemu::FIRMWARE));
        process::clear_settings(&mut command);
        command
    }
}

/// Bytes of the files in a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.metadata()?;
        bytes += if kind.is_dir() { size(&entry.path())? } else { kind.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_say_how_to_make_them() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", Parts::open(dir.path()).unwrap_err());
        assert!(error.contains("cargo xtask vm prepare"), "{error}");
        let error = format!("{:#}", Parts::ensure(dir.path(), true).unwrap_err());
        assert!(error.contains("--offline"), "{error}");
    }

    #[test]
    fn a_damaged_an_old_and_an_incomplete_stamp_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        let refused = |text: &str| {
            fs::write(folder.join(STAMP), text).unwrap();
            format!("{:#}", Parts::open(dir.path()).unwrap_err())
        };
        assert!(refused("{").contains("damaged"));
        let stamp = Stamp {
            schema: SCHEMA,
            packages: BTreeMap::new(),
            kernels: BTreeMap::new(),
            downloaded_bytes: 1,
            kept_bytes: 1,
            seconds: 1,
        };
        let old = Stamp { schema: 0, ..stamp.clone() };
        assert!(refused(&serde_json::to_string(&old).unwrap()).contains("format 0"));
        let error = refused(&serde_json::to_string(&stamp).unwrap());
        assert!(error.contains("is missing") && error.contains("--force"), "{error}");
    }

    #[test]
    fn the_size_of_a_folder_is_that_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), [0; 10]).unwrap();
        fs::write(dir.path().join("c"), [0; 5]).unwrap();
        assert_eq!(size(dir.path()).unwrap(), 15);
    }
}
