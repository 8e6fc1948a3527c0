//! Agents of ROCR 7.0 to 7.2: ERT packets, through the [`gate`](crate::gate).
//!
//! One ROCR queue serves the agent for the whole session, whatever the number of HAL queues and contexts: a second one would be
//! fatal (see the gate). ROCR processes 64 packets of a queue and not one more, because it does not wrap its ring. It does
//! all its work in the doorbell, so when the doorbell returns the queue is empty, and both indices are set back to 0: the
//! write index by HSA's function, the read index in AMD's public queue structure (`amd_hsa_queue.h`).
//!
//! Contexts are made on ROCR's own descriptor, when they are asked for, and the gate puts commands into them.

mod data;
mod packets;
mod problems;
mod trial;

use crate::agent::{
    Agent, AgentCounts, AgentError, AgentInfo, Allocation, Caches, Chain, ContextId, CpuCaches, PdiRef,
};
use crate::arena::Arena;
use crate::at_exit::AT_EXIT_LIMIT;
use crate::gate::{CommandBuffers, Completion, Gate, HardwareContext, Way};
use crate::session::{Discovered, Session};
use aie_hal::MemoryPool;
use data::DataBuffers;
use hsa_sys::*;
use packets::{PACKETS, PAYLOAD_BYTES, PacketQueue};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::fmt::{Debug, Formatter};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// PDIs that the mask of a command can name.
const COMPUTE_UNITS: usize = 32;
/// Addresses reserved for data, as a multiple of the pool: buffers of different sizes come and go.
const ARENA_FACTOR: usize = 4;

/// An agent of ROCR 7.0 to 7.2.
pub struct ErtAgent {
    info: AgentInfo,
    session: Arc<Session>,
    discovered: Discovered,
    gate: &'static Gate,
    arena: Arena,
    limit: Duration,
    /// Also the lock for all calls into ROCR's XDNA driver, whose tables have none.
    ring: Mutex<Ring>,
    lost: OnceLock<String>,
    contexts_created: AtomicU64,
    doorbells: AtomicU64,
    allocations: AtomicU64,
}

/// What one doorbell needs, and what a thread at a time may use.
struct Ring {
    packets: PacketQueue,
    /// An instruction stream for the rehearsal.
    imagined_instructions: NonNull<c_void>,
    buffers: CommandBuffers,
    tiles: u32,
    contexts: HashMap<ContextId, HardwareContext>,
    /// How the end of a chain is waited for.
    way: Way,
    next_context: u64,
    /// Handles of the buffer objects of the device heap, by address.
    heap: BTreeMap<u64, u32>,
    /// Data buffers, which are in the arena.
    data: DataBuffers,
    /// Nothing is left but perhaps data memory.
    closed: bool,
}

// SAFETY: the pointers are to ROCR's queue and to memory of its pools, which belong to no thread.
unsafe impl Send for Ring {}

impl Debug for ErtAgent {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErtAgent").field("info", &self.info).field("lost", &self.lost.get()).finish_non_exhaustive()
    }
}

impl ErtAgent {
    /// Opens an agent of `session`. `columns`: those of its generation's arch file; the kernel driver may report more, and then
    /// has one without a way to memory (npu1 has five, and four are for contexts). `limit` is how long one doorbell may take.
    ///
    /// Ends with a rehearsal, a doorbell that reaches no device, in which everything this driver relies on is looked at, and with
    /// a context, which shows how this kernel lets one wait.
    ///
    /// # Errors
    /// [`AgentError::Unsupported`] when this build of ROCR is not as known, and for a kernel that has no way to wait for a command;
    /// [`AgentError::ContextsExhausted`] when another program has all of the NPU; [`AgentError::OutOfMemory`].
    pub fn open(
        session: Arc<Session>,
        discovered: Discovered,
        columns: Option<usize>,
        limit: Duration,
    ) -> Result<Self, AgentError> {
        let library = session.library().display().to_string();
        let unsupported = |reason: String| {
            AgentError::Unsupported(format!(
                "{library} ({}): {reason}; this driver does not know how to use this build of ROCR safely; use Debian's \
                 libhsa-runtime64-1 7.2, AMD's ROCm 7.2, or a ROCR with kernel dispatch packets",
                session.version()
            ))
        };
        if discovered.queue_packets as usize != PACKETS {
            return Err(unsupported(format!("queues have {} packets, expected {PACKETS}", discovered.queue_packets)));
        }
        let gate = Gate::install(session.api()).map_err(|cause| unsupported(cause.to_string()))?;
        let info = AgentInfo {
            name: discovered.name.clone(),
            library: session.library().to_owned(),
            runtime: session.version().to_string(),
            interface: Some(session.interface()),
            data_bytes: discovered.data_bytes,
            data_granule: discovered.data_granule,
            heap_bytes: discovered.heap_bytes,
        };
        let data_bytes = usize::try_from(discovered.data_bytes).unwrap_or(usize::MAX / ARENA_FACTOR);
        let arena =
            Arena::reserve(data_bytes.saturating_mul(ARENA_FACTOR), data_bytes.min(1 << 30)).map_err(|cause| {
                AgentError::OutOfMemory(format!("addresses for data buffers: {cause} (see `ulimit -v`)"))
            })?;
        let api = session.api();
        let allocate = |pool, bytes: usize| {
            let mut address: *mut c_void = std::ptr::null_mut();
            // SAFETY: the pool is the agent's, and `address` a place for one pointer.
            let status = unsafe { (api.hsa_amd_memory_pool_allocate)(pool, bytes, 0, &raw mut address) };
            session.check("hsa_amd_memory_pool_allocate", status)?;
            NonNull::new(address).ok_or_else(|| unsupported("an allocation without an address".into()))
        };
        // The first of these is seen by the gate, which needs ROCR's descriptor.
        let payloads = allocate(discovered.kernarg, PACKETS * PAYLOAD_BYTES)?;
        let free = |memory: NonNull<c_void>| {
            // SAFETY: it was allocated just now and nobody has used it.
            let status = unsafe { (api.hsa_amd_memory_pool_free)(memory.as_ptr()) };
            if let Err(cause) = session.check("hsa_amd_memory_pool_free", status) {
                tracing::debug!("{cause}");
            }
        };
        let imagined_pdi = gate
            .imagine(|| allocate(discovered.heap, 4096).map_err(|cause| cause.to_string()), free)
            .map_err(unsupported)?;
        let imagined_instructions = allocate(discovered.heap, 4096)?;
        let mut queue: *mut hsa_queue_t = std::ptr::null_mut();
        // SAFETY: the agent is of this session, and `queue` a place for one pointer.
        let status = unsafe {
            let (packets, kind) = (discovered.queue_packets, HSA_QUEUE_TYPE_SINGLE);
            (api.hsa_queue_create)(discovered.agent, packets, kind, None, std::ptr::null_mut(), 0, 0, &raw mut queue)
        };
        session.check("hsa_queue_create", status)?;
        let queue = NonNull::new(queue).ok_or_else(|| unsupported("a queue without an address".into()))?;
        let ring = Ring {
            packets: PacketQueue { queue, payloads: payloads.cast(), imagined_pdi },
            imagined_instructions,
            buffers: CommandBuffers::default(),
            tiles: 0,
            contexts: HashMap::new(),
            way: Way::WaitCmd,
            next_context: 0,
            heap: BTreeMap::new(),
            data: DataBuffers::default(),
            closed: false,
        };
        let agent = Self {
            info,
            discovered,
            gate,
            arena,
            limit,
            ring: Mutex::new(ring),
            lost: OnceLock::new(),
            contexts_created: AtomicU64::new(0),
            doorbells: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            session,
        };
        // From here on an error gives back what there is.
        let tiles = gate.core_tiles(columns).map_err(|cause| AgentError::Lost(format!("GET_INFO: {cause}")))?;
        agent.lock()?.tiles = tiles;
        agent.place_last_buffer()?;
        agent.rehearse().map_err(|reason| {
            AgentError::Unsupported(format!(
                "{} ({}): {reason}; this driver does not know how to use this build of ROCR safely",
                agent.info.library.display(),
                agent.info.runtime
            ))
        })?;
        agent.find_way()?;
        Ok(agent)
    }

    /// The lock, for no longer than a doorbell can take.
    fn lock(&self) -> Result<MutexGuard<'_, Ring>, AgentError> {
        // Nobody waits again for a runtime that was lost because it does not return.
        let patience = if self.lost.get().is_some() { Duration::ZERO } else { self.limit.saturating_mul(2) };
        let ring = self.ring.try_lock_for(patience);
        ring.ok_or_else(|| self.lose(format!("a call into ROCR has not returned for {patience:?}")))
    }

    /// The buffer that lies above all others in the arena.
    fn place_last_buffer(&self) -> Result<(), AgentError> {
        let mut ring = self.lock()?;
        let place =
            self.arena.take_last().ok_or_else(|| AgentError::OutOfMemory("no addresses for a last buffer".into()))?;
        self.map_data(&mut ring, place, 4096).map(drop)
    }

    /// Allocates `bytes` of data memory at `place`.
    fn map_data(
        &self,
        ring: &mut MutexGuard<'_, Ring>,
        place: std::ops::Range<usize>,
        bytes: usize,
    ) -> Result<NonNull<u8>, AgentError> {
        let api = self.session.api();
        let mut address: *mut c_void = std::ptr::null_mut();
        let (status, observed) = self.gate.observe(Some(place.clone()), || {
            // SAFETY: the pool is the agent's, and `address` a place for one pointer. The place is the arena's and free.
            unsafe { (api.hsa_amd_memory_pool_allocate)(self.discovered.data, bytes, 0, &raw mut address) }
        });
        let allocated = self.session.check(&format!("{bytes} bytes of data memory"), status);
        if allocated.is_err() {
            // SAFETY: nothing came to lie there, or nothing refers to it.
            unsafe { self.arena.give_back(place.clone()) };
        }
        allocated?;
        if let Some(at) = NonNull::new(address).filter(|at| at.addr().get() == place.start) {
            let device = self.gate.device_address(observed, at);
            // Known also without an address for the device: it is given back like any other then.
            ring.data.insert(place, *device.as_ref().unwrap_or(&0));
            return device.map(|_| at.cast()).map_err(|cause| {
                // SAFETY: it was allocated just now and nobody has used it.
                unsafe { self.give_back(ring, at.cast()) };
                self.no_address(bytes, &cause)
            });
        }
        // It stays where it is and is never used; its place stays taken, because it may be mapped there all the same.
        Err(AgentError::Unsupported(format!(
            "{}: memory came to lie at {address:p}, not where it was mapped",
            self.info.library.display()
        )))
    }

    /// Gives memory back to ROCR, and its addresses to the arena when it is data.
    ///
    /// # Safety
    /// It begins at `host`, was allocated by this agent, and nobody uses it any more.
    unsafe fn give_back(&self, ring: &mut Ring, host: NonNull<u8>) {
        let place = ring.data.remove(host.addr().get());
        let (status, _) = self.gate.observe(place.clone(), || {
            // SAFETY: as the caller promises.
            unsafe { (self.session.api().hsa_amd_memory_pool_free)(host.as_ptr().cast()) }
        });
        if let Err(cause) = self.session.check("hsa_amd_memory_pool_free", status) {
            // ROCR still has it, so its addresses stay taken.
            tracing::warn!("{cause}");
        } else if let Some(place) = place {
            // SAFETY: the range came from the arena, and the owner has given up what was there.
            unsafe { self.arena.give_back(place) };
        }
    }

    /// Sends two packets through ROCR that stop at the gate, and looks at what ROCR made of them.
    fn rehearse(&self) -> Result<(), String> {
        let mut ring = self.lock().map_err(|cause| cause.to_string())?;
        let ring = &mut *ring;
        let text = |cause: io::Error| format!("command buffers: {cause}");
        self.gate.reserve(&mut ring.buffers, 2).map_err(text)?;
        let instructions = ring.imagined_instructions.addr().get() as u64;
        let (packets, api) = (&ring.packets, self.session.api());
        let completions = [0, 1].map(|slot| packets.write(slot, instructions, instructions, 16, &[], &ring.data));
        self.gate
            .ring(&mut ring.buffers, None, completions.to_vec(), self.limit, || packets.ring(api, 2))
            .map_err(|problem| format!("in a rehearsal of a dispatch: {problem}"))?;
        let read = packets.read_index(api);
        if read != 2 {
            return Err(format!("after a doorbell for 2 packets the read index is {read}"));
        }
        packets.rewind(api);
        let read = packets.read_index(api);
        match read {
            0 => Ok(()),
            _ => {
                Err(format!("the read index is not where `amd_hsa_queue.h` has it: it is {read} after setting it to 0"))
            }
        }
    }
}

impl Agent for ErtAgent {
    fn info(&self) -> &AgentInfo {
        &self.info
    }

    fn counts(&self) -> AgentCounts {
        AgentCounts {
            doorbells: self.doorbells.load(Ordering::Relaxed),
            contexts_created: self.contexts_created.load(Ordering::Relaxed),
            allocations: self.allocations.load(Ordering::Relaxed),
        }
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        self.alive()?;
        let mut ring = self.lock()?;
        let host = match pool {
            MemoryPool::Data => {
                let granule = self.info.data_granule.max(1);
                let place = bytes.checked_next_multiple_of(granule).and_then(|bytes| self.arena.take(bytes));
                let place =
                    place.ok_or_else(|| AgentError::OutOfMemory(format!("no addresses for {bytes} bytes of data")))?;
                self.map_data(&mut ring, place, bytes)?
            }
            MemoryPool::DeviceHeap => {
                let api = self.session.api();
                let mut address: *mut c_void = std::ptr::null_mut();
                let (status, observed) = self.gate.observe(None, || {
                    // SAFETY: the pool is the agent's, and `address` a place for one pointer.
                    unsafe { (api.hsa_amd_memory_pool_allocate)(self.discovered.heap, bytes, 0, &raw mut address) }
                });
                self.session.check(&format!("{bytes} bytes of the device heap"), status)?;
                let handle = observed.buffer.filter(|_| !address.is_null());
                let handle = handle.ok_or_else(|| AgentError::Unsupported("an allocation without a buffer".into()))?;
                ring.heap.insert(address.addr() as u64, handle);
                NonNull::new(address.cast()).ok_or_else(|| AgentError::OutOfMemory("device heap".into()))?
            }
        };
        self.allocations.fetch_add(1, Ordering::Relaxed);
        // ROCR works with the addresses of the process; what the device is told is found when a command is made.
        let device_address = host.as_ptr().expose_provenance() as u64;
        Ok(Allocation { pool, host, length: bytes, device_address })
    }

    fn free(&self, allocation: Allocation) {
        let Ok(mut ring) = self.lock() else {
            tracing::warn!("{} bytes are not given back to a runtime that does not answer", allocation.length);
            return;
        };
        // What a device may still work on stays.
        if ring.closed || (self.lost.get().is_some() && ring.buffers.any_held()) {
            return;
        }
        ring.heap.remove(&allocation.device_address);
        // SAFETY: the allocation came from this function's counterpart and is given up by its owner.
        unsafe { self.give_back(&mut ring, allocation.host) };
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        self.alive()?;
        let mut ring = self.lock()?;
        let handles = pdis.iter().map(|pdi| ring.heap.get(&pdi.address).copied()).collect::<Option<Vec<_>>>();
        let handles = handles.ok_or_else(|| AgentError::Failed {
            command: None,
            reason: "a PDI that is not in the device heap of this agent".into(),
        })?;
        let made = self.gate.create_context(ring.tiles, &handles);
        let made = made.map_err(|(call, cause)| self.no_context(call, &cause, pdis.len(), ring.contexts.len()))?;
        let context = ContextId(ring.next_context);
        ring.next_context += 1;
        ring.contexts.insert(context, made);
        self.contexts_created.fetch_add(1, Ordering::Relaxed);
        Ok(context)
    }

    fn destroy_context(&self, context: ContextId) {
        let Ok(mut ring) = self.lock() else { return };
        let ring = &mut *ring;
        if let Some(context) = ring.contexts.remove(&context)
            && let Err(cause) = self.gate.destroy_context(&mut ring.buffers, context)
        {
            match ring.buffers.is_held(context) {
                true => {
                    drop(self.lose(format!("a context with a chain that does not end cannot be destroyed ({cause})")))
                }
                false => tracing::warn!("DESTROY_HWCTX: {cause}"),
            }
        }
    }

    fn submit(&self, context: ContextId, chain: &Chain) -> Result<(), AgentError> {
        self.alive()?;
        let mut ring = self.lock()?;
        let ring = &mut *ring;
        let Some(context) = ring.contexts.get(&context).copied() else {
            return Err(AgentError::Failed { command: None, reason: format!("context {} does not exist", context.0) });
        };
        if chain.packets.is_empty() || chain.packets.len() > PACKETS {
            let reason = format!("a chain of {} packets; 1 to {PACKETS} are possible", chain.packets.len());
            return Err(AgentError::Failed { command: None, reason });
        }
        if let Some(packet) = chain.packets.iter().find(|packet| packet.pdi_index >= COMPUTE_UNITS) {
            let reason = format!("PDI number {} of a context; {COMPUTE_UNITS} are possible", packet.pdi_index);
            return Err(AgentError::Failed { command: None, reason });
        }
        if let Err(cause) = self.gate.reserve(&mut ring.buffers, chain.packets.len()) {
            let reason = format!("command buffers for {} packets: {cause}", chain.packets.len());
            return Err(match self.is_gone(cause.raw_os_error().unwrap_or_default()) {
                true => self.lose(reason),
                false => AgentError::OutOfMemory(reason),
            });
        }
        let (packets, api, count) = (&ring.packets, self.session.api(), chain.packets.len());
        let mut completions = Vec::with_capacity(count);
        for (slot, packet) in chain.packets.iter().enumerate() {
            let instructions = packet.instructions;
            let buffer = ring.heap.range(..=instructions).next_back().map_or(instructions, |(start, _)| *start);
            let words = (packet.instruction_bytes / 4) as u32;
            let written = packets.write(slot, buffer, instructions, words, chain.arguments_of(packet), &ring.data);
            completions.push(Completion { unit: packet.pdi_index as u8, ..written });
        }
        let bell = || packets.ring(api, count);
        let outcome = self.gate.ring(&mut ring.buffers, Some((context, ring.way)), completions, self.limit, bell);
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        packets.rewind(api);
        outcome.map_err(|problem| self.failure(problem))
    }

    fn caches(&self) -> Option<&dyn Caches> {
        Some(&CpuCaches)
    }

    fn close(&self) {
        // A call that is under way has the lock, and what it uses stays.
        if let Some(mut ring) = self.ring.try_lock_for(AT_EXIT_LIMIT)
            && !ring.closed
        {
            self.lost.get_or_init(|| "the process is ending".to_owned());
            self.end(&mut ring, false);
        }
    }
}

impl ErtAgent {
    /// Gives back everything but data memory, which it gives back when `data` says so, or when nobody has any.
    fn end(&self, ring: &mut Ring, data: bool) {
        for (_, context) in ring.contexts.drain() {
            if let Err(cause) = self.gate.destroy_context(&mut ring.buffers, context) {
                tracing::debug!("DESTROY_HWCTX: {cause}");
            }
        }
        self.gate.release(&mut ring.buffers);
        if ring.buffers.any_held() {
            // A context could not be destroyed, and the device may still work in it.
            ring.closed = true;
            return;
        }
        let api = self.session.api();
        // SAFETY: the queue is this agent's, and nobody uses it any more.
        let status = unsafe { (api.hsa_queue_destroy)(ring.packets.queue.as_ptr()) };
        if let Err(cause) = self.session.check("hsa_queue_destroy", status) {
            tracing::debug!("{cause}");
        }
        let free = |address: *mut c_void| {
            // SAFETY: the memory is of this agent's pools and was not given back before.
            let status = unsafe { (api.hsa_amd_memory_pool_free)(address) };
            if let Err(cause) = self.session.check("hsa_amd_memory_pool_free", status) {
                tracing::debug!("{cause}");
            }
        };
        let ((), freed) = self.gate.observe(None, || free(ring.packets.payloads.as_ptr().cast()));
        if !freed.unmapped {
            // ROCR 7.2.4 closes the buffer and leaves its mapping.
            // SAFETY: the memory was this agent's, and nobody has it any more.
            unsafe { libc::munmap(ring.packets.payloads.as_ptr().cast(), PACKETS * PAYLOAD_BYTES) };
        }
        free(ring.packets.imagined_pdi.as_ptr());
        free(ring.imagined_instructions.as_ptr());
        // Nobody reads the heap but the device.
        for (address, _) in std::mem::take(&mut ring.heap) {
            free(std::ptr::with_exposed_provenance_mut(address as usize));
        }
        // One is the last buffer of the arena.
        if data || ring.data.len() <= 1 {
            for place in ring.data.drain() {
                // With its place, or the addresses would be anybody's until they are reserved again.
                self.gate.observe(Some(place.clone()), || free(std::ptr::with_exposed_provenance_mut(place.start)));
                // SAFETY: the range came from the arena, and nobody has the memory.
                unsafe { self.arena.give_back(place) };
            }
        }
        ring.closed = true;
    }
}

impl Drop for ErtAgent {
    fn drop(&mut self) {
        if let Ok(mut ring) = self.lock()
            && !ring.closed
        {
            self.end(&mut ring, true);
        }
        self.gate.forget_descriptor();
    }
}
