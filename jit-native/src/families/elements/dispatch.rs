//! From steps and a walk to an artifact.

use super::format::Format;
use super::functions::Repertoire;
use super::program::{self, MOST_STEPS, STRIDE_BYTES};
use super::step::Step;
use super::walk::{BUFFER_WORDS, Loop, RING_WORDS, Walk};
use crate::array::{ArrayError, Dimension, Elements, ElementsColumn, Flow, Memo, Region, TileOrder};
use crate::codegen::{LoopForm, LoopReport};
use crate::kit::cost::{self, Planned};
use crate::kit::{NativeError, isa_for};
use aie_hal::format::extent::Traffic;
use aie_hal::{Arch, KernelArtifact};
use aie_isa::InstructionSet;
use aie_ops::Node;
use std::sync::Arc;

/// Phases beyond which a node is rejected: its instruction stream would have megabytes.
const MOST_PHASES: usize = 512;

/// What one kernel does.
#[derive(Clone, Debug)]
pub struct Work {
    /// For messages.
    pub family: &'static str,
    /// The program.
    pub repertoire: Repertoire,
    /// What is done with each tile of the first operand.
    pub steps: Vec<Step>,
    /// What is done with each tile of the second operand before.
    pub each_b: Vec<Step>,
    /// The walk, or several one after the other.
    pub walks: Vec<Walk>,
    /// Whether each walk is what one column does in one phase, the first column the first one.
    pub dealt: bool,
    /// Positions of the operands among the arguments of the kernel; the result is behind the sources.
    pub a: u16,
    /// The second operand, if there is one.
    pub b: Option<u16>,
    /// The parts of a tile of the second operand and how far they are apart, if those are not the walk's runs.
    pub b_parts: Option<(u64, u64)>,
    /// How elements of the operands and the result lie in memory.
    pub formats: [Format; 3],
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
    /// What that tile is: words of an argument.
    pub argument: u16,
    /// The first of them.
    pub start: u64,
    /// How many of them; none for no such tile.
    pub words: u64,
}

/// An array, and what is known of the loops of its program.
#[derive(Debug)]
pub(in crate::families) struct Machine {
    pub elements: Elements,
    pub loops: Vec<LoopReport>,
}

/// Arrays by the functions that their cores have.
static MACHINES: Memo<Repertoire, Machine> = Memo::new();

/// The array of a generation with a program; made once.
fn machine(family: &'static str, repertoire: Repertoire, arch: &Arch) -> Result<Arc<Machine>, NativeError> {
    let isa = isa_for(family, &InstructionSet::ALL, arch)?;
    let make = || {
        let program = program::program(isa, repertoire, LoopForm::of(arch)).map_err(|error| error.to_string())?;
        let data: Vec<(u32, Vec<u8>)> =
            program.data.iter().map(|section| (section.offset, section.bytes.clone())).collect();
        let columns = u8::try_from(arch.array.columns).unwrap_or(u8::MAX);
        let elements = Elements::new(arch, columns, &program.code, &data);
        elements.map(|elements| Machine { elements, loops: program.loops }).map_err(|error| error.to_string())
    };
    MACHINES.get(arch, repertoire, make).map_err(|reason| NativeError::Failed { family, reason })
}

/// The kernel of `node` that does these works, one after the other, on as many columns as make that the shortest: each costs operations.
///
/// # Errors
/// [`NativeError::Unsupported`] when it takes more steps, phases or memory than there are.
pub fn artifact(works: &[Work], node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let Some(Work { family, repertoire, .. }) = works.first() else {
        return Err(NativeError::NoFamily { op: node.op.clone() });
    };
    // What is dealt belongs to columns.
    let is_dealt = works.iter().any(|work| work.dealt);
    let columns = arch.array.columns;
    let widths = cost::powers(columns).filter(|width| *width == columns || !is_dealt);
    let machine = machine(family, *repertoire, arch)?;
    cheapest(&machine, widths.map(|width| (width, works)), node, arch)
}

/// The kernel of `node` in the way that takes the least time: each is works, one after the other, on so many columns. All are of one family
/// and repertoire, that of the machine.
///
/// # Errors
/// As [`artifact`], when there is no way, or none of them is possible.
pub(in crate::families) fn cheapest<'a>(
    machine: &Machine,
    ways: impl Iterator<Item = (usize, &'a [Work])>,
    node: &Node,
    arch: &Arch,
) -> Result<KernelArtifact, NativeError> {
    let mut ways = ways.peekable();
    let Some(Work { family, .. }) = ways.peek().and_then(|(_, works)| works.first()) else {
        return Err(NativeError::NoFamily { op: node.op.clone() });
    };
    let result = node.inputs().count() as u16;
    let stream = cost::cheapest(ways, &arch.cost, |(width, works)| plan(works, machine, width, result));
    let unsupported = |reason| NativeError::Unsupported { family, op: node.op.clone(), reason };
    let stream = stream.map_err(unsupported)?;
    Ok(machine.elements.configured().artifact(format!("native-{}", node.op), stream)?)
}

/// The stream on the first columns.
fn plan(works: &[Work], machine: &Machine, columns: usize, result: u16) -> Result<Planned, String> {
    let mut phases: Vec<(&Work, Vec<Walk>)> = Vec::new();
    for work in works {
        work.check()?;
        phases.extend(work.boxes(columns).chunks(columns).map(|boxes| (work, boxes.to_vec())));
    }
    if phases.len() > MOST_PHASES {
        let count = phases.len();
        return Err(format!("{count} phases of at most 1024 tiles a column; at most {MOST_PHASES}"));
    }
    let text = |error: ArrayError| error.to_string();
    let mut dispatch = machine.elements.configured().dispatch();
    let (mut cycles, mut bytes) = (0, 0);
    for (work, boxes) in &phases {
        for (column, walk) in (0..).zip(boxes) {
            for (offset, words) in work.preparation.iter().flat_map(|preparation| &preparation.writes) {
                let core = machine.elements.core(column).map_err(text)?.tile;
                dispatch.write(core, *offset, words).map_err(text)?;
            }
            machine.elements.add(&mut dispatch, column, &work.share(walk, result)?).map_err(text)?;
        }
        dispatch.end_phase().map_err(text)?;
        let taken: Vec<Taken> = boxes.iter().map(|walk| work.taken(walk, &machine.loops)).collect();
        cycles += taken.iter().map(|taken| taken.cycles).max().unwrap_or(0);
        bytes += taken.iter().map(|taken| 4 * taken.words).sum::<u64>();
    }
    let stream = dispatch.finish().map_err(text)?;
    Ok(Planned { stream, cycles, traffic: Traffic { bytes, pieces: 0 } })
}

/// What a column takes in a phase.
struct Taken {
    cycles: u64,
    /// Words of the operands.
    words: u64,
}

impl Work {
    /// Nothing yet, on f32.
    #[must_use]
    pub fn new(family: &'static str, repertoire: Repertoire) -> Self {
        Self {
            family,
            repertoire,
            steps: Vec::new(),
            each_b: Vec::new(),
            walks: Vec::new(),
            dealt: false,
            a: 0,
            b: None,
            b_parts: None,
            formats: [Format::F32; 3],
            preparation: None,
        }
    }

    /// The kernel of `node` that does this work; see [`artifact`].
    ///
    /// # Errors
    /// As [`artifact`].
    pub fn artifact(&self, node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
        artifact(std::slice::from_ref(self), node, arch)
    }

    /// Whether a core has room for the steps and a tile of it. An error is why it has not.
    fn check(&self) -> Result<(), String> {
        let prepared = self.preparation.as_ref().map_or(0, |preparation| preparation.steps.len());
        let steps = prepared + self.each_b.len() + self.steps.len();
        if steps > MOST_STEPS as usize {
            return Err(format!("{steps} steps, at most {MOST_STEPS}"));
        }
        let long = self.walks.iter().find(|walk| walk.elements() > RING_WORDS);
        long.map_or(Ok(()), |walk| Err(format!("rows of {} elements; a core holds {RING_WORDS}", walk.elements())))
    }

    /// What columns do in phases: as many boxes as columns at a time.
    fn boxes(&self, columns: usize) -> Vec<Walk> {
        if self.dealt {
            return self.walks.clone();
        }
        let mut boxes: Vec<Walk> = Vec::new();
        for walk in &self.walks {
            boxes.extend(walk.clone().boxes(columns as u64));
        }
        boxes
    }

    /// What a column takes, about: while a tile is computed the next ones come, a word a cycle on the channel of each operand. Through chains one
    /// comes after the other, and then the result leaves.
    fn taken(&self, walk: &Walk, loops: &[LoopReport]) -> Taken {
        let outer = match self.b {
            Some(_) => walk.by_reuse().1.iter().map(|around| around.size).product::<u64>(),
            None => 0,
        };
        let steps = |steps: &[Step], elements: u64| -> u64 {
            steps.iter().map(|step| step.cycles(elements.div_ceil(16) as u32, loops)).sum()
        };
        let prepared = self.preparation.as_ref().map_or(0, |first| steps(&first.steps, first.words));
        let of_b = outer * steps(&self.each_b, walk.b_elements());
        let (a, b) = (walk.tiles() * walk.elements(), outer * walk.b_elements());
        let computing = prepared + of_b + walk.tiles() * steps(&self.steps, walk.elements());
        if self.repertoire.is_chained() {
            return Taken { cycles: computing + 2 * a + b, words: a + b };
        }
        // The first tile before, the last result behind.
        Taken { cycles: computing.max(a).max(b) + 2 * walk.elements(), words: a + b }
    }

    /// What a column does. An error is why it cannot.
    fn share(&self, walk: &Walk, result: u16) -> Result<ElementsColumn, String> {
        let (inner, outer) = walk.by_reuse();
        let has_b = self.b.is_some();
        let preparation = self.preparation.as_ref().filter(|preparation| preparation.words > 0);
        let first_words = preparation.map_or(0, |preparation| preparation.words);
        let prepared: &[Step] = preparation.map_or(&[], |preparation| &preparation.steps);
        let count = |loops: &[Loop]| loops.iter().map(|l| l.size).product::<u64>();
        let tiles = walk.tiles() as u32;
        let all: Vec<Loop> = inner.iter().chain(&outer).copied().collect();
        let [a_format, b_format, result_format] = self.formats;
        let [a_start, b_start, result_start] = walk.start;
        let strides = |loops: &[Loop], of: fn(&Loop) -> u64| -> Vec<(u64, u64)> {
            loops.iter().map(|l| (l.size, of(l))).collect()
        };
        let group = walk.group;
        let runs = (walk.run, group.size, group.a);
        let run = Runs { argument: self.a, format: a_format, start: a_start, runs };
        let a = run.flow(strides(&all, |l| l.a))?;
        let runs = (walk.run, group.size, group.result);
        let run = Runs { argument: result, format: result_format, start: result_start, runs };
        let to = run.flow(strides(&all, |l| l.result))?;
        let mut b_first = 0;
        let b = match self.b {
            None => None,
            Some(argument) => {
                let (parts, apart) = self.b_parts.unwrap_or((if group.b == 0 { 1 } else { group.size }, group.b));
                let runs = (walk.b_run, parts, apart);
                let run = Runs { argument, format: b_format, start: b_start, runs };
                let mut flow = run.flow(strides(&outer, |l| l.b))?;
                flow.cut = cut(walk.b_elements().max(first_words));
                if let Some(Preparation { argument, start, words, .. }) = preparation {
                    let run = Runs { argument: *argument, format: Format::F32, start: *start, runs: (*words, 1, 0) };
                    let first = run.flow(Vec::new())?;
                    b_first = first.tiles.iter().map(|(_, count)| *count).sum();
                    flow.tiles = [first.tiles, flow.tiles].concat();
                    flow.regions = [first.regions, flow.regions].concat();
                }
                Some(flow)
            }
        };
        let (mut outer, inner) = if has_b { (count(&outer), count(&inner)) } else { (1, tiles.into()) };
        outer += u64::from(preparation.is_some());
        let lists = [
            (prepared, first_words),
            (self.each_b.as_slice(), walk.b_elements()),
            (self.steps.as_slice(), walk.elements()),
        ];
        let sizes = [walk.elements(), walk.b_elements(), walk.elements(), first_words];
        let counts = [outer as u32, inner as u32, has_b.into()];
        let parameters = parameters(self.repertoire, counts, sizes, lists)?;
        let order = TileOrder { b_first, a_for_each_b: inner as u32 };
        Ok(ElementsColumn { parameters, a: Some(a), b, result: to, order })
    }
}

/// The parameters of a core: how often the second operand changes, tiles of the first one for each of it, and whether there is a second
/// one; words of the tiles of both, of the result and of the first tile of the second operand, if that is another; the steps with the first tile of the second operand, with each other one and with
/// each of the first, and the elements that are all of such a tile.
///
/// # Errors
/// The function that the program does not have.
pub(in crate::families) fn parameters(
    repertoire: Repertoire,
    [outer, inner, has_b]: [u32; 3],
    sizes @ [a, b, result, first]: [u64; 4],
    lists: [(&[Step], u64); 3],
) -> Result<Vec<u32>, String> {
    let places = if repertoire.is_chained() {
        let turn = u64::from(Elements::TURN_WORDS);
        let turns = sizes.into_iter().rev().fold(0, |turns, words| turns << 8 | words.div_ceil(turn) as u32);
        let behind = result.next_multiple_of(turn) - result;
        vec![turns, u32::MAX >> behind]
    } else {
        let strides = [a, b.max(first), result].into_iter().rev().fold(0, |strides, run| {
            let (stride, depth) = cut(run);
            strides << 8 | if depth > 1 { stride / STRIDE_BYTES } else { 0 }
        });
        vec![strides]
    };
    let [prepared, each_b, steps] = lists.map(|(steps, _)| steps.len() as u32);
    let (mut encoded, mut bytes) = (Vec::new(), [0; 3]);
    for ((steps, elements), bytes) in lists.into_iter().zip(&mut bytes) {
        let before = encoded.len();
        for step in steps {
            let number = repertoire.number(step.function());
            let number = number.ok_or_else(|| format!("the program has no {:?}", step.function()))?;
            encoded.extend(step.encode(number, elements.div_ceil(16) as u32));
        }
        *bytes = 4 * (encoded.len() - before) as u32;
    }
    let counts = steps | has_b << 8 | prepared << 16 | each_b << 24;
    let header = [outer | inner << 16, counts, bytes[0] | bytes[1] << 16];
    Ok([&header[..], &places, &encoded].concat())
}

/// Runs of elements of an argument, some of which are a tile.
struct Runs {
    argument: u16,
    format: Format,
    /// The first element.
    start: u64,
    /// The elements of a run, the runs of a tile, and how far they are apart.
    runs: (u64, u64, u64),
}

impl Runs {
    /// The tiles of loops of a number of iterations and a step in elements. An error if the DMA cannot move them.
    fn flow(&self, loops: Vec<(u64, u64)>) -> Result<Flow, String> {
        let Self { argument, format, start, runs: (elements, group, apart) } = *self;
        let words = |elements: u64, what: &str| {
            let error = || {
                format!(
                    "argument {argument} is {}, and {what} {elements} elements, not a whole number of words",
                    format.name()
                )
            };
            format.words(elements).ok_or_else(error)
        };
        let run = words(elements, "a run of it is")?;
        let count = loops.iter().map(|(size, _)| size).product::<u64>();
        let mut dimensions = vec![Dimension::new(run, 1)];
        for (size, step) in std::iter::once((group, apart)).chain(loops).filter(|(size, _)| *size > 1) {
            dimensions.push(Dimension::new(size, words(step, "its runs are apart by")?));
        }
        let offset = 4 * words(start, "a part of it begins after")?;
        let regions = vec![Region { argument, offset, dimensions }];
        Ok(Flow { cut: cut(elements * group), tiles: vec![(run * group, count as u32)], regions })
    }
}

/// Buffers for a run: whole pairs of vectors, two buffers if they fit.
pub(in crate::families) fn cut(run: u64) -> (u32, u8) {
    let bytes = 4 * run.max(1).next_multiple_of(32) as u32;
    (bytes, if run <= BUFFER_WORDS { 2 } else { 1 })
}
