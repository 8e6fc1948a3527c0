//! An agent that lives in a helper process.

use super::connection::{Answered, Connection};
use super::heap::WholeFiles;
use super::locate::Places;
use super::process::HostProcess;
use super::wire::{Answer, Call};
use super::{Mapping, MappingError, StartError, TimeLimits};
use crate::agent::{Agent, AgentCounts, AgentError, AgentInfo, Allocation, Chain, ContextId, PdiRef};
use aie_hal::MemoryPool;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

/// How the helper is started.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Its executable or a wrapper script that executes it. None: it is searched for.
    pub program: Option<PathBuf>,
    /// Environment variables it gets besides those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// How long calls may take.
    pub limits: TimeLimits,
}

impl HostOptions {
    /// What the environment asks for.
    ///
    /// # Errors
    /// [`StartError::TimeLimit`].
    pub fn from_env() -> Result<Self, StartError> {
        Ok(Self { program: None, environment: Vec::new(), limits: TimeLimits::from_env()? })
    }
}

/// One agent of a runtime in another process. Thread-safe. Its allocations are shared memory: nothing is copied.
///
/// When the process dies, breaks the protocol or keeps a call longer than its limit, every call in flight and every later
/// one gives [`AgentError::Lost`] with the first cause; memory stays mapped and readable. When the last agent of a helper
/// goes, the helper is told to end, and killed if it does not. What was not given back is then unmapped.
#[derive(Debug)]
pub struct IsolatedAgent {
    connection: Arc<Connection>,
    index: u32,
    info: AgentInfo,
    counts: Mutex<AgentCounts>,
    /// The device heap.
    heap: WholeFiles,
    /// By address of the first byte.
    allocations: Mutex<HashMap<NonZeroUsize, Held>>,
}

#[derive(Debug)]
struct Held {
    /// The server's number of it.
    id: u64,
    /// Where it lies, or the heap that it lies in.
    mapping: Arc<Mapping>,
}

impl IsolatedAgent {
    /// Starts a helper and gives the agents it found.
    ///
    /// # Errors
    /// No helper, one that does not start, speaks another version, dies, or finds no runtime: each with its reason.
    pub fn start(options: &HostOptions) -> Result<Vec<Arc<Self>>, StartError> {
        let program = Places::of_this_process(options.program.clone()).find()?;
        let pair = UnixStream::pair().map_err(|source| StartError::Spawn { program: program.clone(), source });
        let (ours, theirs) = pair?;
        let process = HostProcess::spawn(&program, &options.environment, theirs)?;
        Self::open(ours, Some(process), options.limits)
    }

    /// The agents of a server at the other end of `stream`, which is no process of ours: nobody is killed or reaped.
    ///
    /// # Errors
    /// A server that speaks another version, is gone, or finds no runtime.
    pub fn connect(stream: UnixStream, limits: TimeLimits) -> Result<Vec<Arc<Self>>, StartError> {
        Self::open(stream, None, limits)
    }

    fn open(
        stream: UnixStream,
        process: Option<HostProcess>,
        limits: TimeLimits,
    ) -> Result<Vec<Arc<Self>>, StartError> {
        let (connection, agents) = Connection::open(stream, process, limits)?;
        let connection = Arc::new(connection);
        let agent = |(index, info)| {
            Arc::new(Self {
                connection: Arc::clone(&connection),
                index,
                info,
                counts: Mutex::default(),
                heap: WholeFiles::default(),
                allocations: Mutex::default(),
            })
        };
        Ok((0..).zip(agents).map(agent).collect())
    }

    /// The helper's process id; none for an agent made by [`IsolatedAgent::connect`].
    pub fn host_process_id(&self) -> Option<u32> {
        self.connection.process_id()
    }

    fn call(&self, call: Call) -> Result<Answered, AgentError> {
        self.connection.call(self.index, call, |counts| counts.merge_into(&mut self.counts.lock()))
    }

    fn done(&self, call: Call) -> Result<(), AgentError> {
        let name = call.name();
        match self.call(call)?.answer {
            Answer::Done => Ok(()),
            other => Err(self.connection.breach(name, &format!("with {other:?}"))),
        }
    }

    /// Maps `bytes` bytes from byte `offset` of `file`.
    fn map(
        &self,
        pool: MemoryPool,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> Result<(Arc<Mapping>, NonNull<u8>), MappingError> {
        if bytes > 0 && pool == MemoryPool::DeviceHeap {
            let heap = self.heap.map(file)?;
            let first = heap.part(offset, bytes)?;
            return Ok((heap, first));
        }
        let mapping = Mapping::shared(file, offset, bytes)?;
        let first = mapping.first_byte();
        Ok((Arc::new(mapping), first))
    }

    /// Problems of calls that give no result.
    fn log(&self, what: &str, result: Result<(), AgentError>) {
        match result {
            // Said once, by whoever meets it in a call that has a result.
            Err(AgentError::Lost(reason)) => tracing::debug!(reason, "{what} in a helper process that is gone"),
            Err(error) => tracing::warn!(%error, "{what} failed in the helper process"),
            Ok(()) => {}
        }
    }
}

impl Agent for IsolatedAgent {
    fn info(&self) -> &AgentInfo {
        &self.info
    }

    fn counts(&self) -> AgentCounts {
        *self.counts.lock()
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        let call = Call::Allocate { pool: pool.into(), bytes: bytes as u64 };
        let name = call.name();
        let Answered { answer, descriptor } = self.call(call)?;
        let (Answer::Allocated { allocation: id, length, device_address, offset }, Some(descriptor)) =
            (answer, descriptor)
        else {
            return Err(self.connection.breach(name, "without memory"));
        };
        if length != bytes as u64 {
            return Err(self.connection.breach(name, &format!("of {bytes} bytes with {length} bytes")));
        }
        match self.map(pool, descriptor.as_fd(), offset, bytes) {
            Ok((mapping, host)) => {
                self.allocations.lock().insert(host.addr(), Held { id, mapping });
                Ok(Allocation { pool, host, length: bytes, device_address })
            }
            Err(error) => {
                self.log("giving back memory that was not mapped", self.done(Call::Free { allocation: id }));
                Err(AgentError::OutOfMemory(format!("{} memory of the helper process: {error}", pool.name())))
            }
        }
    }

    fn free(&self, allocation: Allocation) {
        let held = self.allocations.lock().remove(&allocation.host.addr());
        match held {
            Some(Held { id, mapping }) => {
                drop(mapping);
                self.log("giving back memory", self.done(Call::Free { allocation: id }));
            }
            None => tracing::warn!(?allocation, "memory that is not of this agent was given back to it"),
        }
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        let pdis = pdis.iter().map(|pdi| (pdi.address, pdi.bytes as u64)).collect();
        let call = Call::CreateContext { pdis };
        let name = call.name();
        match self.call(call)?.answer {
            Answer::Context(context) => Ok(ContextId(context)),
            other => Err(self.connection.breach(name, &format!("with {other:?}"))),
        }
    }

    fn destroy_context(&self, context: ContextId) {
        self.log("destroying a context", self.done(Call::DestroyContext { context: context.0 }));
    }

    fn submit(&self, context: ContextId, chain: &Chain) -> Result<(), AgentError> {
        self.done(Call::submit(context, chain))
    }

    /// Ends the helper, and so all of its agents: they are closed together, when the process ends.
    fn close(&self) {
        self.connection.close();
    }
}
