//! The device as the engine of its queues: it runs one submission at a time.

use crate::device::DeviceShared;
use crate::execution::{self, Scratch};
use aie_hal::error::DeviceError;
use aie_hal::submission_queue::{Engine, Work};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

impl Engine for DeviceShared {
    type Scratch = Scratch;

    fn name(&self) -> &str {
        self.name()
    }

    fn lost(&self) -> Option<DeviceError> {
        self.lost()
    }

    fn count_submission(&self) {
        self.counters.submissions.fetch_add(1, Ordering::Relaxed);
    }

    fn run(&self, scratch: &mut Scratch, batch: &mut VecDeque<Work>) {
        while let Some(work) = batch.pop_front() {
            // A barrier between semaphores does not wait for the array.
            let result = match work.list() {
                Some(list) => execution::execute(self, scratch, list.commands(), work.bindings()),
                None => Ok(()),
            };
            work.finish(result);
        }
    }
}

#[cfg(test)]
mod tests;
