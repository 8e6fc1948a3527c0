//! What the firmware answers (`enum aie2_msg_status` of the kernel driver, `aie2_msg_priv.h`).

/// All is well.
pub const SUCCESS: u32 = 0;
/// A core came to an instruction it cannot execute.
pub const AIE_INSTRUCTION_ERROR: u32 = 0x0100_0006;
/// There is nothing left of what was requested, such as contexts.
pub const NOT_AVAILABLE: u32 = 0x0200_0003;
/// A request makes no sense.
pub const INVALID_PARAMETER: u32 = 0x0200_0004;
/// A command cannot be decoded.
pub const INVALID_INSTRUCTION: u32 = 0x0300_0002;
/// A PDI cannot be loaded.
pub const LOAD_PDI_FAILED: u32 = 0x0300_0003;
/// No such message.
pub const INVALID_COMMAND: u32 = 0x0400_0002;
