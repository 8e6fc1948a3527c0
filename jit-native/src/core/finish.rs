//! From what an author has written to machine code.

use super::allocate::{Crowded, allocate};
use super::builder::CoreBuilder;
use super::dead::prune;
use super::error::CoreError;
use super::flow::Node;
use super::layout::{keep_setup_apart, layout};
use super::list::Freedom;
use super::lower::{LoopInfo, Lowered, Plan, lower};
use super::operation::Row;
use super::pipeline::{Found, LoopPlan};
use super::program::{CoreProgram, LoopReport};
use super::reservation::Formats;
use super::schedule::{self, Scheduled};
use super::split::{is_restricted, split};
use super::timing::{Context, unread};
use crate::check::{Program, check};
use std::collections::{HashMap, HashSet};

/// How hard the scheduler tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheduling {
    /// Each instruction in a bundle of its own, in the author's order: for comparison.
    Naive,
    /// Instructions share bundles within straight sequences; iterations of loops do not overlap.
    Straight,
    /// Iterations of innermost loops overlap where that is faster.
    #[default]
    Pipelined,
}

/// From the greatest freedom to the least: what has too few registers is tried with less.
const FREEDOMS: [Freedom; 5] =
    [Freedom::Window(usize::MAX), Freedom::Window(24), Freedom::Window(8), Freedom::Window(1), Freedom::Naive];

impl CoreBuilder {
    /// The machine code.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the program, or why it cannot be made: see [`CoreError`].
    pub fn finish(self) -> Result<CoreProgram, CoreError> {
        self.finish_with(Scheduling::default())
    }

    /// The machine code with a certain scheduling.
    ///
    /// # Errors
    ///
    /// As [`CoreBuilder::finish`].
    pub fn finish_with(mut self, scheduling: Scheduling) -> Result<CoreProgram, CoreError> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        let program = prune(&self.variables, &self.open.pop().unwrap_or_default());
        let formats = Formats::new(self.isa());
        let least = FREEDOMS.len() - 1;
        // By origin of blocks: an index into the freedoms.
        let mut freedoms: HashMap<usize, usize> = HashMap::new();
        let default = if scheduling == Scheduling::Naive { least } else { 0 };
        let mut plan = Plan {
            formats: &formats,
            default: LoopPlan { plain: scheduling != Scheduling::Pipelined, ..LoopPlan::default() },
            loops: HashMap::new(),
            found: HashMap::new(),
            unread: unread(&self.variables, rows(&program).into_iter()),
        };
        // Variables that have to be moved to where instructions want them.
        let mut apart: HashSet<u32> = HashSet::new();
        loop {
            let mut builder = self.clone();
            let program = split(&mut builder, &program, &apart);
            let lowered = lower(&mut builder, &program, &mut plan)?;
            let freedom = |origin: usize| FREEDOMS[freedoms.get(&origin).copied().unwrap_or(default)];
            let crowded = match attempt(&builder, &plan, &lowered, &freedom)? {
                Ok(program) => return checked(program),
                Err(crowded) => crowded,
            };
            let restricted = |variable: &u32| {
                (*variable as usize) < self.variables.len()
                    && !apart.contains(variable)
                    && is_restricted(&self, *variable)
            };
            let (first, others) = crowded.variables.split_at(crowded.variables.len().min(1));
            let wanted: Vec<u32> = match first.iter().copied().find(restricted) {
                Some(variable) => vec![variable],
                None => others.iter().copied().filter(restricted).collect(),
            };
            if !wanted.is_empty() {
                apart.extend(wanted);
                plan.found.clear();
                continue;
            }
            let mut changed = false;
            for (origin, number) in crowded.places {
                match number.map(|number| (number, &lowered.loops[number].found)) {
                    Some((number, Found { modulo: Some(modulo), unrolled, .. })) => {
                        let loop_plan = plan.loops.entry(number).or_insert(plan.default);
                        // First without copies, then slower, at last without overlap.
                        if *unrolled > 1 {
                            loop_plan.single = true;
                        } else {
                            loop_plan.interval = modulo.interval + 1 + modulo.interval / 8;
                        }
                        changed = true;
                    }
                    _ => {
                        let level = freedoms.entry(origin).or_insert(default);
                        changed |= *level < least;
                        *level = least.min(*level + 1);
                    }
                }
            }
            if !changed {
                return Err(crowded.error);
            }
        }
    }
}

fn attempt(
    builder: &CoreBuilder,
    plan: &Plan<'_>,
    lowered: &Lowered,
    freedom: &dyn Fn(usize) -> Freedom,
) -> Result<Result<CoreProgram, Box<Crowded>>, CoreError> {
    let context = Context::new(builder.isa(), &builder.variables, &plan.unread);
    let formats = plan.formats;
    let blocks = lowered.blocks.iter();
    let blocks = blocks.map(|block| schedule::block(&context, formats, block, freedom(block.origin)));
    let mut blocks = blocks.collect::<Result<Vec<Scheduled>, _>>()?;
    keep_setup_apart(&mut blocks);
    let assignment = match allocate(&context, &blocks, &lowered.labels) {
        Ok(assignment) => assignment,
        Err(crowded) if crowded.places.is_empty() => return Err(crowded.error),
        Err(crowded) => return Ok(Err(crowded)),
    };
    let image = layout(&context, formats, &blocks, &lowered.labels, &assignment)?;
    let loops = blocks.iter().zip(&image.blocks).filter_map(|(block, start)| {
        let LoopInfo { name, found, macs } = &lowered.loops[block.body_of?];
        let overlapped = found.modulo.as_ref().filter(|_| block.pipelined.is_some());
        Some(LoopReport {
            name: name.clone(),
            pipelined: overlapped.is_some(),
            interval: block.bundles.len() as u32,
            unrolled: overlapped.map_or(1, |_| found.unrolled),
            resource_bound: found.resource_bound as u32,
            recurrence_bound: found.recurrence_bound as u32,
            stages: overlapped.map_or(1, |modulo| modulo.stages as u32),
            macs: if overlapped.is_some() {
                macs.0
            } else {
                macs.0 / found.modulo.as_ref().map_or(1, |_| found.unrolled)
            },
            peak_macs: macs.1,
            start: *start,
        })
    });
    let (loops, code, data) = (loops.collect(), image.code, builder.sections());
    Ok(Ok(CoreProgram { code, entry: 0, data, loops, isa: builder.isa() }))
}

/// A program that the checker accepts.
fn checked(program: CoreProgram) -> Result<CoreProgram, CoreError> {
    let report = check(&Program { entries: vec![program.entry], ..Program::new(program.isa, &program.code) });
    let mut rejections = report.rejections();
    match rejections.next() {
        None => Ok(program),
        Some(first) => Err(CoreError::Rejected { first: first.to_string(), count: 1 + rejections.count() }),
    }
}

/// All rows of a program.
fn rows(program: &[Node]) -> Vec<&Row> {
    let mut all = Vec::new();
    for node in program {
        match node {
            Node::Op(op) => all.extend(&op.rows),
            Node::Repeat { body, .. } | Node::While { body, .. } | Node::Forever(body) => all.extend(rows(body)),
            Node::If { then, otherwise, .. } => {
                all.extend(rows(then));
                all.extend(rows(otherwise));
            }
        }
    }
    all
}
