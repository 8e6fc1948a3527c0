//! FLASH_ATTN_EXT: attention for one token or a few, on all cores.
//!
//! `result[dv, head, token] = sum over keys of softmax(scale * K[key] . Q[token, head] + mask[key, token]) * V[key, dv]`, with several
//! heads of queries for one head of keys and values.
//!
//! ```text
//!   one column of the array: one head of keys at a time          one core, 64 KiB
//!
//!   row 5  core 3   tiles 3, 7, ..  of keys and values           keys, values  2 x T rows, as they arrive, then bf16 in place
//!   row 4  core 2   tiles 2, 6, ..                               mask          2 x T elements a token
//!   row 3  core 1   tiles 1, 5, ..                               queries       f32 as they arrive; 8 elements x 4 heads of bf16
//!   row 2  core 0   tiles 0, 4, ..  and joins the parts          part          for each token: maximum, sum, 4 heads x dv of f32
//!             ^ ^        ^     |                                 scores        T keys x 4 heads of f32; exponentials in bf16
//!   row 1  keys values, mask | queries, then the parts of all cores to all cores | result of core 0
//!             ^ ^                                                   |
//!   row 0  MM2S 0: queries, keys   MM2S 1: values, mask          S2MM 0: result
//! ```
//!
//! Keys and values stream once through the shims for four heads of queries. A unit of work is a token with four heads that share
//! a head of keys: the second operand of the matrix unit (8 elements x 4 heads) when scores are computed, and the first one (4 heads
//! x 8 keys) when values are summed. Blocks of keys (4 keys x 8 elements) and of values (8 keys x 4 elements) are picked from rows
//! by the mem tile's channels: a few elements of all keys of a tile, then the next few. No core shuffles them. Each core keeps a running maximum and sum (online softmax) of its tiles. In
//! the end the parts of the four cores go through the mem tile to core 0, which joins them; so a context is spread over four
//! cores, and heads are spread over columns.
//!
//! # f16
//!
//! AIE2 does not know f16, and the cache of llama.cpp has it by default. The bits of an f16 without its sign, shifted right by three
//! with rounding, are a bf16 with the same mantissa to 8 bits and an exponent that is 112 too small. Two instructions of
//! integers convert 32 of them; the factor 2^112 is put into the queries and into the exponentials, whose range has room for it. What
//! this loses are f16 below 2^-14 in magnitude, which become zero. Infinities become 2^16: of a mask, -65,536, which is
//! as good as minus infinity beside any score. No copy of the cache is made.
//!
//! # Soft cap, ALiBi, sinks
//!
//! A head's sink is one more key without a value. Sinks come to core 0 in front of the parts; it begins with them when it joins.
//!
//! `c tanh(s / c)` is `2 c sigmoid(2 s / c) - c`, of which a softmax does not need the last term. The slopes of ALiBi are in the row of
//! 2^112 that the mask is multiplied with; there are those of 16 items behind a core's parameters.
//!
//! # Keys that do not fill a tile
//!
//! All tiles have T rows; the last ones of a context begin T rows before its end, and the rows that others have already are left out by
//! their scores. Rows beyond the last key are never read.
//!
//! # What bounds it
//!
//! A column streams 4 bytes a cycle and channel: T x (bytes of a row) cycles for T keys of each of its four cores, 8,192 for
//! 64 keys of 64 f16. In this time a core converts the tile (1,170), computes 4 x 64 scores and exponentials (about 1,300) and
//! sums (about 600). With short contexts what counts is the first tile's way and the end of an item: 3,000 cycles in core 0.
//!
//! # What is not taken
//!
//! Heads whose elements are no multiples of 16; fewer than 16 keys; quantised keys and values; sinks with a soft cap; an odd number of keys with a
//! mask; masks that differ by head; ALiBi with a bias above 8.

pub(in crate::families) mod cases;
pub(in crate::families) mod convert;
pub(in crate::families) mod dispatch;
pub(in crate::families) mod emit;
mod machine;
pub(in crate::families) mod memory;
pub(in crate::families) mod merge;
pub(in crate::families) mod parameters;
pub(in crate::families) mod plan;
pub(in crate::families) mod problem;
pub(in crate::families) mod program;
pub(in crate::families) mod scores;
pub(in crate::families) mod softmax;
pub(in crate::families) mod values;

use crate::array::Memo;
use crate::kit::{Family, NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_isa::InstructionSet;
use aie_ops::Node;
use machine::Machine;
use problem::Problem;
use std::sync::Arc;

const NAME: &str = "attention";
const OPERATION: &str = "FLASH_ATTN_EXT";
/// Its blocks are those of the matrix unit of this instruction set.
const INSTRUCTION_SETS: &[InstructionSet] = &[InstructionSet::Aie2];

/// Attention.
pub static FAMILY: Family =
    Family { name: NAME, operations: &[OPERATION], instruction_sets: INSTRUCTION_SETS, cases: cases::cases, build };

/// A machine is the same for all nodes.
static MACHINES: Memo<(), Machine> = Memo::new();

fn machine(arch: &Arch) -> Result<Arc<Machine>, NativeError> {
    let isa = isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let machine = MACHINES.get(arch, (), || Machine::new(arch, isa));
    machine.map_err(|reason| NativeError::failed(NAME, reason))
}

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let unsupported = |reason| NativeError::Unsupported { family: NAME, op: node.op.clone(), reason };
    if node.op != OPERATION {
        return Err(unsupported(format!("possible: {OPERATION}")));
    }
    let machine = machine(arch)?;
    let problem = Problem::of(node, InstructionSet::Aie2).map_err(unsupported)?;
    let tiling = problem.tiling(machine.product.columns().len()).map_err(unsupported)?;
    let stream = dispatch::stream(&machine, &problem, tiling).map_err(|error| unsupported(error.to_string()))?;
    let name = format!("native-{OPERATION}");
    Ok(machine.product.configured().artifact(name, stream)?)
}
