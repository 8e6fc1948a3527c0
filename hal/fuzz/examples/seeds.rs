//! Writes the seeds of the corpus: `cargo run --example seeds`, in `hal/fuzz`.

use aie_hal::{artifact, format};
use std::path::Path;

#[path = "../properties.rs"]
#[allow(dead_code, reason = "only the seeds are used")]
mod properties;

fn main() -> std::io::Result<()> {
    for target in ["pdi", "cdo", "instructions", "artifact"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in properties::seeds(target) {
            std::fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
