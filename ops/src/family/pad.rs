//! PAD: a tensor with a border of zeros, or of itself as if it lay on a torus. PAD_REFLECT_1D: rows continued at both ends by
//! their mirror image, without the end itself.
//!
//! Words 0 to 7 of PAD's parameters are the widths before and after each dimension, innermost first; a negative width cuts off.
//! Word 8 asks for the circular form (ggml.h, `ggml_pad_ext_circular`).

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Pad, &Reflect];

const PAD: &str = "PAD";
const REFLECT: &str = "PAD_REFLECT_1D";

struct Pad;

/// Widths before and after each dimension.
fn widths(node: &Node) -> [[i32; 2]; 4] {
    std::array::from_fn(|d| [node.params.int(2 * d), node.params.int(2 * d + 1)])
}

fn circular(node: &Node) -> bool {
    node.params.int(8) != 0
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        PAD
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(PAD, node)?, &node.output);
        for (d, widths) in widths(node).into_iter().enumerate() {
            let [before, after] = widths.map(i128::from);
            let (from, to) = (a.ne[d] as i128, out.ne[d] as i128);
            require(PAD, from + before + after == to, || {
                format!("dimension {d} has {from} elements, {before} before and {after} after, but the result has {to}")
            })?;
            require(PAD, !circular(node) || before <= from && after <= from, || {
                format!(
                    "dimension {d} of {from} elements cannot wrap around {before} before and {after} after; at most once"
                )
            })?;
        }
        dense_rows(PAD, out)
    }

    /// A negative width cuts off.
    fn needs_all(&self, node: &Node, index: Option<usize>) -> bool {
        index.is_none() || widths(node).iter().flatten().all(|width| *width >= 0)
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        Ok(moved(node, widths(node).map(|[before, _]| before as isize), circular(node)))
    }
}

/// Source 0 behind `before` elements in each dimension: elements of its other end if `circular`, else zeros.
pub fn moved(node: &Node, before: [isize; 4], circular: bool) -> Arc<dyn HostFunction> {
    let ([a], out) = (arguments(node), node.output);
    kernel(node, None, move |inputs, output| {
        let bytes = inputs[a.position];
        for_each_row(
            &out,
            output,
            out.elements() / 4,
            #[inline(always)]
            |_, row, target| {
                let mut offset = Some(0_usize);
                for (d, index) in (1..4).zip(row.0) {
                    let place = place(index, before[d], a.tensor.ne[d], circular);
                    offset = offset.zip(place).map(|(sum, index)| sum + index * a.tensor.nb[d]);
                }
                match offset {
                    None => target.fill(0),
                    Some(offset) if circular => wrapped(&a.tensor, bytes, offset, before[0], target),
                    Some(offset) => bordered(&a.tensor, bytes, offset, before[0], target),
                }
                Ok(())
            },
        )
    })
}

/// The index in a source of `extent` for `index` of the result, if it is not in a border.
#[inline(always)]
fn place(index: usize, before: isize, extent: usize, circular: bool) -> Option<usize> {
    let index = index.cast_signed() - before;
    if circular {
        return Some(index.rem_euclid(extent.cast_signed()).cast_unsigned());
    }
    usize::try_from(index).ok().filter(|index| *index < extent)
}

/// A row between zeros.
#[inline(always)]
fn bordered(a: &Tensor, bytes: &[u8], offset: usize, before: isize, target: &mut [u8]) {
    let left = before.max(0).cast_unsigned().min(target.len() / 4);
    let skipped = (-before).max(0).cast_unsigned().min(a.ne[0]);
    let (zeros, rest) = target.split_at_mut(left * 4);
    let kept = (a.ne[0] - skipped).min(rest.len() / 4);
    let (middle, tail) = rest.split_at_mut(kept * 4);
    zeros.fill(0);
    copy_run(a, bytes, offset, skipped, middle);
    tail.fill(0);
}

/// A row that begins `before` elements before its first and continues from its start when it ends.
#[inline(always)]
fn wrapped(a: &Tensor, bytes: &[u8], offset: usize, before: isize, target: &mut [u8]) {
    let mut position = (-before).rem_euclid(a.ne[0].cast_signed()).cast_unsigned();
    let mut rest = target;
    while !rest.is_empty() {
        let count = (a.ne[0] - position).min(rest.len() / 4);
        let (run, tail) = rest.split_at_mut(count * 4);
        copy_run(a, bytes, offset, position, run);
        (rest, position) = (tail, 0);
    }
}

struct Reflect;

impl Operation for Reflect {
    fn name(&self) -> &'static str {
        REFLECT
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(REFLECT, node)?, &node.output);
        let widths = [node.params.int(0), node.params.int(1)];
        let shorter = widths.map(|width| usize::try_from(width).ok().filter(|width| *width < a.ne[0]));
        let [Some(before), Some(after)] = shorter else {
            return shape(REFLECT, format!("{widths:?} beside rows of {}; at least 0 and less", a.ne[0]));
        };
        require(REFLECT, a.ne[0] + before + after == out.ne[0] && a.ne[1..] == out.ne[1..], || {
            format!("extents {:?} with {before} before and {after} after are not the result's {:?}", a.ne, out.ne)
        })?;
        dense_rows(REFLECT, out)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |row| Tensor::contiguous(dtype, [row, 8, 2, 1]);
        let params = words([10, 10]);
        vec![Node::new(REFLECT, params, tensor(532), vec![Some(tensor(512))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let before = node.params.int(0).max(0) as usize;
        Ok(map_rows(
            node,
            node.output.elements() / 2,
            #[inline(always)]
            move |_, [x], y| {
                let (left, rest) = y.split_at_mut(before);
                let (middle, right) = rest.split_at_mut(x.len());
                middle.copy_from_slice(x);
                for (y, x) in left.iter_mut().rev().zip(&x[1..]) {
                    *y = *x;
                }
                for (y, x) in right.iter_mut().zip(x.iter().rev().skip(1)) {
                    *y = *x;
                }
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn params(widths: [[i32; 2]; 4], circular: bool) -> OpParams {
        OpParams(std::array::from_fn(|word| match word {
            0..8 => widths[word / 2][word % 2],
            8 => i32::from(circular),
            _ => 0,
        }))
    }

    fn padded(ne: [usize; 4], widths: [[i32; 2]; 4]) -> Tensor {
        f32s(std::array::from_fn(|d| (ne[d] as i32 + widths[d][0] + widths[d][1]) as usize))
    }

    #[rstest]
    #[case::after([[0, 3], [0, 2], [0, 0], [0, 0]])]
    #[case::everywhere([[1, 2], [3, 4], [3, 2], [1, 3]])]
    #[case::wide([[11, 11], [5, 5], [4, 4], [3, 3]])]
    #[case::none([[0, 0]; 4])]
    #[case::cut([[-2, 3], [1, -1], [-1, -1], [0, 0]])]
    fn is_the_definition(
        #[case] widths: [[i32; 2]; 4],
        #[values(false, true)] circular: bool,
        #[values(false, true)] transposed: bool,
    ) {
        let mut tensor = f32s([11, 5, 4, 3]);
        if transposed {
            tensor = permuted(&f32s([5, 11, 3, 4]), [1, 0, 3, 2]);
        }
        let a = Data::random(tensor, &mut Rng::with_seed(9));
        let out = padded(tensor.ne, widths);
        assert_formula(PAD, params(widths, circular), out, &[&a], 0.0, |index, get| {
            let at: [i32; 4] = std::array::from_fn(|d| index[d] as i32 - widths[d][0]);
            let inside = (0..4).all(|d| (0..tensor.ne[d] as i32).contains(&at[d]));
            if circular || inside {
                get(0, std::array::from_fn(|d| at[d].rem_euclid(tensor.ne[d] as i32) as usize))
            } else {
                0.0
            }
        });
    }

    #[test]
    fn by_hand() {
        let a = Data::contiguous(DataType::F32, [3, 1, 1, 1], &[1.0, 2.0, 3.0]);
        let widths = [[2, 1], [0, 0], [0, 0], [0, 0]];
        let out = padded(a.tensor.ne, widths);
        let result = |circular| run(PAD, params(widths, circular), out, &[Some(&a)]).unwrap().values();
        assert_eq!(result(false), [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
        assert_eq!(result(true), [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    }

    #[rstest]
    #[case::result_too_short([[1, 1], [0, 0], [0, 0], [0, 0]], false, [5, 2, 1, 1])]
    #[case::more_than_once_around([[5, 0], [0, 0], [0, 0], [0, 0]], true, [9, 2, 1, 1])]
    #[case::widest([[i32::MAX, i32::MAX], [0, 0], [0, 0], [0, 0]], false, [4, 2, 1, 1])]
    #[case::narrowest([[i32::MIN, i32::MIN], [0, 0], [0, 0], [0, 0]], false, [4, 2, 1, 1])]
    fn rejects(#[case] widths: [[i32; 2]; 4], #[case] circular: bool, #[case] ne: [usize; 4]) {
        assert!(!accepts(PAD, params(widths, circular), f32s(ne), &[f32s([4, 2, 1, 1])]));
        let half = Tensor::contiguous(DataType::F16, [4, 2, 1, 1]);
        assert!(!accepts(PAD, params([[0, 0]; 4], false), half, &[half]));
    }

    #[test]
    fn extremes_cut_everything() {
        // All of the source is cut off before, and the same number of zeros follows.
        let a = Data::contiguous(DataType::F32, [3, 1, 1, 1], &[1.0, 2.0, 3.0]);
        let widths = [[-5, 5], [0, 0], [0, 0], [0, 0]];
        let result = run(PAD, params(widths, false), padded(a.tensor.ne, widths), &[Some(&a)]).unwrap();
        assert_eq!(result.values(), [0.0; 3]);
    }

    #[rstest]
    #[case(2, 1, &[3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0])]
    #[case(0, 3, &[1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0])]
    #[case(3, 0, &[4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0])]
    #[case(0, 0, &[1.0, 2.0, 3.0, 4.0])]
    fn ends_are_mirrors(#[case] before: i32, #[case] after: i32, #[case] expected: &[f32]) {
        let a = Data::contiguous(DataType::F32, [4, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]);
        let out = f32s([expected.len(), 2, 1, 1]);
        let found = run(REFLECT, words([before, after]), out, &[Some(&a)]).unwrap().values();
        let (first, second) = found.split_at(expected.len());
        assert_eq!(first, expected);
        assert!(second.iter().zip(expected).all(|(a, b)| *a == b * 10.0));
    }

    #[rstest]
    #[case::too_wide(4, 0, [8, 2, 1, 1])]
    #[case::negative(-1, 0, [3, 2, 1, 1])]
    #[case::result(1, 1, [5, 2, 1, 1])]
    fn rejects_reflections(#[case] before: i32, #[case] after: i32, #[case] ne: [usize; 4]) {
        assert!(!accepts(REFLECT, words([before, after]), f32s(ne), &[f32s([4, 2, 1, 1])]));
    }
}
