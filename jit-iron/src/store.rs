//! The store: one answer per kernel, remembered.

use crate::cache::KernelCache;
use crate::counters::StoreCounters;
use crate::directory::KernelDirectory;
use crate::jit_policy::JitPolicy;
use crate::pack::KernelPack;
use crate::sources::{Sources, StoreError};
use crate::supply::Supplied;
use crate::wanted::Wanted;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::KernelCompiler;
use aie_ops::{Node, Operation};
use parking_lot::{Mutex, RwLock};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A kernel that neither the library nor the user's kernel directory had: what a pregeneration has to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Generation.
    pub arch: String,
    /// Kernel name.
    pub kernel: String,
    /// The normalised node.
    pub node: Node,
    /// Where it came from instead, or why it did not.
    pub reason: String,
}

pub(crate) type Answer = Result<Supplied, StoreError>;

/// Filled once, by the first caller; others wait for it.
#[derive(Debug, Default)]
struct Entry {
    answer: OnceLock<Answer>,
    /// Whether it is being looked for in the background.
    requested: AtomicBool,
}

/// Finds or makes kernels. Thread-safe.
///
/// Kernels are stored by generation and whole node, not by name: names leave out what some operations depend on, such as the slope
/// of LEAKY_RELU. A kernel is looked for or compiled once, also by concurrent callers; different kernels do not
/// wait for each other. Failures are remembered with their cause and not retried.
#[derive(Debug)]
pub struct KernelStore {
    shared: Arc<Shared>,
    /// Where kernels are compiled in the background.
    background: Option<ThreadPool>,
    entries: RwLock<HashMap<String, HashMap<Node, Arc<Entry>>>>,
}

/// What the threads in the background need too.
#[derive(Debug)]
struct Shared {
    sources: Sources,
    missed: Mutex<Vec<Missed>>,
    arrivals: AtomicU64,
}

/// Options of a [`KernelStore`].
#[derive(Debug, Default)]
pub struct KernelStoreBuilder {
    sources: Sources,
    directory: Option<PathBuf>,
    threads: Option<usize>,
}

impl KernelStoreBuilder {
    /// Looks for kernels in `pack` before anywhere else.
    pub fn embedded(mut self, pack: KernelPack) -> Self {
        self.sources.embedded.push(pack);
        self
    }

    /// Looks for kernels in `path` before compiling them.
    pub fn kernel_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Looks for compiled kernels in `cache`, and stores there what is compiled.
    pub fn cache(mut self, cache: KernelCache) -> Self {
        self.sources.cache = Some(cache);
        self
    }

    /// Adds a compiler. Compilers are tried in the order in which they were added.
    pub fn compiler(mut self, compiler: Arc<dyn KernelCompiler>) -> Self {
        self.sources.compilers.push(compiler);
        self
    }

    /// When to compile.
    pub fn policy(mut self, policy: JitPolicy) -> Self {
        self.sources.policy = policy;
        self
    }

    /// How many kernels are compiled at the same time in the background; default 2.
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The kernels are for real NPUs: reference artifacts, which would do nothing there, are rejected wherever they come from.
    pub fn for_silicon(mut self) -> Self {
        self.sources.silicon = true;
        self
    }

    /// The store only tells where kernels would come from: the cache is read and not written, and compilers are asked in the calling
    /// thread, so they should be quick ones, or stand for slow ones.
    pub fn foresight(mut self) -> Self {
        self.sources.foresight = true;
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    /// [`StoreError::Directory`] when the kernel directory is not a directory.
    pub fn build(self) -> Result<KernelStore, StoreError> {
        let directory = self.directory.map(KernelDirectory::open).transpose()?;
        let sources = Sources { directory, ..self.sources };
        let background = (sources.policy == JitPolicy::Background).then(|| pool(self.threads.unwrap_or(2))).flatten();
        let shared = Shared { sources, missed: Mutex::default(), arrivals: AtomicU64::new(0) };
        Ok(KernelStore { shared: Arc::new(shared), background, entries: RwLock::default() })
    }
}

impl KernelStore {
    /// Options with neither directory nor compiler.
    pub fn builder() -> KernelStoreBuilder {
        KernelStoreBuilder::default()
    }

    /// The kernel of a normalised node. One hash lookup after the first call; the first may read files and
    /// compile, and blocks until that is done. In the background policy it reads files and does not compile.
    ///
    /// # Errors
    /// [`StoreError`], the same one for every later call with the same arguments, except [`StoreError::Pending`].
    pub fn get(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, StoreError> {
        self.find(op, node, arch).map(|supplied| supplied.artifact)
    }

    /// As [`KernelStore::get`], with where the kernel came from.
    ///
    /// # Errors
    /// As [`KernelStore::get`].
    pub fn find(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<Supplied, StoreError> {
        let entry = self.entry(node, arch);
        let counters = &self.shared.sources.counters;
        if let Some(answer) = entry.answer.get() {
            counters.lock().memory += 1;
            return answer.clone();
        }
        if let Some(background) = &self.background {
            return self.find_in(background, entry, op, node, arch);
        }
        let mut first = false;
        let answer = entry.answer.get_or_init(|| {
            first = true;
            self.shared.find(op, node, arch)
        });
        if !first {
            counters.lock().memory += 1;
        }
        answer.clone()
    }

    /// The kernel that came with the library or from the user, or else that of the first compiler, if that one makes machine code in
    /// milliseconds. For operations that the host does well unless there is such a kernel, and for kernels that may be needed
    /// later: no other source is asked, nothing is cached in files, and that there is none is not noted.
    ///
    /// # Errors
    /// [`StoreError::Directory`] when the user's directory has the kernel and it cannot be used.
    pub fn make_code(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<Option<Supplied>, StoreError> {
        let entry = self.entry(node, arch);
        if let Some(answer) = entry.answer.get() {
            return Ok(answer.clone().ok());
        }
        let wanted = Wanted::of(op, node, arch);
        let Some(made) = self.shared.sources.make_code(&wanted)? else { return Ok(None) };
        entry.answer.get_or_init(|| self.shared.take(wanted, Ok(made))).clone().map(Some)
    }

    /// Looks for the kernel without compiling, and compiles it in the background.
    fn find_in(
        &self,
        background: &ThreadPool,
        entry: Arc<Entry>,
        op: &dyn Operation,
        node: &Node,
        arch: &Arch,
    ) -> Answer {
        let wanted = Wanted::of(op, node, arch);
        let pending = StoreError::Pending { name: wanted.name.clone(), arch: arch.name.clone() };
        if entry.requested.swap(true, Ordering::AcqRel) {
            return Err(pending);
        }
        if let Some(found) = self.shared.sources.find_ready(&wanted).transpose() {
            return entry.answer.get_or_init(|| self.shared.take(wanted, found)).clone();
        }
        // Operations of the table are static; the one at hand may not be.
        let Some(op) = aie_ops::table::lookup(op.name()) else { return self.shared.find(op, node, arch) };
        let (shared, node, arch) = (Arc::downgrade(&self.shared), node.clone(), arch.clone());
        background.spawn_fifo(move || {
            // What has not begun when the store is dropped is skipped.
            let Some(shared) = shared.upgrade() else { return };
            entry.answer.get_or_init(|| shared.find(op, &node, &arch));
            shared.arrivals.fetch_add(1, Ordering::AcqRel);
        });
        Err(pending)
    }

    /// Whether [`KernelStore::get`] gives a kernel, now or soon, as far as that is known without waiting for a compiler. When
    /// compiling is eager, what the rules of the array allow is expected to compile. In the background policy, asking has a
    /// kernel compiled.
    pub fn expects(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> bool {
        let sources = &self.shared.sources;
        if sources.policy != JitPolicy::Eager || sources.compilers.is_empty() {
            return self.get(op, node, arch).is_ok();
        }
        self.entry(node, arch).answer.get().map_or_else(|| op.plan(node, arch).is_ok(), Result::is_ok)
    }

    /// How many kernels have been compiled in the background, or could not be. What was planned without them can be planned
    /// again.
    pub fn arrivals(&self) -> u64 {
        self.shared.arrivals.load(Ordering::Acquire)
    }

    /// Whether there is anything that could have kernels for `arch`.
    ///
    /// # Errors
    /// [`StoreError::NoSource`].
    pub fn serves(&self, arch: &Arch) -> Result<(), StoreError> {
        let sources = &self.shared.sources;
        let available: Vec<String> = sources.embedded.iter().map(|pack| pack.arch().to_owned()).collect();
        let compiles = sources.policy != JitPolicy::Off && !sources.compilers.is_empty();
        let kept = sources.cache.is_some() && !sources.compilers.is_empty();
        if compiles || kept || sources.directory.is_some() || available.is_empty() || available.contains(&arch.name) {
            return Ok(());
        }
        Err(StoreError::NoSource { available, device: arch.name.clone() })
    }

    /// Whether any kernel for `arch` is available: one exists, or a compiler starts. More than
    /// [`KernelStore::serves`] asks, which takes a source for its content. For a device that is not simulated: without a kernel
    /// it would run everything on the CPU. May start a worker, which takes seconds, when there is no kernel.
    ///
    /// # Errors
    /// [`StoreError::NoKernels`], which says what would change that.
    pub fn supplies(&self, arch: &Arch) -> Result<(), StoreError> {
        self.shared.sources.supply(arch)
    }

    /// Whether kernels as code come before descriptions of them.
    pub fn prefers_code(&self) -> bool {
        self.shared.sources.compilers.first().is_some_and(|compiler| compiler.makes_code())
    }

    /// Where kernels came from so far.
    pub fn counters(&self) -> StoreCounters {
        *self.shared.sources.counters.lock()
    }

    /// Why the first kernel that the cache did not take was not kept, if there was one: a full disk, a folder that is read-only.
    pub fn not_kept(&self) -> Option<String> {
        self.shared.sources.cache.as_ref()?.not_kept().map(str::to_owned)
    }

    /// The kernels that neither the library nor the kernel directory had so far, each once, in the order they were requested.
    pub fn missed(&self) -> Vec<Missed> {
        self.shared.missed.lock().clone()
    }

    fn entry(&self, node: &Node, arch: &Arch) -> Arc<Entry> {
        if let Some(entry) = self.entries.read().get(&arch.name).and_then(|kernels| kernels.get(node)) {
            return Arc::clone(entry);
        }
        let mut entries = self.entries.write();
        Arc::clone(entries.entry(arch.name.clone()).or_default().entry(node.clone()).or_default())
    }
}

/// Threads to compile in, at least one. A compilation that panics costs its kernel only. Without threads, the caller compiles.
fn pool(threads: usize) -> Option<ThreadPool> {
    let builder = ThreadPoolBuilder::new().num_threads(threads.max(1)).thread_name(|_| "ggml-hsa-jit".into());
    let builder = builder.panic_handler(|_| {
        tracing::error!("a background compilation panicked; its kernel stays missing");
    });
    builder
        .build()
        .inspect_err(|error| {
            tracing::warn!("cannot start threads for compiling: {error}; compiling in the calling thread")
        })
        .ok()
}

impl Shared {
    /// Tries every source.
    fn find(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Answer {
        let wanted = Wanted::of(op, node, arch);
        let found = self.sources.find(&wanted);
        self.take(wanted, found)
    }

    /// Turns a source's result into an answer, and records what a pregeneration would have to generate.
    fn take(&self, wanted: Wanted<'_>, found: Answer) -> Answer {
        let reason = match &found {
            Ok(supplied) if supplied.supplier.is_given() => None,
            Ok(supplied) => Some(supplied.supplier.place().to_owned()),
            Err(error) => {
                self.sources.counters.lock().failed += 1;
                tracing::debug!("{error}");
                Some(error.to_string())
            }
        };
        if let Some(reason) = reason {
            let (arch, kernel, node) = (wanted.arch.name.clone(), wanted.name, wanted.node.clone());
            self.missed.lock().push(Missed { arch, kernel, node, reason });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DirectoryError;
    use crate::directory::tests::{arch, put, sum};
    use crate::double::Double;
    use crate::supply::Supplier;
    use aie_ops::compiler::{CompileError, ReferenceCompiler};
    use rstest::rstest;
    use std::fs;
    use std::sync::Barrier;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::{Duration, Instant};

    fn store() -> KernelStore {
        KernelStore::builder().compiler(Arc::new(ReferenceCompiler)).build().unwrap()
    }

    /// Takes its time, and fails for 13 elements.
    fn slow() -> Double {
        Double { takes: Duration::from_millis(20), ..Double::failing(13, CompileError::failed("13 is too much")) }
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
    fn a_damaged_file_is_an_error_that_lasts() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        let name = put(root.path(), op, &node, &arch("aie2"));
        let path = root.path().join("aie2").join(format!("{name}.pdi"));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 4]).unwrap();
        let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(ReferenceCompiler));
        let store = builder.build().unwrap();
        let first = store.get(op, &node, &arch("aie2")).unwrap_err();
        assert!(first.to_string().contains(&path.display().to_string()), "{first}");
        fs::write(&path, &whole).unwrap();
        assert_eq!(store.get(op, &node, &arch("aie2")).unwrap_err(), first);
        let expected = StoreCounters { memory: 1, failed: 1, ..StoreCounters::default() };
        assert_eq!(store.counters(), expected);
    }

    #[test]
    fn a_missing_directory_has_no_kernels_and_a_file_in_its_place_is_an_error_at_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("no");
        let directory = || KernelStore::builder().kernel_directory(&path).compiler(Arc::new(ReferenceCompiler)).build();
        let (store, (op, node)) = (directory().unwrap(), sum(64));
        store.get(op, &node, &arch("aie2")).unwrap();
        assert_eq!(store.counters(), StoreCounters { compiled: 1, ..StoreCounters::default() });
        fs::write(&path, "").unwrap();
        let error = directory().unwrap_err();
        assert!(matches!(error, StoreError::Directory(DirectoryError::Directory { .. })), "{error}");
    }

    #[test]
    fn given_kernels_come_before_those_that_are_made_at_once() {
        let root = tempfile::tempdir().unwrap();
        let ((op, given), (_, other), (_, packed), arch) = (sum(64), sum(128), sum(256), arch("aie2"));
        let name = put(root.path(), op, &given, &arch);
        let folder = root.path().join("packed");
        put(&folder, op, &packed, &arch);
        let (bytes, _) = crate::pack::pack(&folder.join("aie2"), &arch).unwrap();
        let store = || {
            let native = Double { is_immediate: true, makes_code: true, ..Double::new("1") };
            KernelStore::builder()
                .embedded(KernelPack::open("aie2", bytes.clone()).unwrap())
                .kernel_directory(root.path())
                .compiler(Arc::new(native))
                .build()
                .unwrap()
        };
        let whole = store();
        let supplier = |node| whole.make_code(op, node, &arch).unwrap().map(|made| made.supplier);
        assert_eq!(supplier(&given), Some(Supplier::Directory));
        assert_eq!(supplier(&packed), Some(Supplier::Embedded));
        assert_eq!(supplier(&other), Some(Supplier::Compiler("double".into())));
        // Asked again it is remembered, and what was neither built in nor in the directory is named once.
        assert_eq!(whole.find(op, &given, &arch).unwrap().supplier, Supplier::Directory);
        supplier(&other);
        let counters = whole.counters();
        assert_eq!((counters.directory, counters.embedded, counters.compiled), (1, 1, 1));
        assert_eq!(whole.missed().iter().map(|missed| &missed.node).collect::<Vec<_>>(), [&other]);

        // Damage is an error, and no reason to make another.
        let path = root.path().join("aie2").join(format!("{name}.pdi"));
        fs::write(&path, &fs::read(&path).unwrap()[..64]).unwrap();
        let error = store().make_code(op, &given, &arch).unwrap_err();
        assert!(
            matches!(&error, StoreError::Directory(DirectoryError::File { path: wrong, .. }) if *wrong == path),
            "{error}"
        );
    }

    #[rstest]
    #[case::works(64, true)]
    #[case::fails(13, false)]
    fn threads_that_ask_together_share_one_compilation(#[case] elements: usize, #[case] works: bool) {
        let compiler = Arc::new(slow());
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
        let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(slow()));
        let message = builder.build().unwrap().get(op, &node, &arch("aie2")).unwrap_err().to_string();
        let folder = root.path().join("aie2");
        let expected = format!(
            "no kernel add-13f32-13f32-13f32 for aie2: not in {}; compiler double failed: 13 is too much",
            folder.display()
        );
        assert_eq!(message, expected);
        let message = KernelStore::builder().build().unwrap().get(op, &node, &arch("aie2")).unwrap_err().to_string();
        assert!(message.ends_with("no kernel directory (GGML_HSA_KERNEL_DIR is not set); no compiler"), "{message}");
    }

    /// The quick one takes everything but 13 elements.
    fn quick_and_slow() -> [Arc<Double>; 2] {
        let unsupported = CompileError::Unsupported("13 is too much".into());
        let quick = Double { name: "quick", is_immediate: true, ..Double::failing(13, unsupported) };
        [Arc::new(quick), Arc::new(Double { name: "slow", ..Double::new("2") })]
    }

    #[rstest]
    #[case::taken_by_the_first(64, "quick")]
    #[case::left_to_the_second(13, "slow")]
    fn compilers_are_asked_in_their_order(#[case] elements: usize, #[case] expected: &str) {
        let root = tempfile::tempdir().unwrap();
        let [quick, slow] = quick_and_slow();
        let (op, node) = sum(elements);
        let find = |compilers: &[&Arc<Double>]| {
            let builder = KernelStore::builder().cache(KernelCache::open(root.path()).unwrap());
            let store = compilers.iter().fold(builder, |builder, compiler| builder.compiler(Arc::clone(compiler) as _));
            store.build().unwrap().find(op, &node, &arch("aie2")).unwrap().supplier
        };
        assert_eq!(find(&[&slow]), Supplier::Compiler("slow".into()));
        // That the second one's kernel is cached does not hide the first one.
        assert_eq!(find(&[&quick, &slow]).name(), expected);
        assert_eq!(find(&[&quick, &slow]), Supplier::Cache(expected.into()));
    }

    #[test]
    fn nobody_waits_for_what_takes_milliseconds() {
        let [quick, slow] = quick_and_slow();
        let builder = KernelStore::builder().compiler(quick).compiler(slow).policy(JitPolicy::Background);
        let store = builder.build().unwrap();
        let find = |elements| store.find(sum(elements).0, &sum(elements).1, &arch("aie2"));
        assert_eq!(find(64).unwrap().supplier, Supplier::Compiler("quick".into()));
        assert!(matches!(find(13), Err(StoreError::Pending { .. })));
    }

    #[test]
    fn the_cache_serves_the_next_process() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache");
        let compiler = Arc::new(slow());
        let open = || {
            let cache = KernelCache::open(&path).unwrap();
            KernelStore::builder().cache(cache).compiler(Arc::clone(&compiler) as _)
        };
        let (op, node) = sum(64);
        for expected in [
            StoreCounters { compiled: 1, ..StoreCounters::default() },
            StoreCounters { cache: 1, ..StoreCounters::default() },
        ] {
            let store = open().build().unwrap();
            store.get(op, &node, &arch("aie2p")).unwrap();
            assert_eq!(store.counters(), expected);
        }
        // Without compiling too.
        let store = open().policy(JitPolicy::Off).build().unwrap();
        store.get(op, &node, &arch("aie2p")).unwrap();
        let message = store.get(op, &sum(32).1, &arch("aie2p")).unwrap_err().to_string();
        assert!(message.ends_with("compiling is off (GGML_HSA_JIT)"), "{message}");
        assert_eq!(compiler.calls.load(SeqCst), 1);
    }

    #[test]
    fn foresight_reads_the_cache_and_leaves_it_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache");
        let open = |builder: KernelStoreBuilder| {
            builder.cache(KernelCache::open(&path).unwrap()).compiler(Arc::new(slow())).build().unwrap()
        };
        let find = |store: &KernelStore, elements| store.find(sum(elements).0, &sum(elements).1, &arch("aie2p"));
        open(KernelStore::builder()).get(sum(64).0, &sum(64).1, &arch("aie2p")).unwrap();
        for _ in 0..2 {
            let store = open(KernelStore::builder().foresight());
            assert_eq!(find(&store, 64).unwrap().supplier, Supplier::Cache("double".into()));
            assert_eq!(find(&store, 32).unwrap().supplier, Supplier::Compiler("double".into()));
            // A failure is not written down either.
            assert!(find(&store, 13).is_err());
        }
        let cached = KernelStore::builder().cache(KernelCache::open(&path).unwrap()).policy(JitPolicy::Off);
        let cached = cached.compiler(Arc::new(slow())).build().unwrap();
        assert!(find(&cached, 64).is_ok() && find(&cached, 32).is_err());
    }

    #[test]
    fn what_was_missed_is_noted() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), sum(16).0, &sum(16).1, &arch("aie2p"));
        let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(slow()));
        let store = builder.build().unwrap();
        for elements in [16, 32, 13, 32] {
            let _ = store.get(sum(elements).0, &sum(elements).1, &arch("aie2p"));
        }
        let missed = store.missed();
        let names: Vec<_> = missed.iter().map(|missed| missed.kernel.as_str()).collect();
        assert_eq!(names, ["add-32f32-32f32-32f32", "add-13f32-13f32-13f32"]);
        assert_eq!((missed[0].reason.as_str(), missed[0].arch.as_str()), ("compiled", "aie2p"));
        assert!(missed[1].reason.contains("13 is too much"));
    }

    #[test]
    fn in_the_background_who_asks_does_not_wait() {
        let compiler = Arc::new(slow());
        let builder = KernelStore::builder().compiler(Arc::clone(&compiler) as _).policy(JitPolicy::Background);
        let (store, arch) = (builder.build().unwrap(), arch("aie2p"));
        let (op, node) = sum(64);
        for elements in [64, 13, 64] {
            let error = store.get(op, &sum(elements).1, &arch).unwrap_err();
            assert!(matches!(error, StoreError::Pending { .. }), "{error}");
        }
        wait_for(&store, 2);
        store.get(op, &node, &arch).unwrap();
        let error = store.get(op, &sum(13).1, &arch).unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
        assert_eq!(compiler.calls.load(SeqCst), 2);
    }

    fn wait_for(store: &KernelStore, arrivals: u64) {
        let start = Instant::now();
        while store.arrivals() < arrivals {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn in_the_background_kernels_are_compiled_side_by_side_and_a_panic_costs_one() {
        let compiler = Arc::new(Double { panics_for: Some(13), together: Barrier::new(3), ..Double::new("1") });
        let builder = KernelStore::builder().compiler(Arc::clone(&compiler) as _).policy(JitPolicy::Background);
        let store = builder.background_threads(3).build().unwrap();
        for elements in [13, 16, 32, 48, 64, 80, 96] {
            store.get(sum(elements).0, &sum(elements).1, &arch("aie2p")).unwrap_err();
        }
        wait_for(&store, 6);
        assert_eq!((compiler.calls.load(SeqCst), compiler.most.load(SeqCst)), (7, 3));
    }

    #[test]
    fn in_the_background_what_is_there_comes_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        let name = put(root.path(), op, &node, &arch("aie2p"));
        fs::write(root.path().join("aie2p").join(format!("{}.pdi", name.replace("64", "32"))), "").unwrap();
        fs::write(root.path().join("aie2p").join(format!("{}_insts.bin", name.replace("64", "32"))), "").unwrap();
        let builder = KernelStore::builder().kernel_directory(root.path()).policy(JitPolicy::Background);
        let store = builder.compiler(Arc::new(ReferenceCompiler)).build().unwrap();
        store.get(op, &node, &arch("aie2p")).unwrap();
        for _ in 0..2 {
            let error = store.get(op, &sum(32).1, &arch("aie2p")).unwrap_err();
            assert!(matches!(error, StoreError::Directory(_)), "{error}");
        }
    }

    /// Embedded before the directory before the cache before a compiler, whichever of them have the kernel.
    #[rstest]
    fn sources_are_asked_in_order(
        #[values(false, true)] embedded: bool,
        #[values(false, true)] directory: bool,
        #[values(false, true)] cached: bool,
    ) {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2p"));
        let folders = ["pack", "kernels", "cache"].map(|name| root.path().join(name));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let compiler: Arc<dyn KernelCompiler> = Arc::new(slow());
        let open_cache = || KernelCache::open(&folders[2]).unwrap();
        if cached {
            let store = KernelStore::builder().cache(open_cache()).compiler(Arc::clone(&compiler)).build().unwrap();
            store.get(op, &node, &arch).unwrap();
        }
        let mut builder = KernelStore::builder().cache(open_cache()).compiler(compiler).kernel_directory(&folders[1]);
        if directory {
            put(&folders[1], op, &node, &arch);
        }
        if embedded {
            put(&folders[0], op, &node, &arch);
            let (bytes, _) = crate::pack::pack(&folders[0].join("aie2p"), &arch).unwrap();
            builder = builder.embedded(KernelPack::open("aie2p", bytes).unwrap());
        }
        let store = builder.build().unwrap();
        store.get(op, &node, &arch).unwrap();
        let none = StoreCounters::default();
        let expected = match (embedded, directory, cached) {
            (true, _, _) => StoreCounters { embedded: 1, ..none },
            (_, true, _) => StoreCounters { directory: 1, ..none },
            (_, _, true) => StoreCounters { cache: 1, ..none },
            _ => StoreCounters { compiled: 1, ..none },
        };
        assert_eq!(store.counters(), expected);
    }

    #[test]
    fn a_damaged_kernel_in_the_library_is_reported_and_made_again() {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2p"));
        let name = put(root.path(), op, &node, &arch);
        let folder = root.path().join("aie2p");
        let (mut bytes, _) = crate::pack::pack(&folder, &arch).unwrap();
        let pdi = fs::read(folder.join(format!("{name}.pdi"))).unwrap();
        let start = bytes.windows(pdi.len()).position(|place| place == pdi).unwrap();
        // In the words that every PDI begins with.
        bytes[start + 0x14] ^= 1;
        let pack = KernelPack::open("aie2p", bytes).unwrap();
        let store = KernelStore::builder().embedded(pack).compiler(Arc::new(ReferenceCompiler)).build().unwrap();
        store.get(op, &node, &arch).unwrap();
        assert_eq!(store.counters(), StoreCounters { compiled: 1, ..StoreCounters::default() });
        let logged: Vec<String> = store.shared.sources.logged.lock().iter().cloned().collect();
        assert!(
            matches!(&logged[..], [one] if one.contains("add-64f32-64f32-64f32: its PDI cannot be used")),
            "{logged:?}"
        );
    }

    #[test]
    fn reference_artifacts_do_not_reach_silicon() {
        let builder = KernelStore::builder().compiler(Arc::new(ReferenceCompiler)).for_silicon();
        let (op, node) = sum(64);
        let message = builder.build().unwrap().get(op, &node, &arch("aie2p")).unwrap_err().to_string();
        assert!(message.contains("which only simulated devices execute"), "{message}");
    }

    #[test]
    fn a_generation_that_is_not_embedded_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        put(root.path(), op, &node, &arch("aie2"));
        let (bytes, _) = crate::pack::pack(&root.path().join("aie2"), &arch("aie2")).unwrap();
        let embedded = || KernelStore::builder().embedded(KernelPack::open("aie2", bytes.clone()).unwrap());
        let store = embedded().build().unwrap();
        assert_eq!(store.serves(&arch("aie2")), Ok(()));
        store.get(op, &node, &arch("aie2")).unwrap();
        assert_eq!((store.counters().embedded, store.missed()), (1, vec![]));
        let message = store.serves(&arch("aie2p")).unwrap_err().to_string();
        assert!(message.contains("available in this build: [aie2], device reports: [aie2p]"), "{message}");
        assert!(store.get(op, &node, &arch("aie2p")).unwrap_err().to_string().contains("not built into the library"));
        let compiling = embedded().compiler(Arc::new(ReferenceCompiler));
        assert_eq!(compiling.build().unwrap().serves(&arch("aie2p")), Ok(()));
        let off = embedded().compiler(Arc::new(ReferenceCompiler)).policy(JitPolicy::Off);
        off.build().unwrap().serves(&arch("aie2p")).unwrap_err();
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
