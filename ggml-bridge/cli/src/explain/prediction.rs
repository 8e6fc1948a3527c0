//! How long a pass would take, by published costs of others. Each term is shown; nothing of it was measured on an NPU.

use super::operation::Operation;
use aie_hal::Arch;
use aie_hal::arch::Estimate;
use aie_hal::format::extent::Traffic;
use serde::Serialize;

/// What a pass would take, in nanoseconds, by part.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// What all dispatches move at the bandwidth of memory, with what pieces of it cost besides (where that is not known the bytes of
    /// their tensors), or their multiply-accumulates at the full rate of the array, whichever takes
    /// longer, dispatch by dispatch.
    pub kernels_ns: f64,
    /// Of it, what memory alone would take.
    pub memory_ns: f64,
    /// And what arithmetic alone would take.
    pub arithmetic_ns: f64,
    /// Operations of the instruction streams, a block write once for every eight words; those of a kernel that is only described are
    /// not known.
    pub operations: u64,
    /// What the command processor takes for them.
    pub operations_ns: f64,
    /// Chains of commands.
    pub chains_ns: f64,
    /// Commands of a chain behind its first.
    pub commands_ns: f64,
    /// The sum of kernels, operations, chains and commands. What host calls take is not in it.
    pub total_ns: f64,
    /// The same sum by the costs at which others were fastest.
    pub fastest_ns: f64,
    /// And by those at which they were slowest.
    pub slowest_ns: f64,
}

/// What a pass executes besides its operations.
#[derive(Debug, Clone, Copy)]
pub struct Submitted {
    /// Chains.
    pub chains: usize,
    /// Places in them.
    pub places: u64,
    /// Operations of the streams.
    pub operations: u64,
}

/// Costs as they are to be expected, or at one end of what was published.
#[derive(Clone, Copy)]
struct Costs {
    bytes_per_second: u64,
    piece_bytes: u64,
    clock_mhz: u64,
    operation_ns: u64,
    chain_ns: u64,
    command_ns: u64,
}

impl Costs {
    fn of(arch: &Arch, rate: fn(Estimate) -> u64, time: fn(Estimate) -> u64) -> Self {
        let cost = &arch.cost;
        Self {
            bytes_per_second: rate(cost.ddr_bytes_per_second),
            piece_bytes: time(cost.ddr_piece_bytes),
            clock_mhz: rate(cost.clock_mhz),
            operation_ns: time(cost.operation_ns),
            chain_ns: time(cost.chain_ns),
            command_ns: time(cost.command_ns),
        }
    }

    /// Multiply-accumulates of bf16 that all cores do in a nanosecond.
    fn arithmetic_rate(self, arch: &Arch) -> f64 {
        let per_cycle =
            arch.mmul.iter().filter(|shape| shape.types == "bf16 x bf16").map(|shape| shape.macs_per_cycle).max();
        let cores = arch.array.columns * arch.array.core_rows;
        (per_cycle.unwrap_or(1) * cores) as f64 * self.clock_mhz as f64 / 1e3
    }

    /// The time of `operation` on the array without its commands: by memory and by arithmetic.
    fn kernel_ns(self, operation: &Operation, arch: &Arch) -> (f64, f64) {
        let bytes =
            operation.traffic.map_or(operation.bytes, |Traffic { bytes, pieces }| bytes + self.piece_bytes * pieces);
        let memory = bytes as f64 * 1e9 / self.bytes_per_second as f64;
        (memory, operation.macs as f64 / self.arithmetic_rate(arch))
    }
}

impl Prediction {
    /// Predicts a pass with these operations and what is submitted for them. Notes with each what it takes, with a command for each
    /// dispatch.
    pub fn of(operations: &mut [Operation], submitted: Submitted, arch: &Arch) -> Self {
        let fastest = Costs::of(arch, |range| range.high, |range| range.low);
        let slowest = Costs::of(arch, |range| range.low, |range| range.high);
        let fastest_ns = Self::by(operations, submitted, arch, fastest).total_ns;
        let slowest_ns = Self::by(operations, submitted, arch, slowest).total_ns;
        let expected = Costs::of(arch, |range| range.expected, |range| range.expected);
        for operation in operations.iter_mut().filter(|operation| operation.array > 0) {
            let (memory, arithmetic) = expected.kernel_ns(operation, arch);
            operation.predicted_ns = Some(memory.max(arithmetic) + (operation.array * expected.command_ns) as f64);
        }
        Self { fastest_ns, slowest_ns, ..Self::by(operations, submitted, arch, expected) }
    }

    fn by(operations: &[Operation], submitted: Submitted, arch: &Arch, costs: Costs) -> Self {
        let Submitted { chains, places, operations: executed } = submitted;
        let mut found = Self { operations: executed, ..Self::default() };
        for operation in operations.iter().filter(|operation| operation.array > 0) {
            let (memory, arithmetic) = costs.kernel_ns(operation, arch);
            found.memory_ns += memory;
            found.arithmetic_ns += arithmetic;
            found.kernels_ns += memory.max(arithmetic);
        }
        found.operations_ns = (executed * costs.operation_ns) as f64;
        found.chains_ns = (chains as u64 * costs.chain_ns) as f64;
        found.commands_ns = (places.saturating_sub(chains as u64) * costs.command_ns) as f64;
        found.total_ns = found.kernels_ns + found.operations_ns + found.chains_ns + found.commands_ns;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;

    #[test]
    fn the_terms_are_those_of_the_arch_file() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let on = |array, host, bytes, macs| Operation { array, host, bytes, macs, ..Operation::default() };
        // 26.8 bytes take a nanosecond; so do 128 * 16 * 1.6 multiply-accumulates.
        let mut operations = [on(2, 0, 2680, 0), on(0, 9, 2680, 0), on(1, 0, 134, 3_276_800)];
        let submitted = Submitted { chains: 1, places: 3, operations: 100 };
        let found = Prediction::of(&mut operations, submitted, &arch);
        let expected = (1100.0, 105.0, 1000.0);
        assert_eq!((found.kernels_ns.round(), found.memory_ns.round(), found.arithmetic_ns.round()), expected);
        assert_eq!((found.chains_ns, found.commands_ns, found.operations_ns), (110e3, 72e3, 14_500.0));
        assert_eq!(found.total_ns.round(), 197_600.0);
        // 128 * 16 * 1.8 and 0.8 multiply-accumulates; 97 and 195 ns an operation; 26.8 and 15 bytes.
        assert_eq!((found.fastest_ns.round(), found.slowest_ns.round()), (155_089.0, 275_079.0));
        assert_eq!((operations[0].predicted_ns, operations[1].predicted_ns), (Some(72_100.0), None));
        // What a kernel reads several times, in pieces that cost 128 bytes each, takes as long.
        operations[0].traffic = Some(Traffic { bytes: 26_800, pieces: 10 });
        let found = Prediction::of(&mut operations, submitted, &arch);
        assert_eq!(found.memory_ns.round(), (105.0 - 100.0 + 28_080.0 / 26.8f64).round());
    }
}
