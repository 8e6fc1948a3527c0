//! NORM, RMS_NORM, L2_NORM: rows scaled to unit variance, unit mean square or unit length; GROUP_NORM: groups of channels scaled
//! to unit variance.

use super::cpu::fold::{Unit, fold, sum};
use super::prelude::*;
use rayon::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[
    &Norm { name: "NORM", measure: Measure::Variance },
    &Norm { name: "RMS_NORM", measure: Measure::MeanSquare },
    &Norm { name: "L2_NORM", measure: Measure::Length },
    &GroupNorm,
];

/// What of a row becomes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Mean square distance from the mean, which is subtracted first.
    Variance,
    MeanSquare,
    /// Root of the sum of squares.
    Length,
}

struct Norm {
    name: &'static str,
    measure: Measure,
}

/// Source and result are f32 of the same extents, and epsilon is not negative.
fn check(op: &'static str, node: &Node, eps: f32) -> Result<(), Unsupported> {
    let [a] = f32_sources(op, node)?;
    same_shape(op, "source 0", a, &node.output)?;
    require(op, eps >= 0.0, || format!("epsilon is {eps}; it must not be negative"))?;
    dense_rows(op, &node.output)
}

/// Whether a shim DMA reads the rows of source 0 where they are: its inner stride is one element, the others are whole words.
fn readable_in_place(node: &Node) -> bool {
    node.source(0).is_some_and(|a| a.nb[0] == 4 && a.nb.iter().all(|stride| stride.is_multiple_of(4)))
}

impl Operation for Norm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        check(self.name, node, node.params.float(0))
    }

    /// Queries and keys are often columns of one product.
    fn keeps_strides(&self, node: &Node, _: usize) -> bool {
        readable_in_place(node)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (eps, measure) = (f64::from(node.params.float(0)), self.measure);
        Ok(map_rows(
            node,
            node.output.elements() * 2,
            #[inline(always)]
            move |_, [x], y| {
                let count = x.len() as f64;
                let mean = if measure == Measure::Variance { sum(x, |x| x) / count } else { 0.0 };
                let squares = sum(x, |x| (x - mean) * (x - mean));
                let scale = match measure {
                    Measure::Variance | Measure::MeanSquare => 1.0 / (squares / count + eps).sqrt(),
                    // Epsilon is the least length here.
                    Measure::Length => 1.0 / squares.sqrt().max(eps),
                };
                apply(y, x, mean as f32, scale as f32);
            },
        ))
    }
}

#[inline(always)]
fn apply(y: &mut [f32], x: &[f32], mean: f32, scale: f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = (x - mean) * scale;
    }
}

const GROUP_NORM: &str = "GROUP_NORM";

/// As NORM, over groups: the channels, dimension 2, are divided among as many groups as word 0 says, the last of which may
/// have fewer or none. Epsilon is in word 1.
struct GroupNorm;

fn channels_per_group(node: &Node) -> usize {
    let groups = usize::try_from(node.params.int(0)).unwrap_or(0).max(1);
    node.output.ne[2].div_ceil(groups).max(1)
}

impl Operation for GroupNorm {
    fn name(&self) -> &'static str {
        GROUP_NORM
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        check(GROUP_NORM, node, node.params.float(1))?;
        let groups = node.params.int(0);
        require(GROUP_NORM, groups > 0, || format!("{groups} groups; there must be one at least"))
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = Tensor::contiguous(dtype, [64, 64, 32, 1]);
        vec![Node::new(GROUP_NORM, words([8]), tensor, vec![Some(tensor)])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
        let (out, eps, channels) = (node.output, f64::from(node.params.float(1)), channels_per_group(node));
        let groups = out.ne[2].div_ceil(channels);
        Ok(kernel(node, None, move |inputs, output| {
            let scales: Vec<(f32, f32)> = (0..groups * out.ne[3])
                .into_par_iter()
                .map(|index| {
                    let (group, batch) = (index % groups, index / groups);
                    let first = group * channels;
                    let count = channels.min(out.ne[2] - first);
                    mean_and_scale(&a, inputs, [out.ne[0], out.ne[1], count, 1], [first, batch], eps)
                })
                .collect();
            fill_rows(
                &out,
                output,
                out.elements() * 2,
                inputs,
                &[a],
                #[inline(always)]
                |Row([_, channel, batch]), [x], y| {
                    let (mean, scale) = scales[batch * groups + channel / channels];
                    apply(y, x, mean, scale);
                },
            )
        }))
    }
}

/// Mean and scale of the group with extents `ne` that starts at the given channel and batch.
fn mean_and_scale(a: &KernelInput, inputs: &[&[u8]], ne: [usize; 4], start: [usize; 2], eps: f64) -> (f32, f32) {
    let count = (ne[0] * ne[1] * ne[2]) as f64;
    let total = |mean: f64, square: bool| {
        fold(
            &ne,
            1,
            Unit::Row,
            #[inline(always)]
            |scratch, row, _| {
                let Row([b, c, _]) = row;
                let row = Row([b, start[0] + c, start[1]]);
                let x = read_row(a, inputs, row.offset(&a.tensor), &mut scratch.a);
                if square { sum(x, |x| (x - mean) * (x - mean)) } else { sum(x, |x| x) }
            },
            |a, b| a + b,
        )
    };
    let mean = total(0.0, false).unwrap_or(0.0) / count;
    let variance = total(mean, true).unwrap_or(0.0) / count;
    (mean as f32, (1.0 / (variance + eps).sqrt()) as f32)
}

#[cfg(test)]
mod tests {
    use super::super::prelude::*;
    use super::super::testing::*;

    fn exact(op: &str, row: &[f32], eps: f32) -> Vec<f64> {
        let (count, eps) = (row.len() as f64, f64::from(eps));
        let centred = matches!(op, "NORM" | "GROUP_NORM");
        let mean = if centred { row.iter().map(|x| f64::from(*x)).sum::<f64>() / count } else { 0.0 };
        let squares = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
        let divisor = if op == "L2_NORM" { squares.sqrt().max(eps) } else { (squares / count + eps).sqrt() };
        row.iter().map(|x| (f64::from(*x) - mean) / divisor).collect()
    }

    fn data(tensor: Tensor) -> Data {
        let values: Vec<f32> = Rng::with_seed(41).floats(tensor.elements()).iter().map(|x| x * 3.0 + 0.5).collect();
        Data::new(tensor, &values)
    }

    #[rstest]
    #[case::contiguous(f32s([64, 5, 4, 3]))]
    #[case::single(f32s([1, 1, 1, 1]))]
    #[case::tail(f32s([33, 2, 1, 1]))]
    #[case::many(f32s([100, 700, 1, 1]))]
    #[case::gaps(Tensor { dtype: DataType::F32, ne: [20, 3, 2, 1], nb: [8, 200, 600, 1200] })]
    fn rows_get_unit_measure(
        #[values("NORM", "RMS_NORM", "L2_NORM")] op: &str,
        #[case] tensor: Tensor,
        #[values(0.0, 1e-5, 1.0, 100.0)] eps: f32,
    ) {
        let source = data(tensor);
        // A single element has no variance, and without epsilon nothing to divide by.
        let eps = if tensor.ne[0] == 1 { eps.max(1e-5) } else { eps };
        let result = run(op, params(&[(0, eps)]), f32s(tensor.ne), &[Some(&source)]).unwrap();
        let exact = source.values().chunks(tensor.ne[0]).flat_map(|row| exact(op, row, eps)).collect::<Vec<_>>();
        assert_close(&result.values(), exact, 2e-6);
    }

    #[rstest]
    #[case::even([64, 5, 32, 3], 8)]
    #[case::last_group_smaller([9, 3, 10, 2], 4)]
    #[case::last_group_empty([9, 3, 6, 1], 5)]
    #[case::more_groups_than_channels([9, 3, 2, 1], 5)]
    #[case::one_group([300, 20, 12, 1], 1)]
    fn groups_get_unit_variance(
        #[case] ne: [usize; 4],
        #[case] groups: usize,
        #[values(true, false)] contiguous: bool,
    ) {
        let [a, b, c, d] = ne;
        let dense = f32s(ne);
        let gaps = Tensor { nb: [4, 4 * a + 8, (4 * a + 8) * b, (4 * a + 8) * b * c + 16], ..dense };
        let source = data(if contiguous { dense } else { gaps });
        let mut params = params(&[(1, 1e-6)]);
        params.0[0] = i32::try_from(groups).unwrap();
        let result = run("GROUP_NORM", params, if contiguous { dense } else { gaps }, &[Some(&source)]).unwrap();
        let channel = a * b;
        let group = channel * c.div_ceil(groups);
        let values = source.values();
        let batches = values.chunks(channel * c).flat_map(|batch| batch.chunks(group));
        let exact: Vec<f64> = batches.flat_map(|group| exact("GROUP_NORM", group, 1e-6)).collect();
        assert_eq!(exact.len(), channel * c * d);
        assert_close(&result.values(), exact, 2e-6);
    }

    #[test]
    fn rows_without_gaps_are_read_where_they_are() {
        let columns = Tensor { dtype: DataType::F32, ne: [64, 4, 3, 1], nb: [4, 256, 3072, 9216] };
        let strided = Tensor { nb: [8, 512, 3072, 9216], ..columns };
        let out = f32s(columns.ne);
        for op in ["RMS_NORM", "L2_NORM"] {
            assert!(find(op).keeps_strides(&node(op, params(&[]), out, &[Some(columns)]), 0));
            assert!(!find(op).keeps_strides(&node(op, params(&[]), out, &[Some(strided)]), 0));
        }
    }

    #[test]
    fn a_negative_epsilon_is_rejected() {
        let tensor = f32s([8, 1, 1, 1]);
        for eps in [-1.0, f32::NAN] {
            assert!(!accepts("NORM", params(&[(0, eps)]), tensor, &[tensor]));
        }
    }

    #[test]
    fn no_groups_are_rejected() {
        let tensor = f32s([8, 1, 4, 1]);
        for groups in [0, -1] {
            let mut params = params(&[(1, 1e-6)]);
            params.0[0] = groups;
            assert!(!accepts("GROUP_NORM", params, tensor, &[tensor]));
        }
    }
}
