//! A clean Debian root, on which packages are installed as a user does it: dpkg, apt and what every Debian has, set up by its
//! own scripts, and stock llama.cpp as a package that apt can install without a network.
//!
//! It lies in `clean` of the testbed's folder, is made once, and is copied for each use. What happens in it runs in namespaces
//! of its own, which ends with the program. The superuser may make them, and so may others where the system lets them
//! (`unshare --map-auto`, with the ranges of /etc/subuid).

use super::stamped::Kind;
use crate::apt::{self, PrivateApt};
use crate::process::{self, Finished, is_superuser, run_helper};
use crate::{build, library};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FOLDER: &str = "clean";
const ROOT: &str = "root";
const LIMIT: Duration = Duration::from_secs(600);
/// What every Debian has.
const BASE: [&str; 4] = ["?essential", "adduser", "apt", "passwd"];
/// What users install from Debian, with what it recommends.
const OFFERED: [&str; 1] = ["llama.cpp-tools"];
/// The same without, as that would be much more.
pub(super) const OFFERED_ALONE: [&str; 5] =
    ["lemonade-server", "libwhisper1", "python3-cffi", "python3-certifi", "python3-numpy"];
pub const USER: &str = "user";

const KIND: Kind = Kind {
    what: "clean Debian root",
    schema: 3,
    make: "`cargo xtask package check` makes it (it downloads about 90 MB of Debian packages)",
    remake: "delete its folder, and run `cargo xtask package check`",
    suites: &["sid"],
    assumed: &[],
    places: &[ROOT],
};

/// A program in namespaces of its own whose root is the first argument. Devices and /sys are the machine's.
///
/// The shell stays as their first process: the kernel ends it, and all others with it, when `unshare` ends. A program that becomes
/// another user would lose that and outlive it.
const ENTER: &str = r#"root=$1; shift
mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" && mount -t proc proc "$root/proc" && chroot "$@"
exit $?"#;

#[derive(Debug, Serialize, Deserialize)]
struct Stamp {
    /// Package to version.
    packages: BTreeMap<String, String>,
}

/// A copy of the root, removed when dropped.
pub struct CleanRoot {
    dir: tempfile::TempDir,
}

impl CleanRoot {
    /// A copy for one use, with a new user in it; the root it is a copy of is made first if there is none, unless `offline`.
    pub fn new(testbed: &Path, offline: bool) -> Result<Self> {
        let place = testbed.join(FOLDER);
        let open = || KIND.open::<Stamp>(&place).map(|(dir, _)| dir);
        let original = KIND.ensure(&place, offline, false, open, || KIND.make(&place, None, Stamp::fill))?;
        let dir = tempfile::Builder::new().prefix(".using-").tempdir_in(&original)?;
        let root = Self { dir };
        let mut copy = Command::new("cp");
        run_helper(copy.args(["--archive", "--reflink=auto"]).arg(original.join(ROOT)).arg(root.dir.path()), LIMIT)?;
        let added = root.run(None, LIMIT, &["useradd", "--create-home", USER])?;
        added.ensure("useradd")?;
        Ok(root)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join(ROOT)
    }

    /// The home of the user, as this machine sees it.
    pub fn home(&self) -> PathBuf {
        self.path().join("home").join(USER)
    }

    /// Puts a file of this machine into the user's home.
    pub fn give(&self, file: &Path) -> Result<()> {
        let place = self.home().join(file.file_name().context("a file without a name")?);
        fs::copy(file, &place).with_context(|| format!("cannot copy {}", file.display())).map(drop)
    }

    /// Puts a folder of this machine into the user's home under this name.
    pub fn give_folder(&self, folder: &Path, name: &str) -> Result<()> {
        run_helper(Command::new("cp").arg("--recursive").arg(folder).arg(self.home().join(name)), LIMIT).map(drop)
    }

    /// Puts the library and its programs, as the other commands build them, into /usr/local; returns the path of `ggml-hsa`.
    pub fn give_library(&self, offline: bool) -> Result<String> {
        let place = self.path().join("usr/local");
        let library = library::locate(None, offline)?;
        let built = build::cargo(&build::BACKEND, offline)?;
        fs::copy(&library, place.join("lib/libggml-hsa.so"))?;
        for name in ["ggml-hsa", "ggml-hsa-jit-worker"] {
            fs::copy(built.executable("bin", name)?, place.join("bin").join(name))?;
        }
        Ok("/usr/local/bin/ggml-hsa".to_owned())
    }

    /// Makes everything in the user's home theirs.
    pub fn own_home(&self) -> Result<()> {
        let owner = format!("{USER}:{USER}");
        self.run(None, LIMIT, &["chown", "--recursive", &owner, &format!("/home/{USER}")])?.ensure("chown")
    }

    /// Installs packages of Debian that the root has the files of. As the root is thrown away, dpkg need not wait for the disk.
    pub fn install(&self, packages: &[&str]) -> Result<()> {
        let options = ["apt-get", "install", "--yes", "--no-install-recommends"];
        let settings = ["-o", "APT::Sandbox::User=root", "-o", "Dpkg::Options::=--force-unsafe-io"];
        self.run(None, LIMIT, &[&options[..], &settings, packages].concat())?.ensure("apt-get install")
    }

    /// Runs a program of the root to its end: as the superuser, or as [`USER`], each in its home folder.
    pub fn run(&self, user: Option<&str>, limit: Duration, line: &[impl AsRef<OsStr>]) -> Result<Finished> {
        process::run(&mut self.command(user, line), limit)
    }

    /// Bytes of the root, or of a folder in it.
    pub fn size(&self, folder: &str) -> Result<u64> {
        let mut du = Command::new("du");
        let text = run_helper(du.args(["--summarize", "--block-size=1"]).arg(self.path().join(folder)), LIMIT)?;
        text.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).context("du printed no size")
    }

    /// The same, not started yet.
    pub fn command(&self, user: Option<&str>, line: &[impl AsRef<OsStr>]) -> Command {
        enter(&self.path(), user, line)
    }
}

fn enter(root: &Path, user: Option<&str>, line: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new("unshare");
    if !is_superuser() {
        command.args(["--map-root-user", "--map-auto"]);
    }
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]).arg(root);
    let home = match user {
        Some(user) => {
            command.arg(format!("--userspec={user}:{user}"));
            format!("/home/{user}")
        }
        None => "/root".to_owned(),
    };
    command.arg(root).args([
        "env",
        "-i",
        "--chdir",
        &home,
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ]);
    command.args([&format!("HOME={home}"), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]).args(line);
    command
}

impl Stamp {
    /// Makes the root in `folder`.
    fn fill(apt: &PrivateApt, folder: &Path) -> Result<Self> {
        let root = folder.join(ROOT);
        let mut files = apt.download(&BASE)?;
        // base-files first: it carries the links (/lib -> usr/lib) the other packages rely on.
        files.sort_by_key(|path| !path.to_string_lossy().contains("/base-files_"));
        let unpacked = files.iter().map(|file| apt::unpack(file, &root)).collect::<Result<Vec<_>>>()?;
        // What the packages' scripts take for granted, and scripts of others make.
        for name in ["passwd", "group"] {
            fs::copy(root.join(format!("usr/share/base-passwd/{name}.master")), root.join("etc").join(name))?;
        }
        std::os::unix::fs::symlink("mawk", root.join("usr/bin/awk"))?;
        for name in ["status", "available"] {
            fs::write(root.join("var/lib/dpkg").join(name), "")?;
        }
        apt.hand_over(&root)?;
        let install = "dpkg --install --force-depends /var/cache/apt/archives/*.deb";
        let mut command = enter(&root, None, &["sh", "-c", install]);
        run_helper(&mut command, LIMIT).with_context(|| {
            format!(
                "the root's packages cannot be set up; `{}` needs the superuser's rights, or a user with ranges in /etc/subuid and \
                 newuidmap (Debian: apt-get install uidmap)",
                "unshare --mount --pid"
            )
        })?;
        apt.download_recommended(&OFFERED)?;
        apt.download(&OFFERED_ALONE)?;
        apt.hand_over(&root)?;
        Ok(Self { packages: unpacked.into_iter().map(|package| (package.name, package.version)).collect() })
    }
}
