//! Numbers that the kernel driver and the firmware count in. They are in no header; sources are the kernel driver's files.

/// Device address of the heap's first byte (`aie2_pci.h`, device regions of each NPU).
pub const DEV_MEM_BASE: u64 = 0x0400_0000;
/// Size and alignment of the device heap in bytes.
pub const DEV_MEM_SIZE: usize = 64 << 20;
/// Alignment of a BO in the heap in bytes: the firmware takes PDI addresses in units of 32 KiB (`aie2_pci.h`).
pub const DEV_BO_ALIGNMENT: usize = 32 << 10;
/// Largest command BO in bytes (`amdxdna_gem.c`).
pub const CMD_BO_BYTES: usize = 32 << 10;
/// BOs in the argument list of one submission (`amdxdna_ctx.c`).
pub const ARGUMENT_BOS: u32 = 4095;
/// Highest handle of a context (`amdxdna_ctx.c`).
pub const CONTEXT_HANDLE: u32 = 255;
/// Chain buffers that the kernel takes from the heap for each context, and jobs that one context can have queued (`aie2_pci.h`:
/// `HWCTX_MAX_CMDS`).
pub const QUEUED_JOBS: usize = 4;
/// Bytes of a page.
pub const PAGE: usize = 4096;
