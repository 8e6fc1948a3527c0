//! A digest of the sources that native kernels are made from, under which they are cached: the crate's own, and those of the
//! instruction tables, of the format writers and of the operations. A kernel that others made is stale.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders and files, from this crate's.
const SOURCES: [&str; 5] = ["src", "../hal/isa/src", "../hal/isa/data", "../hal/src/format", "../ops/src"];

fn main() {
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        collect(Path::new(source), &mut files);
    }
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        digest.update(file.as_os_str().as_encoded_bytes());
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo:rustc-env=AIE_JIT_NATIVE_SOURCE_DIGEST={hex}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
