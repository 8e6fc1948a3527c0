//! The array of the family, and how the work is dealt over its columns.

use super::movement::Movement;
use super::mover::Mover as _;
use super::pack;
use crate::array::{Configured, Dispatch, Memo, Pass, Passes};
use crate::codegen::LoopForm;
use crate::kit::{NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_isa::InstructionSet;
use aie_ops::{DataType, Node, Tensor};
use std::sync::Arc;

pub(super) const NAME: &str = "copies";
/// Its program has instructions on scalars alone, which all have in common.
pub(super) const INSTRUCTION_SETS: &[InstructionSet] = &InstructionSet::ALL;
/// Phases of one dispatch, each of up to three million words a column.
const MOST_PHASES: u64 = 64;
/// A column is worth its descriptors from this number of words on.
const WORTH_A_COLUMN: u64 = 256;

/// The design is the same for all nodes. Its cores pack where there is a program for them.
static PASSES: Memo<(), Passes> = Memo::new();

/// The design of a generation; made once.
pub(super) fn passes(arch: &Arch) -> Result<Arc<Passes>, NativeError> {
    let make = || {
        let isa = isa_for(NAME, INSTRUCTION_SETS, arch).ok();
        let program = isa.map(|isa| pack::program(isa, LoopForm::of(arch))).transpose();
        let program = program.map_err(|error| error.to_string())?;
        let columns = u8::try_from(arch.array.columns).unwrap_or(u8::MAX);
        let code = program.as_ref().map(|program| program.code.as_slice());
        Passes::new(arch, columns, code).map_err(|error| error.to_string())
    };
    PASSES.get(arch, (), make).map_err(failed)
}

fn failed(error: impl ToString) -> NativeError {
    NativeError::Failed { family: NAME, reason: error.to_string() }
}

pub(in crate::families) fn unsupported(node: &Node, reason: impl Into<String>) -> NativeError {
    NativeError::Unsupported { family: NAME, op: node.op.clone(), reason: reason.into() }
}

pub(in crate::families) fn source(node: &Node, slot: usize) -> Result<&Tensor, NativeError> {
    node.source(slot).ok_or_else(|| unsupported(node, format!("no source {slot}")))
}

/// What the cores make, where they make anything.
pub(in crate::families) fn format_of(
    node: &Node,
    movement: &Movement,
    arch: &Arch,
) -> Result<Option<u32>, NativeError> {
    let format = match (movement.pair, node.output.dtype) {
        (None, _) => return Ok(None),
        (Some(_), DataType::BF16) => pack::BF16,
        (Some(_), _) => pack::F16,
    };
    isa_for(NAME, INSTRUCTION_SETS, arch).map(|_| Some(format))
}

/// A movement as parts for columns and phases.
pub(super) fn parts(passes: &Passes, movement: &Movement, packs: bool) -> Result<Vec<Movement>, String> {
    let columns = columns(passes, movement.words());
    let most = if packs { Passes::MOST_PACKED } else { Passes::MOST_PASSED };
    let mut phases = movement.words().div_ceil(most * columns).max(1);
    loop {
        if phases > MOST_PHASES {
            return Err(format!("{} words; at most {MOST_PHASES} phases of {most} a column", movement.words()));
        }
        let parts = movement.clone().parts(columns * phases);
        if parts.iter().all(|part| part.words() <= most) {
            return Ok(parts);
        }
        phases *= 2;
    }
}

/// How many columns share this many words.
pub(super) fn columns(passes: &Passes, words: u64) -> u64 {
    words.div_ceil(WORTH_A_COLUMN).clamp(1, passes.columns().into())
}

/// Adds passes, as many at a time as there are columns.
pub(super) fn phases(
    passes: &Passes,
    dispatch: &mut Dispatch<'_>,
    work: &[Pass],
    format: Option<u32>,
) -> Result<(), String> {
    let mut phases = work.chunks(usize::from(passes.columns()).max(1));
    // Blocks of what a shim waits for are what bounds tiles here, not rows.
    phases.try_for_each(|phase| passes.phase(dispatch, phase, 1, format))
}

pub(in crate::families) fn finished(
    node: &Node,
    configured: &Configured,
    dispatch: Dispatch<'_>,
) -> Result<KernelArtifact, NativeError> {
    let instructions = dispatch.finish().map_err(failed)?;
    Ok(configured.artifact(format!("native-{}", node.op), instructions)?)
}
