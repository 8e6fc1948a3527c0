//! What the sources and the pages say of environment variables, for the tests of the table.

use super::{Declaration, all};
use crate::workspace;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that are installed or linked into what is, and the project's commands; package and folder.
const READERS: [(&str, &str); 10] = [
    ("aie-hal", "hal"),
    ("aie-driver-xdna", "driver-xdna/src"),
    ("aie-driver-rocr", "driver-xdna/rocr/src"),
    ("aie-driver-mock", "driver-mock/src"),
    ("aie-ops", "ops"),
    ("aie-jit-iron", "jit-iron"),
    ("aie-ggml-bridge", "ggml-bridge/src"),
    ("aie-ggml-cli", "ggml-bridge/cli"),
    ("dispatch-cost", "tests/dispatch-cost"),
    ("xtask", "tests/xtask"),
];

/// Folders of the crates in the product.
const PRODUCT: [&str; 8] = [
    "hal/src",
    "driver-xdna/src",
    "driver-xdna/rocr/src",
    "driver-mock/src",
    "ops/src",
    "jit-iron/src",
    "ggml-bridge/src",
    "ggml-bridge/cli/src",
];

/// The files below `place`, or it itself, that end in one of `extensions`.
pub fn files(place: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let all = if place.is_dir() { crate::files::below(place).unwrap() } else { vec![PathBuf::new()] };
    let wanted =
        |file: &PathBuf| file.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted));
    all.iter().map(|name| place.join(name).components().collect()).filter(wanted).collect()
}

/// The one place that reads the environment.
const HOME: &str = "hal/src/environment.rs";

/// That place, the declarations, which name everything, and this file.
fn is_home(file: &Path) -> bool {
    file.ends_with(HOME) || file.ends_with("src/settings.rs") || file.ends_with(file!())
}

fn declared() -> BTreeSet<String> {
    all().unwrap().into_iter().map(|declaration| declaration.name).collect()
}

fn sources(folder: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let all = files(&workspace::root().join(folder), &["rs", "py"]).into_iter().filter(|file| !is_home(file));
    all.map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        (file, text)
    })
}

#[test]
fn the_product_reads_the_environment_in_one_place() {
    let reads = Regex::new(r"\benv::(vars?(_os)?|set_var|remove_var)\b").unwrap();
    let home = fs::read_to_string(workspace::root().join(HOME)).unwrap();
    assert!(reads.is_match(&home), "the expression does not find what it is for");
    let others = PRODUCT.iter().flat_map(|folder| sources(folder)).filter(|(_, text)| reads.is_match(text));
    let others: Vec<PathBuf> = others.map(|(file, _)| file).collect();
    assert!(others.is_empty(), "use aie_hal::Environment in {others:?}");
}

/// Python reads for itself, since it is a program of its own; what it reads is declared anyway.
#[test]
fn what_python_reads_is_in_the_table() {
    let reads = Regex::new(r#"\bos\.environ(?:\.get\(|\[)"([A-Z0-9_]+)""#).unwrap();
    let designs = workspace::root().join("jit-iron/iron");
    let files = files(&designs, &["py"]).into_iter().filter(|file| !file.starts_with(designs.join("tests")));
    let text: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let names: BTreeSet<&str> = reads.captures_iter(&text).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    assert!(names.contains("PEANO_INSTALL_DIR"), "{names:?}");
    assert!(names.iter().all(|name| declared().contains(*name)), "{names:?}");
}

#[test]
fn whoever_is_said_to_read_a_variable_names_it() {
    let texts: Vec<(&str, String)> =
        READERS.map(|(package, folder)| (package, sources(folder).map(|(_, text)| text).collect())).into();
    // Of others' programs there are no sources here; what a build is given need not be named in Rust.
    let foreign = ["Of others, not read by us", "While building"];
    let all = all().unwrap();
    let ours = all.iter().filter(|declaration| !foreign.contains(&declaration.group.as_str()));
    for Declaration { name: variable, read_by, .. } in ours.filter(|declaration| declaration.replaced_by.is_none()) {
        let word = Regex::new(&format!(r"\b{variable}\b")).unwrap();
        for reader in read_by {
            let (_, text) = texts
                .iter()
                .find(|(package, _)| package == reader)
                .unwrap_or_else(|| panic!("{variable}: {reader} is not a crate of the project"));
            assert!(word.is_match(text), "{reader} does not read {variable}");
        }
    }
}

/// What looks like one of our variables in `text`.
fn names(text: &str) -> BTreeSet<&str> {
    let name = Regex::new(r"\b(GGML_HSA|AIE_HAL)(_[A-Z0-9]+)*\b").unwrap();
    name.find_iter(text).map(|found| found.as_str()).collect()
}

/// The options and variables of the CMake project, which look like ours.
fn cmake_names() -> BTreeSet<String> {
    let defined = Regex::new(r"\b(?:option|set|set_and_check)\((GGML_HSA(?:_[A-Z]+)*)\b").unwrap();
    let bridge = workspace::root().join("ggml-bridge");
    let found = ["CMakeLists.txt", "cmake/ggml-hsa-config.cmake.in"].map(|file| {
        let text = fs::read_to_string(bridge.join(file)).unwrap();
        defined.captures_iter(&text).map(|captures| captures[1].to_owned()).collect::<Vec<_>>()
    });
    // find_program() is given these by a loop.
    found.into_iter().flatten().chain(["GGML_HSA_CARGO", "GGML_HSA_RUSTC"].map(str::to_owned)).collect()
}

#[test]
fn every_name_in_the_pages_is_in_the_table() {
    assert_eq!(names("`GGML_HSA_F16=bf16`, AIE_HAL_ARCH_PATH"), BTreeSet::from(["AIE_HAL_ARCH_PATH", "GGML_HSA_F16"]));
    let root = workspace::root();
    let pages = [files(&root.join("README.md"), &["md"]), files(&root.join("docs"), &["md"])].concat();
    assert!(pages.len() > 5, "{pages:?}");
    let (cmake, declared) = (cmake_names(), declared());
    assert!(cmake.contains("GGML_HSA_BACKEND_DIR") && cmake.contains("GGML_HSA_LIBRARY"), "{cmake:?}");
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let unknown: Vec<&str> =
            names(&text).into_iter().filter(|name| !declared.contains(*name) && !cmake.contains(*name)).collect();
        assert!(unknown.is_empty(), "{} names {unknown:?}", page.display());
    }
}

/// A name in quotes is one that is read, set or printed. Unit tests, which end a file, misspell some on purpose.
#[test]
fn every_name_in_quotes_is_in_the_table() {
    let quoted = Regex::new(r#""((?:GGML_HSA|AIE_HAL)(?:_[A-Z0-9]+)*)""#).unwrap();
    let declared = declared();
    let mut seen = 0;
    for (file, text) in PRODUCT.iter().chain(&["tests/xtask/src"]).flat_map(|folder| sources(folder)) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for found in quoted.captures_iter(code).filter_map(|captures| captures.get(1)) {
            seen += 1;
            assert!(declared.contains(found.as_str()), "{} names {}", file.display(), found.as_str());
        }
    }
    assert!(seen > 10, "only {seen}");
}
