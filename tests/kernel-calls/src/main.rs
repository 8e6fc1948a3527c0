//! Asks an amdxdna kernel driver what it answers, call by call.
//!
//! One line of JSON for each call goes to standard output. Exit code 0 as soon as all scripts were played, whatever the kernel
//! has answered: judging that is for `compare`.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use kernel_calls::compare::differences;
use kernel_calls::known::Known;
use kernel_calls::record::Record;
use kernel_calls::run::{self, Own, Player};
use kernel_calls::scripts::{self, Script};
use kernel_calls::{record, table};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(about = "Ask an amdxdna kernel driver what it answers, call by call")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays scripts
    Run {
        /// The accel node
        #[arg(long, default_value = "/dev/accel/accel0")]
        node: PathBuf,
        /// Scripts whose names contain one of these; all when there is none
        #[arg(long)]
        only: Vec<String>,
        /// Scripts whose names contain one of these are left out
        #[arg(long)]
        skip: Vec<String>,
        /// Play those too at which a known kernel breaks: the process, or more, may be gone afterwards
        #[arg(long)]
        breaking: bool,
        /// Seconds that a script may take
        #[arg(long, default_value_t = 60)]
        limit: u64,
        /// A table instead of lines of JSON
        #[arg(long)]
        table: bool,
    },
    /// Lists the differences between two runs; exit code 1 when there is one without a reason
    Compare {
        /// Lines of a run on a simulated kernel
        simulated: PathBuf,
        /// Lines of a run on a real one
        real: PathBuf,
        /// File of known differences
        #[arg(long)]
        known: Option<PathBuf>,
        /// Name of the real kernel: `7.2`, `7.2 npu1`
        #[arg(long, default_value = "7.2")]
        kernel: String,
    },
    /// Plays one script in this process
    #[command(hide = true)]
    Script {
        name: String,
        #[arg(long)]
        node: PathBuf,
    },
    /// Names all scripts
    List,
}

fn chosen(only: &[String], skip: &[String], breaking: bool) -> Vec<&'static Script> {
    let named = |script: &Script, parts: &[String]| parts.iter().any(|part| script.name.contains(part.as_str()));
    let wanted = scripts::all().filter(|script| breaking || !script.breaks);
    wanted.filter(|s| only.is_empty() || named(s, only)).filter(|s| !named(s, skip)).collect()
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn records(path: &Path) -> Result<Vec<Record>> {
    let records = record::read(&text(path)?).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
    ensure!(!records.is_empty(), "{} has no record of a call; `run` prints them", path.display());
    Ok(records)
}

fn compare(simulated: &Path, real: &Path, known: Option<&Path>, kernel: &str) -> Result<()> {
    let known = match known {
        Some(path) => Known::parse(&text(path)?).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?,
        None => Known::default(),
    };
    let (simulated, real) = (records(simulated)?, records(real)?);
    let judged = known.judge(kernel, differences(&simulated, &real));
    judged.unknown.iter().for_each(|difference| println!("{difference}"));
    judged.stale.iter().for_each(|entry| println!("known, but not so any more: {}", entry.name()));
    let (unknown, stale) = (judged.unknown.len(), judged.stale.len());
    println!("{} and {} calls: {unknown} differences, {} known ones", simulated.len(), real.len(), judged.known.len());
    ensure!(
        unknown == 0 && stale == 0,
        "mend the simulation, or add each to the file of known differences, with its reason"
    );
    Ok(())
}

fn dispatch(args: Args) -> Result<()> {
    match args.command {
        Command::Run { node, only, skip, breaking, limit, table: as_table } => {
            let scripts = chosen(&only, &skip, breaking);
            if scripts.is_empty() {
                bail!("no script is named like that; `list` names them");
            }
            let player = Player { own: Own::find()?, node, limit: Duration::from_secs(limit) };
            if as_table {
                let mut lines = Vec::new();
                player.play(&scripts, &mut lines)?;
                let records = record::read(&String::from_utf8_lossy(&lines)).map_err(anyhow::Error::msg)?;
                print!("{}", table::table(&records));
                return Ok(());
            }
            let mut out = std::io::stdout();
            player.play(&scripts, &mut out)?;
            Ok(out.flush()?)
        }
        Command::Script { name, node } => run::here(&name, &node),
        Command::Compare { simulated, real, known, kernel } => compare(&simulated, &real, known.as_deref(), &kernel),
        Command::List => {
            scripts::all().for_each(|script| println!("{:<34} {}", script.name, script.about));
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    match dispatch(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_break_a_kernel_are_played_on_demand_only() {
        let memory = ["user memory".to_owned()];
        assert!(chosen(&memory, &[], false).iter().all(|script| !script.breaks));
        assert!(chosen(&memory, &[], true).iter().any(|script| script.breaks));
        assert!(chosen(&[], &memory, true).iter().all(|script| !script.name.starts_with("user memory")));
    }
}
