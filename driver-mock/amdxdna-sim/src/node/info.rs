//! What GET_INFO, GET_ARRAY and SET_STATE tell and change.
//!
//! Numbers that the arch files do not have (versions, the size of a column's status, event registers) are plausible ones.

use super::file::{File, prefix};
use crate::abi::{
    AieMetadata, AieVersion, AsyncError, AttributeState, BoUsage, Clock, ClockMetadata, FirmwareVersion, HwctxEntry,
    PowerMode, QueryHwctx, ResourceInfo, TileMetadata, param,
};
use crate::errno::Errno;
use aie_hal::arch::{Arch, Tile};
use bytemuck::{Zeroable, bytes_of};
use std::sync::atomic::Ordering;

/// Firmware of a device in order: of the versions AMD ships with Linux.
pub(crate) fn default_firmware(arch: &Arch) -> [u32; 4] {
    if arch.dev_gen == 3 { [1, 5, 5, 391] } else { [1, 1, 2, 65] }
}

/// Columns of the array. On aie2 there is one more than contexts can use, because the first has no shim DMA.
fn columns(arch: &Arch) -> u16 {
    arch.array.columns as u16 + u16::from(arch.dev_gen == 3)
}

fn tiles(tile: &Tile, row_start: usize, row_count: usize) -> TileMetadata {
    TileMetadata {
        row_count: row_count as u16,
        row_start: row_start as u16,
        dma_channel_count: tile.dma.s2mm as u16,
        lock_count: tile.dma.locks as u16,
        event_reg_count: 4,
        pad: [0; 3],
    }
}

fn metadata(arch: &Arch) -> AieMetadata {
    let array = &arch.array;
    AieMetadata {
        col_size: 4096,
        cols: columns(arch),
        rows: array.rows as u16,
        version: version(arch),
        core: tiles(&arch.core, 1 + array.mem_rows, array.core_rows),
        mem: tiles(&arch.mem_tile, 1, array.mem_rows),
        shim: tiles(&arch.shim, 0, 1),
    }
}

fn version(arch: &Arch) -> AieVersion {
    AieVersion { major: 2, minor: u32::from(arch.dev_gen != 3) }
}

fn clock(name: &str, mhz: u64) -> Clock {
    let mut clock = Clock { name: [0; 16], freq_mhz: mhz as u32, pad: 0 };
    clock.name[..name.len()].copy_from_slice(name.as_bytes());
    clock
}

/// A process name, as the kernel keeps it: 15 bytes at most.
fn process_name() -> [u8; 16] {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&name).file_name().unwrap_or_default().as_encoded_bytes();
    let mut bytes = [0; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name[..length]);
    bytes
}

impl File {
    /// The answer to a GET_INFO query, at most `room` bytes of which the caller gets.
    ///
    /// # Errors
    /// EOPNOTSUPP for what is not simulated, and what the newest kernel does not know; EINVAL when there is no room for a list,
    /// with the bytes that are needed.
    pub(super) fn info(&self, query: u32, room: usize) -> Result<Vec<u8>, (Errno, usize)> {
        let arch = self.device.arch();
        Ok(match query {
            param::QUERY_AIE_METADATA => bytes_of(&metadata(arch)).to_vec(),
            param::QUERY_AIE_VERSION => bytes_of(&version(arch)).to_vec(),
            param::QUERY_CLOCK_METADATA => {
                let mhz = arch.cost.clock_mhz;
                bytes_of(&ClockMetadata { mp_npu: clock("MP-NPU Clock", mhz), h: clock("H Clock", mhz) }).to_vec()
            }
            param::QUERY_FIRMWARE_VERSION => {
                let [major, minor, patch, build] = self.device.firmware;
                bytes_of(&FirmwareVersion { major, minor, patch, build }).to_vec()
            }
            param::GET_POWER_MODE => {
                let power_mode = self.device.power_mode.load(Ordering::Relaxed);
                bytes_of(&PowerMode { power_mode, pad: [0; 7] }).to_vec()
            }
            param::GET_FORCE_PREEMPT_STATE | param::GET_FRAME_BOUNDARY_PREEMPT_STATE => {
                bytes_of(&AttributeState::zeroed()).to_vec()
            }
            param::QUERY_RESOURCE_INFO => {
                let task_curr = self.state.lock().contexts.len() as u64;
                let clock = arch.cost.clock_mhz;
                let info = ResourceInfo {
                    npu_clk_max: clock,
                    npu_tops_max: 0,
                    npu_task_max: arch.limits.contexts as u64,
                    npu_tops_curr: 0,
                    npu_task_curr: task_curr,
                };
                bytes_of(&info).to_vec()
            }
            param::QUERY_HW_CONTEXTS => {
                let entries: Vec<QueryHwctx> = self.entries().iter().map(short).collect();
                let bytes = bytemuck::cast_slice(&entries).to_vec();
                if bytes.len() > room {
                    return Err((Errno::EINVAL, bytes.len()));
                }
                bytes
            }
            _ => return Err((Errno::EOPNOTSUPP, room)),
        })
    }

    /// The contexts of this file.
    fn entries(&self) -> Vec<HwctxEntry> {
        let heap = self.heap_used() as u64;
        let state = self.state.lock();
        let entry = |(handle, context): (&u32, &super::context::Context)| HwctxEntry {
            context_id: *handle,
            num_col: context.columns as u32,
            hwctx_id: *handle,
            pid: i64::from(std::process::id()),
            command_submissions: context.submitted,
            command_completions: context.completed.load(Ordering::Relaxed),
            priority: u64::from(context.priority),
            heap_usage: heap,
            state: 1,
            txn_op_idx: u32::MAX,
            name: process_name(),
            ..HwctxEntry::zeroed()
        };
        state.contexts.iter().map(entry).collect()
    }

    /// The answer to a GET_ARRAY query: bytes of one element, and all elements.
    ///
    /// # Errors
    /// EINVAL for a number or size of elements that cannot be; ENOSPC when there are more, with their number; EPERM, EOPNOTSUPP.
    pub(super) fn array(&self, query: u32, element: usize, count: usize) -> Result<(usize, Vec<u8>), (Errno, usize)> {
        const MOST: usize = 1024;
        if !(1..=MOST).contains(&count) || !(1..=4096).contains(&element) {
            return Err((Errno::EINVAL, count));
        }
        match query {
            param::HW_CONTEXT_ALL => {
                let entries = self.entries();
                if entries.len() > count {
                    return Err((Errno::ENOSPC, entries.len()));
                }
                Ok((size_of::<HwctxEntry>(), bytemuck::cast_slice(&entries).to_vec()))
            }
            param::HW_LAST_ASYNC_ERR => Ok((size_of::<AsyncError>(), bytes_of(&AsyncError::zeroed()).to_vec())),
            param::BO_USAGE => {
                let (total, internal) = self.bo_usage();
                let usage = BoUsage {
                    pid: i64::from(std::process::id()),
                    total_usage: total as u64,
                    internal_usage: internal as u64,
                    heap_usage: self.heap_used() as u64,
                };
                Ok((size_of::<BoUsage>(), bytes_of(&usage).to_vec()))
            }
            _ => Err((Errno::EOPNOTSUPP, count)),
        }
    }

    /// SET_STATE; `value` is what the caller's buffer holds.
    ///
    /// # Errors
    /// EACCES for anybody but root; EINVAL for a power mode that there is not; EOPNOTSUPP.
    pub(super) fn set(&self, what: u32, value: &[u8], is_root: bool) -> Result<(), Errno> {
        if !is_root {
            return Err(Errno::EACCES);
        }
        if what != param::SET_POWER_MODE {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode: PowerMode = prefix(value);
        if mode.power_mode > 4 {
            return Err(Errno::EINVAL);
        }
        self.device.power_mode.store(mode.power_mode, Ordering::Relaxed);
        Ok(())
    }
}

fn short(entry: &HwctxEntry) -> QueryHwctx {
    QueryHwctx {
        context_id: entry.context_id,
        start_col: entry.start_col,
        num_col: entry.num_col,
        pad: 0,
        pid: entry.pid,
        command_submissions: entry.command_submissions,
        command_completions: entry.command_completions,
        migrations: 0,
        preemptions: 0,
        errors: 0,
    }
}
