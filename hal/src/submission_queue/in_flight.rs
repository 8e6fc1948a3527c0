//! A submission that a backend runs.

use super::state::{Core, Job};
use crate::command_list::{BindingTable, Command, CommandList};
use crate::error::DeviceError;
use crate::queue::{Submission, TimelinePoint};
use crate::semaphore::{Failure, WaitError};
use std::fmt::{Debug, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A submission that an [`QueueBackend`](super::QueueBackend) runs. It holds the command list and the bindings until it is finished.
///
/// Dropping one that was not finished fails its signals.
pub struct InFlight {
    core: Arc<Core>,
    /// Its waits that are not reached are those that were not when the batch was made.
    job: Job,
    /// Whether there is nothing to do for this value any more.
    ended: bool,
}

impl Debug for InFlight {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight")
            .field("device", &self.core.name())
            .field("sequence", &self.job.sequence)
            .field("commands", &self.commands().len())
            .finish_non_exhaustive()
    }
}

impl InFlight {
    pub(super) fn new(core: Arc<Core>, job: Job) -> Self {
        Self { core, job, ended: false }
    }

    /// The commands; none for a barrier between semaphores.
    pub fn commands(&self) -> &[Command] {
        self.job.submission.commands.as_ref().map_or(&[], |list| list.commands())
    }

    /// The command list, for what is cached with it ([`CommandList::derived`]).
    pub fn list(&self) -> Option<&Arc<CommandList>> {
        self.job.submission.commands.as_ref()
    }

    /// Fills the list's slots.
    pub fn bindings(&self) -> &BindingTable {
        &self.job.submission.bindings
    }

    /// Ends the submission: releases its command list and bindings, then signals, or fails its signals.
    ///
    /// A work that waits for earlier submissions of its batch fails with their cause when they failed, whatever `result` is.
    pub fn finish(mut self, result: Result<(), DeviceError>) {
        self.end(result.map_err(Arc::new));
    }

    pub(super) fn fail(mut self, cause: Failure) {
        self.end(Err(cause));
    }

    /// Gives the submission back to the queue, not started.
    pub(super) fn put_back(mut self) {
        self.ended = true;
        self.core.put_back(std::mem::take(&mut self.job));
    }

    /// Whether what it waits for in its batch was reached.
    fn followed(&self) -> Result<(), Failure> {
        for index in self.job.waiting() {
            let TimelinePoint { semaphore, value } = &self.job.submission.waits[*index];
            if !semaphore.poll(*value)? {
                return Err(Arc::new(DeviceError::Execution(format!(
                    "submission {} was finished before the submission it waits for",
                    self.job.sequence
                ))));
            }
        }
        Ok(())
    }

    fn end(&mut self, result: Result<(), Failure>) {
        self.ended = true;
        let result = result.and_then(|()| self.followed());
        let Job { sequence, submission, listeners, .. } = std::mem::take(&mut self.job);
        let Submission { waits, commands, bindings, signals } = submission;
        for (index, id) in listeners {
            waits[index].semaphore.unsubscribe(id);
        }
        self.core.count_submission();
        // Waiters of the signal may expect that the submission holds nothing any more.
        guarded(sequence, || drop((waits, commands, bindings)));
        if let Err(cause) = &result {
            tracing::warn!("submission {sequence} on {} failed: {cause}", self.core.name());
        }
        for point in &signals {
            guarded(sequence, || resolve(point, &result));
        }
        self.core.end(sequence);
    }
}

/// Runs what may call code of the queue's users: listeners, destructors. One that panics must not keep others waiting.
fn guarded(sequence: u64, step: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(step)).is_err() {
        tracing::error!("a listener or destructor panicked when submission {sequence} ended");
    }
}

fn resolve(TimelinePoint { semaphore, value }: &TimelinePoint, result: &Result<(), Failure>) {
    match result {
        Err(cause) => semaphore.fail(Arc::clone(cause)),
        Ok(()) => {
            if let Err(error @ WaitError::NotMonotone { .. }) = semaphore.signal(*value) {
                semaphore.fail(Arc::new(DeviceError::Execution(error.to_string())));
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.ended {
            let how = if std::thread::panicking() { "panicked while it ran" } else { "dropped it without an outcome" };
            let reason = format!("the driver of {} {how}", self.core.name());
            self.end(Err(Arc::new(DeviceError::Execution(reason))));
        }
    }
}
