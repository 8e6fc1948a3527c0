//! Submissions on one queue: when they start, what they signal, how they end.

use crate::expect::{self, expect_match};
use crate::kernels::TestKernel;
use crate::rig::{
    Context, PATIENCE, PAUSE, Rig, at, contents, finished, nothing, reached, record, signalling, submit_to, whole,
};
use aie_hal::host_function::from_fn;
use aie_hal::{BindingTable, CommandList, DeviceError, Failure, Semaphore, Submission};
use futures::executor::block_on;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A list whose one host call notes `number`.
fn noting(rig: &Rig, notes: &Arc<Mutex<Vec<u64>>>, number: u64) -> Arc<CommandList> {
    let (notes, target) = (Arc::clone(notes), rig.zeroed(4));
    let note = from_fn("note", 0, move |_, _| {
        notes.lock().expect("the notes").push(number);
        Ok(())
    });
    record(|list| list.host_call(&note, vec![], whole(&target)))
}

fn noted(notes: &Arc<Mutex<Vec<u64>>>) -> Vec<u64> {
    notes.lock().expect("the notes").clone()
}

fn waiting(
    list: &Arc<CommandList>,
    wait: (&Arc<dyn Semaphore>, u64),
    signal: (&Arc<dyn Semaphore>, u64),
) -> Submission {
    Submission { waits: vec![at(wait.0, wait.1)], ..signalling(list, vec![at(signal.0, signal.1)]) }
}

fn submit(rig: &Rig, submission: Submission) {
    rig.queue.submit(submission).unwrap_or_else(|e| panic!("expected that the submission is accepted, found: {e}"));
}

/// A submission without anything is accepted and ends.
pub fn nothing_can_be_submitted(context: &Context) {
    let rig = context.fresh();
    expect::equal("submitting nothing", rig.queue.submit(Submission::default()), Ok(()));
    expect::equal("waiting for it", rig.queue.wait_idle(Some(PATIENCE)), Ok(()));
}

/// Without a list a submission is a barrier between semaphores.
pub fn without_commands_it_orders_semaphores(context: &Context) {
    let rig = context.fresh();
    let [a, b, c] = [(); 3].map(|()| rig.semaphore());
    submit(&rig, Submission { waits: vec![at(&a, 1), at(&b, 1)], signals: vec![at(&c, 5)], ..Submission::default() });
    a.signal(1).expect("an increase");
    thread::sleep(PAUSE);
    expect::equal("c before b is signalled", c.query(), Ok(0));
    b.signal(1).expect("an increase");
    reached(&at(&c, 5));
    expect::equal("c", c.query(), Ok(5));
}

/// A list without commands signals too.
pub fn empty_lists_signal(context: &Context) {
    let rig = context.shared();
    rig.run(&nothing());
}

/// A submission may wait for a value that is signalled later, by the host.
pub fn waiting_before_the_signal(context: &Context) {
    let rig = context.fresh();
    let (go, done, buffer) = (rig.semaphore(), rig.semaphore(), rig.zeroed(64));
    submit(&rig, waiting(&record(|list| list.fill(&[7], whole(&buffer))), (&go, 3), (&done, 1)));
    go.signal(2).expect("an increase");
    thread::sleep(PAUSE);
    expect::equal("done before the value", done.query(), Ok(0));
    expect::bytes("buffer before the value", &contents(&buffer), &[0; 64]);
    go.signal(3).expect("an increase");
    reached(&at(&done, 1));
    expect::bytes("buffer", &contents(&buffer), &[7; 64]);
}

/// A submission that waits for a value that is reached starts at once; the same point may be named twice.
pub fn waiting_for_reached_values(context: &Context) {
    let rig = context.shared();
    let (go, done, buffer) = (rig.semaphore(), rig.semaphore(), rig.zeroed(64));
    go.signal(9).expect("an increase");
    let list = record(|list| list.fill(&[7], whole(&buffer)));
    submit(
        rig,
        Submission { waits: vec![at(&go, 9), at(&go, 9), at(&go, 1)], ..signalling(&list, vec![at(&done, 1)]) },
    );
    reached(&at(&done, 1));
    expect::bytes("buffer", &contents(&buffer), &[7; 64]);
}

/// A submission that waits does not hold up later ones of its queue.
pub fn waiting_does_not_block_later_ones(context: &Context) {
    let rig = context.fresh();
    let (go, first) = (rig.semaphore(), rig.semaphore());
    let notes = Arc::default();
    submit(&rig, waiting(&noting(&rig, &notes, 1), (&go, 1), (&first, 1)));
    let second = rig.submit(&noting(&rig, &notes, 2), BindingTable::default());
    reached(&second);
    expect::equal("first while it waits", first.query(), Ok(0));
    go.signal(1).expect("an increase");
    reached(&at(&first, 1));
    expect::equal("order", noted(&notes), vec![2, 1]);
}

/// Submissions that are ready start in the order of submission.
pub fn ready_ones_start_in_order(context: &Context) {
    let rig = context.fresh();
    let notes = Arc::default();
    let points: Vec<_> = (0..200).map(|i| rig.submit(&noting(&rig, &notes, i), BindingTable::default())).collect();
    points.iter().for_each(reached);
    expect::equal("order", noted(&notes), (0..200).collect());
}

/// Submissions that wait for increasing values run in the order of the values, whatever the order of submission.
pub fn semaphores_order_submissions(context: &Context) {
    let rig = context.fresh();
    let order = rig.semaphore();
    let notes = Arc::default();
    for step in (1..=100).rev() {
        submit(&rig, waiting(&noting(&rig, &notes, step), (&order, step), (&order, step + 1)));
    }
    order.signal(1).expect("an increase");
    reached(&at(&order, 101));
    expect::equal("order", noted(&notes), (1..=100).collect());
}

/// One submission may signal several semaphores; the host sees each.
pub fn several_semaphores_are_signalled(context: &Context) {
    let rig = context.shared();
    let all: Vec<Arc<dyn Semaphore>> = (0..10).map(|_| rig.semaphore()).collect();
    let buffer = rig.zeroed(64);
    let list = record(|list| list.fill(&[1], whole(&buffer)));
    submit(rig, signalling(&list, all.iter().zip(1..).map(|(s, value)| at(s, value)).collect()));
    for (semaphore, value) in all.iter().zip(1..) {
        reached(&at(semaphore, value));
        expect::equal("value", semaphore.query(), Ok(value));
    }
}

/// When a signal arrives, the writes of the submission are visible.
pub fn signals_come_after_the_writes(context: &Context) {
    let rig = context.shared();
    let slow = rig.load(&TestKernel::Pause(20));
    for round in 0..5 {
        let (source, target) = (rig.buffer(&[round + 1; 64]), rig.zeroed(64));
        let list = record(|list| list.dispatch(&slow, vec![whole(&source), whole(&target)]));
        reached(&rig.submit(&list, BindingTable::default()));
        expect::bytes("target", &contents(&target), &[round + 1; 64]);
    }
}

/// Submitting returns while the work is still going on.
pub fn submitting_does_not_wait(context: &Context) {
    let rig = context.fresh();
    let (go, buffer) = (rig.semaphore(), rig.zeroed(64));
    let list = record(|list| list.fill(&[1], whole(&buffer)));
    let all: Vec<Arc<dyn Semaphore>> = (0..100).map(|_| rig.semaphore()).collect();
    all.iter().for_each(|done| submit(&rig, waiting(&list, (&go, 1), (done, 1))));
    expect::bytes("buffer while all wait", &contents(&buffer), &[0; 64]);
    go.signal(1).expect("an increase");
    all.iter().for_each(|done| reached(&at(done, 1)));
    expect::bytes("buffer", &contents(&buffer), &[1; 64]);
}

/// A failed wait fails the signals with the same cause, and nothing runs.
pub fn failed_waits_fail_the_signals(context: &Context) {
    let rig = context.fresh();
    let (go, done, buffer) = (rig.semaphore(), rig.semaphore(), rig.zeroed(64));
    let cause: Failure = Arc::new(DeviceError::Execution("the host gave up".into()));
    submit(&rig, waiting(&record(|list| list.fill(&[7], whole(&buffer))), (&go, 1), (&done, 1)));
    go.fail(Arc::clone(&cause));
    expect::equal("signal semaphore", finished(&at(&done, 1)), Err(cause));
    expect::bytes("buffer", &contents(&buffer), &[0; 64]);
    rig.run(&record(|list| list.fill(&[8], whole(&buffer))));
    expect::bytes("buffer after later work", &contents(&buffer), &[8; 64]);
}

/// A failure travels through a chain of submissions with its first cause.
pub fn failures_travel_along_chains(context: &Context) {
    let rig = context.fresh();
    let links: Vec<Arc<dyn Semaphore>> = (0..20).map(|_| rig.semaphore()).collect();
    let list = nothing();
    for pair in links.windows(2).rev() {
        submit(&rig, waiting(&list, (&pair[0], 1), (&pair[1], 1)));
    }
    let cause: Failure = Arc::new(DeviceError::Execution("at the first link".into()));
    links[0].fail(Arc::clone(&cause));
    expect::equal("last link", finished(&at(&links[19], 1)), Err(cause));
}

/// Waiting for an idle queue waits for what was submitted before.
pub fn idle_waits_for_the_work(context: &Context) {
    let rig = context.fresh();
    let slow = rig.load(&TestKernel::Pause(30));
    let (source, target) = (rig.buffer(&[5; 64]), rig.zeroed(64));
    let list = record(|list| list.dispatch(&slow, vec![whole(&source), whole(&target)]));
    let blocking = rig.submit(&list, BindingTable::default());
    expect::equal("blocking wait", rig.queue.wait_idle(Some(PATIENCE)), Ok(()));
    expect::equal("its submission", blocking.semaphore.query(), Ok(1));
    let asynchronous = rig.submit(&list, BindingTable::default());
    expect::equal("asynchronous wait", block_on(rig.queue.idle()), Ok(()));
    expect::equal("its submission", asynchronous.semaphore.query(), Ok(1));
    expect::bytes("target", &contents(&target), &[5; 64]);
}

/// Waiting for an idle queue times out while work is pending, cancels nothing, and succeeds later.
pub fn idle_times_out(context: &Context) {
    let rig = context.fresh();
    let (go, done) = (rig.semaphore(), rig.semaphore());
    submit(&rig, waiting(&nothing(), (&go, 1), (&done, 1)));
    let start = Instant::now();
    let limit = Duration::from_millis(30);
    expect_match!("waiting", rig.queue.wait_idle(Some(limit)), Err(DeviceError::Timeout(_)));
    expect::at_least("time waited", start.elapsed(), limit);
    expect::equal("done", done.query(), Ok(0));
    go.signal(1).expect("an increase");
    expect::equal("waiting after the signal", rig.queue.wait_idle(Some(PATIENCE)), Ok(()));
    expect::equal("done", done.query(), Ok(1));
}

/// An idle queue, also one whose work failed, is idle.
pub fn failed_work_leaves_the_queue_idle(context: &Context) {
    let rig = context.fresh();
    expect::equal("waiting for a new queue", rig.queue.wait_idle(Some(Duration::ZERO)), Ok(()));
    let (go, done) = (rig.semaphore(), rig.semaphore());
    submit(&rig, waiting(&nothing(), (&go, 1), (&done, 1)));
    go.fail(Arc::new(DeviceError::Execution("given up".into())));
    expect::equal("waiting for failed work", rig.queue.wait_idle(Some(PATIENCE)), Ok(()));
}

/// Flushing sends what is gathered; it is allowed at any time.
pub fn flushing_is_always_allowed(context: &Context) {
    let rig = context.shared();
    expect::equal("flushing an idle queue", rig.queue.flush(), Ok(()));
    let buffer = rig.zeroed(64);
    let point = rig.submit(&record(|list| list.fill(&[3], whole(&buffer))), BindingTable::default());
    expect::equal("flushing after a submission", rig.queue.flush(), Ok(()));
    reached(&point);
    expect::bytes("buffer", &contents(&buffer), &[3; 64]);
}

/// Dropping a queue fails work that has not started, so that no one waits forever.
pub fn dropping_a_queue_fails_pending_work(context: &Context) {
    let Rig { device, queue } = context.fresh();
    let go = device.create_semaphore(0).expect("a semaphore");
    let done = device.create_semaphore(0).expect("a semaphore");
    queue.submit(waiting(&nothing(), (&go, 1), (&done, 1))).expect("a valid submission");
    drop(queue);
    let cause = finished(&at(&done, 1));
    expect::holds("the pending submission failed", &cause, cause.is_err());
    expect::equal("a signal that comes too late", go.signal(1), Ok(()));
}

/// Dropping a queue lets work that runs come to its end.
pub fn dropping_a_queue_waits_for_running_work(context: &Context) {
    let rig = context.fresh();
    let started = rig.semaphore();
    let (source, target, signal) = (rig.buffer(&[6; 64]), rig.zeroed(64), Arc::clone(&started));
    let slow = from_fn("slow", 1, move |inputs, output| {
        signal.signal(1).expect("an increase");
        thread::sleep(Duration::from_millis(50));
        output.copy_from_slice(inputs[0]);
        Ok(())
    });
    let done = rig.semaphore();
    let list = record(|list| list.host_call(&slow, vec![whole(&source)], whole(&target)));
    let point = submit_to(&rig.queue, done, &list, BindingTable::default());
    reached(&at(&started, 1));
    let Rig { device, queue } = rig;
    drop(queue);
    expect::equal("the running submission", point.semaphore.query(), Ok(1));
    expect::bytes("target", &contents(&target), &[6; 64]);
    drop(device);
}

/// Work continues when the caller's handles to list, buffers and executable are gone.
pub fn submissions_hold_what_they_use(context: &Context) {
    let rig = context.fresh();
    let (go, done, target) = (rig.semaphore(), rig.semaphore(), rig.zeroed(64));
    {
        let source = rig.buffer(&[1; 64]);
        let add = rig.load(&TestKernel::Add8(4));
        let list = record(|list| list.dispatch(&add, vec![whole(&source), whole(&target)]));
        submit(&rig, waiting(&list, (&go, 1), (&done, 1)));
    }
    let _others: Vec<_> = (0..16).map(|_| rig.buffer(&[9; 64])).collect();
    go.signal(1).expect("an increase");
    reached(&at(&done, 1));
    expect::bytes("target", &contents(&target), &[5; 64]);
}

/// Threads may submit to one queue at the same time.
pub fn threads_submit_at_the_same_time(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    thread::scope(|scope| {
        for seed in 0..4u8 {
            let add = &add;
            scope.spawn(move || {
                let buffer = rig.buffer(&[seed; 256]);
                let list = record(|list| list.dispatch(add, vec![whole(&buffer), whole(&buffer)]));
                for _ in 0..50 {
                    rig.run(&list);
                }
                expect::bytes("a thread's buffer", &contents(&buffer), &[seed + 50; 256]);
            });
        }
    });
}
