//! GATED_DELTA_NET: the recurrent state of gated delta networks.
//!
//! A head keeps a square matrix. With every token it decays by the gate, is corrected towards the value along the key, by as much
//! as beta says, and is read out along the query. The gate is one number for a head, or one for each element of the key (Kimi's
//! delta attention). Queries and keys repeat over heads and sequences. Shapes: ggml.h (`ggml_gated_delta_net`); the result is the
//! outputs of all tokens, then the states after the last tokens, the newest first.

use super::cpu::exp::exp;
use super::cpu::states::{Block, States, update};
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&GatedDeltaNet];

const NAME: &str = "GATED_DELTA_NET";

struct GatedDeltaNet;

impl Operation for GatedDeltaNet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [q, k, v, gate, beta, state] = f32_sources(NAME, node)?;
        let [size, heads, tokens, sequences] = v.ne;
        for (what, tensor) in [("queries", q), ("keys", k)] {
            let [length, repeated, count, batches] = tensor.ne;
            let fits = length == size && repeated > 0 && count == tokens;
            require(NAME, fits && batches > 0 && sequences.is_multiple_of(batches), || {
                format!("{what} with extents {:?} do not fit values with {:?}", tensor.ne, v.ne)
            })?;
        }
        let gates = if gate.ne[0] == 1 { 1 } else { size };
        has_shape(NAME, "the gate", gate, [gates, heads, tokens, sequences])?;
        has_shape(NAME, "beta", beta, [1, heads, tokens, sequences])?;
        has_shape(NAME, "the state", state, [size, size, heads, sequences])?;
        outputs_and_states(NAME, node, v.elements(), state.ne)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |ne| Some(Tensor::contiguous(dtype, ne));
        let node = |gates| {
            let [q, v] = [tensor([32, 2, 3, 1]), tensor([32, 4, 3, 1])];
            let [gate, beta, state] = [[gates, 4, 3, 1], [1, 4, 3, 1], [32, 32, 4, 1]].map(tensor);
            let output = Tensor::contiguous(dtype, [32 * 4, 3 + 32, 1, 1]);
            Node::new(NAME, words([1]), output, vec![q, q, v, gate, beta, state])
        };
        vec![node(1), node(32)]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [q, k, v, gate, beta, state] = sources(NAME, node)?.map(|tensor| *tensor);
        let rule = DeltaRule { q, k, v, gate, beta, state };
        let [size, heads, tokens, sequences] = v.ne;
        let slots = node.params.int(0).unsigned_abs() as usize;
        let states = States { length: size, rows: size * heads, together: 1, tokens, sequences, slots };
        // All six sources are present, so slots are positions.
        Ok(kernel(node, None, move |inputs, output| {
            states.for_each_block(
                output,
                #[inline(always)]
                |block| rule.block(block, inputs),
            );
            Ok(())
        }))
    }
}

/// The layouts of a network that passed the rules.
struct DeltaRule {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    beta: Tensor,
    state: Tensor,
}

impl DeltaRule {
    /// One block over all tokens. A row of the state, as it is stored, belongs to one element of the value and runs along the key.
    #[inline(always)]
    fn block(&self, block: &mut Block, inputs: &[&[u8]]) {
        let [size, _, tokens, sequences] = self.v.ne;
        let (sequence, first, rows) = (block.sequence, block.first, block.rows);
        let scale = 1.0 / (size as f32).sqrt();
        let [mut q_scratch, mut k_scratch, mut gate_scratch, mut decay] = [const { Vec::new() }; 4];
        let mut state = block.start(&self.state, inputs[5], sequence);
        for token in 0..tokens {
            let outputs = block.outputs(token);
            let mut row = first;
            while row < first + rows {
                // The rows of the block that belong to one head.
                let head = row / size;
                let end = ((head + 1) * size).min(first + rows);
                let own = |t: &Tensor| head * t.nb[1] + token * t.nb[2] + sequence * t.nb[3];
                let repeated = |t: &Tensor| {
                    let batch = sequence / (sequences / t.ne[3]);
                    head % t.ne[1] * t.nb[1] + token * t.nb[2] + batch * t.nb[3]
                };
                let q = read(&self.q, inputs[0], repeated(&self.q), 0, size, &mut q_scratch);
                let k = read(&self.k, inputs[1], repeated(&self.k), 0, size, &mut k_scratch);
                let gate = read(&self.gate, inputs[3], own(&self.gate), 0, self.gate.ne[0], &mut gate_scratch);
                let beta = load_one(DataType::F32, &inputs[4][own(&self.beta)..]);
                decay.clear();
                decay.extend(gate.iter().map(|gate| exp(*gate)));
                for row in row..end {
                    let place = row % size * self.v.nb[0] + own(&self.v);
                    let value = load_one(DataType::F32, &inputs[2][place..]);
                    let state = &mut state[(row - first) * size..][..size];
                    let found = if let [decay] = decay[..] {
                        update(
                            state,
                            k,
                            [],
                            #[inline(always)]
                            |old, []| old * decay,
                        )
                    } else {
                        update(
                            state,
                            k,
                            [&decay],
                            #[inline(always)]
                            |old, [decay]| old * decay,
                        )
                    };
                    let correction = (value - found) * beta;
                    let read_out = update(
                        state,
                        q,
                        [k],
                        #[inline(always)]
                        |old, [k]| old + k * correction,
                    );
                    outputs[row - first] = (read_out * scale).to_le_bytes();
                }
                row = end;
            }
            block.keep(token, &state);
        }
    }
}

#[cfg(test)]
mod tests;
