//! Memory of this agent for another process.

use super::KernelDispatchAgent;
use crate::agent::{AgentError, Allocation};
use crate::isolated::{Export, export_dmabuf};
use std::os::fd::OwnedFd;

impl Export for KernelDispatchAgent {
    /// Memory of both pools is exported by the runtime.
    fn export(&self, allocation: &Allocation) -> Result<(OwnedFd, u64), AgentError> {
        let _state = self.lock()?;
        export_dmabuf(&self.session, allocation)
    }
}
