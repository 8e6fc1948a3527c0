//! A compiler that is started when it is asked for the first kernel.

use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, DesignName, KernelCompiler};
use aie_ops::{Node, Operation};
use std::fmt;
use std::sync::{Arc, OnceLock};

type Made = Result<Arc<dyn KernelCompiler>, CompileError>;

/// Stands for a compiler whose toolchain may be missing, and which may not be needed: it comes behind one that needs none.
pub struct Deferred<F> {
    name: String,
    start: F,
    made: OnceLock<Made>,
}

impl<F: Fn() -> Made + Send + Sync> Deferred<F> {
    /// The compiler of this name that `start` gives. It is called once, and what it says counts for every kernel.
    pub fn new(name: impl Into<String>, start: F) -> Self {
        Self { name: name.into(), start, made: OnceLock::new() }
    }

    fn made(&self) -> &Made {
        self.made.get_or_init(&self.start)
    }
}

impl<F: Fn() -> Made + Send + Sync> KernelCompiler for Deferred<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> String {
        self.made().as_ref().map(|compiler| compiler.identity()).unwrap_or_default()
    }

    fn sources(&self) -> String {
        self.made().as_ref().map(|compiler| compiler.sources()).unwrap_or_default()
    }

    fn available(&self) -> Result<(), CompileError> {
        self.made().clone()?.available()
    }

    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        self.made().clone()?.compile(op, node, arch)
    }

    fn compile_design(
        &self,
        design: &DesignName<'_>,
        op: &dyn Operation,
        node: &Node,
        arch: &Arch,
    ) -> Result<KernelArtifact, CompileError> {
        self.made().clone()?.compile_design(design, op, node, arch)
    }
}

impl<F> fmt::Debug for Deferred<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("name", &self.name).field("made", &self.made).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::{arch, sum};
    use crate::double::Double;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn it_is_started_once_and_when_it_is_needed() {
        let starts = AtomicUsize::new(0);
        let deferred = Deferred::new("double", || {
            starts.fetch_add(1, SeqCst);
            Ok(Arc::new(Double::new("1")) as Arc<dyn KernelCompiler>)
        });
        assert_eq!((deferred.name(), starts.load(SeqCst)), ("double", 0));
        let (op, node) = sum(8);
        deferred.compile(op, &node, &arch("aie2")).unwrap();
        assert_eq!((deferred.identity().as_str(), deferred.sources().as_str()), ("1", "sources"));
        assert_eq!(starts.load(SeqCst), 1);
    }

    #[test]
    fn that_it_does_not_start_is_the_answer_for_every_kernel() {
        let missing = CompileError::Unavailable("there is no Python".into());
        let deferred = Deferred::new("iron", || Err(missing.clone()));
        let (op, node) = sum(8);
        assert_eq!(deferred.compile(op, &node, &arch("aie2")).unwrap_err(), missing);
        assert_eq!((deferred.available().unwrap_err(), deferred.identity()), (missing.clone(), String::new()));
    }
}
