//! Waiting for a future in a thread, with a time limit.
//!
//! Every wait of this crate is a future. Callers that have no executor, such as those from C, block on it here, so that there is one
//! way in which waits end.

use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Where a thread sleeps. Not the standard library's parking: a program's last waits may come when the thread's local data is gone, and
/// the standard library has no current thread then.
#[derive(Default)]
struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Sleeper {
    /// Until somebody wakes it, or the deadline; whether somebody did.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        let mut woken = self.woken.lock();
        let asleep = |woken: &mut bool| !*woken;
        match deadline {
            Some(deadline) => _ = self.changed.wait_while_until(&mut woken, asleep, deadline),
            None => self.changed.wait_while(&mut woken, asleep),
        }
        std::mem::take(&mut *woken)
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}

/// Runs `future` in this thread, which sleeps while the future waits. `None` when `timeout` passes first: the future is dropped, and with
/// it the wait, but nothing that it waited for. A future that is ready at once is ready within any time.
///
/// ```
/// use aie_hal::{Semaphore, TimelineSemaphore, block_on};
/// use std::time::Duration;
///
/// let semaphore = TimelineSemaphore::new(1);
/// assert_eq!(block_on(semaphore.wait(1), None), Some(Ok(())));
/// assert_eq!(block_on(semaphore.wait(2), Some(Duration::from_millis(1))), None);
/// ```
pub fn block_on<F: Future>(future: F, timeout: Option<Duration>) -> Option<F::Output> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !sleeper.sleep(deadline) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::channel::oneshot;
    use std::future::{pending, poll_fn, ready};
    use std::thread;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn what_is_ready_needs_no_time() {
        assert_eq!(block_on(ready(7), Some(Duration::ZERO)), Some(7));
        assert_eq!(block_on(pending::<()>(), Some(Duration::ZERO)), None);
        assert_eq!(block_on(ready(7), Some(Duration::MAX)), Some(7));
    }

    #[test]
    fn another_thread_ends_the_wait() {
        for _ in 0..100 {
            let (sender, receiver) = oneshot::channel();
            let other = thread::spawn(move || sender.send(7).unwrap());
            assert_eq!(block_on(receiver, LONG), Some(Ok(7)));
            other.join().unwrap();
        }
    }

    #[test]
    fn waking_for_nothing_ends_no_wait() {
        let mut polls = 0;
        let stubborn = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls < 4 { Poll::Pending } else { Poll::Ready(polls) }
        });
        assert_eq!(block_on(stubborn, LONG), Some(4));
    }

    #[test]
    fn a_wait_that_timed_out_ends_nothing_else() {
        let (sender, mut receiver) = oneshot::channel::<()>();
        assert_eq!(block_on(&mut receiver, Some(Duration::from_millis(5))), None);
        sender.send(()).unwrap();
        assert_eq!(block_on(receiver, LONG), Some(Ok(())));
    }
}
