//! An agent in a helper process: `GGML_HSA_ISOLATE=1`.
//!
//! A runtime built with asserts aborts its process on some kernel errors, and a hung kernel call never returns. With the
//! runtime in a process of its own, either is an error of the agent: [`IsolatedAgent`] is a client that offers the
//! [`Agent`](crate::agent::Agent) trait, [`serve`] answers it in the helper. Memory is shared, not copied: the helper
//! exports each allocation as a descriptor ([`Export`]), and the client maps it.
//!
//! # Life of the helper
//! [`IsolatedAgent::start`] finds the executable (an option, [`AIE_HAL_RUNTIME_HOST`], beside this library, `PATH`) and starts it
//! with one end of a socket pair as standard input, in a process group of its own, without any other descriptor of this
//! process. Its output goes to this process's standard error. It ends when its client says so or is gone, however that
//! came about, and is always reaped. A helper that dies, breaks the protocol or keeps a call longer than its limit is
//! killed with its group, and its agents are lost with that cause.
//!
//! # Protocol
//! Frames on a stream socket: an 8-byte header (length of the payload and number of descriptors, each a little-endian `u32`),
//! then at most 1 MiB of payload. At most one descriptor comes with a frame, as `SCM_RIGHTS` data of its first byte.
//!
//! | Step | From | Payload |
//! |---|---|---|
//! | 1 | client | 8 bytes `AIEHOST\0`, version as little-endian `u32` |
//! | 2 | server | the same, then `Result<Vec<Info>, String>`: the agents, or why there are none |
//! | then | client | `Request`: id, agent, call (allocate, free, create and destroy context, submit, bye) |
//! | | server | `Response`: id, totals of the agent, result; with a descriptor when it is memory |
//!
//! Messages are in the `postcard` format. Steps 1 and 2 up to the version are the same in every version; a client or server
//! of another version is refused with both numbers. Answers come in any order and are told apart by the id: memory calls
//! overtake a submit. There are at most [`MAX_IN_FLIGHT`] requests at a time. Anything against these rules ends the
//! connection with an error on the side that sees it.

mod client;
mod connection;
mod export;
mod frame;
mod heap;
mod host;
mod host_log;
mod limits;
mod locate;
mod mapping;
mod process;
mod quiet_thread;
mod server;
mod wire;

pub use client::{HostOptions, IsolatedAgent};
pub(crate) use export::export_dmabuf;
pub use export::{Export, HostedAgent};
pub use host::{host_main, serve_stdin};
pub use limits::{CALL_LIMIT, CLOSE_LIMIT, SUBMIT_LIMIT, TimeLimits};
pub use locate::{HOST_NAME, image_path};
pub use mapping::{Mapping, MappingError};
pub use server::serve;
pub use wire::PROTOCOL_VERSION;

use aie_hal::environment::table::{AIE_HAL_RUNTIME_HOST, AIE_HAL_TIME_LIMIT_MS};
use frame::FrameError;
use std::path::PathBuf;
use thiserror::Error;

/// Most requests in flight at a time, of one client.
pub const MAX_IN_FLIGHT: usize = 1024;

/// Why there are no agents of a helper process.
#[derive(Debug, Error)]
pub enum StartError {
    /// No executable. A path that was named and fails is not passed over.
    #[error(
        "no helper process for the isolated runtime; tried: {attempts}. Install {HOST_NAME} beside the library or name it in \
         {AIE_HAL_RUNTIME_HOST}"
    )]
    NotFound {
        /// Every attempt with its cause.
        attempts: String,
    },
    /// The executable does not start.
    #[error("the helper process {} for the isolated runtime does not start: {source}", program.display())]
    Spawn {
        /// The executable.
        program: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The variable for the time limits makes no sense.
    #[error("{AIE_HAL_TIME_LIMIT_MS} is `{value}`; expected a positive number of milliseconds, such as 30000")]
    TimeLimit {
        /// Its value.
        value: String,
    },
    /// The helper is of another build.
    #[error(
        "the helper process speaks version {theirs} of the protocol and this library version {ours}; install {HOST_NAME} and \
         the library from the same release"
    )]
    Version {
        /// The helper's.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// The helper runs and could not open the runtime.
    #[error("{0}")]
    Refused(String),
    /// The helper died, hung, or broke the protocol before it had told its agents.
    #[error("{0}")]
    Lost(String),
}

/// Why a server ended otherwise than by its client's end.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Standard input is no socket.
    #[error(
        "standard input is not a socket: this program is started by libggml-hsa.so when GGML_HSA_ISOLATE=1 and is of no use \
         by hand; --help says more"
    )]
    NoSocket,
    /// Standard input cannot be taken.
    #[error("standard input cannot be taken as the client's socket: {0}")]
    Stdin(#[source] std::io::Error),
    /// The client is of another build.
    #[error(
        "the client speaks version {theirs} of the protocol and this helper version {ours}; install {HOST_NAME} and the \
         library from the same release"
    )]
    Version {
        /// The client's.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// The agents could not be opened. The client was told.
    #[error("{0}")]
    Open(String),
    /// The client broke the protocol.
    #[error("the client broke the protocol: {0}")]
    Protocol(String),
    /// The socket failed.
    #[error("the connection to the client failed: {0}")]
    Connection(String),
    /// An agent panicked.
    #[error("an agent panicked: {0}")]
    Panicked(
        /// What it said.
        String,
    ),
    /// The system gives no further thread.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
}

impl From<FrameError> for ServeError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Malformed(reason) => Self::Protocol(reason),
            other => Self::Connection(other.to_string()),
        }
    }
}
