//! Reading the command line of this package's programs.

use clap::Parser;
use std::io;
use std::process::ExitCode;

/// The arguments of this process. Help and the version are printed here, and what is wrong with the command line.
///
/// # Errors
/// The exit code with which the program ends then: 0 after help and version, 1 where they could not be printed, 2 for a command line that
/// cannot be used.
pub fn parsed<A: Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|message| match message.print() {
        // The reader of our output has seen enough.
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot print: {cause}");
            ExitCode::FAILURE
        }
        _ => u8::try_from(message.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    })
}
