//! Timeline semaphores.
//!
//! A value that only grows. Waiting for a value before anybody has promised to signal it is allowed. A failure is sticky
//! and keeps its first cause: it wakes every waiter of a value that has not been reached, now and later.
//!
//! [`TimelineSemaphore`] lives in host memory and serves every driver whose completions are handled by a host thread.

use crate::error::DeviceError;
use crate::queue::TimelinePoint;
use async_trait::async_trait;
use futures::channel::oneshot;
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why a semaphore failed. Shared, because every waiter gets the same first cause.
pub type Failure = Arc<DeviceError>;

/// Largest value of a timeline.
pub const MAX_VALUE: u64 = u64::MAX - 1;

/// A wait or signal did not succeed.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
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
    Failed(Failure),
    /// A signal that would not increase the value, or is above [`MAX_VALUE`].
    #[error("semaphore is at {current}; a signal to {value} is not an increase below the maximum")]
    NotMonotone {
        /// Value now.
        current: u64,
        /// Value asked for.
        value: u64,
    },
}

/// Called once when a value is reached or the semaphore failed.
pub type Listener = Box<dyn FnOnce() + Send>;

/// A timeline semaphore. Thread-safe.
#[async_trait]
pub trait Semaphore: Any + Send + Sync + Debug {
    /// The value now.
    ///
    /// # Errors
    /// The first failure, for ever after it.
    fn query(&self) -> Result<u64, Failure>;
    /// Raises the value.
    ///
    /// # Errors
    /// [`WaitError::NotMonotone`], [`WaitError::Failed`].
    fn signal(&self, value: u64) -> Result<(), WaitError>;
    /// Fails the semaphore. Only the first cause is kept.
    fn fail(&self, cause: Failure);
    /// Whether `value` is reached, has failed, or is pending.
    ///
    /// # Errors
    /// The failure, when the value was not reached before it.
    fn poll(&self, value: u64) -> Result<bool, Failure>;
    /// Calls `listener` once, from any thread, when `value` is reached or the semaphore failed; at once if it is so already.
    fn subscribe(&self, value: u64, listener: Listener);
    /// Blocks until `value` is reached.
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

#[derive(Default)]
struct State {
    value: u64,
    failure: Option<Failure>,
    listeners: Vec<(u64, Listener)>,
}

/// A [`Semaphore`] in host memory.
#[derive(Default)]
pub struct TimelineSemaphore {
    state: Mutex<State>,
    changed: Condvar,
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
        Self { state: Mutex::new(State { value: initial, ..State::default() }), changed: Condvar::new() }
    }

    fn settle(&self, state: &mut State) -> Vec<Listener> {
        self.changed.notify_all();
        let (value, failed) = (state.value, state.failure.is_some());
        let (due, pending) = std::mem::take(&mut state.listeners).into_iter().partition(|(v, _)| failed || *v <= value);
        state.listeners = pending;
        let due: Vec<(u64, Listener)> = due;
        due.into_iter().map(|(_, listener)| listener).collect()
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
            self.settle(&mut state)
        };
        due.into_iter().for_each(|listener| listener());
        Ok(())
    }

    fn fail(&self, cause: Failure) {
        let due = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(cause);
            self.settle(&mut state)
        };
        due.into_iter().for_each(|listener| listener());
    }

    fn poll(&self, value: u64) -> Result<bool, Failure> {
        let state = self.state.lock();
        match &state.failure {
            _ if state.value >= value => Ok(true),
            Some(cause) => Err(Arc::clone(cause)),
            None => Ok(false),
        }
    }

    fn subscribe(&self, value: u64, listener: Listener) {
        let mut state = self.state.lock();
        if state.value >= value || state.failure.is_some() {
            drop(state);
            listener();
        } else {
            state.listeners.push((value, listener));
        }
    }

    fn wait_blocking(&self, value: u64, timeout: Option<Duration>) -> Result<(), WaitError> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut state = self.state.lock();
        loop {
            if state.value >= value {
                return Ok(());
            }
            if let Some(cause) = &state.failure {
                return Err(WaitError::Failed(Arc::clone(cause)));
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    let timed_out = self.changed.wait_until(&mut state, deadline).timed_out();
                    if timed_out && state.value < value && state.failure.is_none() {
                        let timeout = timeout.unwrap_or_default();
                        return Err(WaitError::Timeout { value, current: state.value, timeout });
                    }
                }
            }
        }
    }

    async fn wait(&self, value: u64) -> Result<(), WaitError> {
        let (sender, receiver) = oneshot::channel();
        // A receiver that was dropped no longer waits; its send may fail.
        self.subscribe(value, Box::new(move || drop(sender.send(()))));
        receiver.await.ok();
        match self.poll(value) {
            Ok(_) => Ok(()),
            Err(cause) => Err(WaitError::Failed(cause)),
        }
    }
}

/// Blocks until every point is reached. An empty list is reached.
///
/// # Errors
/// The first [`WaitError::Failed`] in list order, or [`WaitError::Timeout`] for the point that was late.
pub fn wait_all(points: &[TimelinePoint], timeout: Option<Duration>) -> Result<(), WaitError> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    for point in points {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        point.semaphore.wait_blocking(point.value, left).map_err(|e| match (e, timeout) {
            (WaitError::Timeout { value, current, .. }, Some(timeout)) => WaitError::Timeout { value, current, timeout },
            (e, _) => e,
        })?;
    }
    Ok(())
}

/// Blocks until one of the points is reached; returns its index. An empty list returns `Ok(None)` at once.
///
/// # Errors
/// [`WaitError::Failed`] when a point fails before any is reached, [`WaitError::Timeout`].
pub fn wait_any(points: &[TimelinePoint], timeout: Option<Duration>) -> Result<Option<usize>, WaitError> {
    let Some(first) = points.first() else { return Ok(None) };
    let (sender, receiver) = std::sync::mpsc::channel();
    for (index, point) in points.iter().enumerate() {
        let sender = sender.clone();
        point.semaphore.subscribe(point.value, Box::new(move || drop(sender.send(index))));
    }
    let index = match timeout {
        None => receiver.recv().ok(),
        Some(limit) => receiver.recv_timeout(limit).ok(),
    };
    match index {
        Some(index) => match points[index].semaphore.poll(points[index].value) {
            Ok(_) => Ok(Some(index)),
            Err(cause) => Err(WaitError::Failed(cause)),
        },
        None => Err(WaitError::Timeout {
            value: first.value,
            current: first.semaphore.query().unwrap_or_default(),
            timeout: timeout.unwrap_or_default(),
        }),
    }
}
