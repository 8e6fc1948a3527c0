//! Chains of dispatches, as an agent takes them.

use super::XdnaDevice;
use crate::agent::{AgentError, Chain, Packet};
use crate::contexts::pdi_reference;
use aie_hal::backend::{ChainFailure, ChainView};

/// Starts a chain; returns its number.
pub(crate) fn start(
    device: &XdnaDevice,
    packed: &mut Chain,
    chain: &ChainView<'_, XdnaDevice>,
) -> Result<u64, ChainFailure> {
    packed.clear();
    for dispatch in chain.dispatches() {
        let kernel = dispatch.kernel;
        packed.packets.push(Packet {
            pdi_index: dispatch.slot,
            pdi: pdi_reference(&kernel.pdi),
            instructions: dispatch.instructions.device_address,
            instruction_bytes: dispatch.artifact.instructions().len(),
            arguments: (packed.arguments.len(), dispatch.arguments.len()),
        });
        // The executor lets no argument be longer than a packet can name.
        packed.arguments.extend_from_slice(dispatch.arguments);
    }
    let started = device.npu.agent.start(chain.context(), packed);
    started.map_err(|cause| failure(device, chain, cause))
}

/// Waits for the chain with that number.
pub(crate) fn finish(device: &XdnaDevice, number: u64, chain: &ChainView<'_, XdnaDevice>) -> Result<(), ChainFailure> {
    device.npu.agent.finish(chain.context(), number).map_err(|cause| failure(device, chain, cause))
}

fn failure(device: &XdnaDevice, chain: &ChainView<'_, XdnaDevice>, cause: AgentError) -> ChainFailure {
    let (command, discard_context) = match &cause {
        AgentError::Timeout { command, .. } | AgentError::Failed { command, .. } => (*command, true),
        _ => (None, false),
    };
    ChainFailure { command, discard_context, cause: device.npu.error(&chain.describe(command), cause) }
}

#[cfg(test)]
mod tests;
