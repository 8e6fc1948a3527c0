//! CROSS_ENTROPY_LOSS: how far predicted distributions are from the wanted ones.
//!
//! The first source has the logits, the second the wanted probabilities, row by row. The result is the mean over the rows of
//! `-sum(wanted * log_softmax(logits))`, one f32.

use super::cpu::exp::exp;
use super::cpu::fold::{Unit, fold, sum};
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&CrossEntropyLoss];

const NAME: &str = "CROSS_ENTROPY_LOSS";

struct CrossEntropyLoss;

impl Operation for CrossEntropyLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [logits, wanted] = f32_sources(NAME, node)?;
        require(NAME, logits.same_shape(wanted), || {
            format!("sources have extents {:?} and {:?}; they must be equal", logits.ne, wanted.ne)
        })?;
        even_rows(NAME, "source 0", logits)?;
        even_rows(NAME, "source 1", wanted)?;
        same_shape(NAME, "what the sources give", &Tensor { ne: [1; 4], ..*logits }, &node.output)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let (source, out) = (Tensor::contiguous(dtype, [512, 8, 1, 1]), Tensor::contiguous(DataType::F32, [1; 4]));
        vec![Node::new(NAME, OpParams::default(), out, vec![Some(source); 2])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [logits, wanted] = arguments(node);
        let ne = logits.tensor.ne;
        Ok(kernel(node, None, move |inputs, output| {
            let total = fold(
                &ne,
                8,
                Unit::Row,
                #[inline(always)]
                |scratch, row, _| {
                    let x = read_row(&logits, inputs, row.offset(&logits.tensor), &mut scratch.a);
                    let p = read_row(&wanted, inputs, row.offset(&wanted.tensor), &mut scratch.b);
                    row_loss(x, p)
                },
                |a, b| a + b,
            );
            let rows = ne[1] * ne[2] * ne[3];
            output.copy_from_slice(&((total.unwrap_or(0.0) / rows as f64) as f32).to_le_bytes());
            Ok(())
        }))
    }
}

/// `-sum(p * log_softmax(x))`.
#[inline(always)]
fn row_loss(x: &[f32], p: &[f32]) -> f64 {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let log_sum = sum(x, |x| f64::from(exp((x - f64::from(max)) as f32))).ln();
    let mut lanes = [0.0_f64; 16];
    let term = |x: f32, p: f32| (f64::from(x - max) - log_sum) * f64::from(p);
    let ((x_chunks, x_tail), (p_chunks, p_tail)) = (x.as_chunks::<16>(), p.as_chunks::<16>());
    for (x, p) in x_chunks.iter().zip(p_chunks) {
        for (lane, (x, p)) in lanes.iter_mut().zip(x.iter().zip(p)) {
            *lane += term(*x, *p);
        }
    }
    let tail: f64 = x_tail.iter().zip(p_tail).map(|(x, p)| term(*x, *p)).sum();
    -(lanes.iter().sum::<f64>() + tail)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn loss(logits: &Data, wanted: &Data) -> Vec<f32> {
        let out = f32s([1; 4]);
        run(NAME, OpParams::default(), out, &[Some(logits), Some(wanted)]).unwrap().values()
    }

    #[rstest]
    #[case(f32s([10, 5, 4, 3]))]
    #[case(f32s([30_000, 3, 1, 1]))]
    #[case(f32s([1, 1, 1, 1]))]
    #[case(Tensor { dtype: DataType::F32, ne: [20, 3, 2, 1], nb: [8, 200, 600, 1200] })]
    fn is_the_definition(#[case] tensor: Tensor) {
        let mut random = Rng::with_seed(95);
        let values: Vec<f32> = random.floats(tensor.elements()).iter().map(|x| x * 20.0).collect();
        let logits = Data::new(tensor, &values);
        let wanted = Data::random(f32s(tensor.ne), &mut random);
        let (x, p) = (logits.values(), wanted.values());
        let rows = x.chunks(tensor.ne[0]).zip(p.chunks(tensor.ne[0])).map(|(x, p)| {
            let log_sum = x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            -x.iter().zip(p).map(|(x, p)| (f64::from(*x) - log_sum) * f64::from(*p)).sum::<f64>()
        });
        assert_close(&loss(&logits, &wanted), [rows.sum::<f64>() / tensor.rows() as f64], 1e-5);
    }

    #[test]
    fn certainty_costs_nothing_and_large_logits_do_no_harm() {
        let tensor = f32s([3, 2, 1, 1]);
        let wanted = Data::new(tensor, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let logits = Data::new(tensor, &[5000.0, 1.0, 2.0, -3.0, 200.0, 0.0]);
        assert_eq!(loss(&logits, &wanted), [0.0]);
        let even = Data::new(tensor, &[7.0; 6]);
        assert_close(&loss(&even, &wanted), [3.0_f64.ln()], 1e-7);
    }

    #[rstest]
    #[case::other_shape(Some(f32s([8, 3, 1, 1])), [1; 4])]
    #[case::other_type(Some(Tensor::contiguous(DataType::F16, [8, 4, 1, 1])), [1; 4])]
    #[case::nothing_wanted(None, [1; 4])]
    #[case::no_scalar(Some(f32s([8, 4, 1, 1])), [4, 1, 1, 1])]
    fn rejects(#[case] wanted: Option<Tensor>, #[case] ne: [usize; 4]) {
        let logits = f32s([8, 4, 1, 1]);
        let out = f32s(ne);
        assert!(find(NAME).check(&node(NAME, OpParams::default(), out, &[Some(logits), wanted])).is_err());
    }
}
