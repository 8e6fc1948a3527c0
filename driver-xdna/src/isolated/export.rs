//! What an agent must do besides, to be served to another process.

use crate::agent::{Agent, AgentError, Allocation};
use std::os::fd::OwnedFd;

/// Memory that another process can map.
pub trait Export {
    /// A descriptor that can be mapped shared and writable, and the offset in it at which `allocation` starts, in bytes. The
    /// file must cover the whole allocation; it is mapped from its start to the end of the allocation. It is asked for once per allocation, from the thread that allocated.
    ///
    /// # Errors
    /// What the runtime says; the allocation is then given back.
    fn export(&self, allocation: &Allocation) -> Result<(OwnedFd, u64), AgentError>;
}

/// An agent that can be served to another process.
pub trait HostedAgent: Agent + Export {}

impl<T: Agent + Export> HostedAgent for T {}
