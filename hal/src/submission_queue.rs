//! A [`Queue`] for any driver: waits, order and signals here, the work itself in the driver's [`QueueBackend`].
//!
//! A queue has a thread of its own, which hands the backend submissions whose waits are reached, in the order of submission.
//! Waiting takes no thread: a submission subscribes to the points it waits for, and the last one to be reached makes it
//! ready. One that waits does not hold up those behind it.
//!
//! # Batches
//!
//! A doorbell of a real NPU costs more than a small dispatch, so a backend may take several submissions at a time
//! ([`QueueBackend::batch_limit`]). A batch has the submissions that are ready at the moment when the backend is free; nothing is held
//! back for more to come. A submission whose unreached points are all signalled by earlier submissions of the same batch
//! joins it, so that a chain of small dependent submissions can become one doorbell.
//!
//! # Failures
//!
//! A failed submission fails its signals, and what waits for those fails with the same cause. Submissions of one batch do
//! not share their fate otherwise: a backend that stops at a failure leaves the rest in the batch, and they are handled
//! again. No submission is left without an outcome: when a backend panics, or drops one, its signals fail.

mod in_flight;
mod state;
mod worker;

pub use in_flight::InFlight;

use self::state::Core;
use crate::block_on::block_on;
use crate::error::{DeviceError, SubmitError};
use crate::process::OwningProcess;
use crate::queue::{Queue, Submission};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The device of a queue.
pub trait QueueDevice: Send + Sync + 'static {
    /// The device, for messages.
    fn name(&self) -> &str;
    /// Why the device is lost, if it is. Sticky. Called often, also under a lock of the queue: it must be quick, and must not
    /// use a queue. The code that loses the device calls [`QueueHandle::wake`] for every queue afterwards.
    fn lost(&self) -> Option<DeviceError>;
    /// Counts one submission that ended, well or badly. Called before its signals.
    fn count_submission(&self);
}

/// What runs the submissions of a device. Shared by all queues of the device, which call it from a thread each.
pub trait QueueBackend: QueueDevice {
    /// What one queue keeps between batches, so that running one seldom allocates. Recreated after a panic.
    type Scratch: Default + Send;
    /// How many submissions a batch may have; at least one is handed over whatever it says.
    fn batch_limit(&self) -> usize {
        1
    }
    /// Runs `batch`: at least one submission, in order of submission, with at most [`QueueBackend::batch_limit`]. Blocks until they have
    /// ended.
    ///
    /// Takes submissions from the front and calls [`InFlight::finish`] for each in that order: before a host call of a later work
    /// runs, because that may wait for its signals, and at the latest when the batch ends. Sooner is better for waiters. Every work
    /// runs as if those before it were complete.
    ///
    /// Works that stay in `batch` must not have been started. The queue takes them back, fails those whose waits have
    /// failed, and hands over the others again. At least one has to be taken, or the first one fails. A backend that cannot
    /// tell which work failed fails all that it may have started.
    fn run(&self, scratch: &mut Self::Scratch, batch: &mut VecDeque<InFlight>);
}

/// A queue whose submissions an [`QueueBackend`] runs. See [`Queue`] for what holds for callers.
pub struct SubmissionQueue {
    core: Arc<Core>,
    worker: Option<JoinHandle<()>>,
    owner: OwningProcess,
}

/// Reaches a queue without keeping it: what a device remembers of its queues.
#[derive(Clone)]
pub struct QueueHandle(Weak<Core>);

impl QueueHandle {
    /// Lets the queue look again, because the device was lost. Nothing happens when the queue is gone.
    pub fn wake(&self) {
        if let Some(core) = self.0.upgrade() {
            core.wake();
        }
    }

    /// Whether the queue still exists.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Debug for QueueHandle {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueHandle").field("alive", &self.is_alive()).finish()
    }
}

impl Debug for SubmissionQueue {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (submitted, pending) = self.core.totals();
        f.debug_struct("SubmissionQueue")
            .field("device", &self.core.name())
            .field("submitted", &submitted)
            .field("pending", &pending)
            .finish()
    }
}

impl SubmissionQueue {
    /// Starts a queue. It keeps `backend`.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the system has no thread for it.
    pub fn new<E: QueueBackend>(backend: &Arc<E>) -> Result<Self, DeviceError> {
        let core = Arc::new(Core::new(backend.clone()));
        let (work, backend) = (Arc::clone(&core), Arc::clone(backend));
        let worker = std::thread::Builder::new().name("aie-queue".into());
        let worker = worker.spawn(move || worker::work(&work, &*backend));
        let worker = worker.map_err(|e| DeviceError::Unsupported(format!("no thread for another queue: {e}")))?;
        Ok(Self { core, worker: Some(worker), owner: OwningProcess::current() })
    }

    /// Reaches this queue without keeping it.
    pub fn handle(&self) -> QueueHandle {
        QueueHandle(Arc::downgrade(&self.core))
    }
}

impl Drop for SubmissionQueue {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // The thread is the parent's, and it may have held the lock of the queue when this process was forked.
            std::mem::forget(self.worker.take());
            return;
        }
        self.core.close();
        if let Some(worker) = self.worker.take()
            && worker.thread().id() != std::thread::current().id()
            && worker.join().is_err()
        {
            tracing::error!("a queue thread of {} panicked", self.core.name());
        }
    }
}

#[async_trait]
impl Queue for SubmissionQueue {
    fn submit(&self, submission: Submission) -> Result<(), SubmitError> {
        self.core.lost_or_ok()?;
        let (slots, bound) =
            (submission.commands.as_ref().map_or(0, |list| list.slots()), submission.bindings.bindings.len());
        if bound < slots {
            return Err(SubmitError::Binding(format!("the command list has {slots} slots, {bound} are bound")));
        }
        self.core.enqueue(submission);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.core.lost_or_ok()
    }

    fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), DeviceError> {
        block_on(self.idle(), timeout).unwrap_or_else(|| {
            let (timeout, (_, pending)) = (timeout.unwrap_or_default(), self.core.totals());
            let reason = format!("the queue was not idle after {timeout:?}; {pending} submissions are pending");
            Err(DeviceError::Timeout(reason))
        })
    }

    async fn idle(&self) -> Result<(), DeviceError> {
        if let Some(waiter) = self.core.idler() {
            // An error means that the worker ended, and it ends idle.
            waiter.await.ok();
        }
        self.core.lost_or_ok()
    }
}

#[cfg(test)]
mod tests;
