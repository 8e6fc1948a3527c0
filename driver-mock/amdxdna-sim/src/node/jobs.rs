//! Jobs behind the caller: what was submitted and has not completed.
//!
//! EXEC_CMD puts a job into the [`ContextQueue`] of its context and returns. The array of a device is a thread
//! ([`Worker`](super::worker::Worker)) that takes jobs in the order in which they were submitted. A context can have four jobs
//! that have not completed; who submits a fifth waits for the first.
//!
//! # Time
//! Work is as fast as the host does it, and costs device time by the model of [`aie_driver_mock::npu`]. A job is seen completed when
//! its device time has passed: on the clock, or because a caller waits for it: waiting advances device time at once. A command
//! that never signals (an artifact that cannot be executed, an address the device cannot reach, a planned timeout) stops its
//! context, not the others. A wait that is shorter than what is left of the kernel's time limit passes its time and is too short; a
//! longer one passes the limit, after which the job has ended as the kernel ends it, and the jobs behind it are cancelled.

use super::chain::Submission;
use super::completion::CompletionWriter;
use super::device::Device;
use super::execution::JobResult;
use super::fence::{Fence, JobQueue, JobStatus};
use super::syncobj::Syncobj;
use super::wakeup;
use crate::reentry::spawn;
use aie_driver_mock::npu::ContextId;
use amdxdna_sys::limits::QUEUED_JOBS;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often a thread that waits for fences polls the clock.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Device time that has not passed.
#[derive(Debug, Clone, Copy)]
struct RemainingTime {
    ns: u64,
    since: Instant,
}

impl RemainingTime {
    fn new(ns: u64) -> Self {
        Self { ns, since: Instant::now() }
    }

    fn now(&self) -> u64 {
        self.ns.saturating_sub(u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
pub(super) struct Pending {
    /// What has to be signalled before it can.
    pub(super) after: Vec<Fence>,
    /// What it runs; `None`: nothing.
    pub(super) submission: Option<Submission>,
}

/// A job that never completes on its own.
#[derive(Debug)]
struct Hung {
    job: Submission,
    command: usize,
    left: RemainingTime,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Pending>,
    running: bool,
    stuck: Option<Hung>,
    submitted: u64,
    /// Jobs with lower sequence numbers have ended.
    ended: u64,
    /// What is left of the device time of the last job that has ended.
    late: Option<RemainingTime>,
    closed: bool,
    /// A job has hung, on a machine where the context then runs no more.
    dead: bool,
    /// Whether a thread watches what the first job waits for.
    watched: bool,
}

#[derive(Debug)]
pub struct ContextQueue {
    npu: ContextId,
    device: Weak<Device>,
    jobs: Mutex<Jobs>,
    /// Where jobs complete, when the kernel has that; the context keeps it. Held while a job is added, so that sequence numbers and
    /// points have the same order.
    timeline: Mutex<Weak<Syncobj>>,
}

impl ContextQueue {
    pub(super) fn new(device: &Arc<Device>, npu: ContextId, timeline: Option<&Arc<Syncobj>>) -> Arc<Self> {
        let timeline = Mutex::new(timeline.map(Arc::downgrade).unwrap_or_default());
        Arc::new(Self { npu, device: Arc::downgrade(device), jobs: Mutex::default(), timeline })
    }

    /// Adds a job, when there is room for one. `make` gets its sequence number.
    ///
    /// # Errors
    /// EINVAL when the context is gone, ENOMEM without a thread for the array.
    pub(super) fn add(self: &Arc<Self>, device: &Arc<Device>, make: impl FnOnce(u64) -> Pending) -> Result<u64, Errno> {
        let timeline = self.timeline.lock();
        let mut jobs = loop {
            let seen = wakeup::count();
            let mut jobs = self.jobs.lock();
            if jobs.closed {
                return Err(Errno::EINVAL);
            }
            if jobs.submitted - jobs.ended < QUEUED_JOBS as u64 {
                break jobs;
            }
            // The caller waits as long as it takes.
            self.advance_time(device, &mut jobs, u64::MAX);
            if jobs.submitted - jobs.ended < QUEUED_JOBS as u64 {
                break jobs;
            }
            drop(jobs);
            wakeup::wait(seen, None);
        };
        let sequence = jobs.submitted;
        jobs.submitted += 1;
        jobs.waiting.push_back(make(sequence));
        if let Some(timeline) = timeline.upgrade() {
            timeline.add_point(sequence, Fence::Job(self.clone(), sequence));
        }
        drop(jobs);
        self.push(device)?;
        wakeup::notify();
        Ok(sequence)
    }

    /// Lets the array run the first job when it has come so far.
    fn push(self: &Arc<Self>, device: &Arc<Device>) -> Result<(), Errno> {
        let (line, device_of) = (self.clone(), Arc::downgrade(device));
        device.worker.push(move || {
            if let Some(device) = device_of.upgrade() {
                line.run_first(&device);
            }
        })
    }

    /// What the first job waits for. Checked by the caller without the lock, as fences have locks.
    fn first_after(&self) -> Vec<Fence> {
        self.jobs.lock().waiting.front().map_or_else(Vec::new, |first| first.after.clone())
    }

    /// Lets the first job run once what it waits for is signalled.
    fn run_later(self: &Arc<Self>, device: &Arc<Device>) {
        let (line, device) = (self.clone(), Arc::downgrade(device));
        let watch = move || {
            loop {
                let seen = wakeup::count();
                if line.jobs.lock().closed {
                    return;
                }
                if line.first_after().iter().all(Fence::is_signaled) {
                    break;
                }
                // Device time passes by the clock too.
                wakeup::wait(seen, Some(Instant::now() + LOOK_AGAIN));
            }
            let Some(device) = device.upgrade() else { return };
            let waiting = {
                let mut jobs = line.jobs.lock();
                if let Some(first) = jobs.waiting.front_mut() {
                    first.after.clear();
                }
                jobs.waiting.len()
            };
            // The array has checked them without result.
            for _ in 0..waiting {
                let _ = line.push(&device);
            }
        };
        let _ = spawn("amdxdna-sim-wait", watch);
    }

    fn run_first(self: &Arc<Self>, device: &Arc<Device>) {
        let after = self.first_after();
        if !after.iter().all(Fence::is_signaled) {
            let mut jobs = self.jobs.lock();
            if !std::mem::replace(&mut jobs.watched, true) {
                self.run_later(device);
            }
            return;
        }
        let job = {
            let mut jobs = self.jobs.lock();
            if jobs.stuck.is_some() || jobs.running {
                // Ending the stuck job ends those behind it.
                return;
            }
            let Some(job) = jobs.waiting.pop_front() else { return };
            jobs.watched = false;
            let Some(submission) = job.submission else {
                jobs.ended += 1;
                drop(jobs);
                wakeup::notify();
                return;
            };
            if jobs.dead {
                device.journal.count(|counts| counts.commands_aborted += 1);
                device.journal.log(|| "a submission is aborted: a job of its context has hung".into());
                CompletionWriter::new(device, &submission).aborted();
                jobs.ended += 1;
                drop(jobs);
                wakeup::notify();
                return;
            }
            jobs.running = true;
            submission
        };
        let ran = catch_unwind(AssertUnwindSafe(|| device.run(&mut device.array.lock(), self.npu, &job)));
        let ran = ran.unwrap_or_else(|_| {
            device.journal.log(|| "internal error of the simulator: a job is dropped".into());
            JobResult::Ended { ns: 0 }
        });
        let ended = match ran {
            JobResult::Ended { ns } => {
                // Closing the file waits for the end, and its buffer objects are released then.
                drop(job);
                Ok(ns)
            }
            JobResult::Hung { command } => Err((job, command)),
        };
        let mut jobs = self.jobs.lock();
        jobs.running = false;
        let limit = device.profile.job_limit_ns;
        match ended {
            Ok(ns) => {
                let before = jobs.late.map_or(0, |left| left.now());
                jobs.late = Some(RemainingTime::new(before.saturating_add(ns)));
                jobs.ended += 1;
            }
            Err((job, command)) => jobs.stuck = Some(Hung { job, command, left: RemainingTime::new(limit) }),
        }
        drop(jobs);
        wakeup::notify();
    }

    /// Lets up to `ns` of device time pass for the stuck job; ends it when that is enough.
    fn advance_time(&self, device: &Device, jobs: &mut Jobs, ns: u64) {
        let Some(stuck) = jobs.stuck.as_mut() else { return };
        let left = stuck.left.now();
        if left > ns {
            stuck.left = RemainingTime::new(left - ns);
            device.npu.charge_idle(ns);
            return;
        }
        // The context is set up again.
        device.npu.charge_idle(left + device.arch.cost.context_create_ns);
        let Some(stuck) = jobs.stuck.take() else { return };
        CompletionWriter::new(device, &stuck.job).overdue(stuck.command);
        jobs.ended += 1;
        jobs.dead = device.hung_stays_dead;
        self.cancel(device, jobs);
        jobs.late = None;
        wakeup::notify();
    }

    /// Ends all jobs that have not begun.
    fn cancel(&self, device: &Device, jobs: &mut Jobs) {
        for job in std::mem::take(&mut jobs.waiting) {
            if let Some(submission) = job.submission {
                device.journal.count(|counts| counts.commands_aborted += 1);
                CompletionWriter::new(device, &submission).cancelled();
            }
            jobs.ended += 1;
        }
        jobs.watched = false;
    }

    /// Waits for a job, `timeout` milliseconds of device time or, with 0, forever.
    /// Fails with EINVAL for a sequence number that was not given out, or ETIME.
    pub(super) fn wait(&self, sequence: u64, timeout: u32) -> Result<(), Errno> {
        let patience = Duration::from_millis(u64::from(timeout));
        let deadline = (timeout != 0).then(|| Instant::now() + patience);
        let ns = if timeout == 0 { u64::MAX } else { u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX) };
        loop {
            let seen = wakeup::count();
            if sequence >= self.jobs.lock().submitted {
                return Err(Errno::EINVAL);
            }
            match self.standing(sequence, ns) {
                JobStatus::Completed => return Ok(()),
                JobStatus::Late => return Err(Errno::ETIME),
                JobStatus::Underway => {}
            }
            if !wakeup::wait(seen, deadline) {
                return Err(Errno::ETIME);
            }
        }
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        let jobs = self.jobs.lock();
        (jobs.submitted, jobs.ended)
    }

    /// The context is destroyed: nothing is added any more. Returns when all jobs have ended.
    pub(super) fn close(&self, device: &Device) {
        self.jobs.lock().closed = true;
        wakeup::notify();
        self.drain(device, None);
    }

    /// Waits until all jobs have ended, or until `deadline`.
    pub(super) fn drain(&self, device: &Device, deadline: Option<Instant>) {
        loop {
            let seen = wakeup::count();
            {
                let mut jobs = self.jobs.lock();
                self.advance_time(device, &mut jobs, u64::MAX);
                if jobs.closed && jobs.watched && !jobs.running {
                    // What the first job waits for may never come.
                    self.cancel(device, &mut jobs);
                }
                if jobs.submitted == jobs.ended {
                    return;
                }
            }
            if !wakeup::wait(seen, deadline) {
                return;
            }
        }
    }
}

impl JobQueue for ContextQueue {
    fn standing(&self, sequence: u64, ns: u64) -> JobStatus {
        let Some(device) = self.device.upgrade() else { return JobStatus::Completed };
        let mut jobs = self.jobs.lock();
        if jobs.stuck.as_ref().is_some_and(|stuck| stuck.job.sequence <= sequence) {
            self.advance_time(&device, &mut jobs, ns);
            if jobs.stuck.is_some() {
                return JobStatus::Late;
            }
        }
        if sequence >= jobs.ended {
            return JobStatus::Underway;
        }
        if sequence + 1 == jobs.ended
            && let Some(late) = jobs.late
        {
            let left = late.now();
            if left > ns {
                jobs.late = Some(RemainingTime::new(left - ns));
                return JobStatus::Late;
            }
            jobs.late = None;
        }
        JobStatus::Completed
    }
}
