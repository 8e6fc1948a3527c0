//! The scan over the tokens of a sequence, on the CPU.
//!
//! A block of rows may be a part of a head (Mamba-2) or many heads of one row (Mamba-1). Within a row the state is a vector.

use super::super::cpu::exp::exp;
use super::super::cpu::states::{Block, States, update};
use super::super::prelude::*;
use super::SCAN;

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

impl Scan {
    /// Computes outputs and states. `inputs` are in the order of the fields. States for which there is no token keep their bytes.
    ///
    /// # Errors
    /// [`HostFunctionError::Data`] when an id is out of range.
    pub fn run(&self, inputs: [&[u8]; 7], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let [length, dim, heads, states] = self.state.ne;
        let [_, _, tokens, sequences] = self.x.ne;
        let mut starts = Vec::with_capacity(sequences);
        for sequence in 0..sequences {
            let at = &inputs[6][sequence * self.ids.nb[0]..];
            let id = i32::from_le_bytes([at[0], at[1], at[2], at[3]]);
            starts.push(in_range(SCAN, "state", id.into(), states)?);
        }
        let layout = States { length, rows: dim * heads, together: 1, tokens, sequences, slots: self.slots };
        layout.for_each_block(
            output,
            #[inline(always)]
            |block| self.block(block, starts[block.sequence], &inputs),
        );
        Ok(())
    }

    /// One block over all tokens, from the state with number `start`.
    #[inline(always)]
    fn block(&self, block: &mut Block, start: usize, inputs: &[&[u8]; 7]) {
        let [length, dim, heads, _] = self.state.ne;
        let (tokens, groups) = (self.x.ne[2], self.b.ne[1]);
        let (sequence, first, rows) = (block.sequence, block.first, block.rows);
        let [mut a_scratch, mut b_scratch, mut c_scratch] = [const { Vec::new() }; 3];
        let mut state = block.start(&self.state, inputs[0], start);
        for token in 0..tokens {
            let y = block.outputs(token);
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
                let decay = if let [a] = a { Some((dt * a).exp()) } else { None };
                for row in row..end {
                    let x = row % dim * self.x.nb[0] + head * self.x.nb[1] + token * self.x.nb[2];
                    let x = load_one(DataType::F32, &inputs[1][x + sequence * self.x.nb[3]..]);
                    let state = &mut state[(row - first) * length..][..length];
                    let input = x * dt;
                    let read_out = if let Some(decay) = decay {
                        update(
                            state,
                            c,
                            [b],
                            #[inline(always)]
                            |old, [b]| old * decay + b * input,
                        )
                    } else {
                        update(
                            state,
                            c,
                            [a, b],
                            #[inline(always)]
                            |old, [a, b]| old * exp(dt * a) + b * input,
                        )
                    };
                    y[row - first] = read_out.to_le_bytes();
                }
                row = end;
            }
            block.keep(token, &state);
        }
    }
}

/// `ln(1 + exp(x))`; ggml takes it as `x` from 20 on, where they are equal in single precision.
fn soft_plus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
