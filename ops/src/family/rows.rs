//! GET_ROWS and SET_ROWS: gather and scatter of rows by an index tensor, converting types on the way.

use super::copy::NOT_ENCODED;
use super::cpu::element::{is_plain, load, load_one, store};
use super::cpu::kernel::{Argument, kernel, out_of_range};
use super::cpu::rows::{Row, for_each_row, vectorised};
use super::rules::{FLOATS, addressable, dense_rows, require, source, wrong_type};
use crate::codec::BlockCodec;
use crate::design::{Design, rowwise};
use crate::node::Node;
use crate::operation::{Environment, Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, Kernel, KernelError};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&GetRows, &SetRows];

const GET: &str = "GET_ROWS";
const SET: &str = "SET_ROWS";
const REASON: &str = "which rows are moved is known only when the graph runs; the host does it in the same command list";

#[derive(Debug)]
struct GetRows;

#[derive(Debug)]
struct SetRows;

fn check_indices(op: &'static str, indices: &Tensor) -> Result<(), Unsupported> {
    match indices.dtype {
        DataType::I32 | DataType::I64 => require(op, indices.ne[3] == 1, || "indices have four dimensions, at most three are possible".into()),
        other => wrong_type(op, "the indices", other, "i32, i64"),
    }
}

/// Rows of this tensor can be read one by one.
fn check_readable(op: &'static str, tensor: &Tensor) -> Result<(), Unsupported> {
    let dense = !tensor.dtype.is_quantised() || tensor.has_contiguous_rows();
    require(op, dense, || "quantised rows of source 0 have gaps; they must be contiguous".into())
}

impl Operation for GetRows {
    fn name(&self) -> &'static str {
        GET
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(GET, node, 2)?;
        let (a, indices, out) = (source(GET, node, 0)?, source(GET, node, 1)?, &node.output);
        check_indices(GET, indices)?;
        check_readable(GET, a)?;
        match (a.dtype, out.dtype) {
            (DataType::I32, DataType::I32) => {}
            (x, DataType::F32) if x.is_quantised() || FLOATS.contains(&x) => {}
            (DataType::I32, y) => return wrong_type(GET, "the result", y, "i32"),
            (x, y) if x.is_quantised() || FLOATS.contains(&x) => return wrong_type(GET, "the result", y, "f32"),
            (x, _) => return wrong_type(GET, "source 0", x, "f32, f16, bf16, i32, quantised"),
        }
        let expected = [a.ne[0], indices.ne[0], indices.ne[1], indices.ne[2]];
        require(GET, out.ne == expected, || format!("the result has extents {:?}, not {expected:?}", out.ne))?;
        let [_, _, second, third] = a.ne;
        require(GET, indices.ne[1] == second && indices.ne[2] == third, || {
            format!("indices with extents {:?} do not fit rows with outer extents {second} x {third}", indices.ne)
        })?;
        dense_rows(GET, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Host(REASON)
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        rowwise(GET, node, arch, 1)
    }

    fn reference(&self, node: &Node, environment: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        let (Some(a), Some(indices)) = (Argument::of(node, 0), Argument::of(node, 1)) else {
            unreachable!("check finds both sources");
        };
        let (out, codec) = (node.output, environment.codec.clone());
        if a.tensor.dtype.is_quantised() && !codec.can_decode(a.tensor.dtype) {
            return wrong_type(GET, "source 0", a.tensor.dtype, "the types the host can decode");
        }
        let work = out.elements() / if a.tensor.dtype.is_quantised() { 1 } else { 4 };
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(&out, output, work, |scratch, Row([i, second, third]), target| {
                let chosen = index(&indices.tensor, inputs[indices.position], [i, second, third]);
                let Some(row) = usize::try_from(chosen).ok().filter(|&row| row < a.tensor.ne[1]) else {
                    return Err(out_of_range(GET, "row", chosen, a.tensor.ne[1]));
                };
                let first = Row([row, second, third]).offset(&a.tensor);
                let bytes = &inputs[a.position][first..];
                move_row(GET, &*codec, &a.tensor, bytes, out.dtype, target, &mut scratch.a)
            })
        }))
    }
}

impl Operation for SetRows {
    fn name(&self) -> &'static str {
        SET
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(SET, node, 3)?;
        let (a, indices, out) = (source(SET, node, 0)?, source(SET, node, 1)?, &node.output);
        check_indices(SET, indices)?;
        match (a.dtype, out.dtype) {
            (DataType::F32 | DataType::F16, y) if FLOATS.contains(&y) => {}
            (DataType::F32 | DataType::F16, y) if y.is_quantised() && !NOT_ENCODED.contains(&y) => {}
            (DataType::F32 | DataType::F16, y) => {
                return wrong_type(SET, "the result", y, "f32, f16, bf16 and the types ggml's CPU backend can encode");
            }
            (x, _) => return wrong_type(SET, "source 0", x, "f32, f16"),
        }
        require(SET, a.ne[0] == out.ne[0] && a.ne[2] == out.ne[2] && a.ne[3] == out.ne[3], || {
            format!("rows with extents {:?} do not fit a result with {:?}", a.ne, out.ne)
        })?;
        let repeats = |outer: usize, extent: usize| outer == 0 || extent > 0 && outer.is_multiple_of(extent);
        let fits = indices.ne[0] == a.ne[1] && repeats(a.ne[2], indices.ne[1]) && repeats(a.ne[3], indices.ne[2]);
        require(SET, fits, || format!("indices with extents {:?} do not fit rows with {:?}", indices.ne, a.ne))?;
        dense_rows(SET, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Host(REASON)
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        rowwise(SET, node, arch, 1)
    }

    fn reference(&self, node: &Node, environment: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        let (Some(a), Some(indices)) = (Argument::of(node, 0), Argument::of(node, 1)) else {
            unreachable!("check finds both sources");
        };
        let (out, codec) = (node.output, environment.codec.clone());
        if out.dtype.is_quantised() && !codec.can_encode(out.dtype) {
            return wrong_type(SET, "the result", out.dtype, "the types the host can encode");
        }
        let span = out.dtype.row_bytes(out.ne[0]);
        Ok(kernel(node, Some(2), move |inputs, output| {
            // In order and on one thread: of two equal indices the later row stays.
            vectorised(
                #[inline(always)]
                || {
                    let mut scratch = Vec::new();
                    for third in 0..a.tensor.ne[3] {
                        for second in 0..a.tensor.ne[2] {
                            let wrapped = [second % indices.tensor.ne[1], third % indices.tensor.ne[2]];
                            for i in 0..a.tensor.ne[1] {
                                let chosen = index(&indices.tensor, inputs[indices.position], [i, wrapped[0], wrapped[1]]);
                                let Some(row) = usize::try_from(chosen).ok().filter(|&row| row < out.ne[1]) else {
                                    return Err(out_of_range(SET, "row", chosen, out.ne[1]));
                                };
                                let bytes = &inputs[a.position][Row([i, second, third]).offset(&a.tensor)..];
                                let first = Row([row, second, third]).offset(&out);
                                let target = &mut output[first..first + span];
                                move_row(SET, &*codec, &a.tensor, bytes, out.dtype, target, &mut scratch)?;
                            }
                        }
                    }
                    Ok(())
                },
            )
        }))
    }
}

/// One index.
#[inline(always)]
fn index(indices: &Tensor, bytes: &[u8], [i, second, third]: [usize; 3]) -> i64 {
    let at = &bytes[i * indices.nb[0] + second * indices.nb[1] + third * indices.nb[2]..];
    if indices.dtype == DataType::I32 {
        i64::from(i32::from_le_bytes([at[0], at[1], at[2], at[3]]))
    } else {
        i64::from_le_bytes([at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]])
    }
}

/// Copies one row that starts at `bytes` to `target`, which has no gaps, converting it when the types differ.
#[inline(always)]
fn move_row(
    name: &'static str,
    codec: &dyn BlockCodec,
    from: &Tensor,
    bytes: &[u8],
    to: DataType,
    target: &mut [u8],
    scratch: &mut Vec<f32>,
) -> Result<(), KernelError> {
    let (length, size) = (from.ne[0], from.dtype.block_bytes());
    let dense = length <= from.dtype.block_elements() || from.nb[0] == size;
    if length == 1 && is_plain(from.dtype) && is_plain(to) && from.dtype != to {
        // A transposed cache is written element by element; the general way would cost more than the element.
        store(codec, to, &[load_one(from.dtype, bytes)], target);
        return Ok(());
    }
    if from.dtype == to {
        if dense {
            target.copy_from_slice(&bytes[..target.len()]);
        } else {
            for (i, unit) in target.chunks_exact_mut(size).enumerate() {
                unit.copy_from_slice(&bytes[i * from.nb[0]..][..size]);
            }
        }
        return Ok(());
    }
    scratch.resize(length, 0.0);
    let loaded = if dense {
        load(codec, from.dtype, bytes, scratch)
    } else {
        for (i, value) in scratch.iter_mut().enumerate() {
            *value = load_one(from.dtype, &bytes[i * from.nb[0]..]);
        }
        true
    };
    if loaded && store(codec, to, scratch, target) {
        return Ok(());
    }
    let reason = format!("the codec did not convert a row of {length} elements from {} to {to}", from.dtype);
    Err(KernelError::Data { kernel: name.to_owned(), reason })
}
