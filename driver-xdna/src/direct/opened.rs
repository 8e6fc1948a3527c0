//! The NPUs that are open on the direct way: one for each accel node, shared by all logical devices on it.

use crate::agent::{Agent, AgentError};
use crate::npu::Npu;
use aie_hal::Arch;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

static OPENED: Mutex<Vec<(PathBuf, Weak<Npu>)>> = Mutex::new(Vec::new());

/// The NPU behind the accel node at `path`, opened when it is not.
///
/// # Errors
/// As [`super::open`].
pub(crate) fn npu(path: &Path, arch: &Arc<Arch>, limit: Duration) -> Result<Arc<Npu>, AgentError> {
    // Held while opening, so that two callers do not both open it.
    let mut opened = OPENED.lock();
    let found = opened.iter().find(|(known, _)| known == path).and_then(|(_, npu)| npu.upgrade());
    if let Some(npu) = found.filter(|npu| npu.array.lost().is_none()) {
        return Ok(npu);
    }
    let agent: Arc<dyn Agent> = Arc::new(super::open(path, arch, limit)?);
    let npu = Npu::new(agent, Arc::clone(arch), None);
    opened.retain(|(known, npu)| known != path && npu.strong_count() > 0);
    opened.push((path.to_owned(), Arc::downgrade(&npu)));
    Ok(npu)
}
