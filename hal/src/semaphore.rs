//! Timeline semaphores.
//!
//! A value that only grows. Waiting for a value before its signal is submitted is allowed. A failure is sticky
//! and keeps its first cause: it wakes every waiter of a value that has not been reached, now and later.
//!
//! [`TimelineSemaphore`] lives in host memory and serves every driver whose completions are handled by a host thread.

use crate::block_on::block_on;
use crate::error::DeviceError;
use async_trait::async_trait;
use futures::channel::oneshot;
use parking_lot::Mutex;
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a semaphore failed. Shared, because every waiter gets the same first cause.
pub type Failure = Arc<DeviceError>;

/// Largest value of a timeline.
pub const MAX_VALUE: u64 = u64::MAX - 1;

/// A wait or signal did not succeed.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time limit passed; the semaphore is unchanged.
    #[error("semaphore value {value} was not reached in {timeout:?}; it is at {current}")]
    Timeout {
        /// Value waited for.
        value: u64,
        /// Value at the end of the wait.
        current: u64,
        /// The limit.
        timeout: Duration,
    },
    /// The semaphore failed before the value was reached.
    #[error("semaphore failed: {0}")]
    Failed(#[source] Failure),
    /// A signal that would not increase the value, or is above [`MAX_VALUE`].
    #[error("semaphore is at {current}; a signal to {value} is not an increase below the maximum")]
    NotMonotone {
        /// Value now.
        current: u64,
        /// Requested value.
        value: u64,
    },
}

/// Called once when a value is reached or the semaphore failed. It runs on the thread that signals: keep it short.
pub type Listener = Box<dyn FnOnce() + Send>;

/// Names a [`Listener`] at its semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u64);

/// A timeline semaphore. Thread-safe.
#[cfg_attr(any(test, feature = "mock"), mockall::automock)]
#[async_trait]
pub trait Semaphore: Any + Send + Sync + Debug {
    /// The value now.
    ///
    /// # Errors
    /// The first failure, forever after it.
    fn query(&self) -> Result<u64, Failure>;
    /// Raises the value.
    ///
    /// # Errors
    /// [`WaitError::NotMonotone`], [`WaitError::Failed`].
    fn signal(&self, value: u64) -> Result<(), WaitError>;
    /// Fails the semaphore. Only the first cause is stored.
    fn fail(&self, cause: Failure);
    /// Whether `value` is reached, has failed, or is pending.
    ///
    /// # Errors
    /// The failure, when the value was not reached before it.
    fn poll(&self, value: u64) -> Result<bool, Failure>;
    /// Calls `listener` once, from any thread, when `value` is reached or the semaphore failed; at once if it is so already.
    fn subscribe(&self, value: u64, listener: Listener) -> ListenerId;
    /// Forgets a listener that has not been called. Nothing happens when it was called, or is being called, already. Whoever
    /// stops waiting early calls this, or listeners gather at a semaphore that is slow to advance.
    fn unsubscribe(&self, id: ListenerId);
    /// Blocks until `value` is reached: [`Semaphore::wait`] for a caller without an executor, and with a time limit.
    ///
    /// # Errors
    /// [`WaitError::Timeout`], [`WaitError::Failed`].
    fn wait_blocking(&self, value: u64, timeout: Option<Duration>) -> Result<(), WaitError>;
    /// Resolves when `value` is reached.
    ///
    /// # Errors
    /// [`WaitError::Failed`].
    async fn wait(&self, value: u64) -> Result<(), WaitError>;
}

struct Subscriber {
    id: ListenerId,
    value: u64,
    listener: Listener,
}

#[derive(Default)]
struct State {
    value: u64,
    failure: Option<Failure>,
    subscribers: Vec<Subscriber>,
    next_id: u64,
}

impl State {
    fn resolved(&self, value: u64) -> bool {
        self.value >= value || self.failure.is_some()
    }

    /// Takes out the listeners that are due; the caller runs them without the lock.
    fn take_due(&mut self) -> Vec<Subscriber> {
        let (value, failed) = (self.value, self.failure.is_some());
        self.subscribers.extract_if(.., |subscriber| failed || subscriber.value <= value).collect()
    }
}

/// A [`Semaphore`] in host memory.
#[derive(Default)]
pub struct TimelineSemaphore {
    state: Mutex<State>,
}

impl Debug for TimelineSemaphore {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("TimelineSemaphore").field("value", &state.value).field("failure", &state.failure).finish()
    }
}

impl TimelineSemaphore {
    /// A semaphore at `initial`.
    pub fn new(initial: u64) -> Self {
        Self { state: Mutex::new(State { value: initial, ..State::default() }) }
    }
}

fn call(due: Vec<Subscriber>) {
    for subscriber in due {
        (subscriber.listener)();
    }
}

#[async_trait]
impl Semaphore for TimelineSemaphore {
    fn query(&self) -> Result<u64, Failure> {
        let state = self.state.lock();
        state.failure.clone().map_or(Ok(state.value), Err)
    }

    fn signal(&self, value: u64) -> Result<(), WaitError> {
        let due = {
            let mut state = self.state.lock();
            if let Some(cause) = &state.failure {
                return Err(WaitError::Failed(Arc::clone(cause)));
            }
            if value <= state.value || value > MAX_VALUE {
                return Err(WaitError::NotMonotone { current: state.value, value });
            }
            state.value = value;
            state.take_due()
        };
        call(due);
        Ok(())
    }

    fn fail(&self, cause: Failure) {
        let due = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(cause);
            state.take_due()
        };
        call(due);
    }

    fn poll(&self, value: u64) -> Result<bool, Failure> {
        let state = self.state.lock();
        match &state.failure {
            _ if state.value >= value => Ok(true),
            Some(cause) => Err(Arc::clone(cause)),
            None => Ok(false),
        }
    }

    fn subscribe(&self, value: u64, listener: Listener) -> ListenerId {
        let mut state = self.state.lock();
        let id = ListenerId(state.next_id);
        state.next_id += 1;
        if state.resolved(value) {
            drop(state);
            listener();
        } else {
            state.subscribers.push(Subscriber { id, value, listener });
        }
        id
    }

    fn unsubscribe(&self, id: ListenerId) {
        let mut state = self.state.lock();
        let found = state.subscribers.iter().position(|subscriber| subscriber.id == id);
        // What the listener captured may run code when it is dropped: not under the lock.
        let forgotten = found.map(|index| state.subscribers.remove(index));
        drop(state);
        drop(forgotten);
    }

    fn wait_blocking(&self, value: u64, timeout: Option<Duration>) -> Result<(), WaitError> {
        block_on(self.wait(value), timeout).unwrap_or_else(|| {
            let current = self.state.lock().value;
            Err(WaitError::Timeout { value, current, timeout: timeout.unwrap_or_default() })
        })
    }

    async fn wait(&self, value: u64) -> Result<(), WaitError> {
        while !self.poll(value).map_err(WaitError::Failed)? {
            let (sender, receiver) = oneshot::channel();
            let id = self.subscribe(value, Box::new(move || _ = sender.send(())));
            // Dropping this future early has to forget the listener.
            let _forget = Forget { semaphore: self, id };
            // A sender that went without sending means the same as one that sent: look again.
            receiver.await.ok();
        }
        Ok(())
    }
}

/// Forgets a listener when it goes out of scope.
struct Forget<'a> {
    semaphore: &'a dyn Semaphore,
    id: ListenerId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.semaphore.unsubscribe(self.id);
    }
}

#[cfg(test)]
mod tests;
