//! The gate between ROCR 7.0 to 7.2 and the kernel driver.
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
//! 5. The state of a command is never looked at: a chain that timed out or was aborted counts as done.
//! 6. An error of any kernel call in a doorbell ends the process.
//! 7. The last two words of a command's payload are not copied: sizes of arguments, and without arguments the instructions'
//!    size and half of their address. ROCR is told 0 for all sizes, because it writes back and invalidates whatever has one,
//!    all of it around every chain; the driver above does what is needed.
//! 8. Instructions in the second and in the last quarter of the device heap are looked for in the quarter before: bit 24 of
//!    their address is lost.
//!
//! All of them sit between the packet processor and the kernel calls it makes. So this driver takes that place: the slots
//! through which libhsa imports `ioctl`, `mmap` and `munmap` lead here ([`imports`]). The library itself is the one that is
//! installed, unchanged, and its calls pass through, with these exceptions, all of them in a thread that has asked for it:
//!
//! - While a doorbell is rung, command buffers come from a [`CommandBuffers`] pool that was filled before, so that nothing in
//!   the doorbell can fail but the execution itself. This also saves five kernel calls per dispatch.
//! - ROCR's context calls are answered here with one constant handle, and every packet names one and the same PDI, so its
//!   list has one entry for ever. The contexts that exist are made by this driver, when its planner wants them.
//! - At `EXEC_CMD` the real context, the real compute units, the missing words, padding and the address of the instructions are
//!   filled in. In place of `WAIT_CMD`, which mainline kernels do not have for these NPUs, the gate waits in the [`Way`] this
//!   kernel has, and reads the states. The outcome goes to the caller of the doorbell; ROCR always hears of success.
//! - ROCR's commands have the process's addresses of the arguments. The device's are filled in where the kernel driver gives out
//!   its own (`force_iova`).
//! - Buffers that are sub-allocated are mapped at an address of this driver's choice, below a last buffer ([`Observed`]).
//!
//! Later releases of ROCR, which use another packet interface, are used without a gate.

mod call;
mod doorbell;
mod hooks;
mod imports;
mod trial;
mod wait;

use doorbell::{CommandBuffer, Ringing};
pub use doorbell::{CommandBuffers, Completion, Problem};
pub use wait::Way;

use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_INVALID_ADDR, AMDXDNA_INVALID_FENCE_HANDLE, DRM_AMDXDNA_HWCTX_CONFIG_CU,
    DRM_AMDXDNA_QUERY_AIE_METADATA, DRM_AMDXDNA_QUERY_AIE_VERSION, Request, amdxdna_cu_config,
    amdxdna_drm_config_hwctx, amdxdna_drm_create_bo, amdxdna_drm_create_hwctx, amdxdna_drm_destroy_hwctx,
    amdxdna_drm_get_bo_info, amdxdna_drm_get_info, amdxdna_drm_query_aie_metadata, amdxdna_drm_query_aie_version,
    amdxdna_qos_info, drm_gem_close, drm_syncobj_destroy,
};
use bytemuck::Pod;
use hsa_sys::HsaApi;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Handle that ROCR gets for its one imagined context. Not 0, which is none, and none of the kernel driver's, which are small.
const IMAGINED_CONTEXT: u32 = 0x4145_4931;
/// Bytes of a command buffer. The largest command (16 arguments) takes 220 bytes, the longest chain 540.
const COMMAND_BUFFER_BYTES: usize = 4096;
/// Sessions that one start of ROCR can serve: the entries of its list of PDIs.
const SESSIONS: usize = 31;
/// How often an interrupted or postponed kernel call is made again before its error counts.
const ATTEMPTS: usize = 100;
/// Operations per cycle that a context asks for: what ROCR asks for.
const MAX_OPC: u32 = 0x800;

/// Why the gate could not be put in place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The library does not import what the gate replaces.
    #[error("the library does not import {0}")]
    NoImport(&'static str),
    /// There is a gate for one library in a process, and another one has it.
    #[error("another HSA runtime library is in use in this process")]
    AnotherLibrary,
    /// The slot could not be written.
    #[error("the import of {name} cannot be replaced: {cause}")]
    Sealed {
        /// The function.
        name: &'static str,
        /// The system's message.
        cause: String,
    },
}

/// The gate of this process. It stays in place for the rest of it; sessions come and go.
#[derive(Debug)]
pub struct Gate {
    /// ROCR's descriptor of the accel node; -1 until its first request.
    descriptor: AtomicI32,
    /// Buffers that served as imagined PDI since ROCR opened the node: it remembers them even after a session has ended, when
    /// somebody else in the process keeps it running.
    imagined: Mutex<Vec<u32>>,
}

static GATE: OnceLock<Gate> = OnceLock::new();
/// Address of `hsa_init` of the library whose calls pass here, once all of them do.
static INSTALLED: Mutex<Option<usize>> = Mutex::new(None);

thread_local! {
    // Without a destructor: one would end it before the handlers that run at the end of the process, and libhsa's calls there
    // come through here too.
    static ACTIVITY: RefCell<ManuallyDrop<Activity>> = const { RefCell::new(ManuallyDrop::new(Activity::None)) };
}

/// Looks at what this thread is doing, for a hook. The hooks do not call each other, so nobody else looks at the time.
fn with_activity<R>(look: impl FnOnce(&mut Activity) -> R) -> R {
    ACTIVITY.with_borrow_mut(|activity| look(activity))
}

/// Puts another activity in place; returns what was there.
fn set_activity(activity: Activity) -> Activity {
    ManuallyDrop::into_inner(ACTIVITY.replace(ManuallyDrop::new(activity)))
}

/// What this thread asked ROCR for, and the gate has to know.
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

/// A hardware context of the kernel driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareContext {
    /// Its handle.
    handle: u32,
    /// Handle of the timeline on which its submissions complete; 0 when it has none.
    timeline: u32,
}

/// What an allocation of ROCR's did below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Handle of the buffer object it made.
    pub buffer: Option<u32>,
    /// Whether ROCR unmapped memory itself.
    pub unmapped: bool,
}

impl CommandBuffers {
    /// Whether the device may still read some of these in `context`.
    pub fn is_held(&self, context: HardwareContext) -> bool {
        self.held.iter().any(|(of, _)| *of == context.handle)
    }

    /// Whether the device may still read some of these in any context.
    pub fn any_held(&self) -> bool {
        !self.held.is_empty()
    }

    fn context_is_gone(&mut self, context: HardwareContext) {
        let (ended, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|(of, _)| *of == context.handle);
        self.held = held;
        self.free.extend(ended.into_iter().map(|(_, buffer)| buffer));
    }
}

impl Gate {
    /// Puts the gate in place, once per process. `api` is that of the library whose calls are to pass here.
    ///
    /// # Errors
    /// [`GateError`]; nothing was replaced then, or only what passes calls through.
    pub fn install(api: &HsaApi) -> Result<&'static Self, GateError> {
        const NAMES: [&str; 3] = ["ioctl", "mmap", "munmap"];
        let mut installed = INSTALLED.lock();
        let library = api.hsa_init as *const () as usize;
        let gate = GATE.get_or_init(|| Self { descriptor: AtomicI32::new(-1), imagined: Mutex::default() });
        match *installed {
            Some(earlier) if earlier == library => return Ok(gate),
            Some(_) => return Err(GateError::AnotherLibrary),
            None => {}
        }
        let slots = imports::find(library, NAMES);
        let hooks = [
            hooks::ioctl as *const () as usize,
            hooks::mmap as *const () as usize,
            hooks::munmap as *const () as usize,
        ];
        for (name, slot) in NAMES.into_iter().zip(slots) {
            slot.ok_or(GateError::NoImport(name))?;
        }
        for ((name, slot), hook) in NAMES.into_iter().zip(slots.into_iter().flatten()).zip(hooks) {
            // SAFETY: each hook has the type of the function it stands for, and this library is never unloaded while ROCR is
            // in use: it holds ROCR.
            unsafe { slot.set(hook) }.map_err(|cause| GateError::Sealed { name, cause: cause.to_string() })?;
        }
        *installed = Some(library);
        Ok(gate)
    }

    /// ROCR has closed its descriptor, or is about to open a new one.
    pub fn forget_descriptor(&self) {
        self.descriptor.store(-1, Ordering::Relaxed);
    }

    /// Allocates with `allocate` until the buffer is one that ROCR has not seen as a PDI, gives the others back with `free`.
    /// ROCR makes no context for a queue whose first PDIs it knows, and then ends the process.
    ///
    /// # Errors
    /// That of `allocate`, and a text when ROCR's list has no room for another.
    pub fn imagine<T>(
        &self,
        mut allocate: impl FnMut() -> Result<T, String>,
        mut free: impl FnMut(T),
    ) -> Result<T, String> {
        let mut rejected = Vec::new();
        let result = loop {
            if self.imagined.lock().len() >= SESSIONS {
                break Err(format!(
                    "it has served {SESSIONS} sessions in this process and can serve no more; restart it"
                ));
            }
            let (made, observed) = self.observe(None, &mut allocate);
            match (made, observed.buffer) {
                (Err(cause), _) => break Err(cause),
                (Ok(made), Some(buffer)) if !self.imagined.lock().contains(&buffer) => {
                    self.imagined.lock().push(buffer);
                    break Ok(made);
                }
                (Ok(made), Some(_)) => rejected.push(made),
                (Ok(made), None) => {
                    rejected.push(made);
                    break Err("an allocation made no buffer".into());
                }
            }
        };
        rejected.into_iter().for_each(&mut free);
        result
    }

    /// Runs `call`, an allocation or a release of ROCR's in this thread, and tells what it did below. With a `place`, memory
    /// that it maps from the accel node lies there, over what is mapped there now; the caller owns that range.
    pub fn observe<R>(&self, place: Option<Range<usize>>, call: impl FnOnce() -> R) -> (R, Observed) {
        set_activity(Activity::Observing(Observation { place, ..Observation::default() }));
        let result = call();
        let observed = match set_activity(Activity::None) {
            Activity::Observing(observation) => observation.observed,
            Activity::None | Activity::Ringing(_) => Observed::default(),
        };
        (result, observed)
    }

    /// Where the device sees the buffer that an allocation made and mapped at `host`.
    ///
    /// # Errors
    /// The kernel driver's, and one for an allocation that made no buffer.
    pub fn device_address(&self, made: Observed, host: NonNull<c_void>) -> io::Result<u64> {
        let handle = made.buffer.ok_or_else(|| io::Error::other("an allocation made no buffer"))?;
        let mut info = amdxdna_drm_get_bo_info { handle, ..Default::default() };
        self.request(&mut info)?;
        // With shared virtual addressing the device works with the addresses of the process.
        let known = !matches!(info.xdna_addr, 0 | AMDXDNA_INVALID_ADDR);
        Ok(if known { info.xdna_addr } else { host.as_ptr().expose_provenance() as u64 })
    }

    /// Makes sure that a doorbell with `commands` commands finds its command buffers.
    ///
    /// # Errors
    /// The kernel driver's.
    pub fn reserve(&self, buffers: &mut CommandBuffers, commands: usize) -> io::Result<()> {
        while buffers.free.len() < commands + 1 {
            let mut made = amdxdna_drm_create_bo {
                size: COMMAND_BUFFER_BYTES as u64,
                type_: AMDXDNA_BO_CMD,
                ..Default::default()
            };
            self.request(&mut made)?;
            let close = || self.request(&mut drm_gem_close { handle: made.handle, pad: 0 });
            let mut info = amdxdna_drm_get_bo_info { handle: made.handle, ..Default::default() };
            if let Err(cause) = self.request(&mut info) {
                close().ok();
                return Err(cause);
            }
            // SAFETY: a new mapping at a place the kernel chooses touches no memory in use.
            let address = unsafe {
                let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
                let descriptor = self.descriptor();
                libc::mmap(
                    std::ptr::null_mut(),
                    COMMAND_BUFFER_BYTES,
                    protection,
                    flags,
                    descriptor,
                    info.map_offset as i64,
                )
            };
            let mapped = (address != libc::MAP_FAILED).then(|| NonNull::new(address.cast())).flatten();
            let Some(address) = mapped else {
                let cause = io::Error::last_os_error();
                close().ok();
                return Err(cause);
            };
            buffers.free.push(CommandBuffer { handle: made.handle, map_offset: info.map_offset, address });
        }
        Ok(())
    }

    /// Gives the command buffers back. Those that the device may still read stay.
    pub fn release(&self, buffers: &mut CommandBuffers) {
        for CommandBuffer { handle, address, .. } in buffers.free.drain(..) {
            // SAFETY: the page was mapped by `reserve` and nobody uses it any more.
            unsafe { libc::munmap(address.as_ptr().cast(), COMMAND_BUFFER_BYTES) };
            if let Err(cause) = self.request(&mut drm_gem_close { handle, pad: 0 }) {
                tracing::debug!("a command buffer was not closed: {cause}");
            }
        }
    }

    /// Runs `ring`, which rings the doorbell in this thread, for commands that run in `context` and are completed as told;
    /// without a context it is a rehearsal that reaches no device. [`Gate::reserve`] has been called for as many.
    ///
    /// # Errors
    /// What went wrong. When waiting failed the device may still be running: the command buffers are kept until the context is
    /// destroyed ([`Gate::destroy_context`]), and the caller must not use the arguments' memory before that either.
    pub fn ring(
        &self,
        buffers: &mut CommandBuffers,
        context: Option<(HardwareContext, Way)>,
        completions: Vec<Completion>,
        limit: Duration,
        ring: impl FnOnce(),
    ) -> Result<(), Problem> {
        let first = buffers.free.len().checked_sub(completions.len() + 1);
        let first = first.ok_or_else(|| Problem::Unexpected("command buffers were not reserved".into()))?;
        let taken: Vec<CommandBuffer> = buffers.free.drain(first..).collect();
        let ringing = Ringing {
            buffers: taken,
            taken: 0,
            context,
            completions,
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
            return Err(Problem::Unexpected("the gate lost its doorbell".into()));
        };
        let Ringing { buffers: taken, executed, waited, running, problem, .. } = *ringing;
        match context.filter(|_| running.is_some()) {
            Some((context, _)) => buffers.held.extend(taken.into_iter().map(|buffer| (context.handle, buffer))),
            None => buffers.free.extend(taken),
        }
        match problem {
            Some(problem) => Err(problem),
            None if !executed => Err(Problem::Unexpected("the doorbell reached no EXEC_CMD".into())),
            None if !waited => Err(Problem::Unexpected("the doorbell did not wait for its command".into())),
            None => Ok(()),
        }
    }

    /// Rows of cores times columns, of which there are `most`: the tiles of a context that has the whole array.
    ///
    /// # Errors
    /// The kernel driver's.
    pub fn core_tiles(&self, most: Option<usize>) -> io::Result<u32> {
        let metadata: amdxdna_drm_query_aie_metadata = self.query(DRM_AMDXDNA_QUERY_AIE_METADATA)?;
        let columns = most.map_or(usize::from(metadata.cols), |most| most.min(metadata.cols.into()));
        Ok(columns as u32 * u32::from(metadata.core.row_count))
    }

    /// Whether the device does not answer any more. Error numbers of a lost device mean other things too.
    pub fn is_gone(&self) -> bool {
        let answer = self.query::<amdxdna_drm_query_aie_version>(DRM_AMDXDNA_QUERY_AIE_VERSION);
        answer.is_err_and(|cause| matches!(cause.raw_os_error(), Some(libc::ENODEV | libc::EIO | libc::ENXIO)))
    }

    /// Asks for one structure.
    fn query<T: Pod>(&self, param: u32) -> io::Result<T> {
        let mut value = T::zeroed();
        // The kernel writes through the number; the compiler has to know that the structure is reachable.
        let buffer = (&raw mut value).expose_provenance() as u64;
        self.request(&mut amdxdna_drm_get_info { param, buffer_size: size_of::<T>() as u32, buffer })?;
        Ok(value)
    }

    /// Creates a context of `tiles` core tiles that holds the PDIs in these buffer objects.
    ///
    /// # Errors
    /// The kernel driver's, with the call's name; nothing is left then.
    pub fn create_context(&self, tiles: u32, pdis: &[u32]) -> Result<HardwareContext, (&'static str, io::Error)> {
        let qos = amdxdna_qos_info::default();
        let mut create = amdxdna_drm_create_hwctx {
            qos_p: (&raw const qos).expose_provenance() as u64,
            max_opc: MAX_OPC,
            num_tiles: tiles,
            ..Default::default()
        };
        self.request(&mut create).map_err(|cause| (amdxdna_drm_create_hwctx::NAME, cause))?;
        let context = HardwareContext { handle: create.handle, timeline: create.syncobj_handle };
        // Number of PDIs in the first two bytes, then one entry for each.
        let mut config = vec![amdxdna_cu_config { cu_bo: pdis.len() as u32, ..Default::default() }];
        config.extend(pdis.iter().map(|buffer| amdxdna_cu_config { cu_bo: *buffer, ..Default::default() }));
        let mut configure = amdxdna_drm_config_hwctx {
            handle: context.handle,
            param_type: DRM_AMDXDNA_HWCTX_CONFIG_CU,
            param_val: config.as_ptr().expose_provenance() as u64,
            param_val_size: size_of_val(config.as_slice()) as u32,
            pad: 0,
        };
        self.request(&mut configure).map_err(|cause| {
            if let Err(second) = self.destroy_context(&mut CommandBuffers::default(), context) {
                tracing::warn!("a context that could not be configured was not destroyed either: {second}");
            }
            (amdxdna_drm_config_hwctx::NAME, cause)
        })?;
        Ok(context)
    }

    /// Destroys a context. The kernel driver ends what runs in it, so that `buffers` has back what was kept for that.
    ///
    /// # Errors
    /// The kernel driver's; what was kept stays kept.
    pub fn destroy_context(&self, buffers: &mut CommandBuffers, context: HardwareContext) -> io::Result<()> {
        let destroyed = self.request(&mut amdxdna_drm_destroy_hwctx { handle: context.handle, pad: 0 });
        if context.timeline != AMDXDNA_INVALID_FENCE_HANDLE
            && let Err(cause) = self.request(&mut drm_syncobj_destroy { handle: context.timeline, pad: 0 })
        {
            tracing::debug!("the timeline of a context was not given back: {cause}");
        }
        destroyed.map(|()| buffers.context_is_gone(context))
    }

    /// ROCR's descriptor.
    fn descriptor(&self) -> c_int {
        self.descriptor.load(Ordering::Relaxed)
    }

    /// Makes a request of this driver's own on ROCR's descriptor.
    fn request<T: Request>(&self, structure: &mut T) -> io::Result<()> {
        // SAFETY: the structure is the one of this request.
        unsafe { self.call(self.descriptor(), T::CODE.0.into(), (structure as *mut T).cast()) }
    }

    /// A kernel call that is made again when it was interrupted.
    ///
    /// # Safety
    /// `argument` points to the structure of `request`.
    unsafe fn call(&self, descriptor: c_int, request: std::ffi::c_ulong, argument: *mut c_void) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            // SAFETY: as the caller promises.
            if unsafe { libc::ioctl(descriptor, request as _, argument) } >= 0 {
                return Ok(());
            }
            let cause = io::Error::last_os_error();
            if !matches!(cause.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                return Err(cause);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
}

/// Offset of a mapping, as C has it.
type Offset = c_long;

#[cfg(test)]
mod tests;
