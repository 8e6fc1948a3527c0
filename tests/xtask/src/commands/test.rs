//! `cargo xtask test`: everything CI checks, stage by stage.
//!
//! Every stage is a program of its own, either cargo or this one with another command: a crash costs one stage, and each can
//! be repeated alone exactly as it ran here. A stage that fails does not stop the others. Two run side by side where there are
//! processors for them ([`order`]); then the output of each is printed as a whole when it has ended, so that the test runners' own
//! summaries stay where they are. At the end come the last lines of each stage that failed, since logs of this length are cut, and a
//! line that counts the stages.

mod order;
mod run;
mod stage;

use crate::session::Options;
use crate::{output, process, workspace};
use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use run::{Output, Row};
use stage::{Company, NAMED_STAGES, REAL_PROGRAMS, STAGES, Stage};
use std::fs;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What all stages write, from a clean clone, rounded up.
const DISK_BYTES: u64 = 16_000_000_000;

/// Run everything CI checks, or the stages named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask test
  cargo xtask test --list
  cargo xtask test unit clippy
  cargo xtask test --skip backend-ops,vm
  cargo xtask test --lanes 1
  cargo xtask test real-programs --programs DIR

A stage that fails does not stop the others. Of stages side by side, each is printed when it has ended; until then its output is in
target/stages. The last line is `N passed, N failed` and counts stages. Exit code 1 if a stage failed.")]
pub struct TestArgs {
    /// Only these stages
    #[arg(value_name = "NAME", value_parser = stage_names(), conflicts_with = "skip")]
    names: Vec<String>,
    /// All stages but these, separated by commas
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names())]
    skip: Vec<String>,
    /// Stages that run side by side, at most [default: 2, or 1 on one processor]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=16))]
    lanes: Option<usize>,
    /// For the stage real-programs, which only runs when it is named: the folder with the programs
    #[arg(long, value_name = "DIR", requires = "names")]
    programs: Option<PathBuf>,
    /// List the stages and run none
    #[arg(long)]
    list: bool,
}

fn stage_names() -> PossibleValuesParser {
    PossibleValuesParser::new(STAGES.iter().chain(NAMED_STAGES).map(|stage| stage.name))
}

/// Runs the command. The exit code is 1 if a stage failed; the table and the last line have said so then.
pub fn run(args: &TestArgs, options: &Options) -> Result<ExitCode> {
    let chosen = stage::choose(&args.names, &args.skip);
    let takes_programs = chosen.iter().any(|stage| stage.name == REAL_PROGRAMS);
    ensure!(
        takes_programs == args.programs.is_some() || args.list,
        "{REAL_PROGRAMS} and `--programs DIR` belong together"
    );
    if args.list {
        list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    warn_of_little_room();
    let lanes = args.lanes.unwrap_or_else(|| process::processors().min(order::LANES)).min(chosen.len());
    let started = Instant::now();
    let rows = run_all(&chosen, lanes, args.programs.as_deref(), options)?;
    if options.json {
        output::json(&rows)?;
    } else {
        print(&rows, started.elapsed());
    }
    let line = summary(&rows);
    if options.json {
        eprintln!("{line}");
    } else {
        crate::say!("{line}");
    }
    Ok(if rows.iter().all(|row| row.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `stages` in at most so many lanes; what became of each, in their order.
fn run_all(stages: &[&'static Stage], lanes: usize, programs: Option<&Path>, options: &Options) -> Result<Vec<Row>> {
    // This program, also after a stage has replaced the file that it was started from.
    let own = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let logs = workspace::target().join("stages");
    if lanes > 1 {
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    }
    let (started, count) = (Instant::now(), stages.len());
    let minutes = || started.elapsed().as_secs() / 60;
    let (sender, ended) = mpsc::channel::<(&Stage, Output, Row)>();
    let (mut waiting, mut running, mut rows) = (stages.to_vec(), Vec::new(), Vec::new());
    loop {
        while running.len() < lanes
            && let Some(place) = order::next(&waiting, &running)
        {
            let stage = waiting.remove(place);
            let (name, number) = (stage.name, count - waiting.len());
            announce(&format!("stage {number} of {count}, {} min: {name} ({})", minutes(), stage.about()));
            let mut command = stage.command(&own, programs, options);
            let output = match lanes {
                1 if stderr().is_terminal() && !options.json => Output::Ours,
                // With JSON, standard output is not the stages'.
                1 => Output::StandardError,
                _ => Output::File(logs.join(format!("{name}.log"))),
            };
            if lanes > 1 && stage.company != Company::GivesWay {
                command = run::nice(&command);
            }
            running.push(stage);
            let sender = sender.clone();
            thread::spawn(move || {
                let row = run::run(stage, command, &output);
                // After an error it is not waited for.
                let _ = sender.send((stage, output, row));
            });
        }
        if running.is_empty() {
            break;
        }
        let (stage, output, mut row) = ended.recv()?;
        running.retain(|other| other.name != stage.name);
        if let Output::File(_) = output {
            let result = if row.ok { "passed" } else { "failed" };
            announce(&format!("{}, {} min: {result} after {:.0} s; its output:", stage.name, minutes(), row.seconds));
        }
        row.print(&output);
        rows.push(row);
    }
    rows.sort_by_key(|row| stages.iter().position(|stage| stage.name == row.stage));
    Ok(rows)
}

/// Says so when the disk may have no room for what the stages build: late in a build that looks like an error of the sources.
fn warn_of_little_room() {
    let folder = workspace::root();
    let Ok(disk) = rustix::fs::statvfs(&folder) else { return };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < DISK_BYTES {
        let (folder, free, most) = (folder.display(), free as f64 / 1e9, DISK_BYTES / 1_000_000_000);
        announce(&format!("{folder} has {free:.1} GB free; all stages together write up to {most} GB"));
    }
}

fn list(stages: &[&Stage]) {
    let mut table = output::table(&["stage", "what it checks", "command"]);
    for stage in stages {
        table.add_row([stage.name.to_owned(), stage.about(), stage.shown()]);
    }
    crate::say!("{table}");
}

fn announce(text: &str) {
    // A closed standard error must not end the tests.
    let _ = writeln!(stderr().lock(), "\n== {text}");
}

fn print(rows: &[Row], elapsed: Duration) {
    let mut table = output::table(&["stage", "#seconds", "#of processors", "result"]);
    for row in rows {
        let result = if row.ok { output::good("ok") } else { output::bad(&format!("FAIL: {}", row.end)) };
        let [seconds, of_processors] = [row.seconds, row.processor_seconds].map(|seconds| format!("{seconds:.1}"));
        table.add_row([row.stage.to_owned(), seconds, of_processors, result]);
    }
    let all = rows.iter().map(|row| row.processor_seconds).sum::<f64>();
    table.add_row(["all".to_owned(), output::seconds(elapsed), format!("{all:.1}"), String::new()]);
    crate::say!("\n{table}");
    for row in rows.iter().filter(|row| !row.ok && !row.last_lines.is_empty()) {
        crate::say!("\nthe last lines of stage {}:", row.stage);
        row.last_lines.iter().for_each(|line| crate::say!("  {line}"));
    }
    for row in rows.iter().filter(|row| !row.ok) {
        crate::say!("{} {}; repeat it with: {}", output::bad("failed:"), row.stage, row.command);
    }
}

fn summary(rows: &[Row]) -> String {
    let passed = rows.iter().filter(|row| row.ok).count();
    format!("{passed} passed, {} failed", rows.len() - passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn failed_stages_are_counted() {
        let trial = stage::tests::trial("trial", &[], Company::Any);
        let end = |program: &str| run::run(&trial, Command::new(program), &Output::StandardError);
        assert_eq!(summary(&[end("/bin/false"), end("/nowhere/xtask"), end("/bin/true")]), "1 passed, 2 failed");
    }
}
