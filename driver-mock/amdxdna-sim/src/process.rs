//! The simulated machine of this process: made at its start, reported on at its end.
//!
//! A child that continues after `fork` without `exec` has no devices of its own: what it opens is a plain file to it, as the state of the
//! simulator is its parent's. What it has open it shares with its parent ([`crate::forks`]).

use crate::forks;
use crate::host_device::Host;
use crate::journal::Journal;
use crate::kfd::Kfd;
use crate::node::{Descriptors, Device, File, Mappings, Open};
use crate::reentry::ReentryGuard;
use crate::settings::{Settings, SettingsError};
use crate::standard_error::print;
use crate::sysfs::{KFD_NODE, Prefixes, Tree};
use aie_hal::KernelExecutor;
use nix::errno::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Process {
    pub settings: Arc<Settings>,
    pub journal: Arc<Journal>,
    /// The devices, by number.
    pub devices: Vec<Arc<Device>>,
    pub kfd: Kfd,
    pub descriptors: Descriptors,
    pub mappings: Arc<Mappings>,
    pub prefixes: Prefixes,
    /// The host's own devices, when calls are only recorded.
    pub host: Option<Host>,
    tree: OnceLock<Tree>,
    /// Whether an accel node was opened.
    used: AtomicBool,
    finished: AtomicBool,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
/// Whether this is a child that has not called `exec`.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Exit code for settings that cannot be used.
const BAD_SETTINGS: i32 = 2;
/// Exit code for a run that differs from the recorded one.
const DIFFERENT: i32 = 3;

/// Exit code for a run whose forked child did not end as it should.
const BAD_CHILD: i32 = 4;

/// How long the end of the process waits for jobs that it has submitted.
const DRAIN: Duration = Duration::from_secs(2);

/// Does `work` with the machine; `None` when the call does not concern the simulator. A panic inside is logged, and the call
/// goes to the C library.
pub fn simulated<R>(work: impl FnOnce(&Process) -> Option<R>) -> Option<R> {
    let process = PROCESS.get()?;
    if FORKED.load(Ordering::Relaxed) {
        return None;
    }
    inside(process, work)
}

/// Does `work` in a forked child only.
pub fn in_child<R>(work: impl FnOnce(&Process) -> Option<R>) -> Option<R> {
    if !FORKED.load(Ordering::Relaxed) {
        return None;
    }
    inside(PROCESS.get()?, work)
}

/// As [`simulated`], in a forked child too.
pub fn with_files<R>(work: impl FnOnce(&Process) -> Option<R>) -> Option<R> {
    inside(PROCESS.get()?, work)
}

fn inside<R>(process: &Process, work: impl FnOnce(&Process) -> Option<R>) -> Option<R> {
    let _inside = ReentryGuard::enter()?;
    match catch_unwind(AssertUnwindSafe(|| work(process))) {
        Ok(result) => result,
        Err(_) => {
            print("internal error of the simulator; this call is passed to the system");
            None
        }
    }
}

/// Makes the machine. Ends the process with code 2 when the environment asks for something that cannot be.
pub fn start(executor: Arc<dyn KernelExecutor>) {
    let Some(_inside) = ReentryGuard::enter() else { return };
    let made = Settings::read(|name| std::env::var(name).ok()).and_then(|settings| Process::new(settings, executor));
    let process = match made {
        Ok(process) => process,
        Err(why) => {
            print(&why.to_string());
            exit_now(BAD_SETTINGS);
        }
    };
    if PROCESS.set(process).is_ok() {
        // SAFETY: both functions may be called at any time after this library was loaded.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(Some(forking), None, Some(forked));
        }
    }
}

fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe {
        libc::syscall(libc::SYS_exit_group, code);
    }
    std::process::abort()
}

extern "C" fn forking() {
    if let Some(process) = PROCESS.get().filter(|process| process.used.load(Ordering::Relaxed)) {
        let _inside = ReentryGuard::enter();
        forks::prepare(&process.descriptors);
    }
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

extern "C" fn at_exit() {
    if let Some(code) = finish() {
        // SAFETY: flushes what the program has written; null means all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        exit_now(code);
    }
}

/// Ends the machine: writes the report, compares the stream of calls, removes the files. The exit code that the process should
/// have instead of its own, if any.
pub fn finish() -> Option<i32> {
    let process = PROCESS.get()?;
    if FORKED.load(Ordering::Relaxed) || process.finished.swap(true, Ordering::Relaxed) {
        return None;
    }
    let _inside = ReentryGuard::enter();
    catch_unwind(AssertUnwindSafe(|| process.finish())).unwrap_or(None)
}

impl Process {
    fn new(settings: Settings, executor: Arc<dyn KernelExecutor>) -> Result<Self, SettingsError> {
        let settings = Arc::new(settings);
        let journal = Arc::new(Journal::new(settings.clone())?);
        let mappings = Mappings::new(journal.clone());
        let device = |device| Device::new(device, &settings, executor.clone(), journal.clone(), mappings.clone());
        Ok(Self {
            devices: settings.devices.iter().map(device).collect(),
            kfd: Kfd::new(journal.clone()),
            descriptors: Descriptors::default(),
            mappings,
            prefixes: match settings.host {
                false => Prefixes::new(&settings.devices),
                // ROCR does not start without KFD, which kernels have with AMD graphics only.
                true if !Path::new(KFD_NODE).exists() => Prefixes::of_kfd(),
                true => Prefixes::default(),
            },
            host: settings.host.then(Host::default),
            tree: OnceLock::new(),
            used: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            journal,
            settings,
        })
    }

    /// The files, which are made when they are first needed.
    pub fn tree(&self) -> &Tree {
        self.tree.get_or_init(|| {
            let settings = &self.settings;
            let made = Tree::create(settings.root.as_deref(), &settings.devices, settings.kernel, &settings.machine);
            made.unwrap_or_else(|error| {
                print(&format!("AMDXDNA_SIM_ROOT: the simulated files cannot be created: {error}"));
                exit_now(BAD_SETTINGS)
            })
        })
    }

    /// Registers what was opened as a device node.
    ///
    /// # Errors
    /// ENXIO for a device that there is not, and those of opening its node.
    pub fn opened(&self, fd: i32, node: crate::sysfs::Node) -> Result<(), Errno> {
        let open = match node {
            crate::sysfs::Node::Kfd => Open::Kfd,
            crate::sysfs::Node::Accel(index) => {
                self.used.store(true, Ordering::Relaxed);
                Open::Accel(File::open(self.devices.get(index).ok_or(Errno::ENXIO)?)?)
            }
        };
        self.descriptors.set(fd, open);
        Ok(())
    }

    /// Registers what was opened as a node of the host.
    pub fn opened_host(&self, fd: i32, file: u64) {
        self.used.store(true, Ordering::Relaxed);
        self.descriptors.set(fd, Open::Host(file));
    }

    fn finish(&self) -> Option<i32> {
        let child = forks::wait();
        let deadline = Instant::now() + DRAIN;
        self.descriptors.files().iter().for_each(|file| file.drain(deadline));
        if let Some(path) = self.settings.report.as_ref().filter(|_| self.used.load(Ordering::Relaxed)) {
            let path = path.to_string_lossy().replace("%p", &std::process::id().to_string());
            let report =
                format!("{:#}\n", self.journal.report(self.devices.iter().map(|device| device.describe()).collect()));
            if let Err(error) = std::fs::write(&path, report) {
                print(&format!("AMDXDNA_SIM_REPORT: {path} cannot be written: {error}"));
            }
        }
        if let Some(tree) = self.tree.get() {
            tree.remove();
        }
        if let Some(problem) = child {
            print(&format!("AMDXDNA_SIM_FORK: {problem}"));
            return Some(BAD_CHILD);
        }
        let difference = if self.used.load(Ordering::Relaxed) { self.journal.difference() } else { None };
        difference.map(|difference| {
            print(&format!("AMDXDNA_SIM_REPLAY: {difference}"));
            DIFFERENT
        })
    }
}
