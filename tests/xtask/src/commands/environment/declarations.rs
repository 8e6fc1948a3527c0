//! What the crates declare, read from their `settings.rs`, so that this tool need not be linked with them.

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde::Serialize;
use std::fs;

/// The sections of the page.
pub const SECTIONS: [&str; 10] = [
    "Devices",
    "Computing",
    "Kernels",
    "Compiling",
    "Messages and statistics",
    "AMD's runtime",
    "While building",
    "Of the system",
    "Of others, not read by us",
    "Of the project's commands",
];

/// The packages that declare variables, and their folders.
const PACKAGES: [(&str, &str); 5] = [
    ("aie-ggml-bridge", "ggml-bridge"),
    ("aie-jit-iron", "jit-iron"),
    ("aie-driver-xdna", "driver-xdna"),
    ("aie-hal", "hal"),
    ("xtask", "tests/xtask"),
];

/// A variable, as it is declared. All texts are Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// Its section of the page.
    pub group: String,
    /// What it does.
    pub meaning: String,
    /// Possible values.
    pub values: String,
    /// What holds when it is not set.
    pub default: String,
    /// The packages, or for variables of others the programs, that read it.
    pub read_by: Vec<String>,
    /// The variable to use instead; only an older name has one.
    pub replaced_by: Option<String>,
}

/// All variables, in the order of the packages.
///
/// # Errors
/// When a file cannot be read, or is not written as the macro `settings!` takes it.
pub fn all() -> Result<Vec<Declaration>> {
    let mut declared = Vec::new();
    for (package, folder) in PACKAGES {
        let file = workspace::root().join(folder).join("src/settings.rs");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let before = declared.len();
        declared.extend(read(package, &text)?);
        ensure!(declared.len() > before, "{}: no variables", file.display());
    }
    Ok(declared)
}

/// The variables that `text` declares for `package`; an older name follows its variable.
fn read(package: &str, text: &str) -> Result<Vec<Declaration>> {
    let sections = Regex::new(r#"(?m)^ {4}section "(.*)" \{$((?s).*?)^ {4}\}$"#)?;
    let variable = Regex::new(
        r#"(?m)((?:^ *///.*\n)+) *([A-Z_0-9]+): "(.*)"\s+=> "(.*?)"(?:, read by \[(.*?)\])?(?:, older "(.*?)")?;$"#,
    )?;
    let mut declared = Vec::new();
    for section in sections.captures_iter(text) {
        for found in variable.captures_iter(&section[2]) {
            let meaning: Vec<&str> =
                found[1].lines().map(|line| line.trim().trim_start_matches("///").trim()).collect();
            let readers = found.get(5).map_or(package, |readers| readers.as_str());
            let declaration = Declaration {
                name: found[2].to_owned(),
                group: section[1].to_owned(),
                meaning: meaning.join(" "),
                values: found[3].to_owned(),
                default: found[4].to_owned(),
                read_by: readers.split(", ").map(|reader| reader.trim_matches('"').to_owned()).collect(),
                replaced_by: None,
            };
            let older = found.get(6).map(|older| Declaration {
                name: older.as_str().to_owned(),
                meaning: format!("Older name of `{}`.", declaration.name),
                replaced_by: Some(declaration.name.clone()),
                ..declaration.clone()
            });
            declared.extend([Some(declaration), older].into_iter().flatten());
        }
    }
    let written = Regex::new(r#"(?m)^ *[A-Z_0-9]+: ""#)?.find_iter(text).count();
    let understood = declared.iter().filter(|declaration| declaration.replaced_by.is_none()).count();
    ensure!(understood == written, "{package}: {understood} of {written} declarations are understood");
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_and_none_is_left_out() {
        let text = r#"
aie_hal::settings! {
    prefix "A";

    section "Devices" {
        /// What it does, in
        /// two lines.
        A_B: "a switch"
            => "off", read by ["one", "two"], older "A_C";
    }
}
"#;
        let declaration = Declaration {
            name: "A_B".into(),
            group: "Devices".into(),
            meaning: "What it does, in two lines.".into(),
            values: "a switch".into(),
            default: "off".into(),
            read_by: vec!["one".into(), "two".into()],
            replaced_by: None,
        };
        let older = Declaration {
            name: "A_C".into(),
            meaning: "Older name of `A_B`.".into(),
            replaced_by: Some("A_B".into()),
            ..declaration.clone()
        };
        assert_eq!(read("p", text).unwrap(), [declaration, older]);
        let error = read("p", &text.replace("/// two lines.", "")).unwrap_err().to_string();
        assert_eq!(error, "p: 0 of 1 declarations are understood");
    }

    #[test]
    fn every_name_is_there_once_and_its_cells_fit_a_table() {
        let declared = all().unwrap();
        let mut names: Vec<&str> = declared.iter().map(|declaration| declaration.name.as_str()).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for declaration in &declared {
            assert!(SECTIONS.contains(&declaration.group.as_str()), "{declaration:?}");
            for cell in [&declaration.meaning, &declaration.values, &declaration.default] {
                let odd = cell.is_empty() || cell.contains(['|', '\n']) || cell.contains("  ");
                assert!(!odd, "{declaration:?}");
            }
        }
        for section in SECTIONS {
            assert!(declared.iter().any(|declaration| declaration.group == section), "{section}");
        }
        let older: Vec<&str> = declared.iter().filter_map(|declaration| declaration.replaced_by.as_deref()).collect();
        assert_eq!(older, ["GGML_HSA_KERNEL_CACHE_CLEAR"]);
    }
}
