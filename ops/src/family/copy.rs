//! CPY, CONT, DUP: the same elements in another layout, another type, or another shape with equally many elements.
//!
//! The copy between two strided layouts does not care about the order of dimensions, so they are sorted by the strides of the
//! result and merged where both sides allow. What remains are rows of the result that are as long as possible: a contiguous
//! copy is one row, a transposition reads with a stride and writes without.

use super::prelude::*;
use crate::blocks;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] =
    &[&Copy { name: "CPY", sources: 2 }, &Copy { name: "CONT", sources: 1 }, &Copy { name: "DUP", sources: 1 }];

/// A conversion that is not a node of a graph, as the kernels made by [`convert`] call themselves.
const CONVERT: &str = "CONVERT";

const REASON: &str = "copies move data and compute nothing; the host does them in the same command list, unless machine \
                      code can do it as a dispatch";

struct Copy {
    name: &'static str,
    /// Sources a node has; the second is the memory of the result.
    sources: usize,
}

impl Operation for Copy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32, I32};
        addressable(self.name, node, self.sources)?;
        let (from, to) = (source(self.name, node, 0)?, &node.output);
        check_layout(self.name, from, to)?;
        if self.name == "CPY" && to.dtype.is_quantised() && !blocks::can_encode(to.dtype) {
            // ggml does not copy to such a type even from itself.
            return wrong_type(self.name, "the result", to.dtype, "types ggml's CPU backend can encode");
        }
        match (from.dtype, to.dtype) {
            (a, b) if a == b => Ok(()),
            (F32 | F16 | BF16, F32 | F16 | BF16) | (F32, I32) | (I32, F32) => Ok(()),
            (F32 | F16 | BF16, q) if blocks::can_encode(q) => Ok(()),
            (q, F32) if q.is_quantised() => Ok(()),
            (F32 | F16 | BF16, other) => wrong_type(
                self.name,
                "the result",
                other,
                "f32, f16, bf16, quantised; i32 from f32; the type of source 0",
            ),
            (other, _) => wrong_type(
                self.name,
                "source 0",
                other,
                "f32, f16, bf16; i32 and quantised to f32; the type of the result",
            ),
        }
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Host(REASON)
    }

    fn moves_data(&self) -> bool {
        true
    }

    fn array_type(&self, node: &Node, index: Option<usize>, _: DataType) -> DataType {
        own_type(node, index)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    /// Source 1 is there for its type and shape.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(1)
    }

    fn result_source(&self) -> Option<usize> {
        (self.sources == 2).then_some(1)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let from = source(self.name, node, 0)?;
        let plan = Plan::new(self.name, from, &node.output)?;
        Ok(kernel(node, Some(1), move |inputs, output| plan.run(inputs[0], output)))
    }
}

/// A copy from `from` to `to`, which have equally many elements: any strides, and any two types of f32, f16, bf16, i32 and
/// the quantised types, to those that [`blocks::can_encode`] knows, or the same type of any kind. Elements keep their order;
/// i32 truncates. The kernel has one input.
///
/// # Errors
/// [`Unsupported`] when the element counts differ, a tensor cannot be addressed, or a type is not known.
pub fn convert(from: &Tensor, to: &Tensor) -> Result<Arc<dyn HostFunction>, Unsupported> {
    let node = Node::new(CONVERT.to_owned(), OpParams::default(), *to, vec![Some(*from)]);
    addressable(CONVERT, &node, 1)?;
    check_layout(CONVERT, from, to)?;
    let plan = Plan::new(CONVERT, from, to)?;
    Ok(kernel(&node, None, move |inputs, output| plan.run(inputs[0], output)))
}

fn check_layout(op: &'static str, from: &Tensor, to: &Tensor) -> Result<(), Unsupported> {
    require(op, from.elements() == to.elements(), || {
        format!("source 0 has {} elements, the result {}; they must be equal", from.elements(), to.elements())
    })?;
    if from.dtype != to.dtype && from.dtype.is_quantised() {
        require(op, from.has_contiguous_rows(), || {
            "quantised rows with gaps can only be copied to the same type".to_owned()
        })?;
    }
    if from.dtype != to.dtype && to.dtype.is_quantised() {
        dense_rows(op, to)?;
    }
    Ok(())
}

/// A layout without a type: units of `size` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    size: usize,
    ne: [usize; 4],
    nb: [usize; 4],
}

impl Layout {
    /// A quantised tensor consists of blocks, any other of elements.
    fn of(tensor: &Tensor) -> Self {
        let mut ne = tensor.ne;
        ne[0] /= tensor.dtype.block_elements();
        Self { size: tensor.dtype.block_bytes(), ne, nb: tensor.nb }
    }
}

/// How a copy is done.
#[derive(Debug)]
enum Plan {
    /// Both sides have the same extents after sorting and merging.
    Strided(Strided),
    /// Both sides are strided and cut into rows differently: element by element.
    Reshaped { from: Tensor, to: Tensor },
    /// Rows of blocks become elements or the reverse. The first step is taken row by row, into the result when it has
    /// suitable rows, otherwise into a contiguous f32 tensor that a second plan copies.
    Blocks { from: Tensor, to: Tensor, name: &'static str },
    /// Two steps by way of a contiguous f32 tensor.
    Staged { first: Box<Plan>, bytes: usize, second: Box<Plan> },
}

#[derive(Debug)]
struct Strided {
    from: Layout,
    to: Layout,
    from_type: DataType,
    to_type: DataType,
    /// `to` as a tensor of a one-unit type, for handing out rows.
    rows: Tensor,
}

impl Plan {
    fn new(op: &'static str, from: &Tensor, to: &Tensor) -> Result<Self, Unsupported> {
        if from.dtype == to.dtype {
            return Ok(Self::plain(from, to));
        }
        let known = |tensor: &Tensor, coded: bool| is_plain(tensor.dtype) || coded;
        if !known(from, blocks::can_decode(from.dtype)) {
            return wrong_type(op, "source 0", from.dtype, "f32, f16, bf16, i32 and the quantised types");
        }
        if !known(to, blocks::can_encode(to.dtype)) {
            return wrong_type(
                op,
                "the result",
                to.dtype,
                "f32, f16, bf16, i32 and the types ggml's CPU backend can encode",
            );
        }
        let recoded = |from: Tensor, to: Tensor| Self::Blocks { from, to, name: op };
        match (from.dtype.is_quantised(), to.dtype.is_quantised()) {
            (false, false) => Ok(Self::plain(from, to)),
            _ if from.ne == to.ne && to.has_contiguous_rows() => Ok(recoded(*from, *to)),
            // The f32 between is contiguous, so it has the shape of either side.
            (coded, encoded) => {
                let [near, far] = [from, to].map(|tensor| Tensor::contiguous(DataType::F32, tensor.ne));
                let (first, second) = match (coded, encoded) {
                    (true, false) => (recoded(*from, near), Self::plain(&near, to)),
                    (false, _) => (Self::plain(from, &far), recoded(far, *to)),
                    (true, true) => (recoded(*from, near), recoded(far, *to)),
                };
                Ok(Self::Staged { first: Box::new(first), bytes: near.span_bytes(), second: Box::new(second) })
            }
        }
    }

    /// Between plain types, or of one type.
    fn plain(from: &Tensor, to: &Tensor) -> Self {
        let (mut a, mut b) = (*from, *to);
        if a.ne != b.ne {
            if a.is_contiguous() && b.ne[0].is_multiple_of(a.dtype.block_elements()) {
                a = Tensor::contiguous(a.dtype, b.ne);
            } else if b.is_contiguous() && a.ne[0].is_multiple_of(b.dtype.block_elements()) {
                b = Tensor::contiguous(b.dtype, a.ne);
            } else {
                return Self::Reshaped { from: a, to: b };
            }
        }
        let (mut from, mut to) = (Layout::of(&a), Layout::of(&b));
        arrange(&mut from, &mut to);
        // Any type of the unit's size would do; what counts is that a unit is one element.
        let rows = Tensor { dtype: unit_type(to.size), ne: to.ne, nb: to.nb };
        Self::Strided(Strided { from, to, from_type: a.dtype, to_type: b.dtype, rows })
    }

    fn run(&self, source: &[u8], output: &mut [u8]) -> Result<(), HostFunctionError> {
        match self {
            Self::Strided(plan) => plan.run(source, output),
            Self::Reshaped { from, to } => {
                reshape(from, to, source, output);
                Ok(())
            }
            Self::Blocks { from, to, name } => recode(name, from, to, source, output),
            Self::Staged { first, bytes, second } => {
                let mut middle = vec![0; *bytes];
                first.run(source, &mut middle)?;
                second.run(&middle, output)
            }
        }
    }
}

/// A type with units of `size` bytes for the sake of its size; blocks have none, their rows are handed out as bytes.
fn unit_type(size: usize) -> DataType {
    match size {
        2 => DataType::I16,
        4 => DataType::I32,
        8 => DataType::I64,
        _ => DataType::I8,
    }
}

/// Sorts the dimensions of both by the strides of `to`, smallest first, and merges neighbours that are one run on both sides.
fn arrange(from: &mut Layout, to: &mut Layout) {
    let mut dimensions: Vec<(usize, usize, usize)> =
        (0..4).filter(|&d| to.ne[d] != 1).map(|d| (to.nb[d], from.nb[d], to.ne[d])).collect();
    dimensions.sort_unstable();
    let mut merged: Vec<(usize, usize, usize)> = Vec::with_capacity(4);
    for (outer_to, outer_from, count) in dimensions {
        match merged.last_mut() {
            Some((to, from, inner)) if outer_to == *to * *inner && outer_from == *from * *inner => *inner *= count,
            _ => merged.push((outer_to, outer_from, count)),
        }
    }
    merged.resize(4, (0, 0, 1));
    for (d, (stride_to, stride_from, count)) in merged.into_iter().enumerate() {
        (to.nb[d], from.nb[d]) = (stride_to, stride_from);
        (to.ne[d], from.ne[d]) = (count, count);
    }
    // A single unit has no stride of its own.
    for layout in [from, to] {
        if layout.ne[0] == 1 {
            layout.nb[0] = layout.size;
        }
    }
}

impl Strided {
    fn run(&self, source: &[u8], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let (from, to) = (&self.from, &self.to);
        let units: usize = to.ne.iter().product();
        let same = self.from_type == self.to_type;
        let dense = to.nb[0] == to.size;
        if !dense || self.rows.dtype.block_bytes() != to.size {
            return self.run_in_order(source, output);
        }
        for_each_piece(
            &self.rows,
            output,
            units / if same { 8 } else { 2 },
            #[inline(always)]
            |scratch, row, start, target| {
                let [a, b, c] = row.0;
                let first = a * from.nb[1] + b * from.nb[2] + c * from.nb[3] + start * from.nb[0];
                let count = target.len() / to.size;
                if same {
                    copy_strided(from.size, from.nb[0], &source[first..], target);
                } else if from.nb[0] == from.size {
                    scratch.a.resize(count, 0.0);
                    load(self.from_type, &source[first..], &mut scratch.a);
                    store(self.to_type, &scratch.a, target);
                } else {
                    scratch.a.clear();
                    scratch.a.extend((0..count).map(|i| load_one(self.from_type, &source[first + i * from.nb[0]..])));
                    store(self.to_type, &scratch.a, target);
                }
                Ok(())
            },
        )
    }

    /// On one thread: rows of blocks, and results whose every dimension has gaps.
    fn run_in_order(&self, source: &[u8], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let (from, to) = (&self.from, &self.to);
        let same = self.from_type == self.to_type;
        let dense = same && to.nb[0] == to.size && from.nb[0] == from.size;
        for index in 0..to.ne[1] * to.ne[2] * to.ne[3] {
            let Row([a, b, c]) = Row::nth(&to.ne, index);
            let read = a * from.nb[1] + b * from.nb[2] + c * from.nb[3];
            let written = a * to.nb[1] + b * to.nb[2] + c * to.nb[3];
            if dense {
                let bytes = to.ne[0] * to.size;
                output[written..written + bytes].copy_from_slice(&source[read..read + bytes]);
                continue;
            }
            for i in 0..to.ne[0] {
                let unit = &source[read + i * from.nb[0]..][..from.size];
                let target = &mut output[written + i * to.nb[0]..][..to.size];
                if same {
                    target.copy_from_slice(unit);
                } else {
                    store(self.to_type, &[load_one(self.from_type, unit)], target);
                }
            }
        }
        Ok(())
    }
}

/// Element by element in the order of either side; types are plain or the same.
fn reshape(from: &Tensor, to: &Tensor, source: &[u8], output: &mut [u8]) {
    let (a, b) = (Layout::of(from), Layout::of(to));
    let offset = |layout: &Layout, index: usize| {
        let (mut rest, mut sum) = (index, 0);
        for d in 0..4 {
            sum += rest % layout.ne[d] * layout.nb[d];
            rest /= layout.ne[d];
        }
        sum
    };
    for index in 0..b.ne.iter().product() {
        let unit = &source[offset(&a, index)..][..a.size];
        let target = &mut output[offset(&b, index)..][..b.size];
        if from.dtype == to.dtype {
            target.copy_from_slice(unit);
        } else {
            store(to.dtype, &[load_one(from.dtype, unit)], target);
        }
    }
}

/// Decodes or encodes rows; extents are the same, and rows of the result have no gaps.
fn recode(
    name: &'static str,
    from: &Tensor,
    to: &Tensor,
    source: &[u8],
    output: &mut [u8],
) -> Result<(), HostFunctionError> {
    let length = to.ne[0];
    for_each_row(to, output, to.elements() * 4, |scratch, row, target| {
        let first = row.offset(from);
        let unknown = |what: &str, dtype: DataType| HostFunctionError::Data {
            kernel: name.to_owned(),
            reason: format!("a row of {length} elements of {dtype} could not be {what}"),
        };
        scratch.a.resize(length, 0.0);
        if !load_row(from, &source[first..], &mut scratch.a) {
            return Err(unknown("decoded", from.dtype));
        }
        if store(to.dtype, &scratch.a, target) { Ok(()) } else { Err(unknown("encoded", to.dtype)) }
    })
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
