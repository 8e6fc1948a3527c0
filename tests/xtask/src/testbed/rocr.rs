//! Which versions of AMD's HSA runtime (ROCR) the testbed gets: the newest that serves AI Engines, with its headers, and
//! one of the generation before, which a driver has to recognise and refuse.

use crate::apt::{self, PrivateApt};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// The runtime's file, by the name of its binary interface.
pub const FILE: &str = "libhsa-runtime64.so.1";
const LIBRARY: &str = "libhsa-runtime64-1";
const DEVELOPMENT: &str = "libhsa-runtime-dev";
/// ROCR 7.2 is the first whose packages run dispatches on an AI Engine.
const FIRST_GOOD: (u32, u32) = (7, 2);
/// From ROCR 7.0 on the interface for AI Engines differs.
const FIRST_NEW: (u32, u32) = (7, 0);

/// The versions to install, as Debian writes them.
pub struct Choice {
    /// With support for AI Engines.
    pub new: String,
    /// Of the generation before, as long as Debian has one.
    pub old: Option<String>,
}

impl Choice {
    /// Chooses among what the sources have.
    pub fn among(apt: &PrivateApt) -> Result<Self> {
        Self::of(&apt.versions(LIBRARY)?)
    }

    fn of(versions: &[String]) -> Result<Self> {
        let find = |good: &dyn Fn((u32, u32)) -> bool| {
            versions.iter().find(|version| release(version).is_some_and(good)).cloned()
        };
        let Some(new) = find(&|release| release >= FIRST_GOOD) else {
            let found = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
            bail!(
                "the testbed needs {LIBRARY} 7.2 or newer, and Debian's suites sid and experimental have: {found}; pass a \
                 mirror that has it with `cargo xtask testbed --mirror URI`"
            )
        };
        Ok(Self { new, old: find(&|release| release < FIRST_NEW) })
    }

    /// What to install together with everything it depends on.
    pub fn packages(&self) -> [String; 2] {
        [format!("{LIBRARY}={}", self.new), format!("{DEVELOPMENT}={}", self.new)]
    }

    /// Puts the older runtime into `folder`, without what it depends on: that is in the testbed's root for the newer one.
    /// The folder stays empty if there is none.
    pub fn unpack_old(&self, apt: &PrivateApt, work: &Path, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let Some(version) = &self.old else { return Ok(()) };
        let file = apt.download_alone(&format!("{LIBRARY}={version}"), work)?;
        apt::unpack(&file, folder).with_context(|| format!("cannot unpack {LIBRARY} {version}"))
    }
}

/// Major and minor number of a Debian version such as `7.2.4+dfsg-1~exp1`.
fn release(version: &str) -> Option<(u32, u32)> {
    let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
    let mut numbers = upstream.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(versions: &[&str]) -> Result<Choice> {
        Choice::of(&versions.iter().map(|version| (*version).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_newest_of_each_generation_is_chosen() {
        let choice = choose(&["7.10.0-1", "7.2.4+dfsg-1~exp1", "7.0.2-1", "6.4.3+dfsg-5", "5.7.1-2"]).unwrap();
        assert_eq!((choice.new.as_str(), choice.old.as_deref()), ("7.10.0-1", Some("6.4.3+dfsg-5")));
        assert_eq!(choice.packages()[0], "libhsa-runtime64-1=7.10.0-1");
    }

    #[test]
    fn a_missing_generation_is_told_with_what_was_found() {
        let error = choose(&["7.1.0-1", "6.4.3-5"]).err().unwrap().to_string();
        assert!(error.contains("7.2 or newer") && error.contains("7.1.0-1, 6.4.3-5"), "{error}");
        assert_eq!(choose(&["7.2.4-1"]).unwrap().old, None, "a runtime to refuse is no condition");
        assert!(choose(&[]).err().unwrap().to_string().contains("have: none"));
    }

    #[test]
    fn releases_are_read_from_debian_s_versions() {
        assert_eq!(release("7.2.4+dfsg-1~exp1"), Some((7, 2)));
        assert_eq!(release("1:6.4.3-5"), Some((6, 4)));
        assert_eq!(release("unknown"), None);
    }
}
