//! Answers of GET_INFO and GET_ARRAY, and SET_STATE.
//!
//! Numbers that the arch files do not have (versions, the size of a column's status, event registers) are plausible ones.

use super::file::{Context, File, State};
use crate::kernel::Queries;
use crate::npu_model::NpuModel;
use crate::user_access::prefix;
use aie_hal::arch::{Arch, Tile};
use amdxdna_sys::*;
use bytemuck::{Zeroable, bytes_of};
use nix::errno::Errno;
use std::sync::atomic::Ordering;

fn tiles(tile: &Tile, row_start: usize, row_count: usize) -> amdxdna_drm_query_aie_tile_metadata {
    amdxdna_drm_query_aie_tile_metadata {
        row_count: row_count as u16,
        row_start: row_start as u16,
        dma_channel_count: tile.dma.s2mm as u16,
        lock_count: tile.dma.locks as u16,
        // The firmware reports how many events a tile has; the driver passes that on under this name.
        event_reg_count: 128,
        pad: [0; 3],
    }
}

fn metadata(arch: &Arch, model: &NpuModel) -> amdxdna_drm_query_aie_metadata {
    let array = &arch.array;
    amdxdna_drm_query_aie_metadata {
        col_size: 4096,
        cols: model.columns(arch) as u16,
        rows: array.rows as u16,
        version: version(model),
        core: tiles(&arch.core, 1 + array.mem_rows, array.core_rows),
        mem: tiles(&arch.mem_tile, 1, array.mem_rows),
        shim: tiles(&arch.shim, 0, 1),
    }
}

fn version(model: &NpuModel) -> amdxdna_drm_query_aie_version {
    let [major, minor] = model.array_version;
    amdxdna_drm_query_aie_version { major, minor }
}

fn clock(name: &str, mhz: u64) -> amdxdna_drm_query_clock {
    let mut clock = amdxdna_drm_query_clock { name: [0; 16], freq_mhz: mhz as u32, pad: 0 };
    clock.name[..name.len()].copy_from_slice(name.as_bytes());
    clock
}

const SENSOR_BYTES: usize = size_of::<amdxdna_drm_query_sensor>();
/// Columns whose utilization the driver reports.
const UTILIZATIONS: usize = 8;
/// Types of sensors (`enum amdxdna_sensor_type`).
const POWER: u8 = 0;
const UTILIZATION: u8 = 1;

/// Power, and the utilization of each column: those of a device that does nothing.
fn sensors(columns: usize) -> Vec<amdxdna_drm_query_sensor> {
    let sensor = |label: String, units: &str, unitm: i8, type_: u8| {
        let mut sensor = amdxdna_drm_query_sensor { unitm, type_, ..amdxdna_drm_query_sensor::default() };
        sensor.label[..label.len()].copy_from_slice(label.as_bytes());
        sensor.units[..units.len()].copy_from_slice(units.as_bytes());
        sensor
    };
    let utilization = |column| sensor(format!("Column {column} Utilization"), "%", 0, UTILIZATION);
    let columns = 0..columns.min(UTILIZATIONS);
    std::iter::once(sensor("Total Power".into(), "mW", -3, POWER)).chain(columns.map(utilization)).collect()
}

impl File {
    /// The answer to a GET_INFO query, at most `room` bytes of which the caller gets.
    ///
    /// # Errors
    /// EOPNOTSUPP for what is not simulated, and what the newest kernel does not know; EINVAL when there is no room for a list,
    /// with the bytes that are needed.
    pub(super) fn info(&self, query: u32, room: usize) -> Result<Vec<u8>, (Errno, usize)> {
        let (arch, model) = (&self.device.arch, self.device.model);
        let newest = [
            DRM_AMDXDNA_QUERY_SENSORS,
            DRM_AMDXDNA_QUERY_TELEMETRY,
            DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE,
            DRM_AMDXDNA_QUERY_RESOURCE_INFO,
            DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE,
        ];
        if newest.contains(&query) && self.device.profile.queries == Queries::Few {
            return Err((Errno::EOPNOTSUPP, room));
        }
        Ok(match query {
            DRM_AMDXDNA_QUERY_SENSORS => {
                let sensors = sensors(model.columns(arch));
                let bytes: &[u8] = bytemuck::cast_slice(&sensors);
                // Whole sensors only.
                bytes[..bytes.len().min(room / SENSOR_BYTES * SENSOR_BYTES)].to_vec()
            }
            DRM_AMDXDNA_QUERY_AIE_METADATA => bytes_of(&metadata(arch, model)).to_vec(),
            DRM_AMDXDNA_QUERY_AIE_VERSION => bytes_of(&version(model)).to_vec(),
            DRM_AMDXDNA_QUERY_CLOCK_METADATA => {
                let (npu, h) = self.clocks();
                let (mp_npu_clock, h_clock) = (clock("MP-NPU Clock", npu), clock("H Clock", h));
                bytes_of(&amdxdna_drm_query_clock_metadata { mp_npu_clock, h_clock }).to_vec()
            }
            DRM_AMDXDNA_QUERY_FIRMWARE_VERSION => {
                let [major, minor, patch, build] = self.device.firmware;
                bytes_of(&amdxdna_drm_query_firmware_version { major, minor, patch, build }).to_vec()
            }
            DRM_AMDXDNA_GET_POWER_MODE => {
                let power_mode = self.device.power_mode.load(Ordering::Relaxed);
                bytes_of(&amdxdna_drm_get_power_mode { power_mode, pad: [0; 7] }).to_vec()
            }
            DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE | DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE => {
                let is_forced = query == DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE;
                let state = if is_forced { &self.device.forced_preemption } else { &self.device.boundary_preemption };
                bytes_of(&amdxdna_drm_attribute_state { state: state.load(Ordering::Relaxed), pad: [0; 7] }).to_vec()
            }
            DRM_AMDXDNA_QUERY_RESOURCE_INFO => {
                let task_curr = self.state.lock().contexts.len() as u64;
                let clock = arch.cost.clock_mhz.expected;
                let (most, now) = match self.device.profile.queries {
                    Queries::Mainline => {
                        (model.tops(arch, model.stated_clock.unwrap_or(clock)), model.tops(arch, self.clocks().1))
                    }
                    _ => (0, 0),
                };
                let info = amdxdna_drm_get_resource_info {
                    npu_clk_max: clock,
                    npu_tops_max: most,
                    npu_task_max: arch.limits.contexts as u64,
                    npu_tops_curr: now,
                    npu_task_curr: task_curr,
                };
                bytes_of(&info).to_vec()
            }
            DRM_AMDXDNA_QUERY_HW_CONTEXTS => {
                let mut entries: Vec<amdxdna_drm_query_hwctx> = self.entries().iter().map(short).collect();
                if self.device.profile.queries == Queries::Mainline {
                    // As many as there is room for.
                    entries.truncate(room / size_of::<amdxdna_drm_query_hwctx>());
                }
                let bytes = bytemuck::cast_slice(&entries).to_vec();
                if bytes.len() > room {
                    return Err((Errno::EINVAL, bytes.len()));
                }
                bytes
            }
            _ => return Err((Errno::EOPNOTSUPP, room)),
        })
    }

    /// MHz of the NPU's and of the array's clock.
    fn clocks(&self) -> (u64, u64) {
        let arch = &self.device.arch;
        let is_idle = self.state.lock().contexts.is_empty();
        let busy = arch.cost.clock_mhz.expected;
        if is_idle && self.device.profile.queries == Queries::Mainline {
            self.device.model.idle_clocks
        } else {
            (busy, busy)
        }
    }

    /// Which columns contexts have, a bit for each.
    pub(super) fn active_columns(&self) -> u32 {
        let bits = |entry: &amdxdna_drm_hwctx_entry| ((1_u32 << entry.num_col) - 1) << entry.start_col;
        self.entries().iter().map(bits).fold(0, |all, bits| all | bits)
    }

    pub(super) fn column_bytes(&self) -> usize {
        metadata(&self.device.arch, self.device.model).col_size as usize
    }

    fn entries(&self) -> Vec<amdxdna_drm_hwctx_entry> {
        let heap = self.heap_used() as u64;
        let is_mainline = self.device.profile.queries == Queries::Mainline;
        let all_columns = is_mainline && self.device.model.shares_in_time;
        let array_columns = self.device.arch.array.columns as u32;
        let entry = |(handle, context): (&u32, &Context)| amdxdna_drm_hwctx_entry {
            context_id: *handle,
            start_col: context.start as u32,
            num_col: if all_columns { array_columns } else { context.columns as u32 },
            hwctx_id: if is_mainline { 0 } else { *handle },
            pasid: if self.device.iova { u32::MAX } else { 0 },
            pid: i64::from(std::process::id()),
            priority: u64::from(context.priority),
            heap_usage: heap,
            state: 1,
            // Of a healthy context.
            txn_op_idx: if is_mainline && !self.device.model.reports_health { 0 } else { u32::MAX },
            ..amdxdna_drm_hwctx_entry::zeroed()
        };
        let contexts = |state: &State| state.contexts.iter().map(|c| (entry(c), c.1.line.clone())).collect::<Vec<_>>();
        let contexts = contexts(&self.state.lock());
        // Without the lock of the file, which those take that have a context's.
        let others = self.device.holder.map(|pid| amdxdna_drm_hwctx_entry {
            context_id: 1,
            num_col: array_columns,
            pid,
            state: 1,
            ..amdxdna_drm_hwctx_entry::zeroed()
        });
        let counted = contexts.into_iter().map(|(entry, line)| {
            let (command_submissions, command_completions) = line.counts();
            amdxdna_drm_hwctx_entry { command_submissions, command_completions, ..entry }
        });
        counted.chain(others).collect()
    }

    /// The answer to a GET_ARRAY query: bytes of one element, and all elements.
    ///
    /// # Errors
    /// EINVAL for a number or size of elements that cannot be; ENOSPC when there are more, with their number; EPERM, EOPNOTSUPP.
    pub(super) fn array(&self, query: u32, element: usize, count: usize) -> Result<(usize, Vec<u8>), (Errno, usize)> {
        const MOST: usize = 1024;
        const MOST_BYTES: usize = 4096;
        if count == 0 || element == 0 {
            return Err((Errno::EINVAL, count));
        }
        let newest = [DRM_AMDXDNA_HW_LAST_ASYNC_ERR, DRM_AMDXDNA_BO_USAGE].contains(&query);
        if newest && self.device.profile.queries == Queries::Few {
            return Err((Errno::EOPNOTSUPP, count));
        }
        match query {
            DRM_AMDXDNA_HW_CONTEXT_ALL if count > MOST || element > MOST_BYTES => Err((Errno::EINVAL, count)),
            DRM_AMDXDNA_HW_CONTEXT_ALL => {
                let mut entries = self.entries();
                if self.device.profile.queries == Queries::Mainline {
                    entries.truncate(count * element / element.min(size_of::<amdxdna_drm_hwctx_entry>()));
                }
                if entries.len() > count {
                    return Err((Errno::ENOSPC, entries.len()));
                }
                Ok((size_of::<amdxdna_drm_hwctx_entry>(), bytemuck::cast_slice(&entries).to_vec()))
            }
            DRM_AMDXDNA_HW_LAST_ASYNC_ERR => {
                Ok((size_of::<amdxdna_async_error>(), bytes_of(&amdxdna_async_error::zeroed()).to_vec()))
            }
            DRM_AMDXDNA_BO_USAGE if count != 1 && self.device.profile.queries == Queries::Mainline => {
                Err((Errno::EINVAL, count))
            }
            DRM_AMDXDNA_BO_USAGE => {
                let usage = self.usage(i64::from(std::process::id()));
                Ok((size_of::<amdxdna_drm_bo_usage>(), bytes_of(&usage).to_vec()))
            }
            _ => Err((Errno::EOPNOTSUPP, count)),
        }
    }

    /// The memory of a process; none of any other than this one.
    pub(super) fn usage(&self, pid: i64) -> amdxdna_drm_bo_usage {
        if pid != i64::from(std::process::id()) {
            return amdxdna_drm_bo_usage { pid, ..amdxdna_drm_bo_usage::zeroed() };
        }
        let (total, internal) = self.bo_usage();
        amdxdna_drm_bo_usage {
            pid,
            total_usage: total as u64,
            internal_usage: internal as u64,
            heap_usage: self.heap_used() as u64,
        }
    }

    /// SET_STATE; `value` is what the caller's buffer holds.
    ///
    /// # Errors
    /// EINVAL for a state that there is not, and for padding where the kernel looks at it; EOPNOTSUPP.
    pub(super) fn set(&self, what: u32, value: &[u8]) -> Result<(), Errno> {
        let is_mainline = self.device.profile.queries == Queries::Mainline;
        let mode: amdxdna_drm_get_power_mode = prefix(value);
        let most = if what == DRM_AMDXDNA_SET_POWER_MODE { 4 } else { 1 };
        if mode.power_mode > most || (is_mainline && mode.pad != [0; 7]) {
            return Err(Errno::EINVAL);
        }
        let state = match what {
            DRM_AMDXDNA_SET_POWER_MODE => &self.device.power_mode,
            DRM_AMDXDNA_SET_FORCE_PREEMPT => &self.device.forced_preemption,
            _ => &self.device.boundary_preemption,
        };
        state.store(mode.power_mode, Ordering::Relaxed);
        Ok(())
    }

    /// Whether SET_STATE may be called, and knows what to set.
    /// Fails with EACCES unless the caller is root, or EOPNOTSUPP.
    pub(super) fn can_set(&self, what: u32, is_root: bool) -> Result<(), Errno> {
        let is_preemption = [DRM_AMDXDNA_SET_FORCE_PREEMPT, DRM_AMDXDNA_SET_FRAME_BOUNDARY_PREEMPT].contains(&what);
        let is_known = match self.device.profile.queries {
            Queries::Mainline => is_preemption || what == DRM_AMDXDNA_SET_POWER_MODE,
            _ => what == DRM_AMDXDNA_SET_POWER_MODE,
        };
        match (is_root, is_known) {
            (false, _) => Err(Errno::EACCES),
            (true, true) => Ok(()),
            (true, false) => Err(Errno::EOPNOTSUPP),
        }
    }
}

fn short(entry: &amdxdna_drm_hwctx_entry) -> amdxdna_drm_query_hwctx {
    amdxdna_drm_query_hwctx {
        context_id: entry.context_id,
        start_col: entry.start_col,
        num_col: entry.num_col,
        pid: entry.pid,
        command_submissions: entry.command_submissions,
        command_completions: entry.command_completions,
        ..amdxdna_drm_query_hwctx::zeroed()
    }
}
