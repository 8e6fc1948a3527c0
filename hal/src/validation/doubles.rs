//! A device of doubles that records what reaches it. Addresses are made up; no commands run.

use crate::error::{DeviceError, SubmitError};
use crate::mock::{MockBuffer, MockDevice, MockQueue};
use crate::queue::Submission;
use crate::semaphore::TimelineSemaphore;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What reached the doubles, and whether they are lost.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) submissions: Mutex<Vec<Submission>>,
    pub(super) loss: Mutex<Option<String>>,
}

impl Log {
    fn alive(&self) -> Result<(), DeviceError> {
        self.loss.lock().clone().map_or(Ok(()), |cause| Err(DeviceError::Lost(cause)))
    }
}

fn buffer(size: usize, address: u64) -> MockBuffer {
    let mut buffer = MockBuffer::with_memory(size);
    buffer.expect_device_address().return_const(address);
    // A range outside is a call that was not expected.
    buffer.expect_flush().withf(move |range| range.end <= size).returning(|_| Ok(()));
    buffer.expect_invalidate().withf(move |range| range.end <= size).returning(|_| Ok(()));
    buffer
}

fn queue(log: &Arc<Log>) -> MockQueue {
    let (submit, flush, wait, idle) = (log.clone(), log.clone(), log.clone(), log.clone());
    let mut queue = MockQueue::new();
    queue.expect_submit().returning(move |submission| {
        submit.alive().map_err(SubmitError::Device)?;
        submit.submissions.lock().push(submission);
        Ok(())
    });
    queue.expect_flush().returning(move || flush.alive());
    queue.expect_wait_idle().returning(move |_| wait.alive());
    queue.expect_idle().returning(move || idle.alive());
    queue
}

/// The device of `uri`, and what reaches it. Every import is of the memory at the same address.
pub(super) fn device(uri: &str) -> (Arc<MockDevice>, Arc<Log>) {
    let log = Arc::<Log>::default();
    let mut device = MockDevice::identified(uri);
    device.load_kernels();
    let (alive, next) = (Arc::clone(&log), AtomicU64::new(0x1000));
    device.expect_allocate().returning(move |params| {
        alive.alive()?;
        Ok(Arc::new(buffer(params.size, next.fetch_add(0x1000, Ordering::Relaxed))))
    });
    device.expect_import().returning(|memory| Ok(Arc::new(buffer(memory.span().length(), 0x100_0000))));
    let queues = Arc::clone(&log);
    device.expect_create_queue().returning(move || Ok(Arc::new(queue(&queues))));
    device.expect_create_semaphore().returning(|initial| Ok(Arc::new(TimelineSemaphore::new(initial))));
    (Arc::new(device), log)
}
