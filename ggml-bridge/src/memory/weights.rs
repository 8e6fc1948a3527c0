//! Weights in the form the array reads, converted once.
//!
//! f16 weights become bf16 copies in device memory when a plan first needs them. A copy is found again by the
//! address, type and shape of the original. It is dropped when the original is written or freed, and plans that use it
//! notice by [`WeightCache::generation`]. The copies of a device together stay under a cap; what is over it is converted
//! in every graph.

use aie_hal::Buffer;
use aie_ops::Tensor;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which conversion of which weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightKey {
    /// Address of the original.
    pub address: usize,
    /// The original.
    pub original: Tensor,
    /// The copy.
    pub array: Tensor,
}

impl WeightKey {
    fn range(&self) -> Range<usize> {
        self.address..self.address + self.original.span_bytes()
    }
}

/// Converted weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WeightCounts {
    /// Tensors converted.
    pub converted: u64,
    /// Most bytes that they held at one time.
    pub bytes: u64,
    /// Most bytes they may hold.
    pub cap_bytes: u64,
    /// Tensors that were over the cap, or not convertible ahead, and are converted in each graph.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct State {
    copies: HashMap<WeightKey, Arc<dyn Buffer>>,
    converted: u64,
    bytes: u64,
    peak: u64,
    refused: u64,
}

/// Converted weights of one device. Thread-safe.
#[derive(Debug)]
pub struct WeightCache {
    state: Mutex<State>,
    generation: AtomicU64,
    cap: u64,
}

/// What the cache says about a conversion.
#[derive(Debug)]
pub enum Lookup {
    /// Here it is.
    Found(Arc<dyn Buffer>),
    /// Not there; it may be made.
    Missing,
    /// It would be over the cap.
    Rejected,
}

impl WeightCache {
    /// A cache for at most `cap` bytes.
    pub fn new(cap: u64) -> Self {
        Self { state: Mutex::default(), generation: AtomicU64::new(0), cap }
    }

    /// Rises whenever a copy was dropped: plans made before may refer to it.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Looks a copy up.
    pub fn find(&self, key: &WeightKey) -> Lookup {
        let mut state = self.state.lock();
        if let Some(copy) = state.copies.get(key) {
            return Lookup::Found(Arc::clone(copy));
        }
        if state.bytes.saturating_add(key.array.span_bytes() as u64) > self.cap {
            state.refused += 1;
            return Lookup::Rejected;
        }
        Lookup::Missing
    }

    /// Adds a copy.
    pub fn insert(&self, key: WeightKey, copy: Arc<dyn Buffer>) {
        let mut state = self.state.lock();
        if state.copies.insert(key, copy).is_none() {
            state.bytes += key.array.span_bytes() as u64;
            state.peak = state.peak.max(state.bytes);
            state.converted += 1;
        }
    }

    /// Counts weights that could not be converted ahead for another reason than the cap. Returns whether they are the first.
    pub fn count_rejection(&self) -> bool {
        let mut state = self.state.lock();
        state.refused += 1;
        state.refused == 1
    }

    /// Drops the copies of everything in `range`, because it is written or freed.
    pub fn drop_range(&self, range: &Range<usize>) {
        let mut state = self.state.lock();
        if state.copies.is_empty() {
            return;
        }
        let mut dropped = 0;
        state.copies.retain(|key, _| {
            let original = key.range();
            let keep = original.end <= range.start || range.end <= original.start;
            dropped += if keep { 0 } else { key.array.span_bytes() as u64 };
            keep
        });
        if dropped > 0 {
            state.bytes -= dropped;
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> WeightCounts {
        let state = self.state.lock();
        WeightCounts { converted: state.converted, bytes: state.peak, cap_bytes: self.cap, refused: state.refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubles::coherent;
    use aie_ops::DataType;

    fn key(address: usize) -> WeightKey {
        let ne = [64, 2, 1, 1];
        WeightKey {
            address,
            original: Tensor::contiguous(DataType::Q4_0, ne),
            array: Tensor::contiguous(DataType::BF16, ne),
        }
    }

    #[test]
    fn copies_are_found_until_the_original_changes() {
        let (copy, cache) = (coherent(256), WeightCache::new(1024));
        assert!(matches!(cache.find(&key(0)), Lookup::Missing));
        cache.insert(key(0), Arc::clone(&copy));
        cache.insert(key(72), Arc::clone(&copy));
        assert!(matches!(cache.find(&key(0)), Lookup::Found(_)));

        cache.drop_range(&(200..300));
        assert_eq!(cache.generation(), 0, "nothing there was converted");
        cache.drop_range(&(71..72));
        assert_eq!(cache.generation(), 1);
        assert!(matches!(cache.find(&key(0)), Lookup::Missing));
        assert!(matches!(cache.find(&key(72)), Lookup::Found(_)));
        assert_eq!(cache.counts(), WeightCounts { converted: 2, bytes: 512, cap_bytes: 1024, refused: 0 });
    }

    #[test]
    fn the_cap_holds_and_rejections_are_counted() {
        let cache = WeightCache::new(300);
        cache.insert(key(0), coherent(256));
        assert!(matches!(cache.find(&key(72)), Lookup::Rejected));
        assert_eq!(cache.counts().refused, 1);
        cache.drop_range(&(0..1));
        assert!(matches!(cache.find(&key(72)), Lookup::Missing));
    }
}
