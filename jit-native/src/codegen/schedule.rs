//! From blocks to bundles with variables.

use super::block::{Block, End};
use super::depend::{Edge, edges};
use super::error::CoreError;
use super::list::{self, Freedom, Placement};
use super::operation::{Effect, Op, Row};
use super::reservation::{Formats, bit};
use super::timing::{Context, RowTiming};

/// Bundles after a branch that are executed before it takes effect.
pub(super) const DELAY_SLOTS: usize = 5;
/// More cycles than blocks have.
const FIRST: i32 = 1000;

/// A block whose operations have cycles. Everything it has begun is through at its end, unless the next block goes on with it.
#[derive(Clone, Debug)]
pub(super) struct Scheduled {
    pub bundles: Vec<Vec<Row>>,
    pub end: End,
    pub target: bool,
    /// The last cycle in which the loop that follows is set up.
    pub setup: Option<usize>,
    pub body_of: Option<usize>,
    /// The pipelined loop that it is a part of: what is in flight at its end goes on in the blocks after it.
    pub pipelined: Option<usize>,
    pub origin: usize,
}

/// Schedules one block.
pub(super) fn block(
    context: &Context<'_>,
    formats: &Formats,
    block: &Block,
    freedom: Freedom,
) -> Result<Scheduled, CoreError> {
    let (target, body_of, origin) = (block.target, block.body_of, block.origin);
    if let Some((number, bundles)) = &block.pipelined {
        let (bundles, end) = (bundles.clone(), block.end.clone());
        return Ok(Scheduled { bundles, end, target, setup: None, body_of, pipelined: Some(*number), origin });
    }
    let timings = timings(context, &block.ops)?;
    let mut edges = edges(&block.ops, &timings, false);
    // With a count, the bundle at the old `le` would be the end of a loop: at first that is the program's first one.
    if let [_, end, .., count] = block.setup[..] {
        edges.push(Edge { from: end, to: count, distance: 0, iterations: 0 });
    }
    let setup = block.setup.iter().map(|op| (*op, FIRST));
    // The branch comes after the counter, and its delay slots after the branch.
    let early: Vec<(usize, i32)> = setup.chain(block.counter.map(|op| (op, 1 + DELAY_SLOTS as i32))).collect();
    let placements = list::schedule(&timings, &edges, formats, freedom, &early);
    let mut length = through(&timings, &placements);
    let mut rows = Vec::new();
    if let End::Jump { branch: Some(row), .. } | End::Branch { branch: row, .. } = &block.end {
        let cycle = branch_cycle(context, formats, block, row, (&timings, &placements, length))?;
        length = length.max(cycle + 1 + DELAY_SLOTS);
        rows.push((cycle, row.clone()));
    }
    let mut bundles = list::bundles(&block.ops, &placements, length);
    for (cycle, row) in rows {
        bundles[cycle].push(row);
    }
    let setup = block.setup.iter().map(|op| placements[*op].cycle).max();
    let end = block.end.clone();
    Ok(Scheduled { bundles, end, target, setup, body_of, pipelined: None, origin })
}

/// The timings of operations.
pub(super) fn timings(context: &Context<'_>, ops: &[Op]) -> Result<Vec<Vec<RowTiming>>, CoreError> {
    let all = ops.iter().map(|op| {
        let none =
            || CoreError::Schedule(format!("`{}` has no register for an operand", op.rows[0].instruction.mnemonic));
        context.timings(op).ok_or_else(none)
    });
    all.collect()
}

/// The cycles until all is through.
fn through(timings: &[Vec<RowTiming>], placements: &[Placement]) -> usize {
    let last = timings.iter().zip(placements).map(|(rows, at)| at.cycle + usize::from(rows[at.row].last));
    last.max().unwrap_or(0)
}

/// The first cycle in which the branch can be: its condition is there, its slot free, and only its delay slots follow. Locks
/// are not used in delay slots: no compiled program shows what happens when the core waits there.
fn branch_cycle(
    context: &Context<'_>,
    formats: &Formats,
    block: &Block,
    row: &Row,
    (timings, placements, length): (&[Vec<RowTiming>], &[Placement], usize),
) -> Result<usize, CoreError> {
    let op = Op { rows: vec![row.clone()], effect: Effect::None, dead: Vec::new() };
    let mut ops = block.ops.clone();
    ops.push(op);
    let branch = timings_of(context, &ops[ops.len() - 1])?;
    let mut all = timings.to_vec();
    all.push(branch);
    let into = |edge: &&Edge| edge.to == block.ops.len();
    let ready = edges(&ops, &all, false)
        .iter()
        .filter(into)
        .map(|edge| placements[edge.from].cycle as i32 + edge.distance)
        .max()
        .unwrap_or(0);
    let locks = block
        .ops
        .iter()
        .zip(placements)
        .filter(|(op, _)| !matches!(op.effect, Effect::None | Effect::Load(_) | Effect::Store(_)));
    let after_locks = locks.map(|(_, at)| at.cycle + 1).max().unwrap_or(0);
    let mut cycle = length.saturating_sub(1 + DELAY_SLOTS).max(ready.max(0) as usize).max(after_locks);
    let slot = bit(row.instruction.slot);
    let slots = |cycle: usize| {
        let here = block.ops.iter().zip(placements).filter(|(_, at)| at.cycle == cycle);
        here.fold(0, |slots, (op, at)| slots | bit(op.rows[at.row].instruction.slot))
    };
    while slots(cycle) & slot != 0 || formats.sizes(slots(cycle) | slot).is_empty() {
        cycle += 1;
    }
    Ok(cycle)
}

fn timings_of(context: &Context<'_>, op: &Op) -> Result<Vec<RowTiming>, CoreError> {
    Ok(timings(context, std::slice::from_ref(op))?.swap_remove(0))
}
