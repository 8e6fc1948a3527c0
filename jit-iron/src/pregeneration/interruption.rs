//! Ctrl-C: nothing partial is left.
//!
//! The first SIGINT or SIGTERM lets kernels in hand be finished and starts no further one. The second ends the process, but never
//! while the files of a kernel are being put in place. Signals are blocked in every thread and taken by one that waits for
//! them, which needs no handler and so no unsafe code.

use nix::sys::signal::{SigSet, Signal};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Whether somebody wants the run to end.
#[derive(Debug, Default)]
pub struct Interruption {
    requested: AtomicBool,
    /// Read by those who write kernels, written by whoever ends the process.
    writing: RwLock<()>,
}

impl Interruption {
    /// Watches the signals of this process. To be called before other threads are started, because these inherit that the
    /// signals are blocked; so do child processes, which have to be ended by other means.
    ///
    /// # Errors
    /// What the system said.
    pub fn watch() -> std::io::Result<Arc<Self>> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        let this = Arc::new(Self::default());
        let watched = Arc::clone(&this);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            while let Ok(signal) = signals.wait() {
                if watched.request() {
                    eprintln!("interrupted: finishing the kernels in hand; once more to stop at once");
                    continue;
                }
                let _writing = watched.writing.write();
                // What a shell reports of a process that a signal ended.
                std::process::exit(128 + signal as i32);
            }
        })?;
        Ok(this)
    }

    /// Asks the run to end; whether this is the first time.
    pub fn request(&self) -> bool {
        !self.requested.swap(true, SeqCst)
    }

    /// Whether the run has to end.
    pub fn requested(&self) -> bool {
        self.requested.load(SeqCst)
    }

    /// Does something that the end of the process must not cut in two.
    pub fn uninterrupted<T>(&self, action: impl FnOnce() -> T) -> T {
        let _writing = self.writing.read();
        action()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_told_from_the_second() {
        let interruption = Interruption::default();
        assert!(!interruption.requested());
        assert!(interruption.request());
        assert!(interruption.requested());
        assert!(!interruption.request());
        assert_eq!(interruption.uninterrupted(|| 7), 7);
    }
}
