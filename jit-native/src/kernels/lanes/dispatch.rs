//! From steps and a walk to an artifact.

use super::program::{self, HEADER_WORDS, MOST_STEPS};
use super::step::Step;
use super::walk::{BUFFER_WORDS, Loop, RING_WORDS, Walk};
use crate::array::{Dimension, Flow, Lane, Lanes, Region};
use crate::kernels::NativeError;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;
use aie_ops::name::kernel_name;
use aie_ops::table;
use std::sync::{Arc, Mutex, PoisonError};

/// The generation that the program is for, by its number in instruction streams.
const AIE2: u8 = 3;
/// Phases beyond which a node is rejected: its instruction stream would have megabytes.
const MOST_PHASES: usize = 512;

/// What one kernel does.
#[derive(Clone, Debug)]
pub struct Work {
    /// For messages.
    pub family: &'static str,
    /// What is done with each tile.
    pub steps: Vec<Step>,
    /// The walk, or several one after the other.
    pub walks: Vec<Walk>,
    /// Positions of the operands among the arguments of the kernel; the result is behind the sources.
    pub a: u16,
    /// The second operand, if there is one.
    pub b: Option<u16>,
    /// What comes before the tiles, if anything.
    pub preparation: Option<Preparation>,
}

/// What a core needs besides its parameters before it begins.
#[derive(Clone, Debug, Default)]
pub struct Preparation {
    /// Words of its data memory, by offset.
    pub writes: Vec<(u32, Vec<u32>)>,
    /// Steps with a first tile of the second operand.
    pub steps: Vec<Step>,
    /// What that tile is: an argument's first words.
    pub argument: u16,
    /// How many of them; none for no such tile.
    pub words: u64,
}

/// Lanes that have been configured, by what they were made for.
static CONFIGURED: Mutex<Vec<(Arch, Arc<Lanes>)>> = Mutex::new(Vec::new());

/// The lanes of a generation with their program; made once.
fn lanes(family: &'static str, arch: &Arch) -> Result<Arc<Lanes>, NativeError> {
    if arch.dev_gen != AIE2 {
        return Err(NativeError::Generation { family, arch: arch.name.clone() });
    }
    let mut configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, lanes)) = configured.iter().find(|(known, _)| known == arch) {
        return Ok(lanes.clone());
    }
    let failed = |reason: String| NativeError::Failed { family, reason };
    let program = program::program().map_err(|error| failed(error.to_string()))?;
    let data: Vec<(u32, Vec<u8>)> =
        program.data.iter().map(|section| (section.offset, section.bytes.clone())).collect();
    let columns = u8::try_from(arch.array.columns).unwrap_or(u8::MAX);
    let lanes = Lanes::new(arch, columns, &program.code, &data).map_err(|error| failed(error.to_string()))?;
    let lanes = Arc::new(lanes);
    configured.push((arch.clone(), lanes.clone()));
    Ok(lanes)
}

/// The kernel of `node` that does these works, one after the other.
///
/// # Errors
/// [`NativeError::Unsupported`] when it takes more steps, phases or memory than there are.
pub fn artifact(works: &[Work], node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let Some(Work { family, .. }) = works.first() else { return Err(NativeError::NoFamily { op: node.op.clone() }) };
    let unsupported = |reason| NativeError::Unsupported { family, op: node.op.clone(), reason };
    let failed = |reason: String| NativeError::Failed { family, reason };
    let mut phases: Vec<(&Work, Vec<Walk>)> = Vec::new();
    let lanes = lanes(family, arch)?;
    let columns = usize::from(lanes.columns());
    for work in works {
        let steps = work.steps.len() + work.preparation.as_ref().map_or(0, |preparation| preparation.steps.len());
        if steps > MOST_STEPS as usize {
            return Err(unsupported(format!("{steps} steps, at most {MOST_STEPS}")));
        }
        if let Some(walk) = work.walks.iter().find(|walk| walk.run > RING_WORDS) {
            return Err(unsupported(format!("rows of {} elements; a core holds {RING_WORDS}", walk.run)));
        }
        phases.extend(work.boxes(columns).chunks(columns).map(|boxes| (work, boxes.to_vec())));
    }
    if phases.len() > MOST_PHASES {
        let count = phases.len();
        return Err(unsupported(format!("{count} phases of at most 1024 tiles a column; at most {MOST_PHASES}")));
    }
    let result = node.inputs().count() as u16;
    let mut dispatch = lanes.configured().dispatch();
    for (work, boxes) in &phases {
        for (column, walk) in (0..).zip(boxes) {
            for (offset, words) in work.preparation.iter().flat_map(|preparation| &preparation.writes) {
                let written = dispatch.write(Lanes::core(column), *offset, words);
                written.map_err(|error| failed(error.to_string()))?;
            }
            let added = lanes.add(&mut dispatch, column, &work.lane(walk, result));
            added.map_err(|error| unsupported(error.to_string()))?;
        }
        dispatch.end_phase().map_err(|error| unsupported(error.to_string()))?;
    }
    let instructions = dispatch.finish().map_err(|error| failed(error.to_string()))?;
    let op = table::lookup(&node.op).ok_or_else(|| NativeError::NoFamily { op: node.op.clone() })?;
    let (name, pdi) = (kernel_name(op, node), lanes.configured().pdi());
    Ok(KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, pdi, instructions)?)
}

impl Work {
    /// The kernel of `node` that does this work; see [`artifact`].
    ///
    /// # Errors
    /// As [`artifact`].
    pub fn artifact(&self, node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
        artifact(std::slice::from_ref(self), node, arch)
    }

    /// What columns do in phases: as many boxes as columns at a time.
    fn boxes(&self, columns: usize) -> Vec<Walk> {
        let mut boxes: Vec<Walk> = Vec::new();
        for walk in &self.walks {
            boxes.extend(walk.clone().boxes(columns as u64));
        }
        boxes
    }

    fn lane(&self, walk: &Walk, result: u16) -> Lane {
        let (inner, outer) = walk.by_reuse();
        let has_b = self.b.is_some();
        let preparation = self.preparation.as_ref().filter(|preparation| preparation.words > 0);
        let first_words = preparation.map_or(0, |preparation| preparation.words);
        let prepared: &[Step] = preparation.map_or(&[], |preparation| &preparation.steps);
        let count = |loops: &[Loop]| loops.iter().map(|l| l.size).product::<u64>();
        let tiles = walk.tiles() as u32;
        let region = |argument: u16, start: u64, run: u64, loops: Vec<(u64, u64)>| {
            let mut dimensions = vec![Dimension::new(run, 1)];
            dimensions.extend(loops.into_iter().map(|(size, step)| Dimension::new(size, step)));
            Region { argument, offset: 4 * start, dimensions }
        };
        let all: Vec<Loop> = inner.iter().chain(&outer).copied().collect();
        let flow = |run: u64, count: u32, region: Region| Flow {
            cut: cut(run),
            tiles: tiles_of(run, count),
            regions: vec![region],
        };
        let [a_start, b_start, result_start] = walk.start;
        let a = region(self.a, a_start, walk.run, all.iter().map(|l| (l.size, l.a)).collect());
        let to = region(result, result_start, walk.run, all.iter().map(|l| (l.size, l.result)).collect());
        let b = self.b.map(|argument| {
            let tiles = region(argument, b_start, walk.b_run, outer.iter().map(|l| (l.size, l.b)).collect());
            let mut flow = flow(walk.b_run.max(first_words), count(&outer) as u32, tiles);
            flow.tiles = tiles_of(walk.b_run, count(&outer) as u32);
            if let Some(preparation) = preparation {
                flow.tiles.insert(0, (preparation.words, 1));
                flow.regions.insert(0, region(preparation.argument, 0, preparation.words, Vec::new()));
            }
            flow
        });
        let (mut outer, inner) = if has_b { (count(&outer), count(&inner)) } else { (1, tiles.into()) };
        outer += u64::from(preparation.is_some());
        let sum = |place: crate::array::Place, run: u64| {
            let (stride, depth) = cut(run);
            2 * place.address + if depth > 1 { stride } else { 0 }
        };
        let mut parameters = vec![
            outer as u32,
            inner as u32,
            self.steps.len() as u32,
            sum(Lanes::A, walk.run),
            sum(Lanes::B, walk.b_run.max(first_words)),
            sum(Lanes::RESULT, walk.run),
            has_b.into(),
            prepared.len() as u32,
        ];
        parameters.resize(HEADER_WORDS as usize, 0);
        let vectors = walk.run.div_ceil(16) as u32;
        for step in prepared.iter().chain(&self.steps) {
            parameters.extend(step.encode(vectors));
        }
        Lane { parameters, a: Some(flow(walk.run, tiles, a)), b, result: flow(walk.run, tiles, to) }
    }
}

/// Buffers for a run: whole pairs of vectors, two buffers if they fit.
fn cut(run: u64) -> (u32, u8) {
    let bytes = 4 * run.max(1).next_multiple_of(32) as u32;
    (bytes, if run <= BUFFER_WORDS { 2 } else { 1 })
}

fn tiles_of(run: u64, count: u32) -> Vec<(u64, u32)> {
    vec![(run, count)]
}
