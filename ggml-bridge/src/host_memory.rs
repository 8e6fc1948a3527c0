//! Memory of others that the device uses in place: tensors in the buffers of ggml's CPU backend, files it has mapped.
//!
//! The only promise about such memory is that the tensors of a graph are valid while the graph is computed; a mapped file
//! that ggml hands over as a buffer stays until the buffer is freed, which is longer. A
//! [`HostSpan`] carries this promise from the ABI layer, where a tensor was read, to the driver that imports it.

use aie_hal::HostMemory;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

/// An address range that ggml vouches for while a graph that names it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostSpan {
    address: usize,
    length: usize,
    /// Whether there is no memory at these addresses.
    imagined: bool,
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
pub struct TensorMemory(pub HostSpan);

impl HostMemory for TensorMemory {
    fn bytes(&self) -> &[AtomicU8] {
        if self.0.length == 0 || self.0.imagined {
            return &[];
        }
        let pointer = std::ptr::with_exposed_provenance::<AtomicU8>(self.0.address);
        // SAFETY: by the contract of `HostSpan::new` the range is mapped while a graph that names it is computed, which is the
        // only time drivers access it. `AtomicU8` has no alignment and allows other owners to write at the same time.
        unsafe { std::slice::from_raw_parts(pointer, self.0.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!((imagined.range(), TensorMemory(imagined).bytes().len()), (64..72, 0));
        assert_eq!(TensorMemory(span(72, 8).union(imagined).unwrap()).bytes().len(), 0);
    }

    #[test]
    fn bytes_are_the_memory_itself() {
        let data = [AtomicU8::new(1), AtomicU8::new(2)];
        // SAFETY: `data` outlives the span and is only accessed atomically.
        let memory = TensorMemory(unsafe { HostSpan::new(data.as_ptr().expose_provenance(), 2) });
        memory.bytes()[1].store(7, Ordering::Relaxed);
        assert_eq!((memory.bytes().len(), data[1].load(Ordering::Relaxed)), (2, 7));
    }
}
