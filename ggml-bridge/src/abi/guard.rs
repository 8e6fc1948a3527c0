//! The one wrapper around every function that ggml calls.
//!
//! A panic that leaves an `extern "C"` function aborts the process. Here it ends as a logged message and a value ggml
//! understands: "not supported", "failed", null.

use crate::log;
use aie_hal::host_function::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
