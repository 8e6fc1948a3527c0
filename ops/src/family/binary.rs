//! ADD, SUB, MUL, DIV: the second source repeats to the shape of the first.

use super::cpu::element::{load, read, store, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::{for_each_piece, for_each_row};
use super::rules::{addressable, dense_rows, require, same_shape, source, wrong_type};
use crate::design::{Design, elementwise};
use crate::node::Node;
use crate::operation::{Environment, Flatten, Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, Kernel, KernelError};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[
    &Binary { name: "ADD", function: Function::Add },
    &Binary { name: "SUB", function: Function::Sub },
    &Binary { name: "MUL", function: Function::Mul },
    &Binary { name: "DIV", function: Function::Div },
];

#[derive(Debug, Clone, Copy)]
enum Function {
    Add,
    Sub,
    Mul,
    Div,
}

#[derive(Debug)]
struct Binary {
    name: &'static str,
    function: Function,
}

const COMBINATIONS: &str = "f32, f16 or bf16 alike, or f16/bf16 with f32 as source 1 and f32 or the type of source 0 as result";

impl Binary {
    fn check_types(&self, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32};
        match (a.dtype, b.dtype, out.dtype) {
            (F32, F32, F32) | (F16, F16, F16) | (BF16, BF16, BF16) => Ok(()),
            (F16 | BF16, F32, F32) | (F16, F32, F16) | (BF16, F32, BF16) => Ok(()),
            (x, F32, y) if matches!(self.function, Function::Add) && x.is_quantised() && (y == x || y == F32) => {
                same_shape(self.name, "quantised source 0", a, out)?;
                same_shape(self.name, "source 1 of a quantised sum", b, out)
            }
            (F32 | F16 | BF16, y, _) => wrong_type(self.name, "source 1 or the result", y, COMBINATIONS),
            (x, _, _) => wrong_type(self.name, "source 0", x, COMBINATIONS),
        }
    }
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(self.name, node, 2)?;
        let (a, b) = (source(self.name, node, 0)?, source(self.name, node, 1)?);
        self.check_types(a, b, &node.output)?;
        same_shape(self.name, "source 0", a, &node.output)?;
        require(self.name, b.repeats_to(a), || {
            format!("source 1 with extents {:?} does not repeat to {:?}; each extent must divide", b.ne, a.ne)
        })?;
        dense_rows(self.name, &node.output)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn flatten(&self) -> Flatten {
        Flatten::SameShape
    }

    fn array_type(&self, _: &Node, _: Option<usize>, default: DataType) -> DataType {
        if default.is_quantised() { DataType::F32 } else { default }
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(self.name, node, arch)
    }

    fn reference(&self, node: &Node, environment: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        let (Some(a), Some(b)) = (Argument::of(node, 0), Argument::of(node, 1)) else {
            unreachable!("check finds both sources");
        };
        if a.tensor.dtype.is_quantised() {
            return quantised_sum(node, a, b, environment);
        }
        Ok(match self.function {
            Function::Add => plain(node, a, b, |x, y| x + y),
            Function::Sub => plain(node, a, b, |x, y| x - y),
            Function::Mul => plain(node, a, b, |x, y| x * y),
            Function::Div => plain(node, a, b, |x, y| x / y),
        })
    }
}

/// All tensors as one row, when that changes nothing.
fn flattened(a: &mut Argument, b: &mut Argument, output: &mut Tensor) {
    let tensors = [&mut a.tensor, &mut b.tensor, output];
    if tensors.iter().all(|t| t.is_contiguous() && t.ne == tensors[0].ne) {
        for tensor in tensors {
            *tensor = Tensor::contiguous(tensor.dtype, [tensor.elements(), 1, 1, 1]);
        }
    }
}

fn plain<F>(node: &Node, mut a: Argument, mut b: Argument, function: F) -> Arc<dyn Kernel>
where
    F: Fn(f32, f32) -> f32 + Copy + Send + Sync + 'static,
{
    let mut out = node.output;
    flattened(&mut a, &mut b, &mut out);
    kernel(node, None, move |inputs, output| {
        for_each_piece(
            &out,
            output,
            out.elements(),
            #[inline(always)]
            |scratch, row, start, target| {
                let length = target.len() / out.dtype.block_bytes();
                let x = read(&a.tensor, inputs[a.position], row.offset(&a.tensor), start, length, &mut scratch.a);
                let period = b.tensor.ne[0];
                let same = period == out.ne[0];
                let (b_start, b_length) = if same { (start, length) } else { (0, period) };
                let y = row.offset_repeated(&b.tensor);
                let y = read(&b.tensor, inputs[b.position], y, b_start, b_length, &mut scratch.b);
                write(
                    out.dtype,
                    target,
                    &mut scratch.out,
                    #[inline(always)]
                    |z| {
                        if same {
                            for ((z, x), y) in z.iter_mut().zip(x).zip(y) {
                                *z = function(*x, *y);
                            }
                        } else if let [y] = *y {
                            for (z, x) in z.iter_mut().zip(x) {
                                *z = function(*x, y);
                            }
                        } else {
                            // Pieces of long rows start anywhere in the period.
                            let repeated = y.iter().cycle().skip(start % period);
                            for ((z, x), y) in z.iter_mut().zip(x).zip(repeated) {
                                *z = function(*x, *y);
                            }
                        }
                    },
                );
                Ok(())
            },
        )
    })
}

/// ggml adds f32 to quantised blocks by decoding, adding and encoding row by row.
fn quantised_sum(node: &Node, a: Argument, b: Argument, environment: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
    let (codec, out) = (environment.codec.clone(), node.output);
    if !codec.can_decode(a.tensor.dtype) {
        return wrong_type("ADD", "source 0", a.tensor.dtype, "the types the host can decode");
    }
    if out.dtype.is_quantised() && !codec.can_encode(out.dtype) {
        return wrong_type("ADD", "the result", out.dtype, "the types the host can encode");
    }
    Ok(kernel(node, None, move |inputs, output| {
        for_each_row(&out, output, out.elements() * 8, |scratch, row, target| {
            let length = out.ne[0];
            scratch.a.resize(length, 0.0);
            let blocks = &inputs[a.position][row.offset(&a.tensor)..];
            let failed = |what: &str| KernelError::Data { kernel: "ADD".into(), reason: format!("a row could not be {what}") };
            if !load(&*codec, a.tensor.dtype, blocks, &mut scratch.a) {
                return Err(failed("decoded"));
            }
            let y = read(&b.tensor, inputs[b.position], row.offset(&b.tensor), 0, length, &mut scratch.b);
            for (x, y) in scratch.a.iter_mut().zip(y) {
                *x += y;
            }
            if store(&*codec, out.dtype, &scratch.a, target) { Ok(()) } else { Err(failed("encoded")) }
        })
    }))
}
