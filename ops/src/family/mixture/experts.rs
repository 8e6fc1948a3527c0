//! The product of tokens with the weights of the experts chosen for them, on the CPU.
//!
//! Columns are grouped by expert, so that each row of weights is read and decoded once for all of them, and weights of experts
//! nobody chose are not read at all. Work is dealt out by rows of weights: with one token the few experts in use still keep all
//! cores busy.

use super::super::cpu::block_dot::{BlockProducts, MANY_COLUMNS_OF_BLOCKS};
use super::super::cpu::dot::{COLUMNS, Element, Products, ROWS};
use super::super::cpu::element::{load, read};
use super::super::cpu::rows::{PARALLEL_WORK, Row, disjoint_rows, vectorised};
use super::{PRODUCT, chosen};
use crate::blocks;
use crate::tensor::{DataType, Tensor};
use aie_hal::HostFunctionError;
use rayon::prelude::*;

/// From this number of columns on, bf16 weights are turned into f32 before they are multiplied.
const MANY_COLUMNS: usize = 12;
/// Bytes of a block of rows as f32 that many columns pass: half of a second-level cache.
const BLOCK_BYTES: usize = 256 * 1024;
/// The same for a few columns: what has been decoded is still in the first-level cache when it is multiplied.
const SMALL_BLOCK_BYTES: usize = 32 * 1024;
/// Fewest rows of a task.
const TASK_ROWS: usize = 16;

/// The layouts of a product that passed the rules.
pub struct Experts {
    /// Elements of a row, rows, experts.
    pub weights: Tensor,
    /// Elements of a row, columns of a token (which repeat over its experts), tokens.
    pub x: Tensor,
    /// Experts of a token, tokens.
    pub ids: Tensor,
    /// Rows, experts of a token, tokens.
    pub out: Tensor,
}

/// Consecutive rows of one expert times all the columns it was chosen for.
struct Task<'c, 'o> {
    expert: usize,
    first_row: usize,
    rows: usize,
    columns: &'c [&'c [f32]],
    /// The piece of each column of the result.
    out: Vec<&'o mut [u8]>,
}

impl Experts {
    /// Computes all columns.
    ///
    /// # Errors
    /// [`HostFunctionError::Data`] when an id is out of range or a row cannot be decoded, [`HostFunctionError::Arguments`] when rows of
    /// the result overlap.
    pub fn run(&self, weights: &[u8], x: &[u8], ids: &[u8], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let ([length, rows, experts, _], [used, tokens, ..]) = (self.weights.ne, self.ids.ne);
        let mut expert_of = Vec::with_capacity(used * tokens);
        for token in 0..tokens {
            for slot in 0..used {
                let place = slot * self.ids.nb[0] + token * self.ids.nb[1];
                expert_of.push(chosen(PRODUCT, ids, place, experts)?);
            }
        }
        let Some(pieces) = disjoint_rows(&self.out, output) else {
            let reason = "rows of the result overlap".to_owned();
            return Err(HostFunctionError::Arguments { kernel: PRODUCT.to_owned(), reason });
        };
        if length == 0 {
            // Sums of nothing.
            pieces.into_iter().for_each(|(_, column)| column.fill(0));
            return Ok(());
        }
        let mut scratch = Vec::new();
        let columns = self.columns(x, &mut scratch);

        // Positions of an expert's columns among its own, and the group of each expert that is used.
        let mut group_of = vec![usize::MAX; experts];
        let mut groups: Vec<(usize, Vec<&[f32]>)> = Vec::new();
        let mut place = vec![(0, 0); expert_of.len()];
        for (i, expert) in expert_of.iter().enumerate() {
            if group_of[*expert] == usize::MAX {
                group_of[*expert] = groups.len();
                groups.push((*expert, Vec::new()));
            }
            let (group, members) = (group_of[*expert], &mut groups[group_of[*expert]].1);
            place[i] = (group, members.len());
            let (slot, token) = (i % used, i / used);
            members.push(columns[slot % self.x.ne[1] + token * self.x.ne[1]]);
        }

        let work = expert_of.len().saturating_mul(rows).saturating_mul(length) / 4;
        let threads = if work < PARALLEL_WORK { 1 } else { rayon::current_num_threads() };
        let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(groups.len()) };
        let block = rows.div_ceil(wanted).max(TASK_ROWS).next_multiple_of(ROWS);
        let blocks = rows.div_ceil(block);
        let mut tasks: Vec<Task> = Vec::with_capacity(groups.len() * blocks);
        for (expert, columns) in &groups {
            tasks.extend((0..blocks).map(|i| Task {
                expert: *expert,
                first_row: i * block,
                rows: block.min(rows - i * block),
                columns,
                out: columns.iter().map(|_| Default::default()).collect(),
            }));
        }
        for (Row([slot, token, _]), column) in pieces {
            let (group, member) = place[slot + token * used];
            for (i, piece) in column.chunks_mut(block * 4).enumerate() {
                tasks[group * blocks + i].out[member] = piece;
            }
        }
        let run = |task: &mut Task| self.task(task, weights);
        if threads == 1 { tasks.iter_mut().try_for_each(run) } else { tasks.par_iter_mut().try_for_each(run) }
    }

    /// The columns of source 1 as f32, token by token: where they lie if they are, else in `scratch`.
    fn columns<'a>(&self, bytes: &'a [u8], scratch: &'a mut Vec<f32>) -> Vec<&'a [f32]> {
        let [length, columns, tokens, _] = self.x.ne;
        let offsets = (0..tokens * columns).map(|i| i % columns * self.x.nb[1] + i / columns * self.x.nb[2]);
        if self.x.dtype == DataType::F32 && (length == 1 || self.x.nb[0] == 4) {
            let columns: Result<Vec<&[f32]>, _> =
                offsets.clone().map(|offset| bytemuck::try_cast_slice(&bytes[offset..][..length * 4])).collect();
            if let Ok(columns) = columns {
                return columns;
            }
        }
        scratch.reserve_exact(length * columns * tokens);
        let mut column = Vec::new();
        for offset in offsets {
            scratch.extend_from_slice(read(&self.x, bytes, offset, 0, length, &mut column));
        }
        scratch.chunks_exact(length).collect()
    }

    fn task(&self, task: &mut Task, weights: &[u8]) -> Result<(), HostFunctionError> {
        let (length, dtype) = (self.weights.ne[0], self.weights.dtype);
        let first = task.expert * self.weights.nb[2] + task.first_row * self.weights.nb[1];
        let row = |i: usize| &weights[first + i * self.weights.nb[1]..][..dtype.row_bytes(length)];
        let few = task.columns.len() < MANY_COLUMNS;
        if dtype == DataType::F32
            && let Some(rows) = in_place::<f32>(row, task.rows)
        {
            multiply(&rows, task.columns, &mut task.out, length);
            return Ok(());
        }
        if dtype == DataType::BF16
            && few
            && let Some(rows) = in_place::<u16>(row, task.rows)
        {
            multiply(&rows, task.columns, &mut task.out, length);
            return Ok(());
        }
        if dtype.is_quantised() && task.columns.len() < MANY_COLUMNS_OF_BLOCKS {
            let rows: Vec<&[u8]> = (0..task.rows).map(row).collect();
            let products = BlockProducts { rows: &rows, columns: task.columns, out: &mut task.out };
            if blocks::visit(dtype, products).is_some() {
                return Ok(());
            }
        }
        let bytes = if task.columns.len() <= COLUMNS { SMALL_BLOCK_BYTES } else { BLOCK_BYTES };
        let block = (bytes / (length * 4)).clamp(1, 64).next_multiple_of(ROWS).min(task.rows);
        let mut decoded = vec![0.0_f32; block * length];
        for first in (0..task.rows).step_by(block) {
            let count = block.min(task.rows - first);
            for (i, target) in decoded.chunks_exact_mut(length).take(count).enumerate() {
                let loaded = vectorised(
                    #[inline(always)]
                    || load(dtype, row(first + i), target),
                );
                if !loaded {
                    let reason = format!("a row of {length} elements of {dtype} has no whole blocks");
                    return Err(HostFunctionError::Data { kernel: PRODUCT.to_owned(), reason });
                }
            }
            let rows: Vec<&[f32]> = decoded.chunks_exact(length).take(count).collect();
            let mut out: Vec<&mut [u8]> =
                task.out.iter_mut().map(|out| &mut out[first * 4..(first + count) * 4]).collect();
            multiply(&rows, task.columns, &mut out, length);
        }
        Ok(())
    }
}

/// `count` rows as typed slices, or `None` when they are not aligned.
fn in_place<'a, E: bytemuck::AnyBitPattern>(row: impl Fn(usize) -> &'a [u8], count: usize) -> Option<Vec<&'a [E]>> {
    (0..count).map(|i| bytemuck::try_cast_slice(row(i)).ok()).collect()
}

/// All dot products, in blocks of rows that stay in cache while all columns pass.
fn multiply<E: Element>(rows: &[&[E]], columns: &[&[f32]], out: &mut [&mut [u8]], length: usize) {
    let block = (BLOCK_BYTES / (length * size_of::<E>())).max(1).next_multiple_of(ROWS);
    for (i, rows) in rows.chunks(block).enumerate() {
        let first = i * block * 4;
        let mut out: Vec<&mut [u8]> = out.iter_mut().map(|out| &mut out[first..first + rows.len() * 4]).collect();
        pulp::Arch::new().dispatch(Products { rows, columns, out: &mut out });
    }
}
