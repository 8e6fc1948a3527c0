//! The array of one NPU, as the logical devices that are opened on it share it.

use super::pace::Pace;
use crate::context_planner::{ContextHost, ContextPlanner};
use crate::device::Limits;
use crate::error::DeviceError;
use crate::loaded_pdi::PdiTable;
use crate::process::OwningProcess;
use crate::submission_queue::QueueHandle;
use parking_lot::{Mutex, MutexGuard};
use std::fmt::{Debug, Formatter};
use std::sync::OnceLock;
use std::time::Duration;

/// What only one thread at a time may do: plan contexts and run chains.
pub(super) struct Schedule<C: ContextHost> {
    pub(super) planner: ContextPlanner<C>,
    /// The context that ran last.
    pub(super) active: Option<C::Context>,
}

/// Contexts, loaded PDIs, and whether the NPU is lost. Destroys the contexts when dropped by the process that made it.
pub struct Array<C: ContextHost> {
    /// Makes the contexts.
    pub contexts: C,
    /// The execution lock.
    schedule: Mutex<Schedule<C>>,
    pub(super) pdis: Mutex<PdiTable<C::Memory>>,
    lost: OnceLock<DeviceError>,
    queues: Mutex<Vec<QueueHandle>>,
    owner: OwningProcess,
    pub(super) pace: Pace,
}

impl<C: ContextHost> Debug for Array<C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("lost", &self.lost.get()).finish_non_exhaustive()
    }
}

impl<C: ContextHost> Array<C> {
    /// An array without contexts. Of `limits` those of contexts and their PDIs count.
    pub fn new(contexts: C, limits: &Limits) -> Self {
        let schedule = Mutex::new(Schedule { planner: ContextPlanner::new(limits), active: None });
        Self {
            contexts,
            schedule,
            pdis: Mutex::default(),
            lost: OnceLock::new(),
            queues: Mutex::default(),
            owner: OwningProcess::current(),
            pace: Pace::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Schedule<C>> {
        self.schedule.lock()
    }

    /// Why the NPU is lost, if it is.
    pub fn lost(&self) -> Option<DeviceError> {
        self.lost.get().cloned()
    }

    /// Whether the NPU can be used.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] with the first cause.
    pub fn alive(&self) -> Result<(), DeviceError> {
        self.lost().map_or(Ok(()), Err)
    }

    /// Loses the NPU and wakes its queues; returns the first cause.
    pub fn lose(&self, cause: String) -> DeviceError {
        let first = self.lost.get_or_init(|| DeviceError::Lost(cause)).clone();
        let queues = self.queues.lock().clone();
        queues.iter().for_each(QueueHandle::wake);
        first
    }

    /// Remembers a queue, to wake it when the NPU is lost.
    pub(super) fn add_queue(&self, queue: QueueHandle) {
        let mut queues = self.queues.lock();
        queues.retain(QueueHandle::is_alive);
        queues.push(queue);
    }

    /// Destroys the contexts that hold PDIs which are not loaded any more, so that their memory becomes free.
    pub fn discard_unloaded(&self) {
        if let Err(cause) = self.lock().planner.discard_unloaded(&self.contexts) {
            tracing::warn!("contexts with unloaded PDIs: {cause}");
        }
    }

    /// Destroys all contexts, when the execution lock is acquired within `limit`.
    pub fn clear(&self, limit: Duration) {
        if let Some(mut schedule) = self.schedule.try_lock_for(limit) {
            Self::destroy_contexts(&mut schedule, &self.contexts);
        }
    }

    fn destroy_contexts(schedule: &mut Schedule<C>, contexts: &C) {
        if let Err(cause) = schedule.planner.clear(contexts) {
            tracing::debug!("contexts: {cause}");
        }
    }
}

impl<C: ContextHost> Drop for Array<C> {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        Self::destroy_contexts(self.schedule.get_mut(), &self.contexts);
    }
}
