//! Kernels that make elements of the result from the elements of the sources at the same place, by rows or by pieces of them.

use super::element::{read, read_row, write};
use super::kernel::{KernelInput, arguments, kernel};
use super::rows::{Row, Scratch, for_each_piece, for_each_row, vectorised};
use crate::node::Node;
use crate::tensor::Tensor;
use aie_hal::{HostFunction, HostFunctionError};
use std::sync::Arc;

/// A kernel that applies `function` to each element of source 0. `cost` is the work per element, an addition being 1.
pub fn map<F>(node: &Node, cost: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(f32) -> f32 + Copy + Send + Sync + 'static,
{
    map_pieces(
        node,
        arguments(node).map(|a| (a, 0)),
        cost,
        #[inline(always)]
        move |_, [x], y| {
            for (y, x) in y.iter_mut().zip(x) {
                *y = function(*x);
            }
        },
    )
}

/// Makes all tensors one row each, when that changes nothing.
pub fn as_one_row(tensors: &mut [&mut Tensor]) {
    let ne = tensors[0].ne;
    if tensors.iter().all(|tensor| tensor.is_contiguous() && tensor.ne == ne) {
        for tensor in tensors {
            **tensor = Tensor::contiguous(tensor.dtype, [tensor.elements(), 1, 1, 1]);
        }
    }
}

/// Fills `z` from `x` and `y`, which repeats: `z` begins at position `start` of it.
#[inline(always)]
pub fn combine_runs<T: Copy>(z: &mut [T], x: &[T], y: &[T], start: usize, function: impl Fn(T, T) -> T) {
    if let [y] = *y {
        for (z, x) in z.iter_mut().zip(x) {
            *z = function(*x, y);
        }
    } else if start == 0 && y.len() >= z.len() {
        for ((z, x), y) in z.iter_mut().zip(x).zip(y) {
            *z = function(*x, *y);
        }
    } else {
        // Pieces of long rows start anywhere in the period.
        let repeated = y.iter().cycle().skip(start % y.len().max(1));
        for ((z, x), y) in z.iter_mut().zip(x).zip(repeated) {
            *z = function(*x, *y);
        }
    }
}

/// A kernel whose `function` fills runs of the result from runs of at most two sources, given the position of the run in its row.
/// Sources have as many rows as the result; beside each stands the element of its rows that belongs to the result's first. `cost`
/// is the work per element.
pub fn map_pieces<const N: usize, F>(
    node: &Node,
    sources: [(KernelInput, usize); N],
    cost: usize,
    function: F,
) -> Arc<dyn HostFunction>
where
    F: Fn(usize, [&[f32]; N], &mut [f32]) + Send + Sync + 'static,
{
    pieces(
        node,
        sources,
        cost,
        Box::new(move |start, sources, y| {
            vectorised(
                #[inline(always)]
                || function(start, sources, y),
            );
        }),
    )
}

type PieceFunction<const N: usize> = dyn Fn(usize, [&[f32]; N], &mut [f32]) + Send + Sync;

/// [`map_pieces`], compiled once for all functions: only their loops are compiled for each of them and each vector unit.
fn pieces<const N: usize>(
    node: &Node,
    mut sources: [(KernelInput, usize); N],
    cost: usize,
    function: Box<PieceFunction<N>>,
) -> Arc<dyn HostFunction> {
    let mut out = node.output;
    as_one_row(&mut sources.iter_mut().map(|(source, _)| &mut source.tensor).chain([&mut out]).collect::<Vec<_>>());
    kernel(node, None, move |inputs, output| {
        for_each_piece(
            &out,
            output,
            out.elements() * cost,
            #[inline(always)]
            |Scratch { a, b, out: result }, row, start, target| {
                let length = target.len() / out.dtype.block_bytes();
                let mut free = [a, b].into_iter();
                let sources = sources.map(
                    #[inline(always)]
                    |(KernelInput { position, tensor }, first)| {
                        let scratch = free.next().expect("there are at most two sources");
                        read(&tensor, inputs[position], row.offset(&tensor), first + start, length, scratch)
                    },
                );
                write(
                    out.dtype,
                    target,
                    result,
                    #[inline(always)]
                    |y| function(start, sources, y),
                );
                Ok(())
            },
        )
    })
}

/// A kernel whose `function` fills each row of the result from the rows of the first `N` sources, at most two, which repeat
/// where they have fewer. `work` is the number of element-operations of the whole.
pub fn map_rows<const N: usize, F>(node: &Node, work: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(Row, [&[f32]; N], &mut [f32]) + Send + Sync + 'static,
{
    let (out, sources) = (node.output, arguments(node));
    kernel(node, None, move |inputs, output| fill_rows(&out, output, work, inputs, &sources, &function))
}

/// A kernel whose `function` fills the bytes of each row of the result, laid out as `out`, from the same row of source 0. `work` is as
/// for [`map_rows`].
pub fn map_row_bytes<F>(node: &Node, out: Tensor, work: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(&[f32], &mut [u8]) + Send + Sync + 'static,
{
    let [a] = arguments(node);
    kernel(node, None, move |inputs, output| {
        for_each_row(
            &out,
            output,
            work,
            #[inline(always)]
            |scratch, row, target| {
                function(read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a), target);
                Ok(())
            },
        )
    })
}

/// What a kernel of [`map_rows`] does when it runs.
///
/// # Errors
/// None; the type is that of a kernel's body.
#[inline(always)]
pub fn fill_rows<const N: usize>(
    out: &Tensor,
    output: &mut [u8],
    work: usize,
    inputs: &[&[u8]],
    sources: &[KernelInput; N],
    function: impl Fn(Row, [&[f32]; N], &mut [f32]) + Sync,
) -> Result<(), HostFunctionError> {
    for_each_row(
        out,
        output,
        work,
        #[inline(always)]
        |Scratch { a, b, out: result }, row, target| {
            let mut free = [a, b].into_iter();
            let sources = sources.each_ref().map(
                #[inline(always)]
                |source| {
                    let scratch = free.next().expect("there are at most two sources");
                    read_row(source, inputs, row.offset_repeated(&source.tensor), scratch)
                },
            );
            write(
                out.dtype,
                target,
                result,
                #[inline(always)]
                |y| function(row, sources, y),
            );
            Ok(())
        },
    )
}
