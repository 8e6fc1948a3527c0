//! The kernel driver's interface, as far as the gate speaks it: requests of `/dev/accel/accelN` (amdxdna uapi).
//!
//! Only what the gate answers, changes or calls itself is here. Everything else ROCR asks passes by untouched.

use std::ffi::c_ulong;

/// Letter of DRM's requests.
const DRM: u32 = b'd' as u32;
/// First number of a driver's own requests.
const DRIVER: u32 = 0x40;

/// A request that is read and written, as `_IOWR` makes it.
const fn read_write(number: u32, bytes: usize) -> c_ulong {
    (3 << 30 | (bytes as u32) << 16 | DRM << 8 | number) as c_ulong
}

/// What a request asks for, whatever the size of its structure: the structures have grown at their ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    CreateContext,
    DestroyContext,
    ConfigContext,
    CreateBuffer,
    BufferInfo,
    Execute,
    Wait,
    CloseBuffer,
    GetInfo,
    /// Another request to an accel node.
    Other,
}

impl Call {
    /// `None` for a request that is not DRM's, for instance one to `/dev/kfd`.
    pub(super) fn of(request: c_ulong) -> Option<Self> {
        let request = request as u32;
        if (request >> 8) & 0xff != DRM {
            return None;
        }
        Some(match request & 0xff {
            0x09 => Self::CloseBuffer,
            0x40 => Self::CreateContext,
            0x41 => Self::DestroyContext,
            0x42 => Self::ConfigContext,
            0x43 => Self::CreateBuffer,
            0x44 => Self::BufferInfo,
            0x46 => Self::Execute,
            0x47 => Self::GetInfo,
            0x49 => Self::Wait,
            _ => Self::Other,
        })
    }
}

/// A structure of a request, with the request's number.
///
/// # Safety
/// `REQUEST` is the request that takes exactly this structure, and any bytes the kernel writes are valid for it.
pub(super) unsafe trait Request {
    const REQUEST: c_ulong;
    const NAME: &'static str;
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident = $number:expr, $text:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, Default)]
            pub(super) struct $name { $(pub(super) $field: $type,)* }

            // SAFETY: the fields are those of the uapi's structure of this number, all integers.
            unsafe impl Request for $name {
                const REQUEST: c_ulong = read_write($number, size_of::<$name>());
                const NAME: &'static str = $text;
            }
        )*
    };
}

requests! {
    /// Makes a hardware context.
    CreateContext = DRIVER, "CREATE_HWCTX" {
        ext: u64, ext_flags: u64, qos: u64, umq_bo: u32, log_bo: u32, max_opc: u32, num_tiles: u32, mem_size: u32,
        umq_doorbell: u32, handle: u32, syncobj: u32,
    }
    /// Destroys one.
    DestroyContext = DRIVER + 1, "DESTROY_HWCTX" { handle: u32, pad: u32, }
    /// Gives one its PDIs, called compute units. Possible once.
    ConfigContext = DRIVER + 2, "CONFIG_HWCTX" {
        handle: u32, param: u32, value: u64, value_bytes: u32, pad: u32,
    }
    /// Makes a buffer object.
    CreateBuffer = DRIVER + 3, "CREATE_BO" { flags: u64, vaddr: u64, size: u64, kind: u32, handle: u32, }
    /// Where to map it.
    BufferInfo = DRIVER + 4, "GET_BO_INFO" {
        ext: u64, ext_flags: u64, handle: u32, pad: u32, map_offset: u64, vaddr: u64, xdna_address: u64,
    }
    /// Submits a command.
    Execute = DRIVER + 6, "EXEC_CMD" {
        ext: u64, ext_flags: u64, context: u32, kind: u32, commands: u64, arguments: u64, command_count: u32,
        argument_count: u32, sequence: u64,
    }
    /// Asks the device something.
    GetInfo = DRIVER + 7, "GET_INFO" { param: u32, buffer_bytes: u32, buffer: u64, }
    /// Waits for a command; `timeout` in milliseconds, 0 for ever.
    Wait = DRIVER + 9, "WAIT_CMD" { context: u32, timeout: u32, sequence: u64, }
}

/// Gives a buffer object back.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CloseBuffer {
    pub(super) handle: u32,
    pub(super) pad: u32,
}

// SAFETY: `drm_gem_close` of drm.h: two 32-bit integers, a request that is written only (`_IOW`).
unsafe impl Request for CloseBuffer {
    const REQUEST: c_ulong = (1 << 30 | (size_of::<CloseBuffer>() as u32) << 16 | DRM << 8 | 0x09) as c_ulong;
    const NAME: &'static str = "GEM_CLOSE";
}

/// Kind of a buffer object that holds commands.
pub(super) const BO_CMD: u32 = 4;
/// `ConfigContext::param` that sets the PDIs.
pub(super) const CONFIG_CU: u32 = 0;
/// `GetInfo::param` that asks for the array's shape.
pub(super) const QUERY_METADATA: u32 = 1;
/// `GetInfo::param` that asks for the array's version: ROCR's first question after opening the node.
pub(super) const QUERY_VERSION: u32 = 2;
/// What ROCR asks for as operations per cycle of a context.
pub(super) const MAX_OPC: u32 = 0x800;

/// One PDI of a context's configuration.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ComputeUnit {
    pub(super) buffer: u32,
    pub(super) function: u8,
    pub(super) pad: [u8; 3],
}

/// Quality of service of a context; zeros ask for nothing.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QualityOfService {
    pub(super) gops: u32,
    pub(super) fps: u32,
    pub(super) dma_bandwidth: u32,
    pub(super) latency: u32,
    pub(super) frame_exec_time: u32,
    pub(super) priority: u32,
}

/// Rows of one kind of tile.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TileMetadata {
    pub(super) row_count: u16,
    pub(super) row_start: u16,
    pub(super) dma_channel_count: u16,
    pub(super) lock_count: u16,
    pub(super) event_reg_count: u16,
    pub(super) pad: [u16; 3],
}

/// Shape of the array.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Metadata {
    pub(super) col_size: u32,
    pub(super) cols: u16,
    pub(super) rows: u16,
    pub(super) version_major: u32,
    pub(super) version_minor: u32,
    pub(super) core: TileMetadata,
    pub(super) mem: TileMetadata,
    pub(super) shim: TileMetadata,
}

/// States of a command, in the low four bits of its first word.
pub(super) mod state {
    pub(in crate::gate) const NEW: u32 = 1;
    pub(in crate::gate) const COMPLETED: u32 = 4;
    pub(in crate::gate) const ERROR: u32 = 5;
    pub(in crate::gate) const ABORT: u32 = 6;
    pub(in crate::gate) const TIMEOUT: u32 = 8;
    pub(in crate::gate) const NO_RESPONSE: u32 = 9;

    /// Name for messages.
    pub(in crate::gate) fn name(state: u32) -> &'static str {
        match state {
            NEW => "new",
            COMPLETED => "completed",
            ERROR => "error",
            ABORT => "aborted",
            TIMEOUT => "timeout",
            NO_RESPONSE => "no response",
            _ => "unknown",
        }
    }
}

/// Where things are in a chain's command buffer, in 32-bit words: the header; number of commands, submit index, error
/// index, three reserved; then a 64-bit handle for each command.
pub(super) mod chain {
    pub(in crate::gate) const COMMAND_COUNT: usize = 1;
    pub(in crate::gate) const ERROR_INDEX: usize = 3;
    pub(in crate::gate) const HANDLES: usize = 7;
    /// Opcode of a chain, in bits 23 to 27 of the header.
    pub(in crate::gate) const OPCODE: u32 = 19;
}

/// Where a start command has its mask of compute units, in 32-bit words.
pub(super) const CU_MASK: usize = 1;
/// Where its payload begins.
pub(super) const PAYLOAD: usize = 2;
/// Where the payload has the address of the instructions, low and high.
pub(super) const INSTRUCTIONS: usize = PAYLOAD + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Sizes of the uapi's structures, counted from its header.
    #[test]
    fn structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<CreateContext>(), 56);
        assert_eq!(size_of::<ConfigContext>(), 24);
        assert_eq!(size_of::<CreateBuffer>(), 32);
        assert_eq!(size_of::<BufferInfo>(), 48);
        assert_eq!(size_of::<Execute>(), 56);
        assert_eq!(size_of::<Wait>(), 16);
        assert_eq!(size_of::<Metadata>(), 64);
        assert_eq!(size_of::<ComputeUnit>(), 8);
    }

    #[rstest]
    #[case(CreateContext::REQUEST, Call::CreateContext)]
    #[case(DestroyContext::REQUEST, Call::DestroyContext)]
    #[case(ConfigContext::REQUEST, Call::ConfigContext)]
    #[case(CreateBuffer::REQUEST, Call::CreateBuffer)]
    #[case(BufferInfo::REQUEST, Call::BufferInfo)]
    #[case(Execute::REQUEST, Call::Execute)]
    #[case(Wait::REQUEST, Call::Wait)]
    #[case(CloseBuffer::REQUEST, Call::CloseBuffer)]
    #[case(GetInfo::REQUEST, Call::GetInfo)]
    fn requests_are_recognised(#[case] request: c_ulong, #[case] call: Call) {
        assert_eq!(Call::of(request), Some(call));
    }

    #[test]
    fn requests_of_others_are_not_ours() {
        // KFD's version request, and one whose structure has grown.
        assert_eq!(Call::of(0x8008_4b01), None);
        assert_eq!(Call::of(CreateBuffer::REQUEST + (8 << 16)), Some(Call::CreateBuffer));
        assert_eq!(CloseBuffer::REQUEST, 0x4008_6409);
    }
}
