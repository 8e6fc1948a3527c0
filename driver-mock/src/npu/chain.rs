//! Command chains: what the firmware takes in one go.

use super::refusal::Refusal;
use aie_hal::arch::ArchLimits;

/// Bytes in front of a command's payload in the chain buffer: the packed `cmd_chain_slot_npu` of the amdxdna kernel
/// driver (type, three 64-bit buffer addresses, three sizes, property count, CU index, argument count).
const SLOT_HEADER_BYTES: usize = 52;
/// Payload words that do not depend on the arguments: transaction opcode and instruction address (two words each) and
/// instruction size, less the CU mask word that the driver takes off.
const FIXED_WORDS: usize = 4;
/// Payload words of one argument: its address (two words) and its size.
const WORDS_PER_ARGUMENT: usize = 3;

/// Bytes that a start-kernel command takes in the chain buffer: `52 + 4 * (4 + 3 * arguments)`.
///
/// A command with two arguments takes 92 bytes, so 44 of them fill the 4 KiB buffer; that number was counted with the
/// ROCR runtime.
pub const fn command_bytes(arguments: usize) -> usize {
    SLOT_HEADER_BYTES + 4 * (FIXED_WORDS + WORDS_PER_ARGUMENT * arguments)
}

/// One command of a chain, as far as limits and time are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainCommand {
    /// Index of the PDI in the context's configuration.
    pub pdi: usize,
    /// Number of arguments.
    pub arguments: usize,
    /// Bytes the command reads and writes in DDR.
    pub bytes: u64,
}

/// Checks a chain against the limits.
pub(super) fn check(chain: &[ChainCommand], limits: &ArchLimits) -> Result<(), Refusal> {
    let limit = limits.kernel_arguments;
    if let Some(command) = chain.iter().find(|c| c.arguments > limit) {
        return Err(Refusal::Limit { what: "kernel arguments", requested: command.arguments, limit });
    }
    check_encoded(chain, chain.iter().map(|c| command_bytes(c.arguments)).sum(), limits)
}

/// Checks a chain whose commands take `bytes` of the command buffer.
pub(super) fn check_encoded(chain: &[ChainCommand], bytes: usize, limits: &ArchLimits) -> Result<(), Refusal> {
    let over = |what, requested, limit| Err(Refusal::Limit { what, requested, limit });
    if chain.is_empty() {
        return Err(Refusal::EmptyChain);
    }
    if chain.len() > limits.commands_per_chain {
        return over("commands per chain", chain.len(), limits.commands_per_chain);
    }
    if bytes > limits.chain_buffer_bytes {
        return over("bytes of a chain's command buffer", bytes, limits.chain_buffer_bytes);
    }
    Ok(())
}
