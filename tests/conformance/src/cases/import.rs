//! Using memory that belongs to somebody else.

use crate::expect;
use crate::kernels::TestKernel;
use crate::rig::{Context, host_view, pattern, record, whole};
use aie_hal::{HostMemory, Span};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

const PAGE: usize = 4096;

/// Pages of a process: aligned as allocators of tensor memory align.
///
/// Nothing else is in these pages, and they do not go back to the allocator. A simulated kernel may have to replace the pages of an
/// import, and then what other threads write to them at that moment, such as the allocator's lists, is lost.
struct Owned {
    bytes: &'static [AtomicU8],
    start: usize,
    length: usize,
}

impl Owned {
    fn new(content: &[u8]) -> Arc<Self> {
        let whole_pages = content.len().next_multiple_of(PAGE) + PAGE;
        let bytes: &[AtomicU8] = Vec::leak((0..whole_pages).map(|_| AtomicU8::new(0)).collect());
        let start = bytes.as_ptr().align_offset(PAGE);
        let owned = Self { bytes, start, length: content.len() };
        owned.bytes().iter().zip(content).for_each(|(byte, &value)| byte.store(value, Ordering::Relaxed));
        Arc::new(owned)
    }

    fn bytes(&self) -> &[AtomicU8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn content(&self) -> Vec<u8> {
        self.bytes().iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }
}

impl HostMemory for Owned {
    fn span(&self) -> Span<'_> {
        Span::shared(self.bytes())
    }
}

/// Imported memory is used in place: its mapping is the owner's memory.
pub fn imported_memory_is_used_in_place(context: &Context) {
    let rig = context.shared();
    for size in [1, 100, 4096, 4099, 1 << 20] {
        let owner = Owned::new(&pattern(size, 1));
        let buffer = rig.device.import(owner.clone()).unwrap_or_else(|e| panic!("importing {size} bytes: {e}"));
        expect::equal("size", buffer.size(), size);
        let map = buffer.map(0..size).expect("the whole buffer");
        expect::equal("address", map.as_ptr().addr(), owner.bytes().as_ptr().addr());
        expect::bytes("mapping", &contents_of(map), &pattern(size, 1));
    }
}

fn contents_of(map: &[AtomicU8]) -> Vec<u8> {
    map.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// The device reads what the owner wrote and flushed, and the owner sees what the device wrote after an invalidate.
pub fn device_works_on_imported_memory(context: &Context) {
    let rig = context.shared();
    let size = 64 * 1024;
    let (source, target) = (Owned::new(&pattern(size, 1)), Owned::new(&vec![0; size]));
    let from = rig.device.import(source).expect("an import");
    let to = rig.device.import(target.clone()).expect("an import");
    from.flush(0..size).expect("a flush inside");
    let add = rig.load(&TestKernel::Add8(1));
    rig.run(&record(|list| list.dispatch(&add, vec![whole(&from), whole(&to)])));
    to.invalidate(0..size).expect("an invalidate inside");
    let expected: Vec<u8> = pattern(size, 1).iter().map(|byte| byte.wrapping_add(1)).collect();
    expect::bytes("the owner's memory", &target.content(), &expected);
}

/// Bytes that the device does not write keep the owner's value.
pub fn unwritten_bytes_of_an_import_stay(context: &Context) {
    let rig = context.shared();
    let size = 8192;
    let target = Owned::new(&pattern(size, 1));
    let to = rig.device.import(target.clone()).expect("an import");
    to.flush(0..size).expect("a flush inside");
    let even = rig.load(&TestKernel::Even);
    let source = rig.buffer(&vec![200; size]);
    rig.run(&record(|list| list.dispatch(&even, vec![whole(&source), whole(&to)])));
    to.invalidate(0..size).expect("an invalidate inside");
    let mut expected = pattern(size, 1);
    expected.iter_mut().step_by(2).for_each(|byte| *byte = 200);
    expect::bytes("the owner's memory", &target.content(), &expected);
}

/// The buffer holds the owner's object, and lets it go when it goes itself.
pub fn imports_hold_their_owner(context: &Context) {
    let owner = Owned::new(&pattern(4096, 1));
    let weak: Weak<Owned> = Arc::downgrade(&owner);
    let buffer = context.shared().device.import(owner).expect("an import");
    expect::holds("the owner lives while the buffer does", &weak.strong_count(), weak.upgrade().is_some());
    expect::bytes("the bytes", &host_view(&buffer), &pattern(4096, 1));
    drop(buffer);
    expect::equal("references to the owner after that", weak.strong_count(), 0);
}
