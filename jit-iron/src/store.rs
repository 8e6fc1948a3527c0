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
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::{Node, Operation};
use parking_lot::{Mutex, RwLock};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
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
    /// Whether a compiler takes the node, where that was asked before there was an answer.
    expected: OnceLock<bool>,
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

    /// The kernel for a graph that does without configurations ([`KernelCompiler::compile_apart`]), if it can be had at once: it may not be
    /// needed in the end. The answer is not remembered.
    ///
    /// # Errors
    /// As [`KernelStore::find`].
    pub fn find_apart(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<Supplied, StoreError> {
        let wanted = Wanted { apart: true, ..Wanted::of(op, node, arch) };
        let found = self.shared.sources.find_ready(&wanted)?;
        found.ok_or_else(|| StoreError::NotFound {
            name: wanted.name.clone(),
            arch: arch.name.clone(),
            tried: "there is none without a configuration that can be had at once".into(),
        })
    }

    /// The kernel anew, with a PDI that has these features of its configuration. It takes the place of the one in the cache, so that
    /// later processes find that PDI there.
    ///
    /// # Errors
    /// As [`KernelCompiler::compile_with`] of the last compiler.
    pub fn widen(
        &self,
        op: &dyn Operation,
        node: &Node,
        arch: &Arch,
        features: &BTreeSet<String>,
    ) -> Result<KernelArtifact, CompileError> {
        self.shared.sources.widen(&Wanted::of(op, node, arch), features)
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
    /// compiling is eager, that is what a compiler takes ([`KernelCompiler::takes`]). In the background policy, asking has a kernel
    /// compiled.
    pub fn expects(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> bool {
        let sources = &self.shared.sources;
        if sources.policy != JitPolicy::Eager || sources.compilers.is_empty() {
            return self.get(op, node, arch).is_ok();
        }
        let entry = self.entry(node, arch);
        let takes = || sources.compilers.iter().any(|compiler| compiler.takes(op, node, arch).is_ok());
        entry.answer.get().map_or_else(|| *entry.expected.get_or_init(takes), Result::is_ok)
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
mod tests;
