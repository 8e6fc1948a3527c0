//! The scan over the tokens of a sequence, on the CPU.
//!
//! Every row of the state has a course of its own, so rows are dealt out in blocks that stay in the first-level cache over all
//! tokens. A block may be a part of a head (Mamba-2) or many heads of one row (Mamba-1). Within a row the state is a vector.

use super::super::cpu::element::{load_one, read};
use super::super::cpu::exp::exp;
use super::super::cpu::kernel::out_of_range;
use super::super::cpu::rows::{PARALLEL_WORK, vectorised};
use super::SCAN;
use crate::tensor::{DataType, Tensor};
use aie_hal::KernelError;
use rayon::prelude::*;

/// Bytes of state in a block: what a first-level cache holds beside B and C.
const BLOCK_BYTES: usize = 24 * 1024;
/// Elements summed side by side.
const LANES: usize = 16;

/// The layouts of a scan that passed the rules.
pub struct Scan {
    /// Elements of a row, rows of a head, heads, states to choose from.
    pub state: Tensor,
    /// Rows, heads, tokens, sequences.
    pub x: Tensor,
    /// Heads, tokens, sequences.
    pub dt: Tensor,
    /// 1 or elements of a row, heads.
    pub a: Tensor,
    /// Elements of a row, groups, tokens, sequences.
    pub b: Tensor,
    /// As `b`.
    pub c: Tensor,
    /// The state each sequence starts from.
    pub ids: Tensor,
    /// States of a sequence that are kept, the last one first.
    pub slots: usize,
}

/// Some consecutive rows of one sequence, over all tokens.
struct Block<'o> {
    sequence: usize,
    /// Of all heads' rows.
    first: usize,
    /// The rows' outputs, by token.
    y: Vec<&'o mut [u8]>,
    /// The rows' states, by slot.
    states: Vec<&'o mut [u8]>,
}

impl Scan {
    /// Computes outputs and states. `inputs` are in the order of the fields. States for which there is no token keep their bytes.
    ///
    /// # Errors
    /// [`KernelError::Data`] when an id is out of range.
    pub fn run(&self, inputs: [&[u8]; 7], output: &mut [u8]) -> Result<(), KernelError> {
        let [length, dim, heads, states] = self.state.ne;
        let [_, _, tokens, sequences] = self.x.ne;
        let mut starts = Vec::with_capacity(sequences);
        for sequence in 0..sequences {
            let id = i64::from(read_id(&inputs[6][sequence * self.ids.nb[0]..]));
            let Some(id) = usize::try_from(id).ok().filter(|id| *id < states) else {
                return Err(out_of_range(SCAN, "state", id, states));
            };
            starts.push(id);
        }
        let rows = dim * heads;
        if rows == 0 || tokens == 0 {
            return Ok(());
        }
        let work = (rows * sequences).saturating_mul(length).saturating_mul(tokens);
        let parallel = work >= PARALLEL_WORK && rayon::current_num_threads() > 1;
        let cached = (BLOCK_BYTES / (length.max(1) * 4)).max(1);
        let wanted = if parallel { (rayon::current_num_threads() * 2).div_ceil(sequences) } else { 1 };
        let size = rows.div_ceil(wanted).clamp(1, cached.max(8));
        let mut blocks = self.blocks(size, output);
        let run = |block: &mut Block| {
            vectorised(
                #[inline(always)]
                || self.block(block, size, starts[block.sequence], &inputs),
            );
        };
        if parallel {
            blocks.par_iter_mut().for_each(run)
        } else {
            blocks.iter_mut().for_each(run)
        }
        Ok(())
    }

    /// Cuts the result into blocks of `size` rows.
    fn blocks<'o>(&self, size: usize, output: &'o mut [u8]) -> Vec<Block<'o>> {
        let [length, dim, heads, _] = self.state.ne;
        let [_, _, tokens, sequences] = self.x.ne;
        let rows = dim * heads;
        let per_sequence = rows.div_ceil(size);
        let mut blocks: Vec<_> = (0..sequences * per_sequence)
            .map(|i| Block {
                sequence: i / per_sequence,
                first: i % per_sequence * size,
                y: Vec::with_capacity(tokens),
                states: Vec::with_capacity(self.slots),
            })
            .collect();
        let (outputs, states) = output.split_at_mut(rows * tokens * sequences * 4);
        for (i, row) in outputs.chunks_exact_mut(rows * 4).enumerate() {
            for (j, piece) in row.chunks_mut(size * 4).enumerate() {
                blocks[i / tokens * per_sequence + j].y.push(piece);
            }
        }
        if length > 0 {
            for (i, state) in states.chunks_exact_mut(rows * length * 4).enumerate() {
                for (j, piece) in state.chunks_mut(size * length * 4).enumerate() {
                    blocks[i % sequences * per_sequence + j].states.push(piece);
                }
            }
        }
        blocks
    }

    /// One block over all tokens, from the state with number `start`.
    #[inline(always)]
    fn block(&self, block: &mut Block, size: usize, start: usize, inputs: &[&[u8]; 7]) {
        let [length, dim, heads, _] = self.state.ne;
        let (tokens, groups) = (self.x.ne[2], self.b.ne[1]);
        let (sequence, first) = (block.sequence, block.first);
        let rows = size.min(dim * heads - first);
        let [mut row_scratch, mut a_scratch, mut b_scratch, mut c_scratch] = [const { Vec::new() }; 4];

        let mut state = Vec::with_capacity(rows * length);
        for row in first..first + rows {
            let offset = row % dim * self.state.nb[1] + row / dim * self.state.nb[2] + start * self.state.nb[3];
            state.extend_from_slice(read(&self.state, inputs[0], offset, 0, length, &mut row_scratch));
        }
        for token in 0..tokens {
            let y = block.y[token].as_chunks_mut::<4>().0;
            let mut row = first;
            while row < first + rows {
                // The rows of the block that belong to one head.
                let head = row / dim;
                let end = ((head + 1) * dim).min(first + rows);
                let group = head / (heads / groups);
                let at = |t: &Tensor| group * t.nb[1] + token * t.nb[2] + sequence * t.nb[3];
                let b = read(&self.b, inputs[4], at(&self.b), 0, length, &mut b_scratch);
                let c = read(&self.c, inputs[5], at(&self.c), 0, length, &mut c_scratch);
                let a = read(&self.a, inputs[3], head * self.a.nb[1], 0, self.a.ne[0], &mut a_scratch);
                let offset = head * self.dt.nb[0] + token * self.dt.nb[1] + sequence * self.dt.nb[2];
                let dt = soft_plus(load_one(DataType::F32, &inputs[2][offset..]));
                let decay = (dt * a[0]).exp();
                for row in row..end {
                    let x = row % dim * self.x.nb[0] + head * self.x.nb[1] + token * self.x.nb[2];
                    let x = load_one(DataType::F32, &inputs[1][x + sequence * self.x.nb[3]..]);
                    let state = &mut state[(row - first) * length..][..length];
                    let read_out = if a.len() == 1 {
                        step(
                            state,
                            b,
                            c,
                            x * dt,
                            #[inline(always)]
                            |_| decay,
                        )
                    } else {
                        step(
                            state,
                            b,
                            c,
                            x * dt,
                            #[inline(always)]
                            |i| exp(dt * a[i]),
                        )
                    };
                    y[row - first] = read_out.to_le_bytes();
                }
                row = end;
            }
            if let Some(slot) = block.states.get_mut(tokens - 1 - token) {
                for (target, value) in slot.as_chunks_mut::<4>().0.iter_mut().zip(&state) {
                    *target = value.to_le_bytes();
                }
            }
        }
    }
}

/// One token for one row of state: it decays, takes up `input` along `b` and is read out along `c`.
#[inline(always)]
fn step(state: &mut [f32], b: &[f32], c: &[f32], input: f32, decay: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, tail) = state.as_chunks_mut::<LANES>();
    let (b_chunks, b_tail) = b.as_chunks::<LANES>();
    let (c_chunks, c_tail) = c.as_chunks::<LANES>();
    let first = chunks.len() * LANES;
    for (k, ((state, b), c)) in chunks.iter_mut().zip(b_chunks).zip(c_chunks).enumerate() {
        for i in 0..LANES {
            state[i] = state[i] * decay(k * LANES + i) + b[i] * input;
            lanes[i] += state[i] * c[i];
        }
    }
    let mut sum = lanes.iter().sum();
    for (i, ((state, b), c)) in tail.iter_mut().zip(b_tail).zip(c_tail).enumerate() {
        *state = *state * decay(first + i) + b * input;
        sum += *state * c;
    }
    sum
}

/// `ln(1 + exp(x))`; ggml takes it as `x` from 20 on, where they are equal in single precision.
fn soft_plus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

fn read_id(bytes: &[u8]) -> i32 {
    i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
