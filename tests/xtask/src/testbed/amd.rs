//! Which of AMD's software the testbed gets: of the HSA runtime (ROCR) a version that serves AI Engines, with its headers, and one of the generation before, which a driver has to recognise and reject; and its other software for NPUs: XRT with its
//! driver for amdxdna and its Python module, and the tools for its file formats. None of the latter shares code with this project
//! or with ROCR, so it can judge both.

use crate::apt::{EARLIER, PrivateApt, numbers};
use anyhow::{Result, bail};
use std::path::Path;

/// The runtime's file, by the name of its binary interface.
pub const FILE: &str = "libhsa-runtime64.so.1";
pub const LIBRARY: &str = "libhsa-runtime64-1";
const DEVELOPMENT: &str = "libhsa-runtime-dev";
/// ROCR 7.2 is the first whose packages run dispatches on an AI Engine.
const FIRST_GOOD: [u32; 2] = [7, 2];
/// From here on ROCR is later than the checks know. Later ones have other packets, which the driver knows up to extension 1.26.
const FIRST_LATER: [u32; 2] = [7, 3];
/// From ROCR 7.0 on the interface for AI Engines differs.
const FIRST_NEW: [u32; 2] = [7, 0];

/// The versions to install, as Debian writes them.
pub struct Choice {
    /// With support for AI Engines: one that the checks know, else the next later one.
    pub new: String,
    /// Of the generation before, as long as Debian has one.
    pub old: Option<String>,
}

impl Choice {
    /// Chooses among what the sources have.
    pub fn among(apt: &PrivateApt) -> Result<Self> {
        Self::of(&apt.versions(LIBRARY, None)?)
    }

    fn of(versions: &[String]) -> Result<Self> {
        let find = |good: fn(&[u32]) -> bool| versions.iter().find(|version| good(&numbers(version))).cloned();
        let known = find(|numbers| *numbers >= FIRST_GOOD[..] && *numbers < FIRST_LATER[..]);
        let later = || versions.iter().rev().find(|version| is_later(version)).cloned();
        let Some(new) = known.or_else(later) else {
            let found = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
            bail!("the testbed needs {LIBRARY} 7.2 or newer, and Debian's suites have: {found}; {EARLIER}")
        };
        Ok(Self { new, old: find(|numbers| *numbers < FIRST_NEW[..] && !numbers.is_empty()) })
    }

    /// What to install together with everything it depends on.
    pub fn packages(&self) -> [String; 2] {
        [format!("{LIBRARY}={}", self.new), format!("{DEVELOPMENT}={}", self.new)]
    }

    /// Puts the older runtime into `folder`, without what it depends on: that is in the testbed's root for the newer one.
    /// The folder stays empty if there is none.
    pub fn unpack_old(&self, apt: &PrivateApt, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let Some(version) = &self.old else { return Ok(()) };
        apt.unpack_alone(&format!("{LIBRARY}={version}"), folder).map(drop)
    }
}

fn is_later(version: &str) -> bool {
    numbers(version)[..] >= FIRST_LATER[..]
}

/// What to know of a runtime that is later than the checks.
pub fn warning(version: &str) -> Option<String> {
    is_later(version).then(|| {
        format!(
            "the testbed has ROCR {version}, and the checks were made for 7.2. The driver takes it if its extension is 1.26 or older \
             (docs/rocr.md). Where checks of ROCR fail, {EARLIER}, and run `cargo xtask testbed --force`; once it is known to work, \
             raise FIRST_LATER in tests/xtask/src/testbed/amd.rs"
        )
    })
}

pub const DRIVER: &str = "libxrt-npu2";
/// What is installed. `libxrt-utils` has xrt-smi and xclbinutil, `libxrt-utils-npu` has aiebu-asm and aiebu-dump.
const XRT: [&str; 6] = [DRIVER, "libxrt2", "libxrt-utils", "libxrt-utils-npu", "xilinx-bootgen", "python3-minimal"];
/// XRT's Python module, unpacked without what it depends on.
pub const PYTHON_MODULE: &str = "python3-xrt";
/// What depends on all of Python gets python3-minimal: the rest is 6 MB more, of which our programs need nothing.
pub const ASSUMED: [&str; 1] = ["python3"];

/// The packages to install; none where Debian has no driver for this architecture.
pub fn xrt_packages(apt: &PrivateApt) -> Result<Vec<&'static str>> {
    let absent = apt.versions(DRIVER, None)?.is_empty();
    Ok(if absent { Vec::new() } else { XRT.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(versions: &[&str]) -> Result<Choice> {
        Choice::of(&versions.iter().map(|version| (*version).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_newest_of_each_known_generation_is_chosen() {
        let choice =
            choose(&["7.10.0-1", "7.2.4+dfsg-1~exp1", "7.2.1-1", "7.0.2-1", "6.4.3+dfsg-5", "5.7.1-2"]).unwrap();
        assert_eq!((choice.new.as_str(), choice.old.as_deref()), ("7.2.4+dfsg-1~exp1", Some("6.4.3+dfsg-5")));
        assert_eq!(choice.packages()[0], "libhsa-runtime64-1=7.2.4+dfsg-1~exp1");
        assert_eq!(warning(&choice.new), None);
    }

    #[test]
    fn without_a_known_one_the_next_later_one_is_taken_with_a_warning() {
        let choice = choose(&["8.0.0-1", "7.14.0-1", "7.1.0-1"]).unwrap();
        assert_eq!((choice.new.as_str(), choice.old.as_deref()), ("7.14.0-1", None));
        let warning = warning(&choice.new).unwrap();
        assert!(warning.contains("7.14.0-1") && warning.contains("AIE_TESTBED_MIRROR"), "{warning}");
    }

    #[test]
    fn a_missing_generation_is_reported_with_what_was_found() {
        let error = choose(&["7.1.0-1", "6.4.3-5"]).err().unwrap().to_string();
        assert!(error.contains("7.2 or newer") && error.contains("7.1.0-1, 6.4.3-5"), "{error}");
        assert_eq!(choose(&["7.2.4-1"]).unwrap().old, None, "a runtime to reject is no condition");
        assert!(choose(&[]).err().unwrap().to_string().contains("have: none"));
    }
}
