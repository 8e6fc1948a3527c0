//! Kernel packs: one file per generation with all kernels of an output directory, to be built into the library.

use super::output::OutputDirectory;
use crate::kernel_files::unfinished;
use crate::pack::{self, pack};
use aie_hal::Arch;
use std::path::PathBuf;

/// Writes `<output directory>/<generation>.pack` for each of `arches`, with every kernel in its folder. Each file appears whole or
/// not at all.
///
/// # Errors
/// A kernel cannot be read or is damaged, or a pack cannot be written.
pub fn write_packs<'a>(
    output: &OutputDirectory,
    arches: impl IntoIterator<Item = &'a Arch>,
) -> Result<Vec<PathBuf>, String> {
    let _lock = output.lock_packs().map_err(|error| format!("cannot lock the output directory: {error}"))?;
    let mut written = Vec::new();
    for arch in arches {
        let (bytes, _) = pack(&output.folder(&arch.name), arch).map_err(|error| error.to_string())?;
        let path = output.path().join(format!("{}.{}", arch.name, pack::ENDING));
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        let file = unfinished(output.path(), &bytes).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        written.push(path);
    }
    Ok(written)
}
