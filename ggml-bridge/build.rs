//! Link options of `libggml-hsa.so`, and kernels to build in.
//!
//! ggml's loader closes a backend again when it only asked for its score. `-z nodelete` keeps the library mapped, so that
//! threads and exit handlers never run in code that is gone. The soname is the name the file is installed under: a program
//! that is linked with it would otherwise ask for the path it had when it was linked.

use std::path::PathBuf;

/// The packs that are built in, and their list for `src/kernels/kernel_store.rs`.
fn embed() {
    println!("cargo:rerun-if-env-changed=GGML_HSA_EMBED_KERNELS");
    let mut packs = Vec::new();
    if let Some(folder) = std::env::var_os("GGML_HSA_EMBED_KERNELS").filter(|folder| !folder.is_empty()) {
        let folder = PathBuf::from(folder);
        println!("cargo:rerun-if-changed={}", folder.display());
        let fail = |reason: String| println!("cargo::error=GGML_HSA_EMBED_KERNELS={}: {reason}", folder.display());
        match folder.read_dir() {
            Ok(entries) => packs.extend(entries.flatten().map(|entry| entry.path())),
            Err(error) => return fail(error.to_string()),
        }
        packs.retain(|path| path.extension().is_some_and(|ending| ending == "pack"));
        if packs.is_empty() {
            return fail("it has no *.pack files; generate them with ggml-hsa-gen-kernels --embed".into());
        }
        packs.sort();
    }
    let mut text = String::from("const PACKS: &[(&str, &[u8])] = &[\n");
    for pack in packs {
        println!("cargo:rerun-if-changed={}", pack.display());
        let path = std::path::absolute(&pack).unwrap_or(pack);
        text += &format!("    ({:?}, include_bytes!({:?})),\n", path.file_name().unwrap_or_default(), path);
    }
    text += "];\n";
    let target = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("embedded_packs.rs");
    if let Err(error) = std::fs::write(&target, text) {
        println!("cargo::error={}: {error}", target.display());
    }
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libggml-hsa.so");
    embed();
}
