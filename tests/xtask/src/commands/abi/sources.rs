//! Releases of ggml, from the sources inside a crate.
//!
//! ggml is released in source form only, and distributions carry one version each. The crate `llama-cpp-sys-2` ships the
//! whole source of the ggml of its day, so that its older versions are an archive of ggml that cargo can download.

use crate::apt::numbers;
use crate::process::{self, run_helper};
use crate::workspace;
use anyhow::{Context, Result, bail};
use regex::Regex;
use serde::Deserialize;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The crate that carries the sources.
pub const CRATE: &str = "llama-cpp-sys-2";
const LIMIT: Duration = Duration::from_secs(900);

/// A version of ggml, e.g. 0.24.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Reads what `ggml_version()` gives, which may have a suffix (`0.9.4-dirty`).
    pub fn parse(text: &str) -> Option<Self> {
        let [major, minor, patch, ..] = numbers(text)[..] else { return None };
        Some(Self(major, minor, patch))
    }
}

/// How ggml's tables of callbacks are laid out. Checked against ggml's headers of each range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Layout {
    /// Up to 0.9.
    #[serde(rename = "2a")]
    V2a,
    /// 0.10 to 0.25.
    #[serde(rename = "2b")]
    V2b,
    /// From 0.26 on.
    #[serde(rename = "3")]
    V3,
}

impl Layout {
    pub fn of(version: Version) -> Self {
        match version {
            Version(0, ..10, _) => Self::V2a,
            Version(0, ..26, _) => Self::V2b,
            _ => Self::V3,
        }
    }

    /// How it is written in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2a => "2a",
            Self::V2b => "2b",
            Self::V3 => "3",
        }
    }
}

/// The unpacked sources of one release.
#[derive(Debug, Clone)]
pub struct Sources {
    pub crate_version: String,
    pub ggml: Version,
    /// Folder with ggml's `CMakeLists.txt`, in cargo's registry folder: read-only for us.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

impl Sources {
    /// Has cargo download the crate, for a package in `folder` that depends on it and is never built.
    pub fn fetch(crate_version: &str, folder: &Path, offline: bool) -> Result<Self> {
        if !crate_version.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())) {
            bail!("`{crate_version}` is not a version of the crate {CRATE}; versions look like 0.1.159");
        }
        fs::create_dir_all(folder.join("src")).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(folder.join("src/lib.rs"), "")?;
        let manifest = folder.join("Cargo.toml");
        fs::write(&manifest, manifest_text(crate_version))?;
        let mut command = workspace::cargo();
        command.args(["metadata", "--format-version", "1", "--quiet", "--manifest-path"]).arg(&manifest);
        if offline {
            command.arg("--offline");
        }
        process::clear_settings(&mut command);
        let text = run_helper(&mut command, LIMIT)
            .with_context(|| format!("cargo could not get {CRATE} {crate_version}, which carries ggml's sources"))?;
        Self::from_metadata(&text, crate_version)
    }

    fn from_metadata(text: &str, crate_version: &str) -> Result<Self> {
        let metadata: Metadata = serde_json::from_str(text).context("unexpected output of cargo metadata")?;
        let found = metadata.packages.iter().find(|package| package.name == CRATE && package.version == crate_version);
        let package = found.with_context(|| format!("cargo metadata does not list {CRATE} {crate_version}"))?;
        let folder = package.manifest_path.with_file_name("llama.cpp").join("ggml");
        let list = folder.join("CMakeLists.txt");
        let text = fs::read_to_string(&list)
            .with_context(|| format!("{CRATE} {crate_version} carries no ggml: cannot read {}", list.display()))?;
        let ggml = version_of(&text).with_context(|| format!("{} names no version of ggml", list.display()))?;
        Ok(Self { crate_version: crate_version.to_owned(), ggml, folder })
    }
}

fn manifest_text(crate_version: &str) -> String {
    format!(
        "[package]\nname = \"ggml-sources\"\nversion = \"0.0.0\"\nedition = \"2021\"\npublish = false\n\n\
         [dependencies]\n{CRATE} = \"={crate_version}\"\n\n[workspace]\n"
    )
}

/// The version set in ggml's `CMakeLists.txt`.
fn version_of(cmake: &str) -> Option<Version> {
    let part = |name: &str| -> Option<u32> {
        let pattern = Regex::new(&format!(r"(?m)^\s*set\(GGML_VERSION_{name}\s+(\d+)\)")).ok()?;
        pattern.captures(cmake)?[1].parse().ok()
    };
    Some(Version(part("MAJOR")?, part("MINOR")?, part("PATCH")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0.24.0", Some(Version(0, 24, 0)))]
    #[case("0.9.4-dirty", Some(Version(0, 9, 4)))]
    #[case("0.9", None)]
    #[case("unknown", None)]
    fn versions_are_read(#[case] text: &str, #[case] expected: Option<Version>) {
        assert_eq!(Version::parse(text), expected);
    }

    #[rstest]
    #[case(Version(0, 9, 1), Layout::V2a)]
    #[case(Version(0, 9, 11), Layout::V2a)]
    #[case(Version(0, 10, 0), Layout::V2b)]
    #[case(Version(0, 25, 9), Layout::V2b)]
    #[case(Version(0, 26, 0), Layout::V3)]
    #[case(Version(1, 0, 0), Layout::V3)]
    fn layouts_follow_versions(#[case] version: Version, #[case] expected: Layout) {
        assert_eq!(Layout::of(version), expected);
    }

    #[test]
    fn the_version_is_found_in_the_build_file() {
        let text = "set(GGML_VERSION_MAJOR 0)\nset(GGML_VERSION_MINOR 24)\nset(GGML_VERSION_PATCH 3)\n";
        assert_eq!(version_of(text), Some(Version(0, 24, 3)));
        assert_eq!(version_of("set(GGML_VERSION_MAJOR 0)"), None);
    }

    #[test]
    fn the_sources_are_found_beside_the_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let ggml = dir.path().join("llama.cpp/ggml");
        fs::create_dir_all(&ggml).unwrap();
        let manifest = dir.path().join("Cargo.toml");
        let text = serde_json::json!({
            "packages": [{"name": CRATE, "version": "0.1.159", "manifest_path": manifest}]
        })
        .to_string();
        let error = format!("{:#}", Sources::from_metadata(&text, "0.1.159").unwrap_err());
        assert!(error.contains("carries no ggml"), "{error}");
        let cmake = "set(GGML_VERSION_MAJOR 0)\nset(GGML_VERSION_MINOR 24)\nset(GGML_VERSION_PATCH 0)\n";
        fs::write(ggml.join("CMakeLists.txt"), cmake).unwrap();
        let sources = Sources::from_metadata(&text, "0.1.159").unwrap();
        assert_eq!((sources.ggml, sources.folder), (Version(0, 24, 0), ggml));
        assert!(Sources::from_metadata(&text, "0.1.160").is_err());
    }

    #[test]
    fn something_that_is_no_version_is_rejected_before_cargo_sees_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = Sources::fetch("0.1.x\"", dir.path(), true).unwrap_err().to_string();
        assert!(error.contains("0.1.159"), "{error}");
    }
}
