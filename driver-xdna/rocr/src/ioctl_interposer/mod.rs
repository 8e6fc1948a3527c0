//! The ioctl interposer between ROCR 7.0 to 7.2 and the kernel driver.
//!
//! The XDNA part of these releases cannot be used as it is. Found with Debian's 7.2.4, by running it; number 4 by reading its
//! code, and of number 2 what follows from a stale list:
//!
//! 1. It makes a new hardware context for every doorbell, because it files its list of PDIs under the old context's handle.
//! 2. Handles wrap at 255. After that a stale list is found: commands name the wrong PDI, or the list overflows and an assert
//!    ends the process.
//! 3. The first doorbell of a second queue finds the first queue's list, makes no context, and an assert ends the process. So a
//!    queue cannot be replaced.
//! 4. An address inside a buffer is not found when no other buffer lies above it; an assert ends the process.
//! 5. The state of a command is never checked: a chain that timed out or was aborted counts as done.
//! 6. An error of any kernel call in a doorbell ends the process.
//! 7. The last two words of a command's payload are not copied: sizes of arguments, and without arguments the instructions'
//!    size and half of their address. ROCR gets 0 for all sizes, because it writes back and invalidates whatever has one,
//!    all of it around every chain; the driver above does what is needed.
//! 8. Instructions in the second and in the last quarter of the device heap are looked for in the quarter before: bit 24 of
//!    their address is lost.
//!
//! All of them sit between the packet processor and the kernel calls it makes. So this driver takes that place: the slots
//! through which libhsa imports `ioctl`, `mmap` and `munmap` lead here (`import_slots`). The library itself is the one that is
//! installed, unchanged, and its calls pass through, with these exceptions, all of them in a thread that has asked for it:
//!
//! - While a doorbell is rung, command buffers come from a [`CommandBuffers`] pool that was filled before, so that nothing in
//!   the doorbell can fail but the execution itself. This also saves five kernel calls per dispatch.
//! - ROCR's context calls are answered here with one constant handle, and every packet names one and the same PDI, so its
//!   list has one entry forever. The contexts that exist are made by this driver, when its planner wants them.
//! - At `EXEC_CMD` the real context, the real compute units, the missing words, padding and the address of the instructions are
//!   filled in. In place of `WAIT_CMD`, which mainline kernels do not have for these NPUs, the interposer waits with the
//!   [`WaitMethod`] this kernel has, and reads the states. The outcome goes to the caller of the doorbell; ROCR always hears of success.
//! - ROCR's commands have the process's addresses of the arguments. The device's are filled in where the kernel driver gives out
//!   its own (`force_iova`).
//! - Buffers that are sub-allocated are mapped at an address of this driver's choice, below a last buffer ([`Observed`]).
//!
//! Later releases of ROCR, which use another packet interface, are used without an interposer.

mod doorbell;
mod hooks;
mod import_slots;

pub(crate) use doorbell::CommandBuffers;
use doorbell::Ringing;

use aie_driver_xdna::accel::completion::WaitMethod;
use aie_driver_xdna::accel::context::HardwareContext;
use aie_driver_xdna::accel::device::ChainError;
use aie_driver_xdna::accel::node::Node;
use aie_driver_xdna::agent::{AgentError, Chain};
use hsa_sys::HsaApi;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::c_long;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Handle that ROCR gets for its one placeholder context. Not 0, which is none, and none of the kernel driver's, which are small.
const PLACEHOLDER_CONTEXT: u32 = 0x4145_4931;
/// Sessions that one start of ROCR can serve: the entries of its list of PDIs.
const SESSIONS: usize = 31;

/// Why the interposer could not be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterposerError {
    /// The library does not import what the interposer replaces.
    #[error("the library does not import {0}")]
    NoImport(&'static str),
    /// There is an interposer for one library in a process, and another one has it.
    #[error("another HSA runtime library is in use in this process")]
    AnotherLibrary,
    /// The slot could not be written.
    #[error("the import of {name} cannot be replaced: {cause}")]
    Sealed {
        /// The function.
        name: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// The interposer of this process. It stays in place for the rest of it; sessions come and go.
#[derive(Debug)]
pub(crate) struct Interposer {
    /// ROCR's descriptor of the accel node; -1 until its first request.
    descriptor: AtomicI32,
    /// Buffers that served as the placeholder PDI since ROCR opened the node: it remembers them even after a session has ended, when
    /// somebody else in the process keeps it running.
    placeholders: Mutex<Vec<u32>>,
}

static INTERPOSER: OnceLock<Interposer> = OnceLock::new();
/// Address of `hsa_init` of the library whose calls pass here, once all of them do.
static INSTALLED: Mutex<Option<usize>> = Mutex::new(None);

thread_local! {
    // Without a destructor: one would end it before the handlers that run at the end of the process, and libhsa's calls there
    // come through here too.
    static ACTIVITY: RefCell<ManuallyDrop<Activity>> = const { RefCell::new(ManuallyDrop::new(Activity::None)) };
}

/// Looks at what this thread is doing, for a hook. The hooks do not call each other, so no one else looks at the time.
fn with_activity<R>(look: impl FnOnce(&mut Activity) -> R) -> R {
    ACTIVITY.with_borrow_mut(|activity| look(activity))
}

/// Puts another activity in place; returns what was there.
fn set_activity(activity: Activity) -> Activity {
    ManuallyDrop::into_inner(ACTIVITY.replace(ManuallyDrop::new(activity)))
}

/// What this thread asked ROCR for, and the interposer has to know.
enum Activity {
    None,
    Observing(Observation),
    Ringing(Box<Ringing>),
}

#[derive(Default)]
struct Observation {
    /// Where the mapping has to lie.
    place: Option<Range<usize>>,
    /// Whether there is a mapping in it.
    mapped: bool,
    observed: Observed,
}

/// What an allocation of ROCR's did below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Handle of the buffer object it made.
    pub(crate) buffer: Option<u32>,
    /// Whether ROCR unmapped memory itself.
    pub(crate) unmapped: bool,
}

impl Interposer {
    /// Installs the interposer, once per process. `api` is that of the library whose calls are to pass here.
    ///
    /// # Errors
    /// [`InterposerError`]; nothing was replaced then, or only what passes calls through.
    pub(crate) fn install(api: &HsaApi) -> Result<&'static Self, InterposerError> {
        const NAMES: [&str; 3] = ["ioctl", "mmap", "munmap"];
        let mut installed = INSTALLED.lock();
        let library = api.hsa_init as *const () as usize;
        let interposer =
            INTERPOSER.get_or_init(|| Self { descriptor: AtomicI32::new(-1), placeholders: Mutex::default() });
        match *installed {
            Some(earlier) if earlier == library => return Ok(interposer),
            Some(_) => return Err(InterposerError::AnotherLibrary),
            None => {}
        }
        let slots = import_slots::find(library, NAMES);
        let hooks = [
            hooks::ioctl as *const () as usize,
            hooks::mmap as *const () as usize,
            hooks::munmap as *const () as usize,
        ];
        for (name, slot) in NAMES.into_iter().zip(slots) {
            slot.ok_or(InterposerError::NoImport(name))?;
        }
        for ((name, slot), hook) in NAMES.into_iter().zip(slots.into_iter().flatten()).zip(hooks) {
            // SAFETY: each hook has the type of the function it stands for, and this library is never unloaded while ROCR is
            // in use: it holds ROCR.
            unsafe { slot.set(hook) }.map_err(|cause| InterposerError::Sealed { name, cause })?;
        }
        *installed = Some(library);
        Ok(interposer)
    }

    /// ROCR has closed its descriptor, or is about to open a new one.
    pub(crate) fn forget_descriptor(&self) {
        self.descriptor.store(-1, Ordering::Relaxed);
    }

    /// Allocates with `allocate` until the buffer is one that ROCR has not seen as a PDI, gives the others back with `free`.
    /// ROCR makes no context for a queue whose first PDIs it knows, and then ends the process.
    ///
    /// # Errors
    /// That of `allocate`; [`AgentError::ContextsExhausted`] when ROCR's list has no room for another.
    pub(crate) fn allocate_placeholder<T>(
        &self,
        mut allocate: impl FnMut() -> Result<T, AgentError>,
        mut free: impl FnMut(T),
    ) -> Result<T, AgentError> {
        let mut rejected = Vec::new();
        let result = loop {
            if self.placeholders.lock().len() >= SESSIONS {
                let reason =
                    format!("it has served {SESSIONS} sessions in this process and can serve no more; restart it");
                break Err(AgentError::ContextsExhausted { reason, remedy: None });
            }
            let (made, observed) = self.observe(None, &mut allocate);
            match (made, observed.buffer) {
                (Err(cause), _) => break Err(cause),
                (Ok(made), Some(buffer)) if !self.placeholders.lock().contains(&buffer) => {
                    self.placeholders.lock().push(buffer);
                    break Ok(made);
                }
                (Ok(made), Some(_)) => rejected.push(made),
                (Ok(made), None) => {
                    rejected.push(made);
                    break Err(AgentError::failed("an allocation made no buffer"));
                }
            }
        };
        rejected.into_iter().for_each(&mut free);
        result
    }

    /// Runs `call`, an allocation or a release of ROCR's in this thread, and returns what it did below. With a `place`, memory
    /// that it maps from the accel node lies there, over what is mapped there now; the caller owns that range.
    pub(crate) fn observe<R>(&self, place: Option<Range<usize>>, call: impl FnOnce() -> R) -> (R, Observed) {
        set_activity(Activity::Observing(Observation { place, ..Observation::default() }));
        let result = call();
        let observed = match set_activity(Activity::None) {
            Activity::Observing(observation) => observation.observed,
            Activity::None | Activity::Ringing(_) => Observed::default(),
        };
        (result, observed)
    }

    /// Runs `ring`, which rings the doorbell in this thread for these commands, with addresses of the device, which run in `context`;
    /// without a context it is a rehearsal that reaches no device. [`CommandBuffers::reserve`] has been called for as many.
    ///
    /// # Errors
    /// What went wrong. When waiting failed the device may still be running: the command buffers are not reused until the context
    /// is destroyed ([`CommandBuffers::context_is_gone`]), and the caller must not use the arguments' memory before that either.
    pub(crate) fn ring(
        &self,
        buffers: &mut CommandBuffers,
        context: Option<(HardwareContext, WaitMethod)>,
        dispatches: Chain,
        limit: Duration,
        ring: impl FnOnce(),
    ) -> Result<(), ChainError> {
        let taken = buffers.take(dispatches.packets.len() + 1);
        let taken = taken.ok_or_else(|| ChainError::Unexpected("command buffers were not reserved".into()))?;
        let ringing = Ringing {
            node: buffers.node(),
            buffers: taken,
            taken: 0,
            context,
            dispatches,
            limit,
            since: Instant::now(),
            running: None,
            executed: false,
            waited: false,
            problem: None,
        };
        set_activity(Activity::Ringing(Box::new(ringing)));
        ring();
        let Activity::Ringing(ringing) = set_activity(Activity::None) else {
            return Err(ChainError::Unexpected("the interposer lost its doorbell".into()));
        };
        let Ringing { buffers: taken, executed, waited, running, problem, .. } = *ringing;
        buffers.put_back(context.filter(|_| running.is_some()).map(|(context, _)| context), taken);
        match problem {
            Some(problem) => Err(problem),
            None if !executed => Err(ChainError::Unexpected("the doorbell reached no EXEC_CMD".into())),
            None if !waited => Err(ChainError::Unexpected("the doorbell did not wait for its command".into())),
            None => Ok(()),
        }
    }

    /// ROCR's accel node, once ROCR has made a request to it.
    pub(crate) fn node(&self) -> Node {
        Node::borrowed(self.descriptor.load(Ordering::Relaxed))
    }
}

/// Offset of a mapping, as C has it.
type Offset = c_long;

#[cfg(test)]
mod tests;
