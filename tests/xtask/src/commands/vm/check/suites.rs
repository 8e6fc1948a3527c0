//! The project's own programs: the conformance suite and loads.

use super::{Checks, require};
use crate::virtual_machine::Guest;
use anyhow::{Context, Result};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
/// Loads: what is run in CI, and otherwise.
const LOADS: [[&[&str]; 2]; 3] = [
    [&["dispatches", "--dispatches", "2000"], &["dispatches", "--dispatches", "20000"]],
    [&["pdis", "--pdis", "80", "--repetitions", "4"], &["pdis", "--repetitions", "10"]],
    [&["queues", "--seconds", "5"], &["queues", "--seconds", "30"]],
];

impl Checks {
    /// The conformance suite on the direct way.
    pub(super) fn conformance(&mut self, guest: &mut Guest) -> Result<String> {
        conformance(guest, &self.host.testbed.command_for(&self.conformance))
    }

    /// Loads in which every result is looked at.
    pub(super) fn stress(&mut self, guest: &mut Guest) -> Result<String> {
        let mut figures = Vec::new();
        for load in LOADS {
            let load = load[usize::from(!self.is_ci)];
            let finished = guest.run(&self.load(load), LIMIT)?;
            require(&finished).with_context(|| load.join(" "))?;
            let report: serde_json::Value = serde_json::from_str(finished.stdout.trim()).context(load.join(" "))?;
            let count = |name: &str| report[name].as_u64().unwrap_or_default();
            figures.push(format!(
                "{}: {} dispatches in {} chains, {} contexts",
                load[0],
                count("dispatches"),
                count("chains"),
                count("contexts_created")
            ));
        }
        Ok(figures.join("; "))
    }
}

/// Runs a conformance suite; its own count of cases.
pub(super) fn conformance(guest: &mut Guest, suite: &Command) -> Result<String> {
    let finished = guest.run(suite, LIMIT)?;
    require(&finished)?;
    let summary = finished.stdout.lines().find_map(|line| line.strip_prefix("test result: ok. "));
    let summary = summary.context("the suite printed no result")?;
    Ok(summary.split("; finished").next().unwrap_or(summary).to_owned())
}
