//! A queue of the runtime and the kernel arguments of its packets: the places where bytes are written for it.

use crate::session::Session;
use aie_driver_xdna::agent::{AgentError, Packet, PdiRef};
use hsa_sys::*;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Arguments a packet may have.
pub(super) const ARGUMENTS: usize = 64;

/// Words of 64 bits for the arguments of one packet: an address and a size each.
const SLOT_WORDS: usize = 2 * ARGUMENTS;

/// A kernarg buffer for each packet of a doorbell.
#[derive(Debug)]
pub(super) struct Kernargs {
    words: NonNull<u64>,
    slots: usize,
    session: Arc<Session>,
}

// SAFETY: The memory is this object's alone and belongs to no thread.
unsafe impl Send for Kernargs {}

impl Kernargs {
    /// Buffers for `slots` packets.
    pub(super) fn allocate(
        session: &Arc<Session>,
        pool: hsa_amd_memory_pool_t,
        slots: usize,
    ) -> Result<Self, AgentError> {
        let bytes = slots * SLOT_WORDS * size_of::<u64>();
        let words = session.allocate(pool, bytes).map_err(|cause| {
            AgentError::OutOfMemory(format!("the runtime has no {bytes} bytes for kernel arguments: {cause}"))
        })?;
        // Before the check, so that it is released.
        let kernargs = Self { words: words.cast(), slots, session: Arc::clone(session) };
        match kernargs.words.is_aligned() {
            true => Ok(kernargs),
            false => Err(AgentError::Unsupported("memory for kernel arguments that is not aligned".into())),
        }
    }

    /// Writes the arguments of a packet: all addresses, then all sizes. Returns where they are; null without any.
    pub(super) fn write(&mut self, slot: usize, arguments: &[Range<u64>]) -> *mut c_void {
        assert!(slot < self.slots && arguments.len() <= ARGUMENTS, "the caller keeps to the limits");
        if arguments.is_empty() {
            return std::ptr::null_mut();
        }
        // SAFETY: The slot is inside the allocation, no packet in flight uses it, and `&mut self` keeps others out. Memory of a
        // pool is initialised.
        let words = unsafe { std::slice::from_raw_parts_mut(self.words.add(slot * SLOT_WORDS).as_ptr(), SLOT_WORDS) };
        let (addresses, sizes) = words.split_at_mut(arguments.len());
        for (argument, (address, size)) in arguments.iter().zip(addresses.iter_mut().zip(sizes)) {
            (*address, *size) = (argument.start, argument.end - argument.start);
        }
        words.as_mut_ptr().cast()
    }
}

impl Drop for Kernargs {
    fn drop(&mut self) {
        // SAFETY: The memory is of this pool, and no packet is in flight.
        if let Err(error) = unsafe { self.session.free(self.words.as_ptr().cast()) } {
            tracing::warn!("kernel arguments: {error}");
        }
    }
}

/// A queue. Destroyed when dropped, with no packet in flight.
#[derive(Debug)]
pub(super) struct Queue {
    queue: NonNull<hsa_queue_t>,
    /// The first status its error callback was called with; 0 is none. The runtime has the address.
    error: Box<AtomicU32>,
    session: Arc<Session>,
}

// SAFETY: The runtime's queue belongs to no thread; one at a time writes packets, through `&mut self`.
unsafe impl Send for Queue {}

/// The queue's error callback, called by the runtime in any thread.
unsafe extern "C" fn note_error(status: hsa_status_t, _queue: *mut hsa_queue_t, data: *mut c_void) {
    // SAFETY: The data is the address of the queue's word, which exists as long as the queue, and is only used atomically.
    let error = unsafe { &*data.cast::<AtomicU32>() };
    // An error with the status of success is still an error.
    let code = if status.is_success() { HSA_STATUS_ERROR.0 } else { status.0 };
    // The first cause stays.
    let _ = error.compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed);
}

impl Queue {
    /// Makes a queue of `packets` packets.
    pub(super) fn create(session: &Arc<Session>, agent: hsa_agent_t, packets: u32) -> Result<Self, hsa_status_t> {
        let error = Box::new(AtomicU32::new(0));
        let data = (&raw const *error).cast_mut().cast::<c_void>();
        let mut queue: *mut hsa_queue_t = std::ptr::null_mut();
        // SAFETY: The agent is of this session, `queue` is a place for one pointer, and the callback's data outlives the queue.
        let status = unsafe {
            (session.api().hsa_queue_create)(
                agent,
                packets,
                HSA_QUEUE_TYPE_SINGLE,
                Some(note_error),
                data,
                u32::MAX,
                u32::MAX,
                &raw mut queue,
            )
        };
        match NonNull::new(queue) {
            Some(queue) if status == HSA_STATUS_SUCCESS => Ok(Self { queue, error, session: Arc::clone(session) }),
            _ if status == HSA_STATUS_SUCCESS => Err(HSA_STATUS_ERROR),
            _ => Err(status),
        }
    }

    fn public(&self) -> &hsa_queue_t {
        // SAFETY: The runtime keeps the structure, unchanged, until the queue is destroyed.
        unsafe { self.queue.as_ref() }
    }

    /// Packets the ring holds.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.public().size)
    }

    pub(super) fn doorbell(&self) -> hsa_signal_t {
        self.public().doorbell_signal
    }

    /// What the error callback was called with first.
    pub(super) fn error(&self) -> Option<hsa_status_t> {
        let code = self.error.load(Ordering::Acquire);
        (code != 0).then_some(hsa_status_t(code))
    }

    /// The index behind the last packet that was processed.
    pub(super) fn read_index(&self) -> u64 {
        // SAFETY: The queue exists.
        unsafe { (self.session.api().hsa_queue_load_read_index_scacquire)(self.queue.as_ptr()) }
    }

    fn write_index(&self) -> u64 {
        // SAFETY: The queue exists.
        unsafe { (self.session.api().hsa_queue_load_write_index_relaxed)(self.queue.as_ptr()) }
    }

    /// Packets that were published and not processed.
    pub(super) fn pending(&self) -> u64 {
        self.write_index().saturating_sub(self.read_index())
    }

    /// Writes a packet for `pdi`, `ahead` of the write index; the ring has room for it.
    pub(super) fn write(
        &mut self,
        ahead: u64,
        packet: &Packet,
        pdi: PdiRef,
        signal: hsa_signal_t,
        arguments: *mut c_void,
    ) {
        let index = self.write_index() + ahead;
        let public = *self.public();
        let slot = (index % u64::from(public.size.max(1))) as usize;
        let system = HSA_FENCE_SCOPE_SYSTEM;
        let content = hsa_amd_aie_kernel_dispatch_packet_t {
            header: packet_header(HSA_AMD_AIE_PACKET_TYPE_INVALID, system, system),
            opcode: HSA_AMD_AIE_PACKET_OPCODE_KMQ,
            count: hsa_amd_aie_kernel_dispatch_packet_t::COUNT,
            reserved0: 0,
            reserved1: 0,
            completion_signal: signal,
            reserved2: 0,
            insts_addr_low: packet.instructions as u32,
            insts_addr_high: (packet.instructions >> 32) as u32,
            // The caller has no more than `ARGUMENTS`.
            num_kernargs: packet.arguments.1 as u16,
            reserved3: 0,
            kernarg_address: arguments,
            insts_size: packet.instruction_bytes as u64,
            pdi_addr: std::ptr::with_exposed_provenance_mut(pdi.address as usize),
            pdi_patch_offset: 0,
        };
        let place = public.base_address.cast::<hsa_amd_aie_kernel_dispatch_packet_t>();
        // SAFETY: The ring has `size` packets from its base on, aligned to 64 bytes, and this slot is the program's, because the
        // caller has seen that there is room and no other thread writes packets. The header is the packet's first, aligned
        // word; it is written last, with release ordering, as HSA asks for.
        unsafe {
            let place = place.add(slot);
            place.write(content);
            let ready = packet_header(HSA_AMD_AIE_PACKET_TYPE_READY, system, system);
            AtomicU16::from_ptr(place.cast()).store(ready, Ordering::Release);
        }
    }

    /// Gives `packets` written packets to the runtime. Returns what to store to the doorbell.
    pub(super) fn publish(&mut self, packets: u64) -> hsa_signal_value_t {
        // SAFETY: The queue exists, and its packets up to the new index are written.
        let first = unsafe { (self.session.api().hsa_queue_add_write_index_screlease)(self.queue.as_ptr(), packets) };
        // Indices are counts of packets, far below the limit.
        (first + packets).saturating_sub(1).cast_signed()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: The queue exists, and no thread is in a call for it: whose doorbell hangs is not dropped.
        let status = unsafe { (self.session.api().hsa_queue_destroy)(self.queue.as_ptr()) };
        if let Err(error) = self.session.check("hsa_queue_destroy", status) {
            tracing::warn!("{error}");
        }
    }
}
