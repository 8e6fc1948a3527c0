//! What turns kernels into code that computes them on the CPU, given to a software device from outside.

use crate::artifact::KernelArtifact;
use crate::host_function::{HostFunction, HostFunctionError};
use std::fmt::Debug;
use std::sync::Arc;

/// Turns artifacts into kernels. Thread-safe.
pub trait KernelExecutor: Send + Sync + Debug {
    /// Called once per loaded executable.
    ///
    /// # Errors
    /// [`HostFunctionError::NotExecutable`] with the reason. A simulated device then loads the artifact anyway and lets its
    /// dispatches time out, as hardware does with a design that never signals.
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError>;
}
