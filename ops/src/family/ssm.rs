//! SSM_CONV and SSM_SCAN: the two steps of state-space models (Mamba).
//!
//! The convolution mixes the last few tokens within each channel. The scan carries a state of `d_state` numbers per row of every
//! head from token to token: it decays, takes up the token's input along B, and is read out along C. Mamba-1 has a decay for
//! each number of the state and heads of one row, Mamba-2 one decay for a whole head; both are the same operation, distinguished by
//! the extents of A. Shapes: ggml.h (`ggml_ssm_conv`, `ggml_ssm_scan`).

mod convolution;
mod scan;

use super::prelude::*;
use convolution::Convolution;
use scan::Scan;

pub static OPERATIONS: &[&dyn Operation] = &[&SsmConv, &SsmScan];

const CONV: &str = "SSM_CONV";
const SCAN: &str = "SSM_SCAN";

struct SsmConv;

struct SsmScan;

impl Operation for SsmConv {
    fn name(&self) -> &'static str {
        CONV
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([x, weights], out) = (f32_sources(CONV, node)?, &node.output);
        let [window, channels, ..] = weights.ne;
        require(CONV, weights.ne[2] == 1 && weights.ne[3] == 1 && window > 0, || {
            format!("weights have extents {:?}; they must be a matrix of window x channels", weights.ne)
        })?;
        require(CONV, x.ne[1] == channels && x.ne[3] == 1 && x.ne[0] >= window - 1, || {
            format!("source 0 has extents {:?}; it must be window - 1 + tokens, {channels}, sequences", x.ne)
        })?;
        has_shape(CONV, "the result", out, [channels, x.ne[0] - (window - 1), x.ne[2], 1])?;
        separate_rows(CONV, out)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |ne| Tensor::contiguous(dtype, ne);
        let sources = vec![Some(tensor([11, 64, 2, 1])), Some(tensor([4, 64, 1, 1]))];
        vec![Node::new(CONV, OpParams::default(), tensor([64, 8, 2, 1]), sources)]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [x, weights] = arguments(node);
        let convolution = Convolution { x: x.tensor, weights: weights.tensor, out: node.output };
        Ok(kernel(node, None, move |inputs, output| {
            convolution.run(inputs[x.position], inputs[weights.position], output)
        }))
    }
}

impl Operation for SsmScan {
    fn name(&self) -> &'static str {
        SCAN
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [state, x, dt, a, b, c, ids] = sources(SCAN, node)?;
        let tensors = [state, x, dt, a, b, c];
        for (slot, tensor) in tensors.into_iter().enumerate() {
            typed(SCAN, &format!("source {slot}"), tensor, DataType::F32)?;
        }
        typed(SCAN, "the ids", ids, DataType::I32)?;
        typed(SCAN, "the result", &node.output, DataType::F32)?;
        let slots = node.params.int(0);
        let ([length, ..], [dim, heads, tokens, sequences], groups) = (state.ne, x.ne, b.ne[1]);
        has_shape(SCAN, "source 0", state, [length, dim, heads, state.ne[3]])?;
        has_shape(SCAN, "source 2", dt, [heads, tokens, sequences, 1])?;
        has_shape(SCAN, "source 3", a, [if a.ne[0] == 1 { 1 } else { length }, heads, 1, 1])?;
        has_shape(SCAN, "source 4", b, [length, groups, tokens, sequences])?;
        has_shape(SCAN, "source 5", c, b.ne)?;
        has_shape(SCAN, "source 6", ids, [sequences, 1, 1, 1])?;
        require(SCAN, groups > 0 && heads.is_multiple_of(groups), || {
            format!("{heads} heads cannot be divided among {groups} groups")
        })?;
        require(SCAN, a.ne[0] == 1 || slots <= 1, || {
            format!("{slots} states of each sequence are to be kept; with a decay for each element only 1 can be")
        })?;
        outputs_and_states(SCAN, node, x.elements(), [length, dim, heads, sequences])
    }

    /// The ids choose among the states.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(0)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |ne| Some(Tensor::contiguous(dtype, ne));
        let node = |decays| {
            let [state, x, dt] = [[16, 8, 4, 2], [8, 4, 3, 2], [4, 3, 2, 1]].map(tensor);
            let b = tensor([16, 2, 3, 2]);
            let ids = Some(Tensor::contiguous(DataType::I32, [2, 1, 1, 1]));
            let output = Tensor::contiguous(dtype, [8 * 4 * 3 * 2 + 16 * 8 * 4 * 2, 1, 1, 1]);
            Node::new(SCAN, words([1]), output, vec![state, x, dt, tensor([decays, 4, 1, 1]), b, b, ids])
        };
        vec![node(1), node(16)]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [state, x, dt, a, b, c, ids] = sources(SCAN, node)?.map(|tensor| *tensor);
        let scan = Scan { state, x, dt, a, b, c, ids, slots: node.params.int(0).unsigned_abs() as usize };
        // All seven sources are present, so slots are positions.
        Ok(kernel(node, None, move |inputs, output| match inputs {
            [state, x, dt, a, b, c, ids] => scan.run([state, x, dt, a, b, c, ids], output),
            _ => unreachable!("the number of inputs has been checked"),
        }))
    }
}

#[cfg(test)]
mod tests;
