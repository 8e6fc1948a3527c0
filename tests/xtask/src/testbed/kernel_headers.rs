//! The kernel's own headers (`linux-libc-dev`) of several kernel versions, each in a folder of its own.

use crate::apt::{EARLIER, PrivateApt};
use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The suites whose headers are taken, from the oldest kernel to the newest.
pub const SUITES: [&str; 3] = ["stable", "sid", "experimental"];
const PACKAGE: &str = "linux-libc-dev";

#[derive(Debug, Clone)]
pub struct KernelHeaders {
    pub suite: String,
    pub version: String,
    /// The folder with `drm/drm.h` and its like.
    pub include: PathBuf,
}

impl KernelHeaders {
    /// Those of a testbed, the oldest first.
    pub fn list(folder: &Path, versions: &BTreeMap<String, String>) -> Result<Vec<Self>> {
        let known = SUITES.iter().filter_map(|suite| Some((*suite, versions.get(*suite)?)));
        known
            .map(|(suite, version)| {
                let include = folder.join(suite).join("usr/include");
                if !include.join("drm/drm.h").exists() {
                    bail!(
                        "{} has no drm/drm.h; rebuild the testbed with `cargo xtask testbed --force`",
                        include.display()
                    );
                }
                Ok(Self { suite: suite.to_owned(), version: version.clone(), include })
            })
            .collect()
    }

    /// The kernel's version, as in `7.2.13`.
    pub fn kernel(&self) -> &str {
        self.version.split(['-', '~']).next().unwrap_or(&self.version)
    }
}

/// The versions by suite. `experimental` has none while sid's kernel is the newest; that no suite has one is an error.
pub fn versions(apt: &PrivateApt) -> Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    for suite in SUITES {
        if let Some(version) = apt.versions(PACKAGE, Some(suite))?.into_iter().next() {
            versions.insert(suite.to_owned(), version);
        }
    }
    ensure!(!versions.is_empty(), "Debian ({}) has no package {PACKAGE}; {EARLIER}", SUITES.join(", "));
    Ok(versions)
}

/// Puts the headers of each suite that has them into a folder below `folder`; returns the versions by suite.
pub fn unpack(apt: &PrivateApt, folder: &Path) -> Result<BTreeMap<String, String>> {
    let versions = versions(apt)?;
    for (suite, version) in &versions {
        apt.unpack_alone(&format!("{PACKAGE}={version}"), &folder.join(suite))?;
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn headers_are_listed_from_the_oldest_on() {
        let dir = tempfile::tempdir().unwrap();
        let versions: BTreeMap<String, String> =
            [("experimental", "7.3~rc7-1~exp1"), ("stable", "6.12.107-1")].map(|(a, b)| (a.into(), b.into())).into();
        for suite in versions.keys() {
            let include = dir.path().join(suite).join("usr/include/drm");
            fs::create_dir_all(&include).unwrap();
            fs::write(include.join("drm.h"), "").unwrap();
        }
        let listed = KernelHeaders::list(dir.path(), &versions).unwrap();
        assert_eq!(listed.iter().map(KernelHeaders::kernel).collect::<Vec<_>>(), ["6.12.107", "7.3"]);
    }

    #[test]
    fn a_missing_header_says_how_to_continue() {
        let versions = [("sid".to_owned(), "7.2.13-1".to_owned())].into();
        let error = KernelHeaders::list(Path::new("/nowhere"), &versions).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
    }
}
