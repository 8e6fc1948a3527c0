//! Where submissions go.
//!
//! A submission starts when all its waits are reached; submissions of one queue whose waits are reached start in the order
//! of submission. A submission that waits does not block later ones of the same queue, so waiting for a value
//! that is signalled later, from anywhere, is allowed.

use crate::command_list::{BindingTable, CommandList};
use crate::error::{DeviceError, SubmitError};
use crate::semaphore::Semaphore;
use async_trait::async_trait;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A value on a semaphore's timeline.
#[derive(Debug, Clone)]
pub struct TimelinePoint {
    /// The semaphore.
    pub semaphore: Arc<dyn Semaphore>,
    /// The value to reach.
    pub value: u64,
}

/// Waits, work, signals. All parts may be empty; without a command list it is a barrier between semaphores.
#[derive(Debug, Clone, Default)]
pub struct Submission {
    /// Points that have to be reached first. A failed one fails this submission with the same cause.
    pub waits: Vec<TimelinePoint>,
    /// The work.
    pub commands: Option<Arc<CommandList>>,
    /// Fills the list's slots.
    pub bindings: BindingTable,
    /// Points signalled when the work is complete and its writes are visible to the device. On failure
    /// these semaphores fail.
    pub signals: Vec<TimelinePoint>,
}

/// A queue of one device. Thread-safe. Dropping it waits for work that runs and fails work that has not started.
#[cfg_attr(any(test, feature = "mock"), mockall::automock)]
#[async_trait]
pub trait Queue: Send + Sync + Debug {
    /// Enqueues; returns at once. Execution errors fail the signal semaphores.
    ///
    /// # Errors
    /// [`SubmitError`] when the submission is malformed or the device is lost; then nothing was enqueued, no semaphore touched.
    fn submit(&self, submission: Submission) -> Result<(), SubmitError>;
    /// Sends what is gathered but not yet sent, without waiting.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn flush(&self) -> Result<(), DeviceError>;
    /// Blocks until everything submitted before has ended, well or badly.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] when `timeout` passes first (nothing is cancelled), [`DeviceError::Lost`].
    fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), DeviceError>;
    /// Asynchronous [`Queue::wait_idle`] without a limit.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    async fn idle(&self) -> Result<(), DeviceError>;
}
