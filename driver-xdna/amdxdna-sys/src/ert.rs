//! Commands: what a command BO holds. Words are little-endian, 32 bits.
//!
//! The first word is a header: state in bits 0 to 3, masks of compute units beyond the first in bits 10 and 11, number of
//! words behind the header in bits 12 to 22, opcode in bits 23 to 27 (`amdxdna_ctx.h`).

/// States of a command.
pub mod state {
    /// Not yet run.
    pub const NEW: u32 = 1;
    /// Waits for its turn.
    pub const QUEUED: u32 = 2;
    /// Runs.
    pub const RUNNING: u32 = 3;
    /// Completed.
    pub const COMPLETED: u32 = 4;
    /// Failed in the firmware.
    pub const ERROR: u32 = 5;
    /// Aborted: the firmware or the kernel driver gave up.
    pub const ABORT: u32 = 6;
    /// Handed to the firmware.
    pub const SUBMITTED: u32 = 7;
    /// The kernel driver's time limit ended it.
    pub const TIMEOUT: u32 = 8;
    /// The firmware did not answer.
    pub const NO_RESPONSE: u32 = 9;

    /// Name for messages.
    pub const fn name(state: u32) -> &'static str {
        match state {
            NEW => "new",
            QUEUED => "queued",
            RUNNING => "running",
            COMPLETED => "completed",
            ERROR => "error",
            ABORT => "aborted",
            SUBMITTED => "submitted",
            TIMEOUT => "timeout",
            NO_RESPONSE => "no response",
            _ => "unknown",
        }
    }
}

/// Opcodes of commands.
pub mod opcode {
    /// Starts a compute unit with arguments.
    pub const START_CU: u32 = 0;
    /// Starts a compute unit; instructions in the payload's head (npu1).
    pub const START_DPU: u32 = 18;
    /// Runs a list of commands.
    pub const CMD_CHAIN: u32 = 19;
    /// Starts a compute unit with a partial ELF.
    pub const START_NPU: u32 = 20;
    /// The same, able to be preempted.
    pub const START_NPU_PREEMPT: u32 = 21;
    /// Runs a full ELF, able to be preempted.
    pub const START_NPU_PREEMPT_ELF: u32 = 22;
}

/// First argument of a START_CU command: run an instruction stream (a transaction).
pub const TRANSACTION: u32 = 3;

/// Bits of the state.
pub const STATE_MASK: u32 = 0xf;
/// Largest number of words behind the header.
pub const COUNT_MAX: u32 = 0x7ff;

/// The header of a command in state NEW.
pub const fn header(opcode: u32, words: u32) -> u32 {
    state::NEW | (words & COUNT_MAX) << 12 | (opcode & 0x1f) << 23
}

/// The opcode of a header.
pub const fn opcode_of(header: u32) -> u32 {
    (header >> 23) & 0x1f
}

/// Number of words behind the header.
pub const fn count_of(header: u32) -> u32 {
    (header >> 12) & COUNT_MAX
}

/// Masks of compute units behind the header: one, and the extra ones.
pub const fn masks_of(header: u32) -> u32 {
    1 + ((header >> 10) & 3)
}

/// Where things are in a START_CU command with one mask, in words.
pub mod start_cu {
    /// The mask of compute units: one bit is set.
    pub const CU_MASK: usize = 1;
    /// The payload.
    pub const PAYLOAD: usize = 2;
    /// Device address of the instructions in it, low and high.
    pub const INSTRUCTIONS: usize = PAYLOAD + 2;
    /// Number of instruction words.
    pub const INSTRUCTION_WORDS: usize = PAYLOAD + 4;
    /// The arguments: addresses of two words each.
    pub const ARGUMENTS: usize = PAYLOAD + 5;
}

/// Where things are in a chain (`amdxdna_cmd_chain`), in words.
pub mod chain {
    /// Number of commands.
    pub const COMMAND_COUNT: usize = 1;
    /// How many were submitted.
    pub const SUBMIT_INDEX: usize = 2;
    /// The first command that failed. The kernel driver writes it with every error and only then.
    pub const ERROR_INDEX: usize = 3;
    /// Handles of the commands' BOs, two words each. Three reserved words are before them.
    pub const HANDLES: usize = 7;
    /// Words in front of the handles that count as payload.
    pub const FIXED_WORDS: usize = 6;
}

/// Bytes of a command in the firmware's chain buffer before its arguments (`cmd_chain_slot_npu`).
pub const SLOT_HEADER_BYTES: usize = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_apart() {
        let header = header(opcode::CMD_CHAIN, 12);
        assert_eq!((opcode_of(header), count_of(header), masks_of(header)), (19, 12, 1));
        assert_eq!(header & STATE_MASK, state::NEW);
        assert_eq!(masks_of(header | 2 << 10), 3);
    }
}
