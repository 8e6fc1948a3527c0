//! Raw memory that the host and a device both touch, for drivers.
//!
//! It is a crate of its own so that `aie-hal` and every driver turn addresses into bytes by the same few reviewed lines, and
//! `aie-hal` itself needs no `unsafe`. A [`Region`] is a stretch of bytes: allocated here, borrowed from a [`HostMemory`], or mapped
//! by a driver. A [`Span`] is a range of memory whose bounds were checked when it was made, and can be read. A [`WritableSpan`] can be
//! written too; memory that may only be read, such as a file that is mapped for reading, has none, so that no care is needed to
//! stay out of it. The functions on spans read and write plain bytes, at full speed.
//!
//! ```
//! use aie_device_memory::Region;
//!
//! let region = Region::zeroed(8, 64).expect("8 bytes");
//! let span = region.span(2, 4).expect("a range inside");
//! span.writable().expect("our own memory").fill(&[1, 2]);
//! let mut bytes = [0; 4];
//! span.read(&mut bytes);
//! assert_eq!(bytes, [1, 2, 1, 2]);
//! assert!(region.span(6, 4).is_none());
//! ```
//!
//! # What makes the plain accesses sound
//! Bounds are checked by [`Region::span`], so memory safety never depends on a caller. What remains is data races. It is the
//! contract of `aie_hal::Buffer` and `aie_hal::queue` that no one accesses a range that a command in flight writes, or
//! writes one that it reads, without a barrier or a semaphore in between. Drivers run the commands of one device in an order
//! that keeps the same rule. Real hardware asks for the same.

mod reserved;

use smallvec::SmallVec;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// Memory of another owner, for instance ggml, and that a device may use in place.
///
/// It is asked once, when a device imports it.
pub trait HostMemory: Send + Sync {
    /// All of it, made by [`Span::shared`], or by [`Span::read_only_at`] if it may only be read.
    fn span(&self) -> Span<'_>;
}

impl HostMemory for Vec<AtomicU8> {
    fn span(&self) -> Span<'_> {
        Span::shared(self)
    }
}

/// Where a region's bytes come from.
enum Backing {
    /// From the allocator, to be freed with this pointer and layout.
    Owned(NonNull<u8>, Layout),
    /// From another owner, held here.
    Borrowed { _owner: Arc<dyn HostMemory> },
    /// Mapped by a driver; the object keeps the mapping.
    Mapped { _owner: Arc<dyn Any + Send + Sync> },
}

/// A stretch of memory with a fixed address.
pub struct Region {
    base: NonNull<u8>,
    length: usize,
    writable: bool,
    backing: Backing,
}

// SAFETY: `base` points to memory that belongs to this object (allocated, or promised by `HostMemory` for as long as the `Arc`
// lives), which no thread owns in particular. Accesses through it follow the rules in the module docs.
unsafe impl Send for Region {}
// SAFETY: As for `Send`.
unsafe impl Sync for Region {}

impl Debug for Region {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({:#x}+{:#x})", self.address(), self.length)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Backing::Owned(block, layout) = self.backing {
            // SAFETY: `block` came from `alloc_zeroed` with this very layout and is freed once, here.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}

impl Region {
    /// Allocates zeroed memory; `None` when there is none. `alignment` is a power of two.
    ///
    /// The pages of a large region come zeroed from the operating system and take no memory before they are touched. The
    /// allocator does so for small alignments only, hence the larger block.
    pub fn zeroed(length: usize, alignment: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length.max(1).checked_add(alignment)?, 16).ok()?;
        // SAFETY: The layout's size is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let padding = block.as_ptr().addr().next_multiple_of(alignment) - block.as_ptr().addr();
        // SAFETY: `padding < alignment` and the block has `alignment` more bytes than the region, so the sum stays inside.
        let base = unsafe { block.add(padding) };
        Some(Self { base, length, writable: true, backing: Backing::Owned(block, layout) })
    }

    /// Uses foreign memory in place.
    pub fn borrowed(memory: Arc<dyn HostMemory>) -> Self {
        let Span { start: base, length, writable, .. } = memory.span();
        Self { base, length, writable, backing: Backing::Borrowed { _owner: memory } }
    }

    /// Uses memory that a driver has mapped.
    ///
    /// # Safety
    /// `base` points to `length` initialised bytes that stay readable and writable while `owner` lives, and that no one
    /// refers to by a Rust reference other than through this region or as `AtomicU8`.
    pub unsafe fn mapped(base: NonNull<u8>, length: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, length, writable: true, backing: Backing::Mapped { _owner: owner } }
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Address of the first byte in this process.
    pub fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The bytes for sharing with the host; `None` when they may only be read.
    pub fn bytes(&self) -> Option<&[AtomicU8]> {
        // SAFETY: `base` is valid for reading and writing `length` initialised bytes while `self` lives, and `AtomicU8` has the layout
        // of `u8` and allows shared mutation.
        self.writable.then(|| unsafe { std::slice::from_raw_parts(self.base.cast().as_ptr(), self.length) })
    }

    /// A checked range; `None` when it leaves the region.
    pub fn span(&self, offset: usize, length: usize) -> Option<Span<'_>> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| Span {
            // SAFETY: `offset <= end <= self.length`, so the result is inside the region or one past its end.
            start: unsafe { self.base.add(offset) },
            length,
            writable: self.writable,
            memory: PhantomData,
        })
    }

    /// A checked range for writing; `None` when it leaves the region, or the region may only be read.
    pub fn writable(&self, offset: usize, length: usize) -> Option<WritableSpan<'_>> {
        self.span(offset, length)?.writable()
    }
}

/// A range of memory that can be read for `'a`.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    start: NonNull<u8>,
    length: usize,
    writable: bool,
    memory: PhantomData<&'a [AtomicU8]>,
}

// SAFETY: it is a shared reference to bytes that no thread owns; accesses follow the rules in the module docs.
unsafe impl Send for Span<'_> {}
// SAFETY: As for `Send`.
unsafe impl Sync for Span<'_> {}

/// A range of memory that can be read and written for `'a`. All that a [`Span`] can, it can.
#[derive(Debug, Clone, Copy)]
pub struct WritableSpan<'a>(Span<'a>);

impl<'a> Deref for WritableSpan<'a> {
    type Target = Span<'a>;

    fn deref(&self) -> &Span<'a> {
        &self.0
    }
}

impl<'a> Span<'a> {
    /// Bytes that others may touch too, which `AtomicU8` allows. They can be written.
    pub fn shared(bytes: &'a [AtomicU8]) -> Self {
        Self { start: NonNull::from(bytes).cast(), length: bytes.len(), writable: true, memory: PhantomData }
    }

    /// Bytes that may only be read.
    ///
    /// # Safety
    /// `start` points to `length` initialised bytes that stay readable for `'a`. No one refers to them by a Rust reference other than
    /// as `AtomicU8`.
    pub unsafe fn read_only_at(start: NonNull<u8>, length: usize) -> Self {
        Self { start, length, writable: false, memory: PhantomData }
    }

    /// The same range for reading only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { writable: false, ..self }
    }

    /// The same range for writing; `None` when it may only be read.
    pub fn writable(self) -> Option<WritableSpan<'a>> {
        self.writable.then_some(WritableSpan(self))
    }

    /// Length in bytes.
    pub fn length(self) -> usize {
        self.length
    }

    /// Address of its first byte in this process.
    pub fn address(self) -> usize {
        self.start.as_ptr().addr()
    }

    fn range(self) -> Range<usize> {
        let start = self.start.as_ptr().addr();
        start..start + self.length
    }

    fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.range(), other.range());
        a.start < b.end && b.start < a.end
    }

    /// Copies these bytes to the caller. Lengths have to agree.
    pub fn read(self, target: &mut [u8]) {
        assert_eq!(self.length, target.len(), "reads fill their target");
        // SAFETY: The span is in bounds of live memory and `target` is as long. Races: module docs.
        unsafe { std::ptr::copy(self.start.as_ptr(), target.as_mut_ptr(), self.length) };
    }

    /// Writes the cache lines of the range back to memory, so that a device that does not look into the caches sees the bytes.
    /// Does nothing where the architecture has no such instruction for programs.
    pub fn write_back(self) {
        #[cfg(target_arch = "x86_64")]
        {
            const LINE: usize = 64;
            let first = self.start.as_ptr().addr() % LINE;
            let lines = (0..self.length + first).step_by(LINE);
            let lines = lines.map(|offset| self.start.as_ptr().wrapping_sub(first).wrapping_add(offset));
            if has_clflushopt() {
                for line in lines {
                    // SAFETY: the CPU has the instruction. Each address is in a cache line that the range touches, no byte of which
                    // changes; what it says of memory is ordered by the fence below.
                    unsafe { std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) };
                }
            } else {
                for line in lines {
                    // SAFETY: SSE2 is part of x86-64; as above.
                    unsafe { std::arch::x86_64::_mm_clflush(line) };
                }
            }
            // SAFETY: SSE2 is part of x86-64.
            unsafe { std::arch::x86_64::_mm_mfence() };
        }
    }

    /// Drops the cache lines of the range, so that the host sees what a device has written. Lines that the host has written are
    /// written back first: x86-64 has no instruction for programs that would not.
    pub fn invalidate(self) {
        self.write_back();
    }

    /// A part of it by offsets; `None` when it leaves the range.
    pub fn part(self, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= self.length).then(|| Self {
            // SAFETY: `range.start <= self.length`, so the result is inside the region or one past its end.
            start: unsafe { self.start.add(range.start) },
            length: range.len(),
            ..self
        })
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// No one writes the range while the slice lives.
    pub unsafe fn as_slice(self) -> &'a [u8] {
        // SAFETY: In bounds of memory that lives for `'a`, initialised, and not written as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<'a> WritableSpan<'a> {
    /// Copies `source` here. Lengths have to agree; the ranges may overlap.
    pub fn copy_from(self, source: Span<'_>) {
        assert_eq!(self.0.length, source.length, "copies are between ranges of one length");
        // SAFETY: Both spans are in bounds of live memory, this one writable; `copy` allows overlap. Races: module docs.
        unsafe { std::ptr::copy(source.start.as_ptr(), self.0.start.as_ptr(), self.0.length) };
    }

    /// Repeats `pattern` as often as it fits.
    pub fn fill(self, pattern: &[u8]) {
        // SAFETY: The span is in bounds of live, writable memory, and `pattern` is the caller's. Races: module docs.
        let bytes = unsafe { self.as_mut_slice() };
        match *pattern {
            [byte] => bytes.fill(byte),
            _ => bytes.chunks_exact_mut(pattern.len().max(1)).for_each(|chunk| chunk.copy_from_slice(pattern)),
        }
    }

    /// Copies bytes of the caller here. Lengths have to agree.
    pub fn write(self, source: &[u8]) {
        assert_eq!(self.0.length, source.len(), "writes fill their range");
        // SAFETY: The span is in bounds of live, writable memory and `source` is as long. Races: module docs.
        unsafe { std::ptr::copy(source.as_ptr(), self.0.start.as_ptr(), self.0.length) };
    }

    /// The bytes as a mutable slice.
    ///
    /// # Safety
    /// No one else accesses the range while the slice lives.
    pub unsafe fn as_mut_slice(self) -> &'a mut [u8] {
        // SAFETY: In bounds of writable memory that lives for `'a`, initialised, and exclusive as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.length) }
    }
}

/// Whether the CPU has the instruction that flushes lines without waiting for each (CPUID leaf 7, EBX bit 23): all of those with
/// an NPU do.
#[cfg(target_arch = "x86_64")]
fn has_clflushopt() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
        // SAFETY: x86-64 has CPUID; leaf 7 is asked only where it exists.
        unsafe {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0
        }
    })
}

/// Arguments of one call without an allocation up to this number.
const INLINE_SPANS: usize = 16;

/// The arguments of one call.
pub type Spans<'a> = SmallVec<[Span<'a>; INLINE_SPANS]>;

/// Copies of inputs that the output overlaps. Kept between calls so that they seldom allocate.
#[derive(Debug, Default)]
pub struct Snapshots {
    copies: Vec<Vec<u8>>,
}

impl Snapshots {
    /// Calls `run` with the input and output bytes. Inputs that overlap an output are seen as they were before the call. `None`,
    /// and no call, when outputs overlap each other.
    pub fn call<R>(
        &mut self,
        inputs: &[Span<'_>],
        outputs: &[WritableSpan<'_>],
        run: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
    ) -> Option<R> {
        if outputs
            .iter()
            .enumerate()
            .any(|(index, output)| outputs[..index].iter().any(|other| other.overlaps(**output)))
        {
            return None;
        }
        let written = |input: &Span<'_>| outputs.iter().any(|output| input.overlaps(**output));
        let overlapping = inputs.iter().filter(|input| written(input)).count();
        if self.copies.len() < overlapping {
            self.copies.resize_with(overlapping, Vec::new);
        }
        for (copy, input) in self.copies.iter_mut().zip(inputs.iter().filter(|input| written(input))) {
            copy.resize(input.length, 0);
            input.read(copy);
        }
        let mut copies = self.copies.iter();
        let slices: SmallVec<[&[u8]; INLINE_SPANS]> = inputs
            .iter()
            .map(|input| match written(input).then(|| copies.next()).flatten() {
                Some(copy) => copy.as_slice(),
                // SAFETY: The input overlaps no output, and outputs are the only ranges this call writes. Other commands and
                // the host: module docs.
                None => unsafe { input.as_slice() },
            })
            .collect();
        if let [output] = outputs {
            // SAFETY: Every slice above is disjoint from the output. Other commands and the host: module docs.
            return Some(run(&slices, &mut [unsafe { output.as_mut_slice() }]));
        }
        // SAFETY: Every slice above is disjoint from the outputs, and these from each other, as was checked first.
        let mut targets: Vec<&mut [u8]> = outputs.iter().map(|output| unsafe { output.as_mut_slice() }).collect();
        Some(run(&slices, &mut targets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn regions_are_zeroed_aligned_and_bounded() {
        for alignment in [1, 64, 4096] {
            let region = Region::zeroed(100, alignment).unwrap();
            assert_eq!(region.address() % alignment, 0);
            assert!(region.bytes().unwrap().iter().all(|b| b.load(Ordering::Relaxed) == 0));
            assert!(region.span(0, 100).is_some());
            assert!(region.span(100, 0).is_some());
            for (offset, length) in [(0, 101), (100, 1), (101, 0), (usize::MAX, 2)] {
                assert!(region.span(offset, length).is_none(), "{offset}+{length}");
            }
        }
        assert!(Region::zeroed(usize::MAX, 64).is_none());
    }

    #[test]
    fn overlapping_inputs_are_seen_as_they_were() {
        let region = Region::zeroed(8, 64).unwrap();
        region.span(0, 8).unwrap().writable().unwrap().write(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let inputs = [region.span(0, 4).unwrap(), region.span(4, 4).unwrap(), region.span(2, 4).unwrap()];
        let called =
            Snapshots::default().call(&inputs, &[region.span(2, 4).unwrap().writable().unwrap()], |inputs, outputs| {
                outputs[0].fill(0);
                assert_eq!(inputs, [[1, 2, 3, 4], [5, 6, 7, 8], [3, 4, 5, 6]]);
                outputs[0].copy_from_slice(inputs[0]);
            });
        assert!(called.is_some());
        let mut after = [0; 8];
        region.span(0, 8).unwrap().read(&mut after);
        assert_eq!(after, [1, 2, 1, 2, 3, 4, 7, 8]);
    }

    #[test]
    fn many_inputs_and_empty_ranges_work() {
        let region = Region::zeroed(64, 1).unwrap();
        region.span(0, 64).unwrap().writable().unwrap().write(&std::array::from_fn::<u8, 64, _>(|i| i as u8));
        let inputs: Vec<_> = (0..32).map(|i| region.span(i, 1).unwrap()).chain([region.span(40, 0).unwrap()]).collect();
        let called = Snapshots::default().call(
            &inputs,
            &[region.span(40, 1).unwrap().writable().unwrap()],
            |inputs, outputs| {
                outputs[0][0] = inputs.iter().flat_map(|i| i.iter()).fold(0, |sum, byte| sum.wrapping_add(*byte));
            },
        );
        assert!(called.is_some());
        let mut sum = [0];
        region.span(40, 1).unwrap().read(&mut sum);
        assert_eq!(u32::from(sum[0]), (0..32).sum::<u32>() % 256);
    }

    #[test]
    fn several_outputs_are_written_unless_they_overlap() {
        let region = Region::zeroed(8, 64).unwrap();
        region.span(0, 8).unwrap().writable().unwrap().write(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let span = |offset, length| region.span(offset, length).unwrap();
        let output = |offset, length| span(offset, length).writable().unwrap();
        let swapped =
            Snapshots::default().call(&[span(0, 2), span(4, 2)], &[output(4, 2), output(0, 2)], |inputs, outputs| {
                outputs.iter_mut().zip(inputs).for_each(|(output, input)| output.copy_from_slice(input));
            });
        assert!(swapped.is_some());
        let overlapping =
            Snapshots::default().call(&[], &[output(0, 4), output(3, 2)], |_, _| unreachable!("it is not called"));
        assert_eq!(overlapping, None::<()>);
        let mut after = [0; 8];
        span(0, 8).read(&mut after);
        assert_eq!(after, [5, 6, 3, 4, 1, 2, 7, 8]);
    }

    /// A file that is mapped for reading: a write would end the process.
    struct File([u8; 8]);

    impl HostMemory for File {
        fn span(&self) -> Span<'_> {
            // SAFETY: the bytes live as long as the object and never change.
            unsafe { Span::read_only_at(NonNull::from(&self.0).cast(), self.0.len()) }
        }
    }

    #[test]
    fn memory_that_may_only_be_read_has_nothing_to_write_by() {
        let region = Region::borrowed(Arc::new(File(*b"read me!")));
        assert!(!region.is_writable() && region.bytes().is_none());
        let span = region.span(0, 4).unwrap();
        assert!(span.writable().is_none() && span.part(1..2).unwrap().writable().is_none());
        let mut bytes = [0; 4];
        span.read(&mut bytes);
        assert_eq!(&bytes, b"read");
        let own = Region::borrowed(Arc::new(vec![AtomicU8::new(1), AtomicU8::new(2)]));
        own.span(0, 1).unwrap().writable().unwrap().write(&[7]);
        assert_eq!(own.bytes().unwrap()[0].load(Ordering::Relaxed), 7);
        assert!(own.span(0, 2).unwrap().read_only().writable().is_none());
    }
}
