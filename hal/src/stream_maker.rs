//! Instruction streams for the data at hand.
//!
//! A stream says which words of an argument move where. For a kernel that gathers rows by an index tensor that is data, known
//! when the dispatch runs and not when it is recorded. Such a kernel's artifact has a [`StreamMaker`], and the device's executor asks it
//! for the stream when it packs the dispatch into a chain: it shows it the arguments that the choice depends on, in the host's view,
//! and what is executed is the stream that it gives. The command list stays as it was recorded and can be replayed.
//!
//! What the maker reads has to be there by then. When a dispatch before it writes such an argument, the executor ends the chain
//! and waits, as it does for a host call. When the host has written it, which is the case for graph inputs, nothing waits, and the
//! dispatch is one of its chain like any other.

use crate::host_function::HostFunctionError;
use std::fmt::Debug;

/// Makes the instruction streams of one kernel. Thread-safe.
pub trait StreamMaker: Send + Sync + Debug {
    /// Positions of the arguments that it goes by. The kernel only reads them.
    fn reads(&self) -> &[usize];
    /// The stream for these bytes of the arguments, in the order of [`StreamMaker::reads`], each of them as long as its binding. It
    /// is for the PDI of the kernel, and uses no arguments that the kernel does not have.
    ///
    /// # Errors
    /// [`HostFunctionError`] when there is none for them, for example when an index is out of range. The submission fails with it.
    fn make(&self, arguments: &[&[u8]]) -> Result<Vec<u8>, HostFunctionError>;
}
