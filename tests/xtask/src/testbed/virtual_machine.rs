//! What a virtual machine with an NPU is made of: QEMU, kernels with the driver for NPUs, and a static busybox.
//!
//! It lies in `vm` of the testbed's folder and is a part of its own, with a stamp of its own, because it is large and only
//! `cargo xtask vm` needs it. Of the packages only what boots is stored: QEMU with the libraries it is linked to and the
//! firmware a PC starts with, and of each kernel its image, its configuration, and the modules that are loaded.

pub(super) mod kernels;
mod modules;
mod qemu;

pub use kernels::{KERNELS, Kernel};
pub use modules::DRIVER;

use super::stamped::Kind;
use crate::apt::{self, EARLIER, PrivateApt};
use crate::{files, process};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const FOLDER: &str = "vm";
/// The only architecture NPUs come with, and the only one these packages are for.
const ARCHITECTURE: &str = "amd64";

/// Kernels that are to come are in the second suite.
const KIND: Kind = Kind {
    what: "kit for virtual machines",
    schema: 1,
    make: "download it with `cargo xtask vm prepare` (it downloads about 280 MB of Debian packages)",
    remake: "download it again with `cargo xtask vm prepare --force`",
    suites: &["sid", "experimental"],
    assumed: &qemu::ASSUMED,
    places: &[kernels::FOLDER, qemu::FOLDER, qemu::BUSYBOX],
};

/// What was downloaded, as written into the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Package to version of what QEMU needs.
    pub packages: BTreeMap<String, String>,
    /// The kernels, by the first two numbers of their version.
    pub kernels: BTreeMap<String, Kernel>,
    pub downloaded_bytes: u64,
    /// Bytes of the stored files.
    pub kept_bytes: u64,
    /// How long making it took.
    pub seconds: u64,
}

/// What machines are made of, complete.
#[derive(Debug, Clone)]
pub struct Parts {
    pub dir: PathBuf,
    pub stamp: Stamp,
}

impl Parts {
    /// Opens what is in the testbed's folder. Errors if it is missing, incomplete or made by an older version of this program.
    pub fn open(testbed: &Path) -> Result<Self> {
        let (dir, stamp): (_, Stamp) = KIND.open(&testbed.join(FOLDER))?;
        let parts = Self { dir, stamp };
        let kernels = parts.stamp.kernels.keys().map(|series| parts.image(series));
        for file in qemu::FILES.iter().map(|file| parts.dir.join(file)).chain(kernels) {
            if !file.exists() {
                bail!("{} is missing; {}", file.display(), KIND.remake);
            }
        }
        Ok(parts)
    }

    /// Opens them or makes them, unless `offline`.
    pub fn ensure(testbed: &Path, offline: bool) -> Result<Self> {
        Self::prepare(testbed, offline, false, None)
    }

    /// The same; `force` makes them also when they are there, and `mirror` overrides the machine's own Debian mirror.
    pub fn prepare(testbed: &Path, offline: bool, force: bool, mirror: Option<&str>) -> Result<Self> {
        let make = || KIND.make(&testbed.join(FOLDER), mirror, Stamp::fill);
        KIND.ensure(&testbed.join(FOLDER), offline, force, || Self::open(testbed), make)
    }

    /// The kernels there are, oldest first.
    pub fn kernels(&self) -> Vec<&'static str> {
        KERNELS.into_iter().filter(|series| self.stamp.kernels.contains_key(*series)).collect()
    }

    pub fn kernel(&self, series: &str) -> Result<&Kernel> {
        self.stamp.kernels.get(series).with_context(|| {
            format!(
                "Debian had no kernel {series} when these parts were downloaded; use `--kernel {}`. Debian drops kernels, and a download \
                 of today brings none back: {EARLIER}, and run `cargo xtask vm prepare --force`",
                self.kernels().join("` or `--kernel ")
            )
        })
    }

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

impl Stamp {
    /// Puts everything into `folder`.
    fn fill(apt: &PrivateApt, folder: &Path) -> Result<Self> {
        let (started, architecture) = (Instant::now(), apt::architecture()?);
        if architecture != ARCHITECTURE {
            bail!(
                "virtual machines with an NPU are PCs, and the packages for them are taken for {ARCHITECTURE} hosts only; \
                 this machine is {architecture}"
            );
        }
        let work = tempfile::tempdir_in(folder)?;
        let (packages, of_qemu) = qemu::make(apt, &work.path().join("qemu"), folder)?;
        let (kernels, of_kernels) = kernels::make(apt, &work.path().join("kernels"), folder)?;
        work.close()?;
        let (downloaded_bytes, kept_bytes) = (of_qemu + of_kernels, size(folder)?);
        Ok(Self { packages, kernels, downloaded_bytes, kept_bytes, seconds: started.elapsed().as_secs() })
    }
}

/// Bytes of the files in a folder.
fn size(folder: &Path) -> Result<u64> {
    let files = files::below(folder)?.into_iter().map(|name| fs::metadata(folder.join(name)));
    files
        .map(|file| file.map(|file| if file.is_dir() { 0 } else { file.len() }))
        .sum::<std::io::Result<u64>>()
        .map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_incomplete_parts_say_how_to_make_them() {
        let dir = tempfile::tempdir().unwrap();
        let error = || format!("{:#}", Parts::open(dir.path()).unwrap_err());
        assert!(error().contains("cargo xtask vm prepare"), "{}", error());
        let stamp = r#"{"schema":1,"packages":{},"kernels":{},"downloaded_bytes":1,"kept_bytes":1,"seconds":1}"#;
        fs::create_dir(dir.path().join(FOLDER)).unwrap();
        fs::write(dir.path().join(FOLDER).join("stamp.json"), stamp).unwrap();
        assert!(error().contains("is missing") && error().contains("--force"), "{}", error());
    }

    #[test]
    fn a_kernel_that_is_gone_is_not_to_be_had_by_force() {
        let kernels = [("7.3".to_owned(), Kernel::default())].into();
        let stamp = Stamp { packages: BTreeMap::new(), kernels, downloaded_bytes: 1, kept_bytes: 1, seconds: 1 };
        let parts = Parts { dir: PathBuf::new(), stamp };
        assert_eq!(parts.kernels(), ["7.3"]);
        let error = parts.kernel("7.2").unwrap_err().to_string();
        assert!(error.contains("use `--kernel 7.3`") && error.contains("AIE_TESTBED_MIRROR"), "{error}");
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
