//! The thread of a queue.

use super::QueueBackend;
use super::in_flight::InFlight;
use super::state::{Core, Step};
use crate::error::DeviceError;
use crate::host_function::panic_text;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs submissions until the queue closes.
pub(super) fn work<E: QueueBackend>(core: &Arc<Core>, backend: &E) {
    let mut scratch = E::Scratch::default();
    let mut batch = VecDeque::new();
    loop {
        match core.next(backend.batch_limit(), &mut batch) {
            Step::Close => return,
            Step::Fail(cause) => batch.drain(..).for_each(|submission| submission.fail(Arc::clone(&cause))),
            Step::Run => run(backend, &mut scratch, &mut batch),
        }
    }
}

/// Runs one batch and leaves it empty.
fn run<E: QueueBackend>(backend: &E, scratch: &mut E::Scratch, batch: &mut VecDeque<InFlight>) {
    let handed_over = batch.len();
    let result = catch_unwind(AssertUnwindSafe(|| backend.run(scratch, batch)));
    if let Err(panic) = result {
        *scratch = E::Scratch::default();
        let reason = format!("the driver of {} panicked: {}", backend.name(), panic_text(&*panic));
        tracing::error!("{reason}");
        let cause = Arc::new(DeviceError::Execution(reason));
        batch.drain(..).for_each(|submission| submission.fail(Arc::clone(&cause)));
        return;
    }
    if batch.len() == handed_over
        && let Some(submission) = batch.pop_front()
    {
        let reason = format!("the driver of {} did not run the submission", backend.name());
        submission.fail(Arc::new(DeviceError::Execution(reason)));
    }
    batch.drain(..).for_each(InFlight::put_back);
}
