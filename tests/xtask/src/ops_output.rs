//! Reads what `test-backend-ops` prints.
//!
//! Its exit code proves nothing: a backend that does not load, a name that does not match and an operation that does
//! not exist all end with 0. Only the printed lines count: one per case, `N/M tests passed`, and `Backend NAME: OK`.

use crate::process::Finished;
use regex::Regex;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Ran and agreed with the reference; in support mode: supported.
    Passed,
    Failed,
    /// The backend (or the reference) does not claim it.
    Unsupported,
    /// The line has no result: the program ended in the middle of the case.
    Unfinished,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Operation as printed (`MUL_MAT`).
    pub operation: String,
    /// The text between the parentheses.
    pub parameters: String,
    pub outcome: Outcome,
    /// What was printed after the colon.
    pub detail: String,
}

/// Everything that counts in one run's output.
#[derive(Debug, Default)]
pub struct Listing {
    pub cases: Vec<Case>,
    /// `N/M tests passed`, if printed.
    pub summary: Option<(usize, usize)>,
    /// Names of the backends reported `OK`.
    pub good_backends: Vec<String>,
}

static COLOUR: LazyLock<Regex> = LazyLock::new(|| regex(r"\x1b\[[0-9;]*m"));
static CASE: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*([A-Z][A-Z0-9_]*)\((.*)\):(?: (.*))?$"));
static SUMMARY: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*(\d+)/(\d+) tests passed"));
static BACKEND: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*Backend ([^ :/]+): OK\s*$"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("the pattern is fixed: {error}"))
}

impl Listing {
    /// Reads a whole output; lines of no interest are skipped.
    pub fn parse(text: &str) -> Self {
        let mut listing = Self::default();
        for line in text.lines() {
            let line = COLOUR.replace_all(line, "");
            if let Some(found) = CASE.captures(&line) {
                let detail = found.get(3).map_or("", |part| part.as_str()).trim().to_owned();
                listing.cases.push(Case {
                    operation: found[1].to_owned(),
                    parameters: found[2].to_owned(),
                    outcome: outcome(&detail),
                    detail,
                });
            } else if let Some(found) = SUMMARY.captures(&line) {
                listing.summary = found[1].parse().ok().zip(found[2].parse().ok());
            } else if let Some(found) = BACKEND.captures(&line) {
                listing.good_backends.push(found[1].to_owned());
            }
        }
        listing
    }

    /// What is wrong with a run of `program` in which every case had to pass on `backend`, or be unsupported.
    pub fn problems(&self, program: &str, finished: &Finished, backend: &str) -> Vec<String> {
        let mut problems: Vec<String> =
            finished.ensure(program).err().map(|error| error.to_string()).into_iter().collect();
        if !self.good_backends.iter().any(|name| name == backend) {
            problems.push(format!("no line `Backend {backend}: OK`"));
        }
        let passed = self.count(Outcome::Passed);
        match self.summary {
            Some((good, all)) if good != all => problems.push(format!("{good} of {all} cases passed")),
            Some((good, _)) if good != passed => {
                problems.push(format!("{good} cases counted by the program, {passed} lines say OK"));
            }
            Some(_) => {}
            None => problems.push("no line `N/N tests passed`".to_owned()),
        }
        for Case { operation, parameters, outcome, detail } in &self.cases {
            if matches!(outcome, Outcome::Failed | Outcome::Unfinished) {
                let detail = if detail.is_empty() { "the program ended here" } else { detail };
                problems.push(format!("{operation}({parameters}): {detail}"));
            }
        }
        problems
    }

    /// How many cases ended in `outcome`.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == outcome).count()
    }
}

fn outcome(detail: &str) -> Outcome {
    if detail.to_ascii_lowercase().contains("not supported") {
        Outcome::Unsupported
    } else if detail.ends_with("OK") || detail == "SUPPORTED" {
        Outcome::Passed
    } else if detail.ends_with("FAIL") {
        Outcome::Failed
    } else {
        Outcome::Unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "Testing 2 devices\n\nBackend 1/2: HSA0\n  Device memory: 1 MB (1 MB free)\n\n  \
        ADD(type=f32,ne=[1,1,8,1],nr=[1,1,1,1]): \u{1b}[1;32mOK\u{1b}[0m\n  \
        ADD(type=f16,ne=[1,1,1,1]): not supported [HSA0, HSA0]\n  \
        MUL_MAT(type_a=f16,bs=[1,1],per=[0,1,2,3]): [MUL_MAT] NMSE = 1.0 > 0.0005 \u{1b}[1;31mFAIL\u{1b}[0m\n  \
        1/2 tests passed\n  Backend HSA0: \u{1b}[1;31mFAIL\u{1b}[0m\nBackend 2/2: CPU\n  Skipping\n1/2 backends passed\n";

    #[test]
    fn every_kind_of_line_is_read() {
        let listing = Listing::parse(TEST);
        assert_eq!(listing.cases.len(), 3);
        assert_eq!(listing.cases[0].parameters, "type=f32,ne=[1,1,8,1],nr=[1,1,1,1]");
        assert_eq!(listing.count(Outcome::Passed), 1);
        assert_eq!(listing.count(Outcome::Unsupported), 1);
        assert_eq!(listing.count(Outcome::Failed), 1);
        assert!(listing.cases[2].detail.contains("NMSE"));
        assert_eq!(listing.summary, Some((1, 2)));
        assert!(listing.good_backends.is_empty());
    }

    #[test]
    fn a_good_backend_is_named_and_a_skipped_one_is_not() {
        let listing = Listing::parse("  7/7 tests passed\n  Backend HSA0: \u{1b}[1;32mOK\u{1b}[0m\n  Skipping\n");
        assert_eq!(listing.good_backends, ["HSA0"]);
        assert_eq!(listing.summary, Some((7, 7)));
    }

    #[test]
    fn an_abort_leaves_an_unfinished_case() {
        let listing = Listing::parse("  ADD(a=1): OK\n  ADD(a=2): ");
        assert_eq!(listing.count(Outcome::Unfinished), 1);
        assert_eq!(listing.summary, None);
    }

    #[test]
    fn support_mode_is_read_too() {
        let listing = Listing::parse("  CPY(a=1): SUPPORTED\n  CPY(a=2): \u{1b}[1;31mNOT SUPPORTED\u{1b}[0m\n");
        assert_eq!(listing.cases[0].outcome, Outcome::Passed);
        assert_eq!(listing.cases[1].outcome, Outcome::Unsupported);
    }
}
