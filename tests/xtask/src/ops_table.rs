//! The checked-in table of what `test-backend-ops` must show: `tests/backend-ops/expected.toml`.
//!
//! A case that silently became "not supported" leaves the run green. The table makes it an error: it holds, for each
//! operation, how many cases the CPU backend has and how many pass on our device, and every gap has a written reason.

use crate::workspace;
use anyhow::{Context, Result, bail};
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Version of Debian's libggml0 the counts were taken with.
    pub ggml: String,
    /// The least number of passing cases over all operations.
    pub minimum: usize,
    /// Per operation, as `test-backend-ops` names it.
    pub operations: BTreeMap<String, Counts>,
    /// Names of `test-backend-ops` of which our device claims no case, each with the reason.
    #[serde(default)]
    pub unclaimed: BTreeMap<String, String>,
    /// Cases our device need not pass.
    #[serde(default)]
    pub exclusions: Vec<Exclusion>,
}

/// Case counts of one operation in test mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Cases the CPU backend passes, those excluded here counted in.
    pub cpu: usize,
    pub passing: usize,
    /// The part that `--ci` runs; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<Part>,
}

/// A fixed part of one operation's cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// ECMAScript and Rust regular expression on the case's parameters.
    pub parameters: String,
    /// How many cases of it our device passes.
    pub cases: usize,
}

/// How much of the table to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// Only the parts named under `ci`.
    Ci,
}

/// Which of one operation's cases to run.
#[derive(Debug)]
pub struct Selection {
    excluded: Vec<Regex>,
    part: Option<Regex>,
}

impl Selection {
    /// Whether an exclusion names the case.
    pub fn excludes(&self, parameters: &str) -> bool {
        self.excluded.iter().any(|regex| regex.is_match(parameters))
    }

    /// Whether the case is to pass.
    pub fn keeps(&self, parameters: &str) -> bool {
        !self.excludes(parameters) && self.part.as_ref().is_none_or(|part| part.is_match(parameters))
    }
}

/// Cases that are not run, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    pub operation: String,
    /// ECMAScript and Rust regular expression on the case's parameters.
    pub parameters: String,
    /// How many cases it takes out.
    pub cases: usize,
    pub reason: String,
}

pub fn path() -> PathBuf {
    workspace::root().join("tests/backend-ops/expected.toml")
}

impl Table {
    pub fn read() -> Result<Self> {
        let path = path();
        let text = crate::files::read(&path)?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Reads a table from `text`.
    pub fn parse(text: &str) -> Result<Self> {
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
        for (name, counts) in &table.operations {
            if let Some(part) = &counts.ci {
                Regex::new(&part.parameters).with_context(|| format!("ci part of {name}"))?;
                if part.cases == 0 || part.cases > counts.passing {
                    bail!("the ci part of {name} has {} cases, all of it {}", part.cases, counts.passing);
                }
            }
        }
        for (name, reason) in &table.unclaimed {
            if table.operations.contains_key(name) {
                bail!("{name} is both under [operations] and [unclaimed]");
            }
            if reason.trim().len() < 10 {
                bail!("{name} is unclaimed without a reason");
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
             # cpu: cases the CPU backend passes (`--reference --update`). passing: cases our device passes. ci: the part `--ci` runs.\n\n{}",
            toml::to_string(self)?
        );
        let path = path();
        crate::files::write(&path, &text)
    }

    /// How many cases of `operation` have a reason not to run.
    pub fn excluded(&self, operation: &str) -> usize {
        self.exclusions_of(operation).map(|exclusion| exclusion.cases).sum()
    }

    pub fn exclusions_of<'a>(&'a self, operation: &'a str) -> impl Iterator<Item = &'a Exclusion> {
        self.exclusions.iter().filter(move |exclusion| exclusion.operation == operation)
    }

    /// Which cases of `operation` to run.
    pub fn selection(&self, operation: &str, extent: Extent) -> Result<Selection> {
        let excluded = self.exclusions_of(operation).map(|exclusion| Regex::new(&exclusion.parameters));
        Ok(Selection {
            excluded: excluded.collect::<Result<_, _>>()?,
            part: self.part(operation, extent).map(|part| Regex::new(&part.parameters)).transpose()?,
        })
    }

    fn part(&self, operation: &str, extent: Extent) -> Option<&Part> {
        self.operations.get(operation)?.ci.as_ref().filter(|_| extent == Extent::Ci)
    }

    /// The `-p` for `operation`: the user's filter, the part to run, and not the excluded cases. test-backend-ops uses
    /// ECMAScript expressions, which have look-ahead.
    pub fn filter(&self, operation: &str, extent: Extent, user: Option<&str>) -> Option<String> {
        let excluded: Vec<&str> =
            self.exclusions_of(operation).map(|exclusion| exclusion.parameters.as_str()).collect();
        let part = self.part(operation, extent).map(|part| part.parameters.as_str());
        let wanted: Vec<&str> = part.into_iter().chain(user).collect();
        match (excluded.as_slice(), wanted.as_slice()) {
            ([], []) => None,
            ([], [one]) => Some((*one).to_owned()),
            _ => {
                let not = if excluded.is_empty() { String::new() } else { format!("(?!.*(?:{}))", excluded.join("|")) };
                let all: String = wanted.iter().map(|regex| format!("(?=.*(?:{regex}))")).collect();
                Some(format!("^{not}{all}"))
            }
        }
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
        MUL_MAT = { cpu = 3, passing = 2, ci = { parameters = "m=1[68]", cases = 1 } }
        [unclaimed]
        ROLL = "no model of ggml uses it"
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
        let filter = |name, user| table.filter(name, Extent::Whole, user);
        assert_eq!(filter("ADD", None), None);
        assert_eq!(filter("ADD", Some("f32")).as_deref(), Some("f32"));
        assert_eq!(filter("MUL_MAT", None).as_deref(), Some("^(?!.*(?:n=84))"));
        assert_eq!(filter("MUL_MAT", Some("f32")).as_deref(), Some("^(?!.*(?:n=84))(?=.*(?:f32))"));
    }

    #[test]
    fn the_ci_part_is_the_same_for_the_program_and_for_us() {
        let table = Table::parse(TEXT).unwrap();
        assert_eq!(table.filter("ADD", Extent::Ci, None), None);
        assert_eq!(table.filter("MUL_MAT", Extent::Ci, None).as_deref(), Some("^(?!.*(?:n=84))(?=.*(?:m=1[68]))"));
        let part = table.selection("MUL_MAT", Extent::Ci).unwrap();
        assert!(part.keeps("m=16,n=1") && !part.keeps("m=17,n=1") && !part.keeps("m=16,n=84"));
        assert!(part.excludes("m=16,n=84"));
        assert!(table.selection("MUL_MAT", Extent::Whole).unwrap().keeps("m=17,n=1"));
    }

    #[test]
    fn unclaimed_names_need_a_reason_and_no_counts() {
        let short = TEXT.replace("no model of ggml uses it", "none");
        assert!(Table::parse(&short).unwrap_err().to_string().contains("ROLL"));
        let both = TEXT.replace("ROLL =", "ADD =");
        assert!(Table::parse(&both).unwrap_err().to_string().contains("both"));
        let empty = TEXT.replace("cases = 1 } }", "cases = 0 } }");
        assert!(Table::parse(&empty).unwrap_err().to_string().contains("ci part"));
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
        assert!(table.minimum >= 10_000);
    }
}
