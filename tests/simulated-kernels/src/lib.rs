//! The executor of the simulated kernel device and of the stand-in runtime.
//!
//! Neither knows an operation; this crate joins what they are given: the reference kernels of the operation table, and those
//! of the conformance suite.

use aie_conformance::kernels::TestExecutor;
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use aie_hal::{HostFunction, HostFunctionError, KernelArtifact, KernelExecutor};
use aie_ops::ReferenceExecutor;
use std::sync::Arc;

/// The operations' executor first, then the suite's.
#[derive(Debug)]
struct Executors {
    operations: ReferenceExecutor,
    suite: TestExecutor,
}

impl KernelExecutor for Executors {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        let named = with_its_name(artifact);
        self.operations.prepare(named.as_ref().unwrap_or(artifact)).or_else(|first| {
            let both = |second| HostFunctionError::NotExecutable(format!("{first}; {second}"));
            self.suite.prepare(artifact).map_err(both)
        })
    }
}

/// The artifact under the kernel name in its description: a device sees bytes without a name, and the executor of the
/// operations compares the two. `None` when there is no such description.
fn with_its_name(artifact: &KernelArtifact) -> Option<KernelArtifact> {
    let description = reference::extract(&Pdi::parse(artifact.pdi()).ok()?.cdo()).ok()??;
    let description: serde_json::Value = serde_json::from_slice(&description).ok()?;
    let generation = InstructionStream::parse(artifact.instructions()).ok()?.header().generation;
    let name = description.get("kernel")?.as_str()?;
    KernelArtifact::new(name, artifact.arch(), generation, artifact.pdi(), artifact.instructions()).ok()
}

/// Executes every reference artifact of this project.
pub fn executor() -> Arc<dyn KernelExecutor> {
    Arc::new(Executors { operations: ReferenceExecutor, suite: TestExecutor })
}
