//! Buffer objects.
//!
//! A BO lives as long as anything refers to it: a handle, a mapping, an exported descriptor, a command that has not completed,
//! and for the device heap every BO inside it.

use super::heap::HeapAccount;
use crate::journal::Journal;
use crate::memory::Memory;
use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_SHMEM, AMDXDNA_INVALID_ADDR, limits,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a BO is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Shared memory.
    Shmem,
    /// The device heap.
    Heap,
    /// Part of a device heap.
    Dev {
        /// The heap.
        heap: Arc<Bo>,
        /// Offset in it.
        offset: usize,
        /// The heap's account, to which the part goes back.
        account: Arc<Mutex<HeapAccount>>,
    },
    /// A command.
    Cmd,
    /// Memory of somebody else.
    Imported,
    /// Memory that the caller had before.
    User,
}

impl Kind {
    /// Name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shmem => "SHMEM",
            Self::Heap => "DEV_HEAP",
            Self::Dev { .. } => "DEV",
            Self::Cmd => "CMD",
            Self::Imported => "IMPORTED",
            Self::User => "USER",
        }
    }

    /// Number in the uapi.
    pub fn number(&self) -> u32 {
        match self {
            Self::Shmem | Self::Imported | Self::User => AMDXDNA_BO_SHMEM,
            Self::Heap => AMDXDNA_BO_DEV_HEAP,
            Self::Dev { .. } => AMDXDNA_BO_DEV,
            Self::Cmd => AMDXDNA_BO_CMD,
        }
    }
}

/// A buffer object.
#[derive(Debug)]
pub struct Bo {
    kind: Kind,
    length: usize,
    /// Its own memory; a part of the heap has none.
    memory: Option<Memory>,
    map_offset: u64,
    /// Its device address, where the driver gives one.
    iova: Option<u64>,
    /// Addresses of the mappings, oldest first.
    mapped_at: Mutex<Vec<usize>>,
    journal: Arc<Journal>,
}

impl Bo {
    pub(super) fn new(
        kind: Kind,
        length: usize,
        memory: Option<Memory>,
        map_offset: u64,
        iova: Option<u64>,
        journal: Arc<Journal>,
    ) -> Arc<Self> {
        journal.bo_created(kind.name());
        journal.counts.bos.change(1);
        if memory.is_some() {
            journal.counts.bo_bytes.change(length as i64);
        }
        Arc::new(Self { kind, length, memory, map_offset, iova, mapped_at: Mutex::default(), journal })
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
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
        self.map_offset
    }

    /// Whether it is memory that a command can be in: anything but the heap and its parts.
    pub fn is_shared(&self) -> bool {
        !matches!(self.kind, Kind::Heap | Kind::Dev { .. })
    }

    /// Its device address, where the driver gives one.
    pub fn iova(&self) -> Option<u64> {
        self.iova
    }

    /// Address of the oldest mapping in the process.
    pub fn user_address(&self) -> Option<u64> {
        match &self.kind {
            Kind::Dev { heap, offset, .. } => heap.user_address().map(|base| base + *offset as u64),
            _ => self.mapped_at.lock().first().map(|address| *address as u64),
        }
    }

    /// Address for the device: the heap has addresses of its own; everything else is seen at its user address, or where the driver
    /// has put it.
    pub fn device_address(&self) -> u64 {
        match &self.kind {
            Kind::Heap => limits::DEV_MEM_BASE,
            Kind::Dev { offset, .. } => limits::DEV_MEM_BASE + *offset as u64,
            _ => self.iova.or_else(|| self.user_address()).unwrap_or(AMDXDNA_INVALID_ADDR),
        }
    }

    pub(super) fn mapped(&self, address: usize) {
        self.mapped_at.lock().push(address);
    }

    pub(super) fn unmapped(&self, address: usize) {
        let mut mapped = self.mapped_at.lock();
        if let Some(index) = mapped.iter().position(|found| *found == address) {
            mapped.remove(index);
        }
    }

    pub(super) fn word(&self, offset: usize) -> Option<u32> {
        let (memory, start) = self.memory()?;
        memory.word(start + offset)
    }

    pub(super) fn set_word(&self, offset: usize, word: u32) {
        if let Some((memory, start)) = self.memory() {
            memory.set_word(start + offset, word);
        }
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        self.journal.counts.bos.change(-1);
        if self.memory.is_some() {
            self.journal.counts.bo_bytes.change(-(self.length as i64));
        }
        if let Kind::Dev { offset, account, .. } = &self.kind {
            account.lock().give_back(*offset);
        }
    }
}
