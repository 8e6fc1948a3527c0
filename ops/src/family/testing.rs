//! What the tests of the families share: tensors with data, a run of one node.

use super::cpu::rows::Row;
use crate::artifact::reference_artifact;
use crate::blocks;
use crate::node::{Node, OpParams};
use crate::operation::Operation;
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, ArchRegistry, HostFunctionError};
pub use fastrand::Rng;
pub use rstest::rstest;
use std::sync::Arc;

/// Numbers between -1 and 1.
pub trait Floats {
    fn float(&mut self) -> f32;

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

impl Floats for Rng {
    fn float(&mut self) -> f32 {
        2.0 * self.f32() - 1.0
    }
}

/// A tensor and its bytes.
#[derive(Debug, Clone)]
pub struct Data {
    pub tensor: Tensor,
    pub bytes: Vec<u8>,
}

impl Data {
    /// Places `values`, in dimension order, as the strides say. Gaps are 0xAA.
    pub fn new(tensor: Tensor, values: &[f32]) -> Self {
        assert_eq!(values.len(), tensor.elements());
        let mut bytes = vec![0xAA; tensor.span_bytes()];
        if tensor.dtype.is_quantised() {
            for (row, values) in values.chunks(tensor.ne[0]).enumerate() {
                assert!(blocks::encode(tensor.dtype, values, &mut bytes[block_row(&tensor, row)]));
            }
        } else {
            for (index, value) in values.iter().enumerate() {
                let at = offset(&tensor, index);
                match tensor.dtype {
                    DataType::F32 => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
                    DataType::F16 => bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(*value).to_le_bytes()),
                    DataType::BF16 => bytes[at..at + 2].copy_from_slice(&half::bf16::from_f32(*value).to_le_bytes()),
                    DataType::I8 => bytes[at] = (*value as i8).cast_unsigned(),
                    DataType::I16 => bytes[at..at + 2].copy_from_slice(&(*value as i16).to_le_bytes()),
                    DataType::I32 => bytes[at..at + 4].copy_from_slice(&(*value as i32).to_le_bytes()),
                    DataType::I64 => bytes[at..at + 8].copy_from_slice(&(*value as i64).to_le_bytes()),
                    other => panic!("no test values of {other}"),
                }
            }
        }
        Self { tensor, bytes }
    }

    pub fn contiguous(dtype: DataType, ne: [usize; 4], values: &[f32]) -> Self {
        Self::new(Tensor::contiguous(dtype, ne), values)
    }

    pub fn random(tensor: Tensor, random: &mut Rng) -> Self {
        Self::new(tensor, &random.floats(tensor.elements()))
    }

    /// The elements in dimension order, as stored.
    pub fn values(&self) -> Vec<f32> {
        let tensor = &self.tensor;
        if tensor.dtype.is_quantised() {
            let mut values = vec![0.0; tensor.elements()];
            for (row, values) in values.chunks_mut(tensor.ne[0]).enumerate() {
                assert!(blocks::decode(tensor.dtype, &self.bytes[block_row(tensor, row)], values));
            }
            return values;
        }
        (0..tensor.elements())
            .map(|index| {
                let at = &self.bytes[offset(tensor, index)..];
                match tensor.dtype {
                    DataType::F32 => f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
                    DataType::F16 => half::f16::from_le_bytes([at[0], at[1]]).to_f32(),
                    DataType::BF16 => half::bf16::from_le_bytes([at[0], at[1]]).to_f32(),
                    DataType::I8 => f32::from(at[0].cast_signed()),
                    DataType::I16 => f32::from(i16::from_le_bytes([at[0], at[1]])),
                    DataType::I32 => i32::from_le_bytes([at[0], at[1], at[2], at[3]]) as f32,
                    DataType::I64 => i64::from_le_bytes(*at.first_chunk().unwrap()) as f32,
                    other => panic!("no test values of {other}"),
                }
            })
            .collect()
    }

    /// One element, indices wrapping at the extents, as ggml repeats tensors.
    pub fn get(&self, values: &[f32], index: [usize; 4]) -> f64 {
        let ne = self.tensor.ne;
        let [a, b, c, d] = std::array::from_fn(|i| index[i] % ne[i]);
        f64::from(values[a + ne[0] * (b + ne[1] * (c + ne[2] * d))])
    }
}

/// A contiguous f32 tensor.
pub fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

/// Contiguous, or with the first two dimensions exchanged in memory.
pub fn layout(dtype: DataType, ne: [usize; 4], transposed: bool) -> Tensor {
    let order = if transposed { [1, 0, 2, 3] } else { [0, 1, 2, 3] };
    permuted(&Tensor::contiguous(dtype, order.map(|d| ne[d])), order)
}

/// Whole numbers between -100 and 100, which all types hold.
pub fn integers(tensor: Tensor, random: &mut Rng) -> Data {
    let values: Vec<f32> = random.floats(tensor.elements()).iter().map(|x| (x * 100.0).round()).collect();
    Data::new(tensor, &values)
}

/// Byte offset of element number `index`.
fn offset(tensor: &Tensor, index: usize) -> usize {
    let mut rest = index;
    (0..4).fold(0, |sum, d| {
        let i = rest % tensor.ne[d];
        rest /= tensor.ne[d];
        sum + i * tensor.nb[d]
    })
}

/// The bytes of a row of blocks.
fn block_row(tensor: &Tensor, row: usize) -> std::ops::Range<usize> {
    let start = Row::nth(&tensor.ne, row).offset(tensor);
    start..start + tensor.dtype.row_bytes(tensor.ne[0])
}

/// All indices of `ne`, innermost first.
pub fn indices(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..ne.iter().product()).map(move |index: usize| {
        let rest = index / ne[0];
        [index % ne[0], rest % ne[1], rest / ne[1] % ne[2], rest / (ne[1] * ne[2])]
    })
}

/// `tensor` with its dimensions exchanged: dimension `order[i]` of the result is dimension `i` of `tensor`, as `ggml_permute`.
pub fn permuted(tensor: &Tensor, order: [usize; 4]) -> Tensor {
    let mut result = *tensor;
    for (i, d) in order.into_iter().enumerate() {
        (result.ne[d], result.nb[d]) = (tensor.ne[i], tensor.nb[i]);
    }
    result
}

/// Parameters with floats at the given words.
pub fn params(floats: &[(usize, f32)]) -> OpParams {
    let mut words = [0; 16];
    for (index, value) in floats {
        words[*index] = value.to_bits().cast_signed();
    }
    OpParams(words)
}

pub fn find(name: &str) -> &'static dyn Operation {
    crate::table::lookup(name).expect("the operation is in the table")
}

pub fn node(op: &str, params: OpParams, output: Tensor, sources: &[Option<Tensor>]) -> Node {
    Node::new(op, params, output, sources.to_vec())
}

/// Whether the rules accept a node.
pub fn accepts(op: &str, params: OpParams, output: Tensor, sources: &[Tensor]) -> bool {
    let sources: Vec<_> = sources.iter().copied().map(Some).collect();
    find(op).check(&node(op, params, output, &sources)).is_ok()
}

/// Asserts that the rules accept `node`, but no longer after `change`.
pub fn assert_rejected(mut node: Node, change: fn(&mut Node)) {
    let op = find(&node.op);
    op.check(&node).unwrap();
    change(&mut node);
    assert!(op.check(&node).is_err(), "{node:?}");
}

/// A generation that is built in.
pub fn arch(name: &str) -> Arc<Arch> {
    ArchRegistry::builtin().get(name).unwrap()
}

/// Asserts that every operation accepts an example with a type of `dtypes`, and that all accepted ones have a reference artifact.
pub fn assert_made(operations: &[&dyn Operation], dtypes: &[DataType]) {
    for (op, arch) in operations.iter().flat_map(|op| ["aie2", "aie2p"].map(|name| (op, arch(name)))) {
        let examples = dtypes.iter().flat_map(|dtype| op.examples(*dtype));
        let accepted: Vec<Node> = examples.filter(|node| op.check(node).is_ok()).collect();
        assert!(!accepted.is_empty(), "{}", op.name());
        for node in accepted {
            reference_artifact(*op, &node, &arch).unwrap();
        }
    }
}

/// Runs a node on shifted, hence unaligned, copies of its sources too and asserts that nothing changes.
pub fn run(op: &str, params: OpParams, output: Tensor, sources: &[Option<&Data>]) -> Result<Data, HostFunctionError> {
    run_into(op, params, Data { tensor: output, bytes: vec![0xAA; output.span_bytes()] }, sources)
}

/// As [`run`], with given bytes in the result.
pub fn run_into(
    op: &str,
    params: OpParams,
    output: Data,
    sources: &[Option<&Data>],
) -> Result<Data, HostFunctionError> {
    let tensors: Vec<Option<Tensor>> = sources.iter().map(|source| source.map(|data| data.tensor)).collect();
    let node = node(op, params, output.tensor, &tensors);
    let kernel = find(op).reference(&node).expect("the node is supported");
    assert_eq!(kernel.input_count(), sources.iter().flatten().count());
    let inputs: Vec<&[u8]> = sources.iter().flatten().map(|data| data.bytes.as_slice()).collect();
    let mut bytes = output.bytes.clone();
    kernel.run(&inputs, &mut bytes)?;

    let shifted: Vec<Vec<u8>> = inputs.iter().map(|input| [&[0x55], *input].concat()).collect();
    let shifted: Vec<&[u8]> = shifted.iter().map(|input| &input[1..]).collect();
    let mut unaligned = [&[0x55], output.bytes.as_slice()].concat();
    kernel.run(&shifted, &mut unaligned[1..])?;
    assert!(bytes == unaligned[1..], "an unaligned run gives another result");

    for (i, input) in inputs.iter().enumerate().filter(|(_, input)| !input.is_empty()) {
        let mut short = inputs.clone();
        short[i] = &input[..input.len() - 1];
        let unread = matches!((op, i), ("CPY", 1) | ("SET_ROWS", 2));
        assert_eq!(kernel.run(&short, &mut output.bytes.clone()).is_ok(), unread, "input {i} cut short");
    }
    assert!(kernel.run(&inputs[1..], &mut output.bytes.clone()).is_err());
    if let [all @ .., _] = output.bytes.clone().as_mut_slice() {
        assert!(kernel.run(&inputs, all).is_err());
    }
    Ok(Data { tensor: output.tensor, bytes })
}

/// Runs a node and asserts that every element of its result is what `formula` gives in double precision: of the element's index, and
/// of the elements of the sources by slot and index.
pub fn assert_formula(
    op: &str,
    params: OpParams,
    output: Tensor,
    sources: &[&Data],
    tolerance: f64,
    formula: impl Fn([usize; 4], &dyn Fn(usize, [usize; 4]) -> f64) -> f64,
) {
    let given: Vec<_> = sources.iter().copied().map(Some).collect();
    let result = run(op, params, output, &given).unwrap();
    let values: Vec<_> = sources.iter().map(|source| source.values()).collect();
    let get = |slot: usize, index| sources[slot].get(&values[slot], index);
    assert_close(&result.values(), indices(output.ne).map(|index| formula(index, &get)), tolerance);
}

/// Asserts that every element is as expected or within `tolerance`, relative to the larger of 1 and the expected value.
pub fn assert_close(actual: &[f32], expected: impl IntoIterator<Item = f64>, tolerance: f64) {
    let mut count = 0;
    for (i, expected) in expected.into_iter().enumerate() {
        let found = f64::from(actual[i]);
        let close = found == expected || (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(close, "element {i} is {found}, expected {expected}");
        count += 1;
    }
    assert_eq!(count, actual.len());
}
