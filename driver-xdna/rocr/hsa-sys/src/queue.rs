//! Queues: a ring of packets in memory, and a doorbell to tell the runtime of new ones.

use crate::hsa_signal_t;
use std::ffi::c_void;

/// A fixed-size form of `hsa_queue_type_t`: [`HSA_QUEUE_TYPE_SINGLE`] and others that no one here uses.
pub type hsa_queue_type32_t = u32;

c_constants! {
    /// One thread writes packets.
    HSA_QUEUE_TYPE_SINGLE: hsa_queue_type32_t = 1,
}

c_structs! {
    /// A queue as the runtime shows it. The runtime owns it, from `hsa_queue_create` to `hsa_queue_destroy`; only the
    /// packets behind `base_address` may be written.
    ///
    /// On ROCR 7.2.4 a queue of an AIE agent processes 64 packets in its life and dies of the next one, and storing to its
    /// doorbell returns when all packets are done (measured).
    hsa_queue_t {
        /// The kind of queue.
        type_: hsa_queue_type32_t,
        /// Which packets it takes: a mask of `HSA_QUEUE_FEATURE_*`.
        features: u32,
        /// The ring: `size` packets of 64 bytes, aligned to 64 bytes.
        base_address: *mut c_void,
        /// The doorbell: stored to with the index of the last packet that is ready.
        doorbell_signal: hsa_signal_t,
        /// Packets in the ring, a power of two.
        size: u32,
        /// Always 0.
        reserved1: u32,
        /// A number no other queue of this process has.
        id: u64,
    }
}

/// Bytes from a [`hsa_queue_t`] to the index behind the last packet processed, a `u64`: the field `read_dispatch_id` of
/// `amd_queue_t`, whose first field the queue is. Source: `amd_hsa_queue.h`.
pub const AMD_QUEUE_READ_DISPATCH_ID: usize = 0x80;

pub(crate) const OFFSETS: &[crate::declaration::Offset] = &[
    crate::declaration::Offset {
        structure: "amd_queue_t",
        field: "read_dispatch_id",
        offset: AMD_QUEUE_READ_DISPATCH_ID,
    },
    crate::declaration::Offset { structure: "amd_queue_t", field: "hsa_queue", offset: 0 },
];
