//! RWKV_WKV6, RWKV_WKV7 and GATED_LINEAR_ATTN: linear attention with a matrix as state.
//!
//! A head keeps a square matrix of key by value that decays with every token and takes up the product of the token's key and value.
//! The three differ in what decays, in what is read out and in the order of the two. Shapes: ggml.h (`ggml_rwkv_wkv6`,
//! `ggml_rwkv_wkv7`, `ggml_gated_linear_attn`); the result is the outputs of all tokens, then the last state of each sequence.

use super::cpu::states::{Block, States, update};
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[
    &LinearAttention { name: "RWKV_WKV6", rule: Rule::Wkv6, sources: 6 },
    &LinearAttention { name: "RWKV_WKV7", rule: Rule::Wkv7, sources: 7 },
    &LinearAttention { name: "GATED_LINEAR_ATTN", rule: Rule::Gated, sources: 5 },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Sources: key, value, receptance, bonus (of each head and key, for all tokens), decay.
    Wkv6,
    /// Sources: receptance, decay, key, value, and the two vectors whose product corrects the state.
    Wkv7,
    /// Sources: key, value, query, gate. A factor for the query is the parameter.
    Gated,
}

struct LinearAttention {
    name: &'static str,
    rule: Rule,
    /// How many; the last one is the state.
    sources: usize,
}

/// Slot of the bonus in RWKV_WKV6.
const BONUS: usize = 3;

impl LinearAttention {
    /// Elements of a row and rows of a head (which are equal), heads, tokens of a sequence, sequences.
    fn shape(&self, node: &Node) -> Result<[usize; 4], Unsupported> {
        let [size, heads, tokens, _] = source(self.name, node, 0)?.ne;
        let sequences = source(self.name, node, self.sources - 1)?.ne[1];
        require(self.name, sequences > 0 && tokens.is_multiple_of(sequences), || {
            format!("{tokens} tokens cannot be divided among {sequences} sequences")
        })?;
        Ok([size, heads, tokens / sequences, sequences])
    }
}

impl Operation for LinearAttention {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(self.name, node, self.sources)?;
        let [size, heads, tokens, sequences] = self.shape(node)?;
        let state = [size, size, heads, sequences].into_iter().try_fold(1_usize, usize::checked_mul);
        for slot in 0..self.sources {
            let tensor = source(self.name, node, slot)?;
            let operand = format!("source {slot}");
            typed(self.name, &operand, tensor, DataType::F32)?;
            let fits = if slot == self.sources - 1 {
                Some(tensor.elements()) == state
            } else if self.rule == Rule::Wkv6 && slot == BONUS {
                tensor.elements() == size * heads
            } else {
                tensor.ne == [size, heads, tokens * sequences, 1]
            };
            require(self.name, fits && tensor.is_contiguous(), || {
                format!("{operand} with extents {:?} has gaps or does not fit {heads} heads of {size}", tensor.ne)
            })?;
        }
        let out = &node.output;
        typed(self.name, "the result", out, DataType::F32)?;
        let expected = [size * heads, (tokens + size) * sequences, 1, 1];
        require(self.name, out.ne == expected && out.is_contiguous(), || {
            format!("the result has extents {:?} or gaps; it must have {expected:?} and none", out.ne)
        })
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |ne| Some(Tensor::contiguous(dtype, ne));
        let mut sources = vec![tensor([16, 4, 6, 1]); self.sources];
        if self.rule == Rule::Wkv6 {
            sources[BONUS] = tensor([16, 4, 1, 1]);
        }
        sources[self.sources - 1] = tensor([16 * 16 * 4, 2, 1, 1]);
        let mut params = OpParams::default();
        if self.rule == Rule::Gated {
            params.0[0] = 0.25_f32.to_bits().cast_signed();
        }
        let output = Tensor::contiguous(dtype, [16 * 4, 6 + 16 * 2, 1, 1]);
        vec![Node::new(self.name, params, output, sources)]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [size, heads, tokens, sequences] = self.shape(node)?;
        // Outputs of the newer form are dot products with rows of the state; in the others they are sums over all rows.
        let together = if self.rule == Rule::Wkv7 { 1 } else { size };
        let states = States { length: size, rows: size * heads, together, tokens, sequences, slots: 1 };
        let tensors: Vec<Tensor> = node.inputs().copied().collect();
        let (rule, scale) = (self.rule, node.params.float(0));
        Ok(kernel(node, None, move |inputs, output| {
            let mut scratch = vec![Vec::new(); tensors.len()];
            let sources = tensors.iter().zip(inputs).zip(&mut scratch);
            let sources: Vec<&[f32]> = sources
                .map(|((tensor, bytes), scratch)| {
                    let flat = Tensor::contiguous(DataType::F32, [tensor.elements(), 1, 1, 1]);
                    read(&flat, bytes, 0, 0, flat.ne[0], scratch)
                })
                .collect();
            let heads = Heads { states, scale };
            states.for_each_block(
                output,
                #[inline(always)]
                |block| match (rule, &sources[..]) {
                    (Rule::Wkv6, &[k, v, r, bonus, decay, state]) => {
                        heads.block(block, state, |state, at, y| {
                            let (key, value) = (&k[at.clone()], &v[at.clone()]);
                            let (r, decay) = (&r[at.clone()], &decay[at.clone()]);
                            let bonus = &bonus[at.start % (states.rows)..][..size];
                            wkv6(state, [key, value, r, bonus, decay], y);
                        });
                    }
                    (Rule::Gated, &[k, v, q, gate, state]) => {
                        heads.block(block, state, |state, at, y| {
                            let sources = [k, v, q, gate].map(|source| &source[at.clone()]);
                            gated(state, sources, heads.scale, y);
                        });
                    }
                    (Rule::Wkv7, &[r, decay, k, v, a, b, state]) => {
                        heads.rows(block, state, [r, decay, k, a, b], v);
                    }
                    _ => unreachable!("the number of inputs has been checked"),
                },
            );
            Ok(())
        }))
    }
}

/// What the three rules share.
#[derive(Debug, Clone, Copy)]
struct Heads {
    states: States,
    scale: f32,
}

impl Heads {
    /// The part of the state the block starts with.
    fn start(&self, block: &Block, state: &[f32]) -> Vec<f32> {
        let States { length, rows, .. } = self.states;
        let first = (block.sequence * rows + block.first) * length;
        state[first..first + block.rows * length].to_vec()
    }

    /// A block of whole heads over all tokens. `head` gets the state of a head, the range of a token's vectors, and the outputs,
    /// which are 0.
    #[inline(always)]
    fn block(&self, block: &mut Block, state: &[f32], head: impl Fn(&mut [f32], std::ops::Range<usize>, &mut [f32])) {
        let States { length: size, rows, tokens, .. } = self.states;
        let mut state = self.start(block, state);
        let mut y = vec![0.0; size];
        for token in 0..tokens {
            let first = (block.sequence * tokens + token) * rows + block.first;
            let outputs = block.outputs(token);
            for (i, (state, outputs)) in
                state.chunks_exact_mut(size * size).zip(outputs.chunks_exact_mut(size)).enumerate()
            {
                y.fill(0.0);
                head(state, first + i * size..first + (i + 1) * size, &mut y);
                for (output, y) in outputs.iter_mut().zip(&y) {
                    *output = y.to_le_bytes();
                }
            }
            block.keep(token, &state);
        }
    }

    /// A block of rows over all tokens, by the rule of RWKV_WKV7. A row belongs to one element of the value.
    #[inline(always)]
    fn rows(&self, block: &mut Block, state: &[f32], vectors: [&[f32]; 5], values: &[f32]) {
        let States { length: size, rows, tokens, .. } = self.states;
        let mut state = self.start(block, state);
        let first = block.first;
        for token in 0..tokens {
            let start = (block.sequence * tokens + token) * rows;
            for (i, output) in block.outputs(token).iter_mut().enumerate() {
                let row = first + i;
                let head = start + row / size * size;
                let [r, decay, k, a, b] = vectors.map(|vector| &vector[head..head + size]);
                let value = values[start + row];
                let state = &mut state[i * size..(i + 1) * size];
                let found = update(
                    state,
                    a,
                    [],
                    #[inline(always)]
                    |old, []| old,
                );
                let y = update(
                    state,
                    r,
                    [decay, k, b],
                    #[inline(always)]
                    |old, [decay, k, b]| old * decay + value * k + found * b,
                );
                *output = y.to_le_bytes();
            }
            block.keep(token, &state);
        }
    }
}

/// One token of one head: the old state and the token's product, weighted by the bonus, are read out; then the state moves on.
#[inline(always)]
fn wkv6(state: &mut [f32], [k, v, r, bonus, decay]: [&[f32]; 5], y: &mut [f32]) {
    for (i, row) in state.chunks_exact_mut(v.len()).enumerate() {
        let (k, r, bonus, decay) = (k[i], r[i], bonus[i], decay[i]);
        for ((state, v), y) in row.iter_mut().zip(v).zip(y.iter_mut()) {
            let product = k * v;
            *y += (product * bonus + *state) * r;
            *state = *state * decay + product;
        }
    }
}

/// One token of one head: the state moves on and is read out.
#[inline(always)]
fn gated(state: &mut [f32], [k, v, q, gate]: [&[f32]; 4], scale: f32, y: &mut [f32]) {
    for (i, row) in state.chunks_exact_mut(v.len()).enumerate() {
        let (k, q, gate) = (k[i], q[i] * scale, gate[i]);
        for ((state, v), y) in row.iter_mut().zip(v).zip(y.iter_mut()) {
            *state = *state * gate + k * v;
            *y += *state * q;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// The three rules in double precision, on dense f32 sources.
    fn exact(op: &str, sources: &[Data], [size, heads, tokens, sequences]: [usize; 4], scale: f64) -> Vec<f64> {
        let values: Vec<Vec<f64>> =
            sources.iter().map(|data| data.values().into_iter().map(f64::from).collect()).collect();
        let width = size * heads;
        let mut y = vec![0.0; width * tokens * sequences];
        let mut state = values[sources.len() - 1].clone();
        for token in 0..tokens * sequences {
            for head in 0..heads {
                let vector = |slot: usize, i: usize| values[slot][token * width + head * size + i];
                let state = &mut state[(token / tokens * heads + head) * size * size..][..size * size];
                let y = &mut y[token * width + head * size..][..size];
                for i in 0..size {
                    let mut found = 0.0;
                    for j in 0..size {
                        found += state[i * size + j] * if op == "RWKV_WKV7" { vector(4, j) } else { 0.0 };
                    }
                    for j in 0..size {
                        let s = &mut state[i * size + j];
                        match op {
                            "RWKV_WKV6" => {
                                let product = vector(0, i) * vector(1, j);
                                y[j] += (product * values[3][head * size + i] + *s) * vector(2, i);
                                *s = *s * vector(4, i) + product;
                            }
                            "RWKV_WKV7" => {
                                *s = *s * vector(1, j) + vector(3, i) * vector(2, j) + found * vector(5, j);
                                y[i] += *s * vector(0, j);
                            }
                            _ => {
                                *s = *s * vector(3, i) + vector(0, i) * vector(1, j);
                                y[j] += *s * vector(2, i) * scale;
                            }
                        }
                    }
                }
            }
        }
        y.extend(state);
        y
    }

    #[rstest]
    fn rules_are_the_definition(
        #[values("RWKV_WKV6", "RWKV_WKV7", "GATED_LINEAR_ATTN")] op: &str,
        #[values([16, 3, 4, 2], [21, 2, 3, 1], [64, 8, 5, 3], [1, 2, 1, 1])] extents: [usize; 4],
    ) {
        let [size, heads, tokens, sequences] = extents;
        let mut random = Rng::with_seed(61);
        let count = match op {
            "RWKV_WKV6" => 6,
            "RWKV_WKV7" => 7,
            _ => 5,
        };
        let sources: Vec<Data> = (0..count)
            .map(|slot| {
                let tensor = match slot {
                    _ if slot == count - 1 => f32s([size * size * heads, sequences, 1, 1]),
                    BONUS if op == "RWKV_WKV6" => f32s([size, heads, 1, 1]),
                    _ => f32s([size, heads, tokens * sequences, 1]),
                };
                // Small enough that states do not grow.
                let values: Vec<f32> =
                    random.floats(tensor.elements()).iter().map(|x| x / (size as f32).sqrt()).collect();
                Data::new(tensor, &values)
            })
            .collect();
        let given: Vec<_> = sources.iter().map(Some).collect();
        let output = f32s([size * heads, (tokens + size) * sequences, 1, 1]);
        let scale = if op == "GATED_LINEAR_ATTN" { 0.5 } else { 0.0 };
        let result = run(op, params(&[(0, scale)]), output, &given).unwrap();
        assert_close(&result.values(), exact(op, &sources, extents, f64::from(scale)), 5e-6);
    }

    #[rstest]
    #[case::tokens(|node: &mut Node| node.sources[1] = Some(f32s([16, 4, 5, 1])))]
    #[case::state(|node: &mut Node| {
        let last = node.sources.len() - 1;
        node.sources[last] = Some(f32s([16, 2, 1, 1]));
    })]
    #[case::sequences(|node: &mut Node| {
        let last = node.sources.len() - 1;
        node.sources[last] = Some(f32s([16 * 16, 8, 1, 1]));
    })]
    #[case::no_sequences(|node: &mut Node| {
        let last = node.sources.len() - 1;
        node.sources[last] = Some(f32s([1024, 0, 1, 1]));
    })]
    #[case::gaps(|node: &mut Node| {
        let tensor = node.sources[1].unwrap();
        node.sources[1] = Some(Tensor { nb: [4, 128, 512, 3072], ..tensor });
    })]
    #[case::half(|node: &mut Node| node.sources[1] = Some(Tensor::contiguous(DataType::F16, [16, 4, 6, 1])))]
    #[case::output(|node: &mut Node| node.output = f32s([64, 6, 1, 1]))]
    fn what_does_not_fit_is_rejected(#[case] change: fn(&mut Node)) {
        for op in OPERATIONS {
            op.examples(DataType::F32).into_iter().for_each(|node| assert_rejected(node, change));
        }
    }

    #[test]
    fn all_are_made() {
        assert_made(OPERATIONS, &[DataType::F32]);
    }
}
