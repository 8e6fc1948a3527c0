//! Loads and checks the instruction tables, so that a mistake in a data file fails the build and names its line.

// The crate uses all of it, this script only the loader.
#[allow(dead_code, unused_imports)]
#[path = "src/model/mod.rs"]
mod model;

fn main() {
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rerun-if-changed=src/model");
    for tables in [&model::AIE2, &model::AIE2P] {
        if let Err(error) = model::Isa::load(tables) {
            panic!("instruction tables of {}: {error}", tables.set.name());
        }
    }
}
