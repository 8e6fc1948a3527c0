//! Counts of what ran where.

use crate::kernels::{HostReason, KernelKind};
use aie_hal::Counters;
use aie_hal::artifact::Digest;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Graphs the log keeps.
const LOG_LENGTH: usize = 64;

/// One operation with one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OperationCount {
    /// Name.
    pub op: String,
    /// Kernel name.
    pub shape: String,
    /// Who supplied its kernel: a compiler, `embedded` or `directory`; `None` where it ran on the host.
    pub kernel: Option<Arc<str>>,
    /// Times it was dispatched to the array.
    pub array: u64,
    /// Times of those in which the kernel was machine code, and no description for simulated devices.
    pub code: u64,
    /// The PDI of that kernel, when it is machine code.
    #[serde(skip)]
    pub pdi: Option<Digest>,
    /// Times it ran as a host call.
    pub host: u64,
    /// Why on the host.
    pub host_reason: Option<String>,
    /// For an operation that belongs on the array, why it does not run there.
    #[serde(skip)]
    pub fallback: Option<String>,
    /// Bytes of its tensors, all times together.
    pub bytes: u64,
    /// Multiply-accumulates of its products, all times together.
    pub macs: u64,
}

/// A contribution of a plan to one [`OperationCount`], added each time the plan runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationShare {
    /// Dispatches.
    pub array: u64,
    /// Host calls.
    pub host: u64,
    /// Bytes.
    pub bytes: u64,
    /// Multiply-accumulates.
    pub macs: u64,
}

/// Work by what did it: dispatches, and multiply-accumulates of products.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WorkCounts {
    /// Dispatches of kernels that are machine code.
    pub code_dispatches: u64,
    /// Different PDIs of these.
    pub code_pdis: usize,
    /// Dispatches of reference kernels.
    pub reference_dispatches: u64,
    /// Multiply-accumulates in machine code.
    pub code_macs: u64,
    /// In reference kernels.
    pub reference_macs: u64,
    /// On the host.
    pub host_macs: u64,
}

/// Graphs by how their command list came about.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct GraphCounts {
    /// In all.
    pub computed: u64,
    /// Recorded again.
    pub built: u64,
    /// Recognised.
    pub replayed: u64,
}

/// Conversions that run as host calls.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ConversionCounts {
    /// Calls.
    pub host_calls: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Dispatches that stand for several nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FusionCounts {
    /// Such dispatches.
    pub dispatches: u64,
    /// The nodes they stand for.
    pub nodes: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct GraphEntry {
    nodes: usize,
    submissions: u64,
    allocations: u64,
    replayed: bool,
}

/// Operation, shape, and where it runs.
type OperationKey = (String, String, Result<KernelKind, String>);

#[derive(Debug, Clone, Default, Serialize)]
struct Counts {
    graphs: GraphCounts,
    operations: Vec<OperationCount>,
    work: WorkCounts,
    #[serde(skip)]
    pdis: HashSet<Digest>,
    #[serde(skip)]
    index: HashMap<OperationKey, usize>,
    conversions: ConversionCounts,
    fusion: FusionCounts,
    #[serde(rename = "graph_log")]
    log: VecDeque<GraphEntry>,
    #[serde(skip)]
    last: Counters,
}

/// Counts of one device. Thread-safe.
#[derive(Debug, Default)]
pub struct Statistics {
    counts: Mutex<Counts>,
}

/// What one run of a plan adds.
#[derive(Debug, Clone, Default)]
pub struct RunShare {
    /// Nodes of the graph that compute something.
    pub nodes: usize,
    /// By index of the operation's count.
    pub operations: BTreeMap<usize, OperationShare>,
    /// Conversions.
    pub conversions: ConversionCounts,
    /// Fused nodes.
    pub fusion: FusionCounts,
}

impl RunShare {
    /// Adds another plan of the same device, of which both are parts of one run.
    pub fn include(&mut self, other: &Self) {
        self.nodes += other.nodes;
        for (index, part) in &other.operations {
            let share = self.operations.entry(*index).or_default();
            share.array += part.array;
            share.host += part.host;
            share.bytes += part.bytes;
            share.macs += part.macs;
        }
        self.conversions.host_calls += other.conversions.host_calls;
        self.conversions.bytes += other.conversions.bytes;
        self.fusion.dispatches += other.fusion.dispatches;
        self.fusion.nodes += other.fusion.nodes;
    }

    /// Adds one execution of the operation with `index`, which has the bytes and multiply-accumulates of `one`.
    pub fn add(&mut self, index: usize, on_array: bool, one: OperationShare) {
        let share = self.operations.entry(index).or_default();
        share.array += u64::from(on_array);
        share.host += u64::from(!on_array);
        share.bytes += one.bytes;
        share.macs += one.macs;
    }
}

impl Statistics {
    /// The index of an operation's count, by its kernel or the reason why it runs on the host; made when it is new.
    pub fn operation(&self, op: &str, shape: &str, place: Result<&KernelKind, &HostReason>) -> usize {
        let mut counts = self.counts.lock();
        let key = (op.to_owned(), shape.to_owned(), place.cloned().map_err(|reason| reason.text.clone()));
        if let Some(&index) = counts.index.get(&key) {
            return index;
        }
        let index = counts.operations.len();
        counts.operations.push(OperationCount {
            op: key.0.clone(),
            shape: key.1.clone(),
            kernel: place.ok().map(|kind| Arc::clone(&kind.source)),
            pdi: place.ok().and_then(|kind| kind.code),
            host_reason: key.2.clone().err(),
            fallback: place.err().and_then(|reason| reason.fallback.clone()),
            ..OperationCount::default()
        });
        counts.index.insert(key, index);
        index
    }

    /// What ran where so far.
    pub fn operations(&self) -> Vec<OperationCount> {
        self.counts.lock().operations.clone()
    }

    /// All counts so far, to be written down.
    pub fn counts(&self) -> impl Serialize + use<> {
        self.counts.lock().clone()
    }

    /// Adds one run of a plan. `counters` are the device's, after submitting.
    pub fn graph(&self, share: &RunShare, replayed: bool, submissions: u64, counters: &Counters) {
        let mut counts = self.counts.lock();
        counts.graphs.computed += 1;
        counts.graphs.replayed += u64::from(replayed);
        counts.graphs.built += u64::from(!replayed);
        let Counts { operations, work, pdis, .. } = &mut *counts;
        for (index, part) in &share.operations {
            let operation = &mut operations[*index];
            operation.array += part.array;
            operation.host += part.host;
            operation.bytes += part.bytes;
            operation.macs += part.macs;
            // Of one operation all dispatches have one kernel.
            let (dispatches, macs) = match (part.array, operation.pdi) {
                (0, _) => (&mut 0, &mut work.host_macs),
                (_, Some(pdi)) => {
                    pdis.insert(pdi);
                    (&mut work.code_dispatches, &mut work.code_macs)
                }
                (_, None) => (&mut work.reference_dispatches, &mut work.reference_macs),
            };
            *dispatches += part.array;
            *macs += part.macs;
            operation.code += if operation.pdi.is_some() { part.array } else { 0 };
        }
        work.code_pdis = pdis.len();
        counts.conversions.host_calls += share.conversions.host_calls;
        counts.conversions.bytes += share.conversions.bytes;
        counts.fusion.dispatches += share.fusion.dispatches;
        counts.fusion.nodes += share.fusion.nodes;
        if counts.log.len() == LOG_LENGTH {
            counts.log.pop_front();
        }
        let allocations = counters.allocations.saturating_sub(counts.last.allocations);
        counts.log.push_back(GraphEntry { nodes: share.nodes, submissions, allocations, replayed });
        counts.last = *counters;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_shape_and_reason() {
        let statistics = Statistics::default();
        let kind = |source: &str, code| KernelKind { source: source.into(), code };
        let (native, reference) = (kind("native", Some(Digest::of(b"pdi"))), kind("reference", None));
        let array = statistics.operation("MUL_MAT", "mul_mat-4f32", Ok(&native));
        let other = statistics.operation("MUL_MAT", "mul_mat-4f32", Ok(&reference));
        let host = statistics.operation("MUL_MAT", "mul_mat-4f32", Err(&HostReason::by_design("too large")));
        assert!(array != other && other != host && host != array);
        assert_eq!(statistics.operation("MUL_MAT", "mul_mat-4f32", Ok(&native)), array);

        let mut share = RunShare { nodes: 4, ..RunShare::default() };
        let one = |bytes, macs| OperationShare { bytes, macs, ..OperationShare::default() };
        share.add(array, true, one(48, 10));
        share.add(array, true, one(48, 10));
        share.add(other, true, one(7, 3));
        share.add(host, false, one(10, 1));
        assert_eq!(share.operations.len(), 3);
        let counters = Counters { allocations: 5, ..Counters::default() };
        statistics.graph(&share, false, 1, &counters);
        statistics.graph(&share, true, 1, &counters);

        let counts = statistics.counts.lock();
        assert_eq!((counts.operations[array].array, counts.operations[array].bytes), (4, 192));
        assert_eq!((counts.operations[array].code, counts.operations[other].code), (4, 0));
        assert_eq!((counts.operations[host].host, counts.operations[host].array), (2, 0));
        let work = WorkCounts {
            code_dispatches: 4,
            code_pdis: 1,
            reference_dispatches: 2,
            code_macs: 40,
            reference_macs: 6,
            host_macs: 2,
        };
        assert_eq!(counts.work, work);
        assert_eq!((counts.graphs.computed, counts.graphs.built, counts.graphs.replayed), (2, 1, 1));
        let allocations: Vec<_> = counts.log.iter().map(|g| g.allocations).collect();
        assert_eq!(allocations, [5, 0]);
    }

    #[test]
    fn the_log_is_bounded() {
        let statistics = Statistics::default();
        for nodes in 0..LOG_LENGTH + 3 {
            let share = RunShare { nodes, ..RunShare::default() };
            statistics.graph(&share, true, 1, &Counters::default());
        }
        let counts = statistics.counts.lock();
        assert_eq!((counts.log.len(), counts.log[0].nodes), (LOG_LENGTH, 3));
    }
}
