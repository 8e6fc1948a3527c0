//! Queues: a ring of packets, its indices, and what the agent keeps for it.

use aie_device_memory::Region;
use aie_driver_mock::npu::ContextId;
use aie_driver_mock::npu::array::LoadedPdi;
use hsa_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

/// Bytes of a packet.
pub const PACKET_BYTES: usize = size_of::<hsa_amd_aie_kernel_dispatch_packet_t>();

/// Called when a queue meets an error.
pub type ErrorCallback = unsafe extern "C" fn(hsa_status_t, *mut hsa_queue_t, *mut c_void);

/// What processing a queue needs and changes.
#[derive(Debug, Default)]
pub struct Progress {
    /// The queue's hardware context.
    pub context: Option<ContextId>,
    /// PDIs the context holds, as they were when their compute units were configured.
    pub pdis: Vec<LoadedPdi>,
    /// Set after an error: such a queue processes nothing more.
    pub failed: bool,
}

/// A queue. The program sees the structure inside, so a queue does not move.
#[derive(Debug)]
pub struct Queue {
    /// What the program sees of it.
    pub public: hsa_queue_t,
    ring: Region,
    /// The index behind the last packet that was processed.
    pub read: AtomicU64,
    /// The index of the next packet to write.
    pub write: AtomicU64,
    callback: Option<ErrorCallback>,
    callback_data: *mut c_void,
    /// Which of the agents it belongs to.
    pub agent: usize,
    /// Held while packets are processed.
    pub progress: Mutex<Progress>,
}

// SAFETY: The pointers in it are the ring's address, which the program reads, and the program's word for its callback, which
// is only handed back. Everything that changes is atomic or locked.
unsafe impl Send for Queue {}
// SAFETY: As for `Send`.
unsafe impl Sync for Queue {}

impl Queue {
    /// An empty queue of `size` packets on hardware context `context`. `None` when there is no memory for it.
    pub fn new(
        agent: usize,
        id: u64,
        size: u32,
        doorbell: hsa_signal_t,
        context: ContextId,
        callback: (Option<ErrorCallback>, *mut c_void),
    ) -> Option<Self> {
        let ring = Region::zeroed(size as usize * PACKET_BYTES, 4096)?;
        let queue = Self {
            public: hsa_queue_t {
                type_: HSA_QUEUE_TYPE_SINGLE,
                features: 0,
                base_address: ring.bytes()?.as_ptr().cast_mut().cast(),
                doorbell_signal: doorbell,
                size,
                reserved1: 0,
                id,
            },
            ring,
            read: AtomicU64::new(0),
            write: AtomicU64::new(0),
            callback: callback.0,
            callback_data: callback.1,
            agent,
            progress: Mutex::new(Progress { context: Some(context), ..Progress::default() }),
        };
        (0..u64::from(size)).for_each(|index| queue.release(index));
        Some(queue)
    }

    /// What the program knows the queue by.
    pub fn handle(&self) -> *mut hsa_queue_t {
        (&raw const self.public).cast_mut()
    }

    fn slot(&self, index: u64) -> usize {
        // The size fits a usize, since the ring does, and so does the remainder.
        (index % u64::from(self.public.size)) as usize * PACKET_BYTES
    }

    /// A copy of the packet at `index`.
    pub fn packet(&self, index: u64) -> hsa_amd_aie_kernel_dispatch_packet_t {
        let mut bytes = [0; PACKET_BYTES];
        if let Some(span) = self.ring.span(self.slot(index), PACKET_BYTES) {
            span.read(&mut bytes);
        }
        // SAFETY: there are as many bytes as a packet has, which is numbers and addresses: any bytes are one.
        unsafe { std::mem::transmute(bytes) }
    }

    /// Gives the slot of a packet back to the program.
    pub fn release(&self, index: u64) {
        let header = packet_header(HSA_AMD_AIE_PACKET_TYPE_INVALID, 0, 0).to_ne_bytes();
        if let Some(span) = self.ring.writable(self.slot(index), header.len()) {
            span.write(&header);
        }
    }

    /// Tells the program of an error. No lock is held.
    pub fn report(&self, status: hsa_status_t) {
        if let Some(callback) = self.callback {
            // SAFETY: The program gave the function and the word together, for this use, and destroys the queue only after
            // its calls have returned.
            unsafe { callback(status, self.handle(), self.callback_data) };
        }
    }
}
