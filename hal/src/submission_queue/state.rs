//! What a queue's thread, its semaphores and its device share: the submissions that have not ended.
//!
//! Semaphores are never called under the lock, because they may call back.

use super::{InFlight, QueueDevice};
use crate::error::DeviceError;
use crate::queue::{Submission, TimelinePoint};
use crate::semaphore::{Failure, ListenerId, Semaphore};
use futures::channel::oneshot;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(super) enum Readiness {
    /// Waits that are not reached, by index. Never empty.
    Waiting(Vec<usize>),
    #[default]
    Ready,
    Failed(Failure),
}

/// A submission that has not ended.
#[derive(Default)]
pub(super) struct Job {
    pub(super) sequence: u64,
    pub(super) readiness: Readiness,
    pub(super) submission: Submission,
    /// By index of the wait. An entry may be of a point that is reached or failed.
    pub(super) listeners: Vec<(usize, ListenerId)>,
}

impl Job {
    /// Waits that are not reached, by index.
    pub(super) fn waiting(&self) -> &[usize] {
        if let Readiness::Waiting(left) = &self.readiness { left } else { &[] }
    }
}

#[derive(Default)]
struct State {
    /// In order of submission.
    jobs: VecDeque<Job>,
    /// What the backend has, in order of submission.
    running: VecDeque<u64>,
    /// Sequence number of the next submission.
    next: u64,
    closed: bool,
    /// Who waits for everything before a sequence number.
    idlers: Vec<(u64, oneshot::Sender<()>)>,
}

impl State {
    fn idle_before(&self, sequence: u64) -> bool {
        self.running.front().is_none_or(|s| *s >= sequence) && self.jobs.front().is_none_or(|j| j.sequence >= sequence)
    }

    fn find(&self, sequence: u64) -> Option<usize> {
        self.jobs.binary_search_by_key(&sequence, |j| j.sequence).ok()
    }

    fn stop_running(&mut self, sequence: u64) {
        if let Ok(index) = self.running.binary_search(&sequence) {
            self.running.remove(index);
        }
    }
}

/// What a queue's thread does next.
pub(super) enum Step {
    /// Runs the batch.
    Run,
    /// Fails the one submission in the batch.
    Fail(Failure),
    /// Ends.
    Close,
}

pub(super) struct Core {
    device: Arc<dyn QueueDevice>,
    state: Mutex<State>,
    /// Something became ready, the device was lost, or the queue closes.
    work: Condvar,
}

/// Whether `point` is reached when all of `signals` are.
fn promised(signals: &[TimelinePoint], point: &TimelinePoint) -> bool {
    let address = |point: &TimelinePoint| Arc::as_ptr(&point.semaphore).cast::<()>();
    signals.iter().any(|signal| signal.value >= point.value && address(signal) == address(point))
}

impl Core {
    pub(super) fn new(device: Arc<dyn QueueDevice>) -> Self {
        Self { device, state: Mutex::default(), work: Condvar::new() }
    }

    pub(super) fn name(&self) -> &str {
        self.device.name()
    }

    pub(super) fn lost_or_ok(&self) -> Result<(), DeviceError> {
        self.device.lost().map_or(Ok(()), Err)
    }

    pub(super) fn count_submission(&self) {
        self.device.count_submission();
    }

    /// Submissions so far, and how many of them have not ended.
    pub(super) fn totals(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.next, state.jobs.len() + state.running.len())
    }

    /// Lets the worker look again.
    pub(super) fn wake(&self) {
        // With the lock, or a worker that is about to sleep would not notice.
        drop(self.state.lock());
        self.work.notify_all();
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    pub(super) fn enqueue(self: &Arc<Self>, submission: Submission) {
        let mut pending: Vec<(usize, Arc<dyn Semaphore>, u64)> = Vec::new();
        let mut readiness = Readiness::Ready;
        for (index, TimelinePoint { semaphore, value }) in submission.waits.iter().enumerate() {
            match semaphore.poll(*value) {
                Ok(true) => {}
                Ok(false) => pending.push((index, Arc::clone(semaphore), *value)),
                Err(cause) => {
                    readiness = Readiness::Failed(cause);
                    pending.clear();
                    break;
                }
            }
        }
        if !pending.is_empty() {
            readiness = Readiness::Waiting(pending.iter().map(|(index, ..)| *index).collect());
        }
        let sequence = {
            let mut state = self.state.lock();
            let sequence = state.next;
            state.next += 1;
            state.jobs.push_back(Job { sequence, readiness, submission, listeners: Vec::new() });
            sequence
        };
        if pending.is_empty() {
            self.work.notify_one();
        }
        for (index, semaphore, value) in pending {
            // Weak, or a semaphore that no one signals would keep the queue.
            let queue: Weak<Self> = Arc::downgrade(self);
            let changed = move || queue.upgrade().map_or((), |queue| queue.point_changed(sequence, index));
            let id = semaphore.subscribe(value, Box::new(changed));
            self.remember(sequence, index, &*semaphore, id);
        }
        // The device may have been lost since the caller's check; then no one else would wake the worker.
        if self.device.lost().is_some() {
            self.wake();
        }
    }

    /// Keeps a listener with its job, to be forgotten when the job ends before the point is reached or fails.
    fn remember(&self, sequence: u64, index: usize, semaphore: &dyn Semaphore, id: ListenerId) {
        let mut state = self.state.lock();
        if let Some(at) = state.find(sequence) {
            state.jobs[at].listeners.push((index, id));
        } else if state.running.binary_search(&sequence).is_err() {
            drop(state);
            semaphore.unsubscribe(id);
        }
        // One that the backend has may come back; the listener stays until the semaphore advances.
    }

    /// A point that a submission waits for may have been reached or failed. Calling this once too often does no harm.
    pub(super) fn point_changed(&self, sequence: u64, index: usize) {
        let waited = {
            let state = self.state.lock();
            let Some(at) = state.find(sequence) else { return };
            state.jobs[at].submission.waits[index].clone()
        };
        let outcome = waited.semaphore.poll(waited.value);
        let mut state = self.state.lock();
        let Some(at) = state.find(sequence) else { return };
        let readiness = &mut state.jobs[at].readiness;
        let Readiness::Waiting(left) = readiness else { return };
        match outcome {
            Ok(true) => left.retain(|waiting| *waiting != index),
            Ok(false) => return,
            Err(cause) => {
                *readiness = Readiness::Failed(cause);
                self.work.notify_one();
                return;
            }
        }
        if left.is_empty() {
            *readiness = Readiness::Ready;
            self.work.notify_one();
        }
    }

    /// Waits for something to do and puts it into `batch`, which is empty.
    pub(super) fn next(self: &Arc<Self>, limit: usize, batch: &mut VecDeque<InFlight>) -> Step {
        let mut state = self.state.lock();
        loop {
            let lost = self.device.lost();
            let stop = lost.is_some() || state.closed;
            let startable = |job: &Job| stop || !matches!(job.readiness, Readiness::Waiting(_));
            let Some(first) = state.jobs.iter().position(startable) else {
                if state.closed {
                    return Step::Close;
                }
                self.work.wait(&mut state);
                continue;
            };
            let rejected = match (lost, state.closed, &state.jobs[first].readiness) {
                (Some(cause), ..) => Some(Arc::new(cause)),
                (None, true, _) => {
                    let reason = "the queue was dropped before this submission started";
                    Some(Arc::new(DeviceError::Execution(reason.into())))
                }
                (None, false, Readiness::Failed(cause)) => Some(Arc::clone(cause)),
                (None, false, _) => None,
            };
            self.take_batch(&mut state, first, if rejected.is_some() { 1 } else { limit.max(1) }, batch);
            return rejected.map_or(Step::Run, Step::Fail);
        }
    }

    /// Moves the job at `first`, and those behind it that may run along, into `batch`.
    fn take_batch(self: &Arc<Self>, state: &mut State, first: usize, limit: usize, batch: &mut VecDeque<InFlight>) {
        let mut signals: Vec<TimelinePoint> = Vec::new();
        let mut at = first;
        while batch.len() < limit
            && let Some(job) = state.jobs.get(at)
        {
            let joins = match &job.readiness {
                _ if batch.is_empty() => true,
                Readiness::Ready => true,
                Readiness::Waiting(left) => left.iter().all(|index| promised(&signals, &job.submission.waits[*index])),
                // Signals are in order of submission: what is behind this one comes after it.
                Readiness::Failed(_) => return,
            };
            if !joins {
                at += 1;
                continue;
            }
            let Some(job) = state.jobs.remove(at) else { return };
            if limit > 1 {
                signals.extend_from_slice(&job.submission.signals);
            }
            state.running.push_back(job.sequence);
            batch.push_back(InFlight::new(Arc::clone(self), job));
        }
    }

    /// Takes a submission back that the backend did not start.
    pub(super) fn put_back(&self, job: Job) {
        let sequence = job.sequence;
        let waiting = job.waiting().to_vec();
        {
            let mut state = self.state.lock();
            state.stop_running(sequence);
            let at = state.jobs.partition_point(|other| other.sequence < sequence);
            state.jobs.insert(at, job);
        }
        // What was reached meanwhile found no job; so look after the job is in its place.
        for index in waiting {
            self.point_changed(sequence, index);
        }
    }

    /// The submission has ended and its signals are done.
    pub(super) fn end(&self, sequence: u64) {
        let due: Vec<_> = {
            let mut state = self.state.lock();
            state.stop_running(sequence);
            let mut idlers = std::mem::take(&mut state.idlers);
            let due = idlers.extract_if(.., |(before, _)| state.idle_before(*before)).collect();
            state.idlers = idlers;
            due
        };
        for (_, waker) in due {
            // The one who asked may have gone.
            waker.send(()).ok();
        }
    }

    /// Resolves when everything submitted before has ended; `None` when it has already.
    pub(super) fn idler(&self) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        let sequence = state.next;
        (!state.idle_before(sequence)).then(|| {
            let (sender, receiver) = oneshot::channel();
            // Who stopped waiting early is forgotten.
            state.idlers.retain(|(_, sender)| !sender.is_canceled());
            state.idlers.push((sequence, sender));
            receiver
        })
    }
}
