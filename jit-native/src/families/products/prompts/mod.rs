//! MUL_MAT with many columns: each word is read once for a whole row or column of cores.
//!
//! The array is [`Broadcast`](crate::array::Broadcast): a core computes a tile of the result, cores of a row have the same weights and those of a
//! column the same columns.
//!
//! ```text
//!   one core, 64 KiB
//!
//!   sums       rows x columns of f32, 16 rows after 16
//!   columns    two chunks of 64 or 128 k, as the matrix unit takes them: in bf16, or in block floating point
//!   decoded    16 rows of a chunk, likewise, if they do not arrive so
//!   weights    2 x 16 rows of a chunk, as they arrive
//!   arriving   2 x (4 to 16 columns x 64 k), as they arrive
//! ```
//!
//! For 16 rows of a chunk a core decodes their weights once, multiplies them with all columns (`multiply`), and converts some of the columns of the
//! next chunk. What is cut how is in `plan`, which also tells how long that takes: where another family takes less, the node is its.
//! On aie2 decoders, and the conversion of columns, are those of [all products](super); on aie2p all of it is in `blocks`. What differs between
//! both matrix units is in `matrix`.

mod blocks;
mod cases;
mod dispatch;
mod machine;
mod matrix;
mod multiply;
mod plan;
mod program;
#[cfg(test)]
mod tests;

use super::problem::Problem;
use crate::codegen::LoopReport;
use crate::families::rings;
use crate::kit::cost::Planned;
use crate::kit::{Family, NativeError, isa_for};
use aie_hal::format::extent::Traffic;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;
use machine::{INSTRUCTION_SETS, Machine, NAME, machine};
use std::sync::Arc;

const OPERATION: &str = "MUL_MAT";

/// Products with many columns.
pub static FAMILY: Family =
    Family { name: NAME, operations: &[OPERATION], instruction_sets: INSTRUCTION_SETS, cases: cases::cases, build };

/// What is known of the loops of the cores' program, for reports.
///
/// # Errors
/// As for a node.
pub fn loops(arch: &Arch) -> Result<Vec<LoopReport>, NativeError> {
    Ok(machine(arch)?.loops.clone())
}

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let unsupported = |reason: String| NativeError::unsupported(NAME, node, reason);
    if node.op != OPERATION {
        return Err(unsupported(format!("possible: {OPERATION}")));
    }
    // Where there is no machine, that is what a caller has to know first.
    isa_for(NAME, INSTRUCTION_SETS, arch)?;
    let problem = Problem::of(node).map_err(unsupported)?;
    let (machine, planned) = made(&problem, arch)?.map_err(unsupported)?;
    if let Some(reason) = slower(node, &problem, &planned, arch)? {
        return Err(unsupported(reason));
    }
    artifact(&problem, &machine, planned.stream)
}

/// The array with the stream of a product, or why there is none.
type Made = Result<(Arc<Machine>, Planned), String>;

fn made(problem: &Problem, arch: &Arch) -> Result<Made, NativeError> {
    if let Some(reason) = plan::refusal(problem) {
        return Ok(Err(reason));
    }
    let machine = machine(arch)?;
    Ok(planned(&machine, problem).map(|planned| (machine, planned)))
}

fn artifact(problem: &Problem, machine: &Machine, stream: Vec<u8>) -> Result<KernelArtifact, NativeError> {
    let name = format!("native-{NAME}-{OPERATION}-{}", problem.weights.dtype());
    Ok(machine.broadcast.configured().artifact(name, stream)?)
}

/// That the family takes less time that has the product otherwise, if it does.
fn slower(node: &Node, problem: &Problem, planned: &Planned, arch: &Arch) -> Result<Option<String>, NativeError> {
    let (family, other) = if super::FAMILY.is_for(arch) {
        let machine = super::machine::machine(arch, problem.purpose())?;
        ("family of all products", super::planned(&machine, problem, arch.array.columns).ok())
    } else {
        ("family of a decoded token", rings::in_turns(node, arch))
    };
    let Some(other) = other else { return Ok(None) };
    let [own, other] = [planned, &other].map(|planned| planned.nanoseconds(&arch.cost));
    Ok(match (own, other) {
        (Ok(own), Ok(other)) if own >= other => Some(format!("about {own} ns; possible: {other} ns, by the {family}")),
        _ => None,
    })
}

/// The stream of a product, with what passes meanwhile.
fn planned(machine: &Machine, problem: &Problem) -> Result<Planned, String> {
    let broadcast = &machine.broadcast;
    let phases = plan::phases(problem, machine.matrix, [broadcast.columns().len(), broadcast.rows()])?;
    let stream = dispatch::stream(machine, problem, &phases).map_err(|error| error.to_string())?;
    let cycles = phases.iter().map(|phase| phase.cycles(problem)).sum();
    let traffic = phases.iter().map(|phase| phase.traffic(problem)).fold(Traffic::default(), Traffic::and);
    Ok(Planned { stream, cycles, traffic })
}
