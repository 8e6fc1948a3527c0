//! Agents of ROCR 7.0 to 7.2: ERT packets, through the [ioctl interposer](crate::ioctl_interposer).
//!
//! One ROCR queue serves the agent for the whole session, whatever the number of HAL queues and contexts: a second one would be
//! fatal (see the interposer). ROCR processes 64 packets of a queue and not one more, because it does not wrap its ring. It does
//! all its work in the doorbell, so when the doorbell returns the queue is empty, and both indices are set back to 0: the
//! write index by HSA's function, the read index in AMD's public queue structure (`amd_hsa_queue.h`).
//!
//! Contexts are created on ROCR's own descriptor, on request, and the interposer puts commands into them.

mod data_memory;
mod packet_queue;

use crate::ioctl_interposer::{CommandBuffers, Interposer};
use crate::session::{Discovered, Session};
use aie_device_memory::Region;
use aie_driver_xdna::accel::bo::device_address_of;
use aie_driver_xdna::accel::call_error::CallError;
use aie_driver_xdna::accel::completion::WaitMethod;
use aie_driver_xdna::accel::context::HardwareContext;
use aie_driver_xdna::accel::device::AccelDevice;
use aie_driver_xdna::accel::probe::{NopKernel, PROBE_LIMIT, Probed, find_wait_method, nop_packet};
use aie_driver_xdna::agent::{
    AT_EXIT_LIMIT, Agent, AgentError, AgentInfo, AgentStatus, Allocation, Caches, Chain, ContextId, CpuCaches, Packet,
    PdiRef,
};
use aie_hal::error::Remedy;
use aie_hal::format::instructions::Header;
use aie_hal::{Arch, MemoryPool};
use data_memory::DataMemory;
use hsa_sys::*;
use packet_queue::{PACKETS, PAYLOAD_BYTES, PacketQueue, device_address};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Addresses reserved for data, as a multiple of the pool: buffers of different sizes come and go.
const ARENA_FACTOR: usize = 4;

/// An agent of ROCR 7.0 to 7.2.
pub struct ErtAgent {
    accel: AccelDevice,
    session: Arc<Session>,
    discovered: Discovered,
    interposer: &'static Interposer,
    /// What streams for it start with.
    header: Header,
    /// Also the lock for all calls into ROCR's XDNA driver, whose tables have none.
    ring: Mutex<Ring>,
}

/// What one doorbell needs, and what a thread at a time may use.
struct Ring {
    packets: PacketQueue,
    /// An instruction stream for the trial dispatch.
    placeholder_instructions: NonNull<c_void>,
    buffers: CommandBuffers,
    contexts: HashMap<ContextId, HardwareContext>,
    wait_method: WaitMethod,
    next_context: u64,
    /// Handles of the buffer objects of the device heap, by address.
    heap: BTreeMap<u64, u32>,
    data: DataMemory,
    /// Nothing is left but perhaps data memory.
    closed: bool,
}

// SAFETY: the pointers are to ROCR's queue and to memory of its pools, which belong to no thread.
unsafe impl Send for Ring {}

impl Debug for ErtAgent {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErtAgent").field("accel", &self.accel).finish_non_exhaustive()
    }
}

impl ErtAgent {
    /// Opens an agent of `session`, of generation `arch`. It has the columns of the arch file; the kernel driver may report more, and
    /// then has one without a way to memory (npu1 has five, and four are for contexts). `limit` is how long one doorbell may take.
    ///
    /// Ends with a trial dispatch, a doorbell that reaches no device, in which everything this driver relies on is checked, and
    /// with a context, which shows how this kernel lets one wait.
    ///
    /// # Errors
    /// [`AgentError::Unsupported`] when this build of ROCR is not as known; [`AgentError::Unusable`] for a kernel that has no way to wait
    /// for a command, and without addresses for data buffers; [`AgentError::ContextsExhausted`] when another program has all of the NPU;
    /// [`AgentError::OutOfMemory`].
    pub fn open(
        session: Arc<Session>,
        discovered: Discovered,
        arch: &Arch,
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
        let interposer = Interposer::install(session.api()).map_err(|cause| unsupported(cause.to_string()))?;
        let data_bytes = usize::try_from(discovered.info.data_bytes).unwrap_or(usize::MAX / ARENA_FACTOR);
        let data =
            DataMemory::reserve(data_bytes.saturating_mul(ARENA_FACTOR), data_bytes.min(1 << 30)).map_err(|cause| {
                let reason = format!("addresses for data buffers: {cause} (see `ulimit -v`)");
                AgentError::Unusable { reason, remedy: Remedy::AddressSpace }
            })?;
        // The first of these is seen by the interposer, which needs ROCR's descriptor.
        let payloads = session.allocate(discovered.kernarg, PACKETS * PAYLOAD_BYTES)?;
        let free = |memory: NonNull<c_void>| {
            // SAFETY: it was allocated just now and is unused.
            if let Err(cause) = unsafe { session.free(memory.as_ptr()) } {
                tracing::debug!("{cause}");
            }
        };
        let placeholder_pdi = interposer
            .allocate_placeholder(|| session.allocate(discovered.heap, 4096), free)
            .map_err(|cause| unsupported(cause.to_string()))?;
        let placeholder_instructions = session.allocate(discovered.heap, 4096)?;
        let api = session.api();
        let mut queue: *mut hsa_queue_t = std::ptr::null_mut();
        // SAFETY: the agent is of this session, and `queue` a place for one pointer.
        let status = unsafe {
            let (packets, kind) = (discovered.queue_packets, HSA_QUEUE_TYPE_SINGLE);
            (api.hsa_queue_create)(discovered.agent, packets, kind, None, std::ptr::null_mut(), 0, 0, &raw mut queue)
        };
        session.check("hsa_queue_create", status)?;
        let queue = NonNull::new(queue).ok_or_else(|| unsupported("a queue without an address".into()))?;
        let node = Arc::new(interposer.node());
        let ring = Ring {
            packets: PacketQueue { queue, payloads: payloads.cast(), placeholder_pdi },
            placeholder_instructions,
            buffers: CommandBuffers::new(Arc::clone(&node)),
            contexts: HashMap::new(),
            wait_method: WaitMethod::WaitCmd,
            next_context: 0,
            heap: BTreeMap::new(),
            data,
            closed: false,
        };
        let accel = AccelDevice { node, status: AgentStatus::new(discovered.info.clone()), tiles: 0, limit };
        let header = arch.stream_header(1);
        let mut agent = Self { accel, discovered, interposer, header, ring: Mutex::new(ring), session };
        // From here on an error releases everything.
        let tiles = agent.accel.node.core_tiles(arch.array.columns);
        agent.accel.tiles = tiles.map_err(|cause| AgentError::Lost(cause.to_string()))?;
        agent.place_last_buffer()?;
        agent.rehearse().map_err(|reason| {
            AgentError::Unsupported(format!(
                "{} ({}): {reason}; this driver does not know how to use this build of ROCR safely",
                agent.info().library.display(),
                agent.info().runtime
            ))
        })?;
        agent.probe_wait_method()?;
        Ok(agent)
    }

    /// The lock, for no longer than a doorbell can take.
    fn lock(&self) -> Result<MutexGuard<'_, Ring>, AgentError> {
        // No one waits again for a runtime that was lost because it does not return.
        let status = &self.accel.status;
        if status.is_inherited() {
            status.alive()?;
        }
        let patience = if status.is_lost() { Duration::ZERO } else { self.accel.limit.saturating_mul(2) };
        let ring = self.ring.try_lock_for(patience);
        ring.ok_or_else(|| status.lose(format!("a call into ROCR has not returned for {patience:?}")))
    }

    /// The data buffer that lies above all others.
    fn place_last_buffer(&self) -> Result<(), AgentError> {
        let mut ring = self.lock()?;
        let place = ring.data.last();
        self.map_data(&mut ring, place, 4096).map(drop)
    }

    /// Allocates `bytes` of data memory at `place`.
    fn map_data(
        &self,
        ring: &mut MutexGuard<'_, Ring>,
        place: Range<usize>,
        bytes: usize,
    ) -> Result<NonNull<u8>, AgentError> {
        let (allocated, observed) =
            self.interposer.observe(Some(place.clone()), || self.session.allocate(self.discovered.data, bytes));
        let address = allocated.inspect_err(|_| {
            // SAFETY: nothing came to lie there, or nothing refers to it.
            unsafe { ring.data.give_back(place.clone()) };
        })?;
        let host = address.cast::<u8>();
        if host.addr().get() != place.start {
            // It stays where it is and is never used; its place stays taken, because it may be mapped there anyway.
            ring.data.insert(place, 0);
            return Err(AgentError::Unsupported(format!(
                "{}: memory was placed at {host:p}, not where it was mapped",
                self.info().library.display()
            )));
        }
        let device = match observed.buffer {
            Some(handle) => device_address_of(&self.accel.node, handle, host).map_err(|cause| {
                self.accel.memory_error(&cause, &format!("the device address of {bytes} bytes of data memory"))
            }),
            None => Err(AgentError::Unsupported("an allocation without a buffer".into())),
        };
        // Known also without an address for the device: it is released like any other then.
        ring.data.insert(place, *device.as_ref().unwrap_or(&0));
        device.map(|_| host).inspect_err(|_| {
            // SAFETY: it was allocated just now and is unused.
            unsafe { self.give_back(ring, host) };
        })
    }

    /// Gives memory back to ROCR, and its addresses when it is data.
    ///
    /// # Safety
    /// It begins at `host`, was allocated by this agent, and is no longer used.
    unsafe fn give_back(&self, ring: &mut Ring, host: NonNull<u8>) {
        let place = ring.data.place(host.addr().get());
        let (freed, _) = self.interposer.observe(place.clone(), || {
            // SAFETY: as the caller promises.
            unsafe { self.session.free(host.as_ptr().cast()) }
        });
        if let Err(cause) = freed {
            // ROCR still has it, so its addresses stay taken.
            tracing::warn!("{cause}");
        } else if let Some(place) = place {
            // SAFETY: the range was found there, and the owner has given up what was in it.
            unsafe { ring.data.give_back(place) };
        }
    }

    /// Sends two packets through ROCR that stop at the interposer, and looks at what ROCR made of them.
    fn rehearse(&self) -> Result<(), AgentError> {
        let mut ring = self.lock()?;
        let ring = &mut *ring;
        ring.buffers.reserve(2).map_err(|cause| AgentError::failed(format!("command buffers: {cause}")))?;
        let instructions = ring.placeholder_instructions.addr().get() as u64;
        let (packets, api) = (&ring.packets, self.session.api());
        let packet = nop_packet(instructions, 64);
        [0, 1].into_iter().for_each(|slot| packets.write(slot, instructions, &packet, &[]));
        let chain = seen_by_device(&Chain { packets: vec![packet; 2], arguments: Vec::new() }, &ring.data);
        self.interposer
            .ring(&mut ring.buffers, None, chain, self.accel.limit, || packets.ring(api, 2))
            .map_err(|problem| AgentError::failed(format!("in a trial dispatch: {problem}")))?;
        let read = packets.read_index(api);
        if read != 2 {
            return Err(AgentError::failed(format!("after a doorbell for 2 packets the read index is {read}")));
        }
        packets.rewind(api);
        let read = packets.read_index(api);
        match read {
            0 => Ok(()),
            _ => Err(AgentError::failed(format!(
                "the read index is not where `amd_hsa_queue.h` has it: it is {read} after setting it to 0"
            ))),
        }
    }
}

impl Agent for ErtAgent {
    fn info(&self) -> &AgentInfo {
        &self.accel.status.info
    }

    fn contexts_created(&self) -> u64 {
        self.accel.status.contexts_created.load(Ordering::Relaxed)
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        self.accel.status.alive()?;
        let mut ring = self.lock()?;
        let host = match pool {
            MemoryPool::Data => {
                let granule = self.info().data_granule.max(1);
                let place = bytes.checked_next_multiple_of(granule).and_then(|bytes| ring.data.find(bytes));
                let place =
                    place.ok_or_else(|| AgentError::OutOfMemory(format!("no addresses for {bytes} bytes of data")))?;
                self.map_data(&mut ring, place, bytes)?
            }
            MemoryPool::DeviceHeap => {
                let allocate = || self.session.allocate(self.discovered.heap, bytes);
                let (address, observed) = self.interposer.observe(None, allocate);
                let host = address?.cast::<u8>();
                let handle = observed.buffer;
                let handle = handle.ok_or_else(|| AgentError::Unsupported("an allocation without a buffer".into()))?;
                ring.heap.insert(host.addr().get() as u64, handle);
                host
            }
        };
        // ROCR works with the addresses of the process; the device's addresses are looked up when a command is made.
        let device_address = host.as_ptr().expose_provenance() as u64;
        Ok(Allocation { pool, host, length: bytes, device_address })
    }

    fn free(&self, allocation: Allocation) {
        let Ok(mut ring) = self.lock() else {
            tracing::warn!("{} bytes are not freed, because the runtime does not respond", allocation.length);
            return;
        };
        // What a device may still work on stays.
        if ring.closed || (self.accel.status.is_lost() && ring.buffers.any_held()) {
            return;
        }
        ring.heap.remove(&allocation.device_address);
        // SAFETY: the allocation came from this function's counterpart and is given up by its owner.
        unsafe { self.give_back(&mut ring, allocation.host) };
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        self.accel.status.alive()?;
        let mut ring = self.lock()?;
        let handles = pdis.iter().map(|pdi| ring.heap.get(&pdi.address).copied());
        let made = self.accel.create_context(handles, ring.contexts.len())?;
        let context = ContextId(ring.next_context);
        ring.next_context += 1;
        ring.contexts.insert(context, made);
        self.accel.status.contexts_created.fetch_add(1, Ordering::Relaxed);
        Ok(context)
    }

    fn destroy_context(&self, context: ContextId) {
        let Ok(mut ring) = self.lock() else { return };
        let ring = &mut *ring;
        if let Some(context) = ring.contexts.remove(&context)
            && let Err(cause) = self.end_context(ring, context)
        {
            match ring.buffers.is_held(context) {
                true => drop(
                    self.accel
                        .status
                        .lose(format!("a context with a chain that does not end cannot be destroyed ({cause})")),
                ),
                false => tracing::warn!("{cause}"),
            }
        }
    }

    fn start(&self, context: ContextId, chain: &Chain) -> Result<u64, AgentError> {
        self.accel.status.alive()?;
        let mut ring = self.lock()?;
        let ring = &mut *ring;
        let Some(context) = ring.contexts.get(&context).copied() else {
            return Err(AgentError::failed(format!("context {} does not exist", context.0)));
        };
        chain.check(PACKETS)?;
        let count = chain.packets.len();
        let reserved = ring.buffers.reserve(count);
        reserved.map_err(|cause| self.accel.memory_error(&cause, &format!("command buffers for {count} packets")))?;
        let (packets, api) = (&ring.packets, self.session.api());
        for (slot, packet) in chain.packets.iter().enumerate() {
            let start = ring.heap.range(..=packet.instructions).next_back();
            let buffer = start.map_or(packet.instructions, |(start, _)| *start);
            packets.write(slot, buffer, packet, chain.arguments_of(packet));
        }
        let seen = seen_by_device(chain, &ring.data);
        let bell = || packets.ring(api, count);
        let context = Some((context, ring.wait_method));
        let outcome = self.interposer.ring(&mut ring.buffers, context, seen, self.accel.limit, bell);
        packets.rewind(api);
        outcome.map(|()| 0).map_err(|cause| self.accel.chain_error(cause))
    }

    fn caches(&self) -> Option<&dyn Caches> {
        Some(&CpuCaches)
    }

    fn close(&self) {
        // A call that is under way has the lock, and what it uses stays.
        if let Some(mut ring) = self.ring.try_lock_for(AT_EXIT_LIMIT)
            && !ring.closed
        {
            self.accel.status.lose("the process is ending".to_owned());
            self.end(&mut ring, false);
        }
    }
}

/// The chain with the device's addresses in place of the process's, which ROCR works with.
fn seen_by_device(chain: &Chain, data: &DataMemory) -> Chain {
    let packet = |packet: &Packet| Packet { instructions: device_address(packet.instructions), ..*packet };
    let argument = |range: &Range<u64>| {
        let start = data.seen_by_device(range.start);
        start..start + (range.end - range.start)
    };
    Chain {
        packets: chain.packets.iter().map(packet).collect(),
        arguments: chain.arguments.iter().map(argument).collect(),
    }
}

impl ErtAgent {
    /// Finds how this kernel lets one wait for a chain, with a context that does nothing.
    ///
    /// # Errors
    /// [`AgentError::Unusable`] for a kernel that has no way, with what was tried; those of the memory and of the context.
    fn probe_wait_method(&self) -> Result<(), AgentError> {
        let NopKernel { pdi, instructions } = NopKernel::new(self.header)?;
        let memory = self.upload(&pdi)?;
        let result = self.upload(&instructions).and_then(|stream| {
            let context = self.create_context(&[PdiRef { address: memory.device_address, bytes: pdi.len() }]);
            let found = context.and_then(|context| {
                let at = device_address(stream.device_address);
                let found = self.probe_in(context, &nop_packet(at, instructions.len()));
                self.destroy_context(context);
                found
            });
            self.free(stream);
            found
        });
        self.free(memory);
        result
    }

    fn probe_in(&self, context: ContextId, packet: &Packet) -> Result<(), AgentError> {
        let mut ring = self.lock()?;
        let Ring { buffers, contexts, wait_method, .. } = &mut *ring;
        let Some(context) = contexts.get(&context).copied() else { return Ok(()) };
        buffers.reserve(1).map_err(|cause| AgentError::OutOfMemory(format!("command buffers: {cause}")))?;
        let taken = buffers.take(2).unwrap_or_default();
        let [command, chain] = taken.as_slice() else { return Ok(()) };
        let limit = self.accel.limit.min(PROBE_LIMIT);
        let found = find_wait_method(&self.accel.node, context, [command, chain], packet, limit);
        buffers.put_back(Some(context), taken);
        let Probed { wait_method: method, failure } = found.map_err(|cause| cause.of_agent(cause.to_string()))?;
        if let Some(cause) = failure {
            tracing::warn!("{}: an NPU whose test dispatch failed: {cause}; it is used all the same", self.info().name);
        }
        *wait_method = method;
        tracing::debug!("chains are waited for by {wait_method}");
        Ok(())
    }

    /// Puts bytes into the device heap.
    fn upload(&self, bytes: &[u8]) -> Result<Allocation, AgentError> {
        let allocation = self.allocate(MemoryPool::DeviceHeap, bytes.len())?;
        // SAFETY: the allocation is as long, mapped for reading and writing, and released by the caller later.
        let region = unsafe { Region::mapped(allocation.host, bytes.len(), Arc::new(())) };
        if let Some(span) = region.writable(0, bytes.len()) {
            span.write(bytes);
            span.write_back();
        }
        Ok(allocation)
    }

    /// Destroys a context. The kernel driver ends what runs in it, so that its command buffers are free again.
    fn end_context(&self, ring: &mut Ring, context: HardwareContext) -> Result<(), CallError> {
        context.destroy(&self.accel.node)?;
        ring.buffers.context_is_gone(context);
        Ok(())
    }

    /// Releases everything but data memory, which it releases when `data` says so, or when no one has any.
    fn end(&self, ring: &mut Ring, data: bool) {
        for (_, context) in std::mem::take(&mut ring.contexts) {
            if let Err(cause) = self.end_context(ring, context) {
                tracing::debug!("{cause}");
            }
        }
        ring.buffers.release();
        if ring.buffers.any_held() {
            // A context could not be destroyed, and the device may still work in it.
            ring.closed = true;
            return;
        }
        // SAFETY: the queue is this agent's and no longer used.
        let status = unsafe { (self.session.api().hsa_queue_destroy)(ring.packets.queue.as_ptr()) };
        if let Err(cause) = self.session.check("hsa_queue_destroy", status) {
            tracing::debug!("{cause}");
        }
        let free = |address: *mut c_void| {
            // SAFETY: the memory is of this agent's pools and was not released before.
            if let Err(cause) = unsafe { self.session.free(address) } {
                tracing::debug!("{cause}");
            }
        };
        let ((), freed) = self.interposer.observe(None, || free(ring.packets.payloads.as_ptr().cast()));
        if !freed.unmapped {
            // ROCR 7.2.4 closes the buffer and leaves its mapping.
            // SAFETY: the memory was this agent's and is no longer used.
            unsafe { libc::munmap(ring.packets.payloads.as_ptr().cast(), PACKETS * PAYLOAD_BYTES) };
        }
        free(ring.packets.placeholder_pdi.as_ptr());
        free(ring.placeholder_instructions.as_ptr());
        // Only the device reads the heap.
        for (address, _) in std::mem::take(&mut ring.heap) {
            free(std::ptr::with_exposed_provenance_mut(address as usize));
        }
        // One is the last buffer.
        let places = ring.data.places();
        if data || places.len() <= 1 {
            for place in places {
                // With its place, or the addresses would be free until they are reserved again.
                self.interposer
                    .observe(Some(place.clone()), || free(std::ptr::with_exposed_provenance_mut(place.start)));
                // SAFETY: the range was found there, and the memory is unused.
                unsafe { ring.data.give_back(place) };
            }
        }
        ring.closed = true;
    }
}

impl Drop for ErtAgent {
    fn drop(&mut self) {
        if self.accel.status.is_inherited() {
            return;
        }
        if let Ok(mut ring) = self.lock()
            && !ring.closed
        {
            self.end(&mut ring, true);
        }
        self.interposer.forget_descriptor();
    }
}
