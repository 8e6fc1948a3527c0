//! Builds ggml with cmake, once per release, and the test program against any ggml.

use super::sources::{CRATE, Sources, Version};
use crate::process::run_helper;
use crate::settings::CC;
use crate::tools::{CMAKE, COMPILE_WITH, argument, compilers, run_cmake};
use crate::workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(1800);
const CMAKE_FILE: &str = include_str!("../../../abi/CMakeLists.txt");
const STAMP: &str = "stamp.json";

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
        let cmake = CMAKE.find(offline)?;
        compilers(offline)?;
        let started = Instant::now();
        let mut configure = Command::new(&cmake);
        configure.arg("-S").arg(workspace::root().join("tests/xtask/abi")).arg("-B").arg(&build);
        configure.arg("-DCMAKE_BUILD_TYPE=Release").arg(argument("-DGGML_SOURCE=", &sources.folder));
        // It computes a few small nodes: optimising more takes longer than all of them.
        configure.args(["-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"]);
        run_cmake(&mut configure).context(COMPILE_WITH)?;
        let mut compile = Command::new(&cmake);
        compile.arg("--build").arg(&build).args(["--target", "ggml", "--parallel", &jobs.to_string()]);
        run_cmake(&mut compile).with_context(|| format!("ggml {} does not build", sources.ggml))?;
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

/// Seconds of the build that `stamp` records, if it was of this version with the build file of today.
fn finished(stamp: &Path, ggml: Version) -> Option<f64> {
    let stamp: Stamp = serde_json::from_str(&fs::read_to_string(stamp).ok()?).ok()?;
    (stamp.ggml == ggml.to_string() && stamp.cmake_file == CMAKE_FILE).then_some(stamp.seconds)
}

/// Compiles the test program as `output`, with the headers in `include` and linked as `link` says.
pub fn compile_test(output: &Path, include: &Path, link: &[OsString]) -> Result<()> {
    let source = workspace::root().join("tests/xtask/abi/abi_test.c");
    let compiler = CC.or("cc");
    let mut command = Command::new(&compiler);
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
