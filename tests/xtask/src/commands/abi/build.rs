//! Builds ggml with cmake, once per release, and the test program against any ggml.

use super::sources::{CRATE, Sources, Version};
use crate::process::{self, run_helper};
use crate::python::pip;
use crate::workspace;
use aie_hal::Environment;
use aie_hal::environment::table::{CC, CXX};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(1800);
const CMAKE_FILE: &str = include_str!("../../../abi/CMakeLists.txt");
const STAMP: &str = "stamp.json";
const COMPILE_WITH: &str = "building ggml needs a C and a C++ compiler and make (Debian: apt-get install g++ make)";

/// The shared libraries of one release of ggml.
#[derive(Debug)]
pub struct Build {
    /// Folder with `libggml.so`, `libggml-base.so` and `libggml-cpu.so`.
    pub libraries: PathBuf,
    /// How long cmake took, now or when it was built.
    pub seconds: f64,
    /// Whether an earlier build was used.
    pub cached: bool,
}

/// What a finished build was made of.
#[derive(Serialize, Deserialize)]
struct Stamp {
    ggml: String,
    cmake_file: String,
    seconds: f64,
}

impl Build {
    /// Builds the release in `folder`, or uses what a finished build left there.
    pub fn ensure(sources: &Sources, folder: &Path, jobs: usize, offline: bool, force: bool) -> Result<Self> {
        let build = folder.join("build");
        let libraries = build.join("lib");
        let stamp = folder.join(STAMP);
        if !force
            && let Some(seconds) = finished(&stamp, sources.ggml)
            && libraries.join("libggml.so").exists()
        {
            return Ok(Self { libraries, seconds, cached: true });
        }
        let _ = fs::remove_file(&stamp);
        if build.exists() {
            fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
        }
        eprintln!("building ggml {} ({CRATE} {}), about a minute ...", sources.ggml, sources.crate_version);
        let cmake = cmake(offline)?;
        compilers(offline)?;
        let started = Instant::now();
        let mut configure = Command::new(&cmake);
        configure.arg("-S").arg(workspace::root().join("tests/xtask/abi")).arg("-B").arg(&build);
        configure.arg("-DCMAKE_BUILD_TYPE=Release").arg(argument("-DGGML_SOURCE=", &sources.folder));
        run_cmake(configure).context(COMPILE_WITH)?;
        let mut compile = Command::new(&cmake);
        compile.arg("--build").arg(&build).args(["--target", "ggml", "--parallel", &jobs.to_string()]);
        run_cmake(compile).with_context(|| format!("ggml {} does not build", sources.ggml))?;
        let seconds = started.elapsed().as_secs_f64();
        let made =
            Stamp { ggml: sources.ggml.to_string(), cmake_file: CMAKE_FILE.to_owned(), seconds: seconds.round() };
        fs::write(&stamp, serde_json::to_string_pretty(&made)?)?;
        Ok(Self { libraries, seconds, cached: false })
    }

    /// What the linker needs to link with this ggml and to find it again.
    pub fn link_arguments(&self) -> Vec<OsString> {
        vec![
            argument("-L", &self.libraries),
            "-lggml".into(),
            "-lggml-base".into(),
            argument("-Wl,-rpath,", &self.libraries),
            // libggml-cpu is needed by libggml, not by the program.
            argument("-Wl,-rpath-link,", &self.libraries),
        ]
    }
}

/// Seconds of the build that `stamp` tells of, if it was of this version with the build file of today.
fn finished(stamp: &Path, ggml: Version) -> Option<f64> {
    let stamp: Stamp = serde_json::from_str(&fs::read_to_string(stamp).ok()?).ok()?;
    (stamp.ggml == ggml.to_string() && stamp.cmake_file == CMAKE_FILE).then_some(stamp.seconds)
}

/// Compiles the test program as `output`, with the headers in `include` and linked as `link` says.
pub fn compile_test(output: &Path, include: &Path, link: &[OsString]) -> Result<()> {
    let compiler = Environment::process().get(&CC).unwrap_or(OsStr::new("cc"));
    let source = workspace::root().join("tests/xtask/abi/abi_test.c");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(include).arg(source);
    command.arg("-o").arg(output).args(link).args(["-ldl", "-lm"]);
    run_helper(&mut command, LIMIT).with_context(|| {
        format!(
            "the C compiler `{}` cannot build the test program (Debian: apt-get install gcc libc6-dev)",
            compiler.to_string_lossy()
        )
    })?;
    Ok(())
}

/// cmake: the one in the search path, else the one in the Python package of that name, put under `target/abi`.
fn cmake(offline: bool) -> Result<PathBuf> {
    if runs(Path::new("cmake")) {
        return Ok("cmake".into());
    }
    let folder = workspace::target().join("abi/tools");
    let path = folder.join("cmake/data/bin/cmake");
    if runs(&path) {
        return Ok(path);
    }
    if offline {
        bail!(
            "there is no cmake in PATH and --offline forbids the download; install it (Debian: apt-get install cmake)"
        );
    }
    let mut pip = pip()?;
    pip.args(["install", "--quiet", "--no-deps", "--upgrade"]);
    pip.args(["--only-binary", ":all:", "--root-user-action", "ignore", "--target"]).arg(&folder).arg("cmake");
    run_helper(&mut pip, LIMIT).context(
        "there is no cmake in PATH, and pip could not get the Python package of that name; install cmake (Debian: \
         apt-get install cmake)",
    )?;
    if !runs(&path) {
        bail!(
            "the Python package cmake has no program {}; install cmake (Debian: apt-get install cmake)",
            path.display()
        );
    }
    Ok(path)
}

/// A C++ compiler and make, installed with the system's package manager where they are missing. That needs root; it is the only
/// thing that is put into the system, and only on machines that build no C++ yet.
fn compilers(offline: bool) -> Result<()> {
    let cxx = Environment::process().get(&CXX).unwrap_or(OsStr::new("c++"));
    if [cxx, OsStr::new("make")].iter().all(|program| runs(Path::new(program))) {
        return Ok(());
    }
    if offline {
        bail!("{COMPILE_WITH}, and --offline forbids installing them");
    }
    eprintln!("installing g++ and make with apt-get ...");
    let apt_get = |arguments: &[&str]| {
        run_helper(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("-qq").args(arguments), LIMIT)
    };
    apt_get(&["update"])
        .and_then(|_| apt_get(&["install", "-y", "--no-install-recommends", "g++", "make"]))
        .map(drop)
        .context(COMPILE_WITH)
}

fn runs(program: &Path) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// cmake writes the compiler's messages on standard output.
fn run_cmake(mut command: Command) -> Result<()> {
    process::clear_settings(&mut command);
    let finished = process::run(&mut command, LIMIT)?;
    if !finished.success() {
        let lines: Vec<&str> = finished.stdout.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        bail!("cmake: {}\n{tail}\n{}", finished.describe(), finished.last_words(20));
    }
    Ok(())
}

/// An argument of a flag and a path in one word.
pub fn argument(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_finished_build_of_the_same_kind_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(STAMP);
        assert_eq!(finished(&path, Version(0, 24, 0)), None);
        let write = |cmake_file: &str| {
            let stamp = Stamp { ggml: "0.24.0".into(), cmake_file: cmake_file.into(), seconds: 50.0 };
            fs::write(&path, serde_json::to_string(&stamp).unwrap()).unwrap();
        };
        write(CMAKE_FILE);
        assert_eq!(finished(&path, Version(0, 24, 0)), Some(50.0));
        assert_eq!(finished(&path, Version(0, 25, 0)), None);
        write("another build file");
        assert_eq!(finished(&path, Version(0, 24, 0)), None);
    }
}
