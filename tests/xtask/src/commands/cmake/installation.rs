//! The backend as CMake installed it: which files there are, and what they say of themselves.

use super::{Setup, sources};
use crate::commands::iron;
use crate::files;
use crate::process::run_helper;
use crate::tools::{argument, run_cmake};
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Files an installation has, beside the programs and what is taken from folders.
const FILES: [&str; 8] = [
    "lib/libggml-hsa.so",
    "include/ggml-hsa.h",
    "lib/cmake/ggml-hsa/ggml-hsa-config.cmake",
    "lib/cmake/ggml-hsa/ggml-hsa-config-version.cmake",
    "lib/pkgconfig/ggml-hsa.pc",
    "share/ggml-hsa/env_setup.sh",
    "share/ggml-hsa/requirements.txt",
    "share/ggml-hsa/iron/worker.py",
];
/// Folders of the workspace with a file or a folder for each of its programs.
const PROGRAM_FOLDERS: [&str; 2] = ["jit-iron/src/bin", "ggml-bridge/cli/src/bin"];
/// Examples of configurations, in the workspace.
const EXAMPLES: &str = "jit-iron/examples/kernels";
/// Places where everything installed must be.
const FOLDERS: [&str; 4] = ["bin", "include", "lib", "share/ggml-hsa"];
const LIMIT: Duration = Duration::from_secs(60);

pub struct Installation {
    /// Its prefix, to which it was moved after it was installed.
    pub prefix: PathBuf,
    build: PathBuf,
}

impl Installation {
    /// Configures, builds and installs, and moves the tree to `prefix`.
    pub fn make(setup: &Setup, prefix: &Path) -> Result<(Self, String)> {
        // Blanks in paths are where scripts break.
        let build = setup.work.path().join("a build");
        let first = prefix.with_file_name(".ggml-hsa-first");
        let mut configure = setup.configure(&sources(), &build);
        configure.arg(argument("-DCMAKE_INSTALL_PREFIX=", &first)).arg("-DCMAKE_INSTALL_LIBDIR=lib");
        configure.args(setup.cargo_settings());
        run_cmake(&mut configure).context("cannot configure")?;
        run_cmake(&mut setup.build(&build)).context("cannot build")?;
        run_cmake(setup.cmake(&["--install"]).arg(&build)).context("cannot install")?;
        fs::rename(&first, prefix).with_context(|| format!("cannot move the tree to {}", prefix.display()))?;
        let seen = format!("moved to {}", prefix.display());
        Ok((Self { prefix: prefix.to_path_buf(), build }, seen))
    }

    /// A tree at `prefix`, for tests of what reads it.
    #[cfg(test)]
    pub fn at(prefix: &str) -> Self {
        Self { prefix: prefix.into(), build: PathBuf::new() }
    }

    pub fn library(&self) -> PathBuf {
        self.prefix.join("lib/libggml-hsa.so")
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.prefix.join("bin").join(name)
    }

    /// Everything that must be there is, and nothing is elsewhere.
    pub fn files(&self, setup: &Setup) -> Result<String> {
        let found = files::below(&self.prefix)?.into_iter().filter(|name| !self.prefix.join(name).is_dir());
        let found: BTreeSet<String> = found.map(|name| name.to_string_lossy().into_owned()).collect();
        let programs = programs().into_iter().map(|name| format!("bin/{name}"));
        let examples =
            names(&workspace::root().join(EXAMPLES)).into_iter().map(|name| format!("share/ggml-hsa/examples/{name}"));
        let wanted = FILES.iter().map(|&name| name.to_owned()).chain(programs).chain(examples);
        let missing: Vec<String> = wanted.filter(|name| !found.contains(name)).collect();
        if !missing.is_empty() {
            bail!("not installed: {}; found {found:?}", missing.join(", "));
        }
        let inside = |name: &String| FOLDERS.iter().any(|folder| name.starts_with(&format!("{folder}/")));
        let stray: Vec<&String> = found.iter().filter(|name| !inside(name) || name.contains("__pycache__")).collect();
        if !stray.is_empty() {
            bail!("installed and should not be: {stray:?}");
        }
        let built = setup.cargo_target.join("release/libggml_hsa.so");
        if fs::read(&built)? != fs::read(self.library())? {
            bail!("{} is not what cargo built as {}", self.library().display(), built.display());
        }
        for name in found.iter().filter(|name| !name.starts_with("bin/") && !name.ends_with(".so")) {
            let text = fs::read(self.prefix.join(name))?;
            let first = self.prefix.with_file_name(".ggml-hsa-first");
            if String::from_utf8_lossy(&text).contains(&*first.to_string_lossy()) {
                bail!("{name} contains its installation folder, and would be wrong after a move");
            }
        }
        Ok(format!("{} files", found.len()))
    }

    /// Every program starts and says what it is for.
    pub fn programs(&self) -> Result<String> {
        let mut seen = Vec::new();
        for name in programs() {
            let path = self.program(&name);
            if fs::metadata(&path)?.permissions().mode() & 0o111 != 0o111 {
                bail!("{} cannot be executed by everybody", path.display());
            }
            let said = run_helper(Command::new(&path).arg("--help"), LIMIT)?;
            if said.trim().is_empty() {
                bail!("{} --help says nothing", path.display());
            }
            seen.push(name);
        }
        Ok(seen.join(", "))
    }

    /// The script that enters the environment of IRON says ready after it has compiled with what was installed.
    pub fn environment_script(&self, offline: bool) -> Result<String> {
        iron::environment_script(&self.prefix.join("share/ggml-hsa"), offline)
    }

    /// A second build has nothing to do: it writes no file again.
    pub fn build_again(&self, setup: &Setup) -> Result<String> {
        let library = self.build.join("lib/libggml-hsa.so");
        let written = || fs::metadata(&library)?.modified().with_context(|| format!("{}", library.display()));
        let before = written()?;
        run_cmake(&mut setup.build(&self.build))?;
        if written()? != before {
            bail!("{} was rewritten although nothing had changed", library.display());
        }
        Ok("nothing to do".to_owned())
    }

    /// What pkg-config says of the tree.
    pub fn pkg_config(&self, setup: &Setup) -> Result<String> {
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(&setup.pkg_config);
            // Without this, pkg-config leaves out folders it thinks the compiler knows.
            command.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
            command.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig")).args(arguments).arg("ggml-hsa");
            run_helper(&mut command, LIMIT).map(|text| text.trim().to_owned())
        };
        for (variable, path) in [
            ("library", self.library()),
            ("backend_dir", self.prefix.join("lib")),
            ("includedir", self.prefix.join("include")),
            ("bindir", self.prefix.join("bin")),
            ("gen_kernels", self.program("ggml-hsa-gen-kernels")),
            ("datadir", self.prefix.join("share/ggml-hsa")),
        ] {
            same_path(variable, &ask(&[&format!("--variable={variable}")])?, &path)?;
        }
        let version = ask(&["--modversion"])?;
        if version != env!("CARGO_PKG_VERSION") {
            bail!("--modversion is {version}, and this is {}", env!("CARGO_PKG_VERSION"));
        }
        let flags = ask(&["--cflags", "--libs"])?;
        let words: Vec<&str> = flags.split_whitespace().collect();
        let [include, folder, "-lggml-hsa"] = words[..] else { bail!("--cflags --libs gives {flags}") };
        same_path("-I", include.trim_start_matches("-I"), &self.prefix.join("include"))?;
        same_path("-L", folder.trim_start_matches("-L"), &self.prefix.join("lib"))?;
        Ok(format!("ggml-hsa {version}"))
    }
}

/// Every program of the packages that are installed.
fn programs() -> Vec<String> {
    let folders = PROGRAM_FOLDERS.iter().flat_map(|folder| names(&workspace::root().join(folder)));
    let stem = |name: String| name.strip_suffix(".rs").map(str::to_owned).unwrap_or(name);
    folders.map(stem).collect()
}

/// What is in a folder, sorted; nothing if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Paths of a moved tree have `..` in them, which is right as long as they lead to the same place.
pub fn same_path(what: &str, given: &str, wanted: &Path) -> Result<()> {
    if normal(Path::new(given)) == normal(wanted) {
        return Ok(());
    }
    bail!("{what} is {given}, expected {}", wanted.display())
}

/// `path` with its links and `..` resolved as far as it exists.
fn normal(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(found), ..) => found,
        (Err(_), Some(parent), Some(name)) => normal(parent).join(name),
        _ => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_by_where_they_lead() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("lib/pkgconfig")).unwrap();
        let given = dir.path().join("lib/pkgconfig/../../bin/tool");
        same_path("x", &given.to_string_lossy(), &dir.path().join("bin/tool")).unwrap();
        assert!(same_path("x", "/elsewhere", dir.path()).unwrap_err().to_string().contains("/elsewhere"));
    }

    #[test]
    fn every_program_of_the_workspace_must_be_installed() {
        let programs = programs();
        for name in ["ggml-hsa-jit-worker", "ggml-hsa"] {
            assert!(programs.iter().any(|program| program == name), "{name} is not in {programs:?}");
        }
        assert!(names(Path::new("/nonexistent")).is_empty());
    }
}
