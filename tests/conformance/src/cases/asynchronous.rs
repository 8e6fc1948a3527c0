//! Waiting without blocking: many dispatches at once, on several devices; waits that are given up, and what becomes of the work.

use crate::expect;
use crate::kernels::TestKernel;
use crate::rig::{Context, PATIENCE, PAUSE, Rig, at, contents, reached, record, whole};
use aie_hal::{Buffer, DeviceError, Semaphore, Submission, TimelinePoint, WaitError, block_on};
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use std::future::Future;
use std::sync::Arc;
use std::thread;

/// Dispatches that are under way at once.
const MANY: u8 = 24;

/// A dispatch that adds a number to every byte of a buffer of zeros, and where it ends.
struct Work {
    number: u8,
    buffer: Arc<dyn Buffer>,
    done: TimelinePoint,
}

impl Work {
    /// Submits it, to start when `gate` is at 1.
    fn submit(rig: &Rig, number: u8, gate: Option<&Arc<dyn Semaphore>>) -> Self {
        let (kernel, buffer) = (rig.load(&TestKernel::Add8(number)), rig.zeroed(512));
        let list = record(|list| list.dispatch(&kernel, vec![whole(&buffer), whole(&buffer)]));
        let done = at(&rig.semaphore(), 1);
        let waits = gate.map(|gate| at(gate, 1)).into_iter().collect();
        let (commands, signals) = (Some(list), vec![done.clone()]);
        let submission = Submission { waits, commands, signals, ..Submission::default() };
        rig.queue.submit(submission).unwrap_or_else(|e| panic!("expected that the work is accepted, found: {e}"));
        Self { number, buffer, done }
    }

    async fn ended(&self) -> Result<(), WaitError> {
        self.done.semaphore.wait(self.done.value).await
    }

    /// Expects its result.
    fn check(&self) {
        expect::bytes(&format!("result of dispatch {}", self.number), &contents(&self.buffer), &[self.number; 512]);
    }
}

/// What `future` gives, in the time that anything has to end in.
fn in_time<F: Future>(future: F) -> F::Output {
    block_on(future, Some(PATIENCE)).unwrap_or_else(|| panic!("expected an end within {PATIENCE:?}"))
}

/// One thread awaits many dispatches of one queue.
pub fn many_dispatches_are_awaited_together(context: &Context) {
    let rig = context.fresh();
    let works: Vec<Work> = (1..=MANY).map(|number| Work::submit(&rig, number, None)).collect();
    let ends = in_time(join_all(works.iter().map(Work::ended)));
    expect::equal("ends", ends, vec![Ok(()); usize::from(MANY)]);
    works.iter().for_each(Work::check);
    expect::equal("the queue", in_time(rig.queue.idle()), Ok(()));
}

/// One thread awaits the dispatches of several devices, whose queues work at the same time.
pub fn devices_are_awaited_together(context: &Context) {
    let rigs: Vec<Rig> = context.open(&["devices=2"]).into_iter().map(Rig::new).collect();
    expect::equal("devices opened", rigs.len(), 2);
    let work = |number: u8| Work::submit(&rigs[usize::from(number) % 2], number, None);
    let works: Vec<Work> = (1..=MANY).map(work).collect();
    let ends = in_time(join_all(works.iter().map(Work::ended)));
    expect::equal("ends", ends, vec![Ok(()); usize::from(MANY)]);
    works.iter().for_each(Work::check);
    expect::equal("the queues", in_time(join_all(rigs.iter().map(|rig| rig.queue.idle()))), vec![Ok(()); 2]);
    for rig in &rigs {
        expect::equal("dispatches", rig.device.counters().dispatches, u64::from(MANY) / 2);
    }
}

/// Who awaits several dispatches learns of each when it ends, not in the order in which they were asked for.
pub fn waits_end_in_the_order_of_the_work(context: &Context) {
    let rig = context.fresh();
    let gates: Vec<_> = (0..8).map(|_| rig.semaphore()).collect();
    let works: Vec<Work> = (1..).zip(&gates).map(|(number, gate)| Work::submit(&rig, number, Some(gate))).collect();
    let end = |work| Work::ended(work).map(|end| (work.number, end));
    let mut ends: FuturesUnordered<_> = works.iter().map(end).collect();
    for (work, gate) in works.iter().zip(&gates).rev() {
        gate.signal(1).expect("an increase");
        expect::equal("the next end", in_time(ends.next()), Some((work.number, Ok(()))));
        work.check();
    }
    expect::holds("no end is left", &ends.len(), ends.is_empty());
}

/// Of many waits the one whose work fails ends with the cause, and the others end well.
pub fn a_failed_wait_ends_no_other(context: &Context) {
    let rig = context.fresh();
    let gate = rig.semaphore();
    let failing = MANY / 2;
    let work = |number| Work::submit(&rig, number, (number == failing).then_some(&gate));
    let works: Vec<Work> = (1..=MANY).map(work).collect();
    let cause = Arc::new(DeviceError::Execution("the gate fell".into()));
    gate.fail(Arc::clone(&cause));
    let ends = in_time(join_all(works.iter().map(Work::ended)));
    for (work, end) in works.iter().zip(ends) {
        match work.number == failing {
            true => expect::equal("the failing one", end, Err(WaitError::Failed(Arc::clone(&cause)))),
            false => expect::equal("another one", end, Ok(())),
        }
    }
    works.iter().filter(|work| work.number != failing).for_each(Work::check);
}

/// Giving up a wait leaves the work as it is: it runs, and others that wait for it are woken.
pub fn a_cancelled_wait_cancels_no_work(context: &Context) {
    let rig = context.fresh();
    let gate = rig.semaphore();
    let work = Work::submit(&rig, 1, Some(&gate));
    let mut other = Box::pin(work.ended());
    expect::equal("another wait, before", (&mut other).now_or_never(), None);
    for _ in 0..MANY {
        // Begun, and dropped.
        expect::equal("a wait for work that cannot start", work.ended().now_or_never(), None);
        expect::equal("a wait for its queue", rig.queue.idle().now_or_never(), None);
    }
    gate.signal(1).expect("an increase");
    expect::equal("another wait, after", in_time(other), Ok(()));
    expect::equal("the queue", in_time(rig.queue.idle()), Ok(()));
    work.check();
}

/// A wait that took too long is over, its work is not.
pub fn a_wait_that_timed_out_can_be_waited_for_again(context: &Context) {
    let rig = context.fresh();
    let gate = rig.semaphore();
    let works = [1, 2].map(|number| Work::submit(&rig, number, Some(&gate)));
    let both = || join_all(works.iter().map(Work::ended));
    expect::equal("awaiting both", block_on(both(), Some(PAUSE)), None);
    let late = works[0].done.semaphore.wait_blocking(1, Some(PAUSE));
    expect::equal("the blocking wait", late, Err(WaitError::Timeout { value: 1, current: 0, timeout: PAUSE }));
    gate.signal(1).expect("an increase");
    expect::equal("awaiting both again", in_time(both()), vec![Ok(()); 2]);
    works.iter().for_each(|work| reached(&work.done));
    works.iter().for_each(Work::check);
}

/// Several threads await one point, blocking and not.
pub fn threads_await_the_same_point(context: &Context) {
    let rig = context.fresh();
    let gate = rig.semaphore();
    let work = Work::submit(&rig, 3, Some(&gate));
    thread::scope(|scope| {
        let waits: Vec<_> = (0..8)
            .map(|index| {
                let work = &work;
                scope.spawn(move || match index % 2 {
                    0 => in_time(work.ended()),
                    _ => work.done.semaphore.wait_blocking(1, Some(PATIENCE)),
                })
            })
            .collect();
        thread::sleep(PAUSE);
        gate.signal(1).expect("an increase");
        for wait in waits {
            expect::equal("a wait", wait.join().expect("the waiter's thread"), Ok(()));
        }
    });
    work.check();
}
