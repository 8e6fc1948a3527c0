//! The packages of ggml and llama.cpp. Their versions are whatever Debian has: the checks compare with the CPU backend of the same.

use crate::apt::{EARLIER, PrivateApt, numbers};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// What is installed beside ggml's library; their dependencies come along. base-files has the texts used for perplexity.
const PACKAGES: [&str; 4] = ["base-files", "llama.cpp-tools", "llama.cpp-tools-extra", "llama.cpp-tests"];
/// The library's package, with the number of its binary interface behind it.
const LIBRARY: &str = "libggml";
/// The backend of other machines, in a package that begins with the library's.
const RPC: &str = "-backend-rpc";
/// The folder with backends, likewise.
const BACKENDS: &str = "backends";

/// The packages to install. Of ggml's library it is the one that llama.cpp needs.
pub fn packages(apt: &PrivateApt) -> Result<Vec<String>> {
    let plan = apt.plan(&PACKAGES)?;
    let numbered = |name: &str| name.strip_prefix(LIBRARY).is_some_and(is_number);
    let libraries = plan.iter().map(|(name, _)| name).filter(|name| numbered(name));
    let library = libraries.max_by_key(|name| numbers(name)).with_context(|| {
        format!(
            "Debian's {} needs no package {LIBRARY} with a number; put the new name into tests/xtask/src/testbed/ggml.rs, or {EARLIER}",
            PACKAGES[1]
        )
    })?;
    let rpc = format!("{library}{RPC}");
    apt.require(&[&rpc])?;
    Ok(PACKAGES.iter().map(|name| (*name).to_owned()).chain([library.clone(), rpc]).collect())
}

/// The folder with ggml's backends in a folder of libraries: `ggml/backends0`, with the highest number there is.
pub fn backends(lib: &Path) -> Result<PathBuf> {
    let ggml = lib.join("ggml");
    let entries = std::fs::read_dir(&ggml).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let found = names.filter(|name| name.strip_prefix(BACKENDS).is_some_and(|rest| rest.is_empty() || is_number(rest)));
    let name = found.max_by_key(|name| numbers(name)).with_context(|| {
        format!(
            "{} has no folder {BACKENDS} with a number, where ggml's backends are; rebuild the testbed with `cargo xtask testbed \
             --force`; if that changes nothing, Debian's ggml has another layout: put it into tests/xtask/src/testbed/ggml.rs, or \
             {EARLIER}",
            ggml.display()
        )
    })?;
    Ok(ggml.join(name))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backends_of_the_latest_interface_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", backends(dir.path()).unwrap_err());
        assert!(error.contains("ggml.rs") && error.contains("AIE_TESTBED_MIRROR"), "{error}");
        for name in ["backends-old", "backends0", "backends9", "backends10", "cmake"] {
            std::fs::create_dir_all(dir.path().join("ggml").join(name)).unwrap();
        }
        assert_eq!(backends(dir.path()).unwrap(), dir.path().join("ggml/backends10"));
    }
}
