//! What CMake asks of cargo, and what it says when cargo is not as it should be.
//!
//! Doubles stand in for cargo and rustc here. They answer `--version` and write down how they were called; they build nothing,
//! the files cargo would have made are put in place beforehand.

use super::{Setup, sources};
use crate::process;
use crate::simulation::quoted;
use crate::tools::{argument, run_cmake};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// What the library reads when it is compiled.
const DEFAULTS: [&str; 4] = [
    "GGML_HSA_DEFAULT_JIT",
    "GGML_HSA_DEFAULT_CPU_FALLBACK",
    "GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT",
    "GGML_HSA_EMBED_KERNELS",
];
const MADE: [&str; 4] = ["libggml_hsa.so", "ggml-hsa-gen-kernels", "ggml-hsa-jit-worker", "ggml-hsa"];

/// A folder with doubles of cargo and rustc.
struct Doubles {
    dir: PathBuf,
}

/// How the double of cargo was called.
struct Call {
    arguments: Vec<String>,
    environment: Vec<String>,
}

impl Doubles {
    fn new(setup: &Setup, name: &str) -> Result<Self> {
        let dir = setup.work.path().join(name);
        for profile in ["debug", "release"] {
            let folder = dir.join("target").join(profile);
            fs::create_dir_all(&folder)?;
            for file in MADE {
                fs::write(folder.join(file), format!("{profile} {file}\n"))?;
            }
        }
        let log = quoted(&dir.to_string_lossy());
        let record = format!("env > {log}/environment; printf '%s\\n' \"$@\" > {log}/arguments");
        script(&dir.join("cargo"), "cargo 99.0.0", &record)?;
        script(&dir.join("rustc"), "rustc 99.0.0", "exit 9")?;
        Ok(Self { dir })
    }

    /// The command that configures with the doubles. The caller's settings would reach cargo; these must not.
    fn configure(&self, setup: &Setup) -> Command {
        let mut command = setup.configure(&sources(), &self.dir.join("build"));
        command.arg(argument("-DGGML_HSA_CARGO=", &self.dir.join("cargo")));
        command.arg(argument("-DGGML_HSA_RUSTC=", &self.dir.join("rustc")));
        command.arg(argument("-DGGML_HSA_CARGO_TARGET_DIR=", &self.dir.join("target")));
        command.arg(argument("-DCMAKE_INSTALL_PREFIX=", &self.dir.join("prefix")));
        command
    }

    /// Builds, with other defaults in the environment, and reads what the double wrote.
    fn build(&self, setup: &Setup) -> Result<Call> {
        let mut command = setup.build(&self.dir.join("build"));
        for name in DEFAULTS {
            command.env(name, "of-the-caller");
        }
        command.env("CARGO_BUILD_TARGET", "of-the-caller");
        run_cmake(&mut command)?;
        let read = |name: &str| -> Result<Vec<String>> {
            let text = fs::read_to_string(self.dir.join(name)).context("cargo was not started")?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        Ok(Call { arguments: read("arguments")?, environment: read("environment")? })
    }
}

impl Call {
    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    /// Errors unless exactly these variables of [`DEFAULTS`] are set, to these values.
    fn has_defaults(&self, wanted: &[(&str, &str)]) -> Result<()> {
        for name in DEFAULTS.into_iter().chain(["CARGO_BUILD_TARGET"]) {
            let value = wanted.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            if self.variable(name) != value {
                bail!("cargo got {name}={:?}, expected {value:?}", self.variable(name));
            }
        }
        Ok(())
    }

    /// Errors unless these words follow each other.
    fn has_words(&self, wanted: &[&str]) -> Result<()> {
        if self.arguments.windows(wanted.len()).any(|words| words.iter().eq(wanted)) {
            return Ok(());
        }
        bail!("cargo was not given `{}` but `{}`", wanted.join(" "), self.arguments.join(" "))
    }
}

/// Every option changes cargo's arguments or environment.
pub fn options_reach_cargo(setup: &Setup) -> Result<String> {
    let doubles = Doubles::new(setup, "options")?;
    let kernels = doubles.dir.join("kernels to embed");
    fs::create_dir(&kernels)?;
    let mut configure = doubles.configure(setup);
    configure.args(["-DGGML_HSA_JIT_COMPILE=OFF", "-DGGML_HSA_CPU_FALLBACK=OFF", "-DGGML_HSA_JIT_STDOUT_REDIRECT=ON"]);
    configure.args(["-DGGML_HSA_OFFLINE=ON", "-DCMAKE_BUILD_TYPE=Debug", "-DGGML_HSA_BACKEND_DIR=lib/ggml/backends0"]);
    run_cmake(configure.arg(argument("-DGGML_HSA_EMBED_KERNELS=", &kernels)))?;
    let call = doubles.build(setup)?;
    call.has_defaults(&[
        ("GGML_HSA_DEFAULT_JIT", "off"),
        ("GGML_HSA_DEFAULT_CPU_FALLBACK", "off"),
        ("GGML_HSA_EMBED_KERNELS", &kernels.to_string_lossy()),
    ])?;
    call.has_words(&["--offline"])?;
    call.has_words(&["--profile", "dev"])?;
    run_cmake(setup.cmake(&["--install"]).arg(doubles.dir.join("build")))?;
    let library = doubles.dir.join("prefix/lib/ggml/backends0/libggml-hsa.so");
    let text = fs::read_to_string(&library).with_context(|| format!("{} is missing", library.display()))?;
    if text != "debug libggml_hsa.so\n" {
        bail!("{} is not the library of the debug build: {text}", library.display());
    }
    Ok(call.arguments.join(" "))
}

/// Without options, cargo gets the one variable whose default CMake states, and none that the caller has set.
pub fn defaults_reach_cargo(setup: &Setup) -> Result<String> {
    let doubles = Doubles::new(setup, "defaults")?;
    run_cmake(&mut doubles.configure(setup))?;
    let call = doubles.build(setup)?;
    call.has_defaults(&[("GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT", "off")])?;
    let target = doubles.dir.join("target");
    call.has_words(&["build", "--locked"])?;
    call.has_words(&["--profile", "release", "--target-dir", &target.to_string_lossy()])?;
    if call.arguments.iter().any(|word| word == "--offline") {
        bail!("cargo was given --offline although it was not requested");
    }
    Ok("no variable of the caller's".to_owned())
}

/// `GGML_HSA=OFF` needs no cargo and installs nothing.
pub fn off_installs_nothing(setup: &Setup) -> Result<String> {
    let doubles = Doubles::new(setup, "off")?;
    let said = run_cmake(doubles.configure(setup).args(["-DGGML_HSA=OFF", "-DGGML_HSA_CARGO=/nonexistent/cargo"]))?;
    run_cmake(&mut setup.build(&doubles.dir.join("build")))?;
    run_cmake(setup.cmake(&["--install"]).arg(doubles.dir.join("build")))?;
    if doubles.dir.join("prefix").exists() || doubles.dir.join("arguments").exists() {
        bail!("something was built or installed");
    }
    said.lines()
        .find(|line| line.contains("GGML_HSA is OFF"))
        .map(|line| line.trim_start_matches("-- ").to_owned())
        .with_context(|| format!("no message says that nothing is built:\n{said}"))
}

/// No cargo anywhere: what to install.
pub fn missing_cargo(setup: &Setup) -> Result<String> {
    let doubles = Doubles::new(setup, "no-cargo")?;
    let mut configure = setup.configure(&sources(), &doubles.dir.join("build"));
    // Nowhere but in these folders is searched, and there is only make in them.
    configure.args(["-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-G", "Unix Makefiles", "-DCMAKE_MAKE_PROGRAM=make"]);
    configure.env("PATH", "/nonexistent").env("HOME", &doubles.dir).env_remove("CARGO_HOME");
    configure.env_remove("CARGO");
    rejected(&mut configure, &["there is no cargo in PATH", "rustup.rs", "-DGGML_HSA_CARGO=PATH", "-DGGML_HSA=OFF"])
}

/// rustc is too old: which version it is, which is needed, what to do.
pub fn old_rustc(setup: &Setup) -> Result<String> {
    let doubles = Doubles::new(setup, "old-rustc")?;
    let rustc = doubles.dir.join("rustc");
    script(&rustc, "rustc 1.63.0", "exit 9")?;
    let needed = concat!(env!("CARGO_PKG_RUST_VERSION"), " or newer is needed");
    rejected(&mut doubles.configure(setup), &["1.63.0", needed, &rustc.to_string_lossy(), "rustup.rs"])
}

pub fn missing_kernels(setup: &Setup) -> Result<String> {
    let doubles = Doubles::new(setup, "no-kernels")?;
    let mut configure = doubles.configure(setup);
    rejected(
        configure.arg("-DGGML_HSA_EMBED_KERNELS=/nonexistent/kernels"),
        &["GGML_HSA_EMBED_KERNELS names /nonexistent/kernels", "ggml-hsa-gen-kernels", "--embed"],
    )
}

/// Configuring must fail with a message that has all these words.
fn rejected(command: &mut Command, words: &[&str]) -> Result<String> {
    process::clear_settings(command);
    let finished = process::run(command, LIMIT)?;
    if finished.success() {
        bail!("CMake configured; expected a message with {words:?}");
    }
    let said = one_line(&finished.stderr);
    let missing: Vec<&&str> = words.iter().filter(|words| !said.contains(**words)).collect();
    if !missing.is_empty() {
        bail!("the message lacks {missing:?}; it is\n{}", finished.stderr);
    }
    let start = said.find("ggml-hsa: ").unwrap_or_default();
    Ok(said[start..].chars().take(120).collect())
}

/// CMake breaks messages into lines of its own.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A program that answers `--version` and else does `otherwise`.
fn script(path: &Path, version: &str, otherwise: &str) -> Result<()> {
    let text =
        format!("#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version} (double)'; exit 0; fi\n{otherwise}\n");
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Call {
            arguments: owned(&["build", "--locked", "--profile", "dev"]),
            environment: owned(&["PATH=/bin", "GGML_HSA_DEFAULT_JIT=off"]),
        }
    }

    #[test]
    fn variables_that_differ_or_are_too_many_are_named() {
        call().has_defaults(&[("GGML_HSA_DEFAULT_JIT", "off")]).unwrap();
        assert!(call().has_defaults(&[]).unwrap_err().to_string().contains("GGML_HSA_DEFAULT_JIT"));
        let wanted = [("GGML_HSA_DEFAULT_JIT", "off"), ("GGML_HSA_EMBED_KERNELS", "/k")];
        assert!(call().has_defaults(&wanted).unwrap_err().to_string().contains("GGML_HSA_EMBED_KERNELS"));
    }

    #[test]
    fn words_must_follow_each_other() {
        call().has_words(&["--profile", "dev"]).unwrap();
        assert!(call().has_words(&["build", "dev"]).is_err());
    }

    #[test]
    fn a_message_is_read_across_cmake_s_line_breaks() {
        assert_eq!(one_line("  ggml-hsa: there is\n  no cargo\n"), "ggml-hsa: there is no cargo");
    }
}
