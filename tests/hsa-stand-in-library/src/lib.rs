//! `libhsa_stand_in.so`: an HSA runtime for tests, see the package `hsa-stand-in`. It is no ROCR.
//!
//! It runs reference artifacts of the operation table and the kernels of the conformance suite. Quantised blocks are read by
//! the ggml of the process it is loaded into; where there is none, kernels that need one never signal.

use aie_conformance::kernels::TestExecutor;
use aie_hal::{Kernel, KernelArtifact, KernelError, KernelExecutor};
use aie_ops::{Environment, ReferenceExecutor};
use ggml_hsa::codec::GgmlCodec;
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
    let operations = ReferenceExecutor::new(Environment { codec: Arc::new(GgmlCodec) });
    Arc::new(Executors { operations, suite: TestExecutor })
}

hsa_stand_in_core::library!(executor());
