//! The thread of a queue.

use super::Engine;
use super::state::{Core, Step};
use super::work::Work;
use crate::error::DeviceError;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs submissions until the queue closes.
pub(super) fn work<E: Engine>(core: &Arc<Core>, engine: &E) {
    let mut scratch = E::Scratch::default();
    let mut batch = VecDeque::new();
    loop {
        match core.next(engine.gather(), &mut batch) {
            Step::Close => return,
            Step::Fail(cause) => batch.drain(..).for_each(|work| work.fail(Arc::clone(&cause))),
            Step::Run => run(engine, &mut scratch, &mut batch),
        }
    }
}

/// Runs one batch and leaves it empty.
fn run<E: Engine>(engine: &E, scratch: &mut E::Scratch, batch: &mut VecDeque<Work>) {
    let handed_over = batch.len();
    let result = catch_unwind(AssertUnwindSafe(|| engine.run(scratch, batch)));
    if let Err(panic) = result {
        *scratch = E::Scratch::default();
        let reason = format!("the driver of {} panicked: {}", engine.name(), text(&*panic));
        tracing::error!("{reason}");
        let cause = Arc::new(DeviceError::Execution(reason));
        batch.drain(..).for_each(|work| work.fail(Arc::clone(&cause)));
        return;
    }
    if batch.len() == handed_over
        && let Some(work) = batch.pop_front()
    {
        let reason = format!("the driver of {} did not run the submission", engine.name());
        work.fail(Arc::new(DeviceError::Execution(reason)));
    }
    batch.drain(..).for_each(Work::put_back);
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
