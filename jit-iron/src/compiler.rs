//! What makes an artifact from a node.

use aie_hal::{Arch, KernelArtifact};
use aie_ops::artifact::{BuildError, reference_artifact};
use aie_ops::{Node, Operation, Unsupported};
use std::fmt::Debug;
use thiserror::Error;

/// A compiler has no artifact for a node.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum CompileError {
    /// It does not compile this operation, type, shape or generation; another compiler may.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// It should have, and failed.
    #[error("{0}")]
    Failed(String),
}

/// A compiler of kernels. Thread-safe; called once per kernel, possibly for several kernels at a time.
pub trait KernelCompiler: Send + Sync + Debug {
    /// Short name for messages and statistics.
    fn name(&self) -> &str;
    /// Everything besides the node and the generation that the result depends on: the compiler's version, its options, the
    /// versions of its tools. Kernels that are kept longer than a process are kept under it.
    fn identity(&self) -> String;
    /// Makes the artifact of a normalised node.
    ///
    /// # Errors
    /// [`CompileError::Unsupported`] when it is not this compiler's business, [`CompileError::Failed`] with the cause otherwise.
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError>;
}

/// Makes reference artifacts, which a simulated device executes. On a real NPU they would configure nothing, so a
/// store for real devices must not have this compiler.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceCompiler;

impl KernelCompiler for ReferenceCompiler {
    fn name(&self) -> &str {
        "reference"
    }

    fn identity(&self) -> String {
        format!("reference {}", env!("CARGO_PKG_VERSION"))
    }

    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        reference_artifact(op, node, arch).map_err(|error| match error {
            BuildError::Unsupported(reason) => CompileError::Unsupported(reason),
            error => CompileError::Failed(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_ops::artifact::read_description;
    use aie_ops::{DataType, OpParams, Tensor, table};

    fn product(dtype: DataType) -> Node {
        let tensor = Tensor::contiguous(dtype, [64, 64, 1, 1]);
        Node::new("MUL_MAT", OpParams::default(), tensor, vec![Some(tensor); 2])
    }

    #[test]
    fn reference_artifacts_describe_their_node() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let node = product(DataType::F32);
        let artifact = ReferenceCompiler.compile(table::lookup("MUL_MAT").unwrap(), &node, &arch).unwrap();
        assert_eq!(read_description(&artifact).unwrap().node, node);
        assert_eq!((ReferenceCompiler.name(), artifact.arch()), ("reference", "aie2"));
        assert!(ReferenceCompiler.identity().starts_with("reference "));
    }

    #[test]
    fn what_has_no_design_is_unsupported() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let error = ReferenceCompiler.compile(table::lookup("MUL_MAT").unwrap(), &product(DataType::I64), &arch);
        assert!(matches!(error, Err(CompileError::Unsupported(_))), "{error:?}");
    }
}
