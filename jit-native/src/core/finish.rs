//! From what an author has written to machine code.

use super::allocate::{Crowded, allocate};
use super::builder::CoreBuilder;
use super::error::CoreError;
use super::layout::{keep_setup_apart, layout};
use super::list::Freedom;
use super::lower::{Lowered, lower};
use super::program::{CoreProgram, LoopReport};
use super::reservation::Formats;
use super::schedule::{self, Scheduled};
use super::timing::Context;
use std::collections::HashMap;

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
        let program = self.open.pop().unwrap_or_default();
        let formats = Formats::new(self.isa());
        let least = FREEDOMS.len() - 1;
        // By block: an index into the freedoms.
        let mut freedoms: HashMap<usize, usize> = HashMap::new();
        let default = if scheduling == Scheduling::Naive { least } else { 0 };
        loop {
            let mut builder = self.clone();
            let lowered = lower(&mut builder, &program)?;
            let freedom = |block: usize| FREEDOMS[freedoms.get(&block).copied().unwrap_or(default)];
            let crowded = match attempt(&builder, &formats, &lowered, &freedom)? {
                Ok(program) => return Ok(program),
                Err(crowded) => crowded,
            };
            let mut changed = false;
            for block in crowded.blocks {
                let level = freedoms.entry(block).or_insert(default);
                changed |= *level < least;
                *level = least.min(*level + 1);
            }
            if !changed {
                return Err(crowded.error);
            }
        }
    }
}

fn attempt(
    builder: &CoreBuilder,
    formats: &Formats,
    lowered: &Lowered,
    freedom: &dyn Fn(usize) -> Freedom,
) -> Result<Result<CoreProgram, Crowded>, CoreError> {
    let rows = lowered.blocks.iter().flat_map(|block| block.ops.iter().flat_map(|op| &op.rows));
    let context = Context::new(builder.isa(), &builder.variables, rows);
    let blocks = lowered.blocks.iter().enumerate();
    let blocks = blocks.map(|(index, block)| schedule::block(&context, formats, block, freedom(index)));
    let mut blocks = blocks.collect::<Result<Vec<Scheduled>, _>>()?;
    keep_setup_apart(&mut blocks);
    let assignment = match allocate(&context, &blocks, &lowered.labels) {
        Ok(assignment) => assignment,
        Err(crowded) if crowded.blocks.is_empty() => return Err(crowded.error),
        Err(crowded) => return Ok(Err(crowded)),
    };
    let image = layout(&context, formats, &blocks, &lowered.labels, &assignment)?;
    let loops = blocks.iter().zip(&image.blocks).filter_map(|(block, start)| {
        let info = &lowered.loops[block.body_of?];
        Some(LoopReport {
            name: info.name.clone(),
            pipelined: false,
            interval: block.bundles.len() as u32,
            unrolled: 1,
            resource_bound: 0,
            recurrence_bound: 0,
            stages: 1,
            macs: 0,
            start: *start,
        })
    });
    let (loops, code, data) = (loops.collect(), image.code, builder.sections());
    Ok(Ok(CoreProgram { code, entry: 0, data, loops, isa: builder.isa() }))
}
