//! The guest's memory as the device addresses it.
//!
//! QEMU reports what its IOMMU maps: address, length, and where that is in the file of the guest's memory. Each such range is mapped
//! here at the place that its address has in one large reserved range, so what is contiguous for the device is contiguous for the
//! kernels that run on it, however the guest's pages lie. The reserved range has room for the 39 bits of address that a virtual IOMMU is
//! configured with; with more bits two ranges could claim the same place, which is rejected. The range is readable and writable as a
//! whole, at any time: what nothing is mapped to is empty pages, and what the device may only read is mapped so that a write would not
//! reach the guest. So the range is one [`Region`], and what the device may do is what the spans of it allow.
//!
//! A guest can take memory away while a command still uses it, as a driver does that has given up on the command. Real hardware
//! then gets a fault of the IOMMU; here the command continues with pages that no one else sees.

#![allow(unsafe_code)] // the guest's memory is mapped and looked at here, and nowhere else

use aie_device_memory::{Region, Span};
use parking_lot::RwLock;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

pub const ADDRESS_BITS: u32 = 39;
const LENGTH: usize = 1 << ADDRESS_BITS;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// The reserved range, released when dropped.
#[derive(Debug)]
struct Reservation(usize);

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range was reserved for this object alone, and no one refers to it without keeping this object.
        let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(self.0), LENGTH) };
    }
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    address: u64,
    length: u64,
    writable: bool,
}

/// What the device can reach. Thread-safe.
#[derive(Debug)]
pub struct AddressSpace {
    window: Region,
    /// By their place in the window.
    mappings: RwLock<BTreeMap<u64, Mapping>>,
}

fn place(address: u64) -> u64 {
    address & (LENGTH as u64 - 1)
}

impl AddressSpace {
    /// An empty one.
    ///
    /// # Errors
    /// When the process has no room for the reserved range of addresses, which takes no memory.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: pages at a new address, which no one can use.
        let base = unsafe { mmap_anonymous(null_mut(), LENGTH, READ_WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE) };
        let base = base.map_err(|error| {
            let text = format!("cannot reserve 2^{ADDRESS_BITS} bytes of addresses ({error}); raise `ulimit -v`");
            Error::new(ErrorKind::OutOfMemory, text)
        })?;
        let owner = Arc::new(Reservation(base.expose_provenance()));
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        // SAFETY: `owner` keeps the range, which is mapped readable and writable now. Mapping and taking away a mapping put other
        // readable and writable pages into the place of pages, and take none away.
        let window = unsafe { Region::mapped(base, LENGTH, owner) };
        Ok(Self { window, mappings: RwLock::default() })
    }

    /// Where a part of the window is, for mapping something there.
    fn target(&self, address: u64) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(self.window.address() + place(address) as usize)
    }

    /// Maps `length` bytes of `file` from `offset` on at `address`.
    ///
    /// # Errors
    /// What the kernel says, and a range that is mapped already or does not fit.
    pub fn map(&self, address: u64, length: u64, file: &File, offset: u64, writable: bool) -> Result<(), Error> {
        let reject =
            |why: &str| Error::new(ErrorKind::InvalidInput, format!("mapping {address:#x}+{length:#x}: {why}"));
        let start = place(address);
        let end = start.checked_add(length).filter(|end| *end <= LENGTH as u64 && length > 0);
        let end = end.ok_or_else(|| reject("it does not fit into the addresses that are left"))?;
        let mut mappings = self.mappings.write();
        let before = mappings.range(..end).next_back();
        if before.is_some_and(|(other, mapping)| other + mapping.length > start) {
            return Err(reject("another mapping is there; the IOMMU may use 39 bits of address (aw-bits=39)"));
        }
        let sharing = if writable { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: the place is inside the reserved range and nothing is mapped there, as was checked under the lock.
        let mapped =
            unsafe { mmap(self.target(address), length as usize, READ_WRITE, sharing | MapFlags::FIXED, file, offset) };
        if let Err(cause) = mapped {
            // The call may have taken away the pages that were there.
            self.empty(address, length)?;
            return Err(cause.into());
        }
        mappings.insert(start, Mapping { address, length, writable });
        Ok(())
    }

    /// Takes away all mappings that lie in `range`.
    pub fn unmap(&self, range: Range<u64>) -> Result<(), Error> {
        let mut mappings = self.mappings.write();
        let inside =
            |mapping: &Mapping| range.start <= mapping.address && mapping.address + mapping.length <= range.end;
        let gone: Vec<Mapping> = mappings.values().filter(|mapping| inside(mapping)).copied().collect();
        for mapping in gone {
            mappings.remove(&place(mapping.address));
            // A command that still uses the range finds other pages in their place.
            self.empty(mapping.address, mapping.length)?;
        }
        Ok(())
    }

    /// Puts empty pages where a mapping was, or was to be.
    fn empty(&self, address: u64, length: u64) -> Result<(), Error> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the place is inside the reserved range, which only this object maps into.
        unsafe { mmap_anonymous(self.target(address), length as usize, READ_WRITE, flags) }?;
        Ok(())
    }

    /// Bytes from `address` on that the device can reach, and whether it may write to all of them.
    pub fn extent(&self, address: u64) -> (u64, bool) {
        let mappings = self.mappings.read();
        let (mut end, mut writable) = (address, true);
        let first = mappings.range(..=place(address)).next_back().map(|(_, mapping)| *mapping);
        let Some(first) =
            first.filter(|mapping| (mapping.address..mapping.address + mapping.length).contains(&address))
        else {
            return (0, false);
        };
        for mapping in mappings.range(place(first.address)..).map(|(_, mapping)| mapping) {
            if mapping.address > end {
                break;
            }
            end = mapping.address + mapping.length;
            writable &= mapping.writable;
        }
        (end - address, writable)
    }

    /// The memory at an address, for reading only unless the device may write to all of it; `None` when it cannot reach all of it.
    pub fn reach(&self, address: u64, length: usize) -> Option<Span<'_>> {
        let (extent, writable) = self.extent(address);
        let span = (length as u64 <= extent).then(|| self.window.span(place(address) as usize, length)).flatten()?;
        Some(if writable { span } else { span.read_only() })
    }

    /// A copy of the memory at an address.
    pub fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let reached = self.reach(address, length)?;
        let mut bytes = vec![0; length];
        reached.read(&mut bytes);
        Some(bytes)
    }

    /// Writes to the memory at an address; `false`, and nothing is written, when the device cannot.
    pub fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let reached = self.reach(address, bytes.len()).and_then(Span::writable);
        reached.map(|reached| reached.write(bytes)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn memory(pages: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(pages * PAGE).unwrap();
        file
    }

    #[test]
    fn scattered_pages_are_contiguous_for_the_device() {
        let (space, file) = (AddressSpace::new().unwrap(), memory(8));
        let base = 0x7f_1234_5000;
        for (index, page) in [5, 2, 7].into_iter().enumerate() {
            space.map(base + index as u64 * PAGE, PAGE, &file, page * PAGE, true).unwrap();
        }
        assert_eq!(space.extent(base + 8), (3 * PAGE - 8, true));
        assert!(space.write(base + PAGE - 2, &[1, 2, 3, 4]));
        space.map(0x1000, PAGE, &file, 2 * PAGE, false).unwrap();
        assert_eq!(space.read(0x1000, 2), Some(vec![3, 4]));
        assert!(!space.write(0x1000, &[9]), "mapped for reading only");
        assert_eq!(space.read(base + 3 * PAGE - 1, 2), None);
        assert_eq!(space.read(base - 1, 2), None);
    }

    #[test]
    fn what_is_taken_away_is_out_of_reach_and_harmless() {
        let (space, file) = (AddressSpace::new().unwrap(), memory(4));
        space.map(0x10000, 2 * PAGE, &file, 0, true).unwrap();
        space.map(0x12000, PAGE, &file, 2 * PAGE, true).unwrap();
        let held = space.reach(0x10000, 8).and_then(Span::writable).unwrap();
        space.unmap(0x10000..0x12000).unwrap();
        assert!(space.reach(0x10000, 8).is_none() && space.reach(0x12000, 8).is_some());
        held.write(&[7; 8]);
        space.map(0x10000, PAGE, &file, 0, true).unwrap();
        assert_eq!(space.read(0x10000, 8), Some(vec![0; 8]));
        space.unmap(0..u64::MAX).unwrap();
        assert!(space.mappings.read().is_empty());
    }

    #[test]
    fn ranges_that_meet_are_rejected() {
        let (space, file) = (AddressSpace::new().unwrap(), memory(4));
        space.map(0x10000, 2 * PAGE, &file, 0, true).unwrap();
        for address in [0x10000, 0x11000, 0x0f000, 0x10000 + (1 << ADDRESS_BITS)] {
            let error = space.map(address, 2 * PAGE, &file, 0, true).unwrap_err();
            assert!(error.to_string().contains("another mapping is there"), "{error}");
        }
        assert!(space.map((1 << ADDRESS_BITS) - PAGE, 2 * PAGE, &file, 0, true).is_err());
    }
}
