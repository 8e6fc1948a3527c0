//! What the kernel driver's answers mean for the driver above.

use super::ErtAgent;
use crate::agent::AgentError;
use crate::direct::is_exhaustion;
use crate::gate::Problem;
use amdxdna_sys::{Request, amdxdna_drm_create_hwctx};
use std::io;

impl ErtAgent {
    /// Why the agent is lost, if it is.
    pub(super) fn alive(&self) -> Result<(), AgentError> {
        self.lost.get().map_or(Ok(()), |cause| Err(AgentError::Lost(cause.clone())))
    }

    pub(super) fn lose(&self, cause: String) -> AgentError {
        AgentError::Lost(self.lost.get_or_init(|| cause).clone())
    }

    /// Whether an error of the kernel driver's says that the device is lost. It may mean something else too, so the device is asked.
    pub(super) fn is_gone(&self, errno: i32) -> bool {
        matches!(errno, libc::ENODEV | libc::EIO | libc::ENXIO) && self.gate.is_gone()
    }

    /// The error of a context that could not be made. Kernel drivers that have no further one say so in many ways.
    pub(super) fn no_context(&self, call: &str, cause: &io::Error, pdis: usize, held: usize) -> AgentError {
        let errno = cause.raw_os_error().unwrap_or_default();
        let reason = format!("{call} with {pdis} PDIs: {cause}");
        match errno {
            _ if self.is_gone(errno) => self.lose(reason),
            libc::ENOMEM => AgentError::OutOfMemory(reason),
            _ if is_exhaustion(errno) && call == amdxdna_drm_create_hwctx::NAME => {
                AgentError::ContextsExhausted(match held {
                    0 => format!(
                        "{reason}; this program holds no hardware context, so another program holds the NPU: end it, or try again \
                     later (`lsof` on the accel node shows who)"
                    ),
                    held => format!("{reason}; this program holds {held} hardware contexts, others may hold some"),
                })
            }
            _ => AgentError::Failed { command: None, reason },
        }
    }

    /// The error of data memory of which the kernel driver does not say where the NPU sees it.
    pub(super) fn no_address(&self, bytes: usize, cause: &io::Error) -> AgentError {
        let reason = format!("the device address of {bytes} bytes of data memory: GET_BO_INFO: {cause}");
        match self.is_gone(cause.raw_os_error().unwrap_or_default()) {
            true => self.lose(reason),
            false => AgentError::OutOfMemory(reason),
        }
    }

    pub(super) fn failure(&self, problem: Problem) -> AgentError {
        let reason = problem.to_string();
        match problem {
            Problem::State { command, .. } if problem.is_timeout() => AgentError::Timeout { command, reason },
            Problem::State { command, .. } => AgentError::Failed { command, reason },
            Problem::Stuck(_) => AgentError::Timeout { command: None, reason },
            Problem::Call { errno, .. } if self.is_gone(errno) => self.lose(reason),
            ref problem if problem.is_out_of_memory() => AgentError::OutOfMemory(reason),
            // Also EIO: kernel drivers that connect a context when it is first used say so there.
            Problem::Call { .. } => AgentError::Failed { command: None, reason },
            Problem::Unexpected(_) => self.lose(reason),
        }
    }
}
