use crate::cpu_agent::rig::*;
use aie_hal::{BufferParams, Device, DeviceError, MemoryPool};
use rstest::rstest;
use std::sync::atomic::Ordering;

#[rstest]
fn what_is_written_is_read(#[values(MemoryPool::Data, MemoryPool::DeviceHeap)] pool: MemoryPool) {
    let rig = Rig::new();
    let buffer = rig.device.allocate(&BufferParams { size: 100, alignment: 64, pool }).unwrap();
    assert_eq!((buffer.size(), buffer.pool(), bytes(&buffer)), (100, pool, vec![0; 100]));
    buffer.write(10, &[1, 2, 3]).unwrap();
    buffer.map(12..13).unwrap()[0].store(9, Ordering::Relaxed);
    let mut read = [0; 4];
    buffer.read(9, &mut read).unwrap();
    assert_eq!(read, [0, 1, 2, 9]);
    assert_eq!(buffer.map(0..100).unwrap().len(), 100);
    assert_eq!(buffer.device_address() % 64, 0);
}

#[rstest]
#[case::behind_the_end(0, 101)]
#[case::start_behind_the_end(101, 101)]
#[case::far(usize::MAX - 1, usize::MAX)]
#[case::backwards(20, 10)]
fn ranges_that_leave_the_buffer_are_refused(#[case] start: usize, #[case] end: usize) {
    let rig = Rig::new();
    let buffer = rig.buffer(100);
    let errors = [
        buffer.map(start..end).map(drop).unwrap_err(),
        buffer.flush(start..end).unwrap_err(),
        buffer.invalidate(start..end).unwrap_err(),
    ];
    for error in errors {
        let expected = format!("range {start}..{end} leaves the buffer of 100 bytes");
        assert_eq!(error, DeviceError::InvalidArgument(expected));
    }
    let counters = rig.device.counters();
    assert_eq!((counters.bytes_flushed, counters.bytes_invalidated), (0, 0));
    if let Some(length) = end.checked_sub(start) {
        let mut target = vec![0; length.max(1)];
        assert!(buffer.read(start, &mut target).is_err());
        assert!(buffer.write(start, &target).is_err());
    }
}

#[test]
fn flushes_are_counted() {
    let rig = Rig::new();
    let buffer = rig.buffer(100);
    buffer.flush(10..30).unwrap();
    buffer.invalidate(0..100).unwrap();
    buffer.flush(100..100).unwrap();
    let counters = rig.device.counters();
    assert_eq!((counters.bytes_flushed, counters.bytes_invalidated), (20, 100));
}
