//! An agent in plain memory, for the tests of everything above [`Agent`].
//!
//! It executes chains by a table of functions, one for each PDI, and is as strict as a device with its kernel driver is: what
//! is invalid is rejected and remembered, and [`CpuAgent::assert_clean`] fails the test for it. Freed memory is filled
//! with a pattern and not reused, so that a late write is found. The device's addresses are not those of the process, so that one
//! cannot be mistaken for the other. Each kind of call can be made to fail.

pub(crate) mod apart;
pub(crate) mod rig;

use crate::agent::{Agent, AgentError, AgentInfo, Allocation, Chain, ContextId, Packet, PdiRef};
use aie_device_memory::{Region, Span};
use aie_hal::MemoryPool;
use aie_hal::artifact::Digest;
use aie_hal::device::chain_command_bytes;
use aie_hal::format::instructions::InstructionStream;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Device address of a byte minus its address in this process.
const DEVICE_SHIFT: u64 = 1 << 44;
/// Granule of the device heap in bytes, and what one context takes of it.
const HEAP_GRANULE: usize = 32 << 10;
const CONTEXT_BYTES: usize = 4 * HEAP_GRANULE;
/// What heap memory holds that others have used, and what freed memory is filled with.
const USED: u8 = 0xa5;
const FREED: u8 = 0xdd;
/// The kernel driver's limits.
const PDIS: usize = 32;
const COMMANDS: usize = 64;
const CHAIN_BYTES: usize = 4096;

/// What a PDI computes: from copies of all arguments but the last, into the last, which holds what it held.
pub(crate) type Function = Arc<dyn Fn(&[Vec<u8>], &mut [u8]) + Send + Sync>;

/// A kind of call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    AllocateData,
    AllocateHeap,
    CreateContext,
    Submit,
}

/// A call that fails.
#[derive(Debug, Clone)]
struct Fault {
    error: AgentError,
    /// Commands of the chain that run anyway.
    ran: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) context: ContextId,
    pub(crate) commands: usize,
}

struct Memory {
    pool: MemoryPool,
    region: Arc<Region>,
}

impl Memory {
    fn new(pool: MemoryPool, length: usize) -> Self {
        let alignment = if pool == MemoryPool::Data { 4096 } else { HEAP_GRANULE };
        let memory = Self { pool, region: Arc::new(Region::zeroed(length, alignment).unwrap()) };
        if pool == MemoryPool::DeviceHeap {
            memory.all().writable().unwrap().fill(&[USED]);
        }
        memory
    }

    fn all(&self) -> Span<'_> {
        self.region.span(0, self.region.length()).unwrap()
    }

    fn device_address(&self) -> u64 {
        self.region.address() as u64 + DEVICE_SHIFT
    }

    /// Bytes of the heap in granules.
    fn heap_bytes(&self) -> usize {
        if self.pool == MemoryPool::DeviceHeap { self.region.length().next_multiple_of(HEAP_GRANULE) } else { 0 }
    }
}

/// A range of an allocation. Keeps the bytes, not the allocation.
#[derive(Clone)]
struct AllocationRange {
    region: Arc<Region>,
    start: usize,
    length: usize,
}

impl AllocationRange {
    fn read(&self) -> Vec<u8> {
        let mut content = vec![0; self.length];
        self.region.span(self.start, self.length).unwrap().read(&mut content);
        content
    }

    fn write(&self, content: &[u8]) {
        self.region.writable(self.start, content.len()).unwrap().write(content);
    }
}

#[derive(Default)]
struct State {
    functions: HashMap<Digest, Function>,
    /// By device address.
    memory: BTreeMap<u64, Memory>,
    freed: Vec<Memory>,
    /// The PDIs of each context, with what they held when it was created.
    contexts: BTreeMap<u64, Vec<(PdiRef, Digest)>>,
    next_context: u64,
    /// Contexts that others leave.
    contexts_left: usize,
    /// First bytes of the allocations that a chain in flight uses.
    in_flight: Vec<u64>,
    calls: BTreeMap<Call, u64>,
    faults: BTreeMap<(Call, u64), Fault>,
    submitted: Vec<Submitted>,
}

impl State {
    /// The range, when it is inside one allocation that exists.
    fn place(&self, address: u64, length: usize) -> Option<(u64, AllocationRange)> {
        let (first, memory) = self.memory.range(..=address).next_back()?;
        let offset = usize::try_from(address - first).ok()?;
        memory.region.span(offset, length)?;
        Some((*first, AllocationRange { region: Arc::clone(&memory.region), start: offset, length }))
    }

    fn heap_used(&self) -> usize {
        self.memory.values().map(Memory::heap_bytes).sum::<usize>() + self.contexts.len() * CONTEXT_BYTES
    }

    fn data_used(&self) -> usize {
        self.memory.values().filter(|m| m.pool == MemoryPool::Data).map(|m| m.region.length()).sum()
    }

    /// Counts a call; returns its fault.
    fn called(&mut self, call: Call) -> Option<Fault> {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        let key = (call, *count);
        self.faults.remove(&key)
    }
}

/// An agent in plain memory. See the module docs.
pub(crate) struct CpuAgent {
    info: AgentInfo,
    state: Mutex<State>,
    /// Whether a thread is in one of the calls that only one thread at a time may make.
    occupied: AtomicBool,
    rejected: Mutex<Vec<String>>,
}

impl Debug for CpuAgent {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuAgent").field("info", &self.info).finish_non_exhaustive()
    }
}

impl CpuAgent {
    pub(crate) fn new(change: impl FnOnce(&mut AgentInfo)) -> Arc<Self> {
        let mut info = AgentInfo {
            name: "aie2p".into(),
            library: PathBuf::from("/nowhere/libcpu.so"),
            runtime: "CPU".into(),
            streams_apart: false,
            data_bytes: 1 << 30,
            data_granule: 4096,
            heap_bytes: 64 << 20,
        };
        change(&mut info);
        let state = State { contexts_left: usize::MAX, ..State::default() };
        Arc::new(Self { info, state: Mutex::new(state), occupied: AtomicBool::new(false), rejected: Mutex::default() })
    }

    /// From now on PDIs with this digest compute `function`.
    pub(crate) fn teach(&self, digest: &Digest, function: Function) {
        self.state.lock().functions.insert(*digest, function);
    }

    /// Lets the `nth` call of a kind from now on (1 is the next) fail. Of a chain, `ran` commands have run then.
    pub(crate) fn fail(&self, call: Call, nth: u64, error: AgentError, ran: usize) {
        let mut state = self.state.lock();
        let at = state.calls.get(&call).copied().unwrap_or_default() + nth;
        state.faults.insert((call, at), Fault { error, ran });
    }

    /// Forgets the failures that have not come.
    pub(crate) fn forget_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Leaves only so many contexts to this process.
    pub(crate) fn leave_contexts(&self, contexts: usize) {
        self.state.lock().contexts_left = contexts;
    }

    /// Calls of a kind so far, failed ones included.
    pub(crate) fn calls(&self, call: Call) -> u64 {
        self.state.lock().calls.get(&call).copied().unwrap_or_default()
    }

    /// Puts `content` into the data memory that starts at `address` in this process; returns what was there.
    pub(crate) fn exchange(&self, address: usize, content: &[u8]) -> Vec<u8> {
        let state = self.state.lock();
        let memory = state.memory.values().find(|memory| memory.region.address() == address);
        let span = memory.expect("memory of this agent").all();
        let mut before = vec![0; span.length()];
        span.read(&mut before);
        span.writable().unwrap().write(content);
        before
    }

    /// The chains that were submitted, failed ones included.
    pub(crate) fn submitted(&self) -> Vec<Submitted> {
        self.state.lock().submitted.clone()
    }

    pub(crate) fn allocations(&self, pool: MemoryPool) -> usize {
        self.state.lock().memory.values().filter(|m| m.pool == pool).count()
    }

    /// Contexts that exist, with the number of their PDIs.
    pub(crate) fn contexts(&self) -> Vec<usize> {
        self.state.lock().contexts.values().map(Vec::len).collect()
    }

    /// What was rejected as invalid.
    pub(crate) fn rejected(&self) -> Vec<String> {
        self.rejected.lock().clone()
    }

    /// Nothing invalid was requested, everything was released, and nothing was written after that.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.rejected(), [""; 0]);
        let state = self.state.lock();
        let open: Vec<_> = state.memory.values().map(|m| (m.pool, m.region.length())).collect();
        assert_eq!((open, state.contexts.len()), (Vec::new(), 0), "allocations and contexts that are left open");
        let intact = |m: &Memory| m.region.bytes().unwrap().iter().all(|byte| byte.load(Ordering::Relaxed) == FREED);
        assert!(state.freed.iter().all(intact), "memory was written after it was freed");
        assert!(state.faults.is_empty(), "planned faults never happened: {:?}", state.faults);
    }

    fn reject(&self, what: String) -> AgentError {
        self.rejected.lock().push(what.clone());
        AgentError::failed(what)
    }

    /// Guards a call that only one thread at a time may make.
    fn occupy(&self, call: &str) -> Occupied<'_> {
        if self.occupied.swap(true, Ordering::AcqRel) {
            self.reject(format!("{call} while another thread is in a call of its kind"));
        }
        Occupied(self)
    }

    /// Looks at a packet; returns what it runs on what.
    fn packet(&self, state: &State, context: ContextId, chain: &Chain, packet: &Packet) -> Result<Step, String> {
        let pdis = state.contexts.get(&context.0).ok_or_else(|| format!("{context:?} does not exist"))?;
        let (_, digest) = pdis.get(packet.pdi_index).ok_or("a PDI index outside the context's list")?;
        let (_, pdi) = state.place(packet.pdi.address, packet.pdi.bytes).ok_or("a PDI that is not allocated")?;
        if Digest::of(&pdi.read()) != *digest {
            return Err("a PDI that is not the one at its index in the context".into());
        }
        let (stream, instructions) =
            state.place(packet.instructions, packet.instruction_bytes).ok_or("instructions that are not allocated")?;
        let instructions = instructions.read();
        let parsed = InstructionStream::parse(&instructions).map_err(|cause| format!("instructions: {cause}"))?;
        let arguments = chain.arguments_of(packet);
        if parsed.argument_count() != arguments.len() {
            return Err(format!("{} arguments for a kernel of {}", arguments.len(), parsed.argument_count()));
        }
        let mut allocations = vec![stream];
        let mut places = Vec::new();
        for Range { start: address, end } in arguments {
            let found = state.place(*address, (end - address) as usize);
            let (allocation, place) = found.ok_or_else(|| format!("an argument at {address:#x} is not allocated"))?;
            allocations.push(allocation);
            places.push(place);
        }
        let function = state.functions.get(digest).cloned().ok_or("a PDI that was never taught")?;
        Ok(Step { function, places, allocations })
    }

    fn steps(&self, state: &State, context: ContextId, chain: &Chain) -> Result<Vec<Step>, String> {
        let bytes: usize = chain.packets.iter().map(|packet| chain_command_bytes(packet.arguments.1)).sum();
        if !(1..=COMMANDS).contains(&chain.packets.len()) || bytes > CHAIN_BYTES {
            return Err(format!("a chain of {} commands with {bytes} bytes", chain.packets.len()));
        }
        let mut arguments = 0;
        for packet in &chain.packets {
            if packet.arguments.0 != arguments {
                return Err("arguments that are not in the order of the packets".into());
            }
            arguments += packet.arguments.1;
        }
        if arguments != chain.arguments.len() {
            return Err(format!("{} arguments for packets with {arguments}", chain.arguments.len()));
        }
        chain.packets.iter().map(|packet| self.packet(state, context, chain, packet)).collect()
    }
}

/// A packet that was looked at.
struct Step {
    function: Function,
    places: Vec<AllocationRange>,
    /// First bytes of the allocations it uses.
    allocations: Vec<u64>,
}

struct Occupied<'a>(&'a CpuAgent);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.0.occupied.store(false, Ordering::Release);
    }
}

impl Agent for CpuAgent {
    fn info(&self) -> &AgentInfo {
        &self.info
    }

    fn contexts_created(&self) -> u64 {
        // They are numbered.
        self.state.lock().next_context
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        let mut state = self.state.lock();
        let call = if pool == MemoryPool::Data { Call::AllocateData } else { Call::AllocateHeap };
        if let Some(fault) = state.called(call) {
            return Err(fault.error);
        }
        if bytes == 0 {
            return Err(self.reject("an allocation of 0 bytes".into()));
        }
        let (used, limit, wanted) = match pool {
            MemoryPool::Data => (state.data_used(), self.info.data_bytes as usize, bytes),
            MemoryPool::DeviceHeap => (state.heap_used(), self.info.heap_bytes, bytes.next_multiple_of(HEAP_GRANULE)),
        };
        if used + wanted > limit {
            return Err(AgentError::OutOfMemory(format!("{bytes} bytes of {pool:?}: {used} of {limit} are used")));
        }
        let memory = Memory::new(pool, bytes);
        let (host, device_address) = (NonNull::from(memory.region.bytes().unwrap()).cast(), memory.device_address());
        state.memory.insert(device_address, memory);
        Ok(Allocation { pool, host, length: bytes, device_address })
    }

    fn free(&self, allocation: Allocation) {
        let mut state = self.state.lock();
        let address = allocation.device_address;
        if state.contexts.values().flatten().any(|(pdi, _)| pdi.address == address) {
            self.reject("the memory of a PDI is freed while a context holds it".into());
        }
        if state.in_flight.contains(&address) {
            self.reject("memory is freed while a chain uses it".into());
        }
        match state.memory.remove(&address) {
            Some(memory) if (memory.pool, memory.region.length()) == (allocation.pool, allocation.length) => {
                memory.all().writable().unwrap().fill(&[FREED]);
                state.freed.push(memory);
            }
            Some(_) => drop(self.reject("memory is freed with another length or pool than it was allocated".into())),
            None => drop(self.reject("memory is freed twice, or was never allocated".into())),
        }
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        let _occupied = self.occupy("create_context");
        let mut state = self.state.lock();
        if let Some(fault) = state.called(Call::CreateContext) {
            return Err(fault.error);
        }
        if !(1..=PDIS).contains(&pdis.len()) {
            return Err(self.reject(format!("a context with {} PDIs", pdis.len())));
        }
        let mut held: Vec<(PdiRef, Digest)> = Vec::new();
        for pdi in pdis {
            let found = state.place(pdi.address, pdi.bytes);
            let Some((_, place)) = found.filter(|(first, _)| *first == pdi.address) else {
                return Err(self.reject("a context with a PDI that is not allocated".into()));
            };
            let digest = Digest::of(&place.read());
            if held.iter().any(|(_, other)| *other == digest) {
                return Err(self.reject("a context with the same PDI twice".into()));
            }
            held.push((*pdi, digest));
        }
        if state.contexts.len() >= state.contexts_left {
            return Err(AgentError::ContextsExhausted { reason: "others hold the rest".into(), remedy: None });
        }
        if state.heap_used() + CONTEXT_BYTES > self.info.heap_bytes {
            return Err(AgentError::OutOfMemory("no heap for the command buffers of a context".into()));
        }
        let context = state.next_context;
        state.next_context += 1;
        state.contexts.insert(context, held);
        Ok(ContextId(context))
    }

    fn destroy_context(&self, context: ContextId) {
        let _occupied = self.occupy("destroy_context");
        if self.state.lock().contexts.remove(&context.0).is_none() {
            self.reject(format!("{context:?} is destroyed and does not exist"));
        }
    }

    fn start(&self, context: ContextId, chain: &Chain) -> Result<u64, AgentError> {
        let _occupied = self.occupy("submit");
        let (steps, fault) = {
            let mut state = self.state.lock();
            let fault = state.called(Call::Submit);
            state.submitted.push(Submitted { context, commands: chain.packets.len() });
            let steps = self.steps(&state, context, chain).map_err(|what| self.reject(what))?;
            state.in_flight = steps.iter().flat_map(|step| step.allocations.iter().copied()).collect();
            (steps, fault)
        };
        // Without the lock: memory functions may be called meanwhile.
        for step in steps.iter().take(fault.as_ref().map_or(usize::MAX, |fault| fault.ran)) {
            let mut arguments: Vec<Vec<u8>> = step.places.iter().map(AllocationRange::read).collect();
            if let (Some(mut output), Some(place)) = (arguments.pop(), step.places.last()) {
                (step.function)(&arguments, &mut output);
                place.write(&output);
            }
        }
        self.state.lock().in_flight.clear();
        fault.map_or(Ok(0), |fault| Err(fault.error))
    }
}

#[cfg(test)]
mod tests;
