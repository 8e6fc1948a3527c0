//! The product of tokens with the weights of the experts chosen for them, on the CPU.
//!
//! Columns are grouped by expert, so that each row of weights is read and decoded once for all of them, and weights of experts that
//! no token chose are not read at all. Work is divided by rows of weights: with one token the few experts in use still keep all
//! cores busy.

use super::super::cpu::dot::ROWS;
use super::super::cpu::weights::{WeightRows, columns};
use super::super::prelude::*;
use super::{MUL_MAT_ID, chosen};
use rayon::prelude::*;

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
                expert_of.push(chosen(MUL_MAT_ID, ids, place, experts)?);
            }
        }
        let Some(pieces) = disjoint_rows(&self.out, output) else {
            let reason = "rows of the result overlap".to_owned();
            return Err(HostFunctionError::Arguments { kernel: MUL_MAT_ID.to_owned(), reason });
        };
        if length == 0 {
            // Sums of nothing.
            pieces.into_iter().for_each(|(_, column)| column.fill(0));
            return Ok(());
        }
        let mut scratch = Vec::new();
        let [_, per_token, x_tokens, _] = self.x.ne;
        let offsets = (0..x_tokens * per_token).map(|i| i % per_token * self.x.nb[1] + i / per_token * self.x.nb[2]);
        let columns = columns(&self.x, x, offsets, &mut scratch);

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

    fn task(&self, task: &mut Task, weights: &[u8]) -> Result<(), HostFunctionError> {
        let bytes = &weights[Row([task.first_row, task.expert, 0]).offset(&self.weights)..];
        let rows = WeightRows { kernel: MUL_MAT_ID, tensor: &self.weights, bytes, count: task.rows };
        rows.multiply(task.columns, &mut task.out)
    }
}
