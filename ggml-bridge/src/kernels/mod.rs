//! Kernels loaded on a device, by the normalised node they compute. Names are not enough: the slope of LEAKY_RELU is in none.
//!
//! A kernel comes from the store, which finds or compiles it, and is loaded once. Loaded kernels occupy the device heap, so
//! those that no plan uses any more make room when it is full. That a kernel is unavailable is cached with the reason.

pub mod foreseen;
pub mod frames;
pub mod kernel_store;
pub mod outcome;
pub mod progress;
pub mod selftest;
pub mod verbose;

use crate::config::log;
use crate::kernels::frames::Frames;
use crate::kernels::progress::Progress;
use aie_hal::artifact::Digest;
use aie_hal::{Device, DeviceError, Executable, KernelArtifact};
use aie_jit_iron::{KernelStore, StoreError, Supplied, Supplier};
use aie_ops::artifact::is_code;
use aie_ops::{Node, Operation, Unsupported, table};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a node runs on the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReason {
    /// In words.
    pub text: String,
    /// For an operation that belongs on the array, why it does not run there, without names of kernels, so that it is the same for
    /// all kernels that are missing for one cause; `None` for one whose place is the CPU.
    pub fallback: Option<String>,
    /// Whether there may be a kernel when [`Kernels::arrivals`] has risen.
    pub pending: bool,
}

impl HostReason {
    /// The operation's place is the CPU.
    pub fn by_design(text: &str) -> Self {
        Self { text: text.to_owned(), fallback: None, pending: false }
    }

    fn fallback(text: String) -> Self {
        Self { fallback: Some(text.clone()), text, pending: false }
    }
}

impl From<Unsupported> for HostReason {
    fn from(cause: Unsupported) -> Self {
        Self::fallback(cause.to_string())
    }
}

impl From<&StoreError> for HostReason {
    fn from(error: &StoreError) -> Self {
        let cause = match error {
            StoreError::NotFound { tried, .. } => tried.clone(),
            StoreError::Pending { .. } => "the kernel is being compiled".into(),
            other => other.to_string(),
        };
        let pending = matches!(error, StoreError::Pending { .. });
        Self { text: error.to_string(), fallback: Some(cause), pending }
    }
}

/// A loaded kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The kernel on the device.
    pub executable: Arc<dyn Executable>,
    /// What it is, for the statistics.
    pub kind: KernelKind,
}

/// Who supplied a kernel, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelKind {
    /// The compiler, also where its cache had it; `embedded` or `directory` for the others.
    pub source: Arc<str>,
    /// The PDI, when it is machine code and no description for simulated devices.
    pub code: Option<Digest>,
}

impl KernelKind {
    /// Of a kernel from `supplier`.
    fn of(artifact: &KernelArtifact, supplier: &Supplier) -> Self {
        Self { source: supplier.name().into(), code: is_code(artifact).then(|| *artifact.digest()) }
    }
}

type Loaded = Result<Kernel, HostReason>;

/// Loaded kernels of one device. Thread-safe.
pub struct Kernels {
    /// Where they come from.
    pub store: Arc<KernelStore>,
    /// Shows that a graph waits for kernels.
    pub progress: Progress,
    device: Arc<dyn Device>,
    loaded: Mutex<HashMap<Node, Loaded>>,
    /// Those for graphs that do without configurations.
    apart: Mutex<HashMap<Node, Loaded>>,
    frames: Mutex<Frames>,
    moves: AtomicU64,
}

impl Kernels {
    /// No kernels yet.
    pub fn new(store: Arc<KernelStore>, device: Arc<dyn Device>) -> Self {
        Self {
            store,
            progress: Progress::on_standard_error(),
            device,
            loaded: Mutex::default(),
            apart: Mutex::default(),
            frames: Mutex::default(),
            moves: AtomicU64::new(0),
        }
    }

    /// Unloads those that no plan uses.
    pub fn clear(&self) {
        self.loaded.lock().clear();
        self.apart.lock().clear();
        *self.frames.lock() = Frames::default();
    }

    /// Rises when kernels get another PDI: plans made before have the old ones.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Gives the kernels that have been asked for so far the [PDIs](frames) for all of them. Returns whether any has another than
    /// before, so that it has to be asked for again.
    pub fn settle(&self) -> bool {
        let has_choice = |kernel: &Kernel| kernel.executable.artifact().configuration().is_some();
        let kernels: Vec<(Node, KernelArtifact)> = {
            let loaded = self.loaded.lock();
            let kernels = loaded.iter().filter_map(|(node, entry)| entry.as_ref().ok().map(|kernel| (node, kernel)));
            let kernels = kernels.filter(|(_, kernel)| has_choice(kernel));
            kernels.map(|(node, kernel)| (node.clone(), kernel.executable.artifact().clone())).collect()
        };
        let mut frames = self.frames.lock();
        frames.settle(kernels.iter().map(|(node, kernel)| (node, kernel)), &|node, features| {
            let widened = self.store.widen(table::lookup(&node.op)?, node, self.device.arch(), features);
            widened.inspect_err(|cause| log::info(|| format!("no PDI with {features:?}: {cause}"))).ok()
        });
        let stays = |kernel: &KernelArtifact| frames.place(kernel.clone()).digest() == kernel.digest();
        let moved: Vec<&Node> = kernels.iter().filter(|(_, kernel)| !stays(kernel)).map(|(node, _)| node).collect();
        drop(frames);
        if moved.is_empty() {
            return false;
        }
        let mut loaded = self.loaded.lock();
        moved.into_iter().for_each(|node| drop(loaded.remove(node)));
        self.moves.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Rises when a kernel that was pending has been compiled, or could not be.
    pub fn arrivals(&self) -> u64 {
        self.store.arrivals()
    }

    /// Whether there is or will be a kernel of the normalised `node`, as far as that is known without compiling.
    pub fn expected(&self, op: &dyn Operation, node: &Node) -> bool {
        self.store.expects(op, node, self.device.arch())
    }

    /// The kernel of the normalised `node`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self, op: &dyn Operation, node: &Node) -> Result<Kernel, HostReason> {
        if let Some(entry) = self.loaded.lock().get(node) {
            return entry.clone();
        }
        self.progress.wait_for(&node.op);
        // Not under the lock: others need not wait for a compiler.
        let Supplied { artifact, supplier } = match self.store.find(op, node, self.device.arch()) {
            Ok(supplied) => supplied,
            Err(cause @ StoreError::Pending { .. }) => return Err(HostReason::from(&cause)),
            Err(cause) => {
                let entry = Err(HostReason::from(&cause));
                let known = self.loaded.lock().insert(node.clone(), entry.clone()).is_some();
                if let (StoreError::Directory(cause), false) = (&cause, known) {
                    log::error(&format!("{cause}; the operation falls back to the CPU"));
                }
                return entry;
            }
        };
        if matches!(supplier, Supplier::Compiler(_)) {
            self.progress.compiled();
        }
        self.load(node, artifact, &supplier)
    }

    /// What to dispatch in the place of `kernel`, that of the normalised `node`, in a graph that does without configurations.
    ///
    /// # Errors
    /// Why there is nothing.
    pub fn apart(&self, op: &dyn Operation, node: &Node, kernel: Kernel) -> Result<Kernel, HostReason> {
        if kernel.executable.artifact().configuration().is_none() {
            return Ok(kernel);
        }
        if let Some(entry) = self.apart.lock().get(node) {
            return entry.clone();
        }
        let Supplied { artifact, supplier } = match self.store.find_apart(op, node, self.device.arch()) {
            Ok(supplied) => supplied,
            Err(cause) => {
                let entry = Err(HostReason::from(&cause));
                self.apart.lock().insert(node.clone(), entry.clone());
                return entry;
            }
        };
        self.load_into(&self.apart, node, &artifact, &supplier)
    }

    /// The kernel of the normalised `node` as machine code, if that can be made at once. For operations whose place is the host
    /// otherwise.
    pub fn made_at_once(&self, op: &dyn Operation, node: &Node) -> Option<Kernel> {
        if let Some(entry) = self.loaded.lock().get(node) {
            return entry.clone().ok();
        }
        let none = || HostReason::by_design("no machine code that can be made at once");
        let entry = match self.store.make_code(op, node, self.device.arch()) {
            Ok(Some(Supplied { artifact, supplier })) if is_code(&artifact) => {
                return self.load(node, artifact, &supplier).ok();
            }
            Ok(_) => none(),
            Err(cause) => {
                log::error(&format!("{cause}; the operation falls back to the CPU"));
                HostReason::from(&cause)
            }
        };
        self.loaded.lock().entry(node.clone()).or_insert(Err(entry));
        None
    }

    /// As [`Kernels::made_at_once`], for a node that a graph may have later: that there is none is not noted, since other sources
    /// may have one, and what is wrong with one is reported when it is needed.
    pub fn foreseen(&self, op: &dyn Operation, node: &Node) -> Option<Kernel> {
        if let Some(entry) = self.loaded.lock().get(node) {
            return entry.clone().ok();
        }
        let Supplied { artifact, supplier } = self.store.make_code(op, node, self.device.arch()).ok()??;
        self.load(node, artifact, &supplier).ok()
    }

    fn load(&self, node: &Node, artifact: KernelArtifact, supplier: &Supplier) -> Loaded {
        let artifact = self.frames.lock().place(artifact);
        self.load_into(&self.loaded, node, &artifact, supplier)
    }

    fn load_into(
        &self,
        place: &Mutex<HashMap<Node, Loaded>>,
        node: &Node,
        artifact: &KernelArtifact,
        supplier: &Supplier,
    ) -> Loaded {
        if let Some(entry) = place.lock().get(node) {
            return entry.clone();
        }
        let mut result = self.device.load_executable(artifact);
        if matches!(result, Err(DeviceError::OutOfMemory { .. })) {
            for loaded in [&self.loaded, &self.apart] {
                let is_used = |kernel: &Kernel| Arc::strong_count(&kernel.executable) > 1;
                loaded.lock().retain(|_, entry| entry.as_ref().is_ok_and(is_used));
            }
            result = self.device.load_executable(artifact);
        }
        let executable = result.map_err(|cause| HostReason::fallback(cause.to_string()))?;
        let kernel = Kernel { executable, kind: KernelKind::of(artifact, supplier) };
        place.lock().entry(node.clone()).or_insert(Ok(kernel)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubles::{self, lost, out_of_memory};
    use aie_hal::mock::MockDevice;
    use aie_jit_iron::pack::pack;
    use aie_jit_iron::{JitPolicy, KernelPack, KernelStoreBuilder};
    use aie_jit_native::NativeCompiler;
    use aie_ops::artifact::reference_artifact;
    use aie_ops::name::kernel_name;
    use aie_ops::{DataType, OpParams, Tensor, table};
    use rstest::rstest;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    fn sum(kernels: &Kernels, elements: usize) -> Result<Arc<dyn Executable>, HostReason> {
        let tensor = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
        let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
        kernels.get(table::lookup("ADD").unwrap(), &node).map(|kernel| kernel.executable)
    }

    fn kernels(device: MockDevice) -> Kernels {
        Kernels::new(doubles::store(), Arc::new(device))
    }

    /// Loads one kernel, then fails once.
    fn full() -> MockDevice {
        let mut device = doubles::device();
        device.expect_load_executable().times(1).returning(|artifact| {
            let mut executable = aie_hal::mock::MockExecutable::new();
            executable.expect_artifact().return_const(artifact.clone());
            Ok(Arc::new(executable))
        });
        device.expect_load_executable().times(1).returning(|_| Err(out_of_memory()));
        device
    }

    #[test]
    fn a_full_heap_makes_room_by_unloading_what_no_plan_uses() {
        let mut device = full();
        device.load_kernels();
        let kernels = kernels(device);
        let first = Arc::downgrade(&sum(&kernels, 64).unwrap());
        sum(&kernels, 128).unwrap();
        assert!(first.upgrade().is_none());
    }

    fn add_of(elements: usize) -> Node {
        let tensor = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
        Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2])
    }

    /// A kernel folder with a description for `node`, which the native compiler never makes; and its PDI file.
    fn described(op: &dyn Operation, node: &Node) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let arch = Arc::clone(doubles::device().arch());
        let (artifact, name) = (reference_artifact(op, node, &arch).unwrap(), kernel_name(op, node));
        let place = folder.path().join(&arch.name);
        fs::create_dir(&place).unwrap();
        let pdi = place.join(format!("{name}.pdi"));
        fs::write(&pdi, artifact.pdi()).unwrap();
        fs::write(place.join(format!("{name}_insts.bin")), artifact.instructions()).unwrap();
        (folder, pdi)
    }

    /// With the native compiler behind what `builder` has.
    fn with_native(builder: KernelStoreBuilder) -> Kernels {
        let builder = builder.policy(JitPolicy::Eager).compiler(Arc::new(NativeCompiler::default()));
        let mut device = doubles::device();
        device.load_kernels();
        Kernels::new(Arc::new(builder.build().unwrap()), Arc::new(device))
    }

    /// A node that a later graph may have: its kernel is chosen before the first graph, and is the one that came with the library or
    /// from the user all the same.
    #[rstest]
    #[case::directory("directory")]
    #[case::pack("embedded")]
    fn a_foreseen_kernel_is_the_given_one(#[case] source: &str) {
        let (op, given) = (table::lookup("ADD").unwrap(), add_of(64));
        let (folder, pdi) = described(op, &given);
        let packed = || {
            let (bytes, count) = pack(pdi.parent().unwrap(), doubles::device().arch()).unwrap();
            assert_eq!(count, 1);
            KernelStore::builder().embedded(KernelPack::open("test", bytes).unwrap())
        };
        let kernels = with_native(match source {
            "directory" => KernelStore::builder().kernel_directory(folder.path()),
            _ => packed(),
        });
        let foreseen = kernels.foreseen(op, &given).unwrap().kind;
        assert_eq!((&*foreseen.source, &foreseen.code), (source, &None));
        assert_eq!(kernels.get(op, &given).unwrap().kind, foreseen);
        let other = kernels.foreseen(op, &add_of(4096)).unwrap().kind;
        assert!(&*other.source == "native" && other.code.is_some(), "{other:?}");
        let counters = kernels.store.counters();
        assert_eq!((counters.directory + counters.embedded, counters.compiled), (1, 1));
    }

    /// What is wrong with one is said when it is needed; none is made in its place.
    #[test]
    fn a_damaged_kernel_of_the_users_is_reported() {
        let (op, given) = (table::lookup("ADD").unwrap(), add_of(64));
        let (folder, pdi) = described(op, &given);
        let half = fs::read(&pdi).unwrap();
        fs::write(&pdi, &half[..64]).unwrap();
        let kernels = with_native(KernelStore::builder().kernel_directory(folder.path()));
        assert!(kernels.foreseen(op, &given).is_none());
        let reason = kernels.get(op, &given).unwrap_err();
        assert!(reason.text.contains(&*pdi.to_string_lossy()), "{}", reason.text);
        assert_eq!(kernels.store.counters().compiled, 0);
    }

    #[test]
    fn what_a_plan_uses_stays_and_the_reason_is_reported() {
        let mut device = full();
        device.expect_load_executable().times(1).returning(|_| Err(lost()));
        let kernels = kernels(device);
        let first = sum(&kernels, 64).unwrap();
        let reason = sum(&kernels, 128).unwrap_err();
        assert_eq!((reason.text.as_str(), reason.pending), ("device lost: unplugged", false));
        assert!(reason.fallback.is_some() && Arc::strong_count(&first) > 1);
    }
}
