//! POOL_1D and POOL_2D: the mean or the maximum of the elements under a window.
//!
//! Of what a window covers, only elements inside the source count. The mean in one dimension is over these; in two dimensions
//! it is over the whole window (ggml-cpu/ops.cpp).

use super::prelude::*;
use std::ops::Range;

pub static OPERATIONS: &[&dyn Operation] =
    &[&Pool { name: "POOL_1D", plane: false }, &Pool { name: "POOL_2D", plane: true }];

struct Pool {
    name: &'static str,
    /// Whether windows have two dimensions.
    plane: bool,
}

/// One direction of the windows.
#[derive(Debug, Clone, Copy)]
struct Window {
    length: i64,
    stride: i64,
    padding: i64,
}

impl Window {
    /// The elements of a source of `extent` under the window at position `o`.
    #[inline(always)]
    fn covered(self, o: usize, extent: usize) -> Range<usize> {
        let first = o as i64 * self.stride - self.padding;
        let bound = |place: i64| usize::try_from(place).unwrap_or(0).min(extent);
        bound(first)..bound(first + self.length)
    }
}

impl Pool {
    /// Windows along rows and along columns.
    fn windows(&self, node: &Node) -> [Window; 2] {
        let word = |index| i64::from(node.params.int(index));
        if self.plane {
            [0, 1].map(|d| Window { length: word(1 + d), stride: word(3 + d), padding: word(5 + d) })
        } else {
            let single = Window { length: 1, stride: 1, padding: 0 };
            [Window { length: word(1), stride: word(2), padding: word(3) }, single]
        }
    }
}

impl Operation for Pool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (sources(self.name, node)?, &node.output);
        if !matches!(a.dtype, DataType::F32 | DataType::F16) {
            return wrong_type(self.name, "source 0", a.dtype, "f32, f16");
        }
        typed(self.name, "the result", out, DataType::F32)?;
        let kind = node.params.int(0);
        require(self.name, (0..2).contains(&kind), || format!("kind {kind}; possible: 0 (maximum), 1 (mean)"))?;
        let windows = self.windows(node);
        require(self.name, windows.iter().all(|window| window.length > 0 && window.stride >= 0), || {
            format!("windows {windows:?}; lengths are at least 1, strides at least 0")
        })?;
        let outer = if self.plane { 2 } else { 1 };
        require(self.name, a.ne[outer..] == out.ne[outer..], || {
            format!("extents {:?} and {:?} differ in dimensions that have no window", a.ne, out.ne)
        })?;
        // So positions stay far from the limits of 64 bits.
        require(self.name, out.ne[0].max(out.ne[1]) < 1 << 31, || {
            format!("{:?} positions are too many", &out.ne[..2])
        })?;
        dense_rows(self.name, out)
    }

    /// Windows can lie further apart than they are wide.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index.is_none()
    }

    /// f16 is computed in f32 under either policy: the result is f32.
    fn array_type(&self, _: &Node, _: Option<usize>, _: DataType) -> DataType {
        DataType::F32
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let words = if self.plane { [1, 2, 2, 2, 2, 0, 0] } else { [1, 2, 2, 0, 0, 0, 0] };
        let params = self::words(words);
        let rows = if self.plane { 16 } else { 32 };
        let out = Tensor::contiguous(DataType::F32, [32, rows, 4, 1]);
        vec![Node::new(self.name, params, out, vec![Some(Tensor::contiguous(dtype, [64, 32, 4, 1]))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
        let (out, plane, mean) = (node.output, self.plane, node.params.int(0) == 1);
        let [columns, rows] = self.windows(node);
        let area = (columns.length * rows.length) as f32;
        let tensor = a.tensor;
        Ok(kernel(node, None, move |inputs, output| {
            let bytes = inputs[a.position];
            let work = out.elements().saturating_mul(area as usize);
            fill_rows(&out, output, work, inputs, &[], |Row([y, second, third]), [], values| {
                let first = second * tensor.nb[2] + third * tensor.nb[3];
                let covered = if plane { rows.covered(y, tensor.ne[1]) } else { y..y + 1 };
                for (x, value) in values.iter_mut().enumerate() {
                    let across = columns.covered(x, tensor.ne[0]);
                    let elements = covered.clone().flat_map(|j| across.clone().map(move |i| (i, j)));
                    let elements = elements
                        .map(|(i, j)| load_one(tensor.dtype, &bytes[first + j * tensor.nb[1] + i * tensor.nb[0]..]));
                    *value = if mean {
                        let count = if plane { area } else { across.len().max(1) as f32 };
                        elements.sum::<f32>() / count
                    } else {
                        elements.fold(f32::MIN, |max, x| if x > max { x } else { max })
                    };
                }
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn planes_are_pooled(
        #[values(0, 1)] kind: i32,
        #[values([2, 2, 2, 2, 0, 0], [3, 1, 1, 2, 1, 0], [4, 3, 2, 1, 2, 1])] steps: [i32; 6],
        #[values(DataType::F32, DataType::F16)] dtype: DataType,
        #[values(false, true)] transposed: bool,
    ) {
        let a = Data::random(layout(dtype, [11, 8, 3, 2], transposed), &mut Rng::with_seed(33));
        let [width, height, across, down, left, top] = steps;
        let out =
            f32s([((11 + 2 * left - width) / across + 1) as usize, ((8 + 2 * top - height) / down + 1) as usize, 3, 2]);
        let params = words([kind, width, height, across, down, left, top]);
        assert_formula("POOL_2D", params, out, &[&a], 1e-6, |[x, y, c, d], get| {
            let mut covered = Vec::new();
            for j in 0..height {
                for i in 0..width {
                    let (column, row) = (x as i32 * across - left + i, y as i32 * down - top + j);
                    if (0..11).contains(&column) && (0..8).contains(&row) {
                        covered.push(get(0, [column as usize, row as usize, c, d]));
                    }
                }
            }
            match kind {
                0 => covered.into_iter().fold(f64::MIN, f64::max),
                _ => covered.iter().sum::<f64>() / f64::from(width * height),
            }
        });
    }

    #[test]
    fn rows_by_hand() {
        let a = Data::contiguous(DataType::F32, [4, 1, 1, 1], &[1.0, -2.0, 6.0, 5.0]);
        let out = f32s([3, 1, 1, 1]);
        let pool = |kind| run("POOL_1D", words([kind, 2, 2, 1]), out, &[Some(&a)]).unwrap().values();
        assert_eq!(pool(0), [1.0, 6.0, 5.0]);
        // The mean is over what is there.
        assert_eq!(pool(1), [1.0, 2.0, 5.0]);
    }

    #[rstest]
    #[case::kind([2, 2, 2, 0], [2, 2, 1, 1])]
    #[case::no_window([0, 0, 2, 0], [2, 2, 1, 1])]
    #[case::backwards([0, 2, -1, 0], [2, 2, 1, 1])]
    #[case::rows([0, 2, 2, 0], [2, 1, 1, 1])]
    fn rejects(#[case] params: [i32; 4], #[case] ne: [usize; 4]) {
        assert!(!accepts("POOL_1D", words(params), f32s(ne), &[f32s([4, 2, 1, 1])]));
    }
}
