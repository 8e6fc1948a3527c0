//! Values, failures, waiting, listeners.

use super::*;
use futures::executor::block_on;
use futures::{FutureExt as _, future};
use rstest::rstest;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

const SHORT: Option<Duration> = Some(Duration::from_millis(20));
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn semaphore(initial: u64) -> Arc<TimelineSemaphore> {
    Arc::new(TimelineSemaphore::new(initial))
}

fn cause(text: &str) -> Failure {
    Arc::new(DeviceError::Execution(text.into()))
}

fn listeners(semaphore: &TimelineSemaphore) -> usize {
    semaphore.state.lock().subscribers.len()
}

/// Takes a step on another thread once a waiter is subscribed or blocked.
fn later(
    semaphore: &Arc<TimelineSemaphore>,
    step: impl FnOnce(&TimelineSemaphore) + Send + 'static,
) -> thread::JoinHandle<()> {
    let semaphore = Arc::clone(semaphore);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(10));
        step(&semaphore);
    })
}

#[rstest]
#[case::same(5)]
#[case::lower(4)]
#[case::zero(0)]
#[case::above_maximum(u64::MAX)]
fn values_only_grow(#[case] value: u64) {
    let semaphore = semaphore(5);
    assert_eq!(semaphore.signal(value), Err(WaitError::NotMonotone { current: 5, value }));
    assert_eq!(semaphore.query(), Ok(5));
}

#[test]
fn values_may_jump_to_the_maximum() {
    let semaphore = semaphore(0);
    semaphore.signal(7).unwrap();
    semaphore.signal(MAX_VALUE).unwrap();
    assert_eq!(semaphore.query(), Ok(MAX_VALUE));
    assert!(semaphore.signal(MAX_VALUE).is_err());
}

#[test]
fn the_first_failure_stays() {
    let semaphore = semaphore(3);
    semaphore.fail(cause("first"));
    semaphore.fail(cause("second"));
    assert_eq!(semaphore.query(), Err(cause("first")));
    assert_eq!(semaphore.signal(4), Err(WaitError::Failed(cause("first"))));
    assert_eq!(semaphore.wait_blocking(4, None), Err(WaitError::Failed(cause("first"))));
    assert_eq!(block_on(semaphore.wait(4)), Err(WaitError::Failed(cause("first"))));
    assert_eq!(semaphore.poll(4), Err(cause("first")));
}

#[test]
fn what_was_reached_before_a_failure_stays_reached() {
    let semaphore = semaphore(3);
    semaphore.fail(cause("late"));
    assert_eq!(semaphore.poll(3), Ok(true));
    semaphore.wait_blocking(3, None).unwrap();
    block_on(semaphore.wait(2)).unwrap();
}

#[test]
fn a_blocked_wait_ends_with_the_signal() {
    let semaphore = semaphore(0);
    let signaller = later(&semaphore, |semaphore| [1, 3].iter().for_each(|value| semaphore.signal(*value).unwrap()));
    semaphore.wait_blocking(2, LONG).unwrap();
    signaller.join().unwrap();
}

/// Waits with a blocked thread or with a future.
fn wait(semaphore: &TimelineSemaphore, value: u64, blocking: bool) -> Result<(), WaitError> {
    if blocking { semaphore.wait_blocking(value, LONG) } else { block_on(semaphore.wait(value)) }
}

#[rstest]
fn a_wait_ends_with_the_failure(#[values(false, true)] blocking: bool) {
    let semaphore = semaphore(0);
    let signaller = later(&semaphore, |semaphore| semaphore.fail(cause("x")));
    assert_eq!(wait(&semaphore, 2, blocking), Err(WaitError::Failed(cause("x"))));
    signaller.join().unwrap();
}

#[test]
fn a_wait_that_takes_too_long_says_where_the_semaphore_is() {
    let semaphore = semaphore(1);
    let timeout = SHORT.unwrap();
    let late = WaitError::Timeout { value: 2, current: 1, timeout };
    let start = Instant::now();
    assert_eq!(semaphore.wait_blocking(2, SHORT), Err(late.clone()));
    assert!(start.elapsed() >= timeout);
    assert_eq!(listeners(&semaphore), 0);
    semaphore.signal(2).unwrap();
}

#[test]
fn no_time_at_all_is_a_poll() {
    let semaphore = semaphore(1);
    semaphore.wait_blocking(1, Some(Duration::ZERO)).unwrap();
    assert!(semaphore.wait_blocking(2, Some(Duration::ZERO)).is_err());
}

#[test]
fn a_limit_beyond_the_clock_is_none() {
    let semaphore = semaphore(1);
    semaphore.wait_blocking(1, Some(Duration::MAX)).unwrap();
    let signaller = later(&semaphore, |semaphore| semaphore.signal(2).unwrap());
    semaphore.wait_blocking(2, Some(Duration::MAX)).unwrap();
    signaller.join().unwrap();
}

#[test]
fn async_waits_resolve() {
    let semaphore = semaphore(0);
    let signaller = later(&semaphore, |semaphore| (1..=3).for_each(|value| semaphore.signal(value).unwrap()));
    let waits = (1..=3).map(|value| semaphore.wait(value));
    assert_eq!(block_on(future::join_all(waits)), [Ok(()), Ok(()), Ok(())]);
    signaller.join().unwrap();
    assert_eq!(listeners(&semaphore), 0);
}

#[test]
fn an_async_wait_that_is_dropped_is_forgotten() {
    let semaphore = semaphore(0);
    let mut wait = semaphore.wait(1);
    assert_eq!((&mut wait).now_or_never(), None);
    assert_eq!(listeners(&semaphore), 1);
    drop(wait);
    assert_eq!(listeners(&semaphore), 0);
    semaphore.signal(1).unwrap();
}

#[test]
fn listeners_are_called_once_when_due() {
    let semaphore = semaphore(1);
    let calls = Arc::new(AtomicUsize::new(0));
    let listener = |weight: usize| -> Listener {
        let calls = Arc::clone(&calls);
        Box::new(move || _ = calls.fetch_add(weight, Ordering::Relaxed))
    };
    semaphore.subscribe(1, listener(1));
    assert_eq!(calls.load(Ordering::Relaxed), 1, "reached already");
    semaphore.subscribe(2, listener(10));
    semaphore.subscribe(3, listener(100));
    let forgotten = semaphore.subscribe(2, listener(1000));
    semaphore.unsubscribe(forgotten);
    semaphore.signal(2).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 11);
    semaphore.unsubscribe(forgotten);
    semaphore.fail(cause("x"));
    semaphore.fail(cause("y"));
    assert_eq!(calls.load(Ordering::Relaxed), 111);
    semaphore.subscribe(9, listener(1));
    assert_eq!(calls.load(Ordering::Relaxed), 112, "failed already");
}

#[test]
fn listeners_may_use_the_semaphore() {
    let first = semaphore(0);
    let inner = Arc::clone(&first);
    first.subscribe(1, Box::new(move || inner.signal(2).unwrap()));
    first.signal(1).unwrap();
    assert_eq!(first.query(), Ok(2));
}

#[test]
fn threads_play_ping_pong() {
    const ROUNDS: u64 = 500;
    let semaphore = semaphore(0);
    let other = thread::spawn({
        let semaphore = Arc::clone(&semaphore);
        move || {
            for round in 0..ROUNDS {
                semaphore.wait_blocking(2 * round + 1, LONG).unwrap();
                semaphore.signal(2 * round + 2).unwrap();
            }
        }
    });
    for round in 0..ROUNDS {
        semaphore.signal(2 * round + 1).unwrap();
        semaphore.wait_blocking(2 * round + 2, LONG).unwrap();
    }
    other.join().unwrap();
    assert_eq!(semaphore.query(), Ok(2 * ROUNDS));
}
