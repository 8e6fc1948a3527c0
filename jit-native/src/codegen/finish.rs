//! From what an author has written to machine code.

use super::allocate::{Crowded, allocate};
use super::builder::CoreBuilder;
use super::dead::prune;
use super::error::CoreError;
use super::flow::{LoopForm, Node};
use super::layout::{PROGRAM_BYTES, TooLong, keep_setup_apart, layout};
use super::list::Freedom;
use super::lower::{LoopInfo, Lowered, Plan, lower};
use super::operation::Row;
use super::pipeline::{Found, LoopPlan};
use super::program::{CoreProgram, LoopReport};
use super::reservation::Formats;
use super::schedule::{self, Scheduled};
use super::split::{is_restricted, split};
use super::stages::{self, Stages};
use super::timing::{Context, unread};
use crate::check::{Finding, Problem, Program, Severity, check};
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

/// How machine code is made of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// How hard the scheduler tries.
    pub scheduling: Scheduling,
    /// What repeats innermost loops.
    pub loops: LoopForm,
}

impl From<Scheduling> for Build {
    fn from(scheduling: Scheduling) -> Self {
        Self { scheduling, ..Self::default() }
    }
}

impl From<LoopForm> for Build {
    fn from(loops: LoopForm) -> Self {
        Self { loops, ..Self::default() }
    }
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
        self.finish_with(Build::default())
    }

    /// The machine code with a certain scheduling or form of loops.
    ///
    /// # Errors
    ///
    /// As [`CoreBuilder::finish`].
    pub fn finish_with(self, build: impl Into<Build>) -> Result<CoreProgram, CoreError> {
        self.make(build.into(), None)
    }

    /// The same with what the compiler makes of the program, stage by stage.
    ///
    /// # Errors
    ///
    /// As [`CoreBuilder::finish`].
    pub fn finish_with_stages(self, build: impl Into<Build>) -> Result<(CoreProgram, Stages), CoreError> {
        let mut stages = Stages::default();
        let program = self.make(build.into(), Some(&mut stages))?;
        stages.bundles = program.listing();
        Ok((program, stages))
    }

    fn make(mut self, build: Build, mut shown: Option<&mut Stages>) -> Result<CoreProgram, CoreError> {
        let Build { scheduling, loops: form } = build;
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        let program = prune(&self.variables, &self.open.pop().unwrap_or_default())?;
        if let Some(stages) = &mut shown {
            stages.source = stages::source(&self, &program);
        }
        let formats = Formats::new(self.isa());
        let least = FREEDOMS.len() - 1;
        // By origin of blocks: an index into the freedoms.
        let mut freedoms: HashMap<usize, usize> = HashMap::new();
        let default = if scheduling == Scheduling::Naive { least } else { 0 };
        let mut plan = Plan {
            formats: &formats,
            form,
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
            let crowded = match attempt(&builder, &plan, &lowered, &freedom, shown.as_deref_mut())? {
                Attempt::Made { program, overlapped } => {
                    let mistakes = mistakes(&program);
                    let Some(first) = mistakes.first() else { return Ok(*program) };
                    if form == LoopForm::Jnz && slow_down(&mut plan, &lowered, &mistakes, &overlapped) {
                        continue;
                    }
                    return Err(CoreError::Rejected { first: first.to_string(), count: mistakes.len() });
                }
                Attempt::Crowded(crowded) => crowded,
                Attempt::TooLong { bytes, loops } => {
                    if !shorten(&mut plan, &lowered, bytes, loops) {
                        return Err(CoreError::ProgramSize { bytes, limit: PROGRAM_BYTES });
                    }
                    continue;
                }
            };
            let mut changed = false;
            let (mut places, mut newly_apart) = (HashSet::new(), Vec::new());
            for one in &crowded {
                let restricted = |variable: &u32| {
                    let known = (*variable as usize) < self.variables.len();
                    known && !apart.contains(variable) && is_restricted(&self, *variable)
                };
                let (first, others) = one.variables.split_at(one.variables.len().min(1));
                let wanted: Vec<u32> = match first.iter().copied().find(restricted) {
                    Some(variable) => vec![variable],
                    None => others.iter().copied().filter(restricted).collect(),
                };
                if wanted.is_empty() {
                    places.extend(one.places.iter().copied());
                }
                newly_apart.extend(wanted);
            }
            if !newly_apart.is_empty() {
                apart.extend(newly_apart);
                plan.found.clear();
                continue;
            }
            for (origin, number) in places {
                match number.map(|number| (number, &lowered.loops[number].found)) {
                    Some((number, Found { modulo: Some(modulo), unrolled, .. })) => {
                        let loop_plan = plan.loops.entry(number).or_insert(plan.default);
                        // First without copies, then slower, at last without overlap.
                        if *unrolled > 1 {
                            loop_plan.single = true;
                        } else {
                            loop_plan.interval = modulo.interval + 1 + modulo.interval / 5;
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
                let first = crowded.into_iter().next().map(|crowded| crowded.error);
                return Err(first.unwrap_or_else(|| CoreError::Schedule("no registers".into())));
            }
        }
    }
}

/// What has come of a way of lowering a program.
enum Attempt {
    Made {
        program: Box<CoreProgram>,
        /// Where overlapped loops begin, and their numbers.
        overlapped: Vec<(u32, usize)>,
    },
    /// These variables have no registers.
    Crowded(Vec<Crowded>),
    /// The program does not fit; for each pipelined loop, how many bytes it would be shorter without overlap.
    TooLong { bytes: usize, loops: HashMap<usize, usize> },
}

/// Takes away the overlap of loops that gain little for their length, until the program may fit. False if there are none.
fn shorten(plan: &mut Plan<'_>, lowered: &Lowered, bytes: usize, loops: HashMap<usize, usize>) -> bool {
    // Where loops branch back, copies are there for the branch, which a short body would wait for: those go first.
    let has_copies = |plan: &Plan<'_>, number: usize| {
        let single = plan.loops.get(&number).is_some_and(|plan| plan.single);
        plan.form == LoopForm::Jnz && lowered.loops[number].found.unrolled > 1 && !single
    };
    let gain = |number: usize| {
        let found = &lowered.loops[number].found;
        let interval = found.modulo.as_ref().map_or(found.length, |modulo| modulo.interval);
        let each = interval as f64 / f64::from(found.unrolled);
        let otherwise = if has_copies(plan, number) { each + 1.0 } else { found.length.max(1) as f64 };
        1.0 - each / otherwise
    };
    let mut order: Vec<(f64, usize, usize)> =
        loops.into_iter().map(|(number, saved)| (gain(number) / saved.max(1) as f64, number, saved)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut left, mut changed) = (bytes, false);
    for (_, number, saved) in order {
        if left + PROGRAM_BYTES / 64 <= PROGRAM_BYTES {
            break;
        }
        left = left.saturating_sub(saved);
        let copies = has_copies(plan, number);
        let loop_plan = plan.loops.entry(number).or_insert(plan.default);
        if copies {
            loop_plan.single = true
        } else {
            loop_plan.plain = true
        }
        changed = true;
    }
    changed
}

fn attempt(
    builder: &CoreBuilder,
    plan: &Plan<'_>,
    lowered: &Lowered,
    freedom: &dyn Fn(usize) -> Freedom,
    shown: Option<&mut Stages>,
) -> Result<Attempt, CoreError> {
    let context = Context::new(builder.isa(), &builder.variables, &plan.unread);
    let formats = plan.formats;
    let blocks = lowered.blocks.iter();
    let blocks = blocks.map(|block| schedule::block(&context, formats, block, freedom(block.origin)));
    let mut blocks = blocks.collect::<Result<Vec<Scheduled>, _>>()?;
    keep_setup_apart(&mut blocks);
    let assignment = match allocate(&context, &blocks, &lowered.labels)? {
        Ok(assignment) => assignment,
        Err(crowded) => return Ok(Attempt::Crowded(crowded)),
    };
    let image = match layout(&context, formats, &blocks, &lowered.labels, &assignment)? {
        Ok(image) => image,
        Err(TooLong { bytes, by_block }) => {
            let mut loops: HashMap<usize, usize> = HashMap::new();
            for (block, size) in blocks.iter().zip(by_block) {
                if let Some(number) = block.pipelined {
                    // Where there is a plain form too, the kernel goes as well.
                    let plain = |other: &Scheduled| other.body_of == Some(number) && other.pipelined.is_none();
                    let saved = if block.body_of.is_none() || blocks.iter().any(plain) { size } else { 0 };
                    *loops.entry(number).or_default() += saved;
                }
            }
            return Ok(Attempt::TooLong { bytes, loops });
        }
    };
    if let Some(stages) = shown {
        stages.schedule = stages::schedule(builder, &blocks, lowered);
        stages.registers = stages::registers(&context, &assignment);
    }
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
    let overlapped = blocks.iter().zip(&image.blocks).filter_map(|(block, start)| Some((*start, block.pipelined?)));
    let program = Box::new(CoreProgram { code, entry: 0, data, loops, isa: builder.isa() });
    Ok(Attempt::Made { program, overlapped: overlapped.collect() })
}

/// What the checker rejects in a program.
fn mistakes(program: &CoreProgram) -> Vec<Finding> {
    let report = check(&Program { entries: vec![program.entry], ..Program::new(program.isa, &program.code) });
    // Unused results have been left out, so a value that no read gets is one that a read has missed.
    let is_mistake = |finding: &Finding| finding.problem.severity() != Severity::Note || is_never_seen(finding);
    report.findings.into_iter().filter(is_mistake).collect()
}

fn is_never_seen(finding: &Finding) -> bool {
    matches!(finding.problem, Problem::NeverSeen { .. })
}

/// Takes a longer interval for overlapped loops with values that no read gets. What the last iteration leaves for a next one is such
/// a value: where a schedule is turned, it may be on its way behind the loop, which looks like a read that has missed it. False
/// if there is anything else.
fn slow_down(plan: &mut Plan<'_>, lowered: &Lowered, mistakes: &[Finding], overlapped: &[(u32, usize)]) -> bool {
    let numbers: Option<HashSet<usize>> = mistakes
        .iter()
        .map(|finding| {
            let before = overlapped.iter().rfind(|(start, _)| *start <= finding.address)?;
            is_never_seen(finding).then_some(before.1)
        })
        .collect();
    let slower = numbers.into_iter().flatten().map(|number| {
        let interval = lowered.loops[number].found.modulo.as_ref().map(|modulo| modulo.interval);
        let loop_plan = plan.loops.entry(number).or_insert(plan.default);
        if let Some(interval) = interval.filter(|_| !loop_plan.plain) {
            loop_plan.interval = interval + 1;
            return true;
        }
        false
    });
    slower.fold(false, |any, one| any | one)
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
