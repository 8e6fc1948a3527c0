//! Link options of `libggml-hsa.so`.
//!
//! ggml's loader closes a backend again when it only asked for its score. `-z nodelete` keeps the library mapped, so that
//! threads and exit handlers never run in code that is gone.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
