//! The buffers a device has given to ggml, found by address.
//!
//! ggml names memory by pointers. Tensors and views of tensors are anywhere inside buffers, so the map is searched by range.

use aie_hal::{Binding, Buffer};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Our buffers by the address of their host view. Thread-safe.
#[derive(Debug, Default)]
pub struct BufferMap {
    buffers: RwLock<BTreeMap<usize, Arc<dyn Buffer>>>,
}

impl BufferMap {
    /// Adds a buffer whose host view starts at `base`.
    pub fn insert(&self, base: usize, buffer: Arc<dyn Buffer>) {
        self.buffers.write().insert(base, buffer);
    }

    /// Removes the buffer at `base`.
    pub fn remove(&self, base: usize) {
        self.buffers.write().remove(&base);
    }

    /// Address and size of each buffer, by address.
    pub fn spans(&self) -> Vec<(usize, usize)> {
        self.buffers.read().iter().map(|(base, buffer)| (*base, buffer.size())).collect()
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.buffers.read().values().map(|buffer| buffer.size()).sum()
    }

    /// The part of our buffers at the addresses `range`, if one buffer holds all of it.
    pub fn find(&self, range: &Range<usize>) -> Option<Binding> {
        let buffers = self.buffers.read();
        let (base, buffer) = buffers.range(..=range.start).next_back()?;
        let (offset, length) = (range.start - base, range.len());
        (offset + length <= buffer.size()).then(|| Binding { buffer: Arc::clone(buffer), offset, length })
    }

    /// Whether one of our buffers holds all of `range`.
    pub fn contains(&self, range: &Range<usize>) -> bool {
        self.find(range).is_some()
    }
}
