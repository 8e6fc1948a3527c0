//! How fast the emulated array executes machine code on this machine: its own example, on one core and on all.

use crate::session::Options;
use crate::{build, process};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const EXAMPLE: &str = "speed";

/// The lines that the example prints, each behind the number of threads.
pub fn measure(threads: usize, options: &Options) -> Result<Vec<String>> {
    let arguments = ["build", "--release", "--package", "aie-emulator", "--example", EXAMPLE];
    let program = build::cargo(&arguments, options.offline)?.executable("example", EXAMPLE)?;
    let mut lines = Vec::new();
    for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
        let finished = process::run(Command::new(&program).arg(threads.to_string()), LIMIT)?;
        finished.ensure(EXAMPLE)?;
        lines.extend(finished.stdout.lines().map(|line| format!("emulated array, {threads} threads: {line}")));
    }
    Ok(lines)
}
