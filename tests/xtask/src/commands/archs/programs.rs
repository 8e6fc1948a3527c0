//! llama.cpp's test programs that are given a model, and the ones that are left out.

use crate::commands::models::making;
use crate::process::Finished;
use crate::session::Session;
use anyhow::{Context, Result, ensure};
use regex::Regex;

/// Programs of Debian's llama.cpp-tests that could use a device and are not run, with the reason. The others there have
/// no device at all: they test tokenizers, grammars, templates, argument parsers.
pub const LEFT_OUT: &[(&str, &str)] = &[
    (
        "test-opt",
        "its schedulers want the CPU backend last, and a backend loaded through GGML_BACKEND_PATH comes after it: ggml \
         aborts before our device is asked for anything",
    ),
    ("test-tiled-mulmat", "tests the tiles of the CPU backend's own matrix product and opens no other device"),
    (
        "test-fusion",
        "compares counters of ggml's generic fusion debugging functions, which this backend does not export",
    ),
    ("test-export-graph-ops", "writes a model's operations to a file and computes nothing"),
    (
        "test-llama-archs, Meta",
        "splits tensors over several devices, and here is one: it would compute once more what the rows of that device \
         compute",
    ),
    ("test-backend-ops", "has commands of its own: cargo xtask backend-ops"),
];

/// A program, its model, and how its success is recognised.
pub struct Program {
    name: &'static str,
    model: &'static str,
    arguments: &'static [&'static str],
    /// What it must print; with a group, the number in it must be above 0.
    expected: &'static str,
}

pub fn all() -> &'static [Program] {
    const THREADS: &[&str] =
        &["-p", "the quick brown fox", "-n", "16", "-np", "2", "-c", "256", "-ngl", "99", "--temp", "0", "--seed", "1"];
    // Its exit code is 1 if a thread failed. Its last output may be lost: they are logged by a thread that is not joined.
    const STARTED: &str = r"Creating context 2/2 for model 2/2";
    &[
        Program { name: "test-thread-safety", model: "qwen3", arguments: THREADS, expected: STARTED },
        Program { name: "test-thread-safety", model: "mamba2", arguments: THREADS, expected: STARTED },
        Program { name: "test-llama-context", model: "qwen3", arguments: &[], expected: PASSED },
        Program { name: "test-llama-context", model: "falcon-h1", arguments: &[], expected: PASSED },
        Program { name: "test-llama-context", model: "mamba2", arguments: &[], expected: PASSED },
    ]
}

const PASSED: &str = r"passed   : (\d+)\n(?:.*\n)?failed   : 0\b";

impl Program {
    pub fn title(&self) -> String {
        format!("{}, {}", self.name, self.model)
    }

    /// Runs it; what it says, when that is right, and how many operations ran on our device.
    pub fn run(&self, session: &Session, offline: bool) -> Result<String> {
        let files = making::ensure(&[self.model], &session.testbed, offline)?;
        let model = files.first().context("no model was built")?;
        let (finished, stats) = session.attempt(self.name, super::LIMIT, |command| {
            super::wait_quietly(command).arg("-m").arg(model).args(self.arguments);
        })?;
        session.kernel_report()?;
        let last_lines = || finished.last_lines(6);
        ensure!(finished.success(), "{}; its output:\n{}", finished.describe(), last_lines());
        let says = self.says(&finished);
        let says = says.with_context(|| format!("it does not say that all passed; its output:\n{}", last_lines()))?;
        Ok(format!("{says}; {} operations on our device", stats?.used()?.operations_run()))
    }

    fn says(&self, finished: &Finished) -> Option<String> {
        let pattern = Regex::new(self.expected).ok()?;
        let found = [&finished.stdout, &finished.stderr].into_iter().find_map(|text| pattern.captures(text))?;
        match found.get(1).map(|number| number.as_str().parse::<u64>()) {
            Some(Ok(1..)) | None => {}
            _ => return None,
        }
        Some(found[0].split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::process::Command;
    use std::time::Duration;

    fn said(text: &str) -> Option<String> {
        let program = Program { name: "p", model: "m", arguments: &[], expected: PASSED };
        let finished = process::run(Command::new("printf").arg(text), Duration::from_secs(20)).unwrap();
        program.says(&finished)
    }

    #[test]
    fn the_count_must_be_above_zero_and_nothing_failed() {
        assert_eq!(said("passed   : 12\nskipped  : 3\nfailed   : 0\n").unwrap(), "passed : 12 skipped : 3 failed : 0");
        assert_eq!(said("passed   : 12\nskipped  : 3\nfailed   : 1\n"), None);
        assert_eq!(said("passed   : 0\nskipped  : 3\nfailed   : 0\n"), None);
        assert_eq!(said("nothing"), None);
    }

    #[test]
    fn every_program_left_out_has_a_reason() {
        assert!(LEFT_OUT.iter().all(|(name, reason)| name.starts_with("test-") && reason.len() > 20));
        assert!(all().iter().all(|program| LEFT_OUT.iter().all(|(name, _)| *name != program.name)));
    }
}
