//! Where the cache is.
//!
//! The order is that of the C++ ggml-hsa backend, so that both find each other's kernels: `GGML_HSA_KERNEL_CACHE_DIR` as it
//! is, `$XDG_CACHE_HOME/ggml`, `$HOME/.cache/ggml`, and last a folder that every system has. The choice is remembered, because
//! a cache that cannot be used is repaired by changing that variable.

use crate::settings::{GGML_HSA_KERNEL_CACHE_DIR, HOME, XDG_CACHE_HOME};
use aie_hal::Environment;
use aie_hal::environment::Variable;
use std::fmt;
use std::path::{Path, PathBuf};

/// The cache without any variable.
pub const LAST_RESORT: &str = "/tmp/ggml/ggml-hsa";

/// The directory of the cache. It need not exist. It prints as the path and who named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePath {
    path: PathBuf,
    /// The variable that decided, if one did.
    pub named_by: Option<&'static Variable>,
}

impl CachePath {
    /// The directory that `environment` names. A variable with an empty value counts as not set.
    pub fn of(environment: &Environment) -> Self {
        let named = |variable: &'static Variable, below: &str| {
            // `join` with nothing would end the path in a slash.
            let path = environment.path(variable).map(|path| if below.is_empty() { path } else { path.join(below) })?;
            Some(Self { path, named_by: Some(variable) })
        };
        named(&GGML_HSA_KERNEL_CACHE_DIR, "")
            .or_else(|| named(&XDG_CACHE_HOME, "ggml"))
            .or_else(|| named(&HOME, ".cache/ggml"))
            .unwrap_or_else(|| Self { path: LAST_RESORT.into(), named_by: None })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the user named exactly this directory, and not one that caches of many programs share.
    pub fn is_explicit(&self) -> bool {
        self.named_by == Some(&GGML_HSA_KERNEL_CACHE_DIR)
    }
}

impl fmt::Display for CachePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.path.display())?;
        match self.named_by {
            Some(variable) => write!(f, "(from {variable})"),
            None => write!(f, "(as neither {GGML_HSA_KERNEL_CACHE_DIR} nor {XDG_CACHE_HOME} nor {HOME} is set)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const OWN: Option<&str> = Some("/kernels");
    const XDG: Option<&str> = Some("/xdg");
    const HOME_SET: Option<&str> = Some("/home/someone");

    /// The eight settings of three variables, each both absent and empty where it is not set.
    #[rstest]
    #[case::none(None, None, None, "/tmp/ggml/ggml-hsa", None)]
    #[case::home(None, None, HOME_SET, "/home/someone/.cache/ggml", Some(&HOME))]
    #[case::xdg(None, XDG, None, "/xdg/ggml", Some(&XDG_CACHE_HOME))]
    #[case::xdg_home(None, XDG, HOME_SET, "/xdg/ggml", Some(&XDG_CACHE_HOME))]
    #[case::own(OWN, None, None, "/kernels", Some(&GGML_HSA_KERNEL_CACHE_DIR))]
    #[case::own_home(OWN, None, HOME_SET, "/kernels", Some(&GGML_HSA_KERNEL_CACHE_DIR))]
    #[case::own_xdg(OWN, XDG, None, "/kernels", Some(&GGML_HSA_KERNEL_CACHE_DIR))]
    #[case::all(OWN, XDG, HOME_SET, "/kernels", Some(&GGML_HSA_KERNEL_CACHE_DIR))]
    fn the_order_is_that_of_the_cxx_backend(
        #[case] own: Option<&str>,
        #[case] xdg: Option<&str>,
        #[case] home: Option<&str>,
        #[case] path: &str,
        #[case] named_by: Option<&'static Variable>,
        #[values(None, Some(""))] unset: Option<&str>,
    ) {
        let settings = [("GGML_HSA_KERNEL_CACHE_DIR", own), ("XDG_CACHE_HOME", xdg), ("HOME", home)];
        let pairs = settings.into_iter().filter_map(|(name, value)| Some((name, value.or(unset)?)));
        let cache = CachePath::of(&Environment::from_pairs(pairs));
        // Compared as text: paths are equal when only a slash at the end differs.
        assert_eq!((cache.path().to_str(), cache.named_by), (Some(path), named_by));
        assert_eq!(cache.is_explicit(), own.is_some());
    }

    #[test]
    fn messages_say_who_named_it() {
        let cache = CachePath::of(&Environment::from_pairs([("HOME", "/home/someone")]));
        assert_eq!(cache.to_string(), "/home/someone/.cache/ggml (from HOME)");
        let nobodys = CachePath::of(&Environment::default()).to_string();
        assert!(nobodys.starts_with("/tmp/ggml/ggml-hsa (as neither GGML_HSA_KERNEL_CACHE_DIR nor"), "{nobodys}");
    }
}
