//! The runtime: found, loaded and started once, and shared by everything that is open.
//!
//! ROCR is one per process, and starting it a second time while the first start is being undone would meet what the first one
//! left behind. So there is one session at a time: it lives as long as an NPU of it is open, and opening waits until a session
//! that ends has ended.

use crate::ert::ErtAgent;
use crate::interface::PacketInterface;
use crate::kernel_dispatch::KernelDispatchAgent;
use crate::library::{self, LibraryError, Named};
use crate::session::Session;
use aie_driver_xdna::agent::{Agent, AgentError, AgentInfo};
use aie_driver_xdna::discovery::Machine;
use aie_driver_xdna::limits::time_limit;
use aie_driver_xdna::npu::OpenNpu;
use aie_hal::error::Remedy;
use aie_hal::settings::AIE_HAL_ARCH_PATH;
use aie_hal::{Arch, ArchRegistry, Environment};
use hsa_sys::HsaApi;
use parking_lot::{Condvar, Mutex};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long opening waits for an earlier session to end.
const CLOSING_LIMIT: Duration = Duration::from_secs(30);

/// Why no runtime can be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// No library, or not the one that was named.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The library is not an HSA runtime.
    #[error("{}: {cause}", path.display())]
    Symbols {
        /// Its file.
        path: PathBuf,
        /// What is missing.
        cause: hsa_sys::MissingSymbols,
    },
    /// It cannot be used, and why.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Another library than the one that is named is in use.
    #[error(
        "{} names {}, and this process already has an NPU open with {}; there is one runtime in a process: close that NPU first, \
         or name the same library for both", named.source, named.path.display(), used.display()
    )]
    AnotherLibrary {
        /// What is requested.
        named: Named,
        /// What is in use.
        used: PathBuf,
    },
    /// It is used by a session that does not end.
    #[error("an earlier session with ROCR has not ended after {0:?}; restart the program")]
    Closing(Duration),
}

impl RuntimeError {
    /// What would make it usable, where that is known.
    pub(crate) fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Agent(cause) => cause.remedy(),
            _ => None,
        }
    }
}

struct Open {
    session: Weak<OpenRuntime>,
    /// Whether a session exists, also while it is ending.
    busy: bool,
}

static OPEN: Mutex<Open> = Mutex::new(Open { session: Weak::new(), busy: false });
static ENDED: Condvar = Condvar::new();

/// A session with its agents.
#[derive(Debug)]
pub(crate) struct OpenRuntime {
    /// Emptied before the session is declared ended.
    agents: Vec<Arc<dyn Agent>>,
    /// Those that are open, by agent.
    npus: Mutex<Vec<Weak<OpenNpu>>>,
}

impl OpenRuntime {
    /// The runtime of this process, started when it is not running; with the library that is `named`, if any. The machine has been checked by the discovery.
    pub(crate) fn open(named: Option<&Named>) -> Result<Arc<Self>, RuntimeError> {
        let mut open = OPEN.lock();
        loop {
            if let Some(runtime) = open.session.upgrade() {
                // Without the lock, which the end of a session takes.
                drop(open);
                return runtime.is_named(named);
            }
            if !open.busy {
                break;
            }
            if ENDED.wait_for(&mut open, CLOSING_LIMIT).timed_out() && open.busy {
                return Err(RuntimeError::Closing(CLOSING_LIMIT));
            }
        }
        let agents = start(named)?;
        let npus = Mutex::new(agents.iter().map(|_| Weak::new()).collect());
        let runtime = Arc::new(Self { agents, npus });
        open.session = Arc::downgrade(&runtime);
        open.busy = true;
        Ok(runtime)
    }

    /// Agent number `index` as an NPU of generation `arch`. All logical devices on it share the NPU.
    pub(crate) fn npu(self: &Arc<Self>, index: usize, arch: &Arc<Arch>) -> Option<Arc<OpenNpu>> {
        let agent = self.agents.get(index)?;
        let mut npus = self.npus.lock();
        Some(npus[index].upgrade().unwrap_or_else(|| {
            let npu = OpenNpu::new(Arc::clone(agent), Arc::clone(arch), Some(self.clone()));
            npus[index] = Arc::downgrade(&npu);
            npu
        }))
    }

    /// This session, unless it is of another library than the one that is named.
    fn is_named(self: Arc<Self>, named: Option<&Named>) -> Result<Arc<Self>, RuntimeError> {
        let used = self.agents.first().map(|agent| agent.info().library.clone()).unwrap_or_default();
        match named.filter(|named| !named.is(&used)) {
            None => Ok(self),
            Some(named) => Err(RuntimeError::AnotherLibrary { named: named.clone(), used }),
        }
    }

    pub(crate) fn agents(&self) -> &[Arc<dyn Agent>] {
        &self.agents
    }
}

impl Drop for OpenRuntime {
    fn drop(&mut self) {
        self.agents.clear();
        OPEN.lock().busy = false;
        ENDED.notify_all();
    }
}

/// Finds and starts the library.
fn start(named: Option<&Named>) -> Result<Vec<Arc<dyn Agent>>, RuntimeError> {
    let found = library::find(named, Environment::process())?;
    tracing::info!("HSA runtime: {}", found.path.display());
    let path = found.path;
    // SAFETY: the library was found under the names of AMD's HSA runtime or named by the user as being it.
    let api = unsafe { HsaApi::load(found.library) };
    let api = api.map_err(|cause| RuntimeError::Symbols { path: path.clone(), cause })?;
    probe_kfd()?;
    let session = Arc::new(Session::start(api, &path)?);
    let limit = time_limit();
    let (arches, _) = ArchRegistry::from_environment();
    let mut agents: Vec<Arc<dyn Agent>> = Vec::new();
    for discovered in session.agents()? {
        let session = Arc::clone(&session);
        agents.push(match session.interface() {
            PacketInterface::Ert => {
                let arch = arches.get(&discovered.info.name).ok_or_else(|| unknown(&discovered.info, &arches))?;
                Arc::new(ErtAgent::open(session, discovered, &arch, limit)?)
            }
            PacketInterface::KernelDispatch => Arc::new(KernelDispatchAgent::open(session, discovered, limit)?),
        });
    }
    if agents.is_empty() {
        return Err(RuntimeError::Agent(AgentError::Lost(format!(
            "{} ({}) offers no agent of an NPU, though the kernel driver does; this is a bug of one of them or of this driver",
            session.library().display(),
            session.version()
        ))));
    }
    Ok(agents)
}

/// An agent of a generation without an arch file.
fn unknown(agent: &AgentInfo, arches: &ArchRegistry) -> AgentError {
    AgentError::Unsupported(format!(
        "{} has an agent `{}`, and no arch file has that name; known generations: {}; a file for it in a directory that \
         {AIE_HAL_ARCH_PATH} names enables it",
        agent.library.display(),
        agent.name,
        arches.names().collect::<Vec<_>>().join(", ")
    ))
}

/// `AMDKFD_IOC_GET_VERSION` of kfd_ioctl.h: reads two 32-bit numbers, major and minor.
const GET_VERSION: u32 = 0x8008_4b01;

/// Opens KFD and asks for its version, as ROCR is about to do: it ends the process when either fails, because without a CPU agent
/// from KFD it has no memory for its own signals. The discovery has only checked that the node is there and may be opened.
fn probe_kfd() -> Result<(), AgentError> {
    let path = Machine::this().kfd();
    let failed = |what: &str, cause: io::Error| {
        AgentError::Lost(format!(
            "{}: {what}: {cause}; ROCR needs KFD even for an NPU and would end the process; check the amdgpu kernel module and \
             the kernel's log",
            path.display()
        ))
    };
    let node =
        OpenOptions::new().read(true).write(true).open(&path).map_err(|cause| failed("cannot be opened", cause))?;
    let mut version = [0_u32; 2];
    // SAFETY: the request writes two 32-bit numbers.
    match unsafe { libc::ioctl(node.as_raw_fd(), GET_VERSION as _, version.as_mut_ptr()) } {
        0.. => Ok(()),
        _ => Err(failed("its version cannot be queried", io::Error::last_os_error())),
    }
}
