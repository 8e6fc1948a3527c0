//! Finding `libggml-hsa.so`, for the programs that are to load it.
//!
//! Where an installation, a package and a build of cargo have it, beside or below this program: nothing is built in, so a
//! tree may be moved.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The library's name when it is installed, and the one that cargo gives it.
const NAMES: [&str; 2] = ["libggml-hsa.so", "libggml_hsa.so"];

/// How far below `lib` it may be: Debian's backends of ggml are in `lib/x86_64-linux-gnu/ggml/backends0`.
const DEEPEST: usize = 3;

/// `e_machine` of this program's libraries, as the ELF specification numbers them.
const ARCHITECTURE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// The function that ggml calls first in every backend it loads.
const ENTRY: &[u8] = b"ggml_backend_init\0";

/// The library was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// The files and folders that were looked at.
    pub tried: Vec<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried: Vec<String> = self.tried.iter().map(|path| path.display().to_string()).collect();
        write!(f, "cannot find {}; tried {}; name it with --library FILE", NAMES[0], tried.join(", "))
    }
}

/// The library: `given`, a file or a folder that has it, or else the one that belongs to the program in the folder `programs`.
///
/// # Errors
/// What was tried.
pub fn find(given: Option<&Path>, programs: Option<&Path>) -> Result<PathBuf, NotFound> {
    let mut tried = Vec::new();
    if let Some(given) = given {
        return match in_folder(given, 0, &mut tried).or_else(|| is_file(given, &mut tried)) {
            Some(found) => Ok(found),
            None => Err(NotFound { tried: vec![given.to_owned()] }),
        };
    }
    let Some(programs) = programs else { return Err(NotFound { tried }) };
    let found = in_folder(programs, 0, &mut tried).or_else(|| {
        let above = programs.parent()?;
        // `target/lib` belongs to programs in `target/debug` as `lib` belongs to those in `bin`.
        ["lib", "lib64"].iter().find_map(|name| in_folder(&above.join(name), DEEPEST, &mut tried))
    });
    found.ok_or(NotFound { tried })
}

fn is_file(path: &Path, tried: &mut Vec<PathBuf>) -> Option<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match path.is_file() {
        true => Some(path),
        false => {
            tried.push(path);
            None
        }
    }
}

/// The library in `folder` or at most `depth` folders below it; the nearest, in the order of the names.
fn in_folder(folder: &Path, depth: usize, tried: &mut Vec<PathBuf>) -> Option<PathBuf> {
    if !folder.is_dir() {
        tried.push(folder.to_owned());
        return None;
    }
    let mut level = vec![folder.to_owned()];
    for _ in 0..=depth {
        if let Some(found) = level.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|f| f.is_file()) {
            return Some(std::path::absolute(&found).unwrap_or(found));
        }
        let entries = level.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
        let mut below: Vec<PathBuf> = entries.filter(|path| path.is_dir() && !path.is_symlink()).collect();
        below.sort();
        level = below;
    }
    tried.push(folder.to_owned());
    None
}

/// Why ggml could not load the file at `path` as a backend.
pub fn defect(path: &Path) -> Option<String> {
    let mut head = [0_u8; 20];
    let opened = File::open(path).and_then(|mut file| file.read_exact(&mut head).map(|()| file));
    let mut file = match opened {
        Ok(file) => file,
        Err(cause) => return Some(format!("it cannot be read: {cause}")),
    };
    if !head.starts_with(b"\x7fELF") {
        return Some("it is no library: it does not begin as ELF files do".to_owned());
    }
    let architecture = u16::from_le_bytes([head[18], head[19]]);
    if architecture != ARCHITECTURE {
        return Some(format!("it is for another processor (ELF machine {architecture}, here {ARCHITECTURE})"));
    }
    match names_entry(&mut file) {
        Ok(true) => None,
        Ok(false) => Some("it is no backend of ggml: it has no function ggml_backend_init".to_owned()),
        Err(cause) => Some(format!("it cannot be read: {cause}")),
    }
}

/// Whether [`ENTRY`] is in the rest of a file. Names of functions are near its beginning, so the whole file is read only of others.
fn names_entry(file: &mut impl Read) -> io::Result<bool> {
    const BLOCK: u64 = 1 << 20;
    let mut bytes = Vec::new();
    loop {
        let read = file.take(BLOCK).read_to_end(&mut bytes)?;
        if bytes.windows(ENTRY.len()).any(|window| window == ENTRY) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        bytes.drain(..bytes.len().saturating_sub(ENTRY.len()));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::beside("bin/libggml-hsa.so", true)]
    #[case::built("bin/libggml_hsa.so", true)]
    #[case::lib("lib/libggml-hsa.so", true)]
    #[case::debian("lib/x86_64-linux-gnu/ggml/backends0/libggml-hsa.so", true)]
    #[case::lib64("lib64/libggml-hsa.so", true)]
    #[case::too_deep("lib/a/b/c/d/libggml-hsa.so", false)]
    #[case::elsewhere("share/libggml-hsa.so", false)]
    fn it_belongs_to_the_program(#[case] place: &str, #[case] found: bool) {
        let root = tempfile::tempdir().unwrap();
        let (file, bin) = (root.path().join(place), root.path().join("bin"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir_all(&bin).unwrap();
        fs::write(&file, "").unwrap();
        match find(None, Some(&bin)) {
            Ok(path) => assert!(found && path == file, "{}", path.display()),
            Err(cause) => {
                assert!(!found);
                let text = cause.to_string();
                assert!(text.contains("--library") && text.contains(&bin.display().to_string()), "{text}");
                assert_eq!(cause.tried, [bin, root.path().join("lib"), root.path().join("lib64")]);
            }
        }
    }

    #[test]
    fn a_given_one_is_a_file_or_a_folder_and_nothing_else_is_tried() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("backend.so");
        fs::write(&file, "").unwrap();
        assert_eq!(find(Some(&file), None), Ok(file));
        let named = root.path().join("libggml-hsa.so");
        let nothing = find(Some(root.path()), Some(root.path())).unwrap_err();
        assert_eq!(nothing.tried, [root.path()]);
        fs::write(&named, "").unwrap();
        assert_eq!(find(Some(root.path()), None), Ok(named));
    }

    /// The head of an ELF file of this machine, and `names` of functions.
    pub fn elf(names: &str) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        bytes.extend(ARCHITECTURE.to_le_bytes());
        bytes.extend(names.bytes());
        bytes
    }

    #[rstest]
    #[case::backend(elf("a\0ggml_backend_init\0"), None)]
    #[case::over_a_block(elf(&format!("{}\0ggml_backend_init\0", "x".repeat((1 << 20) - 8))), None)]
    #[case::other_library(elf("a\0malloc\0"), Some("it is no backend of ggml"))]
    #[case::empty(vec![], Some("it cannot be read: failed to fill"))]
    #[case::text(b"GGUF, a model perhaps, or what".to_vec(), Some("it does not begin as ELF files do"))]
    #[case::other_processor([&elf("")[..18], &[243, 0]].concat(), Some("it is for another processor (ELF machine 243"))]
    fn what_ggml_cannot_load_is_no_library(#[case] bytes: Vec<u8>, #[case] expected: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libggml-hsa.so");
        fs::write(&file, bytes).unwrap();
        let found = defect(&file);
        match (expected, &found) {
            (None, None) => {}
            (Some(part), Some(found)) if found.contains(part) => {}
            _ => panic!("{found:?} instead of {expected:?}"),
        }
    }
}
