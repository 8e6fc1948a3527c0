//! The runtime's functions, one after another, as a C program would call them: ERT packets of ROCm 7.0 to 7.2.
//!
//! There is no driver in between: memory is allocated once, a round writes its packets and rings the doorbell. Two
//! peculiarities of ROCR 7.2.4 have to be respected even here. It processes a queue's packets without wrapping the ring,
//! so that both indices go back to 0 after each doorbell, which has processed everything when it returns. And the queue
//! dies when a second one is opened for the same PDIs, so there is one.

use crate::rounds::{Measured, Rounds};
use crate::{BYTES, expected, generation, kernel};
use anyhow::{Context, Result, bail, ensure};
use hsa_sys::*;
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Packets of the ring.
const PACKETS: u32 = 64;
/// Bytes for the payload of one packet: the PDI's address and 5 words, and 3 words for each of two arguments.
const PAYLOAD_BYTES: usize = 64;
/// Words of that payload after the PDI's address.
const WORDS: usize = 11;

/// Runs all rounds.
pub fn run(library: &Path, rounds: &Rounds) -> Result<Measured> {
    // SAFETY: the file is the HSA runtime the user names; loading it runs its initialisers, as the linker would.
    let opened = unsafe { Library::new(library) }.with_context(|| format!("cannot load {}", library.display()))?;
    // SAFETY: as above, the library is an HSA runtime with AMD's extension.
    let api = unsafe { HsaApi::load(opened) }.with_context(|| library.display().to_string())?;
    let runtime = Runtime::start(&api)?;
    let mut queue = Queue::open(&runtime, rounds.chain)?;
    let measured = rounds.run(|| queue.round(rounds.chain))?;
    let dispatches = rounds.dispatches();
    queue.check(expected(dispatches))?;
    Ok(measured)
}

/// The started runtime and its first AIE agent.
struct Runtime<'a> {
    api: &'a HsaApi,
    agent: hsa_agent_t,
    kernarg: hsa_amd_memory_pool_t,
    heap: hsa_amd_memory_pool_t,
    data: hsa_amd_memory_pool_t,
    generation: String,
}

impl<'a> Runtime<'a> {
    fn start(api: &'a HsaApi) -> Result<Self> {
        // SAFETY: may be called at any time.
        check(api, unsafe { (api.hsa_init)() }, "hsa_init")?;
        let mut agents: Vec<hsa_agent_t> = Vec::new();
        // SAFETY: the callback gets the address of `agents`, which outlives the call.
        let status = unsafe { (api.hsa_iterate_agents)(Some(keep::<hsa_agent_t>), (&raw mut agents).cast()) };
        check(api, status, "hsa_iterate_agents")?;
        for agent in agents {
            let mut kind = HSA_DEVICE_TYPE_CPU;
            let mut name = [0; 64];
            // SAFETY: the attribute is a device type, and `kind` is one.
            let status = unsafe { (api.hsa_agent_get_info)(agent, HSA_AGENT_INFO_DEVICE, (&raw mut kind).cast()) };
            check(api, status, "hsa_agent_get_info")?;
            if kind != HSA_DEVICE_TYPE_AIE {
                continue;
            }
            // SAFETY: the attribute is a text of at most 64 bytes, and so long is `name`.
            let status = unsafe { (api.hsa_agent_get_info)(agent, HSA_AGENT_INFO_NAME, (&raw mut name).cast()) };
            check(api, status, "hsa_agent_get_info")?;
            let generation = text(&name)?;
            return Self::pools(api, agent, generation);
        }
        bail!("the runtime has no AIE agent")
    }

    fn pools(api: &'a HsaApi, agent: hsa_agent_t, generation: String) -> Result<Self> {
        let mut pools: Vec<hsa_amd_memory_pool_t> = Vec::new();
        let function = api.hsa_amd_agent_iterate_memory_pools;
        // SAFETY: the callback gets the address of `pools`, which outlives the call.
        let status = unsafe { function(agent, Some(keep::<hsa_amd_memory_pool_t>), (&raw mut pools).cast()) };
        check(api, status, "hsa_amd_agent_iterate_memory_pools")?;
        let (mut kernarg, mut heap, mut data) = (None, None, None);
        for pool in pools {
            let (mut flags, mut granule) = (0u32, 0usize);
            // SAFETY: the attribute is a `u32`, and `flags` is one.
            let status = unsafe {
                let attribute = HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS;
                (api.hsa_amd_memory_pool_get_info)(pool, attribute, (&raw mut flags).cast())
            };
            check(api, status, "hsa_amd_memory_pool_get_info")?;
            // SAFETY: the attribute is a `size_t`, and `granule` is one.
            let status = unsafe {
                let attribute = HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE;
                (api.hsa_amd_memory_pool_get_info)(pool, attribute, (&raw mut granule).cast())
            };
            check(api, status, "hsa_amd_memory_pool_get_info")?;
            let place = match (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT != 0, granule) {
                (true, _) => &mut kernarg,
                (false, 0) => &mut heap,
                (false, _) => &mut data,
            };
            *place = Some(pool);
        }
        match (kernarg, heap, data) {
            (Some(kernarg), Some(heap), Some(data)) => Ok(Self { api, agent, kernarg, heap, data, generation }),
            found => bail!("the agent's pools for arguments, instructions and data are not all there: {found:?}"),
        }
    }

    /// Memory of a pool, zeroed. Aligned to 8 bytes at least, as the runtime's pools are.
    fn allocate(&self, pool: hsa_amd_memory_pool_t, bytes: usize) -> Result<*mut u8> {
        let mut address: *mut c_void = ptr::null_mut();
        let flags = HSA_AMD_MEMORY_POOL_STANDARD_FLAG;
        // SAFETY: the pool is the agent's, and `address` is a place for one pointer.
        let status = unsafe { (self.api.hsa_amd_memory_pool_allocate)(pool, bytes, flags, &raw mut address) };
        check(self.api, status, "hsa_amd_memory_pool_allocate")?;
        // SAFETY: the runtime has just given `bytes` bytes at this address to us alone.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(address.cast())
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
    runtime: &'a Runtime<'a>,
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
    fn open(runtime: &'a Runtime<'a>, chain: usize) -> Result<Self> {
        let artifact = kernel(&*generation(&runtime.generation)?);
        let pdi = runtime.place(runtime.heap, artifact.pdi())?;
        let instructions = runtime.place(runtime.heap, artifact.instructions())?;
        let data = [runtime.allocate(runtime.data, BYTES)?, runtime.allocate(runtime.data, BYTES)?];
        let payloads = runtime.allocate(runtime.kernarg, chain * PAYLOAD_BYTES)?;
        let mut queue: *mut hsa_queue_t = ptr::null_mut();
        // SAFETY: the agent is an AIE agent, there is no callback, and `queue` is a place for one pointer.
        let status = unsafe {
            let create = runtime.api.hsa_queue_create;
            let kind = HSA_QUEUE_TYPE_SINGLE;
            create(runtime.agent, PACKETS, kind, None, ptr::null_mut(), 0, 0, &raw mut queue)
        };
        check(runtime.api, status, "hsa_queue_create")?;
        let instruction_words = u32::try_from(artifact.instructions().len() / 4)?;
        let allocations = vec![pdi, instructions, data[0], data[1], payloads];
        Ok(Self { runtime, queue, allocations, pdi, instructions, instruction_words, data, payloads })
    }

    /// `chain` packets and one doorbell.
    fn round(&mut self, chain: usize) -> Result<()> {
        let api = self.runtime.api;
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
        // SAFETY: the queue is the first field of AMD's queue structure, which has its read index at this offset; nobody
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
        let api = self.runtime.api;
        // SAFETY: nothing is in work on the queue, and nobody uses it or the memory after this.
        unsafe {
            let _ = (api.hsa_queue_destroy)(self.queue);
            for address in self.allocations.drain(..) {
                let _ = (api.hsa_amd_memory_pool_free)(address.cast());
            }
        }
    }
}

impl Drop for Runtime<'_> {
    fn drop(&mut self) {
        // SAFETY: every object of the runtime was destroyed before.
        let _ = unsafe { (self.api.hsa_shut_down)() };
    }
}

/// Keeps what a callback is called with.
unsafe extern "C" fn keep<T>(object: T, list: *mut c_void) -> hsa_status_t {
    // SAFETY: the callers pass the address of a `Vec<T>` that lives during the iteration and that nothing else touches.
    unsafe { (*list.cast::<Vec<T>>()).push(object) };
    HSA_STATUS_SUCCESS
}

fn check(api: &HsaApi, status: hsa_status_t, what: &str) -> Result<()> {
    if status.is_success() {
        return Ok(());
    }
    bail!("{what}: {}", api.describe(status))
}

fn text(bytes: &[c_char]) -> Result<String> {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).context("a text of the runtime does not end")?;
    Ok(text.to_str().context("a text of the runtime is not UTF-8")?.to_owned())
}
