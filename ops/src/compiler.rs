//! Compilers, which make an artifact from a node: the trait, and the one that needs nothing but this crate.

use crate::artifact::{BuildError, reference_artifact};
use crate::{Node, Operation, Unsupported};
use aie_hal::{Arch, KernelArtifact};
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;
use thiserror::Error;

/// A compiler has no artifact for a node. These are all the cases there are: who asks a compiler has to treat each differently.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum CompileError {
    /// It does not compile this operation, type, shape or generation; another compiler may.
    #[error("{0}")]
    Unsupported(String),
    /// It failed. The same kernel will fail again until the compiler, its options or the sources change, so
    /// that a store may remember it beyond the process.
    #[error("{}", .0.cause)]
    Failed(Failure),
    /// It could not be tried: a tool is missing, a worker did not start, a disk is full. Says nothing about the kernel.
    #[error("{0}")]
    Unavailable(String),
}

/// A failed compilation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// One line or a few: what went wrong.
    pub cause: String,
    /// All that the compiler printed, as it printed it. Empty when it printed nothing.
    pub output: Arc<[u8]>,
}

impl CompileError {
    /// A failure of which there is nothing but the cause.
    pub fn failed(cause: impl Into<String>) -> Self {
        Self::Failed(Failure { cause: cause.into(), output: Arc::default() })
    }
}

impl From<Unsupported> for CompileError {
    fn from(reason: Unsupported) -> Self {
        Self::Unsupported(reason.to_string())
    }
}

/// Where a design is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesignName<'a> {
    /// Name of a file in the designs' folder.
    pub file: &'a str,
    /// Function in it.
    pub function: &'a str,
}

impl Display for DesignName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.function, self.file)
    }
}

/// A compiler of kernels. Thread-safe; called once per kernel, possibly for several kernels at a time.
pub trait KernelCompiler: Send + Sync + Debug {
    /// Short name for messages and statistics.
    fn name(&self) -> &str;
    /// The folder of its kernels in a cache, below the cache's root; empty for IRON's, which other backends may look for in the
    /// root.
    fn folder(&self) -> &str {
        ""
    }
    /// Whether its kernels are code for the array, which an NPU executes. Reference artifacts are not.
    fn makes_code(&self) -> bool {
        self.folder().is_empty()
    }
    /// Whether a kernel takes milliseconds, in this process and without a tool, so that compiling in the background is not needed
    /// or to count on the CPU meanwhile.
    fn is_immediate(&self) -> bool {
        false
    }
    /// The toolchain: everything besides the node, the generation and the kernel's sources that the result depends on, such as
    /// the versions of the tools and their options. Kernels that outlive a process are cached under it. Empty when it
    /// is unknown because the toolchain does not start: kernels of any version are accepted then.
    fn identity(&self) -> String;
    /// A digest, in hexadecimal, of the sources that kernels are built from.
    fn sources(&self) -> String;
    /// Whether it could make any kernel at all: its toolchain starts and it has designs. May start the toolchain, which takes
    /// seconds the first time.
    ///
    /// # Errors
    /// [`CompileError::Unavailable`] with what is missing.
    fn available(&self) -> Result<(), CompileError> {
        Ok(())
    }
    /// Whether its kernels of a normalised node may be used, wherever they come from: on some devices kernels have to prove
    /// themselves first. Asked before caches are searched, and may take a while the first time.
    ///
    /// # Errors
    /// Why they may not.
    fn admits(&self, _node: &Node, _arch: &Arch) -> Result<(), String> {
        Ok(())
    }
    /// Whether it makes the kernel of a normalised node, as far as that is known at once: what a device claims depends on it. A
    /// compiler that is immediate tries.
    ///
    /// # Errors
    /// As [`KernelCompiler::compile`].
    fn takes(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<(), CompileError> {
        if self.is_immediate() { self.compile(op, node, arch).map(drop) } else { Ok(()) }
    }
    /// Makes the artifact of a normalised node.
    ///
    /// # Errors
    /// [`CompileError::Unsupported`] when this compiler does not handle it, [`CompileError::Unavailable`] when it could not be
    /// tried, [`CompileError::Failed`] with the cause otherwise.
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError>;
    /// [`KernelCompiler::compile`] with a PDI that has these features of the kernel's
    /// [configuration](aie_hal::artifact::Configuration), and perhaps others.
    ///
    /// # Errors
    /// As there; [`CompileError::Unsupported`] where there is no such PDI, for example because a core has no room for all of them.
    fn compile_with(
        &self,
        _op: &dyn Operation,
        _node: &Node,
        _arch: &Arch,
        _features: &BTreeSet<String>,
    ) -> Result<KernelArtifact, CompileError> {
        Err(CompileError::Unsupported(format!("each kernel of compiler {} has one PDI", self.name())))
    }
    /// [`KernelCompiler::compile`] without kernels that have a configuration: for graphs in which the array would be changed more often with
    /// these.
    ///
    /// # Errors
    /// As there.
    fn compile_apart(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        self.compile(op, node, arch)
    }
    /// [`KernelCompiler::compile`] from a design that the caller names, a function in a Python file of the designs' folder, instead
    /// of the one that the compiler has for the operation.
    ///
    /// # Errors
    /// As there; always [`CompileError::Unsupported`] from compilers that read no designs.
    fn compile_design(
        &self,
        design: &DesignName<'_>,
        _op: &dyn Operation,
        _node: &Node,
        _arch: &Arch,
    ) -> Result<KernelArtifact, CompileError> {
        Err(CompileError::Unsupported(format!("it does not read designs, and this is {design}")))
    }
}

/// Makes reference artifacts, which a simulated device executes. On a real NPU they would configure nothing, so a
/// store for real devices must not have this compiler.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceCompiler;

impl KernelCompiler for ReferenceCompiler {
    fn name(&self) -> &str {
        "reference"
    }

    fn folder(&self) -> &str {
        "reference"
    }

    fn identity(&self) -> String {
        // With the sources, so that a worker of another build of the same version differs.
        format!("reference {} ({})", env!("CARGO_PKG_VERSION"), &crate::SOURCE_DIGEST[..12])
    }

    fn sources(&self) -> String {
        crate::SOURCE_DIGEST.into()
    }

    /// What the operation takes.
    fn takes(&self, op: &dyn Operation, node: &Node, _arch: &Arch) -> Result<(), CompileError> {
        Ok(op.check(node)?)
    }

    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        reference_artifact(op, node, arch).map_err(|error| match error {
            BuildError::Unsupported(reason) => reason.into(),
            error => CompileError::failed(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::read_description;
    use crate::{DataType, OpParams, Tensor, table};
    use aie_hal::ArchRegistry;

    #[test]
    fn reference_artifacts_describe_their_node() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let tensor = Tensor::contiguous(DataType::F32, [64, 64, 1, 1]);
        let node = Node::new("MUL_MAT", OpParams::default(), tensor, vec![Some(tensor); 2]);
        let artifact = ReferenceCompiler.compile(table::lookup("MUL_MAT").unwrap(), &node, &arch).unwrap();
        assert_eq!(read_description(&artifact).unwrap().node, node);
        assert_eq!((ReferenceCompiler.name(), artifact.arch()), ("reference", "aie2"));
        assert!(ReferenceCompiler.identity().starts_with("reference "));
    }

    #[test]
    fn the_reference_compiler_takes_what_it_makes() {
        let arch = ArchRegistry::builtin().get("aie2p").unwrap();
        let op = table::lookup("MUL_MAT").unwrap();
        let of = |dtype| {
            let [a, b] = [[64, 32, 1, 1], [64, 8, 1, 1]].map(|ne| Some(Tensor::contiguous(dtype, ne)));
            let output = Tensor::contiguous(DataType::F32, [32, 8, 1, 1]);
            Node::new("MUL_MAT", OpParams::default(), output, vec![a, b])
        };
        for (node, taken) in [(of(DataType::F32), true), (of(DataType::I64), false)] {
            let made = ReferenceCompiler.compile(op, &node, &arch).map(drop);
            assert_eq!(ReferenceCompiler.takes(op, &node, &arch), made);
            assert_eq!(made.is_ok(), taken);
            assert!(taken || matches!(made, Err(CompileError::Unsupported(_))));
        }
    }
}
