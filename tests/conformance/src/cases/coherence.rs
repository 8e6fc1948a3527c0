//! When host and device see each other's writes.

use crate::expect;
use crate::kernels::TestKernel;
use crate::rig::{Context, Rig, contents, host_view, part, pattern, record, signalling, store, whole};
use crate::rig::{at, reached};
use aie_hal::Buffer;
use std::sync::Arc;

/// More than any page or cache line, so that a flush of one half cannot take the other along.
const HALF: usize = 64 * 1024;

fn fill_on_device(rig: &Rig, buffer: &Arc<dyn Buffer>, byte: u8) {
    rig.run(&record(|list| list.fill(&[byte], whole(buffer))));
}

/// Flushed host writes reach the device, in every mode.
pub fn flushed_writes_reach_the_device(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(2 * HALF);
    for seed in 0..3 {
        store(&buffer, 0, &pattern(2 * HALF, seed));
        expect::bytes("device view", &rig.device_view(&buffer), &pattern(2 * HALF, seed));
    }
}

/// Device writes reach the host after an invalidate, in every mode.
pub fn invalidated_writes_reach_the_host(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(2 * HALF);
    for byte in [1, 2, 3] {
        fill_on_device(rig, &buffer, byte);
        expect::bytes("host view after an invalidate", &contents(&buffer), &vec![byte; 2 * HALF]);
    }
}

/// A flush followed by an invalidate keeps what the host wrote.
pub fn flush_then_invalidate_keeps_host_writes(context: &Context) {
    let buffer = context.shared().buffer(&pattern(HALF, 1));
    expect::bytes("host view", &contents(&buffer), &pattern(HALF, 1));
}

/// Without a flush the device sees old data: forgetting one shows.
pub fn missing_flush_gives_old_data(context: &Context) {
    let rig = context.shared();
    let buffer = rig.buffer(&pattern(HALF, 1));
    buffer.write(0, &pattern(HALF, 2)).expect("a write inside");
    expect::bytes("device view without a flush", &rig.device_view(&buffer), &pattern(HALF, 1));
    buffer.flush(0..HALF).expect("a flush inside");
    expect::bytes("device view after the flush", &rig.device_view(&buffer), &pattern(HALF, 2));
}

/// Without an invalidate the host sees old data: forgetting one shows.
pub fn missing_invalidate_gives_old_data(context: &Context) {
    let rig = context.shared();
    let buffer = rig.buffer(&pattern(HALF, 1));
    fill_on_device(rig, &buffer, 9);
    expect::bytes("host view without an invalidate", &host_view(&buffer), &pattern(HALF, 1));
    expect::bytes("host view after it", &contents(&buffer), &vec![9; HALF]);
}

/// A flush makes its range visible and no other.
pub fn flush_covers_its_range(context: &Context) {
    let rig = context.shared();
    let buffer = rig.buffer(&vec![1; 2 * HALF]);
    buffer.write(0, &vec![2; 2 * HALF]).expect("a write inside");
    buffer.flush(HALF..2 * HALF).expect("a flush inside");
    let view = rig.device_view(&buffer);
    expect::bytes("half without a flush", &view[..HALF], &vec![1; HALF]);
    expect::bytes("half with a flush", &view[HALF..], &vec![2; HALF]);
}

/// An invalidate makes its range visible and no other.
pub fn invalidate_covers_its_range(context: &Context) {
    let rig = context.shared();
    let buffer = rig.buffer(&vec![1; 2 * HALF]);
    fill_on_device(rig, &buffer, 2);
    buffer.invalidate(0..HALF).expect("an invalidate inside");
    let view = host_view(&buffer);
    expect::bytes("half with an invalidate", &view[..HALF], &vec![2; HALF]);
    expect::bytes("half without", &view[HALF..], &vec![1; HALF]);
}

/// An invalidate of one half leaves host writes to the other half alone.
pub fn invalidate_leaves_other_host_writes(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(2 * HALF);
    rig.run(&record(|list| list.fill(&[5], part(&buffer, 0, HALF))));
    buffer.write(HALF, &vec![6; HALF]).expect("a write inside");
    buffer.invalidate(0..HALF).expect("an invalidate inside");
    let view = host_view(&buffer);
    expect::bytes("half written by the device", &view[..HALF], &vec![5; HALF]);
    expect::bytes("half written by the host", &view[HALF..], &vec![6; HALF]);
}

/// A flush of one half leaves device writes to the other half alone.
pub fn flush_leaves_other_device_writes(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(2 * HALF);
    rig.run(&record(|list| list.fill(&[5], part(&buffer, 0, HALF))));
    store(&buffer, HALF, &vec![6; HALF]);
    let view = rig.device_view(&buffer);
    expect::bytes("half written by the device", &view[..HALF], &vec![5; HALF]);
    expect::bytes("half written by the host", &view[HALF..], &vec![6; HALF]);
}

/// On a coherent device host writes need no flush.
pub fn coherent_memory_needs_no_flush(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(HALF);
    buffer.write(0, &pattern(HALF, 1)).expect("a write inside");
    expect::bytes("device view without a flush", &rig.device_view(&buffer), &pattern(HALF, 1));
}

/// On a coherent device the host needs no invalidate.
pub fn coherent_memory_needs_no_invalidate(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(HALF);
    fill_on_device(rig, &buffer, 9);
    expect::bytes("host view without an invalidate", &host_view(&buffer), &vec![9; HALF]);
}

/// Between commands of one list the queue keeps transfers, dispatches and host calls consistent.
pub fn commands_of_a_list_see_each_other(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let host = TestKernel::Add8(10).kernel();
    let [a, b, c, d] = [0; 4].map(|_| rig.zeroed(HALF));
    rig.run(&record(|list| {
        list.fill(&[1], whole(&a))?.barrier();
        list.dispatch(&add, vec![whole(&a), whole(&b)])?.barrier();
        list.host_call(&host, vec![whole(&b)], whole(&c))?.barrier();
        list.dispatch(&add, vec![whole(&c), whole(&d)])?.barrier();
        list.host_call(&host, vec![whole(&d)], whole(&a))?.barrier();
        list.copy(whole(&a), whole(&b))
    }));
    for (name, buffer, byte) in [("a", &a, 23), ("b", &b, 23), ("c", &c, 12), ("d", &d, 13)] {
        expect::bytes(name, &contents(buffer), &vec![byte; HALF]);
    }
}

/// Between submissions ordered by a semaphore the host has nothing to do either.
pub fn submissions_see_each_other(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let host = TestKernel::Add8(10).kernel();
    let [a, b] = [0; 2].map(|_| rig.zeroed(HALF));
    let on_array = record(|list| list.dispatch(&add, vec![whole(&a), whole(&b)]));
    let on_host = record(|list| list.host_call(&host, vec![whole(&b)], whole(&a)));
    let order = rig.semaphore();
    for step in 0..6 {
        let list = if step % 2 == 0 { &on_array } else { &on_host };
        let waits = if step == 0 { vec![] } else { vec![at(&order, step)] };
        let submission = signalling(list, vec![at(&order, step + 1)]);
        rig.queue.submit(aie_hal::Submission { waits, ..submission }).expect("a valid submission");
    }
    reached(&at(&order, 6));
    expect::bytes("a", &contents(&a), &vec![33; HALF]);
    expect::bytes("b", &contents(&b), &vec![23; HALF]);
}
