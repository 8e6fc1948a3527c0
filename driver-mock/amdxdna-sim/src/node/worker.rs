//! The thread of a device's array, which does work in the order in which it was given.

use crate::reentry::spawn;
use nix::errno::Errno;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

type Work = Box<dyn FnOnce() + Send>;

/// The work of a device, and the thread that does it; it starts with the first.
#[derive(Default)]
pub(super) struct Worker {
    state: Mutex<Order>,
    wake: Condvar,
}

#[derive(Default)]
struct Order {
    work: VecDeque<Work>,
    has_thread: bool,
    stopped: bool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.state.lock();
        f.debug_struct("Worker").field("waiting", &order.work.len()).field("stopped", &order.stopped).finish()
    }
}

impl Worker {
    /// Adds work.
    ///
    /// # Errors
    /// ENOMEM without a thread.
    pub(super) fn push(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
        let mut order = self.state.lock();
        order.work.push_back(Box::new(work));
        if !order.has_thread {
            let worker = self.clone();
            spawn("amdxdna-sim", move || worker.run()).map_err(|_| Errno::ENOMEM)?;
            order.has_thread = true;
        }
        self.wake.notify_one();
        Ok(())
    }

    fn run(&self) {
        loop {
            let work = {
                let mut order = self.state.lock();
                loop {
                    if order.stopped {
                        return;
                    }
                    match order.work.pop_front() {
                        Some(work) => break work,
                        None => self.wake.wait(&mut order),
                    }
                }
            };
            work();
        }
    }

    /// Ends the thread, after the work that it is at.
    pub(super) fn stop(&self) {
        let left = {
            let mut order = self.state.lock();
            order.stopped = true;
            std::mem::take(&mut order.work)
        };
        self.wake.notify_all();
        // What it refers to may have locks of its own.
        drop(left);
    }
}
