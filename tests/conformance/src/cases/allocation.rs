//! Getting memory: what it holds, where it lies, what is rejected, and that it comes back.

use crate::expect;
use crate::rig::{Context, contents, host_view, pattern, store};
use aie_hal::{Buffer, BufferParams, MemoryPool};
use std::sync::Arc;
use std::thread;

/// Sizes around the boundaries of words, cache lines, pages and granules.
const SIZES: &[usize] = &[1, 3, 4, 63, 64, 65, 4095, 4096, 4097, 65_537, 1 << 20];

/// Size and pool are as requested, whatever the granule.
pub fn size_and_pool_are_as_asked(context: &Context) {
    let rig = context.shared();
    for &size in SIZES {
        let buffer = rig.zeroed(size);
        expect::equal("size", buffer.size(), size);
        expect::equal("pool", buffer.pool(), MemoryPool::Data);
    }
}

/// New memory reads as zero on the host.
pub fn memory_is_zeroed_for_the_host(context: &Context) {
    let rig = context.shared();
    for &size in SIZES {
        expect::bytes("new memory", &host_view(&rig.zeroed(size)), &vec![0; size]);
    }
}

/// New memory reads as zero on the device.
pub fn memory_is_zeroed_for_the_device(context: &Context) {
    let rig = context.shared();
    for &size in SIZES {
        expect::bytes("new memory", &rig.device_view(&rig.zeroed(size)), &vec![0; size]);
    }
}

/// Memory that was written and released does not show its old content to the next owner.
pub fn reused_memory_is_zeroed(context: &Context) {
    let rig = context.fresh();
    for round in 0..8 {
        let buffer = rig.zeroed(65_536);
        expect::bytes("memory, host", &host_view(&buffer), &[0; 65_536]);
        expect::bytes("memory, device", &rig.device_view(&buffer), &[0; 65_536]);
        store(&buffer, 0, &pattern(65_536, round));
    }
}

/// Device address and host address have every alignment that can be requested.
pub fn alignment_is_as_asked(context: &Context) {
    let rig = context.shared();
    let mut alignment = 1;
    while alignment <= rig.device.limits().max_alignment {
        for size in [1, 100, 5000] {
            let params = BufferParams { alignment, ..BufferParams::data(size) };
            let buffer = rig.device.allocate(&params).unwrap_or_else(|e| panic!("alignment {alignment}: {e}"));
            let host = buffer.map(0..size).expect("the whole buffer").as_ptr().addr();
            expect::equal("device address modulo alignment", buffer.device_address() % alignment as u64, 0);
            expect::equal("host address modulo alignment", host % alignment, 0);
        }
        alignment *= 2;
    }
}

/// Buffers that live at the same time do not overlap, neither for the host nor for the device.
pub fn buffers_do_not_overlap(context: &Context) {
    let rig = context.shared();
    let buffers: Vec<Arc<dyn Buffer>> = (0..300).map(|i| rig.zeroed(1 + i * 37 % 9000)).collect();
    let device = buffers.iter().map(|b| (b.device_address(), b.device_address() + b.size() as u64)).collect();
    let host = |b: &Arc<dyn Buffer>| b.map(0..b.size()).expect("the whole buffer").as_ptr().addr() as u64;
    let host = buffers.iter().map(|b| (host(b), host(b) + b.size() as u64)).collect();
    for (view, mut ranges) in [("device", device), ("host", host)] as [(&str, Vec<(u64, u64)>); 2] {
        ranges.sort_unstable();
        let overlap = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0);
        expect::equal(&format!("overlapping {view} ranges"), overlap, None);
    }
}

/// Free memory goes down by at least the size and comes back when the last reference goes.
pub fn memory_report_follows(context: &Context) {
    let rig = context.fresh();
    let before = rig.device.memory();
    expect::at_most("free memory", before.free, before.total);
    let buffer = rig.zeroed(1 << 20);
    let clone = Arc::clone(&buffer);
    expect::at_most("free memory with 1 MiB allocated", rig.device.memory().free, before.free - (1 << 20));
    drop(buffer);
    expect::at_most("free memory with one reference left", rig.device.memory().free, before.free - (1 << 20));
    drop(clone);
    expect::equal("memory with no reference left", rig.device.memory(), before);
}

/// A buffer keeps its device alive: memory stays usable when all other handles are gone.
pub fn buffers_outlive_other_handles(context: &Context) {
    let buffer = context.fresh().zeroed(4096);
    store(&buffer, 0, &pattern(4096, 3));
    expect::bytes("memory of a device without handles", &contents(&buffer), &pattern(4096, 3));
}

/// Threads may allocate, use and free at the same time.
pub fn threads_allocate_at_the_same_time(context: &Context) {
    let rig = context.shared();
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                for round in 0..50 {
                    let bytes = pattern(1 + round * 101, seed);
                    let buffer = rig.buffer(&bytes);
                    assert!(contents(&buffer) == bytes, "thread {seed}, round {round}: memory of another thread");
                }
            });
        }
    });
    expect::note!("expected and found that each of 200 buffers keeps its thread's bytes");
}

/// The device heap can be allocated from; it is another pool than data memory.
pub fn device_heap_is_a_pool_of_its_own(context: &Context) {
    let rig = context.fresh();
    let before = rig.device.memory();
    let params = BufferParams { size: 1 << 20, alignment: 64, pool: MemoryPool::DeviceHeap };
    let buffer = rig.device.allocate(&params).unwrap_or_else(|e| panic!("1 MiB of device heap: {e}"));
    expect::equal("pool", buffer.pool(), MemoryPool::DeviceHeap);
    expect::equal("size", buffer.size(), 1 << 20);
    expect::equal("report of data memory", rig.device.memory(), before);
}
