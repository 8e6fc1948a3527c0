//! Recording and replaying: fills, updates, copies, barriers, slots.

use crate::expect::{self, expect_match};
use crate::kernels::TestKernel;
use crate::rig::{Context, at, contents, part, pattern, reached, record, signalling, table, whole};
use aie_hal::command_list::{MAX_UPDATE_BYTES, RecordError};
use aie_hal::{Binding, BindingTable, BufferRef, CommandList, Submission};
use std::sync::Arc;

const SIZE: usize = 9000;

/// Offsets and lengths around words, cache lines and pages.
const RANGES: &[(usize, usize)] =
    &[(0, 1), (1, 1), (3, 7), (0, 4), (4, 60), (63, 2), (64, 64), (100, 1000), (4095, 2), (4096, 4096), (0, SIZE)];

/// Fills repeat patterns of 1, 2 and 4 bytes over every range that is a multiple of them, and nothing beside it.
pub fn fills_cover_their_range(context: &Context) {
    let rig = context.shared();
    for pattern_bytes in [&[0xA1][..], &[0xB1, 0xB2], &[0xC1, 0xC2, 0xC3, 0xC4], &[0, 0, 0, 0]] {
        let width = pattern_bytes.len();
        let fits = |&&(offset, length): &&(usize, usize)| offset % width == 0 && length % width == 0;
        for &(offset, length) in RANGES.iter().filter(fits) {
            let buffer = rig.buffer(&pattern(SIZE, 1));
            rig.run(&record(|list| list.fill(pattern_bytes, part(&buffer, offset, length))));
            let mut expected = pattern(SIZE, 1);
            expected[offset..offset + length].chunks_mut(width).for_each(|c| c.copy_from_slice(pattern_bytes));
            let what = format!("fill of {length} bytes at {offset} with {pattern_bytes:?}");
            expect::bytes(&what, &contents(&buffer), &expected);
        }
    }
}

/// A fill of several megabytes.
pub fn fills_can_be_large(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(8 << 20);
    rig.run(&record(|list| list.fill(&[1, 2, 3, 4], whole(&buffer))));
    expect::bytes("buffer", &contents(&buffer), &[1, 2, 3, 4].repeat(2 << 20));
}

/// Updates write their bytes at every offset, and nothing beside them.
pub fn updates_cover_their_range(context: &Context) {
    let rig = context.shared();
    for &(offset, length) in RANGES {
        let buffer = rig.buffer(&pattern(SIZE, 1));
        rig.run(&record(|list| list.update(&pattern(length, 2), part(&buffer, offset, length))));
        let mut expected = pattern(SIZE, 1);
        expected[offset..offset + length].copy_from_slice(&pattern(length, 2));
        expect::bytes(&format!("update of {length} bytes at {offset}"), &contents(&buffer), &expected);
    }
}

/// The largest update works; one byte more is rejected when recording.
pub fn updates_have_a_largest_size(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(MAX_UPDATE_BYTES + 1);
    let data = pattern(MAX_UPDATE_BYTES + 1, 1);
    rig.run(&record(|list| list.update(&data[1..], part(&buffer, 1, MAX_UPDATE_BYTES))));
    expect::bytes("largest update", &contents(&buffer)[1..], &data[1..]);
    let mut list = CommandList::builder();
    let error = expect_match!("one byte more", list.update(&data, whole(&buffer)).map(drop), Err(e @ RecordError::Update(_)) => e);
    expect::mentions(&error, &[&data.len().to_string(), &MAX_UPDATE_BYTES.to_string()]);
}

/// Copies move every range to every alignment, and nothing beside it.
pub fn copies_cover_their_range(context: &Context) {
    let rig = context.shared();
    for &(from, length) in RANGES {
        for to in [0, 1, 2, 64, SIZE - length] {
            let (source, target) = (rig.buffer(&pattern(SIZE, 1)), rig.buffer(&pattern(SIZE, 2)));
            let length = length.min(SIZE - to);
            rig.run(&record(|list| list.copy(part(&source, from, length), part(&target, to, length))));
            let mut expected = pattern(SIZE, 2);
            expected[to..to + length].copy_from_slice(&pattern(SIZE, 1)[from..from + length]);
            let what = format!("copy of {length} bytes from {from} to {to}");
            expect::bytes(&what, &contents(&target), &expected);
            expect::bytes("its source", &contents(&source), &pattern(SIZE, 1));
        }
    }
}

/// A copy inside one buffer moves ranges that touch without overlapping.
pub fn copies_inside_a_buffer(context: &Context) {
    let rig = context.shared();
    let buffer = rig.buffer(&pattern(2000, 1));
    rig.run(&record(|list| list.copy(part(&buffer, 0, 1000), part(&buffer, 1000, 1000))));
    let half = pattern(2000, 1)[..1000].to_vec();
    expect::bytes("buffer", &contents(&buffer), &[half.clone(), half].concat());
}

/// What comes before a barrier is complete before what comes after it starts.
pub fn barriers_order_commands(context: &Context) {
    let rig = context.shared();
    let [a, b, c] = [0; 3].map(|_| rig.zeroed(4096));
    rig.run(&record(|list| {
        list.fill(&[1], whole(&a))?.barrier();
        list.copy(whole(&a), whole(&b))?.barrier();
        list.fill(&[2], whole(&a))?.barrier();
        list.copy(whole(&a), whole(&c))?.barrier();
        list.update(&[3; 4096], whole(&a))
    }));
    for (name, buffer, byte) in [("a", &a, 3), ("b", &b, 1), ("c", &c, 2)] {
        expect::bytes(name, &contents(buffer), &[byte; 4096]);
    }
}

/// Commands without a barrier between them all run, whatever their order.
pub fn unordered_commands_all_run(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(200 * 64);
    rig.run(&record(|list| {
        for i in 0..200 {
            list.fill(&[i as u8 + 1], part(&buffer, i * 64, 64))?;
        }
        Ok(list)
    }));
    let expected: Vec<u8> = (0..200).flat_map(|i| [i as u8 + 1; 64]).collect();
    expect::bytes("buffer", &contents(&buffer), &expected);
}

/// Thousands of commands in one list.
pub fn lists_can_be_long(context: &Context) {
    let rig = context.shared();
    let [a, b] = [0; 2].map(|_| rig.zeroed(64));
    let host = TestKernel::Add8(1).kernel();
    rig.run(&record(|list| {
        for _ in 0..1000 {
            list.host_call(&host, vec![whole(&a)], whole(&b))?.barrier().copy(whole(&b), whole(&a))?.barrier();
        }
        Ok(list)
    }));
    expect::bytes("buffer", &contents(&a), &[(1000 % 256) as u8; 64]);
}

/// A list recorded once runs as often as it is submitted.
pub fn lists_are_replayed(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(256);
    let host = TestKernel::Add8(3).kernel();
    let list = record(|list| list.host_call(&host, vec![whole(&buffer)], whole(&buffer)));
    for round in 1..=30 {
        rig.run(&list);
        expect::bytes("buffer", &contents(&buffer), &[round * 3; 256]);
    }
}

/// A list may be in flight several times at once, each time with bindings of its own.
pub fn lists_are_replayed_at_the_same_time(context: &Context) {
    let rig = context.fresh();
    let add = rig.load(&TestKernel::Add8(1));
    let list = record(|list| {
        list.dispatch(&add, vec![BufferRef::slot(0, 0, 256), BufferRef::slot(1, 0, 256)])?.barrier();
        list.dispatch(&add, vec![BufferRef::slot(1, 0, 256), BufferRef::slot(1, 0, 256)])
    });
    let go = rig.semaphore();
    let flights: Vec<_> = (0..50u8)
        .map(|seed| {
            let (source, target, done) = (rig.buffer(&[seed; 256]), rig.zeroed(256), rig.semaphore());
            let bindings = table(&[&source, &target]);
            let submission = Submission { waits: vec![at(&go, 1)], bindings, ..signalling(&list, vec![at(&done, 1)]) };
            rig.queue.submit(submission).expect("a valid submission");
            (target, done)
        })
        .collect();
    go.signal(1).expect("an increase");
    for ((target, done), seed) in flights.iter().zip(0u8..) {
        reached(&at(done, 1));
        expect::bytes("a flight's target", &contents(target), &[seed + 2; 256]);
    }
}

/// Slots take other buffers at each submission.
pub fn slots_are_rebound(context: &Context) {
    let rig = context.shared();
    let list = record(|list| list.copy(BufferRef::slot(0, 0, 64), BufferRef::slot(1, 0, 64)));
    let [a, b, c] = [1, 2, 3].map(|seed| rig.buffer(&pattern(64, seed)));
    rig.run_with(&list, table(&[&a, &b]));
    expect::bytes("b after a to b", &contents(&b), &pattern(64, 1));
    rig.run_with(&list, table(&[&c, &a]));
    expect::bytes("a after c to a", &contents(&a), &pattern(64, 3));
    rig.run_with(&list, table(&[&b, &c]));
    expect::bytes("c after b to c", &contents(&c), &pattern(64, 1));
    expect::bytes("b", &contents(&b), &pattern(64, 1));
}

pub fn binding_offsets_add_up(context: &Context) {
    let rig = context.shared();
    let (source, target) = (rig.buffer(&pattern(1000, 1)), rig.zeroed(1000));
    let list = record(|list| list.copy(BufferRef::slot(0, 20, 100), BufferRef::slot(1, 40, 100)));
    let bindings = vec![
        Binding { buffer: source, offset: 200, length: 120 },
        Binding { buffer: Arc::clone(&target), offset: 860, length: 140 },
    ];
    rig.run_with(&list, BindingTable { bindings });
    let mut expected = vec![0; 1000];
    expected[900..].copy_from_slice(&pattern(1000, 1)[220..320]);
    expect::bytes("target", &contents(&target), &expected);
}

pub fn direct_and_slot_references_mix(context: &Context) {
    let rig = context.shared();
    let (fixed, bound, target) = (rig.buffer(&[1; 64]), rig.buffer(&[2; 64]), rig.zeroed(64));
    let mix = rig.load(&TestKernel::Mix(2));
    let list = record(|list| list.dispatch(&mix, vec![whole(&fixed), BufferRef::slot(0, 0, 64), whole(&target)]));
    rig.run_with(&list, table(&[&bound]));
    expect::bytes("target", &contents(&target), &[5; 64]);
}

/// A list keeps the buffers it names; when it goes, their memory comes back.
pub fn lists_hold_their_buffers(context: &Context) {
    let rig = context.fresh();
    let before = rig.device.counters().allocated_bytes;
    let target = rig.zeroed(4096);
    let list = {
        let source = rig.buffer(&pattern(4096, 1));
        record(|list| list.copy(whole(&source), whole(&target)))
    };
    let _other = rig.buffer(&pattern(4096, 2));
    rig.run(&list);
    expect::bytes("target", &contents(&target), &pattern(4096, 1));
    drop((list, target, _other));
    rig.queue.wait_idle(None).expect("an idle queue");
    let start = std::time::Instant::now();
    while rig.device.counters().allocated_bytes > before && start.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    expect::equal("bytes allocated when all is gone", rig.device.counters().allocated_bytes, before);
}
