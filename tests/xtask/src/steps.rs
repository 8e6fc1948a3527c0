//! The checks of a command, one after the other; one that fails does not stop the others.

use crate::output::{self, Report};
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Step {
    name: String,
    /// What was seen, in a few words.
    seen: String,
    seconds: f64,
    problem: Option<String>,
}

#[derive(Debug, Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// A check that makes something the others need.
    pub fn take<T>(&mut self, name: &str, step: impl FnOnce() -> Result<(T, String)>) -> Option<T> {
        let started = Instant::now();
        let (made, seen) = step().map_or_else(|error| (None, Err(error)), |(made, seen)| (Some(made), Ok(seen)));
        self.record(name, started, seen);
        made
    }

    /// A check that was made since `started`.
    pub fn record(&mut self, name: &str, started: Instant, seen: Result<String>) {
        let (seen, problem) = match seen {
            Ok(seen) => (seen, None),
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        self.0.push(Step { name: name.to_owned(), seen, seconds: started.elapsed().as_secs_f64(), problem });
    }

    /// A check that says what it saw.
    pub fn check(&mut self, name: &str, step: impl FnOnce() -> Result<String>) {
        self.take(name, || step().map(|seen| ((), seen)));
    }

    pub fn report(&self) -> Result<Report> {
        let problem = |step: &Step| step.problem.as_ref().map(|problem| format!("{}: {problem}", step.name));
        let mut report = Report::with(self.0.iter().filter_map(problem).collect());
        report.rows(
            "steps",
            &self.0,
            &[
                ("check", |step| step.name.clone()),
                ("seen", |step| step.seen.clone()),
                ("#seconds", |step| format!("{:.1}", step.seconds)),
                ("result", |step| output::verdict(step.problem.is_none())),
            ],
        )?;
        let (count, failed) = (self.0.len(), report.problems.len());
        let seconds: f64 = self.0.iter().map(|step| step.seconds).sum();
        report.summary(format!("{count} checks, {failed} failed, {seconds:.0} s"));
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_is_kept_with_its_causes_and_the_next_one_runs() {
        let mut steps = Steps::default();
        let made: Option<u8> = steps.take("first", || Err(anyhow::anyhow!("cause").context("effect")));
        steps.check("second", || Ok("fine".to_owned()));
        assert_eq!(made, None);
        assert_eq!(steps.report().unwrap().problems, ["first: effect: cause"]);
        assert_eq!((steps.0[1].seen.as_str(), &steps.0[1].problem), ("fine", &None));
    }
}
