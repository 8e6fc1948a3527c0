//! The handles of BOs that an open file has.

use super::bo::Bo;
use amdxdna_sys::AMDXDNA_INVALID_ADDR;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Handles {
    bos: BTreeMap<u32, Arc<Bo>>,
    /// Handles that are free and below one that is not.
    free: BTreeSet<u32>,
    offsets: HashMap<u64, u32>,
}

impl Handles {
    pub(super) fn bo(&self, handle: u32) -> Option<&Arc<Bo>> {
        self.bos.get(&handle)
    }

    /// Gives a BO the lowest free handle, from 1.
    pub(super) fn insert(&mut self, bo: Arc<Bo>) -> u32 {
        let next = self.bos.last_key_value().map_or(1, |(last, _)| last + 1);
        let handle = self.free.pop_first().unwrap_or(next);
        if bo.map_offset() != AMDXDNA_INVALID_ADDR {
            self.offsets.insert(bo.map_offset(), handle);
        }
        self.bos.insert(handle, bo);
        handle
    }

    pub(super) fn remove(&mut self, handle: u32) -> Option<Arc<Bo>> {
        let bo = self.bos.remove(&handle)?;
        self.offsets.remove(&bo.map_offset());
        // Only what is below a handle in use is a gap.
        self.free.insert(handle);
        let last = self.bos.last_key_value().map_or(0, |(last, _)| *last);
        self.free.split_off(&last);
        Some(bo)
    }

    /// The BO with an offset for `mmap`.
    pub(super) fn at_offset(&self, offset: u64) -> Option<&Arc<Bo>> {
        self.bo(*self.offsets.get(&offset)?)
    }

    /// The handle of a BO that has the memory of another.
    pub(super) fn sharing(&self, other: &Bo) -> Option<u32> {
        self.bos.iter().find(|(_, bo)| bo.shares_memory(other)).map(|(handle, _)| *handle)
    }

    pub(super) fn bos(&self) -> impl Iterator<Item = &Arc<Bo>> {
        self.bos.values()
    }
}
