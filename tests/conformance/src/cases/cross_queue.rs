//! Several queues of one device.

use crate::expect;
use crate::kernels::TestKernel;
use crate::rig::{Context, PATIENCE, PAUSE, at, contents, finished, reached, record, signalling, submit_to, whole};
use aie_hal::{BindingTable, DeviceError, Failure, Queue, Submission};
use std::sync::Arc;
use std::thread;

/// A semaphore orders the work of two queues, a hundred times to and fro on the same data.
pub fn semaphores_order_queues(context: &Context) {
    let rig = context.fresh();
    let other = rig.device.create_queue().expect("a second queue");
    let buffer = rig.zeroed(1024);
    let add = rig.load(&TestKernel::Add8(1));
    let double = rig.load(&TestKernel::Mix(2));
    let one = record(|list| list.dispatch(&add, vec![whole(&buffer), whole(&buffer)]));
    let two = record(|list| list.dispatch(&double, vec![whole(&buffer), whole(&buffer), whole(&buffer)]));
    let order = rig.semaphore();
    let mut expected = 0u8;
    for step in 0..100 {
        let even = step % 2 == 0;
        let (queue, list) = if even { (&rig.queue, &one) } else { (&other, &two) };
        expected = if even { expected.wrapping_add(1) } else { expected.wrapping_mul(3) };
        let waits = if step == 0 { vec![] } else { vec![at(&order, step)] };
        let submission = Submission { waits, ..signalling(list, vec![at(&order, step + 1)]) };
        queue.submit(submission).expect("a valid submission");
    }
    reached(&at(&order, 100));
    expect::bytes("buffer after 100 turns", &contents(&buffer), &[expected; 1024]);
}

/// A queue may wait for what another queue is asked to do only later.
pub fn waiting_before_the_other_queue_signals(context: &Context) {
    let rig = context.fresh();
    let other = rig.device.create_queue().expect("a second queue");
    let [a, b] = [0; 2].map(|_| rig.zeroed(256));
    let (middle, done) = (rig.semaphore(), rig.semaphore());
    let consume = record(|list| list.copy(whole(&a), whole(&b)));
    let waits = vec![at(&middle, 1)];
    other.submit(Submission { waits, ..signalling(&consume, vec![at(&done, 1)]) }).expect("a valid submission");
    thread::sleep(PAUSE);
    expect::equal("consumer before the producer is submitted", done.query(), Ok(0));
    let produce = record(|list| list.fill(&[4], whole(&a)));
    rig.queue.submit(signalling(&produce, vec![at(&middle, 1)])).expect("a valid submission");
    reached(&at(&done, 1));
    expect::bytes("consumer's target", &contents(&b), &[4; 256]);
}

pub fn failures_cross_queues(context: &Context) {
    let rig = context.fresh();
    let other = rig.device.create_queue().expect("a second queue");
    let (go, middle, done) = (rig.semaphore(), rig.semaphore(), rig.semaphore());
    let order = |wait, signal| Submission { waits: vec![wait], signals: vec![signal], ..Submission::default() };
    rig.queue.submit(order(at(&go, 1), at(&middle, 1))).expect("a valid submission");
    other.submit(order(at(&middle, 1), at(&done, 1))).expect("a valid submission");
    let cause: Failure = Arc::new(DeviceError::Execution("before both".into()));
    go.fail(Arc::clone(&cause));
    expect::equal("the end of the second queue's work", finished(&at(&done, 1)), Err(cause));
}

/// A queue whose work waits does not hold up another.
pub fn a_waiting_queue_blocks_no_other(context: &Context) {
    let rig = context.fresh();
    let other = rig.device.create_queue().expect("a second queue");
    let (go, done) = (rig.semaphore(), rig.semaphore());
    let blocked = Submission { waits: vec![at(&go, 1)], signals: vec![at(&done, 1)], ..Submission::default() };
    rig.queue.submit(blocked).expect("a valid submission");
    let buffer = rig.zeroed(256);
    let list = record(|list| list.fill(&[2], whole(&buffer)));
    reached(&submit_to(&other, rig.semaphore(), &list, BindingTable::default()));
    expect::equal("waiting for the other queue", other.wait_idle(Some(PATIENCE)), Ok(()));
    expect::equal("the first queue's work", done.query(), Ok(0));
    go.signal(1).expect("an increase");
    reached(&at(&done, 1));
}

/// One queue fans out to others, and their results are joined.
pub fn fan_out_and_join(context: &Context) {
    let rig = context.fresh();
    let others: Vec<Arc<dyn Queue>> = (0..3).map(|_| rig.device.create_queue().expect("a queue")).collect();
    let source = rig.zeroed(512);
    let targets = [0; 3].map(|_| rig.zeroed(512));
    let sum = rig.zeroed(512);
    let (start, parts, done) = (rig.semaphore(), [0; 3].map(|_| rig.semaphore()), rig.semaphore());
    let mix = rig.load(&TestKernel::Mix(3));
    let join = record(|list| {
        list.dispatch(&mix, vec![whole(&targets[0]), whole(&targets[1]), whole(&targets[2]), whole(&sum)])
    });
    let waits = parts.iter().map(|part| at(part, 1)).collect();
    rig.queue.submit(Submission { waits, ..signalling(&join, vec![at(&done, 1)]) }).expect("a valid submission");
    for (index, queue) in others.iter().enumerate() {
        let add = rig.load(&TestKernel::Add8(index as u8 + 1));
        let list = record(|list| list.dispatch(&add, vec![whole(&source), whole(&targets[index])]));
        let waits = vec![at(&start, 1)];
        let submission = Submission { waits, ..signalling(&list, vec![at(&parts[index], 1)]) };
        queue.submit(submission).expect("a valid submission");
    }
    let fill = record(|list| list.fill(&[10], whole(&source)));
    rig.queue.submit(signalling(&fill, vec![at(&start, 1)])).expect("a valid submission");
    reached(&at(&done, 1));
    // 1 * 11 + 2 * 12 + 3 * 13
    expect::bytes("joined result", &contents(&sum), &[74; 512]);
}

/// As many queues as the device offers work at the same time, each with right results.
pub fn all_queues_work_at_once(context: &Context) {
    let rig = context.fresh();
    let mut queues = vec![Arc::clone(&rig.queue)];
    queues.extend((1..rig.device.limits().queues).map(|_| rig.device.create_queue().expect("a queue")));
    let add = rig.load(&TestKernel::Add8(1));
    let work: Vec<_> = queues
        .iter()
        .zip(0u8..)
        .map(|(queue, seed)| {
            let buffer = rig.buffer(&[seed; 256]);
            let list = record(|list| list.dispatch(&add, vec![whole(&buffer), whole(&buffer)]));
            let order = rig.semaphore();
            for step in 0..20 {
                let waits = if step == 0 { vec![] } else { vec![at(&order, step)] };
                let submission = Submission { waits, ..signalling(&list, vec![at(&order, step + 1)]) };
                queue.submit(submission).expect("a valid submission");
            }
            (order, buffer)
        })
        .collect();
    for ((order, buffer), seed) in work.iter().zip(0u8..) {
        reached(&at(order, 20));
        expect::bytes("a queue's buffer", &contents(buffer), &[seed + 20; 256]);
    }
}

/// The queues of threads that each wait for their own work do not disturb each other.
pub fn threads_with_queues_of_their_own(context: &Context) {
    let rig = context.fresh();
    let add = rig.load(&TestKernel::Add8(3));
    thread::scope(|scope| {
        for seed in 0..4u8 {
            let (rig, add) = (&rig, &add);
            scope.spawn(move || {
                let queue = rig.device.create_queue().expect("a queue");
                let buffer = rig.buffer(&[seed; 128]);
                let list = record(|list| list.dispatch(add, vec![whole(&buffer), whole(&buffer)]));
                for _ in 0..40 {
                    reached(&submit_to(&queue, rig.semaphore(), &list, BindingTable::default()));
                }
                expect::bytes("a thread's buffer", &contents(&buffer), &[seed + 120; 128]);
            });
        }
    });
}
