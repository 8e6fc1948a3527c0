//! Copies: CPY, CONT and DUP, CONCAT and REPEAT, and rows that are gathered (GET_ROWS) or scattered (SET_ROWS).
//!
//! On the host each of them would cut a command list in two, because the host has to see what dispatches before it have written
//! and these after it what it writes. So they are dispatches although they compute nothing: what moves is words, from one
//! argument through a mem tile into another ([`crate::array::Passes`]), and the shims' descriptors change the layout
//! ([`movement`]). Only f32 that becomes f16 or bf16, as in a KV cache, goes through a core ([`pack`]).
//!
//! Which rows GET_ROWS and SET_ROWS move is known when the graph runs and not before. A shim's descriptor cannot look up an
//! index, but the host can when it hands the dispatch to the device: the kernel is an artifact with a stream maker
//! ([`aie_hal::StreamMaker`]), and the executor has it make the stream for the rows at hand ([`rows`]). The stream that is in the
//! artifact itself is that of the first rows: an example for those who look at it, never executed.
//!
//! | rejected, so that the host does it | why |
//! |---|---|
//! | runs on both sides that are no whole words: a transposition of 16-bit elements, rows of an odd number of them | shim DMAs move words |
//! | other changes of type than f32 to f16 and bf16 | not written yet. Tables of blocks (GET_ROWS of a quantised embedding) would be decoded on a core as weights of products are; it is the first node of a graph, where a host call cuts nothing |
//! | f32 to f16 or bf16 for generations without an instruction set (`aie_isa`) | no program |
//! | more than 1,024 rows by indices | a stream grows by up to 350 bytes with each row; a prompt of more tokens has enough to do elsewhere |

pub(super) mod cases;
pub(super) mod design;
pub mod movement;
pub(super) mod mover;
pub mod pack;
pub mod rows;

#[cfg(test)]
mod tests;

use crate::array::Pass;
use crate::kit::{Family, NativeError};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::{Node, Tensor};
use design::{INSTRUCTION_SETS, NAME, finished, format_of, parts, passes, phases, source, unsupported};
use movement::Movement;

/// Copies.
pub static FAMILY: Family = Family {
    name: NAME,
    operations: &["CPY", "CONT", "DUP", "CONCAT", "REPEAT", "GET_ROWS", "SET_ROWS"],
    instruction_sets: INSTRUCTION_SETS,
    cases: cases::cases,
    build,
};

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    match node.op.as_str() {
        "GET_ROWS" | "SET_ROWS" => rows::build(node, arch, passes(arch)?),
        "CONCAT" => whole(node, arch, &joined(node)?),
        "REPEAT" => whole(node, arch, &repeated(node)?),
        _ => {
            let movement = Movement::between(source(node, 0)?, &node.output).map_err(|why| unsupported(node, why))?;
            whole(node, arch, &[(0, movement)])
        }
    }
}

/// The two sources of a CONCAT, each into its part of the result.
fn joined(node: &Node) -> Result<Vec<(u16, Movement)>, NativeError> {
    let dimension = usize::try_from(node.params.0[0]).ok().filter(|dimension| *dimension < 4);
    let dimension = dimension.ok_or_else(|| unsupported(node, format!("dimension {}", node.params.0[0])))?;
    let mut start = 0;
    let mut movements = Vec::new();
    for slot in 0..2 {
        let from = source(node, slot)?;
        let to = Tensor { ne: from.ne, ..node.output };
        let mut movement = Movement::between(from, &to).map_err(|why| unsupported(node, why))?;
        let blocks = if dimension == 0 { from.dtype.block_elements() } else { 1 };
        let offset = start / blocks * node.output.nb[dimension];
        if !offset.is_multiple_of(4) {
            return Err(unsupported(node, format!("source {slot} begins at byte {offset}, no whole word")));
        }
        movement.to += offset as u64 / 4;
        movements.push((slot as u16, movement));
        start += from.ne[dimension];
    }
    Ok(movements)
}

/// The source of a REPEAT, once for each place in the result.
fn repeated(node: &Node) -> Result<Vec<(u16, Movement)>, NativeError> {
    let (from, to) = (source(node, 0)?, &node.output);
    if (0..4).any(|d| from.ne[d] == 0 || !to.ne[d].is_multiple_of(from.ne[d])) {
        return Err(unsupported(node, format!("extents {:?} into {:?}", from.ne, to.ne)));
    }
    let part = Tensor { ne: from.ne, ..*to };
    let mut movement = Movement::between(from, &part).map_err(|why| unsupported(node, why))?;
    for d in 0..4 {
        let (times, step) = ((to.ne[d] / from.ne[d]) as u64, from.ne[d] * to.nb[d]);
        if times > 1 && !step.is_multiple_of(4) {
            return Err(unsupported(node, format!("a repetition after {step} bytes, no whole words")));
        }
        if times > 1 {
            movement.loops.push(movement::Loop { size: times, from: 0, to: step as u64 / 4 });
        }
    }
    Ok(vec![(0, movement)])
}

/// The kernel that does these movements, each from the source at its position.
fn whole(node: &Node, arch: &Arch, movements: &[(u16, Movement)]) -> Result<KernelArtifact, NativeError> {
    let passes = passes(arch)?;
    let to = node.inputs().count() as u16;
    let mut dispatch = passes.configured().dispatch();
    for (argument, movement) in movements {
        let format = format_of(node, movement, arch)?;
        let parts = parts(&passes, movement, format.is_some()).map_err(|why| unsupported(node, why))?;
        let pass =
            |part: &Movement| Pass { from: vec![part.source(*argument, 0, None)], to: vec![part.result(to, 0, None)] };
        let work: Vec<Pass> = parts.iter().map(pass).collect();
        phases(&passes, &mut dispatch, &work, format).map_err(|why| unsupported(node, why))?;
    }
    finished(node, passes.configured(), dispatch)
}
