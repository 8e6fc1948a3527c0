//! The simulated silicon with its kernel driver: strict, and without opinions.
//!
//! [`SimulatedNpu`] knows contexts, PDIs, chains, the device heap and a clock. It rejects what the amdxdna kernel driver and the
//! firmware reject and never repairs a request: packing work so that nothing is rejected is the task of the layer above. It
//! moves no data and knows no traits of the HAL, so that the same core can stand behind other interfaces, such as the
//! ioctls of the kernel driver.
//!
//! What it enforces comes from [`Limits`]: distinct PDIs of a context, contexts, commands of a chain, bytes of a chain's
//! command buffer, size and alignment in the device heap.
//!
//! Thread-safe; every call takes one short lock.

pub mod array;
mod clock;
pub mod compiled;
pub mod fault_plan;
mod heap;
mod overlay;
mod rejection;
pub mod status;
pub mod trace;
pub mod transaction;

pub use clock::VirtualClock;
pub use heap::{HEAP_BASE, HeapAllocator};
pub use rejection::Rejection;

use aie_hal::arch::{Arch, Limits};
use aie_hal::artifact::Digest;
use aie_hal::device::chain_command_bytes;
use aie_hal::format::load;
use aie_hal::format::pdi::Pdi;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Time the kernel driver's watchdog gives a command before it resets the context, in nanoseconds (amdxdna: 2 s).
pub const WATCHDOG_NS: u64 = 2_000_000_000;

/// A hardware context. Ids are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(u32);

/// What happened since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NpuCounts {
    /// Contexts created.
    pub contexts_created: u64,
    /// Changes of the active context.
    pub context_switches: u64,
    /// Chains accepted.
    pub chains: u64,
    /// Commands in those chains.
    pub commands: u64,
    /// Nanoseconds of device time.
    pub virtual_ns: u64,
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
    /// Nanoseconds for which it keeps the array busy, moving those bytes included; 0 if it is not known.
    pub busy_ns: u64,
    /// Operations of its stream; 0 if it is not known.
    pub operations: u64,
}

/// A PDI of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextPdi {
    /// Of its bytes.
    pub digest: Digest,
    /// Buffer descriptors that it writes, which loading it takes time for.
    pub descriptors: u64,
}

/// Buffer descriptors that a PDI writes; none for bytes that are no PDI.
pub fn descriptors(pdi: &[u8], arch: &Arch) -> u64 {
    Pdi::parse(pdi).map_or(0, |pdi| load::descriptors(&pdi.cdo(), arch))
}

#[derive(Debug)]
struct Context {
    /// `None` until configured; a context is configured once in its life.
    pdis: Option<Vec<ContextPdi>>,
}

#[derive(Debug)]
struct State {
    clock: VirtualClock,
    heap: HeapAllocator,
    contexts: HashMap<ContextId, Context>,
    next_context: u32,
    /// The context that ran last, and its PDI that is loaded.
    active: Option<(ContextId, Digest)>,
    counts: NpuCounts,
}

/// One simulated NPU.
#[derive(Debug)]
pub struct SimulatedNpu {
    arch: Arc<Arch>,
    limits: Limits,
    state: Mutex<State>,
}

impl SimulatedNpu {
    /// A powered-up NPU of generation `arch` with a device heap of `heap_bytes`.
    pub fn new(arch: Arc<Arch>, heap_bytes: usize) -> Self {
        let mut limits = arch.limits;
        limits.device_heap_bytes = heap_bytes;
        let state = State {
            clock: VirtualClock::new(arch.cost.clone()),
            heap: HeapAllocator::new(heap_bytes),
            contexts: HashMap::new(),
            next_context: 0,
            active: None,
            counts: NpuCounts::default(),
        };
        Self { arch, limits, state: Mutex::new(state) }
    }

    /// Its generation.
    pub fn arch(&self) -> &Arc<Arch> {
        &self.arch
    }

    /// What it refuses to exceed.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts since opening.
    pub fn counts(&self) -> NpuCounts {
        let state = self.state.lock();
        NpuCounts { virtual_ns: state.clock.now_ns, ..state.counts }
    }

    /// Nanoseconds of device time since opening.
    pub fn elapsed_ns(&self) -> u64 {
        self.state.lock().clock.now_ns
    }

    /// Takes `bytes` of the device heap; returns the device address.
    ///
    /// # Errors
    /// [`Rejection::OutOfHeap`]; [`Rejection::Alignment`] when `alignment` is not a power of two or above the limit.
    pub fn heap_allocate(&self, bytes: usize, alignment: usize) -> Result<u64, Rejection> {
        if !alignment.is_power_of_two() || alignment > self.limits.max_alignment {
            return Err(Rejection::Alignment { requested: alignment, limit: self.limits.max_alignment });
        }
        let (requested, capacity) = (bytes.max(1), self.limits.device_heap_bytes);
        let mut state = self.state.lock();
        let available = capacity - state.heap.used();
        let offset = state.heap.allocate(requested, alignment);
        offset.map(|offset| HEAP_BASE + offset as u64).ok_or(Rejection::OutOfHeap { requested, available, capacity })
    }

    /// Gives an allocation back. An address that is not one is ignored, as the kernel does with a stale handle.
    pub fn heap_free(&self, address: u64) {
        let offset = address.checked_sub(HEAP_BASE).and_then(|offset| usize::try_from(offset).ok());
        self.state.lock().heap.free(offset.unwrap_or(usize::MAX));
    }

    /// Creates a hardware context on `columns` columns, without PDIs.
    ///
    /// # Errors
    /// [`Rejection::Limit`] for more contexts or columns than there are.
    pub fn create_context(&self, columns: usize) -> Result<ContextId, Rejection> {
        if columns == 0 || columns > self.arch.array.columns {
            return Err(Rejection::Limit { what: "columns", requested: columns, limit: self.arch.array.columns });
        }
        let mut state = self.state.lock();
        let requested = state.contexts.len() + 1;
        if requested > self.limits.contexts {
            return Err(Rejection::Limit { what: "contexts", requested, limit: self.limits.contexts });
        }
        let id = ContextId(state.next_context);
        state.next_context += 1;
        state.contexts.insert(id, Context { pdis: None });
        state.counts.contexts_created += 1;
        state.clock.create_context();
        Ok(id)
    }

    /// Gives a context its PDIs. Chains name them by their index in `pdis`. Possible once.
    ///
    /// # Errors
    /// [`Rejection::Limit`] for too many distinct PDIs, [`Rejection::AlreadyConfigured`], [`Rejection::UnknownContext`].
    pub fn configure_context(&self, context: ContextId, pdis: &[ContextPdi]) -> Result<(), Rejection> {
        let mut distinct: Vec<Digest> = pdis.iter().map(|pdi| pdi.digest).collect();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() > self.limits.pdis_per_context {
            let (requested, limit) = (distinct.len(), self.limits.pdis_per_context);
            return Err(Rejection::Limit { what: "PDIs per context", requested, limit });
        }
        let mut state = self.state.lock();
        let entry = state.contexts.get_mut(&context).ok_or(Rejection::UnknownContext(context.0))?;
        if entry.pdis.is_some() {
            return Err(Rejection::AlreadyConfigured(context.0));
        }
        entry.pdis = Some(pdis.to_vec());
        Ok(())
    }

    /// Destroys a context.
    ///
    /// # Errors
    /// [`Rejection::UnknownContext`].
    pub fn destroy_context(&self, context: ContextId) -> Result<(), Rejection> {
        let mut state = self.state.lock();
        state.contexts.remove(&context).ok_or(Rejection::UnknownContext(context.0))?;
        Ok(())
    }

    /// Accepts one chain for `context` and charges its time: a switch for each command whose PDI is not the one that is loaded, as
    /// another context's never is, the chain, its commands and the bytes they move.
    ///
    /// # Errors
    /// [`Rejection::EmptyChain`], [`Rejection::Limit`] (commands, bytes of the command buffer, arguments),
    /// [`Rejection::UnknownContext`], [`Rejection::UnknownPdi`]; nothing is charged then.
    pub fn submit_chain(&self, context: ContextId, chain: &[ChainCommand]) -> Result<(), Rejection> {
        let limit = self.limits.kernel_arguments;
        if let Some(command) = chain.iter().find(|command| command.arguments > limit) {
            return Err(Rejection::Limit { what: "kernel arguments", requested: command.arguments, limit });
        }
        let bytes = chain.iter().map(|command| chain_command_bytes(command.arguments)).sum();
        self.submit_encoded(context, chain, bytes).map(drop)
    }

    /// As [`SimulatedNpu::submit_chain`] for a chain whose commands somebody has encoded, into `buffer_bytes` of the chain's command
    /// buffer: that number counts, not the one that follows from the arguments, and any number of arguments is possible.
    /// Returns the nanoseconds that were charged.
    ///
    /// # Errors
    /// As [`SimulatedNpu::submit_chain`].
    pub fn submit_encoded(
        &self,
        context: ContextId,
        chain: &[ChainCommand],
        buffer_bytes: usize,
    ) -> Result<u64, Rejection> {
        let over = |what, requested, limit| Err(Rejection::Limit { what, requested, limit });
        match &self.limits {
            _ if chain.is_empty() => return Err(Rejection::EmptyChain),
            limits if chain.len() > limits.commands_per_chain => {
                return over("commands per chain", chain.len(), limits.commands_per_chain);
            }
            limits if buffer_bytes > limits.chain_buffer_bytes => {
                return over("bytes of a chain's command buffer", buffer_bytes, limits.chain_buffer_bytes);
            }
            _ => {}
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let before = state.clock.now_ns;
        let entry = state.contexts.get(&context).ok_or(Rejection::UnknownContext(context.0))?;
        let pdis = entry.pdis.as_deref().unwrap_or_default();
        if let Some(command) = chain.iter().find(|c| c.pdi >= pdis.len()) {
            return Err(Rejection::UnknownPdi { context: context.0, pdi: command.pdi, configured: pdis.len() });
        }
        state.counts.context_switches += u64::from(state.active.is_some_and(|(active, _)| active != context));
        for command in chain {
            let pdi = pdis[command.pdi];
            let loaded = state.active.replace((context, pdi.digest));
            // What is loaded first has nothing to switch from.
            if loaded.is_some_and(|loaded| loaded != (context, pdi.digest)) {
                state.clock.switch(pdi.descriptors);
            }
        }
        state.counts.chains += 1;
        state.counts.commands += chain.len() as u64;
        state.clock.run_chain(chain.len(), chain.iter().map(|c| c.bytes).sum());
        chain.iter().for_each(|command| state.clock.compute(command.busy_ns, command.bytes, command.operations));
        Ok(state.clock.now_ns - before)
    }

    /// Charges memory traffic outside the array, such as a copy.
    pub fn charge_bytes(&self, bytes: u64) {
        self.state.lock().clock.move_bytes(bytes);
    }

    /// Charges what a command that was accepted before has turned out to take: see [`ChainCommand::busy_ns`] and
    /// [`ChainCommand::operations`].
    pub fn charge_compute(&self, busy_ns: u64, bytes: u64, operations: u64) {
        self.state.lock().clock.compute(busy_ns, bytes, operations);
    }

    /// Charges time in which the array does nothing, in nanoseconds.
    pub fn charge_idle(&self, ns: u64) {
        self.state.lock().clock.pass(ns);
    }

    /// Charges the time until the watchdog gives up on a command.
    pub fn charge_watchdog(&self) {
        self.state.lock().clock.pass(WATCHDOG_NS);
    }
}

#[cfg(test)]
mod tests;
