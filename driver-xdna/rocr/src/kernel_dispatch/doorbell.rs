//! Ringing doorbells in a thread, so that one that does not return is noticed.
//!
//! In the runtimes known so far, storing to a doorbell processes everything that is pending before it returns, and waits for the
//! kernel driver without a limit.

use crate::session::Session;
use hsa_sys::*;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread. It ends when this is dropped, unless it hangs.
#[derive(Debug)]
pub(super) struct Doorbell {
    /// `None` while it is dropped.
    jobs: Option<SyncSender<(hsa_signal_t, hsa_signal_value_t)>>,
    returned: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Doorbell {
    /// Starts the thread, which keeps `session` alive.
    pub(super) fn new(session: Arc<Session>) -> io::Result<Self> {
        let (jobs, taken) = mpsc::sync_channel::<(hsa_signal_t, hsa_signal_value_t)>(1);
        let (done, returned) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("aie-doorbell".into()).spawn(move || {
            for (signal, value) in taken {
                // SAFETY: The sender holds the signal's queue until the call has returned, and for good if it does not.
                unsafe { (session.api().hsa_signal_store_screlease)(signal, value) };
                if done.send(()).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), returned, thread: Some(thread) })
    }

    /// Stores `value` to a doorbell. `false` when that has not returned within `limit`; it is not to be used again then, and
    /// neither queue nor session may be destroyed.
    pub(super) fn ring(&self, doorbell: hsa_signal_t, value: hsa_signal_value_t, limit: Duration) -> bool {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send((doorbell, value)).is_ok());
        sent && self.returned.recv_timeout(limit).is_ok()
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic, and it is not in a call: the owner of a doorbell that hangs does not drop it.
            let _ = thread.join();
        }
    }
}
