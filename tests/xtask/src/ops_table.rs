//! The checked-in table of what `test-backend-ops` must show: `tests/backend-ops/expected.toml`.
//!
//! A case that silently became "not supported" leaves the run green. The table makes it an error: it holds, for each
//! operation, how many cases the CPU backend has and how many pass on our device, and every gap has a written reason.

use crate::workspace;
use anyhow::{Context, Result, bail};
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Version of Debian's libggml0 the counts were taken with.
    pub ggml: String,
    /// The least number of passing cases over all operations.
    pub minimum: usize,
    /// Per operation, as `test-backend-ops` names it.
    pub operations: BTreeMap<String, Counts>,
    /// Cases our device need not pass.
    #[serde(default)]
    pub exclusions: Vec<Exclusion>,
}

/// Case counts of one operation in test mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Cases the CPU backend passes, those excluded here counted in.
    pub cpu: usize,
    /// Cases our device passes.
    pub passing: usize,
}

/// Cases that are not run, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// Operation.
    pub operation: String,
    /// ECMAScript and Rust regular expression on the case's parameters.
    pub parameters: String,
    /// How many cases it takes out.
    pub cases: usize,
    /// Why.
    pub reason: String,
}

/// Where the table is.
pub fn path() -> PathBuf {
    workspace::root().join("tests/backend-ops/expected.toml")
}

impl Table {
    /// Reads the checked-in table.
    pub fn read() -> Result<Self> {
        let path = path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let table: Self = toml::from_str(text)?;
        for (name, counts) in &table.operations {
            let excluded = table.excluded(name);
            if counts.passing + excluded < counts.cpu {
                bail!(
                    "{name}: the CPU backend has {} cases, ours {}, and only {excluded} of the gap have a reason in [[exclusions]]",
                    counts.cpu,
                    counts.passing
                );
            }
        }
        for exclusion in &table.exclusions {
            Regex::new(&exclusion.parameters).with_context(|| format!("exclusion of {}", exclusion.operation))?;
            if exclusion.reason.trim().len() < 10 {
                bail!("the exclusion {} of {} has no reason", exclusion.parameters, exclusion.operation);
            }
        }
        Ok(table)
    }

    /// Writes the table with a comment that says how.
    pub fn write(&self) -> Result<()> {
        let text = format!(
            "# What stock test-backend-ops must show on our device; `cargo xtask backend-ops` compares and `--update` rewrites.\n\
             # cpu: cases the CPU backend passes (`--reference --update`). passing: cases our device passes.\n\n{}",
            toml::to_string(self)?
        );
        let path = path();
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// How many cases of `operation` have a reason not to run.
    pub fn excluded(&self, operation: &str) -> usize {
        self.exclusions_of(operation).map(|exclusion| exclusion.cases).sum()
    }

    /// The exclusions of `operation`.
    pub fn exclusions_of<'a>(&'a self, operation: &'a str) -> impl Iterator<Item = &'a Exclusion> {
        self.exclusions.iter().filter(move |exclusion| exclusion.operation == operation)
    }

    /// The `-p` for `operation`: the user's filter and not the excluded cases. test-backend-ops uses ECMAScript
    /// expressions, which have look-ahead.
    pub fn filter(&self, operation: &str, user: Option<&str>) -> Option<String> {
        let excluded: Vec<&str> =
            self.exclusions_of(operation).map(|exclusion| exclusion.parameters.as_str()).collect();
        if excluded.is_empty() {
            return user.map(str::to_owned);
        }
        let wanted = user.map_or_else(String::new, |user| format!("(?=.*(?:{user}))"));
        Some(format!("^(?!.*(?:{})){wanted}", excluded.join("|")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        ggml = "1"
        minimum = 3
        [operations]
        ADD = { cpu = 2, passing = 2 }
        MUL_MAT = { cpu = 3, passing = 2 }
        [[exclusions]]
        operation = "MUL_MAT"
        parameters = "n=84"
        cases = 1
        reason = "needs more memory than there is"
    "#;

    #[test]
    fn a_table_is_read_and_its_filters_built() {
        let table = Table::parse(TEXT).unwrap();
        assert_eq!((table.excluded("MUL_MAT"), table.excluded("ADD")), (1, 0));
        assert_eq!(table.filter("ADD", None), None);
        assert_eq!(table.filter("ADD", Some("f32")).as_deref(), Some("f32"));
        assert_eq!(table.filter("MUL_MAT", None).as_deref(), Some("^(?!.*(?:n=84))"));
        assert_eq!(table.filter("MUL_MAT", Some("f32")).as_deref(), Some("^(?!.*(?:n=84))(?=.*(?:f32))"));
    }

    #[test]
    fn a_gap_without_a_reason_is_an_error() {
        let gap = TEXT.replace("ADD = { cpu = 2, passing = 2 }", "ADD = { cpu = 2, passing = 1 }");
        assert!(Table::parse(&gap).unwrap_err().to_string().contains("ADD"));
        let empty = TEXT.replace("needs more memory than there is", " ");
        assert!(Table::parse(&empty).unwrap_err().to_string().contains("no reason"));
    }

    #[test]
    fn the_checked_in_table_is_valid_and_reaches_its_minimum() {
        let table = Table::read().unwrap();
        assert!(table.operations.values().map(|counts| counts.passing).sum::<usize>() >= table.minimum);
        assert!(table.minimum >= 4500);
    }
}
