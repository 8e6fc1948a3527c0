//! `libggml-hsa.so`: where it would be loaded from, and whether it is a library for this machine.

use super::super::finding::Finding;
use super::super::machine::Machine;
use crate::library::{self, defect};
use ggml_hsa::settings::GGML_BACKEND_PATH;
use std::path::PathBuf;

fn found(machine: &Machine) -> Result<PathBuf, String> {
    let programs = machine.programs.as_ref().map(|folder| machine.file(folder));
    let given = machine.library.as_ref().map(|path| machine.file(path));
    library::find(given.as_deref(), programs.as_deref()).map_err(|cause| cause.to_string())
}

/// The library that `ggml-hsa run` and `ggml-hsa env` use.
pub fn file(machine: &Machine) -> Vec<Finding> {
    const MEND: &str = "install the package again, or build it: `cmake -S ggml-bridge -B build && cmake --build build && \
                        cmake --install build --prefix ~/.local`";
    vec![match found(machine) {
        Err(cause) => Finding::error("library", cause, MEND),
        Ok(path) => match defect(&path) {
            Some(reason) => Finding::error("library", format!("{}: {reason}", path.display()), MEND),
            None => Finding::ok("library", format!("{}, for `ggml-hsa run` and `ggml-hsa env`", path.display())),
        },
    }]
}

/// What llama.cpp loads when it is started without `ggml-hsa run`.
pub fn variable(machine: &Machine) -> Vec<Finding> {
    const MEND: &str = "`eval \"$(ggml-hsa env)\"` sets it right; `ggml-hsa run PROGRAM` does without it";
    let name = GGML_BACKEND_PATH.name;
    let Some(path) = machine.environment.path(&GGML_BACKEND_PATH) else {
        return vec![Finding::note(
            "library",
            format!(
                "{name} is not set: llama.cpp loads the library with `ggml-hsa run`, or after `eval \"$(ggml-hsa env)\"`"
            ),
        )];
    };
    let file = machine.file(&path);
    let error = |text: &str| vec![Finding::error("library", format!("{name} {text}"), MEND)];
    if path.to_string_lossy().contains(':') && !file.exists() {
        return error("is a list; ggml takes one file");
    }
    if file.is_dir() {
        return error("is a folder; ggml takes one file");
    }
    if !file.exists() {
        return error("names a file that does not exist, and ggml loads nothing");
    }
    if let Some(reason) = defect(&file) {
        return error(&format!("names a file that cannot be loaded: {reason}"));
    }
    let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().contains("hsa"));
    if !is_ours {
        return error("names another backend, and ggml takes one file");
    }
    let same = |other: PathBuf| match (other.canonicalize(), file.canonicalize()) {
        (Ok(other), Ok(file)) => other == file,
        _ => false,
    };
    match found(machine) {
        Ok(other) if !same(other.clone()) => vec![Finding::warning(
            "library",
            format!("{name} names another copy, {}, than belongs to this program, {}", path.display(), other.display()),
            MEND,
        )],
        _ => vec![Finding::ok("library", format!("{name} is {}", path.display()))],
    }
}
