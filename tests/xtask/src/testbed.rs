//! The testbed: a private Debian root with the stock ggml, llama.cpp, AMD's HSA runtime (ROCR) and AMD's other software
//! for NPUs (XRT and its tools), the kernel's headers beside it, and the way to run its programs.
//!
//! The programs come from Debian sid and would not start on an older system. They are started through the loader of
//! their own root with that root's libraries, so that neither a chroot nor root rights are needed and the system stays
//! as it is. ggml looks for its CPU backend in a compiled-in folder, which does not exist outside Debian, and then in
//! the working directory: hence every program runs in the root's backend folder, and paths given to it are absolute.

mod amd;
pub mod clean_root;
#[cfg(test)]
mod doctored;
mod ggml;
mod kernel_headers;
mod stamped;
pub mod virtual_machine;

pub use kernel_headers::KernelHeaders;

use crate::apt::{self, EARLIER, PrivateApt};
use crate::simulation::quoted;
use crate::{files, process, workspace};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use stamped::Kind;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "sid";
const ROOT: &str = "root";
/// Folder of the HSA runtime of the generation before.
const OLD_ROCR: &str = "rocr-old";
/// Folder of the kernel's headers, with a folder for each suite.
const KERNEL_HEADERS: &str = "kernel-headers";

const KIND: Kind = Kind {
    what: "testbed",
    schema: 3,
    make: "create it with `cargo xtask testbed` (it downloads about 45 MB of Debian packages)",
    remake: "rebuild the testbed with `cargo xtask testbed --force`",
    suites: &kernel_headers::SUITES,
    assumed: &amd::ASSUMED,
    places: &[ROOT, OLD_ROCR, KERNEL_HEADERS],
};

/// What a testbed holds, as written into its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
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

#[derive(Debug, Clone)]
pub struct Testbed {
    pub dir: PathBuf,
    pub stamp: Stamp,
    platform: Platform,
    /// The folder with ggml's backends.
    pub backends: PathBuf,
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

/// Debian's name of the folder with the libraries of `architecture`.
pub fn triplet(architecture: &str) -> Result<&'static str> {
    Ok(Platform::of(architecture)?.triplet)
}

/// Where the testbed is when nothing else is said: `target/testbed` of the checkout.
pub fn default_dir() -> PathBuf {
    workspace::target().join("testbed")
}

impl Testbed {
    /// Opens the testbed in `dir`. Errors if it is missing, incomplete or made by an older version of this program.
    pub fn open(dir: &Path) -> Result<Self> {
        let (dir, stamp): (_, Stamp) = KIND.open(dir)?;
        let platform = Platform::of(&stamp.architecture)?;
        let backends = ggml::backends(&dir.join(ROOT).join("usr/lib").join(platform.triplet))?;
        let testbed = Self { dir, stamp, platform, backends };
        testbed.program("test-backend-ops")?;
        testbed.program("llama-completion")?;
        testbed.library(amd::FILE)?;
        existing(testbed.loader())?;
        Ok(testbed)
    }

    /// Opens the testbed in `dir` or makes it, unless `offline`.
    pub fn ensure(dir: &Path, offline: bool) -> Result<Self> {
        Self::prepare(dir, offline, false, None)
    }

    /// The same; `force` makes it also when it is there, and `mirror` overrides the machine's own Debian mirror.
    pub fn prepare(dir: &Path, offline: bool, force: bool, mirror: Option<&str>) -> Result<Self> {
        KIND.ensure(dir, offline, force, || Self::open(dir), || KIND.make(dir, mirror, Stamp::fill))
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
        command.args(line).current_dir(&self.backends).env("LC_ALL", "C.UTF-8");
        process::clear_settings(&mut command);
        command
    }

    /// The words that start a program: the loader, its options, and the program.
    pub fn line(&self, program: &Path, preload: Option<&Path>) -> Vec<OsString> {
        let mut line = self.loader_line(preload);
        line.push(program.as_os_str().to_owned());
        line
    }

    /// The words before a program: the loader and its options.
    pub fn loader_line(&self, preload: Option<&Path>) -> Vec<OsString> {
        let lib = self.lib();
        let libraries = format!("{}:{}", lib.display(), lib.join("llama").display());
        let mut line = vec![self.loader().into_os_string(), "--library-path".into(), libraries.into()];
        if let Some(preload) = preload {
            line.extend(["--preload".into(), preload.as_os_str().to_owned()]);
        }
        line
    }

    pub fn library(&self, name: &str) -> Result<PathBuf> {
        existing(self.lib().join(name))
    }

    /// The HSA runtime with support for AI Engines, ROCR 7.2 or newer: the file `libhsa-runtime64.so.1`. Warns of one that is later than
    /// the checks.
    pub fn rocr(&self) -> Result<PathBuf> {
        if let Some(warning) = self.stamp.packages.get(amd::LIBRARY).and_then(|version| amd::warning(version)) {
            eprintln!("warning: {warning}");
        }
        self.library(amd::FILE)
    }

    /// The HSA runtime of the generation before, ROCR 6: it finds NPUs and cannot use them.
    pub fn old_rocr(&self) -> Result<PathBuf> {
        if self.stamp.old_rocr.is_none() {
            bail!("Debian had no ROCR older than 7.0 when this testbed was created, so the rejection cannot be tested");
        }
        existing(self.dir.join(OLD_ROCR).join("usr/lib").join(self.platform.triplet).join(amd::FILE))
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
        if !self.stamp.packages.contains_key(amd::DRIVER) {
            bail!(
                "Debian had no {} for {} when this testbed was created, so there is no {program} to compare with; {EARLIER}, and run \
                 `cargo xtask testbed --force`",
                amd::DRIVER,
                self.stamp.architecture
            );
        }
        self.program(program)
    }

    /// Texts of more than 4,096 tokens each: a licence, a header in C, a program in Perl.
    pub fn texts(&self) -> Result<[PathBuf; 3]> {
        let of = |path| existing(self.root().join(path));
        Ok([
            of("usr/share/common-licenses/GPL-3")?,
            of("usr/include/hsa/hsa.h")?,
            of("usr/share/perl5/Debconf/ConfModule.pm")?,
        ])
    }

    /// Where a downloaded model lies.
    pub fn models(&self) -> PathBuf {
        self.dir.join("models")
    }

    /// The root's multiarch library folder.
    fn lib(&self) -> PathBuf {
        self.root().join("usr/lib").join(self.platform.triplet)
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join(ROOT)
    }

    fn loader(&self) -> PathBuf {
        self.lib().join(self.platform.loader)
    }

    /// A shell script in `folder` that starts a program of the testbed, which needs a loader, from the folder of backends: for programs
    /// that start others by their path.
    pub fn script(&self, name: &str, folder: &Path) -> Result<PathBuf> {
        let quoted = |word: &OsStr| quoted(&word.to_string_lossy());
        let line = self.line(&self.program(name)?, None);
        let words: Vec<String> = line.iter().map(|word| quoted(word)).collect();
        let text = format!("#!/bin/sh\ncd {} && exec {} \"$@\"\n", quoted(self.backends.as_os_str()), words.join(" "));
        let path = folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let public = self.root().join("usr/bin").join(name);
        if public.exists() {
            return Ok(public);
        }
        // Programs of ggml and llama.cpp that users do not start, in folders whose names have changed before.
        let private = self.root().join("usr/libexec");
        let found = files::below(&private).unwrap_or_default().into_iter().find(|path| path.ends_with(name));
        found.map(|path| private.join(path)).with_context(|| {
            format!(
                "the testbed has no program {name} (looked in {} and below {}); rebuild it with `cargo xtask testbed --force`; if that \
                 changes nothing, Debian's packages have changed: {EARLIER}",
                public.display(),
                private.display()
            )
        })
    }
}

/// What is downloaded, chosen among what Debian has.
struct Wanted {
    packages: Vec<String>,
    runtimes: amd::Choice,
    /// Whether AMD's other software for NPUs is there.
    xrt: bool,
}

impl Wanted {
    fn among(apt: &PrivateApt) -> Result<Self> {
        let runtimes = amd::Choice::among(apt)?;
        let xrt = amd::xrt_packages(apt)?;
        let mut packages = ggml::packages(apt)?;
        packages.extend(runtimes.packages());
        packages.extend(xrt.iter().map(|name| (*name).to_owned()));
        Ok(Self { packages, runtimes, xrt: !xrt.is_empty() })
    }
}

impl Stamp {
    /// Puts everything into `folder`.
    fn fill(apt: &PrivateApt, folder: &Path) -> Result<Self> {
        let architecture = apt::architecture()?;
        Platform::of(&architecture)?;
        let Wanted { packages, runtimes, xrt } = Wanted::among(apt)?;
        let mut files = apt.download(&packages.iter().map(String::as_str).collect::<Vec<_>>())?;
        // base-files first: it carries the links (/lib -> usr/lib) the other packages rely on.
        files.sort_by_key(|path| {
            !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("base-files_"))
        });
        let root = folder.join(ROOT);
        let mut unpacked = files.iter().map(|file| apt::unpack(file, &root)).collect::<Result<Vec<_>>>()?;
        if xrt {
            unpacked.push(apt.unpack_alone(amd::PYTHON_MODULE, &root)?);
        }
        runtimes.unpack_old(apt, &folder.join(OLD_ROCR))?;
        let kernel_headers = kernel_headers::unpack(apt, &folder.join(KERNEL_HEADERS))?;
        let packages = unpacked.into_iter().map(|package| (package.name, package.version)).collect();
        Ok(Self { architecture, suite: SUITE.to_owned(), packages, old_rocr: runtimes.old, kernel_headers })
    }
}

/// A file that every testbed has.
fn existing(path: PathBuf) -> Result<PathBuf> {
    if !path.exists() {
        bail!(
            "{} is missing; rebuild the testbed with `cargo xtask testbed --force`; if that changes nothing, Debian's packages have \
             changed: {EARLIER}",
            path.display()
        );
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_incomplete_testbed_says_how_to_make_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = || format!("{:#}", Testbed::open(dir.path()).unwrap_err());
        assert!(error().contains("no testbed in") && error().contains("cargo xtask testbed"), "{}", error());
        let stamp = r#"{"schema":3,"architecture":"amd64","suite":"sid","packages":{}}"#;
        fs::write(dir.path().join(stamped::STAMP), stamp).unwrap();
        assert!(error().contains("no folder backends") && error().contains("--force"), "{}", error());
        fs::create_dir_all(dir.path().join("root/usr/lib/x86_64-linux-gnu/ggml/backends0")).unwrap();
        assert!(error().contains("test-backend-ops") && error().contains("--force"), "{}", error());
    }
}
