//! The one wrapper around every function that ggml calls.
//!
//! A panic that leaves an `extern "C"` function aborts the process. Here it ends as a logged message and a value ggml
//! understands: "not supported", "failed", null.
//!
//! What uses a device also ends so in a forked child of the process that opened it ([`guard_device`]). Such a child has neither the
//! threads nor the contexts of the devices, and when it ends by `exit` it runs the same exit handlers and destructors as its parent.

use crate::config::log;
use aie_hal::OwningProcess;
use aie_hal::host_function::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Runs `body`; on a panic logs it under `function`'s name and returns `fallback`.
///
/// State is shared only through locks that do not poison, and every update under them is complete before anything that can
/// panic, so continuing after a panic is sound.
pub fn guard<R>(function: &str, fallback: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            let message = panic_text(&*payload);
            log::error(&format!("{function}: internal error: {message}; the call is reported as failed"));
            fallback
        }
    }
}

/// The process that made the devices.
static OWNER: OnceLock<OwningProcess> = OnceLock::new();

/// Remembers that the calling process makes the devices.
pub fn own_devices() {
    OWNER.get_or_init(OwningProcess::current);
}

/// The process that made the devices, if that is another one: this one is a forked child of it.
pub fn parent() -> Option<OwningProcess> {
    OWNER.get().copied().filter(|owner| !owner.is_current())
}

/// As [`guard`], for what uses a device: in a forked child `body` does not run, and nothing is logged, as loggers have locks and threads too.
pub fn guard_device<R>(function: &str, fallback: R, body: impl FnOnce() -> R) -> R {
    if parent().is_some() { fallback } else { guard(function, fallback, body) }
}

#[cfg(test)]
mod tests {
    use super::guard;

    #[test]
    fn values_pass() {
        assert_eq!(guard("f", 0, || 7), 7);
    }

    #[test]
    fn panics_become_the_fallback() {
        assert!(!guard("f", false, || panic!("on purpose")));
        assert_eq!(guard("f", 3, || panic!("{} on purpose", 1)), 3);
    }
}
