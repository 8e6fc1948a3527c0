//! Asks an amdxdna kernel driver what it answers, call by call.
//!
//! One line of JSON for each call goes to standard output. Exit code 0 as soon as all scripts were played, whatever the kernel
//! has answered: judging that is for `judge`, which `cargo xtask kernel-calls` runs on what several kernels have answered.

#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use kernel_calls::judge::{self, Runs};
use kernel_calls::run::{self, OwnCommand, Player};
use kernel_calls::scripts::{self, Script};
use kernel_calls::{record, table};
use std::io::Write;
use std::path::PathBuf;
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
        /// Only scripts whose names contain one of these; default: all
        #[arg(long)]
        only: Vec<String>,
        /// Skip scripts whose names contain one of these
        #[arg(long)]
        skip: Vec<String>,
        /// Time limit of a script in seconds
        #[arg(long, default_value_t = 60)]
        limit: u64,
        /// A table instead of lines of JSON
        #[arg(long)]
        table: bool,
    },
    /// Plays one script in this process
    #[command(hide = true)]
    Script {
        name: String,
        #[arg(long)]
        node: PathBuf,
    },
    /// Judges runs: what breaks, varies, is not as before, or differs between a simulated and a real kernel; prints JSON
    Judge(Runs),
    /// Lists all scripts
    List,
}

fn chosen(only: &[String], skip: &[String]) -> Vec<&'static Script> {
    let named = |script: &Script, parts: &[String]| parts.iter().any(|part| script.name.contains(part.as_str()));
    scripts::all().filter(|s| only.is_empty() || named(s, only)).filter(|s| !named(s, skip)).collect()
}

fn dispatch(args: Args) -> Result<()> {
    match args.command {
        Command::Run { node, only, skip, limit, table: as_table } => {
            let scripts = chosen(&only, &skip);
            if scripts.is_empty() {
                bail!("no script is named like that; `list` names them");
            }
            let player = Player { own: OwnCommand::find()?, node, limit: Duration::from_secs(limit) };
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
        Command::Judge(runs) => {
            println!("{}", serde_json::to_string(&judge::judge(&runs)?)?);
            Ok(())
        }
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
    fn scripts_are_chosen_and_skipped_by_parts_of_their_names() {
        let memory = ["user memory".to_owned()];
        let (only, others) = (chosen(&memory, &[]), chosen(&[], &memory));
        assert!(!only.is_empty() && only.iter().all(|script| script.name.starts_with("user memory")));
        assert!(!others.is_empty() && others.iter().all(|script| !script.name.starts_with("user memory")));
    }
}
