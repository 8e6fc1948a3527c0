//! How long a pass would take, by published costs of others. Each term is told; nothing of it was measured on an NPU.

use super::report::Operation;
use aie_hal::Arch;
use serde::Serialize;

/// What a pass would take, in nanoseconds, by part.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Bytes of all dispatches at the bandwidth of memory, or their multiply-accumulates at the full rate of the array, whichever takes
    /// longer, dispatch by dispatch.
    pub kernels_ns: f64,
    /// Of it, what memory alone would take.
    pub memory_ns: f64,
    /// And what arithmetic alone would take.
    pub arithmetic_ns: f64,
    /// Chains of commands.
    pub chains_ns: f64,
    /// Commands of a chain behind its first.
    pub commands_ns: f64,
    /// The sum of kernels, chains and commands. What host calls take is not in it.
    pub total_ns: f64,
}

/// Multiply-accumulates of bf16 that all cores do in a nanosecond.
fn arithmetic_rate(arch: &Arch) -> f64 {
    let per_cycle =
        arch.mmul.iter().filter(|shape| shape.types == "bf16 x bf16").map(|shape| shape.macs_per_cycle).max();
    let cores = arch.array.columns * arch.array.core_rows;
    (per_cycle.unwrap_or(1) * cores) as f64 * arch.cost.clock_mhz as f64 / 1e3
}

/// The time of `operation` on the array without its commands: by memory and by arithmetic.
fn kernel_ns(operation: &Operation, arch: &Arch) -> (f64, f64) {
    let memory = operation.bytes as f64 * 1e9 / arch.cost.ddr_bytes_per_second as f64;
    (memory, operation.macs as f64 / arithmetic_rate(arch))
}

impl Prediction {
    /// Predicts a pass with these operations, of which those on the array take `places` places in `chains` chains. Notes with each what
    /// it takes, with a command for each dispatch.
    pub fn of(operations: &mut [Operation], chains: usize, places: u64, arch: &Arch) -> Self {
        let mut found = Self::default();
        for operation in operations.iter_mut().filter(|operation| operation.array > 0) {
            let (memory, arithmetic) = kernel_ns(operation, arch);
            found.memory_ns += memory;
            found.arithmetic_ns += arithmetic;
            found.kernels_ns += memory.max(arithmetic);
            operation.predicted_ns = Some(memory.max(arithmetic) + (operation.array * arch.cost.command_ns) as f64);
        }
        found.chains_ns = (chains as u64 * arch.cost.chain_ns) as f64;
        found.commands_ns = (places.saturating_sub(chains as u64) * arch.cost.command_ns) as f64;
        found.total_ns = found.kernels_ns + found.chains_ns + found.commands_ns;
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
        // 50 bytes take a nanosecond; so do 128 * 16 * 1.6 multiply-accumulates.
        let mut operations = [on(2, 0, 5000, 0), on(0, 9, 5000, 0), on(1, 0, 50, 3_276_800)];
        let found = Prediction::of(&mut operations, 1, 3, &arch);
        let expected = (1100.0, 101.0, 1000.0);
        assert_eq!((found.kernels_ns.round(), found.memory_ns.round(), found.arithmetic_ns.round()), expected);
        assert_eq!((found.chains_ns, found.commands_ns), (180e3, 60e3));
        assert_eq!(found.total_ns.round(), 241_100.0);
        assert_eq!((operations[0].predicted_ns, operations[1].predicted_ns), (Some(60_100.0), None));
    }
}
