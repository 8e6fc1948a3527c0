//! The library itself, used as a program uses it: what it rejects, and how.

#[allow(dead_code, reason = "a part of what the tests share")]
mod rig;

use aie_conformance::kernels::TestKernel;
use aie_driver_rocr::session::Session;
use aie_hal::ArchRegistry;
use hsa_sys::*;
use rstest::rstest;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

unsafe extern "C" fn on_error(status: hsa_status_t, _: *mut hsa_queue_t, data: *mut c_void) {
    // SAFETY: The data is the address of a word that outlives the queue.
    unsafe { &*data.cast::<AtomicU32>() }.store(status.0, Ordering::Relaxed);
}

type Packet = hsa_amd_aie_kernel_dispatch_packet_t;

/// A queue with what a packet needs.
struct Program {
    session: Session,
    queue: *mut hsa_queue_t,
    signal: hsa_signal_t,
    error: Box<AtomicU32>,
    packet: Packet,
    data: *mut u8,
}

const BYTES: usize = 64;

fn allocate(session: &Session, pool: hsa_amd_memory_pool_t, content: &[u8]) -> *mut u8 {
    let mut address: *mut c_void = std::ptr::null_mut();
    // SAFETY: The pool is the agent's, and the allocation is as long as what is copied.
    unsafe {
        let status = (session.api().hsa_amd_memory_pool_allocate)(pool, content.len(), 0, &raw mut address);
        assert_eq!(status, HSA_STATUS_SUCCESS);
        std::ptr::copy_nonoverlapping(content.as_ptr(), address.cast(), content.len());
    }
    address.cast()
}

impl Program {
    /// A program with a valid packet that adds 1 in place.
    fn new(settings: &[&str]) -> Self {
        let session = rig::session(settings).unwrap();
        let agent = session.agents().unwrap().remove(0);
        let kernel = TestKernel::Add8(1).artifact(&ArchRegistry::builtin().get(&agent.info.name).unwrap());
        let error = Box::new(AtomicU32::new(0));
        let mut queue: *mut hsa_queue_t = std::ptr::null_mut();
        let mut signal = hsa_signal_t { handle: 0 };
        let word = (&raw const *error).cast_mut().cast();
        // SAFETY: All arguments are as the functions ask for; the word outlives the queue.
        unsafe {
            let (create, kind) = (session.api().hsa_queue_create, HSA_QUEUE_TYPE_SINGLE);
            let status = create(agent.agent, 64, kind, Some(on_error), word, u32::MAX, u32::MAX, &raw mut queue);
            assert_eq!(status, HSA_STATUS_SUCCESS);
            let status = (session.api().hsa_signal_create)(1000, 0, std::ptr::null(), &raw mut signal);
            assert_eq!(status, HSA_STATUS_SUCCESS);
        }
        let data = allocate(&session, agent.data, &[0; BYTES]);
        let address = data.addr() as u64;
        let words: Vec<u8> =
            [address, address, BYTES as u64, BYTES as u64].into_iter().flat_map(u64::to_ne_bytes).collect();
        let instructions = allocate(&session, agent.heap, kernel.instructions()).addr() as u64;
        let system = HSA_FENCE_SCOPE_SYSTEM;
        let packet = Packet {
            header: packet_header(HSA_AMD_AIE_PACKET_TYPE_READY, system, system),
            opcode: HSA_AMD_AIE_PACKET_OPCODE_KMQ,
            count: Packet::COUNT,
            reserved0: 0,
            reserved1: 0,
            completion_signal: signal,
            reserved2: 0,
            insts_addr_low: instructions as u32,
            insts_addr_high: (instructions >> 32) as u32,
            num_kernargs: 2,
            reserved3: 0,
            kernarg_address: allocate(&session, agent.kernarg, &words).cast(),
            insts_size: kernel.instructions().len() as u64,
            pdi_addr: allocate(&session, agent.heap, kernel.pdi()).cast(),
            pdi_patch_offset: 0,
        };
        Self { session, queue, signal, error, packet, data }
    }

    /// Writes `packet` `count` times, rings once, and returns the error and the signal's value.
    fn ring(&self, packet: Packet, count: u64) -> (hsa_status_t, i64) {
        let api = self.session.api();
        // SAFETY: The queue exists and is this thread's; packets go into its ring only.
        unsafe {
            let queue = *self.queue;
            let first = (api.hsa_queue_add_write_index_screlease)(self.queue, count);
            for index in first..first + count {
                let slot = (index % u64::from(queue.size)) as usize;
                queue.base_address.cast::<Packet>().add(slot).write(packet);
            }
            (api.hsa_signal_store_screlease)(queue.doorbell_signal, (first + count - 1).cast_signed());
            (hsa_status_t(self.error.load(Ordering::Relaxed)), (api.hsa_signal_load_scacquire)(self.signal))
        }
    }

    fn first_byte(&self) -> u8 {
        // SAFETY: The allocation is longer than that, and nothing runs.
        unsafe { *self.data }
    }
}

#[test]
fn good_packets_count_their_signal_down_and_free_their_slots() {
    let program = Program::new(&[]);
    assert_eq!(program.ring(program.packet, 40), (HSA_STATUS_SUCCESS, 960));
    assert_eq!(program.ring(program.packet, 40), (HSA_STATUS_SUCCESS, 920));
    assert_eq!(program.first_byte(), 80);
    // SAFETY: The queue exists; its slots have been released.
    unsafe {
        let api = program.session.api();
        assert_eq!((api.hsa_queue_load_read_index_scacquire)(program.queue), 80);
        let slot = (*program.queue).base_address.cast::<Packet>();
        assert_eq!(u32::from((*slot).header), HSA_AMD_AIE_PACKET_TYPE_INVALID);
    }
}

type Change = fn(&mut Packet);

#[rstest]
#[case::type_of_a_gpu_packet(|p: &mut Packet| p.header = packet_header(HSA_PACKET_TYPE_KERNEL_DISPATCH, 2, 2))]
#[case::opcode(|p: &mut Packet| p.opcode = 1)]
#[case::count(|p: &mut Packet| p.count = 25)]
#[case::reserved(|p: &mut Packet| p.reserved3 = 1)]
#[case::full_elf(|p: &mut Packet| p.pdi_patch_offset = 16)]
#[case::no_whole_word(|p: &mut Packet| p.insts_size -= 1)]
#[case::instructions_elsewhere(|p: &mut Packet| p.insts_addr_high = 0x7f)]
#[case::pdi_elsewhere(|p: &mut Packet| p.pdi_addr = p.kernarg_address)]
#[case::pdi_inside_an_allocation(|p: &mut Packet| p.pdi_addr = p.pdi_addr.wrapping_byte_add(16))]
#[case::no_kernargs(|p: &mut Packet| p.kernarg_address = std::ptr::null_mut())]
#[case::no_number_of_kernargs(|p: &mut Packet| p.num_kernargs = 0)]
#[case::too_many_kernargs(|p: &mut Packet| p.num_kernargs = 9)]
#[case::signal(|p: &mut Packet| p.completion_signal.handle = 4242)]
fn packets_against_the_rules_are_rejected(#[case] change: Change) {
    let program = Program::new(&[]);
    let mut packet = program.packet;
    change(&mut packet);
    let (status, _) = program.ring(packet, 1);
    assert_eq!(status, HSA_STATUS_ERROR_INVALID_PACKET_FORMAT);
    assert_eq!(program.first_byte(), 0);
    // The queue has met its error: good packets are not processed any more.
    assert_eq!(program.ring(program.packet, 1).0, status);
    assert_eq!(program.first_byte(), 0);
}

#[test]
fn instructions_that_end_early_never_signal() {
    let program = Program::new(&[]);
    // What a program for ERT packets would write, which count words.
    let packet = Packet { insts_size: 16, ..program.packet };
    let timeout = -i64::from(HSA_AMD_AIE_ERT_STATE_TIMEOUT.0);
    assert_eq!(program.ring(packet, 1), (HSA_STATUS_ERROR, timeout));
    assert_eq!(program.first_byte(), 0);
}

#[test]
fn a_doorbell_takes_as_many_packets_as_the_firmware() {
    let program = Program::new(&[]);
    assert_eq!(program.ring(program.packet, 41), (HSA_STATUS_ERROR, -i64::from(HSA_AMD_AIE_ERT_STATE_ERROR.0)));
    assert_eq!(program.first_byte(), 0);
}

#[test]
fn withheld_signals_stay_as_they_are() {
    let program = Program::new(&["FAILURE=withhold", "FAULTS=timeout@4"]);
    assert_eq!(program.ring(program.packet, 10), (HSA_STATUS_ERROR, 997));
    assert_eq!(program.first_byte(), 3);
}

#[test]
fn garbage_is_garbage() {
    let program = Program::new(&["FAULTS=garbage@1"]);
    assert_eq!(program.ring(program.packet, 1), (HSA_STATUS_SUCCESS, 999));
    assert_ne!(program.first_byte(), 1);
}
