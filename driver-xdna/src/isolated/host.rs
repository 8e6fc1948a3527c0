//! The helper as a program: what `main` of `aie-runtime-host` does.

use super::{CLOSE_LIMIT, HOST_NAME, HostedAgent, PROTOCOL_VERSION, ServeError, serve};
use aie_hal::environment::table::{AIE_HAL_RUNTIME_HOST, AIE_HAL_TIME_LIMIT_MS};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long the helper outlives its client. Less than the client waits, so that it seldom has to be killed.
const OUTLIVE: Duration = CLOSE_LIMIT.saturating_sub(Duration::from_millis(500));

/// The whole program: reads the arguments, then serves the agents that `open` gives at standard input.
pub fn host_main(
    arguments: impl IntoIterator<Item = OsString>,
    open: impl FnOnce() -> Result<Vec<Arc<dyn HostedAgent>>, String>,
) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    match arguments.first().map(|argument| argument.to_string_lossy()).as_deref() {
        None => match serve_stdin(open) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&error.to_string());
                ExitCode::FAILURE
            }
        },
        Some("--help" | "-h") => {
            print(&help());
            ExitCode::SUCCESS
        }
        Some("--version" | "-V") => {
            print(&format!("{HOST_NAME} {} (protocol {PROTOCOL_VERSION})", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        Some(other) => {
            say(&format!("unknown argument `{other}`; it takes --help, --version, or none"));
            ExitCode::from(2)
        }
    }
}

/// Serves the agents that `open` gives at standard input, which must be the socket of a client; see [`serve`]. From then on
/// the process ends soon after its client, whatever a runtime does: no orphan holds the NPU.
///
/// # Errors
/// [`ServeError::NoSocket`] when it was started by hand, and those of [`serve`].
pub fn serve_stdin(open: impl FnOnce() -> Result<Vec<Arc<dyn HostedAgent>>, String>) -> Result<(), ServeError> {
    let stream = take_stdin()?;
    let watched = stream.try_clone().map_err(ServeError::Stdin)?;
    let watch = std::thread::Builder::new().name("client-watch".to_owned());
    watch.spawn(move || end_with_the_client(&watched)).map_err(ServeError::Thread)?;
    serve(stream, open)
}

/// Standard input as a socket of ours, with nothing left in its place for a runtime to read.
fn take_stdin() -> Result<UnixStream, ServeError> {
    let stdin = std::io::stdin();
    match fstat(stdin.as_fd()) {
        Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::Socket => {}
        Ok(_) | Err(Errno::BADF) => return Err(ServeError::NoSocket),
        Err(error) => return Err(ServeError::Stdin(error.into())),
    }
    let socket: OwnedFd = stdin.as_fd().try_clone_to_owned().map_err(ServeError::Stdin)?;
    let nothing = std::fs::File::open("/dev/null").map_err(ServeError::Stdin)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| ServeError::Stdin(error.into()))?;
    Ok(UnixStream::from(socket))
}

/// Waits for the client to say that it is done, or to be gone, and ends this process if it has not ended by itself then: a
/// runtime may hang in a call, in its own tear-down, or in what it does at exit. The socket tells this and not a signal at the
/// parent's death: that signal comes when the thread that started the helper ends, and does not pass a wrapper script.
fn end_with_the_client(stream: &UnixStream) {
    // RDHUP rather than the end of the data: it comes even when a request that nobody reads is in front of it.
    let mut watched = [PollFd::new(stream, PollFlags::RDHUP)];
    while let Ok(0) | Err(Errno::INTR) = poll(&mut watched, None) {}
    std::thread::sleep(OUTLIVE);
    say(&format!("the runtime did not come to an end within {OUTLIVE:?} after the client; this process is killed"));
    // SIGKILL needs nothing of a process that may be in any state; exit would run what hangs.
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Writes to standard error. Whoever read it may be gone with the client, and a panic for that would stop the thread that is
/// to end this process.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{HOST_NAME}: {text}");
}

fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn help() -> String {
    format!(
        "{HOST_NAME}: runs the HSA runtime of an AMD NPU for libggml-hsa.so in a process of its own.\n\
         \n\
         It is not started by hand: the library starts it when GGML_HSA_ISOLATE=1, with a socket as standard input.\n\
         When the runtime aborts or hangs, this process ends, and llama.cpp gets an error instead.\n\
         \n\
         Example:\n  GGML_HSA_ISOLATE=1 llama-cli -m model.gguf -p \"Hello\"\n\
         \n\
         Environment of llama.cpp:\n  \
         {AIE_HAL_RUNTIME_HOST}   path of this program or of a script that executes it;\n                         \
         without it: beside libggml-hsa.so, in its installation, in PATH\n  \
         {AIE_HAL_TIME_LIMIT_MS}  limit of every call in milliseconds, instead of 30000 (60000 for a submit)\n\
         \n\
         Options:\n  -h, --help     this text\n  -V, --version  version of the program and of its protocol"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_one_example_and_every_variable() {
        let help = help();
        assert_eq!(help.matches("Example").count(), 1);
        for name in ["GGML_HSA_ISOLATE=1", AIE_HAL_RUNTIME_HOST.name(), AIE_HAL_TIME_LIMIT_MS.name()] {
            assert!(help.contains(name), "{name} is not in: {help}");
        }
    }
}
