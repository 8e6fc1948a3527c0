//! What comes out of the builder.

use aie_isa::Isa;
use std::fmt::Write as _;

/// Bytes that have to be in data memory before the program starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Where, as an offset into the core's own data memory.
    pub offset: u32,
    /// What.
    pub bytes: Vec<u8>,
}

/// What is known of a loop's schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopReport {
    /// As the author named it, or its place: `loop 3`.
    pub name: String,
    /// Whether iterations overlap.
    pub pipelined: bool,
    /// Cycles from one iteration to the next, in steady state.
    pub interval: u32,
    /// Iterations of the source that one iteration of the schedule stands for.
    pub unrolled: u32,
    /// The fewest cycles that slots and units allow, without a counter and a branch ([`LoopForm::Jnz`](super::LoopForm::Jnz)).
    pub resource_bound: u32,
    /// The fewest cycles that dependences from one iteration to the next allow.
    pub recurrence_bound: u32,
    /// How many iterations overlap.
    pub stages: u32,
    /// Multiply-accumulates of one iteration of the schedule, where configuration words are constants.
    pub macs: u32,
    /// The most that the core can do in one cycle with operands of these types.
    pub peak_macs: u32,
    /// Address of the loop's first bundle.
    pub start: u32,
}

impl LoopReport {
    /// The share of the core's multiply-accumulates per cycle in steady state, 0 to 1.
    pub fn share(&self) -> f64 {
        self.macs_per_cycle() / f64::from(self.peak_macs.max(1))
    }

    /// Multiply-accumulates per cycle in steady state.
    pub fn macs_per_cycle(&self) -> f64 {
        f64::from(self.macs) / f64::from(self.interval.max(1))
    }
}

/// A finished program.
#[derive(Clone, Debug)]
pub struct CoreProgram {
    /// Program memory from address 0, a multiple of 16 bytes.
    pub code: Vec<u8>,
    /// Where it starts.
    pub entry: u32,
    /// Constants in data memory.
    pub data: Vec<Section>,
    /// The loops, in the order of the program.
    pub loops: Vec<LoopReport>,
    pub(super) isa: &'static Isa,
}

impl CoreProgram {
    /// The bundles as assembly text, each with its address.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        for line in self.isa.listing(&self.code) {
            let bundle = line.bundle.map_or_else(|error| error.to_string(), |bundle| self.isa.text(&bundle));
            // A String takes everything that is written to it.
            let _ = writeln!(text, "{:5x}  {bundle}", line.address);
        }
        text
    }
}
