//! The buffers a device has given to ggml, found by address.
//!
//! ggml names memory by pointers. Tensors and views of tensors are anywhere inside buffers, so the map is searched by range.

use aie_hal::Buffer;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A piece of one of our buffers.
#[derive(Debug, Clone)]
pub struct Place {
    /// The buffer.
    pub buffer: Arc<dyn Buffer>,
    /// First byte.
    pub offset: usize,
}

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

    /// The buffer that holds all of `range`.
    pub fn find(&self, range: &Range<usize>) -> Option<Place> {
        let buffers = self.buffers.read();
        let (base, buffer) = buffers.range(..=range.start).next_back()?;
        let offset = range.start - base;
        (offset + range.len() <= buffer.size()).then(|| Place { buffer: Arc::clone(buffer), offset })
    }
}
