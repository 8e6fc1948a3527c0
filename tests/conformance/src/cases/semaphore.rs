//! Timeline semaphores by themselves: values, waits, time limits, failures.

use crate::expect;
use crate::rig::{Context, PATIENCE, PAUSE};
use aie_hal::semaphore::MAX_VALUE;
use aie_hal::{DeviceError, Failure, Semaphore, WaitError};
use futures::executor::block_on;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn cause(text: &str) -> Failure {
    Arc::new(DeviceError::Execution(text.into()))
}

fn semaphores<const N: usize>(context: &Context) -> [Arc<dyn Semaphore>; N] {
    [(); N].map(|()| context.shared().semaphore())
}

/// A semaphore starts where it was asked to.
pub fn starts_at_its_initial_value(context: &Context) {
    for initial in [0, 1, 1 << 40, MAX_VALUE - 1] {
        let semaphore = context.shared().device.create_semaphore(initial).expect("a semaphore");
        expect::equal("value", semaphore.query(), Ok(initial));
        expect::equal("its initial value is reached", semaphore.poll(initial), Ok(true));
        expect::equal("the next is not", semaphore.poll(initial + 1), Ok(false));
    }
}

/// Signals raise the value, also by more than one.
pub fn signals_raise_the_value(context: &Context) {
    let [semaphore] = semaphores(context);
    for value in [1, 2, 7, 1 << 33, MAX_VALUE] {
        expect::equal("signal", semaphore.signal(value), Ok(()));
        expect::equal("value", semaphore.query(), Ok(value));
    }
}

/// A signal that does not increase the value is refused and changes nothing.
pub fn signals_have_to_increase(context: &Context) {
    let [semaphore] = semaphores(context);
    semaphore.signal(5).expect("an increase");
    for value in [5, 4, 0, u64::MAX] {
        expect::equal("signal", semaphore.signal(value), Err(WaitError::NotMonotone { current: 5, value }));
    }
    expect::equal("value", semaphore.query(), Ok(5));
    expect::equal("a later increase", semaphore.signal(6), Ok(()));
}

/// Waiting for a value that is reached returns at once, whatever the limit.
pub fn waiting_for_a_reached_value_returns(context: &Context) {
    let [semaphore] = semaphores(context);
    semaphore.signal(3).expect("an increase");
    for value in [0, 1, 3] {
        for timeout in [None, Some(Duration::ZERO), Some(PATIENCE)] {
            expect::equal("wait", semaphore.wait_blocking(value, timeout), Ok(()));
        }
        expect::equal("asynchronous wait", block_on(semaphore.wait(value)), Ok(()));
    }
}

/// A wait ends with its limit, not before, and says what it waited for. The semaphore is none the worse.
pub fn waits_time_out(context: &Context) {
    let [semaphore] = semaphores(context);
    semaphore.signal(2).expect("an increase");
    let start = Instant::now();
    let timeout = Duration::from_millis(40);
    let found = semaphore.wait_blocking(3, Some(timeout));
    expect::equal("wait", found, Err(WaitError::Timeout { value: 3, current: 2, timeout }));
    expect::at_least("time waited", start.elapsed(), timeout);
    expect::equal("value", semaphore.query(), Ok(2));
    expect::equal("a signal after that", semaphore.signal(3), Ok(()));
    expect::equal("a wait after that", semaphore.wait_blocking(3, Some(timeout)), Ok(()));
}

/// A limit of zero asks without waiting.
pub fn zero_timeout_does_not_wait(context: &Context) {
    let [semaphore] = semaphores(context);
    let start = Instant::now();
    let found = semaphore.wait_blocking(1, Some(Duration::ZERO));
    expect::equal("wait", found, Err(WaitError::Timeout { value: 1, current: 0, timeout: Duration::ZERO }));
    expect::at_most("time taken", start.elapsed(), Duration::from_secs(5));
}

/// A signal of another thread ends a wait.
pub fn signals_wake_waiters(context: &Context) {
    let [semaphore] = semaphores(context);
    thread::scope(|scope| {
        let waiters: Vec<_> = (1..=8)
            .map(|value| {
                scope.spawn({
                    let semaphore = Arc::clone(&semaphore);
                    move || semaphore.wait_blocking(value, Some(PATIENCE))
                })
            })
            .collect();
        thread::sleep(PAUSE);
        semaphore.signal(3).expect("an increase");
        semaphore.signal(8).expect("an increase");
        for waiter in waiters {
            expect::equal("a waiter", waiter.join().expect("the waiter's thread"), Ok(()));
        }
    });
}

/// A failure wakes everybody who waits, with its cause.
pub fn failure_wakes_waiters(context: &Context) {
    let [semaphore] = semaphores(context);
    thread::scope(|scope| {
        let waiters: Vec<_> = (1..=4)
            .map(|value| {
                scope.spawn({
                    let semaphore = Arc::clone(&semaphore);
                    move || match value % 2 {
                        0 => semaphore.wait_blocking(value, None),
                        _ => block_on(semaphore.wait(value)),
                    }
                })
            })
            .collect();
        thread::sleep(PAUSE);
        semaphore.fail(cause("first"));
        for waiter in waiters {
            let found = waiter.join().expect("the waiter's thread");
            expect::equal("a waiter", found, Err(WaitError::Failed(cause("first"))));
        }
    });
}

/// Only the first cause is kept, for ever and for everybody.
pub fn the_first_cause_is_kept(context: &Context) {
    let [semaphore] = semaphores(context);
    semaphore.fail(cause("first"));
    semaphore.fail(cause("second"));
    semaphore.fail(Arc::new(DeviceError::Lost("third".into())));
    let failed = || WaitError::Failed(cause("first"));
    expect::equal("query", semaphore.query(), Err(cause("first")));
    expect::equal("poll", semaphore.poll(1), Err(cause("first")));
    expect::equal("wait", semaphore.wait_blocking(1, None), Err(failed()));
    expect::equal("asynchronous wait", block_on(semaphore.wait(1)), Err(failed()));
    expect::equal("signal", semaphore.signal(1), Err(failed()));
    expect::equal("query after the signal", semaphore.query(), Err(cause("first")));
}

/// A value reached before the failure stays reached.
pub fn reached_values_outlive_a_failure(context: &Context) {
    let [semaphore] = semaphores(context);
    semaphore.signal(2).expect("an increase");
    semaphore.fail(cause("late"));
    expect::equal("poll of a reached value", semaphore.poll(2), Ok(true));
    expect::equal("wait for a reached value", semaphore.wait_blocking(2, None), Ok(()));
    expect::equal("asynchronous wait for it", block_on(semaphore.wait(1)), Ok(()));
    expect::equal("wait for a later one", semaphore.wait_blocking(3, None), Err(WaitError::Failed(cause("late"))));
}

/// A failed semaphore does not fail its neighbours.
pub fn failures_stay_on_their_semaphore(context: &Context) {
    let [failed, other] = semaphores(context);
    failed.fail(cause("mine"));
    expect::equal("signal of another", other.signal(1), Ok(()));
    expect::equal("value of another", other.query(), Ok(1));
}

/// Listeners are called once: at once when the value is reached, else when it is.
pub fn listeners_are_called_once(context: &Context) {
    let [semaphore] = semaphores(context);
    let calls = Arc::new(AtomicUsize::new(0));
    let listener = || {
        let calls = Arc::clone(&calls);
        Box::new(move || {
            calls.fetch_add(1, Ordering::SeqCst);
        })
    };
    semaphore.subscribe(0, listener());
    expect::equal("calls for a reached value", calls.load(Ordering::SeqCst), 1);
    semaphore.subscribe(2, listener());
    semaphore.subscribe(9, listener());
    semaphore.signal(1).expect("an increase");
    expect::equal("calls below the value", calls.load(Ordering::SeqCst), 1);
    semaphore.signal(3).expect("an increase");
    semaphore.signal(4).expect("an increase");
    expect::equal("calls after the value", calls.load(Ordering::SeqCst), 2);
    semaphore.fail(cause("end"));
    expect::equal("calls after a failure", calls.load(Ordering::SeqCst), 3);
    semaphore.subscribe(100, listener());
    expect::equal("calls for a failed semaphore", calls.load(Ordering::SeqCst), 4);
}

/// A listener may use the semaphore it listens to.
pub fn listeners_may_signal(context: &Context) {
    let [semaphore] = semaphores(context);
    let inner = Arc::clone(&semaphore);
    semaphore.subscribe(1, Box::new(move || drop(inner.signal(2))));
    semaphore.signal(1).expect("an increase");
    expect::equal("value", semaphore.query(), Ok(2));
}

/// Asynchronous waits resolve with the signal of another thread, many on one semaphore.
pub fn asynchronous_waits_resolve(context: &Context) {
    let [semaphore] = semaphores(context);
    let waits: Vec<_> = (1..=20).map(|value| semaphore.wait(value)).collect();
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(PAUSE);
            (1..=20).for_each(|value| semaphore.signal(value).expect("an increase"));
        });
        block_on(futures::future::join_all(waits))
    });
    expect::equal("results", found, vec![Ok(()); 20]);
}

/// An asynchronous wait that is dropped takes nothing with it.
pub fn asynchronous_waits_may_be_dropped(context: &Context) {
    let [semaphore] = semaphores(context);
    let mut wait = semaphore.wait(1);
    let waker = futures::task::noop_waker();
    let pending = wait.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending();
    expect::holds("the wait is pending", &semaphore, pending);
    drop(wait);
    expect::equal("a signal after that", semaphore.signal(1), Ok(()));
    expect::equal("another wait", block_on(semaphore.wait(1)), Ok(()));
}

/// Two threads take turns on two semaphores.
pub fn threads_take_turns(context: &Context) {
    let [ping, pong] = semaphores(context);
    const ROUNDS: u64 = 500;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                ping.wait_blocking(round, Some(PATIENCE)).expect("ping");
                pong.signal(round).expect("an increase");
            }
        });
        for round in 1..=ROUNDS {
            ping.signal(round).expect("an increase");
            pong.wait_blocking(round, Some(PATIENCE)).expect("pong");
        }
    });
    expect::equal("rounds", (ping.query(), pong.query()), (Ok(ROUNDS), Ok(ROUNDS)));
}

/// A device makes as many semaphores as asked for.
pub fn thousands_can_exist(context: &Context) {
    let all: Vec<Arc<dyn Semaphore>> = (0..5000).map(|_| context.shared().semaphore()).collect();
    all.iter().zip(1..).for_each(|(semaphore, value)| semaphore.signal(value).expect("an increase"));
    let wrong = all.iter().zip(1..).filter(|(semaphore, value)| semaphore.query() != Ok(*value)).count();
    expect::equal("semaphores with a wrong value", wrong, 0);
}
