//! Where BOs are mapped in the process.
//!
//! The device reaches memory by user addresses, so it has to be known which BO is behind an address, and since a mapping keeps
//! its BO alive, when it goes. Most calls of `munmap` have nothing to do with BOs; they are recognised without a lock.

use super::bo::{Bo, Kind};
use crate::journal::{Journal, Level};
use amdxdna_sys::limits::PAGE;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Clone)]
struct Mapping {
    end: usize,
    bo: Arc<Bo>,
    /// Where in the BO the mapping starts.
    offset: usize,
    writable: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct MapRequest {
    /// Where, or 0.
    pub address: usize,
    pub length: usize,
    pub prot: i32,
    pub flags: i32,
    pub offset: usize,
}

#[derive(Debug, Clone)]
pub struct Mapped {
    pub bo: Arc<Bo>,
    pub offset: usize,
    /// Bytes up to the end of the mapping.
    pub available: usize,
    pub writable: bool,
}

#[derive(Debug)]
pub struct Mappings {
    table: Mutex<BTreeMap<usize, Mapping>>,
    /// Addresses outside of this range have never had a mapping.
    lowest: AtomicUsize,
    highest: AtomicUsize,
    journal: Arc<Journal>,
}

impl Mappings {
    pub fn new(journal: Arc<Journal>) -> Arc<Self> {
        let (lowest, highest) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        Arc::new(Self { table: Mutex::default(), lowest, highest, journal })
    }

    pub fn may_contain(&self, address: usize, length: usize) -> bool {
        address < self.highest.load(Ordering::Relaxed)
            && address.saturating_add(length) > self.lowest.load(Ordering::Relaxed)
    }

    /// Maps a part of a BO for the user; returns the address.
    ///
    /// # Errors
    /// EINVAL for a part of the heap, which is mapped with it, for memory that the kernel cannot look at, and for a range outside of
    /// the BO; what the kernel returns.
    pub fn map(&self, bo: Arc<Bo>, wanted: &MapRequest) -> Result<usize, Errno> {
        let MapRequest { address, length, prot, flags, offset } = *wanted;
        if matches!(&bo.kind, Kind::Dev { .. }) || !bo.is_visible() {
            return Err(Errno::EINVAL);
        }
        let (memory, _) = bo.memory().ok_or(Errno::EINVAL)?;
        if offset.checked_add(length).is_none_or(|end| end.next_multiple_of(PAGE) > bo.length()) {
            return Err(Errno::EINVAL);
        }
        let found = memory.map(address, length, prot, flags, offset)?;
        self.insert(found, length, bo, offset, prot & libc::PROT_WRITE != 0);
        Ok(found)
    }

    /// A BO was mapped. What was mapped there before is not any more.
    pub fn insert(&self, address: usize, length: usize, bo: Arc<Bo>, offset: usize, writable: bool) {
        let end = address + length.next_multiple_of(PAGE);
        self.remove(address, end - address);
        self.lowest.fetch_min(address, Ordering::Relaxed);
        self.highest.fetch_max(end, Ordering::Relaxed);
        bo.mapped(address);
        self.journal.change(Level::Mappings, 1);
        self.table.lock().insert(address, Mapping { end, bo, offset, writable });
    }

    /// A range was unmapped; returns whether there was a mapping.
    pub fn remove(&self, address: usize, length: usize) -> bool {
        if !self.may_contain(address, length) {
            return false;
        }
        let end = address.saturating_add(length.next_multiple_of(PAGE));
        let mut table = self.table.lock();
        let overlapping = table.range(..end).rev().take_while(|(_, mapping)| mapping.end > address);
        let starts: Vec<usize> = overlapping.map(|(start, _)| *start).collect();
        let mut dropped = Vec::new();
        for start in &starts {
            let Some(mapping) = table.remove(start) else { continue };
            mapping.bo.unmapped(*start);
            self.journal.change(Level::Mappings, -1);
            let mut keep = |from: usize, to: usize| {
                mapping.bo.still_mapped(from);
                self.journal.change(Level::Mappings, 1);
                let offset = mapping.offset + (from - start);
                table.insert(from, Mapping { end: to, offset, ..mapping.clone() });
            };
            if *start < address {
                keep(*start, address);
            }
            if mapping.end > end {
                keep(end, mapping.end);
            }
            dropped.push(mapping);
        }
        // Releasing a BO takes other locks.
        drop(table);
        !starts.is_empty()
    }

    pub fn contains(&self, address: usize, length: usize) -> bool {
        let table = self.table.lock();
        let before = table.range(..address.saturating_add(length)).next_back();
        before.is_some_and(|(_, mapping)| mapping.end > address)
    }

    pub fn find(&self, address: usize) -> Option<Mapped> {
        let table = self.table.lock();
        let (start, mapping) = table.range(..=address).next_back()?;
        (address < mapping.end).then(|| Mapped {
            bo: mapping.bo.clone(),
            offset: mapping.offset + (address - start),
            available: mapping.end - address,
            writable: mapping.writable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn table() -> (Arc<Mappings>, Arc<Bo>) {
        let journal = Arc::new(Journal::new(Arc::new(Settings::default())).unwrap());
        let bo = Bo::new(Kind::Shmem, 8 * PAGE, None, None, None, journal.clone());
        (Mappings::new(journal), bo)
    }

    #[test]
    fn addresses_lead_to_bos() {
        let (mappings, bo) = table();
        mappings.insert(0x10000, 8 * PAGE, bo.clone(), 0, true);
        assert!(mappings.find(0xffff).is_none());
        assert!(mappings.find(0x10000 + 8 * PAGE).is_none());
        let found = mappings.find(0x10010).unwrap();
        assert_eq!((found.offset, found.available, found.writable), (0x10, 8 * PAGE - 0x10, true));
        assert_eq!(bo.user_address(), Some(0x10000));
    }

    #[test]
    fn holes_split_mappings_and_release_bos() {
        let (mappings, bo) = table();
        mappings.insert(0x10000, 8 * PAGE, bo.clone(), 0, true);
        assert!(mappings.remove(0x10000 + 2 * PAGE, PAGE));
        assert!(mappings.find(0x10000 + 2 * PAGE).is_none());
        assert_eq!(mappings.find(0x10000 + 3 * PAGE).unwrap().offset, 3 * PAGE);
        assert_eq!(mappings.journal.level(Level::Mappings), 2);
        assert!(!mappings.remove(0x10000 + 2 * PAGE, PAGE));
        assert!(mappings.remove(0, 1 << 40));
        assert_eq!((mappings.journal.level(Level::Mappings), bo.user_address()), (0, None));
        assert_eq!(Arc::strong_count(&bo), 1);
    }

    #[test]
    fn a_mapping_on_top_replaces_what_was_there() {
        let (mappings, bo) = table();
        mappings.insert(0x10000, 2 * PAGE, bo.clone(), 0, true);
        mappings.insert(0x10000, PAGE, bo, 5 * PAGE, false);
        let found = mappings.find(0x10000).unwrap();
        assert_eq!((found.offset, found.writable), (5 * PAGE, false));
        assert_eq!(mappings.find(0x10000 + PAGE).unwrap().offset, PAGE);
    }
}
