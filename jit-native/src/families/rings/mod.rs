//! MUL_MAT with few columns: products on chains that never end.
//!
//! `result[m, n] = sum over k of weights[k, m] * columns[k, n]`, of one matrix of weights in blocks and one to four columns of f32.
//!
//! The array is [`Rings`](crate::array::Rings): weights stream through a mem tile to the two cores of a column, in blocks that know nothing of
//! rows; columns go to all cores; results come back 16 rows of each core at a time. All channels but the shims' are started by the
//! configuration, so that a product takes four operations of the instruction stream for each column, a block of parameters and a task of
//! three, and seven besides: a task for the columns, one for the result and a wait. What is cut how is in `plan`, what is taken in `problem`, and `estimate` tells whether more jobs are worth their operations.
//!
//! The family is asked where it is chosen ([`NativeCompiler::with_products`](crate::NativeCompiler::with_products)), before that of all
//! products.

mod activations;
pub mod attention;
mod cases;
mod dispatch;
mod estimate;
mod fifth_bits;
mod halves;
mod kernel;
mod machine;
mod memory;
mod order;
mod parameters;
mod plan;
mod portion;
mod problem;
mod program;
mod scales;
mod six_bits;
mod sums;
mod types;
mod units;
pub mod vectors;
mod weights;

use crate::codegen::LoopReport;
use crate::kit::cost::{self, Planned};
use crate::kit::{Family, NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_isa::Isa;
use aie_ops::Node;
use machine::{BESIDE_OTHERS, Machine, NAME, machine};
use plan::{plan, traffic};
use problem::Problem;
use std::collections::BTreeSet;
use types::Types;

const OPERATION: &str = "MUL_MAT";

/// Products with few columns.
pub static FAMILY: Family =
    Family { name: NAME, operations: &[OPERATION], instruction_sets: BESIDE_OTHERS, cases: cases::cases, build };

/// The same where no other family has products: with more columns, too, some after the others.
pub static ALONE: Family = Family {
    name: "rings-products",
    operations: &[OPERATION],
    instruction_sets: machine::ALONE,
    cases: cases::in_turns,
    build: build_in_turns,
};

/// What is known of the loops of the cores' programs, for reports.
///
/// # Errors
/// As for a node.
pub fn loops(arch: &Arch) -> Result<Vec<LoopReport>, NativeError> {
    let machines = Types::DEFAULTS.map(|types| machine(arch, types));
    let machines: Vec<_> = machines.into_iter().collect::<Result<_, _>>()?;
    Ok(machines.iter().flat_map(|machine| machine.loops.iter().cloned()).collect())
}

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    if node.op != OPERATION {
        return Err(NativeError::unsupported(NAME, node, format!("possible: {OPERATION}")));
    }
    // Where there is no machine, that is what a caller has to know first.
    let isa = isa_for(NAME, BESIDE_OTHERS, arch)?;
    made(node, arch, isa, Problem::of(node))
}

fn build_in_turns(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let isa = isa_for(ALONE.name, ALONE.instruction_sets, arch)?;
    made(node, arch, isa, Problem::in_turns(node))
}

fn made(node: &Node, arch: &Arch, isa: &Isa, problem: Result<Problem, String>) -> Result<KernelArtifact, NativeError> {
    let unsupported = |reason: String| NativeError::unsupported(NAME, node, reason);
    let problem = problem.map_err(unsupported)?;
    let machine = machine(arch, Types::default_for(problem.weights))?;
    let planned = cheapest(&machine, &problem, arch, isa).map_err(unsupported)?;
    let name = format!("native-{NAME}-{OPERATION}-{}", problem.weights.dtype());
    Ok(machine.configured(machine.rings.configured().artifact(name, planned.stream)?, Some(problem.weights)))
}

/// Two jobs take fewer tasks where one has rows that overlap, for several columns of the operand.
fn cheapest(machine: &Machine, problem: &Problem, arch: &Arch, isa: &Isa) -> Result<Planned, String> {
    cost::least([1, 0].into_iter(), &arch.cost, |more| {
        let plan = plan(problem, machine.rings.columns().into(), more)?;
        let stream = dispatch::stream(&machine.rings, problem, &plan).map_err(|error| error.to_string())?;
        Ok(Planned { stream, cycles: estimate::cycles(isa.set(), problem, &plan), traffic: traffic(&plan) })
    })
}

/// What [`ALONE`] would make of a node, if it takes it.
pub(crate) fn in_turns(node: &Node, arch: &Arch) -> Option<Planned> {
    let isa = isa_for(ALONE.name, ALONE.instruction_sets, arch).ok()?;
    let problem = Problem::in_turns(node).ok()?;
    cheapest(&*machine(arch, Types::default_for(problem.weights)).ok()?, &problem, arch, isa).ok()
}

/// A kernel of this family, or of vectors or attention, with the PDI that has these types of weights.
pub(crate) fn with_types(
    kernel: &KernelArtifact,
    arch: &Arch,
    types: &BTreeSet<String>,
) -> Result<KernelArtifact, NativeError> {
    let failed = |reason: String| NativeError::failed(NAME, reason);
    let machine = machine(arch, Types::that_have(types).map_err(failed)?)?;
    let pdi = machine.rings.configured().artifact(kernel.name(), kernel.instructions().to_vec())?;
    let moved = kernel.with_pdi_of(&machine.configured(pdi, None));
    moved.ok_or_else(|| failed(format!("kernel {} is of another configuration", kernel.name())))
}
