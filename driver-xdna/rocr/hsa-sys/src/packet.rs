//! Packets for AIE agents: the ERT packet of ROCm 7.0 to 7.2, and the kernel dispatch packet of later ROCR.
//!
//! All packets are 64 bytes long and begin with a 16-bit header. The processor looks at the header first, so a writer
//! fills the rest of the packet, and then stores the header with release ordering.

use crate::declaration::BitField;
use crate::hsa_signal_t;
use std::ffi::c_void;

/// Why the headers of ROCR 7.2 lack an item.
const SINCE_2026: &str = "from hsa_ext_amd_aie.h (AIE interface 1.0) of ROCR's development branch, early 2026";

c_enums! {
    /// State of an ERT command, in the packet.
    hsa_amd_aie_ert_state {
        /// Written by the host before it submits the command.
        HSA_AMD_AIE_ERT_STATE_NEW = 1,
        /// Internal to the scheduler.
        HSA_AMD_AIE_ERT_STATE_QUEUED = 2,
        /// Internal to the scheduler.
        HSA_AMD_AIE_ERT_STATE_RUNNING = 3,
        /// The command is done.
        HSA_AMD_AIE_ERT_STATE_COMPLETED = 4,
        /// The command failed.
        HSA_AMD_AIE_ERT_STATE_ERROR = 5,
        /// The command was aborted.
        HSA_AMD_AIE_ERT_STATE_ABORT = 6,
        /// Internal to the scheduler.
        HSA_AMD_AIE_ERT_STATE_SUBMITTED = 7,
        /// The command took too long; the device was reset.
        HSA_AMD_AIE_ERT_STATE_TIMEOUT = 8,
        /// The command took too long, and the device could not be reset.
        HSA_AMD_AIE_ERT_STATE_NORESPONSE = 9,
        /// A soft kernel failed.
        HSA_AMD_AIE_ERT_STATE_SKERROR = 10,
        /// A soft kernel crashed.
        HSA_AMD_AIE_ERT_STATE_SKCRASHED = 11,
        /// One more than the last state.
        HSA_AMD_AIE_ERT_STATE_MAX = 12,
    }

    /// What an ERT command does. ROCR 7.2.4 processes only [`HSA_AMD_AIE_ERT_START_CU`].
    hsa_amd_aie_ert_cmd_opcode_t {
        /// Start a compute unit: run the instructions of the payload with its PDI.
        HSA_AMD_AIE_ERT_START_CU = 0,
        /// Another name for [`HSA_AMD_AIE_ERT_START_CU`].
        HSA_AMD_AIE_ERT_START_KERNEL = 0,
        /// Configure the scheduler.
        HSA_AMD_AIE_ERT_CONFIGURE = 2,
        /// End the scheduler.
        HSA_AMD_AIE_ERT_EXIT = 3,
        /// Abort a command.
        HSA_AMD_AIE_ERT_ABORT = 4,
        /// Write registers, then start a compute unit.
        HSA_AMD_AIE_ERT_EXEC_WRITE = 5,
        /// Statistics of a compute unit.
        HSA_AMD_AIE_ERT_CU_STAT = 6,
        /// Copy between buffers.
        HSA_AMD_AIE_ERT_START_COPYBO = 7,
        /// Configure a soft kernel.
        HSA_AMD_AIE_ERT_SK_CONFIG = 8,
        /// Start a soft kernel.
        HSA_AMD_AIE_ERT_SK_START = 9,
        /// Undo the configuration of a soft kernel.
        HSA_AMD_AIE_ERT_SK_UNCONFIG = 10,
        /// Initialise a compute unit.
        HSA_AMD_AIE_ERT_INIT_CU = 11,
        /// Start a compute unit of the fast adapter kind.
        HSA_AMD_AIE_ERT_START_FA = 12,
        /// Calibrate the clock.
        HSA_AMD_AIE_ERT_CLK_CALIB = 13,
        /// Validate the mailbox.
        HSA_AMD_AIE_ERT_MB_VALIDATE = 14,
        /// Start a compute unit with pairs of key and value.
        HSA_AMD_AIE_ERT_START_KEY_VAL = 15,
        /// Test access from the controller.
        HSA_AMD_AIE_ERT_ACCESS_TEST_C = 16,
        /// Test access.
        HSA_AMD_AIE_ERT_ACCESS_TEST = 17,
        /// Run a buffer of instructions.
        HSA_AMD_AIE_ERT_START_DPU = 18,
        /// A chain of commands.
        HSA_AMD_AIE_ERT_CMD_CHAIN = 19,
        /// Run a buffer of instructions on the NPU.
        HSA_AMD_AIE_ERT_START_NPU = 20,
        /// The same, with points at which it may be preempted.
        HSA_AMD_AIE_ERT_START_NPU_PREEMPT = 21,
    }
}

c_constants! {
    /// Packet type in a header: the vendor's own format.
    HSA_PACKET_TYPE_VENDOR_SPECIFIC: u32 = 0,
    /// Packet type in a header: not written yet. The processor stops here.
    HSA_PACKET_TYPE_INVALID: u32 = 1,
    /// Packet type in a header: a GPU kernel.
    HSA_PACKET_TYPE_KERNEL_DISPATCH: u32 = 2,
    /// Lowest bit of the packet type in a header.
    HSA_PACKET_HEADER_TYPE: u32 = 0,
    /// Lowest bit of the acquire fence's scope in a header.
    HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE: u32 = 9,
    /// Lowest bit of the release fence's scope in a header.
    HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE: u32 = 11,
    /// Bits of the packet type in a header.
    HSA_PACKET_HEADER_WIDTH_TYPE: u32 = 8,
    /// Bits of the acquire fence's scope in a header.
    HSA_PACKET_HEADER_WIDTH_SCACQUIRE_FENCE_SCOPE: u32 = 2,
    /// Bits of the release fence's scope in a header.
    HSA_PACKET_HEADER_WIDTH_SCRELEASE_FENCE_SCOPE: u32 = 2,
    /// Fence scope: no fence.
    HSA_FENCE_SCOPE_NONE: u32 = 0,
    /// Fence scope: the agent.
    HSA_FENCE_SCOPE_AGENT: u32 = 1,
    /// Fence scope: the system.
    HSA_FENCE_SCOPE_SYSTEM: u32 = 2,
    /// AMD's packet type: a barrier on a signal's value. Only GPUs.
    HSA_AMD_PACKET_TYPE_BARRIER_VALUE: u8 = 2,
    /// AMD's packet type: an ERT command. Only AIE agents.
    HSA_AMD_PACKET_TYPE_AIE_ERT: u8 = 3,
    /// AIE packet type in a header: ready to be processed.
    [since: SINCE_2026] HSA_AMD_AIE_PACKET_TYPE_READY: u32 = 0,
    /// AIE packet type in a header: processed, or not written yet.
    [since: SINCE_2026] HSA_AMD_AIE_PACKET_TYPE_INVALID: u32 = 1,
    /// AIE packet opcode: a dispatch through a queue the kernel driver manages.
    [since: SINCE_2026] HSA_AMD_AIE_PACKET_OPCODE_KMQ: u16 = 0,
}

c_structs! {
    /// How every packet of AMD's own begins.
    hsa_amd_vendor_packet_header_t {
        /// Type, barrier and fences; see [`packet_header`]. The type is [`HSA_PACKET_TYPE_VENDOR_SPECIFIC`].
        header: u16,
        /// [`HSA_AMD_PACKET_TYPE_AIE_ERT`] and the like.
        AmdFormat: u8,
        /// 0.
        reserved: u8,
    }

    /// The packet of ROCm 7.0 to 7.2: a command for the array's embedded runtime.
    hsa_amd_aie_ert_packet_t {
        /// Header.
        header: hsa_amd_vendor_packet_header_t,
        /// State, count and opcode: see [`ert_command`]. In C five bit fields of an anonymous structure.
        command: u32,
        /// 0.
        reserved0: u64,
        /// 0.
        reserved1: u64,
        /// 0.
        reserved2: u64,
        /// 0.
        reserved3: u64,
        /// 0.
        reserved4: u64,
        /// 0.
        reserved5: u64,
        /// Address of the payload. For [`HSA_AMD_AIE_ERT_START_CU`] that is a [`hsa_amd_aie_ert_start_kernel_data_t`],
        /// which has to stay as it is until the packet is processed.
        payload_data: u64,
    }

    /// Head of the payload of [`HSA_AMD_AIE_ERT_START_CU`]: the PDI's address, followed by words of 32 bits:
    ///
    /// | word | meaning |
    /// |---|---|
    /// | 0, 1 | 3 (run transactions), 0 |
    /// | 2, 3 | address of the instructions, low and high |
    /// | 4 | **words** of instructions |
    /// | 5 ... | address of each argument, low and high |
    /// | then | bytes of each argument |
    ///
    /// The packet's `count` is 3 + 3 words for each argument: the first two words are not counted. PDI and instructions
    /// must be in the agent's device heap. Source: what AMD's C++ backend of ggml sends, and ROCR's XDNA driver.
    hsa_amd_aie_ert_start_kernel_data_t {
        /// Address of the PDI.
        pdi_addr: *mut c_void,
        /// The words, as many as the payload has.
        data: [u32; 0],
    }

    /// The packet of ROCR after 7.2: one dispatch.
    ///
    /// Source: `hsa_ext_amd_aie.h` of ROCR's development branch. It is in no release of ROCm 7.2, so nothing compares
    /// this declaration with an installed header. Later revisions of the branch replace the addresses of instructions and
    /// PDI by the handle of a kernel object that is loaded from a file; this is the form with addresses.
    [since: SINCE_2026]
    hsa_amd_aie_kernel_dispatch_packet_t {
        /// Type and fences: see [`packet_header`]. The type is [`HSA_AMD_AIE_PACKET_TYPE_READY`].
        header: u16,
        /// [`HSA_AMD_AIE_PACKET_OPCODE_KMQ`].
        opcode: u16,
        /// Bytes from the end of `completion_signal` to the end of `kernarg_address`:
        /// [`hsa_amd_aie_kernel_dispatch_packet_t::COUNT`].
        count: u16,
        /// 0.
        reserved0: u8,
        /// 0.
        reserved1: u8,
        /// Completion signal, or handle 0 for none.
        completion_signal: hsa_signal_t,
        /// 0.
        reserved2: u32,
        /// Address of the instructions, low half.
        insts_addr_low: u32,
        /// Address of the instructions, high half.
        insts_addr_high: u32,
        /// Number of arguments.
        num_kernargs: u16,
        /// 0.
        reserved3: u16,
        /// A buffer of `2 * num_kernargs` words of 64 bits: the addresses of all arguments, then their bytes. It stays as
        /// it is until the dispatch has ended. Null only without arguments.
        kernarg_address: *mut c_void,
        /// **Bytes** of instructions; the ERT packet counts words.
        insts_size: u64,
        /// Address of the PDI.
        pdi_addr: *mut c_void,
        /// 0 for a PDI with instructions. Reserved in the first revisions; in later ones the place of the PDI's address in
        /// the control code of a full ELF, which this crate does not use.
        pdi_patch_offset: u64,
    }
}

/// The bit fields of [`hsa_amd_aie_ert_packet_t::command`].
pub(crate) const BIT_FIELDS: &[BitField] = &[
    bit_field("state", 0, 4),
    bit_field("custom", 4, 8),
    bit_field("count", 12, 11),
    bit_field("opcode", 23, 5),
    bit_field("type", 28, 4),
];

const fn bit_field(name: &'static str, shift: u32, width: u32) -> BitField {
    BitField {
        structure: "hsa_amd_aie_ert_packet_t",
        name,
        offset: std::mem::offset_of!(hsa_amd_aie_ert_packet_t, command),
        mask: ((1 << width) - 1) << shift,
    }
}

/// Most words an ERT packet can count.
pub const ERT_MAX_COUNT: u32 = 0x7ff;

/// The command word of an ERT packet: what the host writes for a new command of `count` words.
///
/// `None` if `count` is above [`ERT_MAX_COUNT`] or the opcode does not fit its five bits.
pub const fn ert_command(opcode: hsa_amd_aie_ert_cmd_opcode_t, count: u32) -> Option<u32> {
    if count > ERT_MAX_COUNT || opcode.0 > 0x1f {
        return None;
    }
    Some(HSA_AMD_AIE_ERT_STATE_NEW.0 | count << 12 | opcode.0 << 23)
}

/// A packet header with fences of the given scopes (`HSA_FENCE_SCOPE_*`) and without a barrier.
pub const fn packet_header(packet_type: u32, acquire: u32, release: u32) -> u16 {
    let scope = (1 << HSA_PACKET_HEADER_WIDTH_SCACQUIRE_FENCE_SCOPE) - 1;
    let packet_type = packet_type & ((1 << HSA_PACKET_HEADER_WIDTH_TYPE) - 1);
    let bits = packet_type << HSA_PACKET_HEADER_TYPE
        | (acquire & scope) << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE
        | (release & scope) << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
    // All fields lie in the low 13 bits.
    bits as u16
}

impl hsa_amd_aie_kernel_dispatch_packet_t {
    /// What [`Self::count`] has to be.
    pub const COUNT: u16 = 24;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn packets_are_as_long_as_a_slot_of_the_ring() {
        assert_eq!(size_of::<hsa_amd_aie_ert_packet_t>(), 64);
        assert_eq!(size_of::<hsa_amd_aie_kernel_dispatch_packet_t>(), 64);
    }

    #[test]
    fn the_count_of_a_kernel_dispatch_packet_is_the_distance_it_is_defined_as() {
        type Packet = hsa_amd_aie_kernel_dispatch_packet_t;
        let from = offset_of!(Packet, completion_signal) + size_of::<hsa_signal_t>();
        let to = offset_of!(Packet, kernarg_address) + size_of::<*mut c_void>();
        assert_eq!(to - from, usize::from(Packet::COUNT));
    }

    #[test]
    fn the_bit_fields_fill_the_command_word() {
        let mut all = 0;
        for field in BIT_FIELDS {
            assert_eq!(all & field.mask, 0, "{}", field.name);
            all |= field.mask;
        }
        assert_eq!(all, u32::MAX);
    }

    #[test]
    fn a_command_word_holds_what_it_was_made_of() {
        let word = ert_command(HSA_AMD_AIE_ERT_CMD_CHAIN, ERT_MAX_COUNT).unwrap();
        let part = |name: &str| {
            let mask = BIT_FIELDS.iter().find(|field| field.name == name).unwrap().mask;
            (word & mask) >> mask.trailing_zeros()
        };
        assert_eq!((part("state"), part("custom"), part("count"), part("opcode"), part("type")), (1, 0, 2047, 19, 0));
        assert_eq!(ert_command(HSA_AMD_AIE_ERT_START_CU, ERT_MAX_COUNT + 1), None);
        assert_eq!(ert_command(hsa_amd_aie_ert_cmd_opcode_t(32), 1), None);
    }

    #[test]
    fn headers_put_scopes_at_bits_9_and_11() {
        let header = packet_header(HSA_PACKET_TYPE_VENDOR_SPECIFIC, HSA_FENCE_SCOPE_SYSTEM, HSA_FENCE_SCOPE_AGENT);
        assert_eq!(header, 2 << 9 | 1 << 11);
        assert_eq!(packet_header(HSA_PACKET_TYPE_INVALID, 0, 0), 1);
    }
}
