//! What the tests share: the library, loaded once more for every test so that each has a process's state of its own, and an
//! agent with kernels and memory.

use aie_conformance::kernels::TestKernel;
use aie_driver_rocr::interface::PacketInterface;
use aie_driver_rocr::kernel_dispatch::KernelDispatchAgent;
use aie_driver_rocr::session::{Discovered, Session};
use aie_driver_xdna::agent::{Agent, AgentError, Allocation, Chain, ContextId, Packet, PdiRef};
use aie_hal::{Arch, ArchRegistry, KernelArtifact, MemoryPool};
use hsa_sys::HsaApi;
use libloading::Library;
use serde_json::Value;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn library_file() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("libhsa_stand_in.so")).find(|file| file.exists());
    found.unwrap_or_else(|| {
        panic!(
            "there is no libhsa_stand_in.so beside {}; build it: cargo build -p hsa-stand-in-library",
            test.display()
        )
    })
}

/// Loads a copy of the library with `settings`, lines of `NAME=VALUE` without the common prefix.
pub fn load(settings: &[&str]) -> HsaApi {
    let folder = tempfile::tempdir().unwrap();
    // Another file is another library for the loader, with variables of its own.
    let copy = folder.path().join("libhsa_stand_in.so");
    std::fs::copy(library_file(), &copy).unwrap();
    let text: String = settings.iter().map(|line| format!("HSA_STAND_IN_{line}\n")).collect();
    // SAFETY: Loading it runs nothing but the Rust runtime's own set-up.
    let library = unsafe { Library::new(&copy) }.unwrap();
    // SAFETY: The function takes a C string and returns nothing.
    unsafe {
        let configure = library.get::<unsafe extern "C" fn(*const c_char)>("hsa_stand_in_configure").unwrap();
        configure(CString::new(text).unwrap().as_ptr());
    }
    // SAFETY: It was written to be compatible.
    unsafe { HsaApi::load(library) }.unwrap()
}

pub fn session(settings: &[&str]) -> Result<Session, AgentError> {
    Session::start(load(settings), Path::new("libhsa_stand_in.so"))
}

pub fn report(session: &Session) -> Value {
    // SAFETY: The function takes a buffer and its length, and returns the length it needs.
    unsafe {
        let library = session.api().library();
        let report = library.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>("hsa_stand_in_report").unwrap();
        let mut text = vec![0_u8; report(std::ptr::null_mut(), 0)];
        let needed = report(text.as_mut_ptr().cast(), text.len());
        assert_eq!(needed, text.len(), "nothing happens meanwhile");
        serde_json::from_slice(&text[..needed - 1]).unwrap()
    }
}

/// A kernel in the device heap.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    pdi: PdiRef,
    instructions: u64,
    instruction_bytes: usize,
}

pub struct Rig {
    pub session: Arc<Session>,
    pub agent: KernelDispatchAgent,
    pub arch: Arc<Arch>,
}

/// Bytes of the buffers that tests use.
pub const BYTES: usize = 256;

impl Rig {
    pub fn new(settings: &[&str]) -> Self {
        Self::with_limit(settings, Duration::from_secs(20))
    }

    pub fn with_limit(settings: &[&str], limit: Duration) -> Self {
        let session = Arc::new(session(settings).unwrap());
        assert_eq!(session.interface(), PacketInterface::KernelDispatch);
        let discovered = session.agents().unwrap().remove(0);
        Self::of(session, discovered, limit)
    }

    /// With one agent of a session.
    pub fn of(session: Arc<Session>, discovered: Discovered, limit: Duration) -> Self {
        let arch = ArchRegistry::builtin().get(&discovered.info.name).unwrap();
        let agent = KernelDispatchAgent::open(Arc::clone(&session), discovered, limit).unwrap();
        Self { session, agent, arch }
    }

    pub fn place(&self, pool: MemoryPool, bytes: &[u8]) -> Allocation {
        let allocation = self.agent.allocate(pool, bytes.len()).unwrap();
        // SAFETY: The allocation has this length and is not shared yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), allocation.host.as_ptr(), bytes.len()) };
        allocation
    }

    /// The bytes of an allocation that no command uses now.
    pub fn bytes(&self, allocation: &Allocation) -> Vec<u8> {
        let mut bytes = vec![0; allocation.length];
        // SAFETY: The allocation has this length, and no command is in flight.
        unsafe { std::ptr::copy_nonoverlapping(allocation.host.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    pub fn load(&self, kernel: &TestKernel) -> Loaded {
        self.load_artifact(&kernel.artifact(&self.arch))
    }

    pub fn load_artifact(&self, artifact: &KernelArtifact) -> Loaded {
        let pdi = self.place(MemoryPool::DeviceHeap, artifact.pdi());
        let instructions = self.place(MemoryPool::DeviceHeap, artifact.instructions());
        Loaded {
            pdi: PdiRef { address: pdi.device_address, bytes: artifact.pdi().len() },
            instructions: instructions.device_address,
            instruction_bytes: artifact.instructions().len(),
        }
    }

    pub fn context(&self, kernels: &[Loaded]) -> Result<ContextId, AgentError> {
        self.agent.create_context(&kernels.iter().map(|kernel| kernel.pdi).collect::<Vec<_>>())
    }

    /// A kernel that adds 1, alone in its context, and a buffer of zeros.
    pub fn adder(&self) -> (Loaded, ContextId, Allocation) {
        let kernel = self.load(&TestKernel::Add8(1));
        (kernel, self.context(&[kernel]).unwrap(), self.place(MemoryPool::Data, &[0; BYTES]))
    }

    /// Runs kernels one after the other on `buffer`, in place. `held` are the context's, in its order.
    pub fn run_of(
        &self,
        (context, held): (ContextId, &[Loaded]),
        kernels: &[Loaded],
        buffer: &Allocation,
    ) -> Result<(), AgentError> {
        let mut chain = Chain::default();
        for kernel in kernels {
            let index = held.iter().position(|held| held.pdi == kernel.pdi).unwrap_or(held.len());
            let start = chain.arguments.len();
            let whole = buffer.device_address..buffer.device_address + buffer.length as u64;
            chain.arguments.extend([whole.clone(), whole]);
            chain.packets.push(Packet {
                pdi_index: index,
                pdi: kernel.pdi,
                instructions: kernel.instructions,
                instruction_bytes: kernel.instruction_bytes,
                arguments: (start, 2),
            });
        }
        self.agent.start(context, &chain).map(drop)
    }

    /// As [`Rig::run_of`] in a context that holds nothing but the first of `kernels`.
    pub fn run(&self, context: ContextId, kernels: &[Loaded], buffer: &Allocation) -> Result<(), AgentError> {
        self.run_of((context, &kernels[..1]), kernels, buffer)
    }

    pub fn report(&self) -> Value {
        report(&self.session)
    }
}
