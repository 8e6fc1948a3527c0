//! One NPU behind an accel node, for the agents that work with the kernel driver: creating contexts, and what its errors mean.

use super::call_error::CallError;
use super::completion::WaitError;
use super::context::{HardwareContext, is_exhausted};
use super::holders::why_exhausted;
use super::node::Node;
use crate::agent::{AgentError, AgentStatus};
use amdxdna_sys::ert::state;
use amdxdna_sys::{Request, amdxdna_drm_exec_cmd};
use std::sync::Arc;
use std::time::Duration;

/// An NPU behind an accel node. Thread-safe.
#[derive(Debug)]
pub struct AccelDevice {
    /// The node.
    pub node: Arc<Node>,
    /// What the agent remembers of itself.
    pub status: AgentStatus,
    /// Core tiles of a context that has the whole array.
    pub tiles: u32,
    /// How long a chain may take.
    pub limit: Duration,
}

/// Why a chain did not complete.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A kernel call failed.
    #[error(transparent)]
    Call(CallError),
    /// The kernel driver ended it in another state than completed.
    #[error("{}", describe(*state))]
    Ended {
        /// The state's number.
        state: u32,
        /// The command that failed, when the kernel driver says.
        command: Option<usize>,
        /// How long that took.
        took: Duration,
    },
    /// The kernel driver did not end it within the limit. The device may still work on it.
    #[error("the kernel driver did not end the chain within {0:?}")]
    Stuck(Duration),
    /// ROCR did something unexpected.
    #[error("{0}")]
    Unexpected(String),
}

impl From<WaitError> for ChainError {
    fn from(cause: WaitError) -> Self {
        match cause {
            WaitError::TimedOut(limit) => Self::Stuck(limit),
            WaitError::Missing(cause) | WaitError::Call(cause) => Self::Call(cause),
        }
    }
}

fn describe(state: u32) -> String {
    match state {
        state::COMPLETED => "the firmware failed a command, though the chain's state says completed".to_owned(),
        _ => format!("the kernel driver ended the chain as `{}`", state::name(state)),
    }
}

/// The error of a command that the kernel driver ended in this state after `took`. Kernels from 6.14 to 6.18 end a job that takes too
/// long, which is no shorter than two seconds or `limit`, as aborted.
pub fn state_error(state: u32, command: Option<usize>, took: Duration, limit: Duration, reason: String) -> AgentError {
    const SHORTEST_KERNEL_LIMIT: Duration = Duration::from_secs(2);
    match state {
        state::TIMEOUT | state::NO_RESPONSE => AgentError::Timeout { command, reason },
        state::ABORT if took >= SHORTEST_KERNEL_LIMIT.min(limit) => AgentError::Timeout { command, reason },
        _ => AgentError::Failed { command, reason },
    }
}

impl AccelDevice {
    /// The error of a call that is not about contexts. Nothing of what was requested has happened.
    pub(crate) fn call_error(&self, cause: &CallError, what: &str) -> AgentError {
        let reason = format!("{what}: {cause}");
        match cause {
            cause if self.node.is_gone(cause) => self.status.lose(reason),
            cause if cause.is_no_memory() => AgentError::OutOfMemory(reason),
            _ => AgentError::failed(reason),
        }
    }

    /// The error of a call that makes memory: whatever it says, unless the device is lost, there is too little.
    pub fn memory_error(&self, cause: &CallError, what: &str) -> AgentError {
        match self.call_error(cause, what) {
            AgentError::Failed { reason, .. } => AgentError::OutOfMemory(reason),
            other => other,
        }
    }

    /// The error of a chain that did not complete. What is not explained by the chain itself loses the NPU.
    pub fn chain_error(&self, cause: ChainError) -> AgentError {
        let reason = cause.to_string();
        match cause {
            ChainError::Ended { state, command, took } => state_error(state, command, took, self.limit, reason),
            ChainError::Stuck(_) => AgentError::Timeout { command: None, reason },
            ChainError::Unexpected(_) => self.status.lose(reason),
            ChainError::Call(cause) if self.node.is_gone(&cause) => self.status.lose(reason),
            // While it waits for a chain that runs, the kernel driver's lack of memory is another failure.
            ChainError::Call(cause) if cause.call == amdxdna_drm_exec_cmd::NAME && cause.is_no_memory() => {
                AgentError::OutOfMemory(reason)
            }
            // Also EIO: kernel drivers that connect a context when it is first used say so there.
            ChainError::Call(_) => AgentError::failed(reason),
        }
    }

    /// Creates a context that holds the PDIs in the BOs with these handles; one is `None` that is not in the device heap. `held` is how
    /// many contexts this program has on the NPU.
    ///
    /// # Errors
    /// As [`crate::agent::Agent::create_context`]. Kernel drivers that have no further context say so in many ways.
    pub fn create_context(
        &self,
        pdis: impl IntoIterator<Item = Option<u32>>,
        held: usize,
    ) -> Result<HardwareContext, AgentError> {
        let pdis: Option<Vec<u32>> = pdis.into_iter().collect();
        let pdis = pdis.ok_or_else(|| AgentError::failed("a PDI that is not in the device heap of this NPU"))?;
        HardwareContext::create(&self.node, self.tiles, &pdis).map_err(|cause| {
            if is_exhausted(&cause) && !self.node.is_gone(&cause) {
                let (why, remedy) = why_exhausted(&self.node, held);
                let reason = format!(
                    "{cause}: the kernel driver has no further hardware context for {} PDIs: {why}",
                    pdis.len()
                );
                return AgentError::ContextsExhausted { reason, remedy };
            }
            self.call_error(&cause, &format!("a context for {} PDIs", pdis.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(state::TIMEOUT, Duration::ZERO, true)]
    #[case(state::NO_RESPONSE, Duration::ZERO, true)]
    #[case(state::ABORT, Duration::from_secs(60), true)]
    #[case(state::ABORT, Duration::from_millis(3), false)]
    #[case(state::ERROR, Duration::from_secs(60), false)]
    #[case(state::COMPLETED, Duration::ZERO, false)]
    #[case(state::NEW, Duration::ZERO, false)]
    fn states_become_errors(#[case] state: u32, #[case] took: Duration, #[case] timeout: bool) {
        let error = state_error(state, Some(3), took, Duration::from_secs(30), describe(state));
        assert_eq!(matches!(error, AgentError::Timeout { command: Some(3), .. }), timeout, "{error}");
        assert_eq!(matches!(error, AgentError::Failed { command: Some(3), .. }), !timeout, "{error}");
    }

    #[rstest]
    #[case::before_it_runs("EXEC_CMD", libc::ENOMEM, true)]
    #[case::while_it_runs("WAIT_CMD", libc::ENOMEM, false)]
    #[case::another_error("EXEC_CMD", libc::EINVAL, false)]
    fn only_the_submission_runs_out_of_memory(#[case] call: &'static str, #[case] errno: i32, #[case] memory: bool) {
        let info = crate::cpu_agent::CpuAgent::new(|_| {});
        let status = AgentStatus::new(crate::agent::Agent::info(&*info).clone());
        let (node, limit) = (Arc::new(Node::borrowed(-1)), Duration::from_secs(30));
        let device = AccelDevice { node, status, tiles: 16, limit };
        let cause = CallError { call, cause: std::io::Error::from_raw_os_error(errno) };
        let error = device.chain_error(ChainError::Call(cause));
        assert_eq!(matches!(error, AgentError::OutOfMemory(_)), memory, "{error:?}");
        assert_eq!(matches!(error, AgentError::Failed { command: None, .. }), !memory, "{error:?}");
        let error = device.chain_error(ChainError::Stuck(limit));
        assert!(matches!(error, AgentError::Timeout { command: None, .. }), "{error:?}");
    }
}
