//! The environment: the one place of this project that reads it.
//!
//! Choices that shape it:
//!
//! - **One table.** [`table`] declares every variable once, as a constant that is spelled like the variable, with its meaning.
//!   The page `docs/environment.md` is printed from it, and a name that is not in it is a typing mistake to report.
//! - **Read once.** [`Environment::process`] is a copy made at its first use. Reading the environment while C code changes it is
//!   a race, and a setting that changes under a running graph would help nobody. So a later change has no effect.
//! - **A value like any other.** Whatever depends on settings takes an [`Environment`] or a value out of one, so that tests make
//!   theirs with [`Environment::from_pairs`] and leave the process alone.
//! - **Data only.** What a value means is decided by the crate that reads it; here are no defaults in code, only the
//!   words for yes and no, which all switches share.
//!
//! Test equipment (the simulated kernel device, the stand-in runtime library) keeps settings modules of its own: it is loaded
//! into foreign programs below this crate, and no setting of it is one of the product's. [`table::FAMILIES`] says where
//! those are described.

mod misnamed;
pub mod removed;
pub mod table;
mod variable;
mod words;

pub use misnamed::Misnamed;
pub use variable::{Family, Group, Variable};
pub use words::{FALSY, TRUTHY, is_truthy, switch};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

/// How names begin that nobody but this project uses.
const PREFIXES: [&str; 2] = ["GGML_HSA", "AIE_HAL"];

/// A copy of the variables that concern this project: those of the [table](table::TABLE), and whatever else has a name like
/// ours. Nothing else of the process's environment is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
        // A name that is not UTF-8 is none of the table's, and is only ever printed.
        let pairs = pairs.into_iter().map(|(name, value)| (name.into().to_string_lossy().into_owned(), value.into()));
        Self { values: pairs.filter(|(name, _)| is_ours(name) || table::find(name).is_some()).collect() }
    }

    /// The value of `variable`, or when it is not set, that of an older name of it. A value may be empty.
    pub fn get(&self, variable: &Variable) -> Option<&OsStr> {
        let older = || table::TABLE.iter().filter(|older| older.replacement().is_some_and(|new| new == variable));
        std::iter::once(variable).chain(older()).find_map(|v| self.values.get(v.name())).map(OsString::as_os_str)
    }

    /// [`Environment::get`] for a variable whose empty value means that it is not set.
    pub fn non_empty(&self, variable: &Variable) -> Option<&OsStr> {
        self.get(variable).filter(|value| !value.is_empty())
    }

    /// A value that is a path; an empty one counts as not set.
    pub fn path(&self, variable: &Variable) -> Option<PathBuf> {
        self.non_empty(variable).map(PathBuf::from)
    }

    /// A value that is text; an empty one counts as not set. What is not UTF-8 is replaced by U+FFFD.
    pub fn text(&self, variable: &Variable) -> Option<String> {
        self.non_empty(variable).map(|value| value.to_string_lossy().into_owned())
    }

    /// Whether the value is a [truthy](is_truthy) word.
    pub fn is_on(&self, variable: &Variable) -> bool {
        self.get(variable).and_then(OsStr::to_str).is_some_and(is_truthy)
    }

    /// Every variable that is set under a name like ours that is not in the table, or under an older name. In the order of
    /// the names.
    pub fn misnamed(&self) -> Vec<Misnamed> {
        self.values.keys().filter_map(|name| Misnamed::check(name)).collect()
    }
}

/// Whether a name is meant for this project, rightly written or not.
fn is_ours(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)))
}

#[cfg(test)]
mod tests {
    use super::table::{GGML_HSA_ENABLE_LOG, GGML_HSA_KERNEL_CACHE_CLEAR, GGML_HSA_KERNEL_DIR, HOME, PATH};
    use super::*;
    use rstest::rstest;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_pairs(pairs.iter().copied())
    }

    #[test]
    fn values_are_found_by_their_variable() {
        let environment = environment(&[("GGML_HSA_KERNEL_DIR", "/kernels"), ("HOME", ""), ("EDITOR", "ed")]);
        assert_eq!(environment.get(&GGML_HSA_KERNEL_DIR), Some(OsStr::new("/kernels")));
        assert_eq!(environment.path(&GGML_HSA_KERNEL_DIR).as_deref(), Some(Path::new("/kernels")));
        assert_eq!(environment.text(&GGML_HSA_KERNEL_DIR).as_deref(), Some("/kernels"));
        assert_eq!((environment.get(&HOME), environment.non_empty(&HOME)), (Some(OsStr::new("")), None));
        assert_eq!((environment.path(&HOME), environment.text(&HOME)), (None, None));
        assert_eq!(environment.get(&PATH), None);
    }

    #[test]
    fn what_is_of_no_concern_is_not_kept() {
        assert_eq!(environment(&[("EDITOR", "ed"), ("SECRET_TOKEN", "x")]), Environment::default());
    }

    #[test]
    fn bytes_that_are_no_text_survive_as_a_path_and_are_no_word() {
        let odd = OsStr::from_bytes(b"/k\xff");
        let environment = Environment::from_pairs([("GGML_HSA_KERNEL_DIR", odd), ("GGML_HSA_ENABLE_LOG", odd)]);
        assert_eq!(environment.path(&GGML_HSA_KERNEL_DIR).as_deref(), Some(Path::new(odd)));
        assert_eq!(environment.text(&GGML_HSA_KERNEL_DIR).as_deref(), Some("/k\u{fffd}"));
        assert!(!environment.is_on(&GGML_HSA_ENABLE_LOG));
    }

    #[rstest]
    #[case::new(&[("GGML_HSA_KERNEL_CACHE_CLEAR", "1")], true)]
    #[case::old(&[("GGML_HSA_JIT_CLEAR_CACHE", "1")], true)]
    #[case::new_wins(&[("GGML_HSA_KERNEL_CACHE_CLEAR", "0"), ("GGML_HSA_JIT_CLEAR_CACHE", "1")], false)]
    #[case::neither(&[], false)]
    fn an_older_name_serves_when_the_new_one_is_not_set(#[case] pairs: &[(&str, &str)], #[case] expected: bool) {
        assert_eq!(environment(pairs).is_on(&GGML_HSA_KERNEL_CACHE_CLEAR), expected);
    }

    #[test]
    fn the_process_is_read_once() {
        assert_eq!(Environment::process().get(&PATH), std::env::var_os("PATH").as_deref());
        assert!(std::ptr::eq(Environment::process(), Environment::process()));
    }

    #[test]
    fn misnamed_variables_are_listed_and_right_ones_are_not() {
        let environment = environment(&[
            ("GGML_HSA_KERNELDIR", "/kernels"),
            ("GGML_HSA_JIT_CLEAR_CACHE", "1"),
            ("GGML_HSA_KERNEL_DIR", "/kernels"),
            ("AMDXDNA_SIM_DEVICES", "aie2p"),
            ("HSA_STAND_IN_AGENTS", "aie2p"),
            ("GGML_HSA_ISOLATE", "1"),
            ("GGML_BACKEND_PATH", "libggml-hsa.so"),
        ]);
        let told: Vec<String> = environment.misnamed().iter().map(ToString::to_string).collect();
        let expected = [
            "GGML_HSA_ISOLATE has no effect any more: AMD's runtime is always in this process (docs/rocr.md says what \
             can still end the process)",
            "GGML_HSA_JIT_CLEAR_CACHE is an older name, still understood; use GGML_HSA_KERNEL_CACHE_CLEAR",
            "GGML_HSA_KERNELDIR is not a setting; did you mean GGML_HSA_KERNEL_DIR?",
        ];
        assert_eq!(told, expected);
    }
}
