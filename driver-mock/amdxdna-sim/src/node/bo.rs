//! Buffer objects.
//!
//! A BO lives as long as anything refers to it: a handle, a mapping, an exported descriptor, a command that has not completed,
//! and for the device heap every BO inside it.

use crate::journal::{Journal, Level};
use crate::memory::Memory;
use aie_driver_mock::npu::HeapAllocator;
use amdxdna_sys::{AMDXDNA_INVALID_ADDR, limits};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Clone)]
pub enum Kind {
    Shmem,
    Heap {
        /// Where it starts in the device's view of all heaps.
        start: usize,
    },
    Dev {
        heap: Arc<Bo>,
        offset: usize,
        /// The account of the heaps, to which the part goes back.
        account: Arc<Mutex<HeapAllocator>>,
    },
    Cmd,
    /// Memory of another process or file.
    Imported,
    /// Memory that the caller had before.
    User {
        /// Whether the kernel can look at it.
        visible: bool,
    },
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shmem => "SHMEM",
            Self::Heap { .. } => "DEV_HEAP",
            Self::Dev { .. } => "DEV",
            Self::Cmd => "CMD",
            Self::Imported => "IMPORTED",
            Self::User { .. } => "USER",
        }
    }
}

/// An offset for `mmap`, in use until dropped.
#[derive(Debug)]
pub struct MapOffset {
    value: u64,
    in_use: Arc<Mutex<HashSet<u64>>>,
}

impl MapOffset {
    pub(super) fn new(value: u64, in_use: &Arc<Mutex<HashSet<u64>>>) -> Self {
        in_use.lock().insert(value);
        Self { value, in_use: in_use.clone() }
    }
}

impl Drop for MapOffset {
    fn drop(&mut self) {
        self.in_use.lock().remove(&self.value);
    }
}

#[derive(Debug, Default)]
struct UserMappings {
    /// Addresses of the mappings, oldest first.
    now: Vec<usize>,
    last: Option<usize>,
}

#[derive(Debug)]
pub struct Bo {
    pub kind: Kind,
    length: usize,
    /// Its own memory; a part of the heap has none.
    memory: Option<Memory>,
    map_offset: Option<MapOffset>,
    /// Its device address, where the driver gives one.
    pub iova: Option<u64>,
    places: Mutex<UserMappings>,
    /// The context that it is the debug BO of; 0: none.
    debugged: AtomicU32,
    journal: Arc<Journal>,
}

impl Bo {
    pub(super) fn new(
        kind: Kind,
        length: usize,
        memory: Option<Memory>,
        map_offset: Option<MapOffset>,
        iova: Option<u64>,
        journal: Arc<Journal>,
    ) -> Arc<Self> {
        journal.bo_created(kind.name());
        journal.change(Level::Bos, 1);
        if memory.is_some() {
            journal.change(Level::BoBytes, length as i64);
        }
        let (places, debugged) = (Mutex::default(), AtomicU32::new(0));
        Arc::new(Self { kind, length, memory, map_offset, iova, places, debugged, journal })
    }

    /// Length in bytes, whole pages.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Its memory and where it starts there.
    pub fn memory(&self) -> Option<(&Memory, usize)> {
        match &self.kind {
            Kind::Dev { heap, offset, .. } => heap.memory.as_ref().map(|memory| (memory, *offset)),
            _ => self.memory.as_ref().map(|memory| (memory, 0)),
        }
    }

    /// The offset for `mmap`; a part of the heap has none.
    pub fn map_offset(&self) -> u64 {
        self.map_offset.as_ref().map_or(AMDXDNA_INVALID_ADDR, |offset| offset.value)
    }

    /// Whether it is memory that a command can be in: anything but the heap and its parts.
    pub fn is_shared(&self) -> bool {
        !matches!(self.kind, Kind::Heap { .. } | Kind::Dev { .. })
    }

    pub fn is_visible(&self) -> bool {
        !matches!(self.kind, Kind::User { visible: false })
    }

    /// Whether its memory is that of another BO, too.
    pub(super) fn shares_memory(&self, other: &Self) -> bool {
        let memories = self.memory.as_ref().zip(other.memory.as_ref());
        std::ptr::eq(self, other) || memories.is_some_and(|(one, other)| one.is_same(other))
    }

    /// The context that it is the debug BO of.
    pub(super) fn debugged(&self) -> Option<u32> {
        Some(self.debugged.load(Ordering::Relaxed)).filter(|context| *context != 0)
    }

    /// It is the debug BO of a context, or of none.
    pub(super) fn debug(&self, context: Option<u32>) {
        self.debugged.store(context.unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn heap_start(&self) -> Option<usize> {
        match self.kind {
            Kind::Heap { start } => Some(start),
            _ => None,
        }
    }

    /// What the driver takes for its address in the process: that of the oldest mapping. Where the device has addresses of its own
    /// the driver does not watch mappings, and this is the last one that was made, even when it is gone.
    pub fn user_address(&self) -> Option<u64> {
        match &self.kind {
            Kind::Dev { heap, offset, .. } => heap.user_address().map(|base| base + *offset as u64),
            _ => {
                let places = self.places.lock();
                let place = if self.iova.is_some() { places.last } else { places.now.first().copied() };
                place.map(|address| address as u64)
            }
        }
    }

    /// Address for the device: the heap has addresses of its own; everything else is seen at its user address, or where the driver
    /// has put it.
    pub fn device_address(&self) -> u64 {
        match &self.kind {
            Kind::Heap { start } => limits::DEV_MEM_BASE + *start as u64,
            Kind::Dev { heap, offset, .. } => heap.device_address() + *offset as u64,
            _ => self.iova.or_else(|| self.user_address()).unwrap_or(AMDXDNA_INVALID_ADDR),
        }
    }

    pub(super) fn mapped(&self, address: usize) {
        let mut places = self.places.lock();
        places.now.push(address);
        places.last = Some(address);
    }

    /// A part of a mapping is left.
    pub(super) fn still_mapped(&self, address: usize) {
        self.places.lock().now.push(address);
    }

    pub(super) fn unmapped(&self, address: usize) {
        let mut places = self.places.lock();
        if let Some(index) = places.now.iter().position(|found| *found == address) {
            places.now.remove(index);
        }
    }

    /// A word as the kernel sees it.
    pub(super) fn word(&self, offset: usize) -> Option<u32> {
        let (memory, start) = self.memory().filter(|_| self.is_visible())?;
        memory.word(start + offset)
    }

    pub(super) fn set_word(&self, offset: usize, word: u32) {
        if let Some((memory, start)) = self.memory().filter(|_| self.is_visible()) {
            memory.set_word(start + offset, word);
        }
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        self.journal.change(Level::Bos, -1);
        if self.memory.is_some() {
            self.journal.change(Level::BoBytes, -(self.length as i64));
        }
        if let Kind::Dev { heap, offset, account } = &self.kind {
            let start = heap.heap_start().unwrap_or(0);
            account.lock().free(start + *offset);
        }
    }
}
