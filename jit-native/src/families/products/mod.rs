//! MUL_MAT: products of weights and columns on all cores.
//!
//! `result[m, n] = sum over k of weights[k, m] * columns[k, n]`, with rows of weights and columns contiguous in `k` and a
//! result contiguous in `m`.
//!
//! ```text
//!   column of the array (all four work alone)            one core, 64 KiB
//!
//!   row 5  core 3   rows 3R..4R of the tile              weights   2 x (16 rows x chunk), as they arrive
//!   row 4  core 2   rows 2R..3R                          columns   a ring of (4 columns x chunk), as they arrive
//!   row 3  core 1   rows  R..2R                          columns   all, in bf16, as blocks of 8 k x 4 columns
//!   row 2  core 0   rows  0..R                           decoded   16 rows x chunk of bf16, if weights are not bf16
//!          | | | |     ^                                 sums      R rows x all columns of f32, one or two of them
//!   row 1  mem tile    |  columns to all cores
//!          weights of cores 0, 1 | columns | results     512 KiB: 4 x 2 x (R rows x chunk) of weights, all columns,
//!          ^             ^             |                 4 x 2 x sums
//!   row 0  shim MM2S 0   MM2S 1        v S2MM 0
//!          columns, then weights of    results
//!          weights       cores 2, 3
//! ```
//!
//! Weights are the first operand of the matrix unit (4 rows x 8 `k`) as rows of 16 bytes of bf16 that the mem tile's channel
//! picks from four rows; no core shuffles them. Columns are the second operand (8 `k` x 4 columns): the cores round f32 to bf16,
//! or take bf16 as it is, and transpose once for all rows of weights that follow. Sums of 4 rows x 4 columns leave the core with
//! the channel's three dimensions as columns of rows, which is how the result lies in memory.
//!
//! # What bounds it
//!
//! *Few columns.* Weights stream once from memory through both channels of each shim, 32 bytes a cycle for the array, 2 for
//! a core. For 16 rows and 32 `k` that is 512 cycles of bf16, 272 of q8_0, 210 of q6_K, 160 of q4_1, 144 of q4_0 and q4_K; the
//! core needs 20 for the product of four columns and, for the types with blocks, 108, 149, 90, 62 and 75 for decoding. So memory is
//! the bound.
//!
//! *Many columns.* The inner loop has a multiplication in every cycle (module `product`). Around it: loading and storing the sums
//! of each chunk, decoding again for each tile of columns, and columns that arrive as f32, one word a cycle, which a core cannot
//! convert while it multiplies. Where they do not stay in the core, those of the next chunk arrive meanwhile, if there is room for
//! them, and those of the first tile come in turn with its weights. 32 columns of 576 elements stay in a core as bf16, then decoding q4_1 takes 70 % as long as the
//! products. Columns that arrive as bf16 take half the time and room.
//!
//! Everything that a shape decides is in parameters and descriptors: there is one PDI for all shapes and types that are multiplied as
//! bf16, one for i8, and one for decoded tokens, whose program has functions of [`vectors`] instead of the loops for many columns.
//!
//! # What is not taken
//!
//! Rows that are no whole words: an odd number of bf16 elements, in either operand, a number of i8 that is no multiple of four, or of q4_0's, q8_0's and q6_K's blocks; other types
//! of weights; columns that are neither f32 nor bf16; strides that are no multiples of 4 bytes; rows so long that four columns of
//! f32 do not fit into the mem tile beside weights. Rows of more than about 6,000 elements of f32 are multiplied by eight or four
//! columns at a time. Rows of bf16 and f32 that are no multiple of 32 elements are cut into pieces of one length, behind which
//! mem tiles send zeros to the next multiple; if no divisor makes these small enough for a core, there is no way.

mod arithmetic;
mod cases;
mod columns;
mod decode;
mod dispatch;
mod kernel;
#[cfg(test)]
mod loop_tests;
mod machine;
mod memory;
mod parameters;
mod plan;
mod problem;
mod product;
mod program;
pub mod prompts;
pub mod vectors;
mod weights;

use crate::codegen::LoopReport;
use crate::kit::cost::{self, Planned};
use crate::kit::{Family, NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;
use kernel::Purpose;
use machine::{INSTRUCTION_SETS, Machine, NAME, machine};
use problem::Problem;

const OPERATION: &str = "MUL_MAT";

/// Products.
pub static FAMILY: Family =
    Family { name: NAME, operations: &[OPERATION], instruction_sets: INSTRUCTION_SETS, cases: cases::cases, build };

/// What is known of the loops of the cores' programs, for reports: cycles and multiply-accumulates of an iteration.
///
/// # Errors
/// As for a node.
pub fn loops(arch: &Arch) -> Result<Vec<LoopReport>, NativeError> {
    let machines = [Purpose::Floats, Purpose::Integers, Purpose::Token].map(|purpose| machine(arch, purpose));
    let machines: Vec<_> = machines.into_iter().collect::<Result<_, _>>()?;
    Ok(machines.iter().flat_map(|machine| machine.loops.iter().cloned()).collect())
}

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let unsupported = |reason| NativeError::Unsupported { family: NAME, op: node.op.clone(), reason };
    if node.op != OPERATION {
        return Err(unsupported(format!("possible: {OPERATION}")));
    }
    // Where there is no machine, that is what a caller has to know first.
    isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let (columns, problem) = (arch.array.columns, Problem::of(node).map_err(unsupported)?);
    let of_token = problem.for_token().filter(|problem| problem.phases(columns).is_ok());
    let (purpose, problem) = of_token.map_or((problem.purpose(), problem), |problem| (Purpose::Token, problem));
    let machine = machine(arch, purpose)?;
    // A column of the array costs operations, which take longer than what it saves where few bytes are read. With many columns of the
    // result each reads all weights, and there is work for all.
    let widths = cost::powers(columns).filter(|width| *width == columns || problem.has_few_columns());
    let stream = cost::cheapest(widths, &arch.cost, |width| planned(&machine, &problem, width));
    let stream = stream.map_err(unsupported)?;
    let name = format!("native-{OPERATION}-{}", problem.weights.dtype());
    Ok(machine.product.configured().artifact(name, stream)?)
}

/// The stream on so many columns of the array, with what passes meanwhile.
fn planned(machine: &Machine, problem: &Problem, columns: usize) -> Result<Planned, String> {
    let phases = problem.phases(columns)?;
    let stream = dispatch::stream(machine, problem, &phases).map_err(|error| error.to_string())?;
    Ok(Planned { stream, cycles: problem.cycles(&phases), traffic: Problem::weight_traffic(&phases) })
}
