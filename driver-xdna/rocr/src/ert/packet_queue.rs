//! The one queue of an agent: its packets and their payloads, its doorbell, and setting it back.

use aie_driver_xdna::agent::Packet;
use amdxdna_sys::ert::TRANSACTION;
use amdxdna_sys::limits::{DEV_MEM_BASE, DEV_MEM_SIZE};
use hsa_sys::*;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where AMD's queue structure has the read index.
const READ_INDEX_OFFSET: usize = AMD_QUEUE_READ_DISPATCH_ID;
/// Packets of a queue; ROCR allows no other number.
pub(super) const PACKETS: usize = 64;
/// Bytes reserved for the payload of one packet. The largest, with 16 arguments, takes 220.
pub(super) const PAYLOAD_BYTES: usize = 512;
/// Words of a payload without arguments that the packet counts: instruction address, two words, and size.
const FIXED_COUNT: u32 = 3;
/// Words of one argument.
const ARGUMENT_COUNT: u32 = 3;
/// Where the device sees what the process has at `address` in the heap.
pub(super) fn device_address(address: u64) -> u64 {
    DEV_MEM_BASE + address % DEV_MEM_SIZE as u64
}

/// ROCR's queue with the memory its packets point to.
pub(super) struct PacketQueue {
    pub(super) queue: NonNull<hsa_queue_t>,
    /// [`PACKETS`] slots of [`PAYLOAD_BYTES`].
    pub(super) payloads: NonNull<u8>,
    /// What every packet names for ROCR; the interposer puts the real one in.
    pub(super) placeholder_pdi: NonNull<c_void>,
}

impl PacketQueue {
    /// The index behind the last packet that was processed.
    pub(super) fn read_index(&self, api: &HsaApi) -> u64 {
        // SAFETY: the queue exists as long as the agent.
        unsafe { (api.hsa_queue_load_read_index_scacquire)(self.queue.as_ptr()) }
    }

    /// Writes `packet` and its payload in `slot`. Its instructions are in the buffer that begins at `buffer`: ROCR finds a buffer by
    /// its first byte, and the interposer puts in where the instructions are. ROCR finds the arguments' buffers by addresses of the
    /// process; the interposer puts in where the device sees them.
    pub(super) fn write(&self, slot: usize, buffer: u64, packet: &Packet, arguments: &[Range<u64>]) {
        let count = FIXED_COUNT + ARGUMENT_COUNT * arguments.len() as u32;
        // The opcode's two words are not counted.
        let words = 2 + count as usize;
        assert!(slot < PACKETS && 8 + 4 * words <= PAYLOAD_BYTES, "the caller keeps to the limits");
        // SAFETY: the payload memory has PACKETS slots of PAYLOAD_BYTES, and both bounds were checked above.
        unsafe {
            let payload = self.payloads.add(slot * PAYLOAD_BYTES);
            payload.cast::<*mut c_void>().write(self.placeholder_pdi.as_ptr());
            let mut word = payload.add(8).cast::<u32>();
            let mut push = |value: u32| {
                word.write(value);
                word = word.add(1);
            };
            push(TRANSACTION);
            push(0);
            push(buffer as u32);
            push((buffer >> 32) as u32);
            push((packet.instruction_bytes / 4) as u32);
            for argument in arguments {
                push(argument.start as u32);
                push((argument.start >> 32) as u32);
            }
            // ROCR maintains the caches of what has a size, all of it around every chain. The driver above knows what needs it.
            arguments.iter().for_each(|_| push(0));
            let header = hsa_amd_vendor_packet_header_t {
                header: packet_header(HSA_PACKET_TYPE_VENDOR_SPECIFIC, HSA_FENCE_SCOPE_NONE, HSA_FENCE_SCOPE_NONE),
                AmdFormat: HSA_AMD_PACKET_TYPE_AIE_ERT,
                reserved: 0,
            };
            let content = hsa_amd_aie_ert_packet_t {
                header,
                command: ert_command(HSA_AMD_AIE_ERT_START_CU, count).unwrap_or_default(),
                reserved0: 0,
                reserved1: 0,
                reserved2: 0,
                reserved3: 0,
                reserved4: 0,
                reserved5: 0,
                payload_data: payload.as_ptr().expose_provenance() as u64,
            };
            // The queue's ring has PACKETS packets.
            self.queue.as_ref().base_address.cast::<hsa_amd_aie_ert_packet_t>().add(slot).write(content);
        }
    }

    /// Rings for packets 0 to `packets`. ROCR does all of its work in here, in this thread.
    pub(super) fn ring(&self, api: &HsaApi, packets: usize) {
        let queue = self.queue;
        // SAFETY: the queue exists as long as the agent, and its packets are written.
        unsafe {
            (api.hsa_queue_store_write_index_screlease)(queue.as_ptr(), packets as u64);
            (api.hsa_signal_store_screlease)(queue.as_ref().doorbell_signal, packets as i64 - 1);
        }
    }

    /// Sets an empty queue back to its first packet.
    pub(super) fn rewind(&self, api: &HsaApi) {
        let queue = self.queue;
        // SAFETY: `hsa_queue_t` is the beginning of AMD's queue structure, whose read index is an aligned 64-bit word that
        // only the packet processor writes, and it runs only inside a doorbell. The trial dispatch has checked its place.
        unsafe {
            let read_index = queue.as_ptr().cast::<u8>().add(READ_INDEX_OFFSET).cast::<AtomicU64>();
            (*read_index).store(0, Ordering::Release);
            (api.hsa_queue_store_write_index_screlease)(queue.as_ptr(), 0);
        }
    }
}
