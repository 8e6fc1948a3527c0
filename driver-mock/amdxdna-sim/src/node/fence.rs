//! Fences: what is waited for.

use std::fmt;
use std::sync::Arc;

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStatus {
    Completed,
    /// It waits for the array, or the array is at it.
    Underway,
    /// Its device time has not passed.
    Late,
}

/// What has given a job its sequence number.
pub trait JobQueue: fmt::Debug + Send + Sync {
    /// How far a job is, after up to `ns` of device time more.
    fn standing(&self, sequence: u64, ns: u64) -> JobStatus;
}

/// What is signalled once.
#[derive(Debug, Clone)]
pub enum Fence {
    Signaled,
    /// A job, by its sequence number.
    Job(Arc<dyn JobQueue>, u64),
    /// When all of these are signalled.
    All(Vec<Fence>),
}

impl Fence {
    /// How far it is, after up to `ns` of device time more.
    pub(super) fn standing(&self, ns: u64) -> JobStatus {
        match self {
            Self::Signaled => JobStatus::Completed,
            Self::Job(queue, sequence) => queue.standing(*sequence, ns),
            Self::All(fences) => {
                let standings: Vec<_> = fences.iter().map(|fence| fence.standing(ns)).collect();
                let is = |standing| standings.contains(&standing);
                if is(JobStatus::Underway) {
                    JobStatus::Underway
                } else if is(JobStatus::Late) {
                    JobStatus::Late
                } else {
                    JobStatus::Completed
                }
            }
        }
    }

    pub(super) fn is_signaled(&self) -> bool {
        self.standing(0) == JobStatus::Completed
    }
}
