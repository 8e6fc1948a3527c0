//! Rows by their numbers: the instruction stream is made when the indices are at hand.
//!
//! A row is a [`Movement`]; where rows begin on either side follows from the indices. Rows at equal distances become one more
//! dimension of a region, so that the rows of a prompt, which follow each other in a KV cache, are one region, and only
//! scattered ones are a descriptor each. The host looks at the indices alone, which are graph inputs in llama.cpp and so in
//! its memory; rows do not pass it.

use super::design::{finished, format_of, source, unsupported};
use super::movement::Movement;
use super::mover::Mover;
use crate::array::{Dimension, Dispatch, Pass};
use crate::kit::NativeError;
use aie_hal::{Arch, HostFunctionError, KernelArtifact, StreamMaker};
use aie_ops::{DataType, Node, Tensor};
use std::collections::HashSet;
use std::sync::Arc;

/// Most rows of a node.
const MOST_ROWS: usize = 1024;

/// A node's rows but for the indices.
#[derive(Debug)]
struct Rows {
    name: &'static str,
    mover: Arc<dyn Mover>,
    /// A row from the beginning of a source's row to that of a row of the result.
    row: Movement,
    format: Option<u32>,
    indices: Tensor,
    /// The side whose rows follow each other: the result of GET_ROWS, the source of SET_ROWS.
    dense: Side,
    /// The side whose rows are chosen.
    chosen: Side,
    scatters: bool,
    /// Positions of source 0, of the indices and of the result among the arguments.
    arguments: [usize; 3],
}

/// Where rows of a tensor begin.
#[derive(Clone, Copy, Debug)]
struct Side {
    ne: [usize; 4],
    /// Steps of the dimensions in words.
    steps: [u64; 4],
}

impl Side {
    fn of(what: &str, tensor: &Tensor) -> Result<Self, String> {
        match tensor.nb[1..].iter().zip(&tensor.ne[1..]).find(|(step, size)| **size > 1 && !step.is_multiple_of(4)) {
            Some((step, _)) => Err(format!("rows of {what} are {step} bytes apart, no whole words")),
            None => Ok(Self { ne: tensor.ne, steps: tensor.nb.map(|step| step as u64 / 4) }),
        }
    }

    fn at(&self, [row, second, third]: [usize; 3]) -> u64 {
        row as u64 * self.steps[1] + second as u64 * self.steps[2] + third as u64 * self.steps[3]
    }
}

/// The kernel of GET_ROWS or SET_ROWS whose words `mover` moves, all in one phase.
pub(in crate::families) fn build(
    node: &Node,
    arch: &Arch,
    mover: Arc<dyn Mover>,
) -> Result<KernelArtifact, NativeError> {
    let rejected = |why: String| unsupported(node, why);
    let (from, indices, to) = (source(node, 0)?, source(node, 1)?, &node.output);
    let scatters = node.op == "SET_ROWS";
    if !matches!(indices.dtype, DataType::I32 | DataType::I64) {
        return Err(rejected(format!("indices are {}; possible: i32, i64", indices.dtype)));
    }
    for (what, tensor) in [("source 0", from), ("the indices", indices), ("the result", to)] {
        tensor.validate().map_err(|error| rejected(format!("{what}: {error}")))?;
    }
    let count = if scatters { from.rows() } else { to.rows() };
    if count == 0 || count > MOST_ROWS {
        return Err(rejected(format!("{count} rows; possible: 1 to {MOST_ROWS}")));
    }
    let alone = |tensor: &Tensor| Tensor { ne: [tensor.ne[0], 1, 1, 1], ..*tensor };
    let row = Movement::between(&alone(from), &alone(to)).map_err(rejected)?;
    let format = format_of(node, &row, arch)?;
    let (from_side, to_side) =
        (Side::of("source 0", from).map_err(rejected)?, Side::of("the result", to).map_err(rejected)?);
    let (dense, chosen) = if scatters { (from_side, to_side) } else { (to_side, from_side) };
    // A row of indices may serve several rows of outer dimensions.
    let serves = |outer: usize, extent: usize| extent > 0 && outer.is_multiple_of(extent);
    if indices.ne[0] != dense.ne[1] || !serves(dense.ne[2], indices.ne[1]) || !serves(dense.ne[3], indices.ne[2]) {
        return Err(rejected(format!("indices with extents {:?} for rows with {:?}", indices.ne, dense.ne)));
    }
    if dense.ne[2] > chosen.ne[2] || dense.ne[3] > chosen.ne[3] || chosen.ne[1] == 0 {
        return Err(rejected(format!("rows with extents {:?} among rows with {:?}", dense.ne, chosen.ne)));
    }
    let rows = Rows {
        name: if scatters { "SET_ROWS" } else { "GET_ROWS" },
        mover: mover.clone(),
        row,
        format,
        indices: *indices,
        dense,
        chosen,
        scatters,
        arguments: [0, 1, node.inputs().count()],
    };
    let most = mover.most_words(format);
    let words = rows.row.words().saturating_mul(count as u64);
    // Indices that repeat are left to one column.
    if words > most {
        return Err(rejected(format!("{count} rows of {} words; at most {most} words", rows.row.words())));
    }
    // The worst case has to be possible, since streams are made when nothing can be done any more: rows without order.
    let scattered: Vec<usize> = (0..count).map(|row| (row * row / 2 + row) % chosen.ne[1]).collect();
    let worst = rows.dispatch(&scattered).map_err(rejected)?;
    worst.finish().map_err(|error| rejected(error.to_string()))?;
    let first: Vec<usize> = (0..count).map(|row| row % chosen.ne[1]).collect();
    let example = rows.dispatch(&first).map_err(rejected)?;
    let artifact = finished(node, mover.configured(), example)?;
    Ok(artifact.with_stream_maker(Arc::new(rows)))
}

impl Rows {
    /// The rows that the indices choose, in the order of the dense side.
    fn choose(&self, bytes: &[u8]) -> Result<Vec<usize>, String> {
        let tensor = &self.indices;
        if bytes.len() < tensor.span_bytes() {
            return Err(format!("indices of {} bytes, expected {}", bytes.len(), tensor.span_bytes()));
        }
        self.each_row()
            .map(|[row, second, third]| {
                let wrapped = [row, second % tensor.ne[1], third % tensor.ne[2]];
                let at: usize = wrapped.iter().zip(tensor.nb).map(|(index, step)| index * step).sum();
                let index = match tensor.dtype {
                    DataType::I32 => bytes[at..].first_chunk().map(|word| i64::from(i32::from_le_bytes(*word))),
                    _ => bytes[at..].first_chunk().map(|word| i64::from_le_bytes(*word)),
                };
                let limit = self.chosen.ne[1];
                let chosen = index.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < limit);
                chosen.ok_or_else(|| format!("row {} of {limit}", index.unwrap_or(-1)))
            })
            .collect()
    }

    /// Rows of the dense side, in order.
    fn each_row(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [_, first, second, third] = self.dense.ne;
        (0..third).flat_map(move |c| (0..second).flat_map(move |b| (0..first).map(move |a| [a, b, c])))
    }

    /// The dispatch that moves these rows.
    fn dispatch(&self, chosen: &[usize]) -> Result<Dispatch<'_>, String> {
        let places = self.each_row().zip(chosen).map(|(place, row)| {
            let (dense, other) = (self.dense.at(place), self.chosen.at([*row, place[1], place[2]]));
            if self.scatters { (dense, other) } else { (other, dense) }
        });
        let places: Vec<(u64, u64)> = places.collect();
        let mut written = HashSet::new();
        // Of two rows for one place the later stays, so they have to be written in their order.
        let ordered = !places.iter().all(|(_, to)| written.insert(*to));
        let words = self.row.words() * places.len() as u64;
        let columns = if ordered { 1 } else { self.mover.columns(words, self.format).min(places.len() as u64) };
        let mut work = Vec::new();
        for column in 0..columns as usize {
            let part = |column: usize| places.len() * column / columns as usize;
            let mine = &places[part(column)..part(column + 1)];
            let [from, _, to] = self.arguments.map(|argument| argument as u16);
            let starts = |side: fn(&(u64, u64)) -> u64| even(mine.iter().map(side));
            work.push(Pass {
                from: starts(|place| place.0).map(|(start, more)| self.row.source(from, start, more)).collect(),
                to: starts(|place| place.1).map(|(start, more)| self.row.result(to, start, more)).collect(),
            });
        }
        let mut dispatch = self.mover.configured().dispatch();
        self.mover.phase(&mut dispatch, &work, self.row.words(), self.format)?;
        Ok(dispatch)
    }
}

/// Numbers as runs at equal distances: the first one, and how many follow at which distance.
fn even(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, Option<Dimension>)> {
    let mut runs: Vec<(u64, Dimension)> = Vec::new();
    let mut last = 0;
    for number in numbers {
        let step = number.checked_sub(last);
        match (runs.last_mut(), step) {
            (Some((_, run)), Some(step)) if run.size == 1 => *run = Dimension::new(2, step),
            (Some((_, run)), Some(step)) if run.step == step => run.size += 1,
            _ => runs.push((number, Dimension::new(1, 0))),
        }
        last = number;
    }
    runs.into_iter().map(|(start, run)| (start, Some(run).filter(|run| run.size > 1)))
}

impl StreamMaker for Rows {
    fn reads(&self) -> &[usize] {
        &self.arguments[1..2]
    }

    fn make(&self, arguments: &[&[u8]]) -> Result<Vec<u8>, HostFunctionError> {
        let data = |reason: String| HostFunctionError::Data { kernel: self.name.to_owned(), reason };
        let indices = arguments.first().ok_or_else(|| data("no indices".into()))?;
        let chosen = self.choose(indices).map_err(data)?;
        let dispatch = self.dispatch(&chosen).map_err(data)?;
        dispatch.finish().map_err(|error| data(error.to_string()))
    }
}
