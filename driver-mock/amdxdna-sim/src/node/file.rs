//! One open file of the accel node: handles, device heap, contexts.

use super::bo::{Bo, Kind};
use super::device::{Device, FIRST_MAP_OFFSET};
use super::handles::Handles;
use super::heap::Heaps;
use super::jobs::ContextQueue;
use super::syncobj::Syncobj;
use crate::journal::Level;
use crate::memory::{self, Memory};
use aie_driver_mock::npu::ContextId;
use aie_driver_mock::npu::array::LoadedPdi;
use amdxdna_sys::{AMDXDNA_INVALID_ADDR, amdxdna_drm_get_bo_info, limits};
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A context of an open file.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) npu: ContextId,
    pub(super) columns: usize,
    /// The first of them.
    pub(super) start: usize,
    pub(super) priority: u32,
    pub(super) units: Option<Vec<LoadedPdi>>,
    /// Chain buffers of the kernel: they only take their place in the heap.
    pub(super) _chain_buffers: Vec<Arc<Bo>>,
    /// The list of compute units, when it was given and not yet parsed.
    pub(super) configuration: Option<Vec<u8>>,
    pub(super) line: Arc<ContextQueue>,
    /// Where they complete, when the kernel has that.
    pub(super) _timeline: Option<Arc<Syncobj>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) heaps: Heaps,
    pub(super) contexts: BTreeMap<u32, Context>,
    /// The handle that the next context gets if it is free.
    pub(super) next_context: u32,
    pub(super) syncobjs: BTreeMap<u32, Arc<Syncobj>>,
    /// The lowest number that a synchronisation object can get.
    pub(super) first_syncobj: u32,
}

impl Context {
    /// Gives it back, when all that it was given has ended.
    ///
    /// # Errors
    /// EINVAL when the device does not have it.
    pub(super) fn release(self, device: &Device) -> Result<(), Errno> {
        self.line.close(device);
        device.journal.change(Level::Contexts, -1);
        device.npu.destroy_context(self.npu).map_err(|_| Errno::EINVAL)
    }
}

/// An open file. Dropping it releases everything that was made through it.
#[derive(Debug)]
pub struct File {
    pub(super) device: Arc<Device>,
    number: u64,
    /// Apart from the rest, as commands look handles up when they run.
    pub(super) handles: Arc<Mutex<Handles>>,
    pub(super) state: Mutex<State>,
}

impl State {
    fn new(device: &Device) -> Self {
        Self {
            heaps: Heaps::new(device),
            contexts: BTreeMap::new(),
            next_context: 1,
            syncobjs: BTreeMap::new(),
            first_syncobj: 1,
        }
    }

    pub(super) fn add_syncobj(&mut self, device: &Device, object: Arc<Syncobj>) -> u32 {
        device.journal.change(Level::Syncobjs, 1);
        let mut used = self.syncobjs.keys().copied();
        let handle = (self.first_syncobj..).find(|handle| used.next() != Some(*handle)).unwrap_or(u32::MAX);
        self.syncobjs.insert(handle, object);
        handle
    }
}

impl File {
    /// Opens the node of `device`.
    ///
    /// # Errors
    /// What the kernel gives when user addresses cannot be shared with the device.
    pub fn open(device: &Arc<Device>) -> Result<Arc<Self>, Errno> {
        if let Some(errno) = device.rejected {
            device.journal.log(|| "the device cannot share user addresses: see the machine's IOMMU".into());
            return Err(errno);
        }
        device.journal.change(Level::Files, 1);
        let number = device.next_file.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(State::new(device));
        Ok(Arc::new(Self { device: device.clone(), number, handles: Arc::default(), state }))
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Number of the file among those of its device, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// GET_BO_INFO.
    ///
    /// # Errors
    /// EINVAL for an extension, ENOENT for an unknown handle.
    pub fn get_bo_info(&self, arguments: &mut amdxdna_drm_get_bo_info) -> Result<(), Errno> {
        let padding = if self.device.profile.padding_is_checked { arguments.pad } else { 0 };
        if arguments.ext != 0 || arguments.ext_flags != 0 || padding != 0 {
            return Err(Errno::EINVAL);
        }
        let bo = self.bo(arguments.handle).ok_or(Errno::ENOENT)?;
        arguments.vaddr = bo.user_address().unwrap_or(AMDXDNA_INVALID_ADDR);
        arguments.xdna_addr = bo.device_address();
        arguments.map_offset = bo.map_offset();
        Ok(())
    }

    pub fn gem_close(&self, handle: u32) -> Result<(), Errno> {
        let bo = self.handles.lock().remove(handle);
        bo.map(drop).ok_or(Errno::EINVAL)
    }

    pub fn bo(&self, handle: u32) -> Option<Arc<Bo>> {
        self.handles.lock().bo(handle).cloned()
    }

    /// Makes a handle of a BO that was exported, or finds the one there is.
    pub fn import(&self, bo: &Arc<Bo>) -> u32 {
        let mut handles = self.handles.lock();
        if let Some(known) = handles.sharing(bo) {
            return known;
        }
        let shared = bo.memory().filter(|_| self.device.profile.imports_anew).and_then(|(memory, _)| memory.share());
        let bo = shared.map_or_else(|| bo.clone(), |memory| self.bo_of(Kind::Imported, memory));
        handles.insert(bo)
    }

    /// Makes a BO of a descriptor that another process has exported, and a handle of it.
    ///
    /// # Errors
    /// EINVAL when it is none, EBADF when it is not open.
    pub fn import_descriptor(&self, fd: i32) -> Result<u32, Errno> {
        if !memory::is_exported_bo(fd)? {
            return Err(Errno::EINVAL);
        }
        let bo = self.bo_of(Kind::Imported, Memory::import(fd)?);
        Ok(self.handles.lock().insert(bo))
    }

    /// Finds the BO that `mmap` at an offset means.
    ///
    /// # Errors
    /// EINVAL for an offset that no BO has, EACCES for one that a BO of another file has, or a BO whose handle is gone; the kernel's
    /// error for one that no BO can have; EINVAL for a length beyond the BO and for a private mapping.
    pub fn mappable(&self, offset: u64, length: usize, flags: i32) -> Result<Arc<Bo>, Errno> {
        if offset < FIRST_MAP_OFFSET {
            return Err(self.device.profile.low_offset);
        }
        let handles = self.handles.lock();
        let Some(bo) = handles.at_offset(offset) else {
            let is_in_use = self.device.offsets.lock().contains(&offset);
            return Err(if is_in_use { Errno::EACCES } else { Errno::EINVAL });
        };
        let fits = length > 0 && length.next_multiple_of(limits::PAGE) <= bo.length();
        let is_shared = flags & libc::MAP_TYPE == libc::MAP_SHARED;
        if fits && is_shared { Ok(bo.clone()) } else { Err(Errno::EINVAL) }
    }

    /// Lets all jobs end, until `deadline`.
    pub fn drain(&self, deadline: Instant) {
        let lines: Vec<_> = self.state.lock().contexts.values().map(|context| context.line.clone()).collect();
        lines.iter().for_each(|line| line.drain(&self.device, Some(deadline)));
    }

    pub(super) fn heap_used(&self) -> usize {
        self.state.lock().heaps.used()
    }

    /// Bytes of all BOs with memory of their own, and of those that are no user's data.
    pub(super) fn bo_usage(&self) -> (usize, usize) {
        let handles = self.handles.lock();
        let own = handles.bos().filter(|bo| !matches!(&bo.kind, Kind::Dev { .. }));
        own.fold((0, 0), |(total, internal), bo| {
            let inside = if matches!(&bo.kind, Kind::Heap { .. } | Kind::Cmd) { bo.length() } else { 0 };
            (total + bo.length(), internal + inside)
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let (contexts, syncobjs) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.contexts), std::mem::take(&mut state.syncobjs))
        };
        self.device.journal.change(Level::Syncobjs, -(syncobjs.len() as i64));
        for context in contexts.into_values() {
            // A context that is in the table exists; an error could not be returned anyway.
            let _ = context.release(&self.device);
        }
        self.device.journal.change(Level::Files, -1);
    }
}
