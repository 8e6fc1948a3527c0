//! Link options of `libggml-hsa.so`, and a look at the defaults that this build is given.
//!
//! ggml's loader closes a backend again when it only asked for its score. `-z nodelete` keeps the library mapped, so that
//! threads and exit handlers never run in code that is gone.
//!
//! The defaults are compiled in by `src/config/build_defaults.rs`. One that means nothing ends the build here, because in the
//! library it would have no effect that anybody sees.

// The very files that the library is built from, so that both understand the same words.
#[path = "../jit-iron/src/jit_policy.rs"]
mod jit_policy;
#[path = "../hal/src/environment/words.rs"]
mod words;

use jit_policy::JitPolicy;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../jit-iron/src/jit_policy.rs");
    println!("cargo:rerun-if-changed=../hal/src/environment/words.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    check("GGML_HSA_DEFAULT_JIT", JitPolicy::NAMES, |text| JitPolicy::parse(text).is_some());
    let words = format!("{}; {}", words::TRUTHY.join(", "), words::FALSY.join(", "));
    check("GGML_HSA_DEFAULT_CPU_FALLBACK", &words, |text| words::switch(text).is_some());
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
