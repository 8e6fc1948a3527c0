//! The environment: the one place of this project that reads it.
//!
//! Choices that shape it:
//!
//! - **Each crate declares its own variables**, in a file `settings.rs` with the macro [`settings!`](macro@crate::settings): constants
//!   that are spelled like the variables, so that a search for a name finds the declaration, the code that reads it and the
//!   page. `docs/environment.md` is generated from these files.
//! - **Read once.** [`Environment::process`] is a copy made at its first use. Reading the environment while C code changes it is
//!   a race, and a setting that changes under a running graph would help no one, so a later change has no effect.
//! - **A value like any other.** Whatever depends on settings takes an [`Environment`] or a value out of one, so that tests make
//!   theirs with [`Environment::from_pairs`] and leave the process alone.
//! - **Nothing is ignored silently.** [`Reader`] collects invalid values, [`Environment::misnamed`] unknown names.
//!
//! Test equipment (the simulated kernel device, the stand-in runtime library) has settings modules of its own: it is loaded
//! into foreign programs below this crate, and no setting of it is one of the product's.

mod misnamed;
mod reader;
mod variable;

pub use misnamed::Misnamed;
pub use reader::{FALSY, Problem, Reader, TRUTHY, parse_bytes, switch};
pub use variable::{Removed, Settings, Variable};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A copy of variables and their values. Its debug output has only the names: values may be secrets of others.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    values: BTreeMap<String, OsString>,
}

impl Environment {
    /// The environment of this process as it was when this was first called. Thread-safe.
    pub fn process() -> &'static Self {
        static PROCESS: OnceLock<Environment> = OnceLock::new();
        PROCESS.get_or_init(|| Self::from_pairs(std::env::vars_os()))
    }

    /// An environment with these names and values.
    pub fn from_pairs<N: Into<OsString>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        // A name that is not UTF-8 is not a setting's, and is only ever printed.
        let pairs = pairs.into_iter().map(|(name, value)| (name.into().to_string_lossy().into_owned(), value.into()));
        Self { values: pairs.collect() }
    }

    /// The value of `variable`, or when it is not set, that of its older name. A value may be empty.
    pub fn get(&self, variable: &Variable) -> Option<&OsStr> {
        let names = [Some(variable.name), variable.older];
        names.into_iter().flatten().find_map(|name| self.values.get(name)).map(OsString::as_os_str)
    }

    /// A value that is a path; an empty one counts as not set.
    pub fn path(&self, variable: &Variable) -> Option<PathBuf> {
        self.get(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A value that is text; an empty one counts as not set. What is not UTF-8 is replaced by U+FFFD.
    pub fn text(&self, variable: &Variable) -> Option<String> {
        self.get(variable).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
    }

    /// Every variable that is set under a name like those of `declared` that is none of them, or under an older name. In the
    /// order of the names.
    pub fn misnamed(&self, declared: &[Settings]) -> Vec<Misnamed> {
        self.values.keys().filter_map(|name| Misnamed::check(name, declared)).collect()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// Settings for the tests of this module.
#[cfg(test)]
mod examples {
    crate::settings! {
        prefix "TOOL_RUN";

        section "Files" {
            /// Where kernels are.
            TOOL_RUN_KERNEL_DIR: "a directory" => "none";
            /// Whether the cache is emptied.
            TOOL_RUN_KERNEL_CACHE_CLEAR: "a switch" => "off", older "TOOL_RUN_CLEAR_CACHE";
            /// Where compiled kernels are.
            TOOL_RUN_KERNEL_CACHE_DIR: "a directory" => "none", read by ["others"];
        }

        section "Computing" {
            /// Whether there is anything at all.
            TOOL_RUN: "a switch" => "on";
            /// How much there may be.
            TOOL_RUN_WEIGHTS_MAX: "a size, above 0" => "none";
            /// How many there may be.
            TOOL_RUN_WORKERS: "0 to 256" => "4";
            /// What is written.
            TOOL_RUN_STATS: "`json`, `csv`" => "`json`";
            /// Whether messages are written.
            TOOL_RUN_ENABLE_LOG: "a switch" => "off";
            /// The user's.
            HOME: "a directory" => "none";
            /// The system's.
            PATH: "directories" => "none";
        }

        removed {
            "TOOL_RUN_ISOLATE" => "there is one process only";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::examples::{HOME, PATH, SETTINGS, TOOL_RUN_KERNEL_CACHE_CLEAR, TOOL_RUN_KERNEL_DIR};
    use super::*;
    use rstest::rstest;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_pairs(pairs.iter().copied())
    }

    #[test]
    fn values_are_found_by_their_variable() {
        let environment = environment(&[("TOOL_RUN_KERNEL_DIR", "/kernels"), ("HOME", ""), ("EDITOR", "ed")]);
        assert_eq!(environment.get(&TOOL_RUN_KERNEL_DIR), Some(OsStr::new("/kernels")));
        assert_eq!(environment.path(&TOOL_RUN_KERNEL_DIR).as_deref(), Some(Path::new("/kernels")));
        assert_eq!(environment.text(&TOOL_RUN_KERNEL_DIR).as_deref(), Some("/kernels"));
        assert_eq!(environment.get(&HOME), Some(OsStr::new("")));
        assert_eq!((environment.path(&HOME), environment.text(&HOME)), (None, None));
        assert_eq!(environment.get(&PATH), None);
    }

    #[test]
    fn values_are_not_in_debug_output() {
        assert_eq!(format!("{:?}", environment(&[("SECRET_TOKEN", "x")])), r#"{"SECRET_TOKEN"}"#);
    }

    #[test]
    fn bytes_that_are_no_text_survive_as_a_path() {
        let odd = OsStr::from_bytes(b"/k\xff");
        let environment = Environment::from_pairs([("TOOL_RUN_KERNEL_DIR", odd)]);
        assert_eq!(environment.path(&TOOL_RUN_KERNEL_DIR).as_deref(), Some(Path::new(odd)));
        assert_eq!(environment.text(&TOOL_RUN_KERNEL_DIR).as_deref(), Some("/k\u{fffd}"));
    }

    #[rstest]
    #[case::new(&[("TOOL_RUN_KERNEL_CACHE_CLEAR", "1")], Some("1"))]
    #[case::old(&[("TOOL_RUN_CLEAR_CACHE", "1")], Some("1"))]
    #[case::new_wins(&[("TOOL_RUN_KERNEL_CACHE_CLEAR", "0"), ("TOOL_RUN_CLEAR_CACHE", "1")], Some("0"))]
    #[case::neither(&[], None)]
    fn an_older_name_serves_when_the_new_one_is_not_set(
        #[case] pairs: &[(&str, &str)],
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(environment(pairs).text(&TOOL_RUN_KERNEL_CACHE_CLEAR).as_deref(), expected);
    }

    #[test]
    fn the_process_is_read_once() {
        assert_eq!(Environment::process().get(&PATH), std::env::var_os("PATH").as_deref());
        assert!(std::ptr::eq(Environment::process(), Environment::process()));
    }

    #[test]
    fn misnamed_variables_are_listed_and_right_ones_are_not() {
        let environment = environment(&[
            ("TOOL_RUN_KERNELDIR", "/kernels"),
            ("TOOL_RUN_CLEAR_CACHE", "1"),
            ("TOOL_RUN_KERNEL_DIR", "/kernels"),
            ("AMDXDNA_SIM_DEVICES", "aie2p"),
            ("TOOL_RUN_ISOLATE", "1"),
        ]);
        let messages: Vec<String> = environment.misnamed(&[SETTINGS]).iter().map(ToString::to_string).collect();
        let expected = [
            "TOOL_RUN_CLEAR_CACHE is an older name, still accepted; use TOOL_RUN_KERNEL_CACHE_CLEAR",
            "TOOL_RUN_ISOLATE has no effect any more: there is one process only",
            "TOOL_RUN_KERNELDIR is not a setting; did you mean TOOL_RUN_KERNEL_DIR?",
        ];
        assert_eq!(messages, expected);
    }
}
