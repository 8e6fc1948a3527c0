//! The store: one answer per kernel, remembered.

use crate::compiler::{CompileError, KernelCompiler};
use crate::counters::{Live, StoreCounters, count};
use crate::directory::{DirectoryError, KERNEL_DIR_VARIABLE, KernelDirectory};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// The store has no kernel.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum StoreError {
    /// The kernel directory or a file in it cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// No source had it.
    #[error("no kernel {name} for {arch}: {tried}")]
    NotFound {
        /// Kernel name.
        name: String,
        /// Generation.
        arch: String,
        /// Every source and what it said.
        tried: String,
    },
}

type Answer = Result<KernelArtifact, StoreError>;
/// Filled once, by the first who asks; others wait for it.
type Entry = Arc<OnceLock<Answer>>;

/// Finds or makes kernels. Thread-safe.
///
/// Kernels are kept by generation and whole node, not by name: names leave out what some operations depend on, such as the slope
/// of LEAKY_RELU. A kernel is looked for or compiled once, whoever asks at the same time; different kernels do not
/// wait for each other. Failures are kept with their cause and not tried again.
#[derive(Debug)]
pub struct KernelStore {
    directory: Option<KernelDirectory>,
    compilers: Vec<Arc<dyn KernelCompiler>>,
    entries: RwLock<HashMap<String, HashMap<Node, Entry>>>,
    counters: Live,
}

/// Options of a [`KernelStore`].
#[derive(Debug, Default)]
pub struct KernelStoreBuilder {
    directory: Option<PathBuf>,
    compilers: Vec<Arc<dyn KernelCompiler>>,
}

impl KernelStoreBuilder {
    /// Looks for kernels in `path` before compiling them.
    pub fn kernel_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Takes the kernel directory from `GGML_HSA_KERNEL_DIR`, if it is set and not empty.
    pub fn kernel_directory_from_environment(mut self) -> Self {
        if let Some(path) = std::env::var_os(KERNEL_DIR_VARIABLE).filter(|path| !path.is_empty()) {
            self.directory = Some(path.into());
        }
        self
    }

    /// Adds a compiler. Compilers are asked in the order in which they were added.
    pub fn compiler(mut self, compiler: Arc<dyn KernelCompiler>) -> Self {
        self.compilers.push(compiler);
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    /// [`StoreError::Directory`] when the kernel directory is not a directory.
    pub fn build(self) -> Result<KernelStore, StoreError> {
        Ok(KernelStore {
            directory: self.directory.map(KernelDirectory::open).transpose()?,
            compilers: self.compilers,
            entries: RwLock::default(),
            counters: Live::default(),
        })
    }
}

impl KernelStore {
    /// Options with neither directory nor compiler.
    pub fn builder() -> KernelStoreBuilder {
        KernelStoreBuilder::default()
    }

    /// The kernel of a normalised node. One hash lookup when it was asked for before; otherwise it may read files and
    /// compile, and blocks until that is done.
    ///
    /// # Errors
    /// [`StoreError`], the same one for every later call with the same arguments.
    pub fn get(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, StoreError> {
        let entry = self.entry(node, arch);
        if let Some(answer) = entry.get() {
            count(&self.counters.memory);
            return answer.clone();
        }
        let mut first = false;
        let answer = entry.get_or_init(|| {
            first = true;
            let answer = self.find(op, node, arch);
            if let Err(error) = &answer {
                count(&self.counters.failed);
                tracing::debug!("{error}");
            }
            answer
        });
        if !first {
            count(&self.counters.memory);
        }
        answer.clone()
    }

    /// Where kernels came from so far.
    pub fn counters(&self) -> StoreCounters {
        self.counters.snapshot()
    }

    fn entry(&self, node: &Node, arch: &Arch) -> Entry {
        if let Some(entry) = self.entries.read().get(&arch.name).and_then(|kernels| kernels.get(node)) {
            return Arc::clone(entry);
        }
        let mut entries = self.entries.write();
        Arc::clone(entries.entry(arch.name.clone()).or_default().entry(node.clone()).or_default())
    }

    fn find(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Answer {
        let name = kernel_name(op, node);
        let mut tried = Vec::new();
        match &self.directory {
            Some(directory) => {
                if let Some(artifact) = directory.load(&name, node, arch)? {
                    count(&self.counters.directory);
                    return Ok(artifact);
                }
                tried.push(format!("not in {}", directory.path().join(&arch.name).display()));
            }
            None => tried.push(format!("no kernel directory ({KERNEL_DIR_VARIABLE} is not set)")),
        }
        for compiler in &self.compilers {
            match compiler.compile(op, node, arch) {
                Ok(artifact) => {
                    count(&self.counters.compiled);
                    return Ok(artifact);
                }
                Err(CompileError::Unsupported(reason)) => {
                    tried.push(format!("compiler {} does not support it: {reason}", compiler.name()));
                }
                Err(CompileError::Failed(failure)) => {
                    tried.push(format!("compiler {} failed: {}", compiler.name(), failure.cause));
                }
                Err(CompileError::Unavailable(reason)) => {
                    tried.push(format!("compiler {} is not available: {reason}", compiler.name()));
                }
            }
        }
        if self.compilers.is_empty() {
            tried.push("no compiler".into());
        }
        Err(StoreError::NotFound { name, arch: arch.name.clone(), tried: tried.join("; ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::ReferenceCompiler;
    use crate::directory::tests::{arch, put, sum};
    use rstest::rstest;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    fn store() -> KernelStore {
        KernelStore::builder().compiler(Arc::new(ReferenceCompiler)).build().unwrap()
    }

    /// Counts its calls, takes its time, and fails for nodes of 13 elements.
    #[derive(Debug, Default)]
    struct Slow {
        calls: AtomicUsize,
    }

    impl KernelCompiler for Slow {
        fn name(&self) -> &str {
            "slow"
        }
        fn identity(&self) -> String {
            "slow 1".into()
        }
        fn sources(&self, _: &dyn Operation, _: &Node, _: &Arch) -> String {
            "none".into()
        }
        fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
            self.calls.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            if node.output.elements() == 13 {
                return Err(CompileError::failed("13 is too much"));
            }
            ReferenceCompiler.compile(op, node, arch)
        }
    }

    #[test]
    fn a_kernel_is_compiled_once_and_then_remembered() {
        let store = store();
        let (op, node) = sum(64);
        let first = store.get(op, &node, &arch("aie2")).unwrap();
        let second = store.get(op, &node, &arch("aie2")).unwrap();
        assert_eq!(first.identity(), second.identity());
        let expected = StoreCounters { memory: 1, compiled: 1, ..StoreCounters::default() };
        assert_eq!(store.counters(), expected);
    }

    #[test]
    fn generations_and_parameters_outside_the_name_are_kept_apart() {
        let store = store();
        let (op, node) = sum(64);
        let narrow = store.get(op, &node, &arch("aie2")).unwrap();
        let wide = store.get(op, &node, &arch("aie2p")).unwrap();
        assert_ne!(narrow.digest(), wide.digest());
        let mut other = node.clone();
        other.params.0[0] = 5;
        let different = store.get(op, &other, &arch("aie2")).unwrap();
        assert_ne!(narrow.digest(), different.digest());
        assert_eq!(store.counters().compiled, 3);
    }

    #[test]
    fn the_directory_comes_before_the_compiler() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        put(root.path(), op, &node, &arch("aie2p"));
        let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(ReferenceCompiler));
        let store = builder.build().unwrap();
        store.get(op, &node, &arch("aie2p")).unwrap();
        store.get(op, &sum(32).1, &arch("aie2p")).unwrap();
        let expected = StoreCounters { directory: 1, compiled: 1, ..StoreCounters::default() };
        assert_eq!(store.counters(), expected);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_lasts() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        let name = put(root.path(), op, &node, &arch("aie2"));
        let path = root.path().join("aie2").join(format!("{name}.pdi"));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 4]).unwrap();
        let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(ReferenceCompiler));
        let store = builder.build().unwrap();
        let first = store.get(op, &node, &arch("aie2")).unwrap_err();
        assert!(first.to_string().contains(&path.display().to_string()), "{first}");
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(store.get(op, &node, &arch("aie2")).unwrap_err(), first);
        let expected = StoreCounters { memory: 1, failed: 1, ..StoreCounters::default() };
        assert_eq!(store.counters(), expected);
    }

    #[test]
    fn a_missing_directory_is_an_error_at_once() {
        let root = tempfile::tempdir().unwrap();
        let error = KernelStore::builder().kernel_directory(root.path().join("no")).build().unwrap_err();
        assert!(matches!(error, StoreError::Directory(DirectoryError::Directory { .. })), "{error}");
    }

    #[rstest]
    #[case::works(64, true)]
    #[case::fails(13, false)]
    fn threads_that_ask_together_share_one_compilation(#[case] elements: usize, #[case] works: bool) {
        let compiler = Arc::new(Slow::default());
        let store = KernelStore::builder().compiler(Arc::clone(&compiler) as _).build().unwrap();
        let (op, node) = sum(elements);
        let (arch, barrier) = (arch("aie2"), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    assert_eq!(store.get(op, &node, &arch).is_ok(), works);
                });
            }
        });
        assert_eq!(compiler.calls.load(SeqCst), 1);
        let counters = store.counters();
        assert_eq!((counters.memory, counters.compiled + counters.failed), (7, 1));
    }

    #[test]
    fn every_source_is_named_when_none_has_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(13);
        let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(Slow::default()));
        let message = builder.build().unwrap().get(op, &node, &arch("aie2")).unwrap_err().to_string();
        let folder = root.path().join("aie2");
        let expected = format!(
            "no kernel add-13f32-13f32-13f32 for aie2: not in {}; compiler slow failed: 13 is too much",
            folder.display()
        );
        assert_eq!(message, expected);
        let message = KernelStore::builder().build().unwrap().get(op, &node, &arch("aie2")).unwrap_err().to_string();
        assert!(message.ends_with("no kernel directory (GGML_HSA_KERNEL_DIR is not set); no compiler"), "{message}");
    }

    /// Planning a graph asks once per node, so an answer from memory must be far below a dispatch's 30 microseconds.
    #[test]
    fn answers_from_memory_are_cheap() {
        let (store, arch) = (store(), arch("aie2p"));
        let (op, node) = sum(4096);
        store.get(op, &node, &arch).unwrap();
        let start = Instant::now();
        let rounds = 10_000;
        for _ in 0..rounds {
            store.get(op, &node, &arch).unwrap();
        }
        let each = start.elapsed() / rounds;
        println!("{each:?} for an answer from memory");
        assert!(each < Duration::from_micros(30), "{each:?}");
    }
}
