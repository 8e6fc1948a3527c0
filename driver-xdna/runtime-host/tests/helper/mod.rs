//! A test executable as the helper process of itself: one of its tests serves a CPU agent when it was started for that.

use crate::cpu_agent::{CpuAgent, fail};
use aie_driver_xdna::isolated::{HostOptions, HostedAgent, IsolatedAgent, TimeLimits, serve_stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Environment variable that makes a test executable the helper: `KIND@CALL`, or `none`.
const FAULT_VARIABLE: &str = "AIE_TEST_FAULT";
const EXECUTABLE_VARIABLE: &str = "AIE_TEST_EXECUTABLE";

/// Serves a CPU agent and ends the process, if that is what it was started for. The body of the test `the_helper`.
pub fn serve_if_helper() {
    let Ok(fault) = std::env::var(FAULT_VARIABLE) else { return };
    let served = serve_stdin(|| match fault.split_once('@') {
        Some(("refuse", reason)) => Err(reason.to_owned()),
        Some((kind, "open")) => {
            fail(kind, "open");
            Err("a fault that ends nothing".to_owned())
        }
        _ => Ok(vec![Arc::new(CpuAgent::new(&fault)) as Arc<dyn HostedAgent>]),
    });
    if let Err(error) = &served {
        eprintln!("the helper: {error}");
    }
    std::process::exit(served.is_err().into());
}

/// A script beside the tests.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Options that start this test executable as a helper with a planned fault.
pub fn options(fault: &str, limit: Duration) -> HostOptions {
    HostOptions {
        program: Some(script("cpu_host.sh")),
        environment: vec![
            (FAULT_VARIABLE.into(), fault.into()),
            (EXECUTABLE_VARIABLE.into(), std::env::current_exe().unwrap().into()),
        ],
        limits: TimeLimits::all(limit),
    }
}

/// The agent of a new helper.
pub fn start(fault: &str, limit: Duration) -> Arc<IsolatedAgent> {
    let mut agents = IsolatedAgent::start(&options(fault, limit)).unwrap();
    assert_eq!(agents.len(), 1);
    agents.remove(0)
}
