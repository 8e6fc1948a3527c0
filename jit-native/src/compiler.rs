//! The families as a compiler that kernel stores ask.

use crate::SOURCE_DIGEST;
use crate::kernels::{self, NativeError};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation};

/// Makes kernels as machine code, in this process and in milliseconds: it starts no tool and reads no file. What no
/// [family](crate::kernels) takes, and what is for a generation that none has a program for, is unsupported, so that a store asks
/// the next compiler.
#[derive(Debug, Clone, Copy, Default)]
pub struct NativeCompiler;

impl KernelCompiler for NativeCompiler {
    fn name(&self) -> &str {
        "native"
    }

    fn folder(&self) -> &str {
        "native"
    }

    fn makes_code(&self) -> bool {
        true
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        format!("native {} ({})", env!("CARGO_PKG_VERSION"), &SOURCE_DIGEST[..12])
    }

    fn sources(&self) -> String {
        SOURCE_DIGEST.into()
    }

    /// The kernel under the name that stores look for, whatever its family calls it.
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        let artifact = kernels::build(node, arch)?;
        let name = kernel_name(op, node);
        if artifact.name() == name {
            return Ok(artifact);
        }
        let (pdi, instructions) = (artifact.pdi(), artifact.instructions());
        let renamed = KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, pdi, instructions)
            .map_err(|error| CompileError::failed(error.to_string()))?;
        Ok(match artifact.stream_maker() {
            Some(maker) => renamed.with_stream_maker(maker.clone()),
            None => renamed,
        })
    }
}

impl From<NativeError> for CompileError {
    fn from(error: NativeError) -> Self {
        match error {
            NativeError::NoFamily { .. } | NativeError::Unsupported { .. } | NativeError::Generation { .. } => {
                Self::Unsupported(error.to_string())
            }
            NativeError::Failed { .. } | NativeError::Artifact(_) => Self::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_ops::{DataType, OpParams, Tensor, table};

    fn compile(op: &str, arch: &str) -> Result<KernelArtifact, CompileError> {
        let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = Node::new(op, OpParams::default(), tensor, vec![Some(tensor)]);
        let arch = ArchRegistry::builtin().get(arch).unwrap();
        NativeCompiler.compile(table::lookup(op).unwrap(), &node, &arch)
    }

    #[test]
    fn an_operation_without_a_family_is_unsupported() {
        let error = compile("TRI", "aie2").unwrap_err();
        assert!(matches!(&error, CompileError::Unsupported(reason) if reason.contains("TRI")), "{error:?}");
    }

    #[test]
    fn kernels_are_cached_under_the_sources_and_apart_from_others() {
        assert!(NativeCompiler.identity().starts_with("native "));
        assert_eq!(NativeCompiler.sources().len(), 64);
        assert_eq!((NativeCompiler.folder(), NativeCompiler.makes_code()), ("native", true));
    }
}
