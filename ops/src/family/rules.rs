//! The rules several operations share.

use crate::node::{Node, OpParams, Unsupported};
use crate::tensor::{DataType, Tensor};

/// Types a float operand can have.
pub const FLOATS: &[DataType] = &[DataType::F32, DataType::F16, DataType::BF16];

/// The rule `reason` is broken.
pub fn shape<T>(op: &'static str, reason: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported::Shape { op, reason: reason.into() })
}

/// `Ok` when `condition` holds, else the broken rule.
pub fn require(op: &'static str, condition: bool, reason: impl FnOnce() -> String) -> Result<(), Unsupported> {
    if condition { Ok(()) } else { shape(op, reason()) }
}

/// A tensor has a type the operation does not take.
pub fn wrong_type<T>(
    op: &'static str,
    operand: impl Into<String>,
    dtype: DataType,
    possible: &'static str,
) -> Result<T, Unsupported> {
    Err(Unsupported::Type { op, operand: operand.into(), dtype, possible })
}

/// The type of `tensor` is `dtype`.
pub fn typed(op: &'static str, operand: &str, tensor: &Tensor, dtype: DataType) -> Result<(), Unsupported> {
    if tensor.dtype == dtype { Ok(()) } else { wrong_type(op, operand, tensor.dtype, dtype.name()) }
}

/// `tensor` has a float type.
pub fn float(op: &'static str, operand: &str, tensor: &Tensor) -> Result<(), Unsupported> {
    if FLOATS.contains(&tensor.dtype) { Ok(()) } else { wrong_type(op, operand, tensor.dtype, "f32, f16, bf16") }
}

/// The type of all sources and of the result is `dtype`.
pub fn all_of_type(op: &'static str, node: &Node, dtype: DataType) -> Result<(), Unsupported> {
    for (slot, tensor) in node.inputs().enumerate() {
        typed(op, &format!("source {slot}"), tensor, dtype)?;
    }
    typed(op, "the result", &node.output, dtype)
}

/// The type of source 0 is one of `types`, which are `possible` in words, and all other tensors have the same.
pub fn same_types(
    op: &'static str,
    node: &Node,
    types: &[DataType],
    possible: &'static str,
) -> Result<(), Unsupported> {
    let dtype = source(op, node, 0)?.dtype;
    if !types.contains(&dtype) {
        return wrong_type(op, "source 0", dtype, possible);
    }
    let rest = node.inputs().enumerate().skip(1).map(|(slot, tensor)| (format!("source {slot}"), tensor));
    match rest.chain([("the result".to_owned(), &node.output)]).find(|(_, tensor)| tensor.dtype != dtype) {
        Some((operand, tensor)) => wrong_type(op, operand, tensor.dtype, "the type of source 0"),
        None => Ok(()),
    }
}

/// Parameters that begin with `words`; the others are 0.
pub fn words<const N: usize>(words: [i32; N]) -> OpParams {
    OpParams(std::array::from_fn(|word| words.get(word).copied().unwrap_or(0)))
}

/// Source `index`, which must be there.
pub fn source<'a>(op: &'static str, node: &'a Node, index: usize) -> Result<&'a Tensor, Unsupported> {
    match node.source(index) {
        Some(tensor) => Ok(tensor),
        None => shape(op, format!("source {index} is missing")),
    }
}

/// The sources of an operation that has `N` of them, all present and [`addressable`].
pub fn sources<'n, const N: usize>(op: &'static str, node: &'n Node) -> Result<[&'n Tensor; N], Unsupported> {
    addressable(op, node, N)?;
    let mut sources = [&node.output; N];
    for (slot, tensor) in sources.iter_mut().enumerate() {
        *tensor = source(op, node, slot)?;
    }
    Ok(sources)
}

/// As [`sources`], of which, and the result, f32 is the only type.
pub fn f32_sources<'n, const N: usize>(op: &'static str, node: &'n Node) -> Result<[&'n Tensor; N], Unsupported> {
    let sources = sources(op, node)?;
    all_of_type(op, node, DataType::F32)?;
    Ok(sources)
}

/// As [`sources`], which have [`same_types`].
pub fn alike<'n, const N: usize>(
    op: &'static str,
    node: &'n Node,
    types: &[DataType],
    possible: &'static str,
) -> Result<[&'n Tensor; N], Unsupported> {
    let sources = sources(op, node)?;
    same_types(op, node, types, possible)?;
    Ok(sources)
}

/// At most `count` sources, and every tensor is well formed ([`Tensor::validate`]).
pub fn addressable(op: &'static str, node: &Node, count: usize) -> Result<(), Unsupported> {
    let given = node.sources.len();
    require(op, given <= count, || format!("{given} sources given, at most {count} possible"))?;
    node.arguments().try_for_each(Tensor::validate).or_else(|error| shape(op, error.to_string()))
}

/// The result's rows have no gaps.
pub fn dense_rows(op: &'static str, tensor: &Tensor) -> Result<(), Unsupported> {
    require(op, tensor.has_contiguous_rows(), || {
        format!("rows of the result have gaps (stride {}); they must be contiguous", tensor.nb[0])
    })
}

/// The result's rows have no gaps and do not interleave, so that they can be written independently.
pub fn separate_rows(op: &'static str, tensor: &Tensor) -> Result<(), Unsupported> {
    dense_rows(op, tensor)?;
    let mut end = tensor.dtype.row_bytes(tensor.ne[0]);
    let mut outer: Vec<(usize, usize)> =
        (1..4).filter(|&d| tensor.ne[d] > 1).map(|d| (tensor.nb[d], tensor.ne[d])).collect();
    outer.sort_unstable();
    for (stride, extent) in outer {
        require(op, stride >= end, || format!("rows of the result overlap (strides {:?})", tensor.nb))?;
        end += (extent - 1) * stride;
    }
    Ok(())
}

/// The rows of `operand` follow each other at equal distances. Some of ggml's CPU functions count on it and do not check.
pub fn even_rows(op: &'static str, operand: &str, tensor: &Tensor) -> Result<(), Unsupported> {
    let even = |d: usize| tensor.ne[d] <= 1 || tensor.nb[d] == tensor.ne[d - 1] * tensor.nb[d - 1];
    require(op, even(2) && even(3), || {
        let Tensor { ne, nb, .. } = tensor;
        format!("rows of {operand} lie at uneven distances (extents {ne:?}, strides {nb:?}); make it contiguous")
    })
}

/// Two tensors have the same extents.
pub fn same_shape(op: &'static str, what: &str, a: &Tensor, b: &Tensor) -> Result<(), Unsupported> {
    require(op, a.same_shape(b), || format!("{what} has extents {:?}, the result {:?}; they must be equal", a.ne, b.ne))
}

/// `tensor` has the extents that are `expected`.
pub fn has_shape(op: &'static str, what: &str, tensor: &Tensor, expected: [usize; 4]) -> Result<(), Unsupported> {
    require(op, tensor.ne == expected, || format!("{what} has extents {:?}, not {expected:?}", tensor.ne))
}

/// The result holds `outputs` elements and behind them, for each sequence, as many states as word 0 says: `state` has the
/// extents of one and the number of sequences.
pub fn outputs_and_states(op: &'static str, node: &Node, outputs: usize, state: [usize; 4]) -> Result<(), Unsupported> {
    let slots = node.params.int(0);
    require(op, slots >= 1, || format!("{slots} states are to be kept for each sequence; at least 1 is needed"))?;
    let states = state.into_iter().try_fold(slots.unsigned_abs() as usize, usize::checked_mul);
    let expected = states.and_then(|states| states.checked_add(outputs));
    let elements = node.output.elements();
    require(op, expected == Some(elements) && node.output.is_contiguous(), || {
        format!("the result has {elements} elements; it must hold outputs and states without gaps")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::ordinary(Tensor::contiguous(DataType::F16, [5, 4, 3, 2]), 1, true)]
    #[case::empty(Tensor::contiguous(DataType::F16, [5, 0, 3, 2]), 1, true)]
    #[case::too_many_sources(Tensor::contiguous(DataType::F16, [5, 0, 3, 2]), 0, false)]
    #[case::huge(Tensor { dtype: DataType::F32, ne: [4, 2, 1, 1], nb: [4, usize::MAX, 4, 4] }, 1, false)]
    #[case::broken_blocks(Tensor { dtype: DataType::Q4_0, ne: [33, 1, 1, 1], nb: [18; 4] }, 1, false)]
    fn sources_are_counted_and_well_formed(#[case] tensor: Tensor, #[case] most: usize, #[case] accepted: bool) {
        let node = Node::new("DUP", OpParams::default(), tensor, vec![Some(tensor)]);
        assert_eq!(addressable("DUP", &node, most).is_ok(), accepted);
    }
}
