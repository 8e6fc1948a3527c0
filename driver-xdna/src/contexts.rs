//! Hardware contexts of an NPU, as the context planner makes them.

use crate::agent::{Agent, AgentError, ContextId, PdiRef};
use crate::pool::Block;
use aie_hal::context_planner::ContextHost;
use aie_hal::loaded_pdi::LoadedPdi;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Makes the contexts of an agent. Keeps the PDIs of a context in memory as long as it exists.
#[derive(Debug)]
pub(crate) struct AgentContexts {
    agent: Arc<dyn Agent>,
    held: Mutex<HashMap<ContextId, Vec<Arc<Block>>>>,
}

impl AgentContexts {
    pub(crate) fn new(agent: Arc<dyn Agent>) -> Self {
        Self { agent, held: Mutex::default() }
    }
}

/// A PDI as an agent names it.
pub(crate) fn pdi_reference(pdi: &LoadedPdi<Arc<Block>>) -> PdiRef {
    PdiRef { address: pdi.memory.device_address, bytes: pdi.bytes }
}

impl ContextHost for AgentContexts {
    type Memory = Arc<Block>;
    type Context = ContextId;
    type Error = AgentError;

    fn create(&self, pdis: &[Arc<LoadedPdi<Arc<Block>>>]) -> Result<ContextId, AgentError> {
        let references: Vec<PdiRef> = pdis.iter().map(|pdi| pdi_reference(pdi)).collect();
        let context = self.agent.create_context(&references)?;
        self.held.lock().insert(context, pdis.iter().map(|pdi| Arc::clone(&pdi.memory)).collect());
        Ok(context)
    }

    fn destroy(&self, context: ContextId) -> Result<(), AgentError> {
        self.agent.destroy_context(context);
        let held = self.held.lock().remove(&context);
        // Not under the lock: this may give memory back to the runtime.
        drop(held);
        Ok(())
    }

    fn is_exhausted(&self, error: &AgentError) -> bool {
        matches!(error, AgentError::ContextsExhausted { .. } | AgentError::OutOfMemory(_))
    }
}
