//! Requests of amdxdna: `drm/amdxdna_accel.h`.

/// Number of the first request that belongs to a driver and not to the DRM core.
pub const DRM_COMMAND_BASE: u32 = 0x40;

structures! {
    "DRM_IOCTL_AMDXDNA_":
    /// Quality of service of a context; zeros ask for nothing.
    amdxdna_qos_info { gops: u32, fps: u32, dma_bandwidth: u32, latency: u32, frame_exec_time: u32, priority: u32 }
    /// Makes a hardware context. `syncobj_handle` is returned: the timeline on which its commands complete, 0 where the kernel
    /// driver has none.
    amdxdna_drm_create_hwctx = ReadWrite DRM_COMMAND_BASE, "CREATE_HWCTX" {
        ext: u64, ext_flags: u64, qos_p: u64, umq_bo: u32, log_buf_bo: u32, max_opc: u32, num_tiles: u32, mem_size: u32,
        umq_doorbell: u32, handle: u32, syncobj_handle: u32,
    }
    /// Destroys one.
    amdxdna_drm_destroy_hwctx = ReadWrite DRM_COMMAND_BASE + 1, "DESTROY_HWCTX" { handle: u32, pad: u32 }
    /// One PDI of a context's configuration.
    amdxdna_cu_config { cu_bo: u32, cu_func: u8, pad: [u8; 3] }
    /// The head of a context's configuration: one [`amdxdna_cu_config`] for each PDI follows.
    amdxdna_hwctx_param_config_cu { num_cus: u16, pad: [u16; 3] }
    /// Configures a context. With PDIs possible once.
    amdxdna_drm_config_hwctx = ReadWrite DRM_COMMAND_BASE + 2, "CONFIG_HWCTX" {
        handle: u32, param_type: u32, param_val: u64, param_val_size: u32, pad: u32,
    }
    /// A piece of the caller's memory.
    [since "6.18"] amdxdna_drm_va_entry { vaddr: u64, len: u64 }
    /// The caller's memory for a BO: a descriptor, or entries that follow.
    [since "6.18"] amdxdna_drm_va_tbl { dmabuf_fd: i32, num_entries: u32 }
    /// Makes a BO. `vaddr` may be the address of an [`amdxdna_drm_va_tbl`] where the kernel has it.
    amdxdna_drm_create_bo = ReadWrite DRM_COMMAND_BASE + 3, "CREATE_BO" {
        flags: u64, vaddr: u64, size: u64, type_: u32, handle: u32,
    }
    /// Where a BO can be mapped, and where host and device see it.
    amdxdna_drm_get_bo_info = ReadWrite DRM_COMMAND_BASE + 4, "GET_BO_INFO" {
        ext: u64, ext_flags: u64, handle: u32, pad: u32, map_offset: u64, vaddr: u64, xdna_addr: u64,
    }
    /// Writes cache lines of a BO back, or invalidates them.
    amdxdna_drm_sync_bo = ReadWrite DRM_COMMAND_BASE + 5, "SYNC_BO" { handle: u32, direction: u32, offset: u64, size: u64 }
    /// Submits a command. `seq` is returned.
    amdxdna_drm_exec_cmd = ReadWrite DRM_COMMAND_BASE + 6, "EXEC_CMD" {
        ext: u64, ext_flags: u64, hwctx: u32, type_: u32, cmd_handles: u64, args: u64, cmd_count: u32, arg_count: u32, seq: u64,
    }
    /// Asks the device something.
    amdxdna_drm_get_info = ReadWrite DRM_COMMAND_BASE + 7, "GET_INFO" { param: u32, buffer_size: u32, buffer: u64 }
    /// Sets something.
    amdxdna_drm_set_state = ReadWrite DRM_COMMAND_BASE + 8, "SET_STATE" { param: u32, buffer_size: u32, buffer: u64 }
    /// Waits for a command; `timeout` in milliseconds, 0 forever. Mainline answers it for aie4 only, AMD's own module for all.
    [since "7.0"] amdxdna_drm_wait_cmd = Write DRM_COMMAND_BASE + 9, "WAIT_CMD" { hwctx: u32, timeout: u32, seq: u64 }
    /// Asks for a list.
    [since "6.18"] amdxdna_drm_get_array = ReadWrite DRM_COMMAND_BASE + 10, "GET_ARRAY" {
        param: u32, element_size: u32, num_element: u32, pad: u32, buffer: u64,
    }
    /// Where the state of the columns is to go.
    amdxdna_drm_query_aie_status { buffer: u64, buffer_size: u32, cols_filled: u32 }
    /// Version of the array.
    amdxdna_drm_query_aie_version { major: u32, minor: u32 }
    /// Rows of one kind of tile.
    amdxdna_drm_query_aie_tile_metadata {
        row_count: u16, row_start: u16, dma_channel_count: u16, lock_count: u16, event_reg_count: u16, pad: [u16; 3],
    }
    /// Shape of the array.
    amdxdna_drm_query_aie_metadata {
        col_size: u32, cols: u16, rows: u16, version: amdxdna_drm_query_aie_version,
        core: amdxdna_drm_query_aie_tile_metadata, mem: amdxdna_drm_query_aie_tile_metadata,
        shim: amdxdna_drm_query_aie_tile_metadata,
    }
    /// A clock.
    amdxdna_drm_query_clock { name: [u8; 16], freq_mhz: u32, pad: u32 }
    /// Both clocks.
    amdxdna_drm_query_clock_metadata { mp_npu_clock: amdxdna_drm_query_clock, h_clock: amdxdna_drm_query_clock }
    /// A sensor.
    amdxdna_drm_query_sensor {
        label: [u8; 64], input: u32, max: u32, average: u32, highest: u32, status: [u8; 64], units: [u8; 16], unitm: i8,
        type_: u8, pad: [u8; 6],
    }
    /// A context in the list of GET_INFO.
    amdxdna_drm_query_hwctx {
        context_id: u32, start_col: u32, num_col: u32, pad: u32, pid: i64, command_submissions: u64, command_completions: u64,
        migrations: u64, preemptions: u64, errors: u64,
    }
    /// The power mode.
    amdxdna_drm_get_power_mode { power_mode: u8, pad: [u8; 7] }
    /// The power mode to set.
    amdxdna_drm_set_power_mode { power_mode: u8, pad: [u8; 7] }
    /// Version of the firmware.
    amdxdna_drm_query_firmware_version { major: u32, minor: u32, patch: u32, build: u32 }
    /// The device's resources, and which are in use.
    [since "7.0"] amdxdna_drm_get_resource_info {
        npu_clk_max: u64, npu_tops_max: u64, npu_task_max: u64, npu_tops_curr: u64, npu_task_curr: u64,
    }
    /// Something that is on or off.
    [since "7.0"] amdxdna_drm_attribute_state { state: u8, pad: [u8; 7] }
    /// The head of telemetry.
    [since "7.0"] amdxdna_drm_query_telemetry_header { major: u32, minor: u32, type_: u32, map_num_elements: u32 }
    /// A context in the list of GET_ARRAY.
    [since "6.18"] amdxdna_drm_hwctx_entry {
        context_id: u32, start_col: u32, num_col: u32, hwctx_id: u32, pid: i64, command_submissions: u64,
        command_completions: u64, migrations: u64, preemptions: u64, errors: u64, priority: u64, heap_usage: u64,
        suspensions: u64, state: u32, pasid: u32, gops: u32, fps: u32, dma_bandwidth: u32, latency: u32, frame_exec_time: u32,
        txn_op_idx: u32, ctx_pc: u32, fatal_error_type: u32, fatal_error_exception_type: u32, fatal_error_exception_pc: u32,
        fatal_error_app_module: u32, pad: u32,
    }
    /// The last asynchronous error.
    [since "7.0"] amdxdna_async_error { err_code: u64, ts_us: u64, ex_err_code: u64 }
    /// Memory that a process uses.
    [since "7.0"] amdxdna_drm_bo_usage { pid: i64, total_usage: u64, internal_usage: u64, heap_usage: u64 }
}

constants! {
    /// No device address.
    AMDXDNA_INVALID_ADDR: u64 = u64::MAX;
    /// No context.
    AMDXDNA_INVALID_CTX_HANDLE: u32 = 0;
    /// No BO.
    AMDXDNA_INVALID_BO_HANDLE: u32 = 0;
    /// No synchronisation object.
    AMDXDNA_INVALID_FENCE_HANDLE: u32 = 0;
    /// Normal priority of a context.
    [since "7.0"] AMDXDNA_QOS_NORMAL_PRIORITY: u32 = 0x200;
    /// Memory shared by host and device.
    AMDXDNA_BO_SHMEM: u32 = 1;
    /// The device heap: one for each open file.
    AMDXDNA_BO_DEV_HEAP: u32 = 2;
    /// A piece of the device heap.
    AMDXDNA_BO_DEV: u32 = 3;
    /// A command.
    AMDXDNA_BO_CMD: u32 = 4;
    /// Write cache lines back.
    SYNC_DIRECT_TO_DEVICE: u32 = 0;
    /// Invalidate cache lines.
    SYNC_DIRECT_FROM_DEVICE: u32 = 1;
    /// `param_type`: the PDIs of a context.
    DRM_AMDXDNA_HWCTX_CONFIG_CU: u32 = 0;
    /// `param_type`: attaches a debug buffer.
    DRM_AMDXDNA_HWCTX_ASSIGN_DBG_BUF: u32 = 1;
    /// `param_type`: detaches it.
    DRM_AMDXDNA_HWCTX_REMOVE_DBG_BUF: u32 = 2;
    /// EXEC_CMD: run command BOs.
    AMDXDNA_CMD_SUBMIT_EXEC_BUF: u32 = 0;
    /// EXEC_CMD: wait for others.
    AMDXDNA_CMD_SUBMIT_DEPENDENCY: u32 = 1;
    /// EXEC_CMD: signal others.
    AMDXDNA_CMD_SUBMIT_SIGNAL: u32 = 2;
    /// GET_INFO: state of the columns.
    DRM_AMDXDNA_QUERY_AIE_STATUS: u32 = 0;
    /// GET_INFO: shape of the array.
    DRM_AMDXDNA_QUERY_AIE_METADATA: u32 = 1;
    /// GET_INFO: version of the array.
    DRM_AMDXDNA_QUERY_AIE_VERSION: u32 = 2;
    /// GET_INFO: clocks.
    DRM_AMDXDNA_QUERY_CLOCK_METADATA: u32 = 3;
    /// GET_INFO: sensors.
    DRM_AMDXDNA_QUERY_SENSORS: u32 = 4;
    /// GET_INFO: contexts.
    DRM_AMDXDNA_QUERY_HW_CONTEXTS: u32 = 5;
    /// GET_INFO: version of the firmware.
    DRM_AMDXDNA_QUERY_FIRMWARE_VERSION: u32 = 8;
    /// GET_INFO: the power mode.
    DRM_AMDXDNA_GET_POWER_MODE: u32 = 9;
    /// GET_INFO: telemetry.
    [since "7.0"] DRM_AMDXDNA_QUERY_TELEMETRY: u32 = 10;
    /// GET_INFO: whether preemption is forced.
    [since "7.0"] DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE: u32 = 11;
    /// GET_INFO: what the device has and what of it is in use.
    [since "7.0"] DRM_AMDXDNA_QUERY_RESOURCE_INFO: u32 = 12;
    /// GET_INFO: whether preemption is at frame boundaries.
    [since "7.0"] DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE: u32 = 13;
    /// GET_ARRAY: all contexts.
    [since "6.18"] DRM_AMDXDNA_HW_CONTEXT_ALL: u32 = 0;
    /// GET_ARRAY: the last asynchronous error.
    [since "7.0"] DRM_AMDXDNA_HW_LAST_ASYNC_ERR: u32 = 2;
    /// GET_ARRAY: memory that a process uses.
    [since "7.0"] DRM_AMDXDNA_BO_USAGE: u32 = 6;
    /// SET_STATE: the power mode.
    DRM_AMDXDNA_SET_POWER_MODE: u32 = 0;
    /// SET_STATE: memory of a tile.
    DRM_AMDXDNA_WRITE_AIE_MEM: u32 = 1;
    /// SET_STATE: a register of a tile.
    DRM_AMDXDNA_WRITE_AIE_REG: u32 = 2;
    /// SET_STATE: force preemption.
    [since "7.0"] DRM_AMDXDNA_SET_FORCE_PREEMPT: u32 = 3;
    /// SET_STATE: preempt at frame boundaries.
    [since "7.0"] DRM_AMDXDNA_SET_FRAME_BOUNDARY_PREEMPT: u32 = 4;
}
