//! Compilers, which make an artifact from a node.

use aie_hal::{Arch, KernelArtifact};
use aie_ops::artifact::{BuildError, reference_artifact};
use aie_ops::{Node, Operation, Unsupported};
use std::fmt::Debug;
use std::sync::Arc;
use thiserror::Error;

/// A compiler has no artifact for a node.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
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

/// A compiler of kernels. Thread-safe; called once per kernel, possibly for several kernels at a time.
pub trait KernelCompiler: Send + Sync + Debug {
    /// Short name for messages and statistics.
    fn name(&self) -> &str;
    /// The folder of its kernels in a cache, below the cache's root; empty for compilers whose kernels run on silicon, which
    /// other backends may look for in the root.
    fn folder(&self) -> &str {
        ""
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
    /// Makes the artifact of a normalised node.
    ///
    /// # Errors
    /// [`CompileError::Unsupported`] when this compiler does not handle it, [`CompileError::Unavailable`] when it could not be
    /// tried, [`CompileError::Failed`] with the cause otherwise.
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

    fn folder(&self) -> &str {
        "reference"
    }

    fn identity(&self) -> String {
        // With the sources, so that a worker of another build of the same version differs.
        format!("reference {} ({})", env!("CARGO_PKG_VERSION"), &aie_ops::SOURCE_DIGEST[..12])
    }

    fn sources(&self) -> String {
        aie_ops::SOURCE_DIGEST.into()
    }

    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        reference_artifact(op, node, arch).map_err(|error| match error {
            BuildError::Unsupported(reason) => reason.into(),
            error => CompileError::failed(error.to_string()),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_ops::artifact::read_description;
    use aie_ops::{DataType, OpParams, Tensor, table};
    use parking_lot::Mutex;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    /// Makes reference artifacts under another name, counts its calls, and can be changed.
    #[derive(Debug)]
    pub(crate) struct Double {
        pub(crate) identity: Mutex<String>,
        pub(crate) error: Mutex<Option<CompileError>>,
        /// The output of this many elements is the only one that `error` is for.
        pub(crate) fails_for: Option<usize>,
        pub(crate) panics_for: Option<usize>,
        pub(crate) takes: Duration,
        /// Kernels that have to be in progress at the same time.
        pub(crate) together: Barrier,
        pub(crate) calls: AtomicUsize,
        pub(crate) running: AtomicUsize,
        /// Most kernels in progress at the same time.
        pub(crate) most: AtomicUsize,
    }

    impl Double {
        pub(crate) fn new(identity: &str) -> Self {
            Self {
                identity: Mutex::new(identity.into()),
                error: Mutex::default(),
                fails_for: None,
                panics_for: None,
                takes: Duration::ZERO,
                together: Barrier::new(1),
                calls: AtomicUsize::new(0),
                running: AtomicUsize::new(0),
                most: AtomicUsize::new(0),
            }
        }

        pub(crate) fn failing(elements: usize, error: CompileError) -> Self {
            Self { fails_for: Some(elements), error: Mutex::new(Some(error)), ..Self::new("1") }
        }
    }

    impl KernelCompiler for Double {
        fn name(&self) -> &str {
            "double"
        }
        fn identity(&self) -> String {
            self.identity.lock().clone()
        }
        fn sources(&self) -> String {
            "sources".into()
        }
        fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
            self.calls.fetch_add(1, SeqCst);
            assert_ne!(self.panics_for, Some(node.output.elements()));
            self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
            self.together.wait();
            std::thread::sleep(self.takes);
            self.running.fetch_sub(1, SeqCst);
            match &*self.error.lock() {
                Some(error) if self.fails_for.is_none_or(|count| count == node.output.elements()) => Err(error.clone()),
                _ => ReferenceCompiler.compile(op, node, arch),
            }
        }
    }

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
}
