//! At the limit things work; beyond it they are rejected with numbers; what is released can be allocated again.

use crate::expect::{self, expect_match};
use crate::kernels::TestKernel;
use crate::rig::{Context, Rig, contents, pattern, record, store, whole};
use aie_hal::{Buffer, BufferParams, DeviceError, MemoryPool, Queue};
use std::sync::Arc;

fn heap(rig: &Rig, size: usize) -> Result<Arc<dyn Buffer>, DeviceError> {
    rig.device.allocate(&BufferParams { size, alignment: 64, pool: MemoryPool::DeviceHeap })
}

/// Takes the device heap in pieces of `piece` bytes until it has none left.
fn exhaust_heap(rig: &Rig, piece: usize) -> (Vec<Arc<dyn Buffer>>, DeviceError) {
    let most = rig.device.limits().device_heap_bytes / piece + 1;
    let mut pieces = Vec::new();
    loop {
        match heap(rig, piece) {
            Ok(buffer) => pieces.push(buffer),
            Err(error) => return (pieces, error),
        }
        expect::at_most("pieces of heap", pieces.len(), most);
    }
}

/// As many queues as allowed can be created, the next is rejected, and a dropped one makes room.
pub fn queues_are_limited(context: &Context) {
    let rig = context.fresh();
    let limit = rig.device.limits().queues;
    let mut more: Vec<Arc<dyn Queue>> = Vec::new();
    for _ in 1..limit {
        more.push(rig.device.create_queue().expect("a queue below the limit"));
    }
    let result = rig.device.create_queue().map(drop);
    let error = expect_match!("one queue more", result, Err(e @ DeviceError::LimitExceeded { .. }) => e);
    expect::mentions(&error, &["queue", &limit.to_string(), &(limit + 1).to_string()]);
    drop(more.pop());
    let again = rig.device.create_queue().map(drop);
    expect::equal("a queue after dropping one", again, if limit > 1 { Ok(()) } else { Err(error) });
}

/// The device heap has the bytes it says, ends with an error that has numbers, and comes back.
pub fn the_device_heap_is_limited(context: &Context) {
    let rig = context.fresh();
    let bytes = rig.device.limits().device_heap_bytes;
    let (pieces, error) = exhaust_heap(&rig, 1 << 20);
    expect_match!("the heap's end", &error, DeviceError::OutOfMemory { pool: "device heap", requested: 0x10_0000, .. });
    expect::mentions(&error, &["device heap", &bytes.to_string()]);
    expect::at_least("pieces of 1 MiB", pieces.len(), bytes / (1 << 20) - 1);
    drop(pieces);
    let (again, _) = exhaust_heap(&rig, 1 << 20);
    expect::at_least("pieces after giving them back", again.len(), bytes / (1 << 20) - 1);
}

/// More than the whole heap at once is rejected.
pub fn more_than_the_heap_is_refused(context: &Context) {
    let rig = context.fresh();
    let bytes = rig.device.limits().device_heap_bytes;
    let result = heap(&rig, bytes + 1).map(drop);
    expect_match!("allocation", result, Err(DeviceError::OutOfMemory { .. } | DeviceError::LimitExceeded { .. }));
}

/// A full heap refuses to load kernels, keeps the loaded ones working, and loads again when there is room.
pub fn a_full_heap_refuses_kernels(context: &Context) {
    let rig = context.fresh();
    let add = rig.load(&TestKernel::Add8(1));
    let (mut held, _) = exhaust_heap(&rig, 1 << 20);
    for piece in [1 << 16, 4096, 256] {
        held.extend(exhaust_heap(&rig, piece).0);
    }
    let artifact = TestKernel::Add8(2).artifact(rig.device.arch());
    let result = rig.device.load_executable(&artifact).map(drop);
    expect_match!("loading", result, Err(DeviceError::OutOfMemory { pool: "device heap", .. }));
    let buffer = rig.zeroed(64);
    rig.run(&record(|list| list.dispatch(&add, vec![whole(&buffer), whole(&buffer)])));
    expect::bytes("result of the loaded kernel", &contents(&buffer), &[1; 64]);
    drop(held);
    let second = rig.device.load_executable(&artifact).expect("a kernel when there is room");
    rig.run(&record(|list| list.dispatch(&second, vec![whole(&buffer), whole(&buffer)])));
    expect::bytes("result of the second kernel", &contents(&buffer), &[3; 64]);
}

/// Kernels give their heap back: loading and dropping can be repeated without end.
pub fn dropped_kernels_give_their_heap_back(context: &Context) {
    let rig = context.fresh();
    let (mut held, _) = exhaust_heap(&rig, 1 << 20);
    held.truncate(held.len() - 1);
    let buffer = rig.zeroed(64);
    // Each PDI and stream is about 1 KiB and takes at least a granule, so 2000 of them do not fit 1 MiB together.
    for id in 0..2000 {
        let copy = rig.load(&TestKernel::Copy(id));
        if id % 100 == 0 {
            rig.run(&record(|list| list.dispatch(&copy, vec![whole(&buffer), whole(&buffer)])));
        }
    }
    expect::note!("expected and found that 2000 kernels load one after the other into about 1 MiB");
}

/// The data pool ends with an error that has numbers, and comes back.
pub fn the_data_pool_is_limited(context: &Context) {
    let rig = context.fresh_with(&["memory=67108864"]);
    let report = rig.device.memory();
    expect::equal("pool", report.total, 64 << 20);
    let allocate = |size| rig.device.allocate(&BufferParams::data(size));
    let first = allocate(48 << 20).expect("48 of 64 MiB");
    let result = allocate(32 << 20).map(drop);
    let error = expect_match!("32 MiB more", result, Err(e @ DeviceError::OutOfMemory { pool: "data", .. }) => e);
    expect::mentions(&error, &[&(32usize << 20).to_string(), &(64usize << 20).to_string()]);
    store(&first, 0, &pattern(4096, 1));
    expect::bytes("what was allocated before", &contents(&first)[..4096], &pattern(4096, 1));
    drop(first);
    expect::equal("32 MiB after giving 48 back", allocate(32 << 20).map(|b| b.size()), Ok(32 << 20));
    expect::equal("the report when all is given back", rig.device.memory(), report);
}
