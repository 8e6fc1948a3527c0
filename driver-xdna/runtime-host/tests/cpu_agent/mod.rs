//! An agent for tests: its memory are memfds, and it executes on the CPU: every packet copies its argument 0 to its
//! argument 1. It can be told to abort, hang, panic or exit in a call.

use aie_driver_xdna::agent::{
    Agent, AgentCounts, AgentError, AgentInfo, Allocation, Argument, Chain, ContextId, Packet, PacketInterface, PdiRef,
};
use aie_driver_xdna::isolated::{Export, Mapping};
use aie_hal::MemoryPool;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Where the memory starts in its file: not at a page, as a runtime may do.
const OFFSET: u64 = 4096 + 64;
#[derive(Debug)]
pub struct CpuAgent {
    info: AgentInfo,
    fault: String,
    /// How long a submit takes.
    pub submit_time: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: AgentCounts,
    memory: HashMap<u64, (OwnedFd, Mapping)>,
    contexts: BTreeSet<u64>,
    next: u64,
}

impl CpuAgent {
    pub fn new(fault: &str) -> Self {
        let info = AgentInfo {
            name: "aie2p".to_owned(),
            library: PathBuf::from("/nowhere/libcpu.so"),
            runtime: "CPU".to_owned(),
            interface: PacketInterface::Ert,
            data_bytes: 1 << 32,
            data_granule: 4096,
            heap_bytes: 64 << 20,
        };
        let submit_time = Duration::ZERO;
        Self { info, fault: fault.to_owned(), submit_time, state: Mutex::default() }
    }

    /// Allocations and contexts that were not given back.
    #[allow(dead_code, reason = "only tests that have the agent in their own process look at it")]
    pub fn open_things(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.memory.len(), state.contexts.len())
    }

    fn meet(&self, call: &str) {
        match self.fault.split_once('@') {
            Some((kind, at)) if at == call => fail(kind, call),
            _ => {}
        }
    }

    fn copy(&self, from: Argument, to: Argument) -> Result<(), AgentError> {
        let state = self.state.lock().unwrap();
        let file = |argument: Argument| {
            let unknown =
                || AgentError::Failed { command: Some(0), reason: format!("no memory {:#x}", argument.address) };
            Ok::<_, AgentError>(&state.memory.get(&argument.address).ok_or_else(unknown)?.0)
        };
        let mut bytes = vec![0; from.bytes as usize];
        assert_eq!(pread(file(from)?, &mut bytes, OFFSET).unwrap(), bytes.len());
        assert_eq!(pwrite(file(to)?, &bytes, OFFSET).unwrap(), bytes.len());
        Ok(())
    }
}

/// Ends this process or thread, or never returns.
pub fn fail(kind: &str, call: &str) {
    eprintln!("cpu agent: assertion `{call}' failed");
    match kind {
        "abort" => std::process::abort(),
        "exit" => std::process::exit(3),
        "panic" => panic!("planned in {call}"),
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(60));
        },
        other => panic!("there is no fault `{other}`"),
    }
}

impl Agent for CpuAgent {
    fn info(&self) -> &AgentInfo {
        &self.info
    }

    fn counts(&self) -> AgentCounts {
        self.state.lock().unwrap().counts
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        self.meet("allocate");
        if bytes as u64 > self.info.data_bytes {
            return Err(AgentError::OutOfMemory(format!("{bytes} bytes are too many")));
        }
        let file = memfd_create("cpu-agent", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, OFFSET + bytes as u64).unwrap();
        let mapping =
            Mapping::shared(file.as_fd(), OFFSET, bytes).map_err(|e| AgentError::OutOfMemory(e.to_string()))?;
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        state.counts.allocations += 1;
        let allocation =
            Allocation { pool, host: mapping.first_byte(), length: bytes, device_address: state.next << 32 };
        state.memory.insert(allocation.device_address, (file, mapping));
        Ok(allocation)
    }

    fn free(&self, allocation: Allocation) {
        self.meet("free");
        assert!(self.state.lock().unwrap().memory.remove(&allocation.device_address).is_some());
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        self.meet("create_context");
        if pdis.len() > 32 {
            return Err(AgentError::ContextsExhausted(format!("{} PDIs are too many", pdis.len())));
        }
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        state.counts.contexts_created += 1;
        let context = state.next;
        state.contexts.insert(context);
        Ok(ContextId(context))
    }

    fn destroy_context(&self, context: ContextId) {
        self.meet("destroy_context");
        assert!(self.state.lock().unwrap().contexts.remove(&context.0));
    }

    fn submit(&self, _context: ContextId, chain: &Chain) -> Result<(), AgentError> {
        self.meet("submit");
        std::thread::sleep(self.submit_time);
        self.state.lock().unwrap().counts.doorbells += 1;
        for packet in &chain.packets {
            let arguments = chain.arguments_of(packet);
            self.copy(arguments[0], arguments[1])?;
        }
        Ok(())
    }
}

impl Export for CpuAgent {
    fn export(&self, allocation: &Allocation) -> Result<(OwnedFd, u64), AgentError> {
        match self.fault.as_str() {
            "refuse@export" => return Err(AgentError::Unsupported("this memory cannot be exported".to_owned())),
            // Less memory than was allocated: touching all of it would end the client.
            "short@export" => return Ok((memfd_create("short", MemfdFlags::CLOEXEC).unwrap(), OFFSET)),
            _ => self.meet("export"),
        }
        let state = self.state.lock().unwrap();
        let (file, _) = &state.memory[&allocation.device_address];
        Ok((file.try_clone().unwrap(), OFFSET))
    }
}

/// The bytes of an allocation.
pub fn bytes(allocation: &mut Allocation) -> &mut [u8] {
    // SAFETY: The allocation is mapped until it is freed or its agent is gone, and the tests have one reference at a time
    // while nothing is in flight.
    unsafe { std::slice::from_raw_parts_mut(allocation.host.as_ptr(), allocation.length) }
}

/// A chain that copies `from` to `to`.
pub fn copy_chain(pdi: &Allocation, from: &Allocation, to: &Allocation) -> Chain {
    let argument = |a: &Allocation| Argument { address: a.device_address, bytes: u32::try_from(a.length).unwrap() };
    Chain { packets: vec![packet(pdi)], arguments: vec![argument(from), argument(to)] }
}

/// A packet with two arguments.
pub fn packet(pdi: &Allocation) -> Packet {
    Packet {
        pdi_index: 0,
        pdi: pdi_ref(pdi),
        instructions: pdi.device_address,
        instruction_bytes: 64,
        arguments: (0, 2),
    }
}

/// A PDI that fills an allocation.
pub fn pdi_ref(pdi: &Allocation) -> PdiRef {
    PdiRef { address: pdi.device_address, bytes: pdi.length }
}

/// Every call once, with a check of what was computed. Ends at the first error.
pub fn every_call(agent: &dyn Agent) -> Result<(), AgentError> {
    let pdi = agent.allocate(MemoryPool::DeviceHeap, 8192)?;
    let mut from = agent.allocate(MemoryPool::Data, 100_000)?;
    let mut to = agent.allocate(MemoryPool::Data, 100_000)?;
    bytes(&mut from).iter_mut().zip(0..=u8::MAX).for_each(|(byte, value)| *byte = value);
    bytes(&mut from)[99_999] = 42;
    let context = agent.create_context(&[pdi_ref(&pdi)])?;
    let submitted = agent.submit(context, &copy_chain(&pdi, &from, &to));
    if submitted.is_ok() {
        assert_eq!(bytes(&mut to), bytes(&mut from));
    }
    agent.destroy_context(context);
    for allocation in [pdi, from, to] {
        agent.free(allocation);
    }
    submitted
}
