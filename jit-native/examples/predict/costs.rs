//! What cycles, bytes, operations and submissions cost.

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

/// What something takes, by what takes it, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Terms {
    /// Cycles of the emulated array.
    pub kernels: f64,
    /// Bytes that shims read, and what pieces of them cost besides. While they pass kernels run: what takes longer counts.
    pub memory: f64,
    /// Operations of streams.
    pub operations: f64,
    /// Submissions.
    pub chains: f64,
    /// Further dispatches of a chain.
    pub commands: f64,
}

/// What is executed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub cycles: u64,
    pub bytes: u64,
    pub pieces: u64,
    pub operations: u64,
    pub chains: u64,
    pub commands: u64,
}

impl Terms {
    pub fn of(counts: &Counts, costs: &Costs) -> Self {
        let milliseconds = |count: u64, ns: u64| count as f64 * ns as f64 / 1e6;
        Self {
            kernels: counts.cycles as f64 * 1e3 / costs.hertz as f64,
            memory: (counts.bytes + costs.piece_bytes * counts.pieces) as f64 * 1e3 / costs.bytes_per_second as f64,
            operations: milliseconds(counts.operations, costs.operation_ns),
            chains: milliseconds(counts.chains, costs.chain_ns),
            commands: milliseconds(counts.commands.saturating_sub(counts.chains), costs.command_ns),
        }
    }

    pub fn total(&self) -> f64 {
        self.kernels.max(self.memory) + self.operations + self.chains + self.commands
    }
}
