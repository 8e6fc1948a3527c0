//! Stock llama.cpp as the source of a model's graphs.
//!
//! A [`Server`](server::Server) is `llama-server` with `libggml-hsa.so` on a device that only plans: nothing is computed, weights stay
//! unread, and every graph that the program builds is written into a file (`GGML_HSA_GRAPHS`). Requests with so many tokens make it build
//! the graphs of a prompt and of a decoded token, of every family that it knows, as it does in a run.

mod graphs;
mod http;
pub mod server;

use ggml_hsa::report::graph_file::Recorded;
use std::sync::Arc;

/// A graph as it was recorded.
pub type Graph = Arc<Recorded<'static>>;

/// Tokens that are computed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub tokens: usize,
    /// Tokens before them.
    pub past: usize,
}

/// Who builds the graphs of a model.
pub trait GraphSource {
    /// The graphs of `batch`, in their order: one, or several where other devices compute what is between them. None where llama.cpp does
    /// not compute such a batch behind others, but all of them once more: some models can go on with a part of their cache only.
    ///
    /// # Errors
    /// Why there are none.
    fn graphs(&mut self, batch: Batch) -> Result<Vec<Graph>, String>;
}
