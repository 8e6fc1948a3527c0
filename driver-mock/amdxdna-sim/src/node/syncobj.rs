//! Synchronisation objects of the DRM core, on which the jobs of a context complete.
//!
//! An object holds one fence, or a timeline: points, each with a fence that counts as signalled when those before it are too. What
//! is here follows `drivers/gpu/drm/drm_syncobj.c` of Linux 7.2, which has not changed in this respect since 6.14. So point 0 of a
//! timeline stands for everything that was submitted so far: the first job of a context has that point.

use super::fence::{Fence, JobStatus};
use super::wakeup;
use amdxdna_sys::{
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
};
use nix::errno::Errno;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a point that nothing has yet is waited for (`DRM_SYNCOBJ_WAIT_FOR_SUBMIT_TIMEOUT`).
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    /// Fences by point, in the order in which they came. A fence without a timeline has point 0.
    points: Vec<(u64, Fence)>,
    is_timeline: bool,
    /// The last point that is signalled and was forgotten.
    reached: u64,
    /// Counts changes at the start of `points`.
    changes: u64,
}

#[derive(Debug, Default)]
pub struct Syncobj(Mutex<State>);

impl Syncobj {
    pub(super) fn new(signaled: bool) -> Arc<Self> {
        let object = Self::default();
        if signaled {
            object.replace(Some(Fence::Signaled));
        }
        Arc::new(object)
    }

    /// Puts a fence in place of what the object holds, or nothing.
    pub(super) fn replace(&self, fence: Option<Fence>) {
        let mut state = self.0.lock();
        let (points, changes) = (fence.map(|fence| (0, fence)).into_iter().collect(), state.changes + 1);
        *state = State { points, changes, ..State::default() };
        drop(state);
        wakeup::notify();
    }

    /// Takes over a point of another object: with its number, when that is a timeline whose point has not been forgotten.
    pub(super) fn take_over(&self, point: Option<u64>, fence: Fence) {
        self.replace(Some(fence.clone()));
        if let Some(point) = point {
            self.0.lock().points.clear();
            self.add_point(point, fence);
        }
    }

    /// The number of the point that a point stands for: the first that is not before it; `None` without a timeline.
    pub(super) fn number(&self, point: u64) -> Option<u64> {
        let state = self.0.lock();
        let mut numbers = state.points.iter().map(|(found, _)| *found);
        let number = if point == 0 { numbers.next_back() } else { numbers.find(|found| *found >= point) };
        number.or(Some(state.reached).filter(|reached| point <= *reached)).filter(|_| state.is_timeline)
    }

    pub(super) fn add_point(&self, point: u64, fence: Fence) {
        let mut state = self.0.lock();
        // A fence without a timeline is the timeline's first one; points that are behind go to the end anyway.
        state.is_timeline = true;
        state.points.push((point, fence));
        drop(state);
        wakeup::notify();
    }

    /// The fence of a point; `None` when nothing has it yet.
    pub(super) fn fence(&self, point: u64) -> Option<Fence> {
        self.forget_signaled();
        let state = self.0.lock();
        let Some((last, _)) = state.points.last() else {
            return (state.is_timeline && (point == 0 || point <= state.reached)).then_some(Fence::Signaled);
        };
        if point == 0 {
            return Some(Fence::All(state.points.iter().map(|(_, fence)| fence.clone()).collect()));
        }
        if !state.is_timeline || *last < point {
            return None;
        }
        if point <= state.reached {
            return Some(Fence::Signaled);
        }
        let until = state.points.iter().position(|(found, _)| *found >= point)?;
        Some(Fence::All(state.points[..=until].iter().map(|(_, fence)| fence.clone()).collect()))
    }

    /// Waits until something has a point; its fence.
    /// Fails with ETIME after [`SUBMIT_TIMEOUT`].
    pub(super) fn submitted(&self, point: u64) -> Result<Fence, Errno> {
        let deadline = Instant::now() + SUBMIT_TIMEOUT;
        loop {
            let seen = wakeup::count();
            if let Some(fence) = self.fence(point) {
                return Ok(fence);
            }
            if !wakeup::wait(seen, Some(deadline)) {
                return Err(Errno::ETIME);
            }
        }
    }

    /// The last point that was submitted, or that is signalled.
    pub(super) fn query(&self, submitted: bool) -> u64 {
        self.forget_signaled();
        let state = self.0.lock();
        match state.points.last() {
            Some((last, _)) if submitted && state.is_timeline => *last,
            _ => state.reached,
        }
    }

    /// Forgets fences at the start of a timeline that are signalled.
    fn forget_signaled(&self) {
        let (points, changes) = {
            let state = self.0.lock();
            if !state.is_timeline {
                return;
            }
            (state.points.clone(), state.changes)
        };
        // Fences are looked at without the lock, as they take others.
        let signaled = points.iter().take_while(|(_, fence)| fence.is_signaled()).count();
        let mut state = self.0.lock();
        if signaled > 0 && state.changes == changes {
            state.reached = state.reached.max(points[signaled - 1].0);
            state.points.drain(..signaled);
            state.changes += 1;
        }
    }
}

#[derive(Debug)]
pub(super) struct Wait {
    pub(super) points: Vec<(Arc<Syncobj>, u64)>,
    /// `DRM_SYNCOBJ_WAIT_FLAGS_`.
    pub(super) flags: u32,
    /// Absolute time of CLOCK_MONOTONIC in nanoseconds; 0 and what has passed only look.
    pub(super) timeout_ns: i64,
}

pub(super) fn monotonic_ns() -> i64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.num_nanoseconds())
}

impl Wait {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Waits; the index of the first point that was found reached. Who waits for all of them learns only of what was reached before
    /// the wait.
    ///
    /// # Errors
    /// EINVAL for a point that nothing has, unless the flags say to wait for it; ETIME.
    pub(super) fn wait(&self) -> Result<Option<u32>, Errno> {
        let ns = u64::try_from(self.timeout_ns.saturating_sub(monotonic_ns())).unwrap_or(0);
        let patience = if self.timeout_ns == 0 { 0 } else { ns };
        let deadline = Instant::now().checked_add(Duration::from_nanos(patience));
        let available = self.has(DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE);
        let for_submit = available || self.has(DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT);
        let all = self.has(DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL);
        // A point's fence is looked up once, as in the kernel: what is added later does not move it.
        let mut fences: Vec<Option<Fence>> = self.points.iter().map(|(object, point)| object.fence(*point)).collect();
        if !for_submit && fences.iter().any(Option::is_none) {
            return Err(Errno::EINVAL);
        }
        let mut passed = false;
        let mut at_first = None;
        loop {
            let seen = wakeup::count();
            for (fence, (object, point)) in fences.iter_mut().zip(&self.points) {
                if fence.is_none() {
                    *fence = object.fence(*point);
                }
            }
            let standing = |fence: &Option<Fence>, ns: u64| match fence {
                None => JobStatus::Underway,
                Some(_) if available => JobStatus::Completed,
                Some(fence) => fence.standing(ns),
            };
            let mut standings: Vec<_> = fences.iter().map(|fence| standing(fence, 0)).collect();
            let first =
                |standings: &[JobStatus]| standings.iter().position(|standing| *standing == JobStatus::Completed);
            let before = *at_first.get_or_insert_with(|| first(&standings));
            // Device time passes by waiting only when there is nothing else to wait for.
            if !standings.contains(&JobStatus::Underway) && !passed && !reached(&standings, all) {
                passed = true;
                standings = fences.iter().map(|fence| standing(fence, patience)).collect();
            }
            if reached(&standings, all) {
                let first = if all { before } else { first(&standings) };
                return Ok(first.and_then(|first| u32::try_from(first).ok()));
            }
            if !standings.contains(&JobStatus::Underway) || !wakeup::wait(seen, deadline) {
                return Err(Errno::ETIME);
            }
        }
    }
}

fn reached(standings: &[JobStatus], all: bool) -> bool {
    let completed = |standing: &JobStatus| *standing == JobStatus::Completed;
    if all { standings.iter().all(completed) } else { standings.iter().any(completed) }
}
