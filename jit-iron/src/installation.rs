//! Where an installed library or program finds what was installed with it.
//!
//! An installation has libraries in `PREFIX/lib`, or in folders below it, programs in `PREFIX/bin` and data in
//! `PREFIX/share/ggml-hsa`. The prefix is taken from the path of the library or program itself and not built in, so that a tree may be moved and
//! one library serves every place. A library below no folder `lib` is not installed: programs are not taken from some folder
//! just because it lies above.

use procfs::process::{MMapPath, Process};
use std::path::{Path, PathBuf};

/// How far below `lib` a library may be: Debian's backends of ggml are in `lib/x86_64-linux-gnu/ggml/backends0`.
const DEEPEST: usize = 3;

/// The program `name` installed with a library in `directory`; it may be missing. None if the library is not installed.
pub fn program(directory: &Path, name: &str) -> Option<PathBuf> {
    Some(prefix(directory)?.join("bin").join(name))
}

/// The folder of data installed with a library or program in `directory`; it may be missing. None if that is not installed.
pub fn data(directory: &Path) -> Option<PathBuf> {
    Some(prefix(directory)?.join("share/ggml-hsa"))
}

/// The library or program that this code was linked into, by the process's memory map. None if the system does not provide it.
pub fn image() -> Option<PathBuf> {
    let address = image as *const () as u64;
    let maps = Process::myself().and_then(|process| process.maps()).ok()?;
    let map = maps.iter().find(|map| (map.address.0..map.address.1).contains(&address))?;
    let MMapPath::Path(path) = &map.pathname else { return None };
    path.canonicalize().ok().or_else(|| std::env::current_exe().ok())
}

/// The prefix of an installation, from the folder of one of its programs or libraries.
fn prefix(directory: &Path) -> Option<&Path> {
    if directory.ends_with("bin") {
        return directory.parent();
    }
    let is_lib = |path: &&Path| path.file_name().is_some_and(|name| name == "lib" || name == "lib64");
    directory.ancestors().take(DEEPEST + 1).find(is_lib).and_then(Path::parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("/p/lib", Some("/p"))]
    #[case::program("/p/bin", Some("/p"))]
    #[case::lib64("/p/lib64", Some("/p"))]
    #[case::multiarch("/usr/lib/x86_64-linux-gnu", Some("/usr"))]
    #[case::debian("/usr/lib/x86_64-linux-gnu/ggml/backends0", Some("/usr"))]
    #[case::nearest("/usr/lib/app/lib", Some("/usr/lib/app"))]
    #[case::too_deep("/usr/lib/a/b/c/d", None)]
    #[case::not_installed("/src/target/release", None)]
    #[case::only_alike("/p/mylib", None)]
    fn the_prefix_is_above_lib(#[case] directory: &str, #[case] expected: Option<&str>) {
        assert_eq!(prefix(Path::new(directory)), expected.map(Path::new));
    }

    #[test]
    fn this_code_is_in_the_test_program() {
        assert_eq!(image(), Some(std::env::current_exe().unwrap().canonicalize().unwrap()));
    }

    #[test]
    fn programs_and_data_are_below_the_prefix() {
        let directory = Path::new("/p/lib/ggml");
        assert_eq!(program(directory, "tool"), Some("/p/bin/tool".into()));
        assert_eq!(data(directory), Some("/p/share/ggml-hsa".into()));
        assert_eq!((program(Path::new("/p"), "tool"), data(Path::new("/p"))), (None, None));
    }
}
