//! The virtual clock: what the work would have cost on hardware.
//!
//! The values are published measurements ([`CostModel`] names them); the clock only adds. It knows no overlap, so it is an
//! upper estimate for a schedule and good for comparing two schedules. Host calls cost nothing on it. A reference kernel costs
//! the bytes it moves; a compiled one the cycles the emulated array counted, if these take longer, and the operations of its stream.

use aie_hal::arch::CostModel;

/// Device time in nanoseconds.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    cost: CostModel,
    /// Nanoseconds since the start.
    pub now_ns: u64,
}

impl VirtualClock {
    /// A clock at zero.
    pub fn new(cost: CostModel) -> Self {
        Self { cost, now_ns: 0 }
    }

    /// Lets `ns` pass.
    pub fn pass(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// A context is created.
    pub fn create_context(&mut self) {
        self.pass(self.cost.context_create_ns);
    }

    /// Another PDI is loaded, which has so many buffer descriptors.
    pub fn switch(&mut self, descriptors: u64) {
        self.pass(self.cost.switch(descriptors).expected);
    }

    /// A chain of `commands` commands that moves `bytes` runs.
    pub fn run_chain(&mut self, commands: usize, bytes: u64) {
        let further = (commands as u64).saturating_sub(1);
        self.pass(self.cost.chain_ns.expected.saturating_add(self.cost.command_ns.expected.saturating_mul(further)));
        self.move_bytes(bytes);
    }

    /// `bytes` pass through the DDR interface, rounded up to whole nanoseconds.
    pub fn move_bytes(&mut self, bytes: u64) {
        self.pass(self.transfer_ns(bytes));
    }

    /// The array is busy for `ns` while `bytes` pass, which have been charged: what is longer counts. The `operations` of the stream
    /// come to that, since streams configure before they move.
    pub fn compute(&mut self, ns: u64, bytes: u64, operations: u64) {
        self.pass(ns.saturating_sub(self.transfer_ns(bytes)));
        self.pass(self.cost.operation_ns.expected.saturating_mul(operations));
    }

    fn transfer_ns(&self, bytes: u64) -> u64 {
        CostModel::transfer_ns(bytes, self.cost.ddr_bytes_per_second.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::arch::{Delays, Estimate};

    fn clock() -> VirtualClock {
        VirtualClock::new(CostModel {
            context_create_ns: 35_000_000,
            switch_ns: Estimate::exactly(80_000),
            switch_ns_per_descriptor: Estimate::exactly(8_000),
            chain_ns: Estimate::exactly(50_000),
            command_ns: Estimate::exactly(30_000),
            operation_ns: Estimate { low: 86, expected: 190, high: 420 },
            ddr_bytes_per_second: Estimate { low: 45_000_000_000, expected: 50_000_000_000, high: 57_000_000_000 },
            ddr_piece_bytes: Estimate::exactly(256),
            channel_bytes_per_second: Estimate::exactly(12_800_000_000),
            clock_mhz: Estimate::exactly(1800),
            delays: Delays::default(),
        })
    }

    #[test]
    fn adds_up_the_cost_model() {
        let mut clock = clock();
        clock.create_context();
        assert_eq!(clock.now_ns, 35_000_000);
        clock.switch(350);
        assert_eq!(clock.now_ns, 37_880_000);
        clock.run_chain(1, 0);
        assert_eq!(clock.now_ns, 37_930_000);
        clock.run_chain(44, 50_000);
        assert_eq!(clock.now_ns, 37_930_000 + 50_000 + 43 * 30_000 + 1_000);
    }

    #[test]
    fn rounds_bytes_up_and_never_overflows() {
        let mut clock = clock();
        clock.move_bytes(1);
        assert_eq!(clock.now_ns, 1);
        clock.move_bytes(51);
        assert_eq!(clock.now_ns, 3);
        clock.compute(5, 51, 0);
        clock.compute(1, 51, 0);
        assert_eq!(clock.now_ns, 6);
        // Operations take their time whether the array waits for memory or not.
        clock.compute(1, 51, 2);
        clock.compute(5, 51, 2);
        assert_eq!(clock.now_ns, 6 + 2 * 190 + 3 + 2 * 190);
        clock.pass(u64::MAX);
        clock.compute(u64::MAX, 0, u64::MAX);
        clock.move_bytes(u64::MAX);
        assert_eq!(clock.now_ns, u64::MAX);
    }
}
