//! Waking those who wait: something has completed, was submitted, or was signalled.
//!
//! There is one counter for the process. Who waits looks at it, looks at what he waits for, and sleeps until the counter has moved;
//! so one wait can be for things of several devices.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

static COUNT: Mutex<u64> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

/// Something has happened.
pub(super) fn notify() {
    *COUNT.lock() += 1;
    CHANGED.notify_all();
}

/// How much has happened so far.
pub(super) fn count() -> u64 {
    *COUNT.lock()
}

/// Sleeps until more than `seen` has happened, or until `deadline`; whether there was time.
pub(super) fn wait(seen: u64, deadline: Option<Instant>) -> bool {
    let mut count = COUNT.lock();
    while *count == seen {
        match deadline {
            None => CHANGED.wait(&mut count),
            Some(deadline) if CHANGED.wait_until(&mut count, deadline).timed_out() => return *count != seen,
            Some(_) => {}
        }
    }
    true
}
