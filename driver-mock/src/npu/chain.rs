//! Command chains: what the firmware takes in one go.

use super::refusal::Refusal;
use aie_hal::arch::ArchLimits;
use aie_hal::device::chain_command_bytes;

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
    check_encoded(chain, chain.iter().map(|c| chain_command_bytes(c.arguments)).sum(), limits)
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
