//! What an agent must do besides, to be served to another process.

use crate::agent::{Agent, AgentError, Allocation};
use crate::session::Session;
use std::os::fd::{FromRawFd, OwnedFd};

/// Memory that another process can map.
pub trait Export {
    /// A descriptor that can be mapped shared and writable, and the offset in it at which `allocation` starts, in bytes. The
    /// file must cover the whole allocation; it is mapped from its start to the end of the allocation. It is asked for once
    /// per allocation, from the thread that allocated.
    ///
    /// # Errors
    /// What the runtime says; the allocation is then given back.
    fn export(&self, allocation: &Allocation) -> Result<(OwnedFd, u64), AgentError>;
}

/// An agent that can be served to another process.
pub trait HostedAgent: Agent + Export {}

impl<T: Agent + Export> HostedAgent for T {}

/// [`Export::export`] by the runtime itself: a DMA buffer of the kernel driver.
pub(crate) fn export_dmabuf(session: &Session, allocation: &Allocation) -> Result<(OwnedFd, u64), AgentError> {
    const NAME: &str = "hsa_amd_portable_export_dmabuf";
    let unsupported = |what: &str| AgentError::Unsupported(format!("{}: {what} {NAME}", session.library().display()));
    let export = session.api().hsa_amd_portable_export_dmabuf;
    let export = export.ok_or_else(|| unsupported("memory cannot be shared with another process: it has no"))?;
    let (mut descriptor, mut offset) = (-1, 0_u64);
    // SAFETY: the range is an allocation of this runtime, and both results are places for what is written to them.
    let status =
        unsafe { export(allocation.host.as_ptr().cast(), allocation.length, &raw mut descriptor, &raw mut offset) };
    session.check(&format!("{NAME} of {} bytes of {} memory", allocation.length, allocation.pool.name()), status)?;
    if descriptor < 0 {
        return Err(unsupported("no descriptor from"));
    }
    // SAFETY: the runtime has just made this descriptor for the caller, who owns it.
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, offset))
}
