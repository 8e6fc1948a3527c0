//! The descriptors of the process that are the simulator's.

use super::bo::Bo;
use super::fence::Fence;
use super::file::File;
use super::syncobj::Syncobj;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a descriptor is, if it is ours.
#[derive(Debug, Clone)]
pub enum Open {
    Accel(Arc<File>),
    Kfd,
    Bo(Arc<Bo>),
    Syncobj(Arc<Syncobj>),
    /// A sync file, which stands for one fence.
    SyncFile(Fence),
    /// An accel node of the host: its number.
    Host(u64),
}

/// Descriptors below this number are recognised without a lock.
const QUICK: usize = 4096;

/// The descriptors that are ours.
#[derive(Debug)]
pub struct Descriptors {
    open: RwLock<HashMap<i32, Open>>,
    quick: [AtomicU64; QUICK / 64],
}

impl Default for Descriptors {
    fn default() -> Self {
        Self { open: RwLock::default(), quick: [const { AtomicU64::new(0) }; QUICK / 64] }
    }
}

impl Descriptors {
    fn bit(&self, fd: i32) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        self.quick.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
    }

    pub fn get(&self, fd: i32) -> Option<Open> {
        if let Some((word, bit)) = self.bit(fd)
            && word.load(Ordering::Acquire) & bit == 0
        {
            return None;
        }
        self.open.read().get(&fd).cloned()
    }

    /// `fd` is `open` now.
    pub fn set(&self, fd: i32, open: Open) {
        let before = self.open.write().insert(fd, open);
        if let Some((word, bit)) = self.bit(fd) {
            word.fetch_or(bit, Ordering::Release);
        }
        // Closing a file takes other locks.
        drop(before);
    }

    /// `fd` is not ours any more; what it was.
    pub fn take(&self, fd: i32) -> Option<Open> {
        self.get(fd)?;
        if let Some((word, bit)) = self.bit(fd) {
            word.fetch_and(!bit, Ordering::Release);
        }
        self.open.write().remove(&fd)
    }

    /// The open files of accel nodes; one with several descriptors more than once.
    pub fn files(&self) -> Vec<Arc<File>> {
        let open = self.open.read();
        let file = |open: &Open| if let Open::Accel(file) = open { Some(file.clone()) } else { None };
        open.values().filter_map(file).collect()
    }
}
