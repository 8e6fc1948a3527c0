//! One open file of the accel node: handles, device heap, contexts.

use super::bo::{Bo, Kind};
use super::context::{Context, place};
use super::heap::Heaps;
use super::syncobj::Syncobj;
use super::{Device, FIRST_MAP_OFFSET};
use crate::kernel::Queries;
use crate::memory::{self, Memory};
use aie_driver_mock::npu::array::LoadedPdi;
use aie_hal::artifact::Digest;
use amdxdna_sys::{
    AMDXDNA_INVALID_ADDR, AMDXDNA_INVALID_FENCE_HANDLE, amdxdna_cu_config, amdxdna_drm_create_hwctx,
    amdxdna_drm_get_bo_info, amdxdna_hwctx_param_config_cu, limits,
};
use bytemuck::Zeroable;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Debug)]
pub(super) struct State {
    handles: BTreeMap<u32, Arc<Bo>>,
    /// Handles that are free and below one that is not.
    free: BTreeSet<u32>,
    /// Handles by the offset for `mmap`.
    offsets: HashMap<u64, u32>,
    pub(super) heaps: Heaps,
    pub(super) contexts: BTreeMap<u32, Context>,
    /// The handle that the next context gets if it is free.
    next_context: u32,
    pub(super) syncobjs: BTreeMap<u32, Arc<Syncobj>>,
    /// The lowest number that a synchronisation object can get.
    pub(super) first_syncobj: u32,
}

/// An open file. Dropping it releases everything that was made through it.
#[derive(Debug)]
pub struct File {
    pub(super) device: Arc<Device>,
    number: u64,
    pub(super) state: Arc<Mutex<State>>,
}

impl State {
    fn new(device: &Device) -> Self {
        Self {
            handles: BTreeMap::new(),
            free: BTreeSet::new(),
            offsets: HashMap::new(),
            heaps: Heaps::new(device),
            contexts: BTreeMap::new(),
            next_context: 1,
            syncobjs: BTreeMap::new(),
            first_syncobj: 1,
        }
    }

    pub(super) fn bo(&self, handle: u32) -> Option<&Arc<Bo>> {
        self.handles.get(&handle)
    }

    /// Gives a BO the lowest free handle, from 1.
    pub(super) fn insert(&mut self, bo: Arc<Bo>) -> u32 {
        let next = self.handles.last_key_value().map_or(1, |(last, _)| last + 1);
        let handle = self.free.pop_first().unwrap_or(next);
        if bo.map_offset() != AMDXDNA_INVALID_ADDR {
            self.offsets.insert(bo.map_offset(), handle);
        }
        self.handles.insert(handle, bo);
        handle
    }

    fn remove(&mut self, handle: u32) -> Option<Arc<Bo>> {
        let bo = self.handles.remove(&handle)?;
        self.offsets.remove(&bo.map_offset());
        // Only what is below a handle in use is a gap.
        self.free.insert(handle);
        let last = self.handles.last_key_value().map_or(0, |(last, _)| *last);
        self.free.split_off(&last);
        Some(bo)
    }

    pub(super) fn add_syncobj(&mut self, device: &Device, object: Arc<Syncobj>) -> u32 {
        device.journal.counts.syncobjs.change(1);
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
        if let Some(errno) = device.refused {
            device.journal.log(|| "the device cannot share user addresses: see the machine's IOMMU".into());
            return Err(errno);
        }
        device.journal.counts.files.change(1);
        let number = device.next_file.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(Mutex::new(State::new(device)));
        Ok(Arc::new(Self { device: device.clone(), number, state }))
    }

    /// The device.
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

    /// GEM_CLOSE.
    ///
    /// # Errors
    /// EINVAL for an unknown handle.
    pub fn gem_close(&self, handle: u32) -> Result<(), Errno> {
        let bo = self.state.lock().remove(handle);
        bo.map(drop).ok_or(Errno::EINVAL)
    }

    /// The BO behind a handle.
    pub fn bo(&self, handle: u32) -> Option<Arc<Bo>> {
        self.state.lock().bo(handle).cloned()
    }

    /// Makes a handle of a BO that was exported, or finds the one there is.
    pub fn import(&self, bo: &Arc<Bo>) -> u32 {
        let mut state = self.state.lock();
        let known = state.handles.iter().find(|(_, found)| found.shares_memory(bo)).map(|(handle, _)| *handle);
        if let Some(known) = known {
            return known;
        }
        let shared = bo.memory().filter(|_| self.device.profile.imports_anew).and_then(|(memory, _)| memory.share());
        let bo = shared.map_or_else(|| bo.clone(), |memory| self.bo_of(Kind::Imported, memory));
        state.insert(bo)
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
        Ok(self.state.lock().insert(bo))
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
        let state = self.state.lock();
        let Some(bo) = state.offsets.get(&offset).and_then(|handle| state.bo(*handle)) else {
            let is_in_use = self.device.offsets.lock().contains(&offset);
            return Err(if is_in_use { Errno::EACCES } else { Errno::EINVAL });
        };
        let fits = length > 0 && length.next_multiple_of(limits::PAGE) <= bo.length();
        let is_shared = flags & libc::MAP_TYPE == libc::MAP_SHARED;
        if fits && is_shared { Ok(bo.clone()) } else { Err(Errno::EINVAL) }
    }

    /// CREATE_HWCTX, after the caller's QoS structure was read.
    ///
    /// # Errors
    /// EINVAL for an extension, no tiles or less than a column; EBUSY when all 255 handles are taken; ENOENT without a heap;
    /// EINVAL for a heap that is not mapped at a multiple of its size; ENOSPC when the heap has no room for the kernel's chain
    /// buffers; the kernel's errors for more contexts, or more columns, than there are.
    pub fn create_hwctx(&self, arguments: &mut amdxdna_drm_create_hwctx, priority: u32) -> Result<(), Errno> {
        if arguments.ext != 0 || arguments.ext_flags != 0 {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let free = |handle: &u32| !state.contexts.contains_key(handle);
        let handle = (state.next_context..=limits::CONTEXT_HANDLE).chain(1..state.next_context).find(free);
        let handle = handle.ok_or(Errno::EBUSY)?;
        let array = &self.device.arch.array;
        let columns = arguments.num_tiles as usize / array.core_rows;
        if columns == 0 {
            return Err(Errno::EINVAL);
        }
        let heap = state.heaps.list().first().ok_or(Errno::ENOENT)?;
        let is_aligned = |address| self.device.iova || address % limits::DEV_MEM_SIZE as u64 == 0;
        let address = heap.user_address().ok_or(self.device.profile.heap_unmapped)?;
        if !is_aligned(address) {
            self.device.journal.log(|| "CREATE_HWCTX: the device heap is not mapped at a multiple of 64 MiB".into());
            return Err(Errno::EINVAL);
        }
        let buffer = || state.heaps.part(&self.device, self.device.arch.limits.chain_buffer_bytes as u64);
        let chain_buffers = (0..limits::QUEUED_JOBS).map(|_| buffer()).collect::<Result<_, _>>()?;
        let profile = &self.device.profile;
        if columns > array.columns {
            return Err(profile.too_many_columns);
        }
        let npu = self.device.npu.create_context(columns).map_err(|refusal| {
            self.device.journal.log(|| format!("CREATE_HWCTX: {refusal}"));
            profile.contexts_exhausted
        })?;
        self.device.journal.counts.contexts.change(1);
        let shares_in_time = self.device.arch.dev_gen != 3 || profile.queries != Queries::Mainline;
        let start = if shares_in_time { 0 } else { place(array.columns + 1, columns, state.contexts.values()) };
        let context = Context {
            npu,
            columns,
            start,
            priority,
            units: None,
            _chain_buffers: chain_buffers,
            configuration: None,
            line: self.device.new_line(npu),
            timeline: profile.syncobj.then(|| Syncobj::new(false)),
        };
        let syncobj = context.timeline.clone().map(|timeline| state.add_syncobj(&self.device, timeline));
        state.contexts.insert(handle, context);
        state.next_context = if handle == limits::CONTEXT_HANDLE { 1 } else { handle + 1 };
        arguments.handle = handle;
        arguments.syncobj_handle = syncobj.unwrap_or(AMDXDNA_INVALID_FENCE_HANDLE);
        arguments.umq_doorbell = u32::MAX;
        Ok(())
    }

    /// CONFIG_HWCTX with the list of compute units.
    ///
    /// # Errors
    /// EINVAL for an unknown context, one that is configured, padding, an empty or too long list, and a PDI that is not a part of the
    /// device heap. A kernel that reaches the firmware later finds the last two with the first command.
    pub fn config_cu(&self, handle: u32, list: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let context = state.contexts.get_mut(&handle).ok_or(Errno::EINVAL)?;
        if context.units.is_some() || context.configuration.is_some() {
            return Err(Errno::EINVAL);
        }
        let header: amdxdna_hwctx_param_config_cu = prefix(list);
        if header.pad != [0; 3] && self.device.profile.padding_is_checked {
            return Err(Errno::EINVAL);
        }
        let bytes = usize::from(header.num_cus) * size_of::<amdxdna_cu_config>();
        if bytes == 0 || list.len() < size_of::<amdxdna_hwctx_param_config_cu>() + bytes {
            return Err(Errno::EINVAL);
        }
        if self.device.profile.lazy_contexts {
            context.configuration = Some(list.to_vec());
            return Ok(());
        }
        self.connect(&mut state, handle, list)
    }

    /// Gives the firmware the list of a context's compute units.
    pub(super) fn connect(&self, state: &mut State, handle: u32, list: &[u8]) -> Result<(), Errno> {
        let header: amdxdna_hwctx_param_config_cu = prefix(list);
        let (count, limit) = (usize::from(header.num_cus), self.device.arch.limits.pdis_per_context);
        if count > limit {
            self.device.journal.log(|| format!("CONFIG_HWCTX: {count} compute units, the limit is {limit}"));
            return Err(Errno::EINVAL);
        }
        let configs = list[size_of::<amdxdna_hwctx_param_config_cu>()..].chunks_exact(size_of::<amdxdna_cu_config>());
        let configs: Vec<amdxdna_cu_config> = configs.take(count).map(prefix).collect();
        if configs.iter().any(|config| config.pad != [0; 3]) && self.device.profile.padding_is_checked {
            return Err(Errno::EINVAL);
        }
        let units: Vec<Arc<LoadedPdi>> =
            configs.iter().map(|config| self.pdi(state.bo(config.cu_bo))).collect::<Result<_, _>>()?;
        let digests: Vec<Digest> = units.iter().map(|unit| unit.digest).collect();
        let context = state.contexts.get_mut(&handle).ok_or(Errno::EINVAL)?;
        self.device.npu.configure_context(context.npu, &digests).map_err(|_| Errno::EINVAL)?;
        context.units = Some(units);
        Ok(())
    }

    /// The PDI in a BO, as it is now.
    fn pdi(&self, bo: Option<&Arc<Bo>>) -> Result<Arc<LoadedPdi>, Errno> {
        let bo = bo.filter(|bo| matches!(bo.kind(), Kind::Dev { .. })).ok_or(Errno::EINVAL)?;
        let (memory, start) = bo.memory().ok_or(Errno::EINVAL)?;
        let head = memory.copy(start, LoadedPdi::HEADER.min(bo.length())).ok_or(Errno::EINVAL)?;
        let length = LoadedPdi::length(&head).min(bo.length());
        let bytes = memory.copy(start, length).ok_or(Errno::EINVAL)?;
        Ok(Arc::new(LoadedPdi::new(bytes)))
    }

    /// DESTROY_HWCTX. What the context still runs is ended by the watchdog first.
    ///
    /// # Errors
    /// EINVAL for an unknown context.
    pub fn destroy_hwctx(&self, handle: u32) -> Result<(), Errno> {
        let context = self.state.lock().contexts.remove(&handle).ok_or(Errno::EINVAL)?;
        self.release_context(context)
    }

    fn release_context(&self, context: Context) -> Result<(), Errno> {
        context.line.close(&self.device);
        self.device.journal.counts.contexts.change(-1);
        self.device.npu.destroy_context(context.npu).map_err(|_| Errno::EINVAL)
    }

    /// Bytes of the heap that are taken.
    pub(super) fn heap_used(&self) -> usize {
        self.state.lock().heaps.used()
    }

    /// Bytes of all BOs with memory of their own, and of those that are no user's data.
    pub(super) fn bo_usage(&self) -> (usize, usize) {
        let state = self.state.lock();
        let own = state.handles.values().filter(|bo| !matches!(bo.kind(), Kind::Dev { .. }));
        own.fold((0, 0), |(total, internal), bo| {
            let inside = if matches!(bo.kind(), Kind::Heap { .. } | Kind::Cmd) { bo.length() } else { 0 };
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
        self.device.journal.counts.syncobjs.change(-(syncobjs.len() as i64));
        for context in contexts.into_values() {
            // A context that is in the table exists; there is nobody to tell an error anyway.
            let _ = self.release_context(context);
        }
        self.device.journal.counts.files.change(-1);
    }
}

/// The structure at the start of `bytes`; what is missing is zero.
pub(crate) fn prefix<T: Zeroable + bytemuck::Pod>(bytes: &[u8]) -> T {
    let mut value = T::zeroed();
    let target = bytemuck::bytes_of_mut(&mut value);
    let length = target.len().min(bytes.len());
    target[..length].copy_from_slice(&bytes[..length]);
    value
}
