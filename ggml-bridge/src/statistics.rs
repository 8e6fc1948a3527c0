//! Counts of what ran where.

use crate::kernels::HostReason;
use aie_hal::Counters;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Graphs the log keeps.
const LOG_LENGTH: usize = 64;

/// One operation with one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OperationCount {
    /// Name.
    pub op: String,
    /// Kernel name.
    pub shape: String,
    /// Times it was dispatched to the array.
    pub array: u64,
    /// Times it ran as a host call.
    pub host: u64,
    /// Why on the host.
    pub host_reason: Option<String>,
    /// For an operation that belongs on the array, why it does not run there.
    #[serde(skip)]
    pub fallback: Option<String>,
    /// Bytes of its tensors, all times together.
    pub bytes: u64,
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

#[derive(Debug, Clone, Default, Serialize)]
struct Counts {
    graphs: GraphCounts,
    operations: Vec<OperationCount>,
    #[serde(skip)]
    index: HashMap<(String, String, Option<String>), usize>,
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
    /// Adds one execution of the operation with `index`.
    pub fn add(&mut self, index: usize, on_array: bool, bytes: u64) {
        let share = self.operations.entry(index).or_default();
        share.array += u64::from(on_array);
        share.host += u64::from(!on_array);
        share.bytes += bytes;
    }
}

impl Statistics {
    /// The index of an operation's count; made when it is new.
    pub fn operation(&self, op: &str, shape: &str, host_reason: Option<&HostReason>) -> usize {
        let mut counts = self.counts.lock();
        let key = (op.to_owned(), shape.to_owned(), host_reason.map(|reason| reason.text.clone()));
        if let Some(&index) = counts.index.get(&key) {
            return index;
        }
        let index = counts.operations.len();
        counts.operations.push(OperationCount {
            op: key.0.clone(),
            shape: key.1.clone(),
            host_reason: key.2.clone(),
            fallback: host_reason.and_then(|reason| reason.fallback.clone()),
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
        for (index, part) in &share.operations {
            let operation = &mut counts.operations[*index];
            operation.array += part.array;
            operation.host += part.host;
            operation.bytes += part.bytes;
        }
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
        let array = statistics.operation("ADD", "add-4f32", None);
        let host = statistics.operation("ADD", "add-4f32", Some(&HostReason::by_design("too large")));
        assert_ne!(array, host);
        assert_eq!(statistics.operation("ADD", "add-4f32", None), array);

        let mut share = RunShare { nodes: 3, ..RunShare::default() };
        share.add(array, true, 48);
        share.add(array, true, 48);
        share.add(host, false, 10);
        assert_eq!(share.operations.len(), 2);
        let counters = Counters { allocations: 5, ..Counters::default() };
        statistics.graph(&share, false, 1, &counters);
        statistics.graph(&share, true, 1, &counters);

        let counts = statistics.counts.lock();
        assert_eq!((counts.operations[array].array, counts.operations[array].bytes), (4, 192));
        assert_eq!((counts.operations[host].host, counts.operations[host].array), (2, 0));
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
