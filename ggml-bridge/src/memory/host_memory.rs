//! Memory of others that the device uses in place: tensors in the buffers of ggml's CPU backend, files it has mapped.
//!
//! The only promise about such memory is that the tensors of a graph are valid while the graph is computed; a mapped file
//! that ggml hands over as a buffer stays until the buffer is freed, which is longer. A
//! [`HostSpan`] carries this promise from the ABI layer, where a tensor was read, to the driver that imports it.

use aie_hal::{HostMemory, Span};
use procfs::process::{MMPermissions, MemoryMaps, Process};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

/// Alignment of tensors and buffers in bytes: a cache line, and no less than ggml's CPU kernels like.
pub const ALIGNMENT: usize = 64;

/// An address range that ggml vouches for while a graph that names it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "(usize, usize)", from = "(usize, usize)")]
pub struct HostSpan {
    address: usize,
    length: usize,
    /// Whether there is no memory at these addresses.
    imagined: bool,
}

impl From<HostSpan> for (usize, usize) {
    fn from(span: HostSpan) -> Self {
        (span.address, span.length)
    }
}

/// What was written down has no memory here.
impl From<(usize, usize)> for HostSpan {
    fn from((address, length): (usize, usize)) -> Self {
        Self::imagined(address, length)
    }
}

impl HostSpan {
    /// Takes over ggml's promise for a tensor's memory.
    ///
    /// # Safety
    /// `address..address + length` is mapped, readable and, where a node of the graph writes it, writable, whenever a graph
    /// that names it is being computed; during that time others touch it only as ggml's rules allow.
    pub unsafe fn new(address: usize, length: usize) -> Self {
        Self { address, length, imagined: false }
    }

    /// Addresses without memory, for a graph that is planned and never computed.
    pub fn imagined(address: usize, length: usize) -> Self {
        Self { address, length, imagined: true }
    }

    /// First address.
    pub fn address(self) -> usize {
        self.address
    }

    /// Bytes.
    pub fn length(self) -> usize {
        self.length
    }

    /// Behind the last address.
    pub fn end(self) -> usize {
        self.address + self.length
    }

    /// Its addresses.
    pub fn range(self) -> Range<usize> {
        self.address..self.end()
    }

    /// Whether `other` lies in it.
    pub fn contains(self, other: Self) -> bool {
        self.address <= other.address && other.end() <= self.end()
    }

    /// The span that covers both, if they overlap or touch: then every byte of it is in one of them.
    pub fn union(self, other: Self) -> Option<Self> {
        let apart = self.end() < other.address || other.end() < self.address;
        (!apart).then(|| {
            let address = self.address.min(other.address);
            let imagined = self.imagined || other.imagined;
            Self { address, length: self.end().max(other.end()) - address, imagined }
        })
    }
}

/// A span as the hardware abstraction layer wants it. Only submissions of graphs that name the span access the bytes.
#[derive(Debug)]
pub struct TensorMemory {
    span: HostSpan,
    writable: bool,
}

impl TensorMemory {
    /// The memory of `span`, which a graph may write when `written`. What it only reads may be a file that is mapped for reading.
    pub fn of_graph(span: HostSpan, written: bool) -> Self {
        Self { span, writable: written }
    }

    /// The memory of `span`, which may be written if all of it is mapped for that.
    pub fn as_mapped(span: HostSpan) -> Self {
        let maps = Process::myself().and_then(|process| process.maps());
        Self { span, writable: maps.is_ok_and(|maps| is_writable(&maps, &span.range())) }
    }
}

/// Whether all of `range` is mapped for writing, by the kernel's table of mappings, which is sorted.
fn is_writable(maps: &MemoryMaps, range: &Range<usize>) -> bool {
    let mut end = range.start as u64;
    for map in maps.iter().filter(|map| map.perms.contains(MMPermissions::WRITE)) {
        if (map.address.0..map.address.1).contains(&end) {
            end = map.address.1;
        }
    }
    range.end as u64 <= end
}

impl HostMemory for TensorMemory {
    fn span(&self) -> Span<'_> {
        let HostSpan { address, length, imagined } = self.span;
        let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut::<AtomicU8>(address)) else {
            return Span::shared(&[]);
        };
        if length == 0 || imagined {
            return Span::shared(&[]);
        }
        if !self.writable {
            // SAFETY: by the contract of `HostSpan::new` the range is mapped while a graph that names it is computed, which is the only
            // time drivers access it.
            return unsafe { Span::read_only_at(start.cast(), length) };
        }
        // SAFETY: as above, and it is mapped for writing: a node of the graph writes it, or the kernel says so. `AtomicU8` has no
        // alignment and allows other owners to write at the same time.
        Span::shared(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use rstest::rstest;
    use std::sync::atomic::Ordering;

    fn span(address: usize, length: usize) -> HostSpan {
        // SAFETY: the memory is never accessed in these tests.
        unsafe { HostSpan::new(address, length) }
    }

    #[rstest]
    #[case((0, 4), (2, 4), Some((0, 6)))]
    #[case((0, 4), (4, 4), Some((0, 8)))]
    #[case((4, 4), (0, 16), Some((0, 16)))]
    #[case((0, 4), (5, 1), None)]
    fn unions(#[case] a: (usize, usize), #[case] b: (usize, usize), #[case] expected: Option<(usize, usize)>) {
        let expected = expected.map(|(address, length)| span(address, length));
        assert_eq!(span(a.0, a.1).union(span(b.0, b.1)), expected);
        assert_eq!(span(b.0, b.1).union(span(a.0, a.1)), expected);
    }

    #[test]
    fn imagined_memory_has_no_bytes() {
        let imagined = HostSpan::imagined(64, 8);
        let length = |span| TensorMemory::of_graph(span, true).span().length();
        assert_eq!((imagined.range(), length(imagined)), (64..72, 0));
        assert_eq!(length(span(72, 8).union(imagined).unwrap()), 0);
    }

    #[test]
    fn bytes_are_the_memory_itself() {
        let data = [AtomicU8::new(1), AtomicU8::new(2)];
        // SAFETY: `data` outlives the span and is only accessed atomically.
        let span = unsafe { HostSpan::new(data.as_ptr().expose_provenance(), 2) };
        let (read, written) = (TensorMemory::of_graph(span, false), TensorMemory::of_graph(span, true));
        assert!(read.span().writable().is_none());
        written.span().writable().unwrap().part(1..2).unwrap().writable().unwrap().write(&[7]);
        assert_eq!((read.span().length(), data[1].load(Ordering::Relaxed)), (2, 7));
        assert!(TensorMemory::as_mapped(span).span().writable().is_some());
        // SAFETY: a constant of the program, which is mapped for reading.
        let constant = unsafe { HostSpan::new(b"constant".as_ptr().expose_provenance(), 8) };
        assert!(TensorMemory::as_mapped(constant).span().writable().is_none());
    }

    #[rstest]
    #[case(0x1000..0x2000, true)]
    #[case(0x1800..0x4000, true)]
    #[case(0x1000..0x4001, false)]
    #[case(0x4000..0x5000, false)]
    #[case(0x5000..0x6000, false)]
    #[case(0x9000..0xa000, false)]
    fn what_is_mapped_for_writing_may_be_written(#[case] range: Range<usize>, #[case] expected: bool) {
        let maps = "1000-3000 rw-p 00000000 00:00 0 \n3000-4000 rw-s 00000000 00:00 0 \n\
                    4000-5000 r--p 00000000 00:00 0 /a file\n6000-7000 rw-p 00000000 00:00 0 \n";
        assert_eq!(is_writable(&MemoryMaps::from_buf_read(maps.as_bytes()).unwrap(), &range), expected);
    }
}
