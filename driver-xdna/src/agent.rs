//! What this driver asks of the runtime below it: one NPU, as an HSA agent offers it.
//!
//! Everything above this trait (pools, contexts, queues, the HAL objects) is the same for every runtime. Below it are the
//! packet interfaces that ROCR has had. The trait is small and blocking on purpose: ROCR's own doorbell is synchronous.
//!
//! The driver above never calls [`Agent::start`], [`Agent::create_context`] and [`Agent::destroy_context`] from two threads
//! at a time; the memory functions may be called from any thread at any time.

use aie_device_memory::Span;
use aie_hal::error::Remedy;
use aie_hal::{Clocks, MemoryPool, OwningProcess};
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;

/// How long the end of the process waits for a call that is under way.
pub const AT_EXIT_LIMIT: Duration = Duration::from_secs(2);

/// PDIs that the mask of a command can name.
const COMPUTE_UNITS: usize = 32;

/// Who an agent is and what it refuses to exceed. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    /// HSA's name of it: `aie2`, `aie2p`.
    pub name: String,
    /// The runtime library that offers it; on the direct way its accel node.
    pub library: PathBuf,
    /// What the runtime says of its version.
    pub runtime: String,
    /// Whether each instruction stream needs an allocation of its own, because the runtime finds it by the allocation's address.
    pub streams_apart: bool,
    /// Size of the data pool.
    pub data_bytes: u64,
    /// Allocation granule of the data pool.
    pub data_granule: usize,
    /// Size of the device heap.
    pub heap_bytes: usize,
}

/// Memory of a pool: mapped for the host, known to the device. Released with [`Agent::free`] by its holder.
#[derive(Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The pool it is from.
    pub pool: MemoryPool,
    /// First byte in this process.
    pub host: NonNull<u8>,
    /// Length in bytes: what was requested.
    pub length: usize,
    /// Address that packets name.
    pub device_address: u64,
}

// SAFETY: An allocation is a description of memory that belongs to no thread; what is done with the bytes is up to the
// regions made of it.
unsafe impl Send for Allocation {}
// SAFETY: As for `Send`; there is nothing that could be changed through a shared reference.
unsafe impl Sync for Allocation {}

/// An allocation that is returned to its agent when this is dropped.
pub(crate) struct Held {
    agent: Arc<dyn Agent>,
    /// Taken only by `drop`.
    allocation: Option<Allocation>,
}

impl Held {
    pub(crate) fn new(agent: &Arc<dyn Agent>, allocation: Allocation) -> Self {
        Self { agent: Arc::clone(agent), allocation: Some(allocation) }
    }
}

impl Deref for Held {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        self.allocation.as_ref().expect("only `drop` takes it")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            self.agent.free(allocation);
        }
    }
}

/// A hardware context of an agent, by a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u64);

/// A PDI in the device heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PdiRef {
    /// Device address of its first byte: that of an [`Allocation`] of the device heap.
    pub address: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// One dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Index of its PDI in the context's list.
    pub pdi_index: usize,
    /// The PDI itself.
    pub pdi: PdiRef,
    /// Device address of the instruction stream, in the device heap.
    pub instructions: u64,
    /// Its length in bytes.
    pub instruction_bytes: usize,
    /// Its arguments in [`Chain::arguments`]: start and number.
    pub arguments: (usize, usize),
}

/// Dispatches that one doorbell sends, in order. Kept and refilled, so that submitting seldom allocates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// The dispatches: at least one, and no more than the limits of the generation allow.
    pub packets: Vec<Packet>,
    /// The arguments of all packets: device addresses in data memory, each no longer than 32 bits can say.
    pub arguments: Vec<Range<u64>>,
}

impl Chain {
    /// Forgets the packets and keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.arguments.clear();
    }

    /// Whether a command can be written for each packet, in one chain of at most `limit`.
    ///
    /// # Errors
    /// [`AgentError::Failed`] for a chain that is empty or too long, and for a PDI that no command can name.
    pub fn check(&self, limit: usize) -> Result<(), AgentError> {
        let count = self.packets.len();
        if count == 0 || count > limit {
            return Err(AgentError::failed(format!(
                "a chain of {count} dispatches; at least 1 and at most {limit} are possible"
            )));
        }
        match self.packets.iter().find(|packet| packet.pdi_index >= COMPUTE_UNITS) {
            Some(Packet { pdi_index, .. }) => {
                Err(AgentError::failed(format!("PDI number {pdi_index} of a context; {COMPUTE_UNITS} are possible")))
            }
            None => Ok(()),
        }
    }

    /// The arguments of one packet.
    pub fn arguments_of(&self, packet: &Packet) -> &[Range<u64>] {
        let (start, count) = packet.arguments;
        &self.arguments[start..start + count]
    }
}

/// Why a request to the runtime or the kernel driver failed.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentError {
    /// A pool has no room, or the kernel driver rejected memory.
    #[error("{0}")]
    OutOfMemory(String),
    /// No further hardware context now; fewer may do.
    #[error("{reason}")]
    ContextsExhausted {
        /// Who holds them, as far as the kernel driver says so.
        reason: String,
        /// What would give one back, where that is known.
        remedy: Option<Remedy>,
    },
    /// A command never signalled, and the kernel driver or this driver gave up on it.
    #[error("{reason}")]
    Timeout {
        /// Index of the command in its chain, when known.
        command: Option<usize>,
        /// What was seen.
        reason: String,
    },
    /// A command ran and failed. The context it ran in cannot be trusted and is to be destroyed.
    #[error("{reason}")]
    Failed {
        /// Index of the command in its chain, when known.
        command: Option<usize>,
        /// What was seen.
        reason: String,
    },
    /// The device is gone for good.
    #[error("{0}")]
    Lost(String),
    /// The runtime does not offer this.
    #[error("{0}")]
    Unsupported(String),
    /// The machine, as it is set up, does not let this process use the device.
    #[error("{reason}")]
    Unusable {
        /// What was tried, and what would have to change.
        reason: String,
        /// What would have to change.
        remedy: Remedy,
    },
}

impl AgentError {
    /// A failure of no command in particular.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { command: None, reason: reason.into() }
    }

    /// What would let the device be opened when opening it fails with this.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            // The kernel driver locks what it gives to an NPU.
            Self::OutOfMemory(_) => Some(Remedy::LockableMemory),
            Self::ContextsExhausted { remedy, .. } => *remedy,
            Self::Unusable { remedy, .. } => Some(*remedy),
            Self::Timeout { .. } | Self::Failed { .. } | Self::Lost(_) | Self::Unsupported(_) => None,
        }
    }
}

/// What every agent remembers of itself: who it is, whether it is lost, and how many contexts were created. Thread-safe.
#[derive(Debug)]
pub struct AgentStatus {
    /// Who it is.
    pub info: AgentInfo,
    lost: OnceLock<String>,
    /// Contexts that were created for it so far.
    pub contexts_created: AtomicU64,
    owner: OwningProcess,
}

impl AgentStatus {
    /// Of an agent that has done nothing yet.
    pub fn new(info: AgentInfo) -> Self {
        let owner = OwningProcess::current();
        Self { info, lost: OnceLock::new(), contexts_created: AtomicU64::new(0), owner }
    }

    /// Whether calls can be made.
    ///
    /// # Errors
    /// [`AgentError::Lost`] with the first cause, also in a forked child of the process that opened the agent.
    pub fn alive(&self) -> Result<(), AgentError> {
        if self.is_inherited() {
            let parent = self.owner.id();
            return Err(AgentError::Lost(format!(
                "the NPU was opened by process {parent}, and a forked child cannot use it; start a program instead, or fork before \
                 the NPU is opened"
            )));
        }
        self.lost.get().map_or(Ok(()), |cause| Err(AgentError::Lost(cause.clone())))
    }

    /// Whether this is a forked child of the process that opened the agent: what the kernel holds for it is the parent's.
    pub fn is_inherited(&self) -> bool {
        !self.owner.is_current()
    }

    /// Whether the agent is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// The agent is lost; the error has the first cause.
    pub fn lose(&self, cause: String) -> AgentError {
        AgentError::Lost(self.lost.get_or_init(|| cause).clone())
    }
}

/// Maintenance of cache lines, for a device that does not look into the caches of the host. Thread-safe.
pub trait Caches: Send + Sync {
    /// Makes what the host has written visible to the device.
    fn write_back(&self, span: Span<'_>);
    /// Makes what the device has written visible to the host, which has written nothing there since it last wrote back.
    fn invalidate(&self, span: Span<'_>);
}

/// The caches of this machine's CPU.
#[derive(Debug, Clone, Copy)]
pub struct CpuCaches;

impl Caches for CpuCaches {
    fn write_back(&self, span: Span<'_>) {
        span.write_back();
    }

    fn invalidate(&self, span: Span<'_>) {
        span.invalidate();
    }
}

/// One NPU of a runtime. Closed when the last reference goes.
pub trait Agent: Send + Sync + Debug {
    /// Who it is.
    fn info(&self) -> &AgentInfo;
    /// Contexts that the kernel driver has created for it since it was opened, as far as this driver can see.
    fn contexts_created(&self) -> u64;
    /// How fast it runs now, if the runtime says so.
    fn clocks(&self) -> Option<Clocks> {
        None
    }
    /// Allocates pool memory. It holds zeros when it was never used before.
    ///
    /// # Errors
    /// [`AgentError::OutOfMemory`], [`AgentError::Lost`].
    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError>;
    /// Gives an allocation of this agent back. Nothing in flight may use it. Problems are logged: there is nothing a caller
    /// could do.
    fn free(&self, allocation: Allocation);
    /// Creates a context that holds `pdis`, no more than the generation allows. They stay allocated while the context exists.
    ///
    /// # Errors
    /// [`AgentError::ContextsExhausted`], [`AgentError::OutOfMemory`], [`AgentError::Failed`], [`AgentError::Lost`].
    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError>;
    /// Destroys a context. Problems are logged.
    fn destroy_context(&self, context: ContextId);
    /// How many chains of one context can be under way. With 1 a chain has ended when [`Agent::start`] returns.
    fn chains_ahead(&self) -> usize {
        1
    }
    /// Starts `chain` in `context` with one doorbell; returns its number. Chains of one context run in the order in which they were
    /// started. Every number has to be handed to [`Agent::finish`], in that order.
    ///
    /// # Errors
    /// [`AgentError::Timeout`] and [`AgentError::Failed`] (commands before the named one have run, those behind it have
    /// not), [`AgentError::OutOfMemory`], [`AgentError::Lost`]; the chain was not started then, except where it has ended when
    /// this returns.
    fn start(&self, context: ContextId, chain: &Chain) -> Result<u64, AgentError>;
    /// Waits until the chain with this number has ended. May be called by several threads.
    ///
    /// # Errors
    /// As [`Agent::start`]. The context is to be destroyed then, before memory that the chain uses is reused: the
    /// device may still be running.
    fn finish(&self, context: ContextId, number: u64) -> Result<(), AgentError> {
        let _ = (context, number);
        Ok(())
    }
    /// How the driver above maintains cache lines of data memory; `None` where the runtime does so itself, for every argument around
    /// every chain.
    fn caches(&self) -> Option<&dyn Caches> {
        None
    }
    /// Makes `bytes` bytes of the program's own memory usable, whole pages from `address` on. [`Agent::free`] ends that.
    ///
    /// # Errors
    /// [`AgentError::Unsupported`] where runtime or kernel driver cannot, [`AgentError::Lost`].
    ///
    /// # Safety
    /// The memory stays mapped until then.
    unsafe fn import(&self, address: NonNull<u8>, bytes: usize) -> Result<Allocation, AgentError> {
        let _ = address;
        Err(AgentError::Unsupported(format!("this runtime cannot use {bytes} bytes of the program's own memory")))
    }
    /// Why files that are mapped for reading, as llama.cpp maps models, cannot be imported; `None` when they can.
    fn why_files_are_copied(&self) -> Option<&str> {
        Some("AMD's runtime takes no memory of the program's")
    }
    /// The process ends: releases what the runtime and the kernel driver hold for this agent, as far as no one can be using
    /// it. Data memory that is still allocated stays mapped, because its owner may still look at it. Afterwards every call
    /// is an error, and giving memory back does nothing.
    fn close(&self) {}
}
