//! The one runtime a process has, as `hsa_init` and `hsa_shut_down` start and end it, and its report.

use crate::runtime::Runtime;
use crate::settings::Settings;
use aie_hal::KernelExecutor;
use hsa_sys::*;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// What outlives a runtime.
struct Process {
    /// Settings in place of the environment.
    configured: Option<Vec<(String, String)>>,
    users: usize,
}

static PROCESS: Mutex<Process> = Mutex::new(Process { configured: None, users: 0 });
static RUNTIME: RwLock<Option<Arc<Runtime>>> = RwLock::new(None);

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
    if process.users == 0 {
        let settings = match &process.configured {
            Some(pairs) => Settings::read(pairs.iter().cloned()),
            None => Settings::read(
                std::env::vars_os()
                    .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())),
            ),
        };
        let started = settings.map_err(|cause| cause.to_string());
        match started.and_then(|settings| Runtime::new(settings, executor()).map_err(|cause| cause.to_string())) {
            Ok(runtime) => *RUNTIME.write() = Some(Arc::new(runtime)),
            Err(reason) => {
                eprintln!("hsa-stand-in: {reason}");
                return HSA_STATUS_ERROR_INVALID_ARGUMENT;
            }
        }
    }
    process.users += 1;
    HSA_STATUS_SUCCESS
}

/// `hsa_shut_down`.
pub fn shut_down() -> hsa_status_t {
    let mut process = PROCESS.lock();
    match process.users {
        0 => return HSA_STATUS_ERROR_NOT_INITIALIZED,
        1 => drop(RUNTIME.write().take()),
        _ => {}
    }
    process.users -= 1;
    HSA_STATUS_SUCCESS
}

/// The report of the runtime as JSON text; `null` while there is none.
pub fn report() -> String {
    let users = PROCESS.lock().users;
    runtime().map_or_else(|| "null".to_owned(), |runtime| runtime.report(users).to_string())
}
