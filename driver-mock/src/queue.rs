//! Queues: a thread each, which runs submissions in order as their waits are reached.
//!
//! Waiting for semaphores takes no thread: a submission subscribes to the points it waits for, and the last one to be reached
//! makes it ready. The worker takes the first ready submission, so one that waits does not hold up those behind it.

use crate::device::DeviceShared;
use crate::execution::{self, Scratch};
use aie_hal::error::{DeviceError, SubmitError};
use aie_hal::queue::{Queue, Submission, TimelinePoint};
use aie_hal::semaphore::{Failure, WaitError};
use async_trait::async_trait;
use futures::channel::oneshot;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

enum Readiness {
    /// Number of points not reached.
    Waiting(usize),
    Ready,
    Failed(Failure),
}

struct Job {
    sequence: u64,
    readiness: Readiness,
    submission: Submission,
}

#[derive(Default)]
struct State {
    /// In order of submission.
    jobs: VecDeque<Job>,
    running: Option<u64>,
    /// Sequence number of the next submission.
    next: u64,
    closed: bool,
    /// Who waits for everything before a sequence number.
    idlers: Vec<(u64, oneshot::Sender<()>)>,
}

impl State {
    fn idle_before(&self, sequence: u64) -> bool {
        self.running.is_none_or(|s| s >= sequence) && self.jobs.front().is_none_or(|j| j.sequence >= sequence)
    }
}

/// The part of a queue that its thread, semaphores and device see.
pub(crate) struct QueueShared {
    device: Arc<DeviceShared>,
    state: Mutex<State>,
    /// Something became ready, or the queue closes.
    work: Condvar,
    /// A submission ended.
    ended: Condvar,
}

/// A queue of the simulated device.
pub(crate) struct MockQueue {
    shared: Arc<QueueShared>,
    worker: Option<JoinHandle<()>>,
}

impl Debug for MockQueue {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("MockQueue")
            .field("device", &self.shared.device.name())
            .field("submitted", &state.next)
            .field("pending", &state.jobs.len())
            .finish()
    }
}

impl MockQueue {
    pub(crate) fn new(device: &Arc<DeviceShared>) -> Result<Self, DeviceError> {
        let shared = Arc::new(QueueShared {
            device: Arc::clone(device),
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
        });
        let work = Arc::clone(&shared);
        let worker = std::thread::Builder::new().name("aie-mock-queue".into()).spawn(move || work.work());
        let worker = worker.map_err(|e| DeviceError::Unsupported(format!("no thread for another queue: {e}")))?;
        Ok(Self { shared, worker: Some(worker) })
    }

    pub(crate) fn shared(&self) -> &Arc<QueueShared> {
        &self.shared
    }
}

impl Drop for MockQueue {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
        if let Some(worker) = self.worker.take()
            && worker.thread().id() != std::thread::current().id()
            && worker.join().is_err()
        {
            tracing::error!("a queue thread of {} panicked", self.shared.device.name());
        }
    }
}

impl QueueShared {
    /// Lets the worker look again, for instance because the device was lost.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.work.notify_all();
    }

    fn work(&self) {
        let mut scratch = Scratch::default();
        let mut state = self.state.lock();
        loop {
            let lost = self.device.lost();
            let stop = lost.is_some() || state.closed;
            let startable = |job: &Job| stop || !matches!(job.readiness, Readiness::Waiting(_));
            let Some(job) = state.jobs.iter().position(startable).and_then(|index| state.jobs.remove(index)) else {
                if state.closed {
                    return;
                }
                self.work.wait(&mut state);
                continue;
            };
            state.running = Some(job.sequence);
            let refused = lost.or_else(|| {
                state
                    .closed
                    .then(|| DeviceError::Execution("the queue was dropped before this submission started".into()))
            });
            MutexGuard::unlocked(&mut state, || self.run(job, refused, &mut scratch));
            state.running = None;
            self.ended.notify_all();
            for (sequence, waker) in std::mem::take(&mut state.idlers) {
                if state.idle_before(sequence) {
                    // The one who asked may have gone.
                    waker.send(()).ok();
                } else {
                    state.idlers.push((sequence, waker));
                }
            }
        }
    }

    /// Runs one submission to its end and tells its semaphores.
    fn run(&self, job: Job, refused: Option<DeviceError>, scratch: &mut Scratch) {
        let Submission { waits, commands, bindings, signals } = job.submission;
        let result = match (refused, job.readiness) {
            (Some(cause), _) => Err(Arc::new(cause)),
            (None, Readiness::Failed(cause)) => Err(cause),
            (None, Readiness::Ready | Readiness::Waiting(_)) => commands.as_ref().map_or(Ok(()), |list| {
                execution::execute(&self.device, scratch, list.commands(), &bindings).map_err(Arc::new)
            }),
        };
        self.device.counters.submissions.fetch_add(1, Ordering::Relaxed);
        // Whoever waits for the signal may expect that the submission holds nothing any more.
        drop((waits, commands, bindings));
        if let Err(cause) = &result {
            tracing::warn!("submission {} on {} failed: {cause}", job.sequence, self.device.name());
        }
        for TimelinePoint { semaphore, value } in signals {
            match &result {
                Err(cause) => semaphore.fail(Arc::clone(cause)),
                Ok(()) => {
                    if let Err(error @ WaitError::NotMonotone { .. }) = semaphore.signal(value) {
                        semaphore.fail(Arc::new(DeviceError::Execution(error.to_string())));
                    }
                }
            }
        }
    }

    /// A point that a submission waits for was reached or failed.
    fn point_settled(&self, sequence: u64, point: usize) {
        let find = |state: &State| state.jobs.binary_search_by_key(&sequence, |j| j.sequence).ok();
        let waited = {
            let state = self.state.lock();
            let Some(index) = find(&state) else { return };
            state.jobs[index].submission.waits[point].clone()
        };
        // Not under the lock: a semaphore may call back.
        let outcome = waited.semaphore.poll(waited.value);
        let mut state = self.state.lock();
        let Some(index) = find(&state) else { return };
        let readiness = &mut state.jobs[index].readiness;
        match (&readiness, outcome) {
            (Readiness::Waiting(_), Err(cause)) => *readiness = Readiness::Failed(cause),
            (Readiness::Waiting(1), Ok(_)) => *readiness = Readiness::Ready,
            (Readiness::Waiting(left), Ok(_)) => *readiness = Readiness::Waiting(left - 1),
            (Readiness::Ready | Readiness::Failed(_), _) => {}
        }
        if !matches!(readiness, Readiness::Waiting(_)) {
            self.work.notify_one();
        }
    }

    fn lost_or_ok(&self) -> Result<(), DeviceError> {
        self.device.lost().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Queue for MockQueue {
    fn submit(&self, submission: Submission) -> Result<(), SubmitError> {
        self.shared.lost_or_ok()?;
        let (slots, bound) =
            (submission.commands.as_ref().map_or(0, |list| list.slots()), submission.bindings.bindings.len());
        if bound < slots {
            return Err(SubmitError::Binding(format!("the command list has {slots} slots, {bound} are bound")));
        }
        let mut pending = Vec::new();
        let mut readiness = Readiness::Ready;
        for (point, TimelinePoint { semaphore, value }) in submission.waits.iter().enumerate() {
            match semaphore.poll(*value) {
                Ok(true) => {}
                Ok(false) => pending.push((point, Arc::clone(semaphore), *value)),
                Err(cause) => {
                    readiness = Readiness::Failed(cause);
                    pending.clear();
                    break;
                }
            }
        }
        if !pending.is_empty() {
            readiness = Readiness::Waiting(pending.len());
        }
        let sequence = {
            let mut state = self.shared.state.lock();
            let sequence = state.next;
            state.next += 1;
            state.jobs.push_back(Job { sequence, readiness, submission });
            sequence
        };
        if pending.is_empty() {
            self.shared.work.notify_one();
        }
        for (point, semaphore, value) in pending {
            // Weak, or a semaphore that nobody signals would keep the queue.
            let queue: Weak<QueueShared> = Arc::downgrade(&self.shared);
            let settled = move || queue.upgrade().map_or((), |queue| queue.point_settled(sequence, point));
            semaphore.subscribe(value, Box::new(settled));
        }
        // The device may have been lost since the check above; then nobody else would wake the worker.
        if self.shared.device.lost().is_some() {
            self.shared.wake();
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.shared.lost_or_ok()
    }

    fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), DeviceError> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut state = self.shared.state.lock();
        let sequence = state.next;
        while !state.idle_before(sequence) {
            let late = match deadline {
                None => {
                    self.shared.ended.wait(&mut state);
                    false
                }
                Some(deadline) => self.shared.ended.wait_until(&mut state, deadline).timed_out(),
            };
            if late && !state.idle_before(sequence) {
                return Err(DeviceError::Timeout(format!(
                    "the queue was not idle after {:?}; {} submissions are pending",
                    timeout.unwrap_or_default(),
                    state.jobs.len() + usize::from(state.running.is_some())
                )));
            }
        }
        drop(state);
        self.shared.lost_or_ok()
    }

    async fn idle(&self) -> Result<(), DeviceError> {
        let waiter = {
            let mut state = self.shared.state.lock();
            let sequence = state.next;
            (!state.idle_before(sequence)).then(|| {
                let (sender, receiver) = oneshot::channel();
                state.idlers.push((sequence, sender));
                receiver
            })
        };
        if let Some(waiter) = waiter {
            // An error means that the worker ended, and it ends idle.
            waiter.await.ok();
        }
        self.shared.lost_or_ok()
    }
}

#[cfg(test)]
mod tests;
