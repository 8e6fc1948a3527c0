//! Handing out the rows of states that go through the tokens of sequences.
//!
//! Recurrent operations have one result: the outputs of all tokens, then the states that are kept. A row of state has a course of
//! its own, so blocks of rows run side by side, each over all tokens, and stay in the first-level cache meanwhile.

use super::element::read;
use super::rows::{PARALLEL_WORK, Row, vectorised};
use crate::tensor::Tensor;
use rayon::prelude::*;

/// Bytes of state in a block: what a first-level cache holds beside the vectors of a token.
const BLOCK_BYTES: usize = 24 * 1024;
/// Elements summed side by side.
const LANES: usize = 16;

/// The result of a recurrent operation, f32 without gaps: `rows` outputs for each token of each sequence, then `rows * length`
/// elements of state for each sequence, and that `slots` times.
#[derive(Debug, Clone, Copy)]
pub struct States {
    /// Elements of a row of state.
    pub length: usize,
    /// Rows of all states of a sequence.
    pub rows: usize,
    /// Rows that have to be in one block; `rows` is a multiple of it.
    pub together: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
    /// Sequences.
    pub sequences: usize,
    /// States of a sequence that are kept: after the last token, the one before it, and so on.
    pub slots: usize,
}

/// Some consecutive rows of one sequence, over all tokens.
#[derive(Debug)]
pub struct Block<'o> {
    /// The sequence.
    pub sequence: usize,
    /// The first row.
    pub first: usize,
    /// How many rows.
    pub rows: usize,
    /// The rows' outputs, by token.
    outputs: Vec<&'o mut [u8]>,
    /// The rows' states, by slot.
    states: Vec<&'o mut [u8]>,
}

impl Block<'_> {
    /// The states of the block's rows before the first token, of sequence `from` of the f32 tensor `state`: elements of a row, rows
    /// of a head, heads, sequences.
    pub fn start(&self, state: &Tensor, bytes: &[u8], from: usize) -> Vec<f32> {
        let [length, rows, ..] = state.ne;
        let mut scratch = Vec::new();
        let rows = (self.first..self.first + self.rows).map(|row| Row([row % rows, row / rows, from]).offset(state));
        let mut states = Vec::with_capacity(self.rows * length);
        rows.for_each(|offset| states.extend_from_slice(read(state, bytes, offset, 0, length, &mut scratch)));
        states
    }

    /// The outputs of the block's rows for a token.
    #[inline(always)]
    pub fn outputs(&mut self, token: usize) -> &mut [[u8; 4]] {
        self.outputs[token].as_chunks_mut().0
    }

    /// Keeps the state after `token`, if that is one of those to be kept.
    #[inline(always)]
    pub fn keep(&mut self, token: usize, state: &[f32]) {
        let slot = self.outputs.len() - 1 - token;
        if let Some(slot) = self.states.get_mut(slot) {
            for (target, value) in slot.as_chunks_mut::<4>().0.iter_mut().zip(state) {
                *target = value.to_le_bytes();
            }
        }
    }
}

impl States {
    /// Calls `body` once for each block. Kept states for which there is no token are not touched.
    pub fn for_each_block(&self, output: &mut [u8], body: impl Fn(&mut Block) + Sync) {
        if self.rows == 0 || self.tokens == 0 || self.sequences == 0 {
            return;
        }
        let work = (self.rows * self.sequences).saturating_mul(self.length).saturating_mul(self.tokens);
        let threads = if work < PARALLEL_WORK { 1 } else { rayon::current_num_threads() };
        let wanted = if threads == 1 { 1 } else { (threads * 2).div_ceil(self.sequences) };
        let cached = (BLOCK_BYTES / (self.length.max(1) * 4)).max(8);
        let size = self.rows.div_ceil(wanted).min(cached).next_multiple_of(self.together.max(1));
        let mut blocks = self.blocks(size, output);
        let run = |block: &mut Block| {
            vectorised(
                #[inline(always)]
                || body(block),
            );
        };
        if threads == 1 { blocks.iter_mut().for_each(run) } else { blocks.par_iter_mut().for_each(run) }
    }

    /// Cuts the result into blocks of `size` rows.
    fn blocks<'o>(&self, size: usize, output: &'o mut [u8]) -> Vec<Block<'o>> {
        let per_sequence = self.rows.div_ceil(size);
        let block = |i: usize| {
            let first = i % per_sequence * size;
            Block {
                sequence: i / per_sequence,
                first,
                rows: size.min(self.rows - first),
                outputs: Vec::with_capacity(self.tokens),
                states: Vec::with_capacity(self.slots.min(self.tokens)),
            }
        };
        let mut blocks: Vec<_> = (0..self.sequences * per_sequence).map(block).collect();
        let (outputs, states) = output.split_at_mut(self.rows * self.tokens * self.sequences * 4);
        for (i, row) in outputs.chunks_exact_mut(self.rows * 4).enumerate() {
            for (j, piece) in row.chunks_mut(size * 4).enumerate() {
                blocks[i / self.tokens * per_sequence + j].outputs.push(piece);
            }
        }
        if self.length > 0 {
            let kept = self.slots.min(self.tokens) * self.sequences;
            for (i, state) in states.chunks_exact_mut(self.rows * self.length * 4).take(kept).enumerate() {
                for (j, piece) in state.chunks_mut(size * self.length * 4).enumerate() {
                    blocks[i % self.sequences * per_sequence + j].states.push(piece);
                }
            }
        }
        blocks
    }
}

/// Replaces each element of a row of state by `update` of its value and the elements of `others` beside it, and gives the dot
/// product of the new row with `along`. All have the length of the row.
#[inline(always)]
pub fn update<const N: usize>(
    state: &mut [f32],
    along: &[f32],
    others: [&[f32]; N],
    update: impl Fn(f32, [f32; N]) -> f32,
) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, tail) = state.as_chunks_mut::<LANES>();
    let (along_chunks, along_tail) = along.as_chunks::<LANES>();
    let other_chunks = others.map(|other| other.as_chunks::<LANES>().0);
    let first = chunks.len() * LANES;
    for (k, (state, along)) in chunks.iter_mut().zip(along_chunks).enumerate() {
        let beside = other_chunks.map(
            #[inline(always)]
            |other| &other[k],
        );
        for i in 0..LANES {
            let beside = beside.map(
                #[inline(always)]
                |other| other[i],
            );
            state[i] = update(state[i], beside);
            lanes[i] += state[i] * along[i];
        }
    }
    let mut sum = lanes.iter().sum();
    for (i, (state, along)) in tail.iter_mut().zip(along_tail).enumerate() {
        *state = update(*state, others.map(|other| other[first + i]));
        sum += *state * along;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Every output and every kept state is written once, each by the block that owns it.
    #[rstest]
    #[case::whole(States { length: 3, rows: 10, together: 1, tokens: 2, sequences: 2, slots: 1 })]
    #[case::many_blocks(States { length: 64, rows: 700, together: 1, tokens: 4, sequences: 3, slots: 2 })]
    #[case::together(States { length: 64, rows: 640, together: 64, tokens: 4, sequences: 2, slots: 1 })]
    #[case::more_slots_than_tokens(States { length: 5, rows: 7, together: 1, tokens: 2, sequences: 2, slots: 4 })]
    fn results_are_covered(#[case] states: States) {
        let States { length, rows, together, tokens, sequences, slots } = states;
        let outputs = rows * tokens * sequences;
        let mut bytes = vec![0xAA; (outputs + rows * length * sequences * slots) * 4];
        states.for_each_block(&mut bytes, |block| {
            assert_eq!((block.first % together, block.rows % together), (0, 0));
            for token in 0..tokens {
                let first = block.first;
                let value = |row: usize| (token * rows + first + row) as f32 + 0.5;
                let state: Vec<f32> = (0..block.rows * length).map(|i| value(i / length)).collect();
                for (row, output) in block.outputs(token).iter_mut().enumerate() {
                    *output = value(row).to_le_bytes();
                }
                block.keep(token, &state);
            }
        });
        for (i, value) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let expected = match i.checked_sub(outputs) {
                None => Some(i % (rows * tokens)),
                Some(i) => {
                    let slot = i / (rows * length * sequences);
                    (slot < tokens).then(|| (tokens - 1 - slot.min(tokens - 1)) * rows + i / length % rows)
                }
            };
            match expected {
                Some(row) => assert_eq!(f32::from_le_bytes(*value), row as f32 + 0.5, "element {i}"),
                None => assert_eq!(*value, [0xAA; 4]),
            }
        }
    }

    #[rstest]
    fn updates_are_summed(#[values(0, 1, 15, 16, 37)] length: usize) {
        let mut state: Vec<f32> = (0..length).map(|i| i as f32).collect();
        let along = vec![2.0; length];
        let beside: Vec<f32> = (0..length).map(|i| i as f32 + 1.0).collect();
        let sum = update(&mut state, &along, [&beside], |old, [beside]| old + beside);
        assert!(state.iter().enumerate().all(|(i, new)| *new == 2.0 * i as f32 + 1.0));
        assert_eq!(sum, 2.0 * (length * length) as f32);
    }
}
