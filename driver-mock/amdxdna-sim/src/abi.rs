//! The binary interface of the kernel: DRM core, amdxdna and KFD, as far as they are simulated.
//!
//! Structures and numbers are those of the amdxdna uapi (`drm/amdxdna_accel.h`), of `drm/drm.h` and of
//! `linux/kfd_ioctl.h`. All structures are plain integers without padding, so they can be read from any bytes.

use bytemuck::{Pod, Zeroable};

/// Declares structures of the uapi: `repr(C)`, plain data, without hidden padding (the derive of `Pod` checks that).
macro_rules! plain {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the fields are described in the kernel's header")]
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Zeroable, Pod)]
        pub struct $name { $(pub $field: $type),* }
    )*};
}

plain! {
    /// `amdxdna_drm_create_hwctx`.
    CreateHwctx {
        ext: u64, ext_flags: u64, qos_p: u64, umq_bo: u32, log_buf_bo: u32, max_opc: u32, num_tiles: u32, mem_size: u32,
        umq_doorbell: u32, handle: u32, syncobj_handle: u32,
    }
    /// `amdxdna_drm_destroy_hwctx`.
    DestroyHwctx { handle: u32, pad: u32 }
    /// `amdxdna_drm_config_hwctx`.
    ConfigHwctx { handle: u32, param_type: u32, param_val: u64, param_val_size: u32, pad: u32 }
    /// `amdxdna_hwctx_param_config_cu` without its array.
    ConfigCuHeader { num_cus: u16, pad: [u16; 3] }
    /// `amdxdna_cu_config`.
    CuConfig { cu_bo: u32, cu_func: u8, pad: [u8; 3] }
    /// `amdxdna_drm_create_bo`.
    CreateBo { flags: u64, vaddr: u64, size: u64, kind: u32, handle: u32 }
    /// `amdxdna_drm_get_bo_info`.
    GetBoInfo { ext: u64, ext_flags: u64, handle: u32, pad: u32, map_offset: u64, vaddr: u64, xdna_addr: u64 }
    /// `amdxdna_drm_sync_bo`.
    SyncBo { handle: u32, direction: u32, offset: u64, size: u64 }
    /// `amdxdna_drm_exec_cmd`.
    ExecCmd {
        ext: u64, ext_flags: u64, hwctx: u32, kind: u32, cmd_handles: u64, args: u64, cmd_count: u32, arg_count: u32, seq: u64,
    }
    /// `amdxdna_drm_wait_cmd`.
    WaitCmd { hwctx: u32, timeout: u32, seq: u64 }
    /// `amdxdna_drm_get_info`.
    GetInfo { param: u32, buffer_size: u32, buffer: u64 }
    /// `amdxdna_drm_set_state`.
    SetState { param: u32, buffer_size: u32, buffer: u64 }
    /// `amdxdna_drm_get_array`.
    GetArray { param: u32, element_size: u32, num_element: u32, pad: u32, buffer: u64 }
    /// `amdxdna_drm_query_aie_version`.
    AieVersion { major: u32, minor: u32 }
    /// `amdxdna_drm_query_aie_tile_metadata`.
    TileMetadata {
        row_count: u16, row_start: u16, dma_channel_count: u16, lock_count: u16, event_reg_count: u16, pad: [u16; 3],
    }
    /// `amdxdna_drm_query_aie_metadata`.
    AieMetadata {
        col_size: u32, cols: u16, rows: u16, version: AieVersion, core: TileMetadata, mem: TileMetadata, shim: TileMetadata,
    }
    /// `amdxdna_drm_query_clock`.
    Clock { name: [u8; 16], freq_mhz: u32, pad: u32 }
    /// `amdxdna_drm_query_clock_metadata`.
    ClockMetadata { mp_npu: Clock, h: Clock }
    /// `amdxdna_drm_query_firmware_version`.
    FirmwareVersion { major: u32, minor: u32, patch: u32, build: u32 }
    /// `amdxdna_drm_get_power_mode` and `amdxdna_drm_set_power_mode`.
    PowerMode { power_mode: u8, pad: [u8; 7] }
    /// `amdxdna_drm_attribute_state`.
    AttributeState { state: u8, pad: [u8; 7] }
    /// `amdxdna_drm_get_resource_info`.
    ResourceInfo { npu_clk_max: u64, npu_tops_max: u64, npu_task_max: u64, npu_tops_curr: u64, npu_task_curr: u64 }
    /// `amdxdna_drm_query_hwctx`.
    QueryHwctx {
        context_id: u32, start_col: u32, num_col: u32, pad: u32, pid: i64, command_submissions: u64, command_completions: u64,
        migrations: u64, preemptions: u64, errors: u64,
    }
    /// `amdxdna_drm_hwctx_entry`.
    HwctxEntry {
        context_id: u32, start_col: u32, num_col: u32, hwctx_id: u32, pid: i64, command_submissions: u64,
        command_completions: u64, migrations: u64, preemptions: u64, errors: u64, priority: u64, heap_usage: u64,
        suspensions: u64, state: u32, pasid: u32, gops: u32, fps: u32, dma_bandwidth: u32, latency: u32, frame_exec_time: u32,
        txn_op_idx: u32, ctx_pc: u32, fatal_error_type: u32, fatal_error_exception_type: u32, fatal_error_exception_pc: u32,
        fatal_error_app_module: u32, pad: u32, name: [u8; 16],
    }
    /// `amdxdna_drm_bo_usage`.
    BoUsage { pid: i64, total_usage: u64, internal_usage: u64, heap_usage: u64 }
    /// `amdxdna_async_error`.
    AsyncError { err_code: u64, ts_us: u64, ex_err_code: u64 }
    /// `drm_version` on a 64-bit system.
    DrmVersion {
        major: i32, minor: i32, patch: i32, pad: i32, name_len: u64, name: u64, date_len: u64, date: u64, desc_len: u64,
        desc: u64,
    }
    /// `drm_gem_close`.
    GemClose { handle: u32, pad: u32 }
    /// `drm_prime_handle`.
    PrimeHandle { handle: u32, flags: u32, fd: i32 }
    /// `drm_get_cap`.
    GetCap { capability: u64, value: u64 }
}

/// BO types.
pub mod bo_type {
    /// Shared memory of host and device.
    pub const SHMEM: u32 = 1;
    /// The device heap, one per open file.
    pub const DEV_HEAP: u32 = 2;
    /// A piece of the device heap.
    pub const DEV: u32 = 3;
    /// A command.
    pub const CMD: u32 = 4;
}

/// What kernel and firmware count in.
pub mod limits {
    /// Device address of the heap's first byte.
    pub const DEV_MEM_BASE: u64 = 0x0400_0000;
    /// Size and alignment of the heap.
    pub const DEV_MEM_SIZE: usize = 64 << 20;
    /// Alignment of a BO in the heap: the firmware takes PDI addresses in units of 32 KiB.
    pub const DEV_BO_ALIGNMENT: usize = 32 << 10;
    /// Largest command BO.
    pub const CMD_BO_BYTES: usize = 32 << 10;
    /// BOs in the argument list of one submission.
    pub const ARGUMENT_BOS: u32 = 4095;
    /// Highest handle of a context.
    pub const CONTEXT_HANDLE: u32 = 255;
    /// Chain buffers that the kernel takes from the heap for each context.
    pub const CHAIN_BUFFERS: usize = 4;
    /// Bytes of a command slot in the chain buffer before its arguments (`cmd_chain_slot_npu`).
    pub const SLOT_HEADER_BYTES: usize = 52;
    /// Length of a page.
    pub const PAGE: usize = 4096;
    /// `AMDXDNA_INVALID_ADDR`.
    pub const INVALID_ADDRESS: u64 = u64::MAX;
}

/// States and opcodes of commands (ERT: the embedded runtime whose packet format the driver took over).
pub mod ert {
    /// Not yet run.
    pub const NEW: u32 = 1;
    /// Completed.
    pub const COMPLETED: u32 = 4;
    /// Failed in the firmware.
    pub const ERROR: u32 = 5;
    /// Aborted.
    pub const ABORT: u32 = 6;
    /// The watchdog ended it.
    pub const TIMEOUT: u32 = 8;
    /// Starts a compute unit.
    pub const START_CU: u32 = 0;
    /// Runs a list of commands.
    pub const CMD_CHAIN: u32 = 19;
    /// First argument of a command: run an instruction stream (a transaction).
    pub const TRANSACTION: u32 = 3;
}

/// `DRM_AMDXDNA_*` parameters of GET_INFO, GET_ARRAY, SET_STATE and CONFIG_HWCTX.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod param {
    pub const QUERY_AIE_STATUS: u32 = 0;
    pub const QUERY_AIE_METADATA: u32 = 1;
    pub const QUERY_AIE_VERSION: u32 = 2;
    pub const QUERY_CLOCK_METADATA: u32 = 3;
    pub const QUERY_SENSORS: u32 = 4;
    pub const QUERY_HW_CONTEXTS: u32 = 5;
    pub const QUERY_FIRMWARE_VERSION: u32 = 8;
    pub const GET_POWER_MODE: u32 = 9;
    pub const QUERY_TELEMETRY: u32 = 10;
    pub const GET_FORCE_PREEMPT_STATE: u32 = 11;
    pub const QUERY_RESOURCE_INFO: u32 = 12;
    pub const GET_FRAME_BOUNDARY_PREEMPT_STATE: u32 = 13;
    pub const HW_CONTEXT_ALL: u32 = 0;
    pub const HW_LAST_ASYNC_ERR: u32 = 2;
    pub const BO_USAGE: u32 = 6;
    pub const SET_POWER_MODE: u32 = 0;
    pub const HWCTX_CONFIG_CU: u32 = 0;
    pub const HWCTX_ASSIGN_DBG_BUF: u32 = 1;
    pub const HWCTX_REMOVE_DBG_BUF: u32 = 2;
}

/// The type letter of DRM's ioctls.
pub const DRM_TYPE: u32 = b'd' as u32;
/// The type letter of KFD's ioctls.
pub const KFD_TYPE: u32 = b'K' as u32;

/// Number of an ioctl within its type.
pub const fn ioctl_number(request: u64) -> u32 {
    (request & 0xff) as u32
}

/// Type letter of an ioctl.
pub const fn ioctl_type(request: u64) -> u32 {
    ((request >> 8) & 0xff) as u32
}

/// Bytes of an ioctl's structure, as the caller sees it.
pub const fn ioctl_size(request: u64) -> usize {
    ((request >> 16) & 0x3fff) as usize
}

/// An ioctl of the accel node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Name without prefix, as in fault plans and reports.
    pub name: &'static str,
    /// Number within [`DRM_TYPE`].
    pub number: u32,
    /// Bytes of the structure in the newest kernel.
    pub bytes: usize,
}

const fn call<T>(name: &'static str, number: u32) -> Call {
    Call { name, number, bytes: size_of::<T>() }
}

/// Number of the first ioctl that belongs to a driver and not to the DRM core.
const COMMAND_BASE: u32 = 0x40;

/// The ioctls that are simulated.
pub const CALLS: &[Call] = &[
    call::<DrmVersion>("VERSION", 0x00),
    call::<GemClose>("GEM_CLOSE", 0x09),
    call::<GetCap>("GET_CAP", 0x0c),
    call::<PrimeHandle>("PRIME_HANDLE_TO_FD", 0x2d),
    call::<PrimeHandle>("PRIME_FD_TO_HANDLE", 0x2e),
    call::<CreateHwctx>("CREATE_HWCTX", COMMAND_BASE),
    call::<DestroyHwctx>("DESTROY_HWCTX", COMMAND_BASE + 1),
    call::<ConfigHwctx>("CONFIG_HWCTX", COMMAND_BASE + 2),
    call::<CreateBo>("CREATE_BO", COMMAND_BASE + 3),
    call::<GetBoInfo>("GET_BO_INFO", COMMAND_BASE + 4),
    call::<SyncBo>("SYNC_BO", COMMAND_BASE + 5),
    call::<ExecCmd>("EXEC_CMD", COMMAND_BASE + 6),
    call::<GetInfo>("GET_INFO", COMMAND_BASE + 7),
    call::<SetState>("SET_STATE", COMMAND_BASE + 8),
    call::<WaitCmd>("WAIT_CMD", COMMAND_BASE + 9),
    call::<GetArray>("GET_ARRAY", COMMAND_BASE + 10),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        let expected = [
            ("VERSION", 64),
            ("GEM_CLOSE", 8),
            ("GET_CAP", 16),
            ("PRIME_HANDLE_TO_FD", 12),
            ("PRIME_FD_TO_HANDLE", 12),
            ("CREATE_HWCTX", 56),
            ("DESTROY_HWCTX", 8),
            ("CONFIG_HWCTX", 24),
            ("CREATE_BO", 32),
            ("GET_BO_INFO", 48),
            ("SYNC_BO", 24),
            ("EXEC_CMD", 56),
            ("GET_INFO", 16),
            ("SET_STATE", 16),
            ("WAIT_CMD", 16),
            ("GET_ARRAY", 24),
        ];
        let found: Vec<_> = CALLS.iter().map(|call| (call.name, call.bytes)).collect();
        assert_eq!(found, expected);
        assert_eq!(size_of::<AieMetadata>(), 64);
        assert_eq!(size_of::<HwctxEntry>(), 160);
        assert_eq!((size_of::<QueryHwctx>(), size_of::<BoUsage>(), size_of::<ClockMetadata>()), (64, 32, 48));
        assert_eq!(size_of::<CuConfig>(), 8);
    }

    #[test]
    fn requests_come_apart() {
        // DRM_IOWR(0x43, 32 bytes).
        let request = 3 << 30 | 32 << 16 | u64::from(DRM_TYPE) << 8 | 0x43;
        assert_eq!((ioctl_number(request), ioctl_type(request), ioctl_size(request)), (0x43, DRM_TYPE, 32));
    }
}
