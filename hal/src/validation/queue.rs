//! The queue: submissions.

use super::Owner;
use super::list::Checked;
use super::object::ValidatedSemaphore;
use crate::command_list::{BindingTable, CommandList};
use crate::error::{DeviceError, SubmitError};
use crate::queue::{Queue, Submission, TimelinePoint};
use crate::semaphore::MAX_VALUE;
use async_trait::async_trait;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ValidatedQueue {
    pub(super) inner: Arc<dyn Queue>,
    pub(super) owner: Arc<Owner>,
}

type CheckResult = Result<Checked, SubmitError>;

impl ValidatedQueue {
    /// The points on the driver's own semaphores.
    fn points(&self, what: &str, points: &[TimelinePoint]) -> Result<Vec<TimelinePoint>, SubmitError> {
        let point = |(index, point): (usize, &TimelinePoint)| {
            let wrapper = (&*point.semaphore as &dyn Any)
                .downcast_ref::<ValidatedSemaphore>()
                .filter(|wrapper| Arc::ptr_eq(&wrapper.owner, &self.owner))
                .ok_or_else(|| {
                    SubmitError::Semaphores(format!(
                        "the semaphore of {what} {index} was not made by {}; wait for it on the host, or use a semaphore of this \
                         device",
                        self.owner.name()
                    ))
                })?;
            if point.value > MAX_VALUE {
                return Err(SubmitError::Semaphores(format!(
                    "{what} {index} asks for value {}; the largest value is {MAX_VALUE}",
                    point.value
                )));
            }
            Ok(TimelinePoint { semaphore: Arc::clone(&wrapper.inner), value: point.value })
        };
        points.iter().enumerate().map(point).collect()
    }

    /// Values that could never be signalled. A semaphore that failed already is no error: it stays failed.
    fn check_signals(&self, signals: &[TimelinePoint]) -> Result<(), SubmitError> {
        for (index, signal) in signals.iter().enumerate() {
            if let Ok(current) = signal.semaphore.query()
                && signal.value <= current
            {
                return Err(SubmitError::Semaphores(format!(
                    "signal {index} would set the semaphore to {}, it is at {current} already; signal at least {}",
                    signal.value,
                    current.saturating_add(1)
                )));
            }
            let address = |point: &TimelinePoint| Arc::as_ptr(&point.semaphore).cast::<()>();
            if let Some(earlier) = signals[..index].iter().position(|other| address(other) == address(signal)) {
                return Err(SubmitError::Semaphores(format!(
                    "signals {earlier} and {index} are of the same semaphore; keep the one with the larger value"
                )));
            }
        }
        Ok(())
    }

    /// The list and bindings on the driver's own objects.
    fn work(&self, submission: &Submission) -> Result<(Option<Arc<CommandList>>, BindingTable), SubmitError> {
        let Some(list) = &submission.commands else {
            let given = submission.bindings.bindings.len();
            return match given {
                0 => Ok((None, BindingTable::default())),
                _ => Err(SubmitError::Binding(format!(
                    "{given} bindings given, but no command list; give the list or leave out the bindings"
                ))),
            };
        };
        let bind = |checked: &CheckResult| {
            let checked = checked.as_ref().map_err(SubmitError::clone)?;
            Ok((Some(Arc::clone(&checked.list)), checked.bind(&self.owner, &submission.bindings)?))
        };
        match list.derived::<CheckResult>(|| Checked::new(list)) {
            Some(checked) => bind(checked),
            None => bind(&Checked::new(list)),
        }
    }
}

#[async_trait]
impl Queue for ValidatedQueue {
    fn submit(&self, submission: Submission) -> Result<(), SubmitError> {
        self.owner.alive()?;
        let waits = self.points("wait", &submission.waits)?;
        let signals = self.points("signal", &submission.signals)?;
        self.check_signals(&signals)?;
        let (commands, bindings) = self.work(&submission)?;
        match self.inner.submit(Submission { waits, commands, bindings, signals }) {
            Err(SubmitError::Device(error)) => Ok(self.owner.observe(Err(error))?),
            other => other,
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.owner.alive()?;
        self.owner.observe(self.inner.flush())
    }

    fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), DeviceError> {
        self.owner.observe(self.inner.wait_idle(timeout))
    }

    async fn idle(&self) -> Result<(), DeviceError> {
        let result = self.inner.idle().await;
        self.owner.observe(result)
    }
}
