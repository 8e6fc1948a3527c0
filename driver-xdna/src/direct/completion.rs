//! Waiting for a submission.
//!
//! Kernels differ, and their version does not tell: mainline has a timeline for each context, whose points are the sequence
//! numbers of its submissions; AMD's own module may have none and answers WAIT_CMD instead. Which one works is found out by using
//! it once, when the NPU is opened.

use super::node::{CallError, Node};
use amdxdna_sys::{
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT, amdxdna_drm_wait_cmd,
    drm_syncobj_timeline_wait,
};
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// How a submission is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// By the point of the context's timeline.
    Timeline,
    /// By WAIT_CMD.
    WaitCmd,
}

/// A submission of a context, as the kernel knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Submitted {
    /// The context's handle.
    pub(super) context: u32,
    /// Its timeline; 0 when it has none.
    pub(super) timeline: u32,
    /// Sequence number in the context.
    pub(super) sequence: u64,
}

/// Why a wait ended without the submission having ended. The device may still work on it, whichever it is.
#[derive(Debug)]
pub(super) enum WaitError {
    /// The time is over.
    TimedOut,
    /// The kernel does not have this way of waiting.
    NotThere(CallError),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for WaitError {
    fn from(cause: CallError) -> Self {
        match cause.errno() {
            libc::ETIME | libc::ETIMEDOUT => Self::TimedOut,
            libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY | libc::ENOSYS => Self::NotThere(cause),
            _ => Self::Call(cause),
        }
    }
}

impl Completion {
    /// Waits for `submitted`, no longer than `limit`.
    ///
    /// # Errors
    /// [`WaitError`].
    pub(super) fn wait(self, node: &Node, submitted: Submitted, limit: Duration) -> Result<(), WaitError> {
        match self {
            Self::Timeline => wait_timeline(node, submitted, limit),
            Self::WaitCmd => wait_cmd(node, submitted, limit),
        }
    }

    /// Name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Timeline => "timeline",
            Self::WaitCmd => "WAIT_CMD",
        }
    }
}

fn wait_timeline(node: &Node, submitted: Submitted, limit: Duration) -> Result<(), WaitError> {
    let (handle, point) = (submitted.timeline, submitted.sequence);
    // One absolute time for all attempts: an interrupted wait goes on with what is left.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    let end = i64::try_from(now.saturating_add(limit).as_nanos()).unwrap_or(i64::MAX);
    let mut wait = drm_syncobj_timeline_wait {
        handles: (&raw const handle).expose_provenance() as u64,
        points: (&raw const point).expose_provenance() as u64,
        timeout_nsec: end,
        count_handles: 1,
        flags: DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
        ..Default::default()
    };
    Ok(node.request(&mut wait)?)
}

fn wait_cmd(node: &Node, submitted: Submitted, limit: Duration) -> Result<(), WaitError> {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        // 0 would be for ever.
        let timeout = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
        let mut wait = amdxdna_drm_wait_cmd { hwctx: submitted.context, timeout, seq: submitted.sequence };
        match node.request(&mut wait).map_err(WaitError::from) {
            // The kernel may count another time than ours.
            Err(WaitError::TimedOut) if start.elapsed() < limit => {}
            Err(WaitError::Call(cause)) if cause.errno() == libc::EAGAIN && start.elapsed() < limit => {}
            Err(WaitError::Call(cause)) if cause.errno() == libc::EAGAIN => return Err(WaitError::TimedOut),
            ended => return ended,
        }
    }
}
