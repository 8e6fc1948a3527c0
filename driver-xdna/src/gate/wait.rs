//! Waiting for a submission.
//!
//! Kernels differ, and their version does not tell: mainline has a timeline for each context, whose points are the sequence
//! numbers of its submissions; AMD's own module may have none and answers WAIT_CMD, which mainline does not for these NPUs. Which
//! one works is seen when an agent is opened.

use super::{Gate, HardwareContext, Problem};
use amdxdna_sys::{
    AMDXDNA_INVALID_FENCE_HANDLE, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT, Direction,
    Request, RequestCode, SYNCOBJ_QUERY, amdxdna_drm_wait_cmd, drm_syncobj_timeline_array, drm_syncobj_timeline_wait,
};
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// How a submission is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the point of the context's timeline.
    Timeline,
    /// By WAIT_CMD.
    WaitCmd,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Timeline => "timelines",
            Self::WaitCmd => amdxdna_drm_wait_cmd::NAME,
        })
    }
}

/// Whether an error of a wait means that the kernel does not have it.
pub(super) fn is_missing(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY | libc::ENOSYS)
}

impl Gate {
    /// Whether `context` has a timeline, and the kernel answers a question for its last point.
    pub(super) fn has_timeline(&self, context: HardwareContext) -> Result<(), String> {
        if context.timeline == AMDXDNA_INVALID_FENCE_HANDLE {
            return Err("a context has no timeline".into());
        }
        let (handle, mut point) = (context.timeline, 0_u64);
        let mut query = drm_syncobj_timeline_array {
            handles: (&raw const handle).expose_provenance() as u64,
            points: (&raw mut point).expose_provenance() as u64,
            count_handles: 1,
            flags: 0,
        };
        let code = RequestCode::new(Direction::ReadWrite, SYNCOBJ_QUERY, size_of_val(&query));
        // SAFETY: the structure is the one of this request, and both addresses in it are of one value each.
        let answer = unsafe { self.call(self.descriptor(), code.0.into(), (&raw mut query).cast()) };
        answer.map_err(|cause| format!("SYNCOBJ_QUERY: {cause}"))
    }

    /// Waits until submission number `sequence` of `context` has ended.
    ///
    /// # Errors
    /// [`Problem::Stuck`] when `limit` is over, [`Problem::Call`]. The device may still work on it, whichever it is.
    pub(super) fn wait(
        &self,
        way: Way,
        context: HardwareContext,
        sequence: u64,
        limit: Duration,
    ) -> Result<(), Problem> {
        match way {
            Way::Timeline => self.wait_timeline(context, sequence, limit),
            Way::WaitCmd => self.wait_cmd(context, sequence, limit),
        }
    }

    fn wait_timeline(&self, context: HardwareContext, point: u64, limit: Duration) -> Result<(), Problem> {
        let handle = context.timeline;
        let start = Instant::now();
        // One absolute time for all attempts: when the kernel says that it is over, it is.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        let end = i64::try_from(now.saturating_add(limit).as_nanos()).unwrap_or(i64::MAX);
        loop {
            let waited = self.request(&mut drm_syncobj_timeline_wait {
                handles: (&raw const handle).expose_provenance() as u64,
                points: (&raw const point).expose_provenance() as u64,
                timeout_nsec: end,
                count_handles: 1,
                flags: DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
                ..Default::default()
            });
            let Err(cause) = waited else { return Ok(()) };
            match cause.raw_os_error().unwrap_or_default() {
                libc::ETIME | libc::ETIMEDOUT => return Err(Problem::Stuck(limit)),
                // Signals interrupt it all the time, and the command still runs.
                libc::EAGAIN if start.elapsed() < limit => {}
                libc::EAGAIN => return Err(Problem::Stuck(limit)),
                errno => return Err(Problem::Call { name: drm_syncobj_timeline_wait::NAME, errno }),
            }
        }
    }

    fn wait_cmd(&self, context: HardwareContext, sequence: u64, limit: Duration) -> Result<(), Problem> {
        let start = Instant::now();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            // 0 would be for ever.
            let timeout = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
            let waited = self.request(&mut amdxdna_drm_wait_cmd { hwctx: context.handle, timeout, seq: sequence });
            let Err(cause) = waited else { return Ok(()) };
            match cause.raw_os_error().unwrap_or_default() {
                // The kernel may count another time than ours.
                libc::ETIME | libc::ETIMEDOUT | libc::EAGAIN if start.elapsed() < limit => {}
                libc::ETIME | libc::ETIMEDOUT | libc::EAGAIN => return Err(Problem::Stuck(limit)),
                errno => return Err(Problem::Call { name: amdxdna_drm_wait_cmd::NAME, errno }),
            }
        }
    }
}
