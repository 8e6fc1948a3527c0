//! Compiles reference kernels for `libggml-hsa.so`, in a process of its own.
#![forbid(unsafe_code)]

use aie_hal::ArchRegistry;
use aie_jit_iron::worker::serve::serve;
use aie_ops::compiler::ReferenceCompiler;
use clap::Parser;
use std::io::{IsTerminal, stdin};
use std::process::ExitCode;

/// Compiles reference kernels, which simulated devices execute.
///
/// libggml-hsa.so starts this program when it needs a kernel, and communicates over its standard input and output: a line of
/// JSON each way per kernel. It ends at the end of its standard input. It has no options.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        ggml-hsa-jit-worker < /dev/null          prints its greeting and exits\n  \
        GGML_HSA_JIT_WORKER=/opt/ggml-hsa/bin/ggml-hsa-jit-worker llama-cli -m model.gguf\n                                           \
        makes the library use this one; the default is the one beside\n                                           \
        the library, else the first in PATH\n\n\
        Exit status: 0 when the input ended between kernels, 1 when a line was not a request or the output was closed, 2 when it \
        was started incorrectly. It is killed when the input ends during a kernel."
)]
struct Arguments {}

fn main() -> ExitCode {
    Arguments::parse();
    if stdin().is_terminal() {
        eprintln!("ggml-hsa-jit-worker: it is started by libggml-hsa.so, not by hand; see --help");
        return ExitCode::from(2);
    }
    let (archs, errors) = ArchRegistry::from_environment();
    for error in errors {
        eprintln!("ggml-hsa-jit-worker: {error}");
    }
    match serve(&ReferenceCompiler, &archs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ggml-hsa-jit-worker: {error}");
            ExitCode::FAILURE
        }
    }
}
