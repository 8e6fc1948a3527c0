//! The one runtime a process has, as `hsa_init` and `hsa_shut_down` start and end it, and its report.

use crate::report::{Counts, Open, Report, Silicon};
use crate::runtime::Runtime;
use crate::settings::Settings;
use aie_hal::host_function::KernelExecutor;
use hsa_sys::*;
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// Everything that outlives a runtime.
#[derive(Debug, Default)]
struct Process {
    /// Settings in place of the environment.
    configured: Option<Vec<(String, String)>>,
    users: usize,
    counts: Arc<Counts>,
    /// Of runtimes that were shut down.
    past: Silicon,
    /// What programs had not given back when they shut down.
    left: Open,
    report: Option<PathBuf>,
}

static PROCESS: LazyLock<Mutex<Process>> = LazyLock::new(Mutex::default);
static RUNTIME: RwLock<Option<Arc<Runtime>>> = RwLock::new(None);
static REPORTS_AT_EXIT: AtomicBool = AtomicBool::new(false);

/// The runtime, if the process has one.
pub fn runtime() -> Option<Arc<Runtime>> {
    RUNTIME.read().clone()
}

/// Sets the settings of the runtimes to come: lines of `NAME=VALUE`, in place of the environment.
pub fn configure(text: &str) {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    PROCESS.lock().configured = Some(pairs.collect());
}

/// `hsa_init`.
pub fn init(executor: impl FnOnce() -> Arc<dyn KernelExecutor>) -> hsa_status_t {
    let mut process = PROCESS.lock();
    if process.users > 0 {
        process.users += 1;
        return HSA_STATUS_SUCCESS;
    }
    let settings = match &process.configured {
        Some(pairs) => Settings::read(pairs.iter().cloned()),
        None => Settings::read(
            std::env::vars_os()
                .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())),
        ),
    };
    let runtime = settings.map_err(|cause| cause.to_string()).and_then(|settings| {
        process.report = settings.report.clone().filter(|path| !path.as_os_str().is_empty());
        Runtime::new(settings, Arc::clone(&process.counts), executor())
    });
    match runtime {
        Ok(runtime) => {
            process.users = 1;
            *RUNTIME.write() = Some(Arc::new(runtime));
            if process.report.is_some() && !REPORTS_AT_EXIT.swap(true, Ordering::Relaxed) {
                // SAFETY: The function takes nothing, does not unwind, and stays where it is: a library that registers a
                // function for the exit is told by the C library when it is unloaded, too.
                unsafe { libc::atexit(write_report) };
            }
            HSA_STATUS_SUCCESS
        }
        Err(reason) => {
            eprintln!("hsa-stand-in: {reason}");
            HSA_STATUS_ERROR_INVALID_ARGUMENT
        }
    }
}

/// `hsa_shut_down`.
pub fn shut_down() -> hsa_status_t {
    let mut process = PROCESS.lock();
    match process.users {
        0 => return HSA_STATUS_ERROR_NOT_INITIALIZED,
        1 => {
            if let Some(runtime) = RUNTIME.write().take() {
                process.left = runtime.open(0);
                process.past = process.past.plus(runtime.silicon());
            }
        }
        _ => {}
    }
    process.users -= 1;
    HSA_STATUS_SUCCESS
}

/// The report as JSON text.
pub fn report() -> String {
    let process = PROCESS.lock();
    let runtime = runtime();
    let now = runtime.as_ref().map_or(Silicon::default(), |runtime| runtime.silicon());
    let open = runtime.map_or(Open::default(), |runtime| runtime.open(process.users));
    let (counts, left_at_shut_down) = (&process.counts, process.left);
    let report = Report { counts, silicon: process.past.plus(now), open, left_at_shut_down };
    serde_json::to_string(&report).unwrap_or_default()
}

extern "C" fn write_report() {
    let path = PROCESS.lock().report.clone();
    if let Some(path) = path
        && let Err(error) = std::fs::write(&path, report())
    {
        eprintln!("hsa-stand-in: no report in {}: {error}", path.display());
    }
}
