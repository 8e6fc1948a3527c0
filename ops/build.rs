//! A digest of this crate's sources, under which reference artifacts are cached.

mod source_digest;

fn main() {
    source_digest::set("AIE_OPS_SOURCE_DIGEST", &["src"]);
}
