//! Waiting for a submission.
//!
//! Kernels differ, and their version does not say: mainline has a timeline for each context, whose points are the sequence
//! numbers of its submissions; AMD's own module may have none and answers WAIT_CMD instead. Which one works is found out by using
//! it once, when the NPU is opened ([`super::probe`]).

use super::call_error::CallError;
use super::context::HardwareContext;
use super::node::Node;
use amdxdna_sys::recording::{POINT, TIMELINE};
use amdxdna_sys::{
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT, Request, amdxdna_drm_wait_cmd,
    drm_syncobj_timeline_wait,
};
use nix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::{Duration, Instant};

/// How the end of a submission is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMethod {
    /// By the point of the context's timeline.
    Timeline,
    /// With WAIT_CMD.
    WaitCmd,
}

/// A submission of a context, as the kernel knows it.
#[derive(Debug, Clone, Copy)]
pub struct Submitted {
    /// The context.
    pub context: HardwareContext,
    /// Sequence number in the context.
    pub sequence: u64,
}

/// Why a wait ended without the submission having ended. The device may still work on it, whichever it is.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The time is over.
    #[error("it did not end within {0:?}")]
    TimedOut(Duration),
    /// The kernel does not have this method.
    #[error(transparent)]
    Missing(CallError),
    /// The call failed.
    #[error(transparent)]
    Call(CallError),
}

impl fmt::Display for WaitMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeline => "timeline",
            Self::WaitCmd => amdxdna_drm_wait_cmd::NAME,
        })
    }
}

impl WaitMethod {
    /// Waits for `submitted`, no longer than `limit`.
    ///
    /// # Errors
    /// [`WaitError`]; the submission may still run.
    pub fn wait(self, node: &Node, submitted: Submitted, limit: Duration) -> Result<(), WaitError> {
        let Submitted { context, sequence } = submitted;
        let start = Instant::now();
        // One absolute time for all attempts: an interrupted wait continues with what is left.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        let end = i64::try_from(now.saturating_add(limit).as_nanos()).unwrap_or(i64::MAX);
        loop {
            if self == Self::Timeline {
                node.note_beside(|fields| {
                    fields.push(TIMELINE, context.timeline);
                    fields.push(POINT, sequence);
                });
            }
            let waited = match self {
                Self::Timeline => node.request(&mut drm_syncobj_timeline_wait {
                    handles: (&raw const context.timeline).expose_provenance() as u64,
                    points: (&raw const sequence).expose_provenance() as u64,
                    timeout_nsec: end,
                    count_handles: 1,
                    flags: DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
                    ..Default::default()
                }),
                Self::WaitCmd => {
                    let left = limit.saturating_sub(start.elapsed());
                    // 0 would be forever.
                    let timeout = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
                    node.request(&mut amdxdna_drm_wait_cmd { hwctx: context.handle, timeout, seq: sequence })
                }
            };
            let Err(cause) = waited else { return Ok(()) };
            match cause.errno() {
                // Signals may interrupt it, and the command still runs.
                libc::EINTR | libc::EAGAIN if start.elapsed() < limit => {}
                // WAIT_CMD of the kernel may count another time than ours.
                libc::ETIME | libc::ETIMEDOUT if self == Self::WaitCmd && start.elapsed() < limit => {}
                libc::EINTR | libc::EAGAIN | libc::ETIME | libc::ETIMEDOUT => return Err(WaitError::TimedOut(limit)),
                libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY | libc::ENOSYS => return Err(WaitError::Missing(cause)),
                _ => return Err(WaitError::Call(cause)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(WaitMethod::Timeline, "SYNCOBJ_TIMELINE_WAIT: ")]
    #[case(WaitMethod::WaitCmd, "WAIT_CMD: ")]
    fn a_method_that_the_kernel_lacks_is_seen(#[case] method: WaitMethod, #[case] call: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let node = Node::open(file.path()).unwrap();
        let submitted = Submitted { context: HardwareContext { handle: 5, timeline: 9 }, sequence: 1 };
        let error = method.wait(&node, submitted, Duration::from_secs(5)).unwrap_err();
        assert!(matches!(&error, WaitError::Missing(cause) if cause.errno() == libc::ENOTTY), "{error:?}");
        assert!(error.to_string().starts_with(call), "{error}");
    }
}
