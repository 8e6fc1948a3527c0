//! FLASH_ATTN_EXT for one token or a few, on one core in each column: with few operations of the stream.
//!
//! The arithmetic is that of [`crate::families::attention`]. What differs is how it is dealt: a core has all keys of its heads, so that no
//! parts are joined; no mem tile takes part, so that there are no channels in between to give tasks.
//!
//! ```text
//!   one core, 64 KiB                                         phase by phase
//!
//!   keys      2 x T rows, as they arrive, in place bf16      shim MM2S 0: keys of all heads of the column
//!   values    2 x T rows                                     shim MM2S 1: queries of all heads, mask, values of all heads
//!   mask      all keys of a phase                            shim S2MM 1: results of all heads
//!   queries   of all heads
//!   states    of all heads: maximum, sum, values
//! ```
//!
//! Rows come as they lie in memory, and the core's channels put them in blocks: the descriptor of a tile has three dimensions, elements of a
//! block, blocks of a row, rows. So eight elements of all keys of a tile are contiguous, and four elements of all of its values,
//! which is where loops find blocks without a shuffle.
//!
//! # Phases
//!
//! A phase is a piece of the keys for a few heads of each column, as many as its memory holds; the mask of these keys is sent once. Where
//! that is not all keys, states and queries stay in memory from phase to phase: only the first one brings queries, and only the last one
//! divides by the sums. What all send is the token by which the stream knows that a phase has ended. A dispatch of one phase takes some
//! 35 operations of a column.
//!
//! # How many columns
//!
//! As many as take the least time by what operations cost: heads that follow each other are dealt over them.
//!
//! # What is not taken
//!
//! What [`crate::families::attention`] does not take, sinks, and more than eight tokens. All of it goes to that family.

mod dispatch;
mod plan;
pub(super) mod program;

use super::machine::{INSTRUCTION_SETS, machine};
use super::types::Types;
use crate::families::attention::cases::without_sinks;
pub(super) use crate::families::attention::parameters::WORDS;
use crate::families::attention::problem::Problem;
use crate::kit::cost::{self, Planned};
use crate::kit::{Family, NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;
use plan::{Cut, taken};

const NAME: &str = "rings-attention";

const OPERATION: &str = "FLASH_ATTN_EXT";

/// Attention on one core in each column.
pub static FAMILY: Family = Family {
    name: NAME,
    operations: &[OPERATION],
    instruction_sets: INSTRUCTION_SETS,
    cases: |_| without_sinks(),
    build,
};

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    if node.op != OPERATION {
        return Err(NativeError::unsupported(NAME, node, format!("possible: {OPERATION}")));
    }
    // Where there is no machine, that is what a caller has to know first.
    let isa = isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let unsupported = |reason: String| NativeError::unsupported(NAME, node, reason);
    let problem = Problem::of(node, isa.set()).and_then(taken).map_err(unsupported)?;
    let machine = machine(arch, Types::DEFAULTS[0])?;
    let attention = &machine.attention;
    let cores = attention.cores();
    let stream = cost::cheapest(cost::powers(cores.len()), &arch.cost, |columns| {
        let cut = Cut::cheapest(&problem, columns, &arch.cost)?;
        let stream = dispatch::stream(attention, &problem, cut, columns).map_err(|error| error.to_string())?;
        Ok(Planned { stream, cycles: cut.cycles(&problem, columns), traffic: cut.traffic(&problem) })
    });
    let kernel = attention.configured().artifact(format!("native-{NAME}"), stream.map_err(unsupported)?)?;
    Ok(machine.configured(kernel, None))
}
