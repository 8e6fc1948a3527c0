//! SSM_CONV and SSM_SCAN: the two steps of state-space models (Mamba).
//!
//! The convolution mixes the last few tokens within each channel. The scan carries a state of `d_state` numbers per row of every
//! head from token to token: it decays, takes up the token's input along B, and is read out along C. Mamba-1 has a decay for
//! each number of the state and heads of one row, Mamba-2 one decay for a whole head; both are the same operation, told apart by
//! the extents of A. Shapes: ggml.h (`ggml_ssm_conv`, `ggml_ssm_scan`).

mod convolution;
mod scan;

use super::cpu::kernel::{Argument, kernel};
use super::rules::{addressable, require, separate_rows, source, wrong_type};
use crate::design::{Design, Recurrence, recurrent, rowwise};
use crate::node::{Node, OpParams};
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use convolution::Convolution;
use scan::Scan;
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&SsmConv, &SsmScan];

const CONV: &str = "SSM_CONV";
const SCAN: &str = "SSM_SCAN";

#[derive(Debug)]
struct SsmConv;

#[derive(Debug)]
struct SsmScan;

/// The tensor has the type it must have.
fn typed(op: &'static str, operand: &str, tensor: &Tensor, dtype: DataType) -> Result<(), Unsupported> {
    if tensor.dtype == dtype { Ok(()) } else { wrong_type(op, operand, tensor.dtype, dtype.name()) }
}

impl Operation for SsmConv {
    fn name(&self) -> &'static str {
        CONV
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(CONV, node, 2)?;
        let (x, weights, out) = (source(CONV, node, 0)?, source(CONV, node, 1)?, &node.output);
        for (operand, tensor) in [("source 0", x), ("source 1", weights), ("the result", out)] {
            typed(CONV, operand, tensor, DataType::F32)?;
        }
        let [window, channels, ..] = weights.ne;
        require(CONV, weights.ne[2] == 1 && weights.ne[3] == 1 && window > 0, || {
            format!("weights have extents {:?}; they must be a matrix of window x channels", weights.ne)
        })?;
        require(CONV, x.ne[1] == channels && x.ne[3] == 1 && x.ne[0] >= window - 1, || {
            format!("source 0 has extents {:?}; it must be window - 1 + tokens, {channels}, sequences", x.ne)
        })?;
        let expected = [channels, x.ne[0] - (window - 1), x.ne[2], 1];
        require(CONV, out.ne == expected, || format!("the result has extents {:?}, not {expected:?}", out.ne))?;
        separate_rows(CONV, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |ne| Tensor::contiguous(dtype, ne);
        let sources = vec![Some(tensor([11, 64, 2, 1])), Some(tensor([4, 64, 1, 1]))];
        vec![Node::new(CONV, OpParams::default(), tensor([64, 8, 2, 1]), sources)]
    }

    /// Rows of channels, each with its tokens and its weights, are dealt out to the columns. The output is transposed by the
    /// buffer descriptors that drain it.
    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        let [channels, _, sequences, _] = node.output.ne;
        Ok(rowwise(channels * sequences, arch))
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let (Some(x), Some(weights)) = (Argument::of(node, 0), Argument::of(node, 1)) else {
            unreachable!("check finds both sources");
        };
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
        addressable(SCAN, node, 7)?;
        let [state, x, dt, a, b, c, ids] = scan_sources(node)?;
        let tensors = [state, x, dt, a, b, c];
        for (slot, tensor) in tensors.into_iter().enumerate() {
            typed(SCAN, &format!("source {slot}"), tensor, DataType::F32)?;
        }
        typed(SCAN, "the ids", ids, DataType::I32)?;
        typed(SCAN, "the result", &node.output, DataType::F32)?;
        let slots = node.params.int(0);
        require(SCAN, slots >= 1, || format!("{slots} states are to be kept for each sequence; at least 1 is needed"))?;

        let ([length, ..], [dim, heads, tokens, sequences], groups) = (state.ne, x.ne, b.ne[1]);
        let extents = |what: &str, found: [usize; 4], expected: [usize; 4]| {
            require(SCAN, found == expected, || format!("{what} has extents {found:?}, not {expected:?}"))
        };
        extents("source 0", state.ne, [length, dim, heads, state.ne[3]])?;
        extents("source 2", dt.ne, [heads, tokens, sequences, 1])?;
        extents("source 3", a.ne, [if a.ne[0] == 1 { 1 } else { length }, heads, 1, 1])?;
        extents("source 4", b.ne, [length, groups, tokens, sequences])?;
        extents("source 5", c.ne, b.ne)?;
        extents("source 6", ids.ne, [sequences, 1, 1, 1])?;
        require(SCAN, groups > 0 && heads.is_multiple_of(groups), || {
            format!("{heads} heads cannot be divided among {groups} groups")
        })?;
        require(SCAN, a.ne[0] == 1 || slots == 1, || {
            format!("{slots} states of each sequence are to be kept; with a decay for each element only 1 can be")
        })?;
        let states = [length, dim, heads, sequences, slots.unsigned_abs() as usize];
        let states = states.into_iter().try_fold(1_usize, usize::checked_mul);
        let expected = states.and_then(|states| states.checked_add(x.elements()));
        let elements = node.output.elements();
        require(SCAN, expected == Some(elements) && node.output.is_contiguous(), || {
            format!("the result has {elements} elements; it must hold outputs and states without gaps")
        })
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
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
        let mut params = OpParams::default();
        params.0[0] = 1;
        let node = |decays| {
            let [state, x, dt] = [[16, 8, 4, 2], [8, 4, 3, 2], [4, 3, 2, 1]].map(tensor);
            let b = tensor([16, 2, 3, 2]);
            let ids = Some(Tensor::contiguous(DataType::I32, [2, 1, 1, 1]));
            let output = Tensor::contiguous(dtype, [8 * 4 * 3 * 2 + 16 * 8 * 4 * 2, 1, 1, 1]);
            Node::new(SCAN, params, output, vec![state, x, dt, tensor([decays, 4, 1, 1]), b, b, ids])
        };
        vec![node(1), node(16)]
    }

    /// State stays in the cores over all tokens. B and C of a token reach every core, x and the step only those whose rows
    /// they drive.
    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        let [state, x, _, a, ..] = scan_sources(node)?;
        let [length, dim, ..] = state.ne;
        let [_, heads, _, sequences] = x.ne;
        // Heads of one row (Mamba-1) share a core, each with its own decay.
        let groups = source(SCAN, node, 4)?.ne[1];
        let (units, rows, decays) = if dim == 1 { (groups, heads / groups, a.ne[0]) } else { (heads, dim, 0) };
        let recurrence = Recurrence {
            units: units * sequences,
            rows,
            row_bytes: (length + decays) * 4,
            resident_bytes: if dim == 1 { 0 } else { a.ne[0] * 4 },
            // B, C and the step.
            shared_bytes: 2 * length * 4 + 4,
            input_bytes: 4,
            output_bytes: 4,
        };
        recurrent(SCAN, &recurrence, arch)
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let [state, x, dt, a, b, c, ids] = scan_sources(node)?.map(|tensor| *tensor);
        let scan = Scan { state, x, dt, a, b, c, ids, slots: node.params.int(0).unsigned_abs() as usize };
        // All seven sources are present, so slots are positions.
        Ok(kernel(node, None, move |inputs, output| match inputs {
            [state, x, dt, a, b, c, ids] => scan.run([state, x, dt, a, b, c, ids], output),
            _ => unreachable!("the number of inputs has been checked"),
        }))
    }
}

fn scan_sources(node: &Node) -> Result<[&Tensor; 7], Unsupported> {
    let tensor = |slot| source(SCAN, node, slot);
    Ok([tensor(0)?, tensor(1)?, tensor(2)?, tensor(3)?, tensor(4)?, tensor(5)?, tensor(6)?])
}

#[cfg(test)]
mod tests;
