//! Keeps to itself what the kernels' crates export: only the kernel's functions are to be found in the preload library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
