//! `ggml-hsa run`: starts a program of llama.cpp with the variables that `ggml-hsa env` prints, and says at its end what the NPU did.
//!
//! Signals are passed on, and the end is the program's own. With `--quiet` it becomes that program, and there is nothing between.

mod account;

use crate::Ended;
use crate::program::find;
use crate::surroundings::Choice;
use account::Account;
use aie_hal::Environment;
use clap::Args;
use ggml_hsa_cli::child::{self, Child};
use ggml_hsa_cli::output::complain;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// As shells have them.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Start a program of llama.cpp with the NPU
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa run llama-cli -m model.gguf
  ggml-hsa run --device mock:aie2p llama-cli -m model.gguf -p Hello       on a simulated NPU
  ggml-hsa run --device xdna:0 llama-server -m model.gguf --port 8080
  ggml-hsa run ./build/bin/llama-bench -m model.gguf

What `ggml-hsa env` prints is set, everything else stays as it is. Options of ggml-hsa stand before the program. At the end a line on
standard error says what ran on the NPU; signals are passed on.

Exit code: the program's own, and its signal, if one ended it; 127 when it is not found, 126 when it cannot be executed, 2 when the
library is not found or the command line cannot be used.")]
pub struct RunArguments {
    #[command(flatten)]
    choice: Choice,
    /// Say nothing at the end; the program takes the place of this one
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the command.
pub fn run(arguments: &RunArguments) -> Ended {
    let [program, rest @ ..] = &arguments.program[..] else { return Ok(ExitCode::from(2)) };
    let variables = arguments.choice.variables()?;
    let environment = Environment::process();
    let file = match find(Path::new(program), environment) {
        Ok(file) => file,
        Err(cause) => {
            complain(&cause);
            return Ok(ExitCode::from(NOT_FOUND));
        }
    };
    let mut command = Command::new(&file);
    command.args(rest).envs(variables);
    let cause = match account(arguments, &file, environment) {
        None => command.exec(),
        Some(account) => match run_to_its_end(command, account) {
            Ok(code) => return Ok(code),
            Err(cause) => cause,
        },
    };
    complain(&format!("{} cannot be started: {cause}", file.display()));
    Ok(ExitCode::from(if cause.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }))
}

/// What is to be said at the end, if anything.
fn account(arguments: &RunArguments, file: &Path, environment: &Environment) -> Option<Account> {
    if arguments.quiet {
        return None;
    }
    let no_place = |cause: &io::Error| {
        complain(&format!("what the NPU does will not be said at the end: there is no place for statistics: {cause}"));
    };
    Account::open(file, environment).inspect_err(no_place).ok()
}

/// Runs a program to its end, and says what the NPU did.
///
/// # Errors
/// It cannot be started.
fn run_to_its_end(mut command: Command, account: Account) -> io::Result<ExitCode> {
    command.envs(account.variables());
    let status = Child::start(command)?.wait()?;
    complain(&account.line(status));
    // Before a signal ends this process too.
    drop(account);
    Ok(child::end_like(status))
}
