//! What cycles, bytes, operations and submissions cost.

use crate::measure::Measured;
use crate::model::{Kernel, Kind};
use aie_hal::arch::{CostModel, Estimate};
use serde::Serialize;

/// Costs at one end of what was published, or as they are to be expected.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    pub hertz: u64,
    pub bytes_per_second: u64,
    pub piece_bytes: u64,
    pub operation_ns: u64,
    pub chain_ns: u64,
    pub command_ns: u64,
}

/// What was given instead of published values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    pub hertz: Option<u64>,
    pub bytes_per_second: Option<u64>,
    pub operation_ns: Option<u64>,
}

/// Slowest, expected, fastest.
pub fn of(cost: &CostModel, given: Given) -> [Costs; 3] {
    let at = |rate: fn(Estimate) -> u64, time: fn(Estimate) -> u64| Costs {
        hertz: given.hertz.unwrap_or(rate(cost.clock_mhz) * 1_000_000),
        bytes_per_second: given.bytes_per_second.unwrap_or(rate(cost.ddr_bytes_per_second)),
        piece_bytes: time(cost.ddr_piece_bytes),
        operation_ns: given.operation_ns.unwrap_or(time(cost.operation_ns)),
        chain_ns: time(cost.chain_ns),
        command_ns: time(cost.command_ns),
    };
    [at(|e| e.low, |e| e.high), at(|e| e.expected, |e| e.expected), at(|e| e.high, |e| e.low)]
}

/// What something takes, by what takes it, in milliseconds. Each dispatch waits for the one before it, so the sum is what passes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Terms {
    /// Bytes that products read, and what pieces of them cost besides.
    pub memory: f64,
    /// What else passes on the array: what cores take longer than memory, and waits between kernels. Below 0 where kernels overlap.
    pub cores: f64,
    /// Kernels of vectors, by cycles or bytes, whatever takes longer.
    pub small_streams: f64,
    /// Attention, by the same.
    pub attention: f64,
    /// Operations of streams, as far as nothing else passes meanwhile.
    pub operations: f64,
    /// The others, which are in no sum.
    pub hidden_operations: f64,
    /// Submissions, and further dispatches of a chain.
    pub boundaries: f64,
}

/// What one kernel takes, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub kind: Kind,
    pub times: u64,
    pub cycles: u64,
    pub bytes: u64,
    pub pieces: u64,
}

/// What is executed.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub works: Vec<Work>,
    pub operations: u64,
    pub chains: u64,
    pub commands: u64,
}

impl Counts {
    /// Adds a kernel.
    pub fn add(&mut self, kernel: &Kernel, measured: &Measured) {
        let (Kernel { kind, times, .. }, Measured { cycles, bytes, pieces, operations, .. }) = (kernel, measured);
        self.works.push(Work { kind: *kind, times: *times, cycles: *cycles, bytes: *bytes, pieces: *pieces });
        self.operations += operations * times;
    }

    /// The sum of something over all kernels.
    pub fn sum(&self, of: fn(&Work) -> u64) -> u64 {
        self.works.iter().map(|work| of(work) * work.times).sum()
    }
}

impl Terms {
    pub fn of(counts: &Counts, costs: &Costs) -> Self {
        let milliseconds = |count: u64, ns: u64| count as f64 * ns as f64 / 1e6;
        let mut terms = Self {
            operations: milliseconds(counts.operations, costs.operation_ns),
            boundaries: milliseconds(counts.chains, costs.chain_ns)
                + milliseconds(counts.commands.saturating_sub(counts.chains), costs.command_ns),
            ..Self::default()
        };
        for Work { kind, times, cycles, bytes, pieces } in &counts.works {
            let array = (cycles * times) as f64 * 1e3 / costs.hertz as f64;
            let bytes = (bytes + costs.piece_bytes * pieces) * times;
            let memory = bytes as f64 * 1e3 / costs.bytes_per_second as f64;
            match kind {
                Kind::Product => {
                    (terms.memory, terms.cores) = (terms.memory + memory, terms.cores + (array - memory).max(0.0))
                }
                Kind::Attention => terms.attention += array.max(memory),
                Kind::Small => terms.small_streams += array.max(memory),
            }
        }
        terms
    }

    /// Of a token that takes so many cycles of the array, of which so many would be left without the time of operations.
    pub fn of_token(counts: &Counts, costs: &Costs, cycles: f64, without_operations: f64) -> Self {
        let apart = Self::of(counts, costs);
        let milliseconds = |cycles: f64| cycles * 1e3 / costs.hertz as f64;
        let operations = milliseconds(cycles - without_operations);
        let known = apart.memory + apart.small_streams + apart.attention;
        Self {
            cores: milliseconds(without_operations) - known,
            operations,
            hidden_operations: apart.operations - operations,
            ..apart
        }
    }

    pub fn total(&self) -> f64 {
        let Self { memory, cores, small_streams, attention, operations, boundaries, .. } = self;
        memory + cores + small_streams + attention + operations + boundaries
    }
}

/// The costs that every prediction is also shown for: what an operation takes, and what memory gives all shims together.
pub const SETTINGS: [(u64, u64); 4] =
    [(145, 26_800_000_000), (145, 15_000_000_000), (400, 26_800_000_000), (400, 15_000_000_000)];
