//! The simulated NPU as a library for `LD_PRELOAD`: `libamdxdna_preload.so`.
//!
//! It executes reference artifacts: those of the operations, and those of the conformance suite. How to use it is described in
//! `amdxdna_sim`.

mod codec;

use aie_conformance::kernels::TestExecutor;
use aie_hal::{Kernel, KernelArtifact, KernelError, KernelExecutor};
use aie_ops::{Environment, ReferenceExecutor};
use codec::LoadingCodec;
use std::sync::Arc;

/// The operations' executor first, then the suite's.
#[derive(Debug)]
struct Executors {
    operations: ReferenceExecutor,
    suite: TestExecutor,
}

impl KernelExecutor for Executors {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Kernel>, KernelError> {
        self.operations.prepare(artifact).or_else(|first| {
            let both = |second| KernelError::NotExecutable(format!("{first}; {second}"));
            self.suite.prepare(artifact).map_err(both)
        })
    }
}

fn executor() -> Arc<dyn KernelExecutor> {
    let operations = ReferenceExecutor::new(Environment { codec: Arc::new(LoadingCodec) });
    Arc::new(Executors { operations, suite: TestExecutor })
}

amdxdna_sim::preload!(executor());
