//! The end of the process: what the kernel driver holds for NPUs that are still open is given back.
//!
//! Devices in statics are never dropped, and llama.cpp keeps its backends in such.

use parking_lot::Mutex;
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

/// How long the end of the process waits for a call that is under way.
pub(crate) const AT_EXIT_LIMIT: Duration = Duration::from_secs(2);

/// What is closed when the process ends.
pub(crate) trait CloseAtExit: Send + Sync {
    /// Called once, by the thread that ends the process.
    fn close(&self);
}

static OPEN: Mutex<Vec<Weak<dyn CloseAtExit>>> = Mutex::new(Vec::new());

/// Remembers an open NPU.
pub(crate) fn register(npu: &Arc<dyn CloseAtExit>) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function of this library, which stays loaded as long as it is registered.
        if unsafe { libc::atexit(close_all) } != 0 {
            tracing::debug!("what is open at the end of the process is left to the kernel");
        }
    });
    let mut open = OPEN.lock();
    open.retain(|npu| npu.strong_count() > 0);
    open.push(Arc::downgrade(npu));
}

extern "C" fn close_all() {
    // A panic must not cross into C, and at this point nobody could do anything about one.
    let _ = std::panic::catch_unwind(|| {
        let Some(open) = OPEN.try_lock_for(AT_EXIT_LIMIT).map(|open| open.clone()) else { return };
        open.iter().filter_map(Weak::upgrade).for_each(|npu| npu.close());
    });
}
