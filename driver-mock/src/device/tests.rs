use crate::rig::{Rig, artifact, driver};
use aie_hal::buffer::HostMemory;
use aie_hal::command_list::{BindingTable, BufferRef, CommandList};
use aie_hal::{BufferParams, DeviceUri, Driver, MemoryPool};
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

fn params(size: usize, alignment: usize) -> BufferParams {
    BufferParams { size, alignment, pool: MemoryPool::Data }
}

fn heap(size: usize) -> BufferParams {
    BufferParams { size, alignment: 64, pool: MemoryPool::DeviceHeap }
}

#[test]
fn listed_uris_open_and_name_the_device_again() {
    let driver = driver();
    let listed = driver.enumerate().unwrap();
    assert_eq!(listed[0].uri.to_string(), "mock:aie2p");
    for listing in listed {
        let device = driver.open(&listing.uri).unwrap().remove(0);
        assert_eq!(device.info().uri, listing.uri);
        assert_eq!((Some(&device.info().arch), &device.info().name), (listing.arch.as_ref(), &listing.name));
    }
    let uri = DeviceUri::parse("mock?devices=2&coherent=false").unwrap();
    let devices = driver.open(&uri).unwrap();
    let uris: Vec<_> = devices.iter().map(|d| d.info().uri.to_string()).collect();
    assert_eq!(uris, ["mock:aie2p/0?devices=2&coherent=false", "mock:aie2p/1?devices=2&coherent=false"]);
    let again = driver.open(&devices[1].info().uri).unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].info(), devices[1].info());
}

#[test]
fn unknown_generations_are_named_with_the_known_ones() {
    let error = driver().open(&DeviceUri::parse("mock:aie9").unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("no arch file for `aie9`") && error.contains("mock:aie2, mock:aie2p"), "{error}");
    let error = driver().open(&DeviceUri::parse("xdna").unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("no driver for scheme `xdna`"), "{error}");
}

#[rstest]
#[case(params(0, 64), "invalid argument: a buffer needs a size of at least 1 byte")]
#[case(params(1, 0), "invalid argument: alignment 0 is not a power of two")]
#[case(params(1, 48), "invalid argument: alignment 48 is not a power of two")]
#[case(params(1, 8192), "alignment: asked for 8192, the limit of mock?memory=1M&heap=64K is 4096")]
#[case(params((4 << 30) + 1, 1), "bytes of one buffer: asked for 4294967297")]
#[case(params((1 << 20) + 1, 1), "out of memory: asked for 1048577 bytes of data memory, 1048576 of 1048576 bytes are free")]
#[case(heap(65537), "out of memory: asked for 65537 bytes of device heap memory, 65536 of 65536 bytes are free")]
fn allocation_errors_say_what_is_possible(#[case] params: BufferParams, #[case] expected: &str) {
    let rig = Rig::new("mock?memory=1M&heap=64K");
    let error = rig.device.allocate(&params).map(drop).unwrap_err().to_string();
    // The device's own URI has the generation in it.
    assert!(error.replace("mock:aie2p?", "mock?").contains(expected), "{error}");
    assert_eq!(rig.device.counters().allocations, 0);
}

#[rstest]
fn allocations_are_zeroed_aligned_and_accounted(
    #[values("mock?memory=1M", "mock?memory=1M&coherent=false")] uri: &str,
    #[values(MemoryPool::Data, MemoryPool::DeviceHeap)] pool: MemoryPool,
    #[values(1, 64, 4096)] alignment: usize,
) {
    let rig = Rig::new(uri);
    let buffer = rig.device.allocate(&BufferParams { size: 5000, alignment, pool }).unwrap();
    assert_eq!(buffer.device_address() % alignment as u64, 0);
    let mapped = buffer.map(0..5000).unwrap();
    assert_eq!(mapped.as_ptr().addr() % alignment, 0);
    assert!(mapped.iter().all(|b| b.load(Ordering::Relaxed) == 0));
    let charged = if pool == MemoryPool::Data { 8192 } else { 5000 };
    let counters = rig.device.counters();
    assert_eq!((counters.allocations, counters.allocated_bytes, counters.peak_bytes), (1, charged, charged));
    let used = if pool == MemoryPool::Data { 8192 } else { 0 };
    assert_eq!(rig.device.memory().free, (1 << 20) - used);
    drop(buffer);
    let counters = rig.device.counters();
    assert_eq!((counters.allocated_bytes, counters.peak_bytes), (0, charged));
    assert_eq!(rig.device.memory().free, 1 << 20);
}

#[test]
fn a_planned_allocation_failure_passes() {
    let rig = Rig::new("mock?fault=alloc@2");
    assert!(rig.device.allocate(&params(1, 1)).is_ok());
    let error = rig.device.allocate(&params(1, 1)).map(drop).unwrap_err().to_string();
    assert!(error.contains("out of memory: asked for 1 bytes of data memory"), "{error}");
    assert!(rig.device.allocate(&params(1, 1)).is_ok());
}

#[test]
fn ranges_outside_a_buffer_are_errors() {
    let rig = Rig::new("mock?coherent=false");
    let buffer = rig.buffer(&[0; 16]);
    #[expect(clippy::reversed_empty_ranges)]
    for range in [0..17, 17..17, 9..8, 0..usize::MAX] {
        assert!(buffer.map(range.clone()).is_err(), "{range:?}");
        assert!(buffer.flush(range.clone()).is_err(), "{range:?}");
        assert!(buffer.invalidate(range).is_err());
    }
    assert!(buffer.read(15, &mut [0; 2]).is_err());
    let error = buffer.write(usize::MAX, &[0]).unwrap_err().to_string();
    assert_eq!(error, "invalid argument: range 18446744073709551615+1 leaves the buffer of 16 bytes");
    assert!(buffer.write(16, &[]).is_ok());
}

#[test]
fn a_forgotten_flush_gives_old_data() {
    let run = |uri: &str| {
        let rig = Rig::new(uri);
        let (source, target) = (rig.buffer(&[1; 4]), rig.buffer(&[0; 4]));
        source.write(0, &[2; 4]).unwrap();
        source.flush(0..2).unwrap();
        let mut list = CommandList::builder();
        list.copy(BufferRef::direct(&source, 0, 4), BufferRef::direct(&target, 0, 4)).unwrap();
        rig.run(&Arc::new(list.finish()), BindingTable::default()).unwrap();
        target.invalidate(1..4).unwrap();
        let mut bytes = [0; 4];
        target.read(0, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(run("mock"), [2, 2, 2, 2]);
    assert_eq!(run("mock?coherent=false"), [0, 2, 1, 1]);
    // Flushes 1 and 2 initialise the two buffers; the third is the one under test.
    assert_eq!(run("mock?coherent=false&fault=stale@3"), [0, 1, 1, 1]);
    assert_eq!(run("mock?coherent=false&fault=stale@4"), [0, 0, 0, 0]);
}

/// Host memory of somebody else, of which a part is lent.
struct Lent(Arc<Vec<AtomicU8>>, std::ops::Range<usize>);

impl HostMemory for Lent {
    fn bytes(&self) -> &[AtomicU8] {
        &self.0[self.1.clone()]
    }
}

#[rstest]
fn imports_work_in_place_and_agree_with_each_other(#[values("mock", "mock?coherent=false")] uri: &str) {
    let rig = Rig::new(uri);
    let memory: Arc<Vec<AtomicU8>> = Arc::new((0..16).map(AtomicU8::new).collect());
    let import = |range| rig.device.import(Arc::new(Lent(Arc::clone(&memory), range)));
    let whole = import(0..16).unwrap();
    let part = import(4..8).unwrap();
    // Until the first flush the device sees what was there at the import.
    let mut list = CommandList::builder();
    list.fill(&[90], BufferRef::direct(&part, 0, 2)).unwrap().barrier();
    list.copy(BufferRef::direct(&whole, 4, 4), BufferRef::direct(&whole, 0, 4)).unwrap();
    rig.run(&Arc::new(list.finish()), BindingTable::default()).unwrap();
    whole.invalidate(0..16).unwrap();
    let seen: Vec<u8> = memory.iter().take(8).map(|b| b.load(Ordering::Relaxed)).collect();
    assert_eq!(seen, [90, 90, 6, 7, 90, 90, 6, 7]);
    assert_eq!(rig.device.counters().allocated_bytes, 0);
    assert!(part.map(0..5).is_err());
    drop((whole, part));
    let first = import(0..8).unwrap();
    let overlapping = import(4..12);
    assert_eq!(overlapping.is_err(), uri.contains("coherent=false"));
    if let Err(error) = overlapping {
        assert!(error.to_string().contains("import the whole range once"), "{error}");
    }
    drop(first);
    assert!(import(4..12).is_ok());
    assert!(import(3..3).is_err());
}

#[test]
fn loading_checks_the_generation_and_fills_the_heap() {
    let rig = Rig::new("mock?heap=20K");
    let other = Rig::new("mock:aie2");
    let error = rig.device.load_executable(&artifact(other.device.arch(), "1 1", 1)).map(drop).unwrap_err().to_string();
    assert!(error.contains("it is for `aie2`, mock:aie2p?heap=20K is `aie2p`"), "{error}");
    // Each distinct kernel takes two pages; equal PDIs share one.
    let first = rig.kernel(1, 1);
    let second = rig.kernel(1, 1);
    let third = rig.kernel(2, 1);
    let error = rig.device.load_executable(&artifact(rig.device.arch(), "3 1", 1)).map(drop).unwrap_err().to_string();
    assert!(error.contains("bytes of device heap memory"), "{error}");
    drop((first, second, third));
    rig.kernel(3, 1);
}

#[test]
fn queues_and_arguments_are_limited() {
    let rig = Rig::new("mock");
    let limit = rig.device.limits().queues;
    let queues: Vec<_> = (1..limit).map(|_| rig.device.create_queue().unwrap()).collect();
    let error = rig.device.create_queue().map(drop).unwrap_err().to_string();
    assert_eq!(error, format!("queues: asked for {}, the limit of mock:aie2p is {limit}", limit + 1));
    drop(queues);
    assert!(rig.device.create_queue().is_ok());
    let most = rig.device.limits().kernel_arguments;
    assert!(rig.device.load_executable(&artifact(rig.device.arch(), "1 15", most - 1)).is_ok());
    let error = rig.device.load_executable(&artifact(rig.device.arch(), "1 16", most)).map(drop).unwrap_err();
    assert!(error.to_string().contains("kernel arguments: asked for 17"), "{error}");
}
