//! The runtime's functions, one after another, as a C program would call them: ERT packets of ROCm 7.0 to 7.2.
//!
//! There is no driver in between: memory is allocated once, a round writes its packets and rings the doorbell. Two
//! peculiarities of ROCR 7.2.4 have to be respected even here. It processes a queue's packets without wrapping the ring,
//! so that both indices go back to 0 after each doorbell, which has processed everything when it returns. And the queue
//! dies when a second one is opened for the same PDIs, so there is one.

use crate::rounds::{Measured, Rounds};
use crate::{BYTES, expected, generation, kernel};
use aie_driver_rocr::session::{Discovered, Session};
use anyhow::{Context, Result, bail, ensure};
use hsa_sys::*;
use libloading::Library;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

const PACKETS: u32 = 64;
/// Bytes for the payload of one packet: the PDI's address and 5 words, and 3 words for each of two arguments.
const PAYLOAD_BYTES: usize = 64;
/// Words of that payload after the PDI's address.
const WORDS: usize = 11;

pub fn run(library: &Path, rounds: &Rounds) -> Result<Measured> {
    // SAFETY: the file is the HSA runtime the user names; loading it runs its initialisers, as the linker would.
    let opened = unsafe { Library::new(library) }.with_context(|| format!("cannot load {}", library.display()))?;
    // SAFETY: as above, the library is an HSA runtime with AMD's extension.
    let api = unsafe { HsaApi::load(opened) }.with_context(|| library.display().to_string())?;
    let session = Session::start(api, library)?;
    let agent = session.agents()?.into_iter().next().context("the runtime has no AIE agent")?;
    let runtime = Runtime { session, agent };
    let mut queue = Queue::open(&runtime, rounds.chain)?;
    let measured = rounds.run(|| queue.round(rounds.chain))?;
    let dispatches = rounds.dispatches();
    queue.check(expected(dispatches))?;
    Ok(measured)
}

/// The started runtime and its first AIE agent.
struct Runtime {
    session: Session,
    agent: Discovered,
}

impl Runtime {
    /// Memory of a pool, zeroed. Aligned to 8 bytes at least, as the runtime's pools are.
    fn allocate(&self, pool: hsa_amd_memory_pool_t, bytes: usize) -> Result<*mut u8> {
        let address = self.session.allocate(pool, bytes)?.as_ptr().cast::<u8>();
        // SAFETY: the runtime has just given `bytes` bytes at this address to us alone.
        unsafe { ptr::write_bytes(address, 0, bytes) };
        Ok(address)
    }

    /// The same with a copy of `content`.
    fn place(&self, pool: hsa_amd_memory_pool_t, content: &[u8]) -> Result<*mut u8> {
        let address = self.allocate(pool, content.len())?;
        // SAFETY: as many bytes were just allocated at this address.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), address, content.len()) };
        Ok(address)
    }
}

/// A queue with everything its packets name. All of it lives as long as the program.
struct Queue<'a> {
    runtime: &'a Runtime,
    queue: *mut hsa_queue_t,
    allocations: Vec<*mut u8>,
    pdi: *mut u8,
    instructions: *mut u8,
    instruction_words: u32,
    /// The buffer that was written last, and the other.
    data: [*mut u8; 2],
    payloads: *mut u8,
}

impl<'a> Queue<'a> {
    fn open(runtime: &'a Runtime, chain: usize) -> Result<Self> {
        let artifact = kernel(&*generation(&runtime.agent.info.name)?);
        let pdi = runtime.place(runtime.agent.heap, artifact.pdi())?;
        let instructions = runtime.place(runtime.agent.heap, artifact.instructions())?;
        let data = [runtime.allocate(runtime.agent.data, BYTES)?, runtime.allocate(runtime.agent.data, BYTES)?];
        let payloads = runtime.allocate(runtime.agent.kernarg, chain * PAYLOAD_BYTES)?;
        let mut queue: *mut hsa_queue_t = ptr::null_mut();
        // SAFETY: the agent is an AIE agent, there is no callback, and `queue` is a place for one pointer.
        let status = unsafe {
            let create = runtime.session.api().hsa_queue_create;
            let kind = HSA_QUEUE_TYPE_SINGLE;
            create(runtime.agent.agent, PACKETS, kind, None, ptr::null_mut(), 0, 0, &raw mut queue)
        };
        runtime.session.check("hsa_queue_create", status)?;
        let instruction_words = u32::try_from(artifact.instructions().len() / 4)?;
        let allocations = vec![pdi, instructions, data[0], data[1], payloads];
        Ok(Self { runtime, queue, allocations, pdi, instructions, instruction_words, data, payloads })
    }

    /// `chain` packets and one doorbell.
    fn round(&mut self, chain: usize) -> Result<()> {
        let api = self.runtime.session.api();
        for slot in 0..chain {
            self.write(slot)?;
            self.data.swap(0, 1);
        }
        // SAFETY: the queue is open, and its packets up to `chain` are written.
        unsafe {
            (api.hsa_queue_store_write_index_screlease)(self.queue, chain as u64);
            (api.hsa_signal_store_screlease)((*self.queue).doorbell_signal, chain as i64 - 1);
        }
        // SAFETY: the queue is open.
        let read = unsafe { (api.hsa_queue_load_read_index_scacquire)(self.queue) };
        ensure!(read == chain as u64, "the runtime processed {read} of {chain} packets in the doorbell");
        // SAFETY: the queue is the first field of AMD's queue structure, which has its read index at this offset; no one
        // else uses the queue, and the runtime has nothing to do on it.
        let read_index = unsafe { AtomicU64::from_ptr(self.queue.byte_add(AMD_QUEUE_READ_DISPATCH_ID).cast()) };
        read_index.store(0, Ordering::Release);
        // SAFETY: the queue is open.
        unsafe { (api.hsa_queue_store_write_index_screlease)(self.queue, 0) };
        Ok(())
    }

    /// Writes the payload and the packet of one slot.
    fn write(&mut self, slot: usize) -> Result<()> {
        let halves = |address: *mut u8| [address as u64 as u32, (address as u64 >> 32) as u32];
        let ([source_low, source_high], [target_low, target_high]) = (halves(self.data[0]), halves(self.data[1]));
        let [low, high] = halves(self.instructions);
        let bytes = BYTES as u32;
        #[rustfmt::skip]
        let words: [u32; WORDS] = [
            3, 0, low, high, self.instruction_words,
            source_low, source_high, target_low, target_high, bytes, bytes,
        ];
        // Two words are not counted, see `hsa_amd_aie_ert_start_kernel_data_t`.
        let count = WORDS as u32 - 2;
        let command = ert_command(HSA_AMD_AIE_ERT_START_CU, count).context("a small payload")?;
        // SAFETY: the payload has room for the address and the words, is aligned to 8 bytes, and the runtime has no
        // packet in work that names it.
        let payload = unsafe {
            let payload = self.payloads.add(slot * PAYLOAD_BYTES);
            payload.cast::<*mut u8>().write(self.pdi);
            ptr::copy_nonoverlapping(words.as_ptr(), payload.add(8).cast(), WORDS);
            payload
        };
        let packet = hsa_amd_aie_ert_packet_t {
            header: hsa_amd_vendor_packet_header_t {
                header: packet_header(HSA_PACKET_TYPE_INVALID, 0, 0),
                AmdFormat: HSA_AMD_PACKET_TYPE_AIE_ERT,
                reserved: 0,
            },
            command,
            reserved0: 0,
            reserved1: 0,
            reserved2: 0,
            reserved3: 0,
            reserved4: 0,
            reserved5: 0,
            payload_data: payload as u64,
        };
        // SAFETY: the ring has 64 packets and `slot` is below that; the slot is not in use, because the indices went back to 0
        // after the doorbell before. The header comes last.
        unsafe {
            let place = (*self.queue).base_address.cast::<hsa_amd_aie_ert_packet_t>().add(slot);
            place.write(packet);
            let header = AtomicU16::from_ptr(place.cast());
            header.store(packet_header(HSA_PACKET_TYPE_VENDOR_SPECIFIC, 0, 0), Ordering::Release);
        }
        Ok(())
    }

    /// Whether every byte of the buffer written last is `value`.
    fn check(&self, value: u8) -> Result<()> {
        // SAFETY: the buffer has so many bytes, and no dispatch is in work.
        let result = unsafe { std::slice::from_raw_parts(self.data[0], BYTES) };
        match result.iter().position(|byte| *byte != value) {
            None => Ok(()),
            Some(index) => bail!("byte {index} of the result is {}, expected {value}", result[index]),
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        let api = self.runtime.session.api();
        // SAFETY: the queue is idle, and neither it nor the memory is used after this.
        unsafe {
            let _ = (api.hsa_queue_destroy)(self.queue);
            for address in self.allocations.drain(..) {
                let _ = (api.hsa_amd_memory_pool_free)(address.cast());
            }
        }
    }
}
