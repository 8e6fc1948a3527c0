//! What the kernel driver's answers mean for the driver above.

use super::ErtAgent;
use crate::agent::AgentError;
use crate::direct::is_exhaustion;
use crate::gate::Problem;
use amdxdna_sys::{Request, amdxdna_drm_create_hwctx};
use std::io;

impl ErtAgent {
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
