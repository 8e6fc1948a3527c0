//! A graph as one command list, cached for the next time the same graph comes.
//!
//! Beside the commands a plan knows which host memory has to be flushed before each run, because the graph reads it
//! without having written it, and what has to be invalidated after, because dispatches wrote it. Weights are flushed once, when
//! the plan is built.

mod arena;
pub mod context;
mod fusion;
pub mod graph;
mod hazard;
mod lower;
mod memory;
mod record;
pub mod stream;
pub mod tally;
mod vacate;

use crate::memory::ranges::RangeSet;
use crate::plan::context::DeviceContext;
use crate::plan::graph::Graph;
use crate::report::statistics::RunShare;
use aie_hal::command_list::RecordError;
use aie_hal::{Binding, CommandList, DeviceError, HostFunctionError};
use aie_ops::Unsupported;
use std::ops::Range;
use std::sync::Arc;
use thiserror::Error;

/// A graph cannot be planned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A node cannot.
    #[error("{op}: {source}")]
    Node {
        /// Its operation.
        op: &'static str,
        /// Why.
        source: Box<PlanError>,
    },
    /// There is no such operation.
    #[error("not an operation of this backend; it was never claimed")]
    NotClaimed,
    /// The operation does not take such a node.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// It has to run on the array and has no kernel.
    #[error("{0}")]
    ArrayRequired(String),
    /// The device cannot reach some memory of the program.
    #[error("memory outside the device's buffers: {0}")]
    Import(#[source] DeviceError),
    /// A range is in no buffer.
    #[error("memory {address:#x}+{length} belongs to no tensor of the graph")]
    Memory {
        /// First address.
        address: usize,
        /// Bytes.
        length: usize,
    },
    /// A command cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A buffer cannot be accessed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A conversion failed.
    #[error(transparent)]
    HostFunction(#[from] HostFunctionError),
}

/// A recorded graph. Immutable.
#[derive(Debug)]
pub struct Plan {
    commands: Option<Arc<CommandList>>,
    /// Scratch memory that slot 0 has to be bound to; 0 for none.
    pub scratch_bytes: usize,
    flush: Vec<Binding>,
    /// Results that update a source, of which a graph writes few rows: caches.
    updated: Vec<Binding>,
    invalidate: Vec<Binding>,
    /// Results that are cleared where nothing runs.
    cleared: Vec<Binding>,
    used: RangeSet,
    /// Whether it can run again after a run that stopped anywhere: nothing that it reads from outside is overwritten by it.
    pub repeats: bool,
    /// Whether the program may touch memory of the graph as soon as it believes the graph submitted, so that it has to be
    /// complete by then.
    pub shared: bool,
    /// What a run adds to the statistics.
    pub share: RunShare,
    /// The state of the weight cache this plan was built on.
    pub weights_generation: u64,
    /// The state of the PDIs of kernels it was built on.
    pub kernel_moves: u64,
    awaiting: Option<u64>,
}

impl Plan {
    /// Records `graph`.
    ///
    /// # Errors
    /// Which node cannot be computed and why.
    pub fn build(context: &DeviceContext, graph: &Graph) -> Result<Self, PlanError> {
        record::record(context, graph)
    }

    /// The commands; `None` when there is nothing to do.
    pub fn commands(&self) -> Option<&Arc<CommandList>> {
        self.commands.as_ref()
    }

    /// Whether kernels that this plan does without have been compiled since, by their number of `arrivals`.
    pub fn is_outdated(&self, arrivals: u64) -> bool {
        self.awaiting.is_some_and(|then| then != arrivals)
    }

    /// Whether the plan touches host memory in `range`.
    pub fn uses(&self, range: &Range<usize>) -> bool {
        self.used.overlaps(range)
    }

    /// Makes the inputs visible to the device.
    ///
    /// # Errors
    /// As [`aie_hal::Buffer::flush`].
    pub fn flush(&self) -> Result<(), DeviceError> {
        self.flush.iter().try_for_each(|part| part.buffer.flush(part.offset..part.offset + part.length))
    }

    /// Stands for a run where nothing runs: results that the program goes by become zero, all others stay as they are.
    ///
    /// # Errors
    /// As [`aie_hal::Buffer::write`].
    pub fn pretend(&self) -> Result<(), DeviceError> {
        self.cleared.iter().try_for_each(|part| part.buffer.write(part.offset, &vec![0; part.length]))
    }

    /// Makes the results visible to the host.
    ///
    /// # Errors
    /// As [`aie_hal::Buffer::invalidate`].
    pub fn invalidate(&self) -> Result<(), DeviceError> {
        self.invalidate.iter().try_for_each(|part| part.buffer.invalidate(part.offset..part.offset + part.length))?;
        self.updated.iter().try_for_each(|part| part.buffer.invalidate_written(part.offset..part.offset + part.length))
    }
}

#[cfg(test)]
mod settled_tests;
#[cfg(test)]
mod tests;
