//! The host's view of a buffer.

use crate::expect;
use crate::rig::{Context, contents, host_view, pattern};
use aie_hal::Buffer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

const SIZE: usize = 10_000;

/// What was written is read, at any offset.
pub fn written_bytes_are_read(context: &Context) {
    let buffer = context.shared().zeroed(SIZE);
    let mut expected = vec![0; SIZE];
    for (offset, length, seed) in [(0, SIZE, 1), (1, 1, 2), (63, 130, 3), (4095, 2, 4), (SIZE - 1, 1, 5)] {
        let bytes = pattern(length, seed);
        buffer.write(offset, &bytes).expect("a write inside");
        expected[offset..offset + length].copy_from_slice(&bytes);
        let mut found = vec![0; length];
        buffer.read(offset, &mut found).expect("a read inside");
        expect::bytes("what was just written", &found, &bytes);
    }
    expect::bytes("the whole buffer", &host_view(&buffer), &expected);
}

/// A mapping, reads and writes show the same bytes.
pub fn mapping_and_reads_agree(context: &Context) {
    let buffer = context.shared().buffer(&pattern(SIZE, 1));
    let map = buffer.map(0..SIZE).expect("the whole buffer");
    let mapped: Vec<u8> = map.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    expect::bytes("mapping after a write", &mapped, &pattern(SIZE, 1));
    map.iter().zip(pattern(SIZE, 2)).for_each(|(byte, value)| byte.store(value, Ordering::Relaxed));
    expect::bytes("read after writing through the mapping", &host_view(&buffer), &pattern(SIZE, 2));
}

/// A mapping of a range starts at its first byte and has its length.
pub fn mapped_ranges_start_where_asked(context: &Context) {
    let buffer = context.shared().buffer(&pattern(SIZE, 1));
    for range in [0..1, 10..20, 63..65, 4096..8192, SIZE - 1..SIZE, SIZE..SIZE, 0..0] {
        let map = buffer.map(range.clone()).unwrap_or_else(|e| panic!("mapping {range:?}: {e}"));
        let mapped: Vec<u8> = map.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        expect::bytes(&format!("mapping of {range:?}"), &mapped, &pattern(SIZE, 1)[range]);
    }
}

/// The mapping stays at its address for the life of the buffer.
pub fn mappings_do_not_move(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(SIZE);
    let address = |buffer: &Arc<dyn Buffer>| buffer.map(0..SIZE).expect("the whole buffer").as_ptr().addr();
    let before = address(&buffer);
    let _others: Vec<Arc<dyn Buffer>> = (0..32).map(|_| rig.zeroed(SIZE)).collect();
    contents(&buffer);
    expect::equal("address of the mapping", address(&buffer), before);
    let inner = buffer.map(100..200).expect("a part").as_ptr().addr();
    expect::equal("address of byte 100", inner, before + 100);
}

/// Empty ranges inside the buffer are fine everywhere.
pub fn empty_ranges_are_accepted(context: &Context) {
    let buffer = context.shared().buffer(&pattern(SIZE, 1));
    for offset in [0, 1, SIZE] {
        expect::equal("mapping nothing", buffer.map(offset..offset).map(<[_]>::len), Ok(0));
        expect::equal("reading nothing", buffer.read(offset, &mut []), Ok(()));
        expect::equal("writing nothing", buffer.write(offset, &[]), Ok(()));
        expect::equal("flushing nothing", buffer.flush(offset..offset), Ok(()));
        expect::equal("invalidating nothing", buffer.invalidate(offset..offset), Ok(()));
    }
    expect::bytes("the buffer", &host_view(&buffer), &pattern(SIZE, 1));
}

/// Threads may write disjoint ranges of one buffer at the same time.
pub fn threads_write_disjoint_ranges(context: &Context) {
    let buffer = context.shared().zeroed(4 * 1000);
    thread::scope(|scope| {
        for seed in 0..4 {
            let buffer = &buffer;
            scope.spawn(move || {
                let start = usize::from(seed) * 1000;
                buffer.write(start, &pattern(1000, seed)).expect("a write inside");
                buffer.flush(start..start + 1000).expect("a flush inside");
            });
        }
    });
    let expected: Vec<u8> = (0..4).flat_map(|seed| pattern(1000, seed)).collect();
    expect::bytes("four threads' ranges, host", &host_view(&buffer), &expected);
    expect::bytes("four threads' ranges, device", &context.shared().device_view(&buffer), &expected);
}
