//! Hardware contexts: CREATE_HWCTX, CONFIG_HWCTX, DESTROY_HWCTX.

use super::bo::{Bo, Kind};
use super::file::{Context, File, State};
use super::jobs::ContextQueue;
use super::syncobj::Syncobj;
use crate::journal::Level;
use crate::kernel::Queries;
use crate::user_access::prefix;
use aie_driver_mock::npu::ContextPdi;
use aie_driver_mock::npu::array::LoadedPdi;
use amdxdna_sys::{
    AMDXDNA_INVALID_FENCE_HANDLE, amdxdna_cu_config, amdxdna_drm_create_hwctx, amdxdna_hwctx_param_config_cu, limits,
};
use nix::errno::Errno;
use std::sync::Arc;

/// Where a context of this many columns goes beside others, as the driver of npu1 places it: the first free place, or the first one
/// when there is none. `columns` are those of the array, of which contexts do not get the first.
pub(super) fn place<'a>(columns: usize, wanted: usize, others: impl Iterator<Item = &'a Context> + Clone) -> usize {
    let is_free = |start: &usize| others.clone().all(|c| c.start + c.columns <= *start || start + wanted <= c.start);
    (1..=columns.saturating_sub(wanted)).find(is_free).unwrap_or(usize::from(wanted < columns))
}

impl File {
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
        let heap = state.heaps.list.first().ok_or(Errno::ENOENT)?;
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
        let npu = self.device.npu.create_context(columns).map_err(|rejection| {
            self.device.journal.log(|| format!("CREATE_HWCTX: {rejection}"));
            profile.contexts_exhausted
        })?;
        self.device.journal.change(Level::Contexts, 1);
        let shares_in_time = self.device.model.shares_in_time || profile.queries != Queries::Mainline;
        let start = if shares_in_time { 0 } else { place(array.columns + 1, columns, state.contexts.values()) };
        let timeline = profile.syncobj.then(|| Syncobj::new(false));
        let context = Context {
            npu,
            columns,
            start,
            priority,
            units: None,
            _chain_buffers: chain_buffers,
            configuration: None,
            line: ContextQueue::new(&self.device, npu, timeline.as_ref()),
            _timeline: timeline.clone(),
        };
        let syncobj = timeline.map(|timeline| state.add_syncobj(&self.device, timeline));
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
        let units: Vec<LoadedPdi> =
            configs.iter().map(|config| self.pdi(self.bo(config.cu_bo))).collect::<Result<_, _>>()?;
        let pdis: Vec<ContextPdi> = units.iter().map(|unit| unit.in_context(&self.device.arch)).collect();
        let context = state.contexts.get_mut(&handle).ok_or(Errno::EINVAL)?;
        self.device.npu.configure_context(context.npu, &pdis).map_err(|_| Errno::EINVAL)?;
        context.units = Some(units);
        Ok(())
    }

    fn pdi(&self, bo: Option<Arc<Bo>>) -> Result<LoadedPdi, Errno> {
        let bo = bo.filter(|bo| matches!(&bo.kind, Kind::Dev { .. })).ok_or(Errno::EINVAL)?;
        let (memory, start) = bo.memory().ok_or(Errno::EINVAL)?;
        let head = memory.copy(start, LoadedPdi::HEADER.min(bo.length())).ok_or(Errno::EINVAL)?;
        let length = LoadedPdi::length(&head).min(bo.length());
        let bytes = memory.copy(start, length).ok_or(Errno::EINVAL)?;
        Ok(LoadedPdi::new(bo.device_address(), bytes))
    }

    /// DESTROY_HWCTX. What the context still runs is ended by the watchdog first.
    pub fn destroy_hwctx(&self, handle: u32) -> Result<(), Errno> {
        let context = self.state.lock().contexts.remove(&handle).ok_or(Errno::EINVAL)?;
        context.release(&self.device)
    }
}
