//! A digest of source files, for the build scripts of the crates whose kernels are cached: a kernel made by other sources is stale.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Sets `variable` to the digest of all files in `sources`, which are folders, while the crate is compiled.
pub fn set(variable: &str, sources: &[&str]) {
    let mut files = Vec::new();
    for source in sources {
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
    println!("cargo:rustc-env={variable}={hex}");
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
