//! llama.cpp and its ggml: which there are, and which layout of the backend ABI they have.

use super::super::finding::Finding;
use super::super::machine::Machine;
use ggml_hsa::abi::layout::{Layout, Version};
use ggml_hsa::settings::{LD_LIBRARY_PATH, PATH};
use std::fs;
use std::path::PathBuf;

/// Folders of libraries in common distributions.
pub const FOLDERS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
];

/// Programs of llama.cpp that people start.
const PROGRAMS: [&str; 5] = ["llama-cli", "llama-server", "llama-completion", "llama-bench", "llama"];

const INSTALL: &str = "`sudo apt install llama.cpp` (Debian), or a build of llama.cpp with `-DGGML_BACKEND_DL=ON`";

/// Folders of a variable, in its order.
fn listed(machine: &Machine, variable: &aie_hal::environment::Variable) -> Vec<PathBuf> {
    let value = machine.environment.get(variable);
    let folders = value.map(|value| std::env::split_paths(value).collect()).unwrap_or_default();
    Vec::into_iter(folders).filter(|folder: &PathBuf| folder.is_absolute()).collect()
}

/// The folders that may have libraries: those of the loader's variable, the system's, and those beside programs on `PATH`.
pub fn library_folders(machine: &Machine) -> Vec<PathBuf> {
    let mut folders = listed(machine, &LD_LIBRARY_PATH);
    folders.extend(FOLDERS.map(PathBuf::from));
    for (_, program) in found_programs(machine) {
        let beside = program.parent().map(|folder| [folder.to_owned(), folder.join("../lib")]);
        folders.extend(beside.into_iter().flatten());
    }
    folders
}

fn found_programs(machine: &Machine) -> Vec<(&'static str, PathBuf)> {
    let folders = listed(machine, &PATH);
    let find = |name: &'static str| {
        let file = folders.iter().map(|folder| folder.join(name)).find(|file| machine.file(file).is_file())?;
        Some((name, file))
    };
    PROGRAMS.iter().filter_map(|name| find(name)).collect()
}

/// Whether there are programs to start.
pub fn programs(machine: &Machine) -> Vec<Finding> {
    let names: Vec<&str> = found_programs(machine).iter().map(|(name, _)| *name).collect();
    vec![match names.is_empty() {
        true => Finding::warning("llama.cpp", "no program of llama.cpp is on PATH", INSTALL),
        false => Finding::ok("llama.cpp", format!("on PATH: {}", names.join(", "))),
    }]
}

/// Each libggml-base that a program may load.
pub fn libraries(machine: &Machine) -> Vec<Finding> {
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut findings = Vec::new();
    for folder in library_folders(machine) {
        for name in machine.names(&folder).iter().filter(|name| name.starts_with("libggml-base.so")) {
            let path = folder.join(name);
            let Ok(real) = machine.file(&path).canonicalize() else { continue };
            if !seen.contains(&real) {
                findings.push(library(machine, &folder, &real));
                seen.push(real);
            }
        }
    }
    if findings.is_empty() {
        let text =
            "no libggml-base.so in the usual folders; programs that contain ggml, or have it elsewhere, are not seen";
        findings.push(match found_programs(machine).is_empty() {
            true => Finding::warning("ggml", text, INSTALL),
            false => Finding::note("ggml", text),
        });
    }
    findings
}

/// What the file `real`, a libggml-base in `folder`, is.
fn library(machine: &Machine, folder: &std::path::Path, real: &std::path::Path) -> Finding {
    let folder_name = folder.display();
    let bytes = match fs::read(real) {
        Ok(bytes) => bytes,
        Err(cause) => {
            let text = format!("libggml-base in {folder_name} cannot be read: {cause}");
            return Finding::error("ggml", text, "install llama.cpp again");
        }
    };
    let has = |name: &str| contains(&bytes, name);
    if !bytes.starts_with(b"\x7fELF") || !has("ggml_backend_buffer_init") {
        let text = format!("libggml-base in {folder_name} is damaged, or too old to have backends as libraries");
        return Finding::error("ggml", text, INSTALL);
    }
    let layout = Layout::probe(has);
    let version = real
        .file_name()
        .and_then(|name| name.to_string_lossy().strip_prefix("libggml-base.so.").map(Version::parse))
        .flatten()
        .filter(|version| *version > Version(0, 1, 0));
    let shown = version.map_or_else(String::new, |Version(a, b, c)| format!(" {a}.{b}.{c}"));
    let layout_text = format!("ggml{shown} in {folder_name}: layout {layout:?}, api_version {}", layout.api_version());
    // The loader of backends is in the library beside it.
    let loader = machine.names(folder).into_iter().find(|name| name.starts_with("libggml.so"));
    if let Some(loader) = loader
        && let Ok(bytes) = fs::read(machine.file(folder.join(loader)))
        && !contains(&bytes, "GGML_BACKEND_PATH")
    {
        let text = format!("{layout_text}, but its libggml does not know GGML_BACKEND_PATH");
        return Finding::error("ggml", text, INSTALL);
    }
    if version.is_some_and(Version::is_newer_than_known) {
        let fix = "if llama.cpp does not list the device, update this library";
        return Finding::warning("ggml", format!("{layout_text}; newer than any this library was compared with"), fix);
    }
    Finding::ok("ggml", layout_text)
}

/// Whether `bytes` hold `name` as a whole C string, as symbol tables and constants have it.
fn contains(bytes: &[u8], name: &str) -> bool {
    let word = [name.as_bytes(), b"\0"].concat();
    let mut rest = bytes;
    while let Some(at) = find(rest, &word) {
        if at == 0 || rest[at - 1] == 0 {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    let first = *word.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(word) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}
