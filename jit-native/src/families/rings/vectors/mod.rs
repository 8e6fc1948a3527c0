//! What a decoded token has besides products and attention: sums, gates, norms, rotations, and rows for a cache.
//!
//! All of it is one program ([`Repertoire::Token`]) on one core of a column, [`Elements`], so that a PDI has room
//! for it beside cores of products. What is computed, and in which steps, is planned by the families that have these operations for all
//! sizes ([`elementwise`], [`rows`], [`rope`], [`copies`](crate::families::copies)). This one takes what is small: all of a node in one
//! phase, and of either operand no more for a column than it has a place for, so that nothing that is queued behind them waits for long. A
//! column costs operations of the stream, which take longer than what it saves of a token's vectors: how many share a node is chosen by the
//! costs of the generation's file.

mod cases;
mod mover;

#[cfg(test)]
mod tests;

use super::machine::{Machine, machine};
use super::types::Types;
use crate::array::{Elements, Pass};
use crate::families::copies::design::{finished, format_of, source, unsupported};
use crate::families::copies::movement::Movement;
use crate::families::copies::mover::Mover as _;
use crate::families::copies::rows as cache;
use crate::families::elements::dispatch::{self, Work};
use crate::families::elements::format::Format;
use crate::families::elements::functions::Repertoire;
use crate::families::elements::walk::{RING_WORDS, Walk};
use crate::families::elements::{elementwise, rope, rows};
use crate::kit::cost::powers;
use crate::kit::{Family, NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;
use mover::Cores;
use std::sync::Arc;

const NAME: &str = "vectors";

/// Vectors of a decoded token.
pub static FAMILY: Family = Family {
    name: NAME,
    operations: &[
        "ADD",
        "SUB",
        "MUL",
        "SCALE",
        "SQR",
        "RELU",
        "GELU",
        "GELU_QUICK",
        "SILU",
        "REGLU",
        "GEGLU",
        "SWIGLU",
        "GEGLU_QUICK",
        "SWIGLU_CLAMP",
        "RMS_NORM",
        "RMS_NORM_MUL",
        "NORM",
        "NORM_MUL",
        "L2_NORM",
        "ROPE",
        "GET_ROWS",
        "SET_ROWS",
        "CPY",
        "CONT",
        "DUP",
    ],
    instruction_sets: super::machine::INSTRUCTION_SETS,
    cases: cases::cases,
    build,
};

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    // Where there is no machine, that is what a caller has to know first.
    isa_for(NAME, FAMILY.instruction_sets, arch)?;
    let kernel = match node.op.as_str() {
        "GET_ROWS" | "SET_ROWS" => cache::build(node, arch, cores(arch)?),
        "CPY" | "CONT" | "DUP" => copy(node, arch),
        _ => computed(node, arch),
    };
    let kernel = kernel.and_then(|kernel| Ok(default(arch)?.configured(kernel, None)));
    // Copies say what they do not take under their own name.
    kernel.map_err(|error| match error {
        NativeError::Unsupported { op, reason, .. } => NativeError::Unsupported { family: NAME, op, reason },
        other => other,
    })
}

fn cores(arch: &Arch) -> Result<Arc<Cores>, NativeError> {
    vectors(arch).map(|machine| Arc::new(Cores(machine)))
}

/// The cores for vectors.
fn vectors(arch: &Arch) -> Result<Arc<dispatch::Machine>, NativeError> {
    Ok(default(arch)?.vectors.clone())
}

/// The array of kernels of which a graph's are not known: with products of most models.
fn default(arch: &Arch) -> Result<Arc<Machine>, NativeError> {
    machine(arch, Types::DEFAULTS[0])
}

/// A copy by one column, in one go.
fn copy(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let movement = Movement::between(source(node, 0)?, &node.output).map_err(|why| unsupported(node, why))?;
    let (format, cores, words) = (format_of(node, &movement, arch)?, cores(arch)?, movement.words());
    let most = cores.most_words(format);
    if words > most {
        return Err(unsupported(node, format!("{words} words; at most {most}")));
    }
    let to = node.inputs().count() as u16;
    let pass = Pass { from: vec![movement.source(0, 0, None)], to: vec![movement.result(to, 0, None)] };
    let mut dispatch = cores.configured().dispatch();
    let added = cores.phase(&mut dispatch, &[pass], words, format);
    added.map_err(|why| unsupported(node, why))?;
    finished(node, cores.configured(), dispatch)
}

/// The node on one column, two and so on, wherever it is one phase; of these the one that takes the least time.
fn computed(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let (mut ways, mut reason) = (Vec::new(), String::new());
    for columns in powers(arch.array.columns) {
        let parts = columns as u64;
        // Rows and heads are whole tiles; elements are shared.
        let (works, share): (_, fn(Walk, u64) -> Vec<Walk>) = match node.op.as_str() {
            "ROPE" => (vec![rope::work(node, parts)?], Walk::boxes),
            op if op.contains("NORM") => (rows::norm(node, columns)?, Walk::boxes),
            _ => (vec![elementwise::work(node, None)?], Walk::shared),
        };
        let works = works.into_iter().map(|work| {
            let walks = work.walks.iter().flat_map(|walk| share(walk.clone(), parts)).collect();
            at_once(Work { walks, ..work }, parts)
        });
        match works.collect::<Result<Vec<_>, _>>() {
            Ok(works) => ways.push((columns, works)),
            Err(why) => reason = why,
        }
    }
    if ways.is_empty() {
        return Err(NativeError::unsupported(NAME, node, reason));
    }
    let machine = vectors(arch)?;
    dispatch::cheapest(&machine, ways.iter().map(|(columns, works)| (*columns, works.as_slice())), node, arch)
}

/// A work whose walks are one phase of so many columns, on cores with this family's functions. An error is why it is not that small.
fn at_once(work: Work, columns: u64) -> Result<Work, String> {
    if work.dealt {
        return Err(format!("rows of more than {RING_WORDS} elements"));
    }
    if work.formats != [Format::F32; 3] {
        return Err("only f32".into());
    }
    let count = work.walks.len();
    if count as u64 > columns {
        return Err(format!("{count} parts for {columns} columns"));
    }
    work.walks.iter().try_for_each(|walk| fits(&work, walk))?;
    Ok(Work { family: NAME, repertoire: Repertoire::Token, dealt: true, ..work })
}

/// Tiles of a column that are no whole turns of its chains: each takes tasks of its own for what fills the last turn.
const MOST_FILLED_TILES: u64 = 16;

/// Whether so many tiles of so many words are few enough.
fn are_few(tiles: u64, words: u64) -> bool {
    words.is_multiple_of(Elements::TURN_WORDS.into()) || tiles <= MOST_FILLED_TILES
}

/// Whether all that a column reads of each operand is no more than a tile's place holds.
fn fits(work: &Work, walk: &Walk) -> Result<(), String> {
    let holds = |operand: &str, elements: u64, tiles: u64, first: u64| {
        let is_held = tiles * elements + first <= RING_WORDS && are_few(tiles, elements);
        let why = || format!("{tiles} tiles of {elements} elements of the {operand} operand for a column");
        if is_held { Ok(()) } else { Err(why()) }
    };
    holds("first", walk.elements(), walk.tiles(), 0)?;
    if work.b.is_none() {
        return Ok(());
    }
    let first = work.preparation.as_ref().map_or(0, |preparation| preparation.words);
    let changes: u64 = walk.by_reuse().1.iter().map(|around| around.size).product();
    holds("second", walk.b_elements(), changes, first)
}
