//! From a loop's body to the bundles of its overlapped iterations: what comes before the steady state, the steady state, and
//! what comes after it.

use super::depend::edges;
use super::error::CoreError;
use super::list::{self, Freedom};
use super::modulo::{self, Modulo};
use super::operation::{Op, Row, Val};
use super::register::{Reg, Variable};
use super::reservation::Formats;
use super::schedule::{DELAY_SLOTS, timings};
use super::timing::{Context, Leaf, RowTiming};
use std::collections::{BTreeSet, HashMap, HashSet};

/// How a loop is to be scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LoopPlan {
    /// Iterations do not overlap.
    pub plain: bool,
    /// The interval is not shorter.
    pub interval: usize,
    /// The body is not unrolled.
    pub single: bool,
}

/// What has been found out about a loop.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Copies of the body in one iteration.
    pub unrolled: u32,
    /// Without counter and branch.
    pub resource_bound: usize,
    pub recurrence_bound: usize,
    /// Cycles of an iteration by itself.
    pub length: usize,
    /// None if nothing is gained.
    pub modulo: Option<Modulo>,
}

/// The bundles of a loop.
pub(super) struct Bundles {
    pub prologue: Vec<Vec<Row>>,
    pub kernel: Vec<Vec<Row>>,
    pub epilogue: Vec<Vec<Row>>,
}

/// The most iterations that overlap: what `add.nc` and `add` can take away from a count.
const MOST_STAGES: usize = 31;
/// Copies of a body that are tried.
pub(super) const COPIES: [u32; 3] = [1, 2, 4];
/// Bodies are not unrolled beyond this many operations.
const MOST_OPERATIONS: usize = 160;

/// Finds the schedule of a body: `multiple` is what the count is known to be a multiple of, `most` its most, `back` the operations
/// that count and branch back.
pub(super) fn find(
    context: &Context<'_>,
    formats: &Formats,
    ops: &[Op],
    (multiple, most): (u32, u32),
    plan: LoopPlan,
    back: &[Op],
    copies: impl Fn(u32) -> Option<Vec<Op>>,
) -> Result<Found, CoreError> {
    let mut best: Option<Found> = None;
    for unrolled in COPIES {
        let small = ops.len() * unrolled as usize <= MOST_OPERATIONS;
        if unrolled > 1 && (plan.single || !multiple.is_multiple_of(unrolled) || !small) {
            continue;
        }
        // Already as short as slots and units allow.
        if let Some(Found { unrolled, modulo: Some(modulo), resource_bound, .. }) = &best
            && modulo.interval <= *resource_bound
            && (*unrolled > 1 || *resource_bound >= 2 && !rounded_up(context, ops, *resource_bound)?)
        {
            break;
        }
        let Some(body) = copies(unrolled) else {
            continue;
        };
        let mut found = one(context, formats, &body, unrolled, plan, back)?;
        found.modulo = found.modulo.filter(|modulo| modulo.stages as u32 * unrolled <= most);
        let better = match (&best, &found.modulo) {
            (None, _) => true,
            (Some(Found { modulo: None, .. }), found) => found.is_some(),
            (Some(Found { unrolled: before, modulo: Some(old), .. }), Some(new)) => {
                new.interval * (*before as usize) < old.interval * unrolled as usize
            }
            (Some(_), None) => false,
        };
        if better {
            best = Some(found);
        }
    }
    best.ok_or_else(|| CoreError::Schedule("a loop has no body".into()))
}

/// Whether the bound of two copies is less than twice that of one.
fn rounded_up(context: &Context<'_>, ops: &[Op], bound: usize) -> Result<bool, CoreError> {
    let twice: Vec<Op> = ops.iter().chain(ops).cloned().collect();
    Ok(modulo::resource_bound(&timings(context, &twice)?) < 2 * bound)
}

fn one(
    context: &Context<'_>,
    formats: &Formats,
    ops: &[Op],
    unrolled: u32,
    plan: LoopPlan,
    back: &[Op],
) -> Result<Found, CoreError> {
    let timings = timings(context, ops)?;
    let straight = edges(ops, &timings, false);
    let plain = list::schedule(&timings, &straight, formats, Freedom::Window(usize::MAX), &[]);
    let length =
        plain.iter().zip(&timings).map(|(at, rows)| at.cycle + usize::from(rows[at.row].last)).max().unwrap_or(1);
    // The branch, and one cycle for the counter before it.
    let behind = (!back.is_empty()).then_some(DELAY_SLOTS);
    let fewest = 1 + behind.unwrap_or(0);
    let length = length.max(fewest + back.len() / 2);
    let resource_bound = modulo::resource_bound(&timings);
    let ops = [ops, back].concat();
    let mut timings = self::timings(context, &ops)?;
    overwritten(&mut timings);
    let carried = edges(&ops, &timings, true);
    let recurrence_bound = modulo::recurrence_bound(ops.len(), &carried, length.max(1)).unwrap_or(length);
    let least = modulo::resource_bound(&timings).max(recurrence_bound).max(plan.interval).max(fewest);
    let modulo = if plan.plain {
        None
    } else {
        modulo::schedule(&timings, &carried, formats, least..length, &free(&timings), behind)
    };
    let modulo = modulo.filter(|modulo| modulo.stages <= MOST_STAGES);
    Ok(Found { unrolled, resource_bound, recurrence_bound, length, modulo })
}

/// Operations that only read what the body does not change, or what they change themselves: loads and constants.
fn free(timings: &[Vec<RowTiming>]) -> Vec<bool> {
    let writes = |rows: &[RowTiming]| -> HashSet<Leaf> {
        rows.iter().flat_map(|row| &row.accesses).filter(|access| access.write).map(|access| access.leaf).collect()
    };
    let changed: HashSet<Leaf> = timings.iter().flat_map(|rows| writes(rows)).collect();
    let is_free = |rows: &Vec<RowTiming>| {
        let own = writes(rows);
        let mut reads = rows.iter().flat_map(|row| &row.accesses).filter(|access| !access.write);
        !own.is_empty() && reads.all(|access| own.contains(&access.leaf) || !changed.contains(&access.leaf))
    };
    timings.iter().map(is_free).collect()
}

/// Marks results that the next iteration overwrites before anything reads them: only the last iteration's are for anyone.
fn overwritten(timings: &mut [Vec<RowTiming>]) {
    // From the end of the second of two iterations to the start of the first: the leaves whose next access is a write.
    let mut written: HashSet<Leaf> = HashSet::new();
    for pass in 0..2 {
        for rows in timings.iter_mut().rev() {
            for access in rows.iter_mut().flat_map(|row| &mut row.accesses).filter(|access| access.write) {
                access.dead |= pass == 1 && written.contains(&access.leaf);
            }
            let accesses = rows.iter().flat_map(|row| &row.accesses);
            written.extend(accesses.clone().filter(|access| access.write).map(|access| access.leaf));
            for access in accesses.filter(|access| !access.write) {
                written.remove(&access.leaf);
            }
        }
    }
}

/// A body several times after each other; variables that live within an iteration are different ones in each copy.
pub(super) fn unroll(ops: &[Op], copies: u32, local: &BTreeSet<u32>, mut fresh: impl FnMut(u32) -> u32) -> Vec<Op> {
    let mut all = ops.to_vec();
    for _ in 1..copies {
        let names: HashMap<u32, u32> = local.iter().map(|variable| (*variable, fresh(*variable))).collect();
        all.extend(ops.iter().cloned().map(|mut op| {
            for value in op.rows.iter_mut().flat_map(|row| &mut row.values) {
                if let Val::Reg(reg) = value
                    && let Some(variable) = names.get(&reg.variable)
                {
                    *reg = Reg { variable: *variable, ..*reg };
                }
            }
            for (variable, _) in &mut op.dead {
                *variable = names.get(variable).copied().unwrap_or(*variable);
            }
            op
        }));
    }
    all
}

/// The variables of a body that nothing of an iteration before or after the loop reads: each leaf is written before it is read,
/// and `elsewhere` says whether the rest of the program has them.
pub(super) fn locals(
    context: &Context<'_>,
    ops: &[Op],
    elsewhere: impl Fn(u32) -> bool,
) -> Result<BTreeSet<u32>, CoreError> {
    let timings = timings(context, ops)?;
    let mut written: HashSet<Leaf> = HashSet::new();
    let mut exposed: HashSet<Leaf> = HashSet::new();
    for rows in &timings {
        let accesses = &rows[0].accesses;
        exposed
            .extend(accesses.iter().filter(|access| !access.write && !written.contains(&access.leaf)).map(|a| a.leaf));
        written.extend(accesses.iter().filter(|access| access.write).map(|access| access.leaf));
    }
    let mut local = BTreeSet::new();
    for (_, reg) in ops.iter().flat_map(Op::registers) {
        let variable: &Variable = &context.variables[reg.variable as usize];
        let first = context.first_leaf[reg.variable as usize];
        let mut leaves = first..first + Leaf::from(variable.leaves);
        let within = leaves.all(|leaf| !exposed.contains(&leaf));
        if within && variable.class != super::Class::Special && !elsewhere(reg.variable) {
            local.insert(reg.variable);
        }
    }
    Ok(local)
}

/// The bundles of a loop by its schedule; `back`: the operations that count and branch back.
pub(super) fn expand(context: &Context<'_>, ops: &[Op], modulo: &Modulo, back: &[Op]) -> Result<Bundles, CoreError> {
    let timings = timings(context, ops)?;
    let Modulo { interval, stages, .. } = *modulo;
    let before = (stages - 1) * interval;
    let placed = || ops.iter().zip(&modulo.placements);
    let row = |op: &Op, row: usize| op.rows[row].clone();
    let mut prologue = vec![Vec::new(); before];
    let mut kernel = vec![Vec::new(); interval];
    let through = timings.iter().zip(&modulo.placements);
    let through = through.map(|(rows, at)| (at.cycle + usize::from(rows[at.row].last)).saturating_sub(interval)).max();
    let mut epilogue = vec![Vec::new(); before.max(through.unwrap_or(0))];
    for (op, at) in placed() {
        kernel[at.cycle % interval].push(row(op, at.row));
        for cycle in (at.cycle..before).step_by(interval) {
            prologue[cycle].push(row(op, at.row));
        }
        let mut cycle = at.cycle;
        while cycle >= interval {
            cycle -= interval;
            epilogue[cycle].push(row(op, at.row));
        }
    }
    if let Some(found) = &modulo.back {
        for (op, at) in back.iter().zip(&found.placements) {
            kernel[at.cycle].push(row(op, at.row));
        }
        // Turning the schedule has left cycles without operations at both ends.
        prologue.drain(..prologue.iter().take_while(|rows| rows.is_empty()).count());
        epilogue.truncate(through.unwrap_or(0));
    }
    Ok(Bundles { prologue, kernel, epilogue })
}
