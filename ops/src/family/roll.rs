//! ROLL: elements moved along each dimension; those that leave at one end come back at the other.
//!
//! Words 0 to 3 of the parameters are the shifts, innermost first (ggml.h, `ggml_roll`).

use super::pad::moved;
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Roll];

const NAME: &str = "ROLL";

struct Roll;

impl Operation for Roll {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(NAME, node)?, &node.output);
        for (d, extent) in a.ne.into_iter().enumerate() {
            let shift = node.params.int(d);
            require(NAME, (shift.unsigned_abs() as usize) < extent, || {
                format!("dimension {d} of {extent} elements cannot be shifted by {shift}; it must be shorter")
            })?;
        }
        same_shape(NAME, "source 0", a, out)?;
        dense_rows(NAME, out)
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        Ok(moved(node, std::array::from_fn(|d| node.params.int(d) as isize), true))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn what_leaves_comes_back() {
        let a = Data::contiguous(DataType::F32, [3, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let result = run(NAME, words([1, -1, 0, 0]), a.tensor, &[Some(&a)]).unwrap();
        assert_eq!(result.values(), [6.0, 4.0, 5.0, 3.0, 1.0, 2.0]);
    }

    #[rstest]
    fn every_dimension_is_shifted(
        #[values([0, 0, 0, 0], [3, 0, 0, 0], [-6, 4, -3, 2], [1, -2, 3, -1])] by: [i32; 4],
        #[values([0, 1, 2, 3], [2, 0, 1, 3])] order: [usize; 4],
    ) {
        let mut from = [0; 4];
        order.into_iter().enumerate().for_each(|(i, d)| from[i] = [7, 5, 4, 3][d]);
        let a = Data::random(permuted(&f32s(from), order), &mut Rng::with_seed(31));
        let ne = a.tensor.ne;
        // `get` wraps, so an extent is added to stay above zero.
        let back = |index: [usize; 4]| std::array::from_fn(|d| (index[d] + ne[d]).wrapping_add_signed(-by[d] as isize));
        assert_formula(NAME, words(by), f32s(ne), &[&a], 0.0, |index, get| get(0, back(index)));
    }

    #[rstest]
    #[case::whole_extent([4, 0, 0, 0], [4, 3, 1, 1], DataType::F32)]
    #[case::far_back([0, i32::MIN, 0, 0], [4, 3, 1, 1], DataType::F32)]
    #[case::result([1, 0, 0, 0], [3, 4, 1, 1], DataType::F32)]
    #[case::halves([1, 0, 0, 0], [4, 3, 1, 1], DataType::F16)]
    fn rejects(#[case] by: [i32; 4], #[case] ne: [usize; 4], #[case] dtype: DataType) {
        let [a, out] = [[4, 3, 1, 1], ne].map(|ne| Tensor::contiguous(dtype, ne));
        assert!(!accepts(NAME, words(by), out, &[a]));
    }
}
