//! The kernel calls a piece of work costs, from recorded streams of calls (`AMDXDNA_SIM_RECORD`).
//!
//! A program makes calls to start and to end that the work has nothing to do with. It is run twice, the second time with
//! more of the work, and the difference is divided by how much more it was.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Calls that wait for a submission. A program makes none when it sees that the submission has ended already, so their number
/// depends on how the machine's processors are used.
const WAITS: [&str; 3] = ["WAIT_CMD", "SYNCOBJ_WAIT", "SYNCOBJ_TIMELINE_WAIT"];
/// The call that submits.
const SUBMIT: &str = "EXEC_CMD";

/// Calls of one piece of work, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Calls(pub BTreeMap<String, f64>);

impl Calls {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// How many of them submit.
    pub fn submissions(&self) -> f64 {
        self.0.get(SUBMIT).copied().unwrap_or_default()
    }

    /// How many of them wait.
    pub fn waits(&self) -> f64 {
        WAITS.iter().filter_map(|name| self.0.get(*name)).sum()
    }

    /// How many of them do not.
    pub fn besides_waits(&self) -> f64 {
        self.0.iter().filter(|(name, _)| !WAITS.contains(&name.as_str())).map(|(_, count)| count).sum()
    }

    /// What each of `pieces` more pieces of work cost, from the stream of a run and that of a run with so many more.
    pub fn between(less: &Path, more: &Path, pieces: u32) -> Result<Self> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.with_context(|| format!("the simulated kernel device recorded no calls in {}", path.display()))
        };
        Self::difference(&count(&read(less)?), &count(&read(more)?), pieces)
    }

    fn difference(less: &BTreeMap<String, u64>, more: &BTreeMap<String, u64>, pieces: u32) -> Result<Self> {
        ensure!(pieces > 0, "a difference of no work");
        let mut calls = BTreeMap::new();
        for (name, count) in more {
            let before = less.get(name).copied().unwrap_or_default();
            let extra = count.checked_sub(before);
            let extra =
                extra.with_context(|| format!("{name} is called less often for more work: {count} after {before}"))?;
            if extra > 0 {
                calls.insert(name.clone(), extra as f64 / f64::from(pieces));
            }
        }
        Ok(Self(calls))
    }
}

/// Calls by name. A line is `NAME DETAILS = RESULT`.
fn count(stream: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for name in stream.lines().filter_map(|line| line.split_whitespace().next()) {
        *calls.entry(name.to_owned()).or_default() += 1;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_what_the_work_costs() {
        let less = count("OPEN = ok\nEXEC_CMD 1 = ok\nWAIT = ok\n");
        let more = count("OPEN = ok\nEXEC_CMD 1 = ok\nWAIT = ok\nEXEC_CMD 1 = ok\nWAIT = ok\nWAIT = EINTR\n");
        let calls = Calls::difference(&less, &more, 1).unwrap();
        assert_eq!(calls.0, [("EXEC_CMD".to_owned(), 1.0), ("WAIT".to_owned(), 2.0)].into());
        assert_eq!(calls.total(), 3.0);
        assert_eq!(Calls::difference(&less, &more, 2).unwrap().total(), 1.5);
    }

    #[test]
    fn submissions_and_waits_are_told_apart() {
        let calls = ["EXEC_CMD", "WAIT_CMD", "SYNCOBJ_TIMELINE_WAIT", "SYNC_BO"].map(|name| (name.to_owned(), 1.5));
        let calls = Calls(calls.into());
        assert_eq!((calls.submissions(), calls.waits()), (1.5, 3.0));
        assert_eq!((calls.besides_waits(), calls.total()), (3.0, 6.0));
    }

    #[test]
    fn less_for_more_work_is_an_error() {
        let (less, more) = (count("A\nA\n"), count("A\n"));
        assert!(Calls::difference(&less, &more, 1).unwrap_err().to_string().contains("A is called less often"));
        assert!(Calls::difference(&more, &less, 0).is_err());
    }
}
