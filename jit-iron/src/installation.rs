//! Where an installed library finds what was installed with it.
//!
//! An installation has libraries in `PREFIX/lib`, or in folders below it, programs in `PREFIX/bin` and data in
//! `PREFIX/share/ggml-hsa`. The prefix is taken from the library's own path and not built in, so that a tree may be moved and
//! one library serves every place. A library below no folder `lib` is not installed: programs are not taken from some folder
//! just because it lies above.

use std::path::{Path, PathBuf};

/// How far below `lib` a library may be: Debian's backends of ggml are in `lib/x86_64-linux-gnu/ggml/backends0`.
const DEEPEST: usize = 3;

/// The program `name` installed with a library in `directory`; it may be missing. None if the library is not installed.
pub fn program(directory: &Path, name: &str) -> Option<PathBuf> {
    Some(prefix(directory)?.join("bin").join(name))
}

/// The folder of data installed with a library in `directory`; it may be missing. None if the library is not installed.
pub fn data(directory: &Path) -> Option<PathBuf> {
    Some(prefix(directory)?.join("share/ggml-hsa"))
}

/// The library or program that this code was linked into, by the process's own map of its memory. None if the system does not
/// tell.
pub fn image() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = mapped_at(&maps, image as *const () as usize)?;
    path.canonicalize().ok().or_else(|| std::env::current_exe().ok())
}

/// The file that is mapped at `address`, of the lines of `/proc/PID/maps`.
fn mapped_at(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let path = &rest[rest.find('/')?..];
        (bound(start)? <= address && address < bound(end)?).then(|| PathBuf::from(path))
    })
}

/// The prefix of an installation, from the folder of one of its libraries.
fn prefix(directory: &Path) -> Option<&Path> {
    let is_lib = |path: &&Path| path.file_name().is_some_and(|name| name == "lib" || name == "lib64");
    directory.ancestors().take(DEEPEST + 1).find(is_lib).and_then(Path::parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("/p/lib", Some("/p"))]
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
        let maps = "1000-2000 r--p 00000000 fe:00 12  /usr/lib/a b.so\n2000-3000 r-xp 00001000 fe:00 12  /usr/lib/a b.so\n\
                    3000-4000 rw-p 00000000 00:00 0  [heap]\n4000-5000 rw-p 00000000 00:00 0\n";
        for (address, expected) in [(0x1000, true), (0x2fff, true), (0xfff, false), (0x3000, false), (0x4000, false)] {
            assert_eq!(mapped_at(maps, address), expected.then(|| "/usr/lib/a b.so".into()), "{address:x}");
        }
    }

    #[test]
    fn programs_and_data_are_below_the_prefix() {
        let directory = Path::new("/p/lib/ggml");
        assert_eq!(program(directory, "tool"), Some("/p/bin/tool".into()));
        assert_eq!(data(directory), Some("/p/share/ggml-hsa".into()));
        assert_eq!((program(Path::new("/p"), "tool"), data(Path::new("/p"))), (None, None));
    }
}
