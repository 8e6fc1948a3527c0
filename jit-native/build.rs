//! A digest of the sources that native kernels are made from, under which they are cached: the crate's own, and those of the
//! instruction tables, of the format writers and of the operations.

#[path = "../ops/source_digest.rs"]
mod source_digest;

/// Folders, from this crate's.
const SOURCES: [&str; 5] = ["src", "../hal/isa/src", "../hal/isa/data", "../hal/src/format", "../ops/src"];

fn main() {
    source_digest::set("AIE_JIT_NATIVE_SOURCE_DIGEST", &SOURCES);
}
