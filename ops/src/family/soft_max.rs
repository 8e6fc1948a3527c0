//! SOFT_MAX: scaled rows with an optional mask, ALiBi slopes and attention sinks.
//!
//! `softmax(x * scale + slope(head) * mask)`, where the mask repeats over heads and batches, the slope is 1 without ALiBi,
//! and a sink is one more element per head that takes part in the maximum and the sum only.

use super::cpu::attention::alibi_slope;
use super::cpu::exp::exp;
use super::cpu::fold::sum;
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&SoftMax];

const NAME: &str = "SOFT_MAX";

struct SoftMax;

impl Operation for SoftMax {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 3)?;
        let a = source(NAME, node, 0)?;
        typed(NAME, "source 0", a, DataType::F32)?;
        typed(NAME, "the result", &node.output, DataType::F32)?;
        same_shape(NAME, "source 0", a, &node.output)?;
        if let Some(mask) = node.source(1) {
            float(NAME, "the mask", mask)?;
            let fits = mask.ne[0] == a.ne[0] && mask.ne[1] >= a.ne[1];
            let repeats = (2..4).all(|d| mask.ne[d] > 0 && a.ne[d].is_multiple_of(mask.ne[d]));
            require(NAME, fits && repeats, || {
                format!(
                    "a mask with extents {:?} does not fit {:?}; rows must be as long and at least as many, further extents divide",
                    mask.ne, a.ne
                )
            })?;
        } else {
            let bias = node.params.float(1);
            require(NAME, bias <= 0.0, || format!("ALiBi (max_bias {bias}) needs a mask"))?;
        }
        if let Some(sinks) = node.source(2) {
            float(NAME, "the sinks", sinks)?;
            require(NAME, sinks.ne[0] >= a.ne[2], || format!("{} sinks given for {} heads", sinks.ne[0], a.ne[2]))?;
        }
        dense_rows(NAME, &node.output)
    }

    /// A mask can have more rows than are masked.
    fn needs_all(&self, node: &Node, index: Option<usize>) -> bool {
        let rows = |slot| node.source(slot).map(|tensor| tensor.ne[1]);
        index != Some(1) || rows(0) == rows(1)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
        let (mask, sinks) = (KernelInput::of(node, 1), KernelInput::of(node, 2));
        let (out, scale) = (node.output, node.params.float(0));
        let (max_bias, heads) = (node.params.float(1), out.ne[2]);
        let slopes: Vec<f32> = (0..heads).map(|head| alibi_slope(max_bias, heads, head)).collect();
        Ok(kernel(node, None, move |inputs, output| {
            // Sinks are few; they are read once.
            let mut sink_scratch = Vec::new();
            let sinks = sinks.map(|sinks| read_row(&sinks, inputs, 0, &mut sink_scratch));
            for_each_row(
                &out,
                output,
                out.elements() * 8,
                #[inline(always)]
                |scratch, row, target| {
                    let Row([_, head, _]) = row;
                    let x = read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a);
                    let mask =
                        mask.map(|mask| read_row(&mask, inputs, row.offset_repeated(&mask.tensor), &mut scratch.b));
                    let (slope, sink) = (slopes[head], sinks.map(|sinks| sinks[head]));
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| soft_max(y, x, scale, mask, slope, sink),
                    );
                    Ok(())
                },
            )
        }))
    }
}

#[inline(always)]
fn soft_max(y: &mut [f32], x: &[f32], scale: f32, mask: Option<&[f32]>, slope: f32, sink: Option<f32>) {
    match mask {
        Some(mask) => {
            for ((y, x), m) in y.iter_mut().zip(x).zip(mask) {
                *y = x * scale + slope * m;
            }
        }
        None => {
            for (y, x) in y.iter_mut().zip(x) {
                *y = x * scale;
            }
        }
    }
    let max = maximum(y).max(sink.unwrap_or(f32::NEG_INFINITY));
    for y in y.iter_mut() {
        *y = exp(*y - max);
    }
    let mut total = sum(y, |y| y);
    if let Some(sink) = sink {
        total += f64::from((sink - max).exp());
    }
    let scale = (1.0 / total) as f32;
    for y in y {
        *y *= scale;
    }
}

/// The largest element; minus infinity when there is none. NaN is passed over.
#[inline(always)]
fn maximum(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, tail) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |a, b| a.max(*b))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// The definition in double precision.
    fn exact(x: &Data, mask: Option<&Data>, sinks: Option<&Data>, scale: f64, max_bias: f64) -> Vec<f64> {
        let ne = x.tensor.ne;
        let (values, masks) = (x.values(), mask.map(Data::values));
        let heads = ne[2] as f64;
        let power = 2.0_f64.powf(heads.log2().floor());
        let slope = |h: f64| match () {
            () if max_bias <= 0.0 => 1.0,
            () if h < power => 2.0_f64.powf(-max_bias / power).powf(h + 1.0),
            () => 2.0_f64.powf(-max_bias / 2.0 / power).powf(2.0 * (h - power) + 1.0),
        };
        let mut result = Vec::new();
        for [_, b, c, d] in indices([1, ne[1], ne[2], ne[3]]) {
            let at = |i: usize| {
                let m = mask.map_or(0.0, |mask| mask.get(masks.as_ref().unwrap(), [i, b, c, d]));
                x.get(&values, [i, b, c, d]) * scale + slope(c as f64) * m
            };
            let sink = sinks.map(|sinks| f64::from(sinks.values()[c]));
            let row: Vec<f64> = (0..ne[0]).map(at).collect();
            let max = row.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().copied().chain(sink).map(|x| (x - max).exp()).sum();
            result.extend(row.iter().map(|x| (x - max).exp() / sum));
        }
        result
    }

    #[rstest]
    #[case::alone([32, 10, 5, 4], None, false, 0.0)]
    #[case::mask([16, 9, 6, 4], Some([16, 9, 1, 1]), false, 0.0)]
    #[case::mask_with_more_rows([16, 3, 6, 4], Some([16, 32, 1, 1]), false, 0.0)]
    #[case::mask_by_head_and_batch([16, 9, 6, 4], Some([16, 9, 3, 2]), false, 0.0)]
    #[case::alibi([33, 4, 12, 1], Some([33, 4, 1, 1]), false, 8.0)]
    #[case::alibi_and_sinks([33, 4, 12, 2], Some([33, 4, 1, 1]), true, 8.0)]
    #[case::sinks_without_mask([17, 4, 3, 2], None, true, 0.0)]
    #[case::single([1, 1, 1, 1], Some([1, 1, 1, 1]), false, 0.0)]
    #[case::large([500, 40, 9, 1], Some([500, 40, 1, 1]), false, 0.0)]
    fn is_the_definition(
        #[case] ne: [usize; 4],
        #[case] mask: Option<[usize; 4]>,
        #[case] sinks: bool,
        #[case] max_bias: f32,
        #[values(DataType::F32, DataType::F16)] mask_type: DataType,
    ) {
        let mut random = Rng::with_seed(61);
        let tensor = f32s(ne);
        let x = Data::random(tensor, &mut random);
        let mask = mask.map(|ne| {
            let mut data = random.floats(ne.iter().product());
            // A causal mask forbids, but never a whole row.
            for (i, value) in data.iter_mut().enumerate() {
                if i % ne[0] > 0 && i % 3 == 0 {
                    *value = f32::NEG_INFINITY;
                }
            }
            Data::contiguous(mask_type, ne, &data)
        });
        let sinks = sinks.then(|| Data::random(f32s([ne[2], 1, 1, 1]), &mut random));
        let expected = exact(&x, mask.as_ref(), sinks.as_ref(), 1.75, f64::from(max_bias));
        let params = params(&[(0, 1.75), (1, max_bias)]);
        let result = run(NAME, params, tensor, &[Some(&x), mask.as_ref(), sinks.as_ref()]).unwrap();
        assert_close(&result.values(), expected, 2e-6);
    }

    #[test]
    fn a_row_without_any_allowed_element_is_not_a_number() {
        // As in ggml: there is no distribution over nothing.
        let tensor = f32s([20, 2, 1, 1]);
        let x = Data::random(tensor, &mut Rng::with_seed(62));
        let mut mask = vec![0.0; 40];
        mask[..20].fill(f32::NEG_INFINITY);
        let mask = Data::new(tensor, &mask);
        let result = run(NAME, params(&[(0, 1.0)]), tensor, &[Some(&x), Some(&mask)]).unwrap().values();
        assert!(result[..20].iter().all(|y| y.is_nan()));
        assert!((result[20..].iter().sum::<f32>() - 1.0).abs() < 1e-5);
        // A sink is something.
        let sink = Data::contiguous(DataType::F32, [1, 1, 1, 1], &[0.5]);
        let result = run(NAME, params(&[(0, 1.0)]), tensor, &[Some(&x), Some(&mask), Some(&sink)]).unwrap().values();
        assert!(result[..20].iter().all(|y| *y == 0.0));
    }

    #[rstest]
    #[case::short_mask(Some(f32s([16, 3, 1, 1])), None, 0.0)]
    #[case::narrow_mask(Some(f32s([15, 4, 1, 1])), None, 0.0)]
    #[case::heads_do_not_divide(Some(f32s([16, 4, 4, 1])), None, 0.0)]
    #[case::integer_mask(Some(Tensor::contiguous(DataType::I32, [16, 4, 1, 1])), None, 0.0)]
    #[case::alibi_without_mask(None, None, 8.0)]
    #[case::few_sinks(None, Some(f32s([5, 1, 1, 1])), 0.0)]
    fn rejects(#[case] mask: Option<Tensor>, #[case] sinks: Option<Tensor>, #[case] max_bias: f32) {
        let x = f32s([16, 4, 6, 1]);
        let node = node(NAME, params(&[(0, 1.0), (1, max_bias)]), x, &[Some(x), mask, sinks]);
        assert!(find(NAME).check(&node).is_err());
    }
}
