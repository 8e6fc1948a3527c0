//! The licences of what is linked into the files: each text once, with the crates it comes from.

use super::crates::{Crate, Crates};
use crate::files;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

/// How the names of the files begin that have licences and notices.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// The text of a document with all of them.
pub fn document(crates: &Crates) -> Result<String> {
    let mut text = String::from(
        "The library and the programs contain these crates, and Rust's standard library (Apache-2.0 OR MIT).\n\
         Their licences and notices follow.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for found in crates.iter() {
        let name = format!("{} {}", found.name, found.version);
        let license = found.license.as_deref().with_context(|| format!("{name} names no licence"))?;
        writeln!(text, "  {name}: {license}")?;
        for licence in of(found)? {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<_> = texts.into_iter().map(|(licence, of)| (of, licence)).collect();
    texts.sort();
    for (of, licence) in texts {
        write!(text, "\n{}\nOf {}:\n\n{licence}\n", "=".repeat(80), of.join(", "))?;
    }
    Ok(text)
}

/// The texts that a crate comes with. Some have none: their expression names a licence that others have the text of.
fn of(found: &Crate) -> Result<Vec<String>> {
    let folder = found.folder();
    let mut names: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && path.file_name().is_some_and(|name| is_licence(&name.to_string_lossy())))
        .collect();
    names.sort();
    names.iter().map(|path| files::read(path).map(|text| text.replace('\r', "").trim().to_owned())).collect()
}

fn is_licence(name: &str) -> bool {
    let name = name.to_uppercase();
    NAMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_known_by_their_names() {
        assert!(
            ["LICENSE-MIT", "license.txt", "COPYING", "NOTICE.md", "UNLICENSE"].iter().all(|name| is_licence(name))
        );
        assert!(!["Cargo.toml", "README.md", "src"].iter().any(|name| is_licence(name)));
    }
}
