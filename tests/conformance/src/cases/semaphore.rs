//! Timeline semaphores by themselves: values, waits, time limits, failures.

use crate::expect;
use crate::rig::{Context, PATIENCE, PAUSE};
use aie_hal::semaphore::MAX_VALUE;
use aie_hal::{DeviceError, Failure, Semaphore, WaitError};
use futures::executor::block_on;
use std::sync::Arc;
use std::thread;

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

/// A signal that does not increase the value is rejected and changes nothing.
pub fn signals_have_to_increase(context: &Context) {
    let [semaphore] = semaphores(context);
    semaphore.signal(5).expect("an increase");
    for value in [5, 4, 0, u64::MAX] {
        expect::equal("signal", semaphore.signal(value), Err(WaitError::NotMonotone { current: 5, value }));
    }
    expect::equal("value", semaphore.query(), Ok(5));
    expect::equal("a later increase", semaphore.signal(6), Ok(()));
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

/// A failure wakes all waiters, with its cause.
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

/// A failed semaphore does not fail its neighbours.
pub fn failures_stay_on_their_semaphore(context: &Context) {
    let [failed, other] = semaphores(context);
    failed.fail(cause("mine"));
    expect::equal("signal of another", other.signal(1), Ok(()));
    expect::equal("value of another", other.query(), Ok(1));
}

/// A device makes as many semaphores as requested.
pub fn thousands_can_exist(context: &Context) {
    let all: Vec<Arc<dyn Semaphore>> = (0..5000).map(|_| context.shared().semaphore()).collect();
    all.iter().zip(1..).for_each(|(semaphore, value)| semaphore.signal(value).expect("an increase"));
    let wrong = all.iter().zip(1..).filter(|(semaphore, value)| semaphore.query() != Ok(*value)).count();
    expect::equal("semaphores with a wrong value", wrong, 0);
}
