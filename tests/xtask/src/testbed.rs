//! The testbed: a private Debian root with the stock ggml, llama.cpp, AMD's HSA runtime (ROCR) and AMD's other software
//! for NPUs (XRT and its tools), the kernel's headers beside it, and the way to run its programs.
//!
//! The programs come from Debian sid and would not start on an older system. They are started through the loader of
//! their own root with that root's libraries, so that neither a chroot nor root rights are needed and the system stays
//! as it is. ggml looks for its CPU backend in a compiled-in folder, which does not exist outside Debian, and then in
//! the working directory: hence every program runs in the root's backend folder, and paths given to it are absolute.

mod kernel_headers;
mod rocr;
pub mod virtual_machine;
mod xrt;

pub use kernel_headers::KernelHeaders;

use crate::apt::{self, PrivateApt};
use crate::{process, workspace};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is installed; their dependencies come along. base-files has the texts used for perplexity.
const PACKAGES: [&str; 6] =
    ["base-files", "libggml0", "libggml0-backend-rpc", "llama.cpp-tools", "llama.cpp-tools-extra", "llama.cpp-tests"];
const SUITE: &str = "sid";
/// Where the HSA runtime that knows AI Engines is, until sid has it.
const NEWER_SUITE: &str = "experimental";
/// Raised when a testbed made by an older version of this file is not good enough any more.
const SCHEMA: u32 = 3;
const STAMP: &str = "stamp.json";
/// Folder of the Debian root.
const ROOT: &str = "root";
/// Folder of the HSA runtime of the generation before.
const OLD_ROCR: &str = "rocr-old";
/// Folder of the kernel's headers, with a folder for each suite.
const KERNEL_HEADERS: &str = "kernel-headers";

/// What a testbed holds, as written into its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    schema: u32,
    /// Debian's name of the architecture.
    pub architecture: String,
    /// The Debian suite the packages are from.
    pub suite: String,
    /// Package to version, dependencies included.
    pub packages: BTreeMap<String, String>,
    /// Version of the HSA runtime of the generation before, which lies in a folder of its own.
    #[serde(default)]
    pub old_rocr: Option<String>,
    /// Version of the kernel's headers by the suite they are from. They lie in folders of their own.
    #[serde(default)]
    pub kernel_headers: BTreeMap<String, String>,
}

/// A complete testbed.
#[derive(Debug, Clone)]
pub struct Testbed {
    dir: PathBuf,
    stamp: Stamp,
    platform: Platform,
}

#[derive(Debug, Clone, Copy)]
struct Platform {
    triplet: &'static str,
    loader: &'static str,
}

impl Platform {
    fn of(architecture: &str) -> Result<Self> {
        match architecture {
            "amd64" => Ok(Self { triplet: "x86_64-linux-gnu", loader: "ld-linux-x86-64.so.2" }),
            "arm64" => Ok(Self { triplet: "aarch64-linux-gnu", loader: "ld-linux-aarch64.so.1" }),
            other => bail!("the testbed knows amd64 and arm64, and this machine is {other}"),
        }
    }
}

/// Where the testbed is when nothing else is said: `target/testbed` of the checkout.
pub fn default_dir() -> PathBuf {
    workspace::target().join("testbed")
}

impl Testbed {
    /// Opens the testbed in `dir`. Errors if it is missing, incomplete or made by an older version of this program.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(STAMP);
        let next = "make it with `cargo xtask testbed` (it downloads about 45 MB of Debian packages)";
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no testbed in {} (no {STAMP}); {next}", dir.display()))?;
        let stamp: Stamp = serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged; remake the testbed with `cargo xtask testbed --force`", path.display())
        })?;
        if stamp.schema != SCHEMA {
            bail!("the testbed in {} has format {}, needed is {SCHEMA}; {next}", dir.display(), stamp.schema);
        }
        let platform = Platform::of(&stamp.architecture)?;
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot resolve {}", dir.display()))?;
        let testbed = Self { dir, stamp, platform };
        testbed.program("test-backend-ops")?;
        testbed.program("llama-completion")?;
        testbed.rocr()?;
        existing(testbed.loader())?;
        Ok(testbed)
    }

    /// Makes a testbed in `dir`, replacing what is there. `mirror` overrides the machine's own Debian mirror.
    pub fn make(dir: &Path, mirror: Option<&str>) -> Result<Self> {
        let mirror = match mirror {
            Some(mirror) => mirror.to_owned(),
            None => apt::machine_mirror()?,
        };
        let architecture = apt::architecture()?;
        Platform::of(&architecture)?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // Built beside its place and moved there whole, so that a run broken off leaves no half-made root.
        let building = tempfile::Builder::new()
            .prefix(".making-")
            .tempdir_in(dir)
            .with_context(|| format!("cannot write in {}", dir.display()))?;
        let work = fs::canonicalize(building.path())?;
        let root = work.join("root");
        fs::create_dir(&root)?;
        let mut suites = vec![SUITE, NEWER_SUITE];
        suites.extend(kernel_headers::SUITES.into_iter().filter(|suite| ![SUITE, NEWER_SUITE].contains(suite)));
        let apt = PrivateApt::new(&work.join("apt"), &mirror, &suites, &xrt::ASSUMED)?;
        let runtimes = rocr::Choice::among(&apt)?;
        let wanted = runtimes.packages();
        let xrt = xrt::packages(&apt)?;
        let wanted: Vec<&str> =
            PACKAGES.into_iter().chain(wanted.iter().map(String::as_str)).chain(xrt.iter().copied()).collect();
        let mut files = apt.download(&wanted)?;
        // base-files first: it carries the links (/lib -> usr/lib) the other packages rely on.
        files.sort_by_key(|path| {
            !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("base-files_"))
        });
        let mut packages = BTreeMap::new();
        for file in &files {
            let (name, version) = apt::identity(file)?;
            apt::unpack(file, &root).with_context(|| format!("cannot unpack {name} {version}"))?;
            packages.insert(name, version);
        }
        if !xrt.is_empty() {
            let (name, version) = xrt::unpack_python(&apt, &work.join("alone-xrt"), &root)?;
            packages.insert(name, version);
        }
        let old_rocr = work.join(OLD_ROCR);
        runtimes.unpack_old(&apt, &work.join("alone"), &old_rocr)?;
        let headers = work.join(KERNEL_HEADERS);
        let kernel_headers = kernel_headers::unpack(&apt, &work.join("alone-headers"), &headers)?;
        let suite = SUITE.to_owned();
        let stamp = Stamp { schema: SCHEMA, architecture, suite, packages, old_rocr: runtimes.old, kernel_headers };
        let _ = fs::remove_file(dir.join(STAMP));
        let places = [(root, ROOT), (old_rocr, OLD_ROCR), (headers, KERNEL_HEADERS)];
        for (made, place) in places.map(|(made, name)| (made, dir.join(name))) {
            if place.exists() {
                let aside = tempfile::Builder::new().prefix("old-").tempdir_in(&work)?.keep();
                fs::rename(&place, aside.join("old")).with_context(|| format!("cannot replace {}", place.display()))?;
            }
            fs::rename(&made, &place).with_context(|| format!("cannot put {} in its place", place.display()))?;
        }
        let written = work.join(STAMP);
        fs::write(&written, serde_json::to_string_pretty(&stamp)?)?;
        fs::rename(written, dir.join(STAMP))?;
        Self::open(dir)
    }

    /// Opens the testbed in `dir` or makes it, unless `offline`.
    pub fn ensure(dir: &Path, offline: bool) -> Result<Self> {
        match Self::open(dir) {
            Ok(testbed) => Ok(testbed),
            Err(error) if offline => Err(error.context("the testbed is not usable and --offline forbids making it")),
            Err(_) => {
                eprintln!("making the testbed in {} ...", dir.display());
                Self::make(dir, None)
            }
        }
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it holds.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// A command for one of its programs, by name: started through the testbed's own loader, in the folder with ggml's
    /// backends, without any ggml or llama.cpp setting of the caller's environment. Paths in arguments must be absolute.
    pub fn command(&self, program: &str) -> Result<Command> {
        Ok(self.command_for(&self.program(program)?))
    }

    /// The same for a program that is not the testbed's own, but linked to its libraries.
    pub fn command_for(&self, program: &Path) -> Command {
        self.command_with(program, None)
    }

    /// The same with a library loaded before all others. Only this process gets it, not its children.
    pub fn command_with(&self, program: &Path, preload: Option<&Path>) -> Command {
        let mut line = self.line(program, preload).into_iter();
        let mut command = Command::new(line.next().unwrap_or_default());
        command.args(line).current_dir(self.backends()).env("LC_ALL", "C.UTF-8");
        process::clear_settings(&mut command);
        command
    }

    /// The words that start a program: the loader, its options, and the program.
    pub fn line(&self, program: &Path, preload: Option<&Path>) -> Vec<OsString> {
        let lib = self.lib();
        let libraries = format!("{}:{}", lib.display(), lib.join("llama").display());
        let mut line = vec![self.loader().into_os_string(), "--library-path".into(), libraries.into()];
        if let Some(preload) = preload {
            line.extend(["--preload".into(), preload.as_os_str().to_owned()]);
        }
        line.push(program.as_os_str().to_owned());
        line
    }

    /// One of its libraries, by file name.
    pub fn library(&self, name: &str) -> Result<PathBuf> {
        existing(self.lib().join(name))
    }

    /// The HSA runtime with support for AI Engines, ROCR 7.2 or newer: the file `libhsa-runtime64.so.1`.
    pub fn rocr(&self) -> Result<PathBuf> {
        self.library(rocr::FILE)
    }

    /// The HSA runtime of the generation before, ROCR 6: it finds NPUs and cannot use them.
    pub fn old_rocr(&self) -> Result<PathBuf> {
        if self.stamp.old_rocr.is_none() {
            bail!("Debian had no ROCR older than 7.0 when this testbed was made, so there is none to be refused");
        }
        existing(self.dir.join(OLD_ROCR).join("usr/lib").join(self.platform.triplet).join(rocr::FILE))
    }

    /// The folder with `hsa/hsa.h` and its like, of the same version as [`Testbed::rocr`].
    pub fn headers(&self) -> Result<PathBuf> {
        let path = self.root().join("usr/include");
        existing(path.join("hsa/hsa.h"))?;
        Ok(path)
    }

    /// The kernel's headers, one entry for each suite that has them, the oldest first.
    pub fn kernel_headers(&self) -> Result<Vec<KernelHeaders>> {
        KernelHeaders::list(&self.dir.join(KERNEL_HEADERS), &self.stamp.kernel_headers)
    }

    /// A program of AMD's other software for NPUs (`xrt-smi`, `xclbinutil`, `bootgen`, `aiebu-dump`, `aiebu-asm`), or
    /// `python3` with XRT's Python module.
    pub fn xrt(&self, program: &str) -> Result<PathBuf> {
        if !self.stamp.packages.contains_key(xrt::DRIVER) {
            bail!(
                "Debian had no {} for {} when this testbed was made, so there is no {program} to judge with",
                xrt::DRIVER,
                self.stamp.architecture
            );
        }
        self.program(program)
    }

    /// An English text of more than 5,000 words.
    pub fn text(&self) -> Result<PathBuf> {
        existing(self.root().join("usr/share/common-licenses/GPL-3"))
    }

    /// Where a downloaded model lies.
    pub fn models(&self) -> PathBuf {
        self.dir.join("models")
    }

    /// The root's multiarch library folder.
    fn lib(&self) -> PathBuf {
        self.root().join("usr/lib").join(self.platform.triplet)
    }

    /// The Debian root.
    pub fn root(&self) -> PathBuf {
        self.dir.join(ROOT)
    }

    fn loader(&self) -> PathBuf {
        self.lib().join(self.platform.loader)
    }

    fn backends(&self) -> PathBuf {
        self.lib().join("ggml/backends0")
    }

    /// Where one of its programs is.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let private = self.root().join("usr/libexec").join(self.platform.triplet);
        let places = [
            self.root().join("usr/bin"),
            private.join("ggml"),
            private.join("llama/bin"),
            private.join("llama.cpp-tests"),
        ];
        match places.iter().map(|place| place.join(name)).find(|path| path.exists()) {
            Some(path) => Ok(path),
            None => bail!(
                "the testbed has no program {name} (looked in {}); remake it with `cargo xtask testbed --force`",
                places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

/// A file that every testbed has.
fn existing(path: PathBuf) -> Result<PathBuf> {
    if !path.exists() {
        bail!("{} is missing; remake the testbed with `cargo xtask testbed --force`", path.display());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_testbed_says_how_to_make_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", Testbed::open(dir.path()).unwrap_err());
        assert!(error.contains("cargo xtask testbed"), "{error}");
        let error = format!("{:#}", Testbed::ensure(dir.path(), true).unwrap_err());
        assert!(error.contains("--offline"), "{error}");
    }

    #[test]
    fn a_damaged_or_old_stamp_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STAMP), "{").unwrap();
        assert!(format!("{:#}", Testbed::open(dir.path()).unwrap_err()).contains("--force"));
        let old = Stamp {
            schema: 0,
            architecture: "amd64".into(),
            suite: "sid".into(),
            packages: BTreeMap::new(),
            old_rocr: None,
            kernel_headers: BTreeMap::new(),
        };
        fs::write(dir.path().join(STAMP), serde_json::to_string(&old).unwrap()).unwrap();
        assert!(format!("{:#}", Testbed::open(dir.path()).unwrap_err()).contains("format 0"));
    }

    #[test]
    fn an_incomplete_root_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = Stamp {
            schema: SCHEMA,
            architecture: "amd64".into(),
            suite: "sid".into(),
            packages: BTreeMap::new(),
            old_rocr: None,
            kernel_headers: BTreeMap::new(),
        };
        fs::write(dir.path().join(STAMP), serde_json::to_string(&stamp).unwrap()).unwrap();
        assert!(format!("{:#}", Testbed::open(dir.path()).unwrap_err()).contains("test-backend-ops"));
    }
}
