//! Finding programs of llama.cpp.

use aie_hal::Environment;
use ggml_hsa::settings::PATH;
use std::path::{Path, PathBuf};

/// The file of `program`: a path as it is, a name in one of the folders of `PATH`.
///
/// # Errors
/// What was tried.
pub fn find(program: &Path, environment: &Environment) -> Result<PathBuf, String> {
    if program.components().count() > 1 || program.is_absolute() {
        return match program.exists() {
            true => Ok(program.to_owned()),
            false => Err(format!("{} does not exist", program.display())),
        };
    }
    let path = environment.get(&PATH);
    let folders: Vec<PathBuf> = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    let candidates = folders.iter().map(|folder| folder.join(program));
    candidates.into_iter().find(|file| file.is_file()).ok_or_else(|| {
        let tried: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!(
            "cannot find `{0}`; tried the folders of PATH: {1}; install llama.cpp (Debian: `sudo apt install llama.cpp`), or give \
             the program's path (`./{0}` for one in this folder)",
            program.display(),
            if tried.is_empty() { "none".to_owned() } else { tried.join(", ") }
        )
    })
}
