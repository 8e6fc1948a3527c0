//! One open file of the accel node: handles, device heap, contexts.

use super::Device;
use super::bo::{Bo, Kind};
use super::context::Context;
use super::heap::HeapAccount;
use super::syncobj::Syncobj;
use super::user_memory::{self, Table};
use crate::errno::Errno;
use crate::memory::{self, Memory};
use aie_driver_mock::npu::array::LoadedPdi;
use aie_hal::artifact::Digest;
use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_SHMEM, AMDXDNA_INVALID_ADDR,
    AMDXDNA_INVALID_FENCE_HANDLE, amdxdna_cu_config, amdxdna_drm_create_bo, amdxdna_drm_create_hwctx,
    amdxdna_drm_get_bo_info, amdxdna_hwctx_param_config_cu, limits,
};
use bytemuck::Zeroable;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The heap of a file.
#[derive(Debug, Clone)]
struct DeviceHeap {
    bo: Arc<Bo>,
    account: Arc<Mutex<HeapAccount>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    handles: BTreeMap<u32, Arc<Bo>>,
    /// Handles that are free and below one that is not.
    free: BTreeSet<u32>,
    /// Handles by the offset for `mmap`.
    offsets: HashMap<u64, u32>,
    heap: Option<DeviceHeap>,
    pub(super) contexts: BTreeMap<u32, Context>,
    /// The handle that the next context gets if it is free.
    next_context: u32,
    pub(super) syncobjs: BTreeMap<u32, Arc<Syncobj>>,
}

/// An open file. Dropping it releases everything that was made through it.
#[derive(Debug)]
pub struct File {
    pub(super) device: Arc<Device>,
    number: u64,
    pub(super) state: Arc<Mutex<State>>,
}

impl State {
    pub(super) fn heap(&self) -> Option<&Arc<Bo>> {
        self.heap.as_ref().map(|heap| &heap.bo)
    }

    pub(super) fn bo(&self, handle: u32) -> Option<&Arc<Bo>> {
        self.handles.get(&handle)
    }

    /// Gives a BO the lowest free handle, from 1.
    fn insert(&mut self, bo: Arc<Bo>) -> u32 {
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
        let handle = (1..).find(|handle| used.next() != Some(*handle)).unwrap_or(u32::MAX);
        self.syncobjs.insert(handle, object);
        handle
    }

    fn dev_bo(&self, device: &Device, size: u64) -> Result<Arc<Bo>, Errno> {
        let length = usize::try_from(size).ok().and_then(|size| size.checked_next_multiple_of(limits::PAGE));
        let heap = self.heap.as_ref().ok_or(Errno::EINVAL)?;
        if heap.bo.user_address().is_none() {
            device.journal.log(|| "CREATE_BO: the device heap is not mapped".into());
            return Err(device.profile.heap_unmapped);
        }
        let length = length.filter(|length| *length > 0 && *length <= heap.bo.length()).ok_or(Errno::EINVAL)?;
        let offset = heap.account.lock().take(length).ok_or(Errno::ENOSPC)?;
        let kind = Kind::Dev { heap: heap.bo.clone(), offset, account: heap.account.clone() };
        Ok(Bo::new(kind, length, None, AMDXDNA_INVALID_ADDR, None, device.journal.clone()))
    }
}

/// Bytes of memory the machine has.
fn machine_memory() -> u64 {
    // SAFETY: asking for a number.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page).unwrap_or(0))
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
        let state = Arc::new(Mutex::new(State { next_context: 1, ..State::default() }));
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

    /// CREATE_BO of memory that the driver allocates.
    ///
    /// # Errors
    /// EINVAL for flags, an unknown type or a size that cannot be; EBUSY for a second heap; EINVAL for a part of a heap that is
    /// missing, the kernel's error for one that is not mapped, ENOSPC for one that is full; ENOMEM.
    pub fn create_bo(&self, arguments: &mut amdxdna_drm_create_bo) -> Result<(), Errno> {
        if arguments.flags != 0 || arguments.vaddr != 0 || arguments.size == 0 {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        let is_typed = self.device.profile.typed_commands;
        let bo = match arguments.type_ {
            AMDXDNA_BO_SHMEM => self.own_memory(Kind::Shmem, arguments.size)?,
            AMDXDNA_BO_CMD if is_typed && (arguments.size < 4 || arguments.size > limits::CMD_BO_BYTES as u64) => {
                return Err(Errno::EINVAL);
            }
            AMDXDNA_BO_CMD => self.own_memory(Kind::Cmd, arguments.size)?,
            AMDXDNA_BO_DEV => state.dev_bo(&self.device, arguments.size)?,
            AMDXDNA_BO_DEV_HEAP => {
                if arguments.size != limits::DEV_MEM_SIZE as u64 {
                    return Err(Errno::EINVAL);
                }
                if state.heap.is_some() {
                    return Err(Errno::EBUSY);
                }
                let bo = self.own_memory(Kind::Heap, arguments.size)?;
                let account = Arc::new(Mutex::new(HeapAccount::new(self.device.heap_bytes)));
                state.heap = Some(DeviceHeap { bo: bo.clone(), account });
                bo
            }
            _ => return Err(Errno::EINVAL),
        };
        arguments.handle = state.insert(bo);
        Ok(())
    }

    /// CREATE_BO of memory that the caller has; `import` makes a handle of a descriptor.
    ///
    /// # Safety
    /// `arguments.vaddr` is the address of a table that the caller gave for this purpose.
    ///
    /// # Errors
    /// EINVAL for flags, another type than SHMEM and CMD, a table that cannot be read or ranges that are not whole pages, and
    /// where the kernel has no such BOs; ENOMEM for more than the process may lock; the kernel's error for memory that cannot be
    /// pinned.
    pub unsafe fn create_user_bo(
        &self,
        arguments: &mut amdxdna_drm_create_bo,
        import: impl FnOnce(i32) -> Result<u32, Errno>,
    ) -> Result<(), Errno> {
        let rules = self.device.profile.user_pointers.ok_or(Errno::EINVAL)?;
        if arguments.flags != 0 || !matches!(arguments.type_, AMDXDNA_BO_SHMEM | AMDXDNA_BO_CMD) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's table.
        arguments.handle = match unsafe { user_memory::table(arguments.vaddr) }? {
            Table::Descriptor(fd) => import(fd)?,
            Table::Ranges(ranges) => {
                if ranges.iter().any(|range| self.device.mappings.contains(range.start, range.len())) {
                    self.device
                        .journal
                        .log(|| "CREATE_BO: memory of a BO as the caller's memory is not simulated".into());
                    return Err(rules.unpinnable);
                }
                // SAFETY: the ranges of the caller's table.
                let memory = unsafe { user_memory::adopt(&ranges, rules) }?;
                let bo = self.bo_of(Kind::User, memory);
                self.state.lock().insert(bo)
            }
        };
        Ok(())
    }

    fn own_memory(&self, kind: Kind, size: u64) -> Result<Arc<Bo>, Errno> {
        if size > machine_memory() {
            return Err(Errno::ENOMEM);
        }
        let length = (size as usize).next_multiple_of(limits::PAGE);
        let small = matches!(kind, Kind::Cmd) && length == limits::PAGE;
        let memory = if small { Memory::page(&self.device.arena)? } else { Memory::create(length)? };
        Ok(self.bo_of(kind, memory))
    }

    fn bo_of(&self, kind: Kind, memory: Memory) -> Arc<Bo> {
        let (device, length) = (&self.device, memory.length());
        let (offset, iova) = (device.map_offset(length), device.new_iova(length));
        Bo::new(kind, length, Some(memory), offset, iova, device.journal.clone())
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

    /// SYNC_BO. Memory is coherent here, so there is nothing to do but to check.
    ///
    /// # Errors
    /// ENOENT for an unknown handle, EINVAL for a range outside.
    pub fn sync_bo(&self, handle: u32, offset: u64, size: u64) -> Result<(), Errno> {
        let bo = self.bo(handle).ok_or(Errno::ENOENT)?;
        let inside = offset.checked_add(size).is_some_and(|end| end <= bo.length() as u64);
        if inside { Ok(()) } else { Err(Errno::EINVAL) }
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

    /// Makes a handle of a BO, or finds the one there is.
    pub fn import(&self, bo: &Arc<Bo>) -> u32 {
        let mut state = self.state.lock();
        let known = state.handles.iter().find(|(_, found)| Arc::ptr_eq(found, bo)).map(|(handle, _)| *handle);
        known.unwrap_or_else(|| state.insert(bo.clone()))
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
    /// EINVAL for an offset that no BO of this file has, or a length beyond it; EINVAL for a private mapping.
    pub fn mappable(&self, offset: u64, length: usize, flags: i32) -> Result<Arc<Bo>, Errno> {
        if flags & libc::MAP_TYPE != libc::MAP_SHARED {
            return Err(Errno::EINVAL);
        }
        let state = self.state.lock();
        let bo = state.offsets.get(&offset).and_then(|handle| state.bo(*handle));
        let bo = bo.filter(|bo| length > 0 && length.next_multiple_of(limits::PAGE) <= bo.length());
        bo.cloned().ok_or(Errno::EINVAL)
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
        let heap = state.heap.as_ref().ok_or(Errno::ENOENT)?;
        let is_aligned = |address| self.device.iova || address % limits::DEV_MEM_SIZE as u64 == 0;
        let address = heap.bo.user_address().ok_or(self.device.profile.heap_unmapped)?;
        if !is_aligned(address) {
            self.device.journal.log(|| "CREATE_HWCTX: the device heap is not mapped at a multiple of 64 MiB".into());
            return Err(Errno::EINVAL);
        }
        let buffer = || state.dev_bo(&self.device, self.device.arch.limits.chain_buffer_bytes as u64);
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
        let context = Context {
            npu,
            columns,
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
    /// EINVAL for an unknown context, one that is configured, an empty or too long list, and a PDI that is not a part of the
    /// device heap. A kernel that reaches the firmware later finds the last two with the first command.
    pub fn config_cu(&self, handle: u32, list: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let context = state.contexts.get_mut(&handle).ok_or(Errno::EINVAL)?;
        if context.units.is_some() || context.configuration.is_some() {
            return Err(Errno::EINVAL);
        }
        let header: amdxdna_hwctx_param_config_cu = prefix(list);
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
        let configs = configs.take(count).map(prefix::<amdxdna_cu_config>);
        let units: Vec<Arc<LoadedPdi>> =
            configs.map(|config| self.pdi(state.bo(config.cu_bo))).collect::<Result<_, _>>()?;
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
        self.state.lock().heap.as_ref().map_or(0, |heap| heap.account.lock().used())
    }

    /// Bytes of all BOs with memory of their own, and of those that are no user's data.
    pub(super) fn bo_usage(&self) -> (usize, usize) {
        let state = self.state.lock();
        let own = state.handles.values().filter(|bo| !matches!(bo.kind(), Kind::Dev { .. }));
        own.fold((0, 0), |(total, internal), bo| {
            let inside = if matches!(bo.kind(), Kind::Heap | Kind::Cmd) { bo.length() } else { 0 };
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
