//! Where the checkout and its generated folders are.
//!
//! Everything a command leaves behind lies under `target/` of the checkout, also when `CARGO_TARGET_DIR` sends the
//! compiler's output elsewhere: the paths in the README then hold on every machine.

use crate::settings::CARGO;
use std::path::{Path, PathBuf};

/// The folder of the checkout: the one with the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let top = package.parent().and_then(Path::parent);
    top.map_or_else(|| package.clone(), Path::to_path_buf)
}

/// `target/` of the checkout.
pub fn target() -> PathBuf {
    root().join("target")
}

/// The cargo that runs us, so that a command uses one toolchain throughout.
pub fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(CARGO.or("cargo"));
    command.current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_root_holds_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(super::root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    /// It would have to be compiled before the first word.
    #[test]
    fn no_crate_of_the_workspace_is_below_this_program() {
        let read = |file: &str| -> toml::Table {
            toml::from_str(&std::fs::read_to_string(super::root().join(file)).unwrap()).unwrap()
        };
        let (workspace, own) = (read("Cargo.toml"), read("tests/xtask/Cargo.toml"));
        let is_ours = |name: &String| workspace["workspace"]["dependencies"][name].get("path").is_some();
        for kind in ["dependencies", "dev-dependencies"] {
            let ours: Vec<_> = own[kind].as_table().unwrap().keys().filter(|name| is_ours(name)).collect();
            assert!(ours.is_empty(), "{kind}: {ours:?}");
        }
        assert!(is_ours(&"aie-hal".to_owned()));
    }
}
