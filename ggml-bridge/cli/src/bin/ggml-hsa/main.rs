//! `ggml-hsa`: lists devices, starts llama.cpp with the NPU, runs and inspects single kernels, and manages the files that
//! `libggml-hsa.so` leaves on disk.
#![forbid(unsafe_code)]

mod cache;
mod cache_table;
mod check;
mod devices;
mod disassemble;
mod dispatch;
mod dispatch_progress;
mod doctor;
mod env;
mod explain;
mod kernel_files;
mod library;
mod manual;
mod model;
mod prebuild;
mod program;
mod run;
mod selftest;
mod surroundings;

use clap::{Parser, Subcommand};
use ggml_hsa_cli::command_line::parsed;
use ggml_hsa_cli::output;
use std::error::Error;
use std::process::ExitCode;

/// How a command ends: with a code of its own, or because the command line or a file cannot be used.
type Ended = Result<ExitCode, Box<dyn Error>>;

/// Tools beside libggml-hsa.so, the llama.cpp backend for AMD NPUs.
#[derive(Debug, Parser)]
#[command(
    name = "ggml-hsa",
    version,
    after_help = "Examples:
  ggml-hsa run llama-cli -m model.gguf  llama.cpp on the NPU
  ggml-hsa devices                      every NPU, why it can or cannot be used, and the simulated ones
  ggml-hsa doctor                       find what is wrong with this machine and how to fix it
  ggml-hsa explain model.gguf           what a model would do: operations, kernels, memory, time
  ggml-hsa prebuild model.gguf          make its kernels now, so that a run compiles nothing
  ggml-hsa selftest                     whether the NPU computes right with the library's own kernels
  ggml-hsa cache list                   compiled kernels with their sizes, ages and states
  ggml-hsa cache verify --json          the same as JSON, with every byte checked
  ggml-hsa cache prune --max-size 1G    remove unusable kernels, and the oldest beyond 1 GiB
  ggml-hsa disassemble k.pdi k_insts.bin    what a compiled kernel configures: tiles, routes, buffers, locks, code
  ggml-hsa check k.pdi k_insts.bin      what silicon would reject in it
  ggml-hsa dispatch add.pdi add_insts.bin --input a.bin --input b.bin --output 8192:sum.bin

Exit code: 0 when all is well, 1 when something is damaged, failed or could not be removed, 2 when the command line or a file cannot be
used."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The cache of compiled kernels
    Cache(cache::CacheArguments),
    Check(check::CheckArguments),
    Devices(devices::DevicesArguments),
    Disassemble(disassemble::DisassembleArguments),
    Dispatch(dispatch::DispatchArguments),
    Doctor(doctor::DoctorArguments),
    Env(env::EnvArguments),
    Explain(explain::ExplainArguments),
    Prebuild(prebuild::PrebuildArguments),
    Manual(manual::ManualArguments),
    Run(run::RunArguments),
    Selftest(selftest::SelftestArguments),
}

fn main() -> ExitCode {
    let arguments: Arguments = match parsed() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = run(&arguments.command).unwrap_or_else(|cause| {
        output::complain(&cause);
        ExitCode::from(2)
    });
    // What was to be printed is a part of what was asked for.
    if output::is_complete() { code } else { ExitCode::FAILURE }
}

fn run(command: &Command) -> Ended {
    match command {
        Command::Cache(arguments) => cache::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Devices(arguments) => devices::run(arguments),
        Command::Disassemble(arguments) => disassemble::run(arguments),
        Command::Dispatch(arguments) => dispatch::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Env(arguments) => env::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Prebuild(arguments) => prebuild::run(arguments),
        Command::Manual(arguments) => manual::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Selftest(arguments) => selftest::run(arguments),
    }
}
