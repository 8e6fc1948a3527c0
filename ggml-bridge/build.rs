//! Link options of `libggml-hsa.so`, kernels to build in, and a look at the defaults that this build is given.
//!
//! ggml's loader closes a backend again when it only asked for its score. `-z nodelete` keeps the library mapped, so that
//! threads and exit handlers never run in code that is gone. The soname is the name the file is installed under: a program
//! that is linked with it would otherwise ask for the path it had when it was linked.
//!
//! The defaults are compiled in by `src/config/build_defaults.rs`. One that means nothing ends the build here, because in the
//! library it would have no effect that anybody sees.

// The very files that the library is built from, so that both understand the same words.
#[path = "../jit-iron/src/jit_policy.rs"]
mod jit_policy;
#[path = "../hal/src/environment/words.rs"]
mod words;

use jit_policy::JitPolicy;
use std::path::PathBuf;

/// The packs that are built in, and their list for `src/embedded.rs`.
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
            return fail("there is no *.pack in it; make them with ggml-hsa-gen-kernels --embed".into());
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
    println!("cargo:rerun-if-changed=../jit-iron/src/jit_policy.rs");
    println!("cargo:rerun-if-changed=../hal/src/environment/words.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libggml-hsa.so");
    check("GGML_HSA_DEFAULT_JIT", JitPolicy::NAMES, |text| JitPolicy::parse(text).is_some());
    let words = format!("{}; {}", words::TRUTHY.join(", "), words::FALSY.join(", "));
    check("GGML_HSA_DEFAULT_CPU_FALLBACK", &words, |text| words::switch(text).is_some());
    embed();
    // Any text is a word or a file.
    check("GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT", "", |_| true);
}

/// Refuses a value that is none; an empty one counts as not set.
fn check(name: &str, possible: &str, is_valid: impl Fn(&str) -> bool) {
    println!("cargo:rerun-if-env-changed={name}");
    match std::env::var_os(name).map(std::ffi::OsString::into_string) {
        None => {}
        Some(Ok(text)) if text.is_empty() || is_valid(&text) => {}
        Some(Ok(text)) => println!("cargo::error={name}: `{text}` has no meaning; possible: {possible}; or unset it"),
        Some(Err(_)) => println!("cargo::error={name}: the value is not UTF-8; correct or unset it"),
    }
}
