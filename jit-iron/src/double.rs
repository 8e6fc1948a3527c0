//! A compiler for tests.

use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, DesignName, KernelCompiler, ReferenceCompiler};
use aie_ops::{Node, Operation};
use parking_lot::Mutex;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Makes reference artifacts under another name, counts its calls, and can be changed.
#[derive(Debug)]
pub(crate) struct Double {
    pub(crate) name: &'static str,
    pub(crate) is_immediate: bool,
    pub(crate) makes_code: bool,
    pub(crate) identity: Mutex<String>,
    pub(crate) error: Mutex<Option<CompileError>>,
    /// The last that was named.
    pub(crate) design: Mutex<String>,
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
            name: "double",
            is_immediate: false,
            makes_code: false,
            identity: Mutex::new(identity.into()),
            error: Mutex::default(),
            design: Mutex::default(),
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
        self.name
    }
    fn is_immediate(&self) -> bool {
        self.is_immediate
    }
    fn makes_code(&self) -> bool {
        self.makes_code
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
    fn compile_design(
        &self,
        design: &DesignName<'_>,
        op: &dyn Operation,
        node: &Node,
        arch: &Arch,
    ) -> Result<KernelArtifact, CompileError> {
        *self.design.lock() = design.to_string();
        self.compile(op, node, arch)
    }
}
