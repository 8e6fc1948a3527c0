//! `cargo xtask test`: everything CI checks, stage by stage.
//!
//! Every stage is a program of its own, either cargo or this one with another command: a crash costs one stage, and each can
//! be repeated alone exactly as it ran here. A stage that fails does not stop the others. Output goes straight through,
//! so that the test runners' own summaries stay where they are; the last line counts the stages.

use crate::output;
use crate::session::Options;
use crate::workspace;
use anyhow::{Context, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What a stage runs.
enum Program {
    /// cargo with these arguments and this environment.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// A command of this program.
    Xtask(&'static [&'static str]),
}

struct Stage {
    name: &'static str,
    about: &'static str,
    program: Program,
}

/// The stages in their order: quick ones first, and what builds most before what uses it.
const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        about: "all sources are formatted",
        program: Program::Cargo(&["fmt", "--all", "--check"], &[]),
    },
    Stage {
        name: "clippy",
        about: "no warning in any target",
        program: Program::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    Stage {
        name: "unit",
        about: "unit, conformance and documentation tests of the workspace",
        program: Program::Cargo(&["test", "--workspace", "--no-fail-fast"], &[]),
    },
    Stage {
        name: "docs",
        about: "the documentation builds without a warning",
        program: Program::Cargo(
            &["doc", "--workspace", "--no-deps", "--keep-going"],
            &[("RUSTDOCFLAGS", "-D warnings")],
        ),
    },
    Stage {
        name: "hsa-headers",
        about: "hsa-sys against the headers of AMD's HSA runtime",
        program: Program::Xtask(&["hsa-headers"]),
    },
    Stage {
        name: "kernel-headers",
        about: "amdxdna-sys against the headers of several kernel versions",
        program: Program::Xtask(&["kernel-headers"]),
    },
    Stage {
        name: "kernel-calls",
        about: "what the simulated kernels answer, call by call, and what real ones were seen to answer",
        program: Program::Xtask(&["kernel-calls"]),
    },
    Stage {
        name: "formats",
        about: "AMD's own programs read the PDIs and instruction streams we write as we mean them",
        program: Program::Xtask(&["formats"]),
    },
    Stage {
        name: "xrt",
        about: "AMD's XRT runs reference kernels on the simulated kernel device; its kernel calls beside ours",
        program: Program::Xtask(&["xrt"]),
    },
    Stage {
        name: "block-formats",
        about: "quantised blocks are read and written as stock ggml does",
        program: Program::Xtask(&["block-formats"]),
    },
    Stage {
        name: "conformance-xdna",
        about: "the conformance suite on the kernel's own interface, every simulated kernel and generation",
        program: Program::Xtask(&["conformance", "--driver", "xdna", "--every-kernel"]),
    },
    Stage {
        name: "conformance-rocr",
        about: "the same through AMD's ROCR",
        program: Program::Xtask(&["conformance", "--driver", "rocr", "--every-kernel"]),
    },
    Stage {
        name: "demo",
        about: "stock llama.cpp generates text on the simulated NPU",
        program: Program::Xtask(&["demo"]),
    },
    Stage {
        name: "demo-xdna",
        about: "the same text through the kernel's own interface",
        program: Program::Xtask(&["demo", "--driver", "xdna"]),
    },
    Stage {
        name: "demo-rocr",
        about: "the same text through AMD's ROCR",
        program: Program::Xtask(&["demo", "--driver", "rocr"]),
    },
    Stage {
        name: "store",
        about: "where kernels come from: compiled, cached, damaged, given, built in, in the background, not at all",
        program: Program::Xtask(&["store"]),
    },
    Stage {
        name: "iron",
        about: "the Python side of compiling with IRON, on doubles of its two tools",
        program: Program::Xtask(&["iron"]),
    },
    Stage {
        name: "operations",
        about: "the docs page of operations is what their rules and the table of cases say",
        program: Program::Xtask(&["operations", "--check"]),
    },
    Stage {
        name: "environment",
        about: "the docs page of environment variables is what their table says",
        program: Program::Xtask(&["environment", "--check"]),
    },
    Stage {
        name: "backend-ops",
        about: "a fixed part of stock ggml's operation tests against the checked-in table",
        program: Program::Xtask(&["backend-ops", "--ci"]),
    },
    Stage {
        name: "backend-ops-xdna",
        about: "the same operation tests through the kernel's own interface",
        program: Program::Xtask(&["backend-ops", "--ci", "--driver", "xdna"]),
    },
    Stage { name: "kld", about: "text and probabilities against the CPU backend", program: Program::Xtask(&["kld"]) },
    Stage {
        name: "splits",
        about: "one split and one submission per graph, no allocation per token, what fusion saves",
        program: Program::Xtask(&["splits"]),
    },
    Stage {
        name: "kld-xdna",
        about: "the same through the kernel's own interface",
        program: Program::Xtask(&["kld", "--driver", "xdna"]),
    },
    Stage {
        name: "splits-xdna",
        about: "splits and submissions through the kernel's own interface",
        program: Program::Xtask(&["splits", "--driver", "xdna"]),
    },
    Stage {
        name: "models",
        about: "logits and splits of models of further families, against the CPU backend",
        program: Program::Xtask(&["models"]),
    },
    Stage {
        name: "archs",
        about: "llama.cpp's own tests of architectures, threads and states on our device",
        program: Program::Xtask(&["archs"]),
    },
    Stage {
        name: "abi",
        about: "the same library on ggml of every structure layout",
        program: Program::Xtask(&["abi"]),
    },
    Stage {
        name: "cmake",
        about: "built and installed with CMake, found by other projects, loaded by stock llama.cpp",
        program: Program::Xtask(&["cmake"]),
    },
    Stage { name: "rpc", about: "the device served by stock ggml-rpc-server", program: Program::Xtask(&["rpc"]) },
    Stage {
        name: "faults",
        about: "every kernel call fails once under llama.cpp",
        program: Program::Xtask(&["faults"]),
    },
    Stage {
        name: "faults-kernels",
        about: "a fixed part of the same on the other kernels",
        program: Program::Xtask(&["faults", "--kernel", "legacy,6.14,7.2", "--sample", "6"]),
    },
    Stage {
        name: "faults-rocr",
        about: "a fixed part of the same through AMD's ROCR",
        program: Program::Xtask(&["faults", "--driver", "rocr", "--sample", "4"]),
    },
    Stage {
        name: "stress",
        about: "the kernel's own interface under load: results, flat memory, nothing left open",
        program: Program::Xtask(&["stress", "--seconds", "30"]),
    },
    Stage {
        name: "stress-rocr",
        about: "AMD's ROCR under load",
        program: Program::Xtask(&["stress", "--driver", "rocr", "--load", "pdis,queues", "--seconds", "10"]),
    },
    Stage {
        name: "vm",
        about: "the kernel's own driver on a virtual NPU: conformance, llama.cpp, XRT, power, a fault",
        program: Program::Xtask(&["vm", "check", "--ci"]),
    },
    Stage {
        name: "bad-input",
        about: "clear messages for mistakes, no abort",
        program: Program::Xtask(&["bad-input"]),
    },
];

/// Run everything CI checks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask test
  cargo xtask test --list
  cargo xtask test --only unit,clippy
  cargo xtask test --skip backend-ops

A stage that fails does not stop the others. The last line is `N passed, N failed` and counts stages.
Exit code 1 if a stage failed.")]
pub struct TestArgs {
    /// Only these stages, separated by commas
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names(), conflicts_with = "skip")]
    only: Vec<String>,
    /// All stages but these, separated by commas
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names())]
    skip: Vec<String>,
    /// Name the stages and run none
    #[arg(long)]
    list: bool,
}

fn stage_names() -> PossibleValuesParser {
    PossibleValuesParser::new(STAGES.iter().map(|stage| stage.name))
}

#[derive(Serialize)]
struct Row {
    stage: &'static str,
    /// The stage's command as a user would type it.
    command: String,
    /// How it ended, in words.
    end: String,
    seconds: f64,
    ok: bool,
}

/// Runs the command. The exit code is 1 if a stage failed; the table and the last line have said so then.
pub fn run(args: &TestArgs, options: &Options) -> Result<ExitCode> {
    let chosen = choose(&args.only, &args.skip);
    if args.list {
        list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    // Found out first: a stage may replace the file this program was started from.
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut rows = Vec::with_capacity(chosen.len());
    for (index, stage) in chosen.iter().enumerate() {
        announce(&format!("stage {} of {}: {} ({})", index + 1, chosen.len(), stage.name, stage.about));
        rows.push(run_stage(stage, &own, options)?);
    }
    if options.json {
        output::json(&rows)?;
    } else {
        print(&rows);
    }
    let line = summary(&rows);
    if options.json {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
    Ok(if rows.iter().all(|row| row.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(only: &[String], skip: &[String]) -> Vec<&'static Stage> {
    let named = |names: &[String], stage: &Stage| names.iter().any(|name| name == stage.name);
    STAGES.iter().filter(|stage| (only.is_empty() || named(only, stage)) && !named(skip, stage)).collect()
}

fn list(stages: &[&Stage]) {
    let mut table = output::table(&["stage", "what it checks", "command"]);
    for stage in stages {
        table.add_row([stage.name.to_owned(), stage.about.to_owned(), shown(stage)]);
    }
    println!("{table}");
}

fn announce(text: &str) {
    // A closed standard error must not end the tests.
    let _ = writeln!(std::io::stderr().lock(), "\n== {text}");
}

fn run_stage(stage: &Stage, own: &Path, options: &Options) -> Result<Row> {
    let mut command = command(stage, own, options);
    command.stdin(Stdio::null());
    if options.json {
        // Standard output belongs to our own JSON.
        command.stdout(std::io::stderr().as_fd().try_clone_to_owned().context("cannot pass standard error on")?);
    }
    let started = Instant::now();
    // A stage that cannot be started is a failed one; the others still have something to say.
    let (ok, end) = match command.status() {
        Ok(status) => (status.success(), status.to_string()),
        Err(error) => (false, format!("cannot be started: {error}")),
    };
    Ok(Row { stage: stage.name, command: shown(stage), end, seconds: started.elapsed().as_secs_f64(), ok })
}

fn command(stage: &Stage, own: &Path, options: &Options) -> Command {
    match &stage.program {
        Program::Cargo(arguments, environment) => {
            let mut command = workspace::cargo();
            command.args(*arguments).envs(environment.iter().copied());
            if options.offline && arguments[0] != "fmt" {
                command.env("CARGO_NET_OFFLINE", "true");
            }
            command
        }
        Program::Xtask(arguments) => {
            let mut command = Command::new(own);
            command.args(*arguments).arg("--testbed").arg(&options.testbed);
            if options.offline {
                command.arg("--offline");
            }
            command
        }
    }
}

fn shown(stage: &Stage) -> String {
    match &stage.program {
        Program::Cargo(arguments, environment) => {
            let settings = environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
            format!("{settings}cargo {}", arguments.join(" "))
        }
        Program::Xtask(arguments) => format!("cargo xtask {}", arguments.join(" ")),
    }
}

fn print(rows: &[Row]) {
    let mut table = output::table(&["stage", "#seconds", "result"]);
    for row in rows {
        let result = if row.ok { output::good("ok") } else { output::bad(&format!("FAIL: {}", row.end)) };
        table.add_row([row.stage.to_owned(), format!("{:.1}", row.seconds), result]);
    }
    let total: f64 = rows.iter().map(|row| row.seconds).sum();
    table.add_row(["all".to_owned(), output::seconds(Duration::from_secs_f64(total)), String::new()]);
    println!("\n{table}");
    for row in rows.iter().filter(|row| !row.ok) {
        println!("{} {}; repeat it with: {}", output::bad("failed:"), row.stage, row.command);
    }
}

fn summary(rows: &[Row]) -> String {
    let passed = rows.iter().filter(|row| row.ok).count();
    format!("{passed} passed, {} failed", rows.len() - passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(only: &[&str], skip: &[&str]) -> Vec<&'static str> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        choose(&owned(only), &owned(skip)).iter().map(|stage| stage.name).collect()
    }

    fn options(offline: bool) -> Options {
        Options { offline, testbed: "/t".into(), json: false }
    }

    fn stage(program: Program) -> Stage {
        Stage { name: "trial", about: "", program }
    }

    #[test]
    fn stages_are_chosen_in_their_own_order() {
        assert_eq!(names(&["docs", "fmt"], &[]), ["fmt", "docs"]);
        let all = names(&[], &[]);
        assert_eq!(all.len(), STAGES.len());
        assert_eq!(names(&[], &["fmt"]), all[1..]);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "names are unique");
    }

    #[test]
    fn every_stage_of_this_program_is_a_command_of_it() {
        use clap::CommandFactory;
        let cli = crate::Cli::command();
        for stage in STAGES {
            if let Program::Xtask(arguments) = stage.program {
                assert!(cli.find_subcommand(arguments[0]).is_some(), "{}", stage.name);
            }
        }
    }

    #[test]
    fn every_checking_command_is_a_stage() {
        use clap::CommandFactory;
        // `testbed` only prepares, timings are never judged, and `test` is this one.
        let others = ["testbed", "bench", "test", "help"];
        for command in crate::Cli::command().get_subcommands().map(clap::Command::get_name) {
            let stage = STAGES
                .iter()
                .any(|stage| matches!(stage.program, Program::Xtask(arguments) if arguments[0] == command));
            assert!(stage || others.contains(&command), "`{command}` is no stage of `test`");
        }
    }

    #[test]
    fn a_failed_and_an_absent_program_are_failed_stages() {
        let trial = stage(Program::Xtask(&["demo"]));
        let failed = run_stage(&trial, Path::new("/bin/false"), &options(false)).unwrap();
        assert!(!failed.ok && failed.end.contains("exit status: 1"), "{}", failed.end);
        let absent = run_stage(&trial, Path::new("/nowhere/xtask"), &options(false)).unwrap();
        assert!(!absent.ok && absent.end.contains("cannot be started"), "{}", absent.end);
        let passed = run_stage(&trial, Path::new("/bin/true"), &options(false)).unwrap();
        assert_eq!(summary(&[failed, absent, passed]), "1 passed, 2 failed");
    }

    #[test]
    fn options_are_handed_on() {
        let command = command(&stage(Program::Xtask(&["kld"])), Path::new("/x"), &options(true));
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["kld", "--testbed", "/t", "--offline"]);
    }

    #[test]
    fn a_stage_is_shown_as_it_would_be_typed() {
        let docs = STAGES.iter().find(|stage| stage.name == "docs").unwrap();
        assert_eq!(shown(docs), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --keep-going");
    }
}
