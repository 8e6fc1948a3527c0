//! TIMESTEP_EMBEDDING: cosines and sines of a time at falling frequencies.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Timestep];

const NAME: &str = "TIMESTEP_EMBEDDING";

struct Timestep;

impl Operation for Timestep {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(NAME, node)?, &node.output);
        let (length, period) = (node.params.int(0), node.params.int(1));
        require(NAME, period > 0, || format!("period {period}; at least 1"))?;
        let fits = usize::try_from(length) == Ok(out.ne[0]) && out.ne[1..] == [a.ne[0], 1, 1];
        require(NAME, fits && a.ne[1..] == [1, 1, 1], || {
            format!("{length} functions of {:?} times are not the result's {:?}", a.ne, out.ne)
        })?;
        dense_rows(NAME, out)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let params = words([320, 10_000]);
        let tensor = |ne| Tensor::contiguous(dtype, ne);
        vec![Node::new(NAME, params, tensor([320, 2, 1, 1]), vec![Some(tensor([2, 1, 1, 1]))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (out, half) = (node.output, node.output.ne[0] / 2);
        let decay = -(node.params.int(1) as f32).ln();
        // Without times there is no row, however long it is.
        let count = if out.elements() > 0 { half } else { 0 };
        let frequencies: Vec<f32> = (0..count).map(|i| (decay * i as f32 / half as f32).exp()).collect();
        Ok(map_rows(node, out.elements() * 16, move |row, [times], y| {
            let time = times[row.0[0]];
            let (cosines, rest) = y.split_at_mut(half);
            let (sines, odd) = rest.split_at_mut(half);
            for ((cosine, sine), frequency) in cosines.iter_mut().zip(sines).zip(&frequencies) {
                (*sine, *cosine) = (time * frequency).sin_cos();
            }
            odd.fill(0.0);
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn is_the_definition(#[values(1, 2, 7, 320)] length: usize) {
        let a = Data::contiguous(DataType::F32, [3, 1, 1, 1], &[0.0, 12.0, 0.5]);
        let out = f32s([length, 3, 1, 1]);
        let half = length / 2;
        assert_formula(NAME, words([length as i32, 10_000]), out, &[&a], 1e-5, |[i, row, ..], get| {
            let angle = get(0, [row, 0, 0, 0]) * 10_000_f64.powf(-((i % half.max(1)) as f64) / half as f64);
            match i {
                i if i < half => angle.cos(),
                i if i < 2 * half => angle.sin(),
                _ => 0.0,
            }
        });
    }

    #[rstest]
    #[case(4, 0, [4, 3, 1, 1])]
    #[case(5, 100, [4, 3, 1, 1])]
    #[case(4, 100, [4, 2, 1, 1])]
    fn rejects(#[case] length: i32, #[case] period: i32, #[case] ne: [usize; 4]) {
        assert!(!accepts(NAME, words([length, period]), f32s(ne), &[f32s([3, 1, 1, 1])]));
    }
}
