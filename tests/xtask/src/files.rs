//! What is below a folder.

use anyhow::{Context, Result};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The text of a file.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until no other process has the folder for itself, and has it until the file is dropped: for what several commands would make
/// when they start together.
pub fn alone(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let lock = || {
        fs::create_dir_all(folder)?;
        let file = File::create(&path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        io::Result::Ok(file)
    };
    lock().with_context(|| format!("cannot lock {}", path.display()))
}

/// A path that holds in every working directory.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))
}

/// Everything below `folder`, relative to it and sorted: each folder before what is in it. Links are not followed.
pub fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(part) = open.pop() {
        let place = folder.join(&part);
        for entry in fs::read_dir(&place).with_context(|| format!("cannot list {}", place.display()))? {
            let entry = entry?;
            let name = part.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(name.clone());
            }
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_listed_before_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::write(dir.path().join("b/c/d"), "").unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        assert_eq!(below(dir.path()).unwrap(), ["a", "b", "b/c", "b/c/d"].map(PathBuf::from));
        assert!(below(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }

    #[test]
    fn a_folder_is_one_user_s_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made");
        let first = alone(&folder).unwrap();
        let is_free = || {
            let file = File::open(folder.join(".lock")).unwrap();
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        assert!(!is_free());
        drop(first);
        assert!(is_free());
        assert!(alone(Path::new("/proc/none")).unwrap_err().to_string().contains("/proc/none"));
    }
}
