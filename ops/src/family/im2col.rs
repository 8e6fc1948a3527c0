//! IM2COL: the elements under each position of a convolution kernel, laid out as rows, so that the convolution is a product.
//!
//! Source 0 is the convolution kernel, of which only the extents count; source 1 is the image. A row of the result belongs to
//! one position and has the kernel's columns innermost, then its rows, then the channels. Words 0 to 5 of the parameters are
//! strides, paddings and dilations by pairs; word 6 distinguishes two dimensions from one.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Im2Col];

const NAME: &str = "IM2COL";

struct Im2Col;

/// One direction of a convolution: where element `k` of the kernel lies for position `o`.
#[derive(Debug, Clone, Copy)]
struct Steps {
    stride: i64,
    padding: i64,
    dilation: i64,
    extent: usize,
}

impl Steps {
    #[inline(always)]
    fn place(self, o: usize, k: usize) -> Option<usize> {
        let place = o as i64 * self.stride + k as i64 * self.dilation - self.padding;
        usize::try_from(place).ok().filter(|place| *place < self.extent)
    }
}

/// What the parameters and extents say.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    columns: Steps,
    rows: Steps,
    kernel: [usize; 2],
    channels: usize,
    /// Strides of the image: rows, channels, images.
    strides: [usize; 3],
    /// Whether positions have two dimensions.
    plane: bool,
}

impl Geometry {
    fn of(node: &Node) -> Result<Self, Unsupported> {
        let (a, b) = (source(NAME, node, 0)?, source(NAME, node, 1)?);
        let word = |index| i64::from(node.params.int(index));
        let plane = node.params.int(6) == 1;
        let steps =
            |index, extent| Steps { stride: word(index), padding: word(index + 2), dilation: word(index + 4), extent };
        Ok(if plane {
            Self {
                columns: steps(0, b.ne[0]),
                rows: steps(1, b.ne[1]),
                kernel: [a.ne[0], a.ne[1]],
                channels: b.ne[2],
                strides: [b.nb[1], b.nb[2], b.nb[3]],
                plane,
            }
        } else {
            Self {
                columns: steps(0, b.ne[0]),
                rows: Steps { stride: 0, padding: 0, dilation: 0, extent: 1 },
                kernel: [a.ne[0], 1],
                channels: b.ne[1],
                strides: [0, b.nb[1], b.nb[2]],
                plane,
            }
        })
    }
}

impl Operation for Im2Col {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{F16, F32};
        let ([a, b], out) = (sources(NAME, node)?, &node.output);
        match (b.dtype, out.dtype) {
            (F32, F32) | (F32 | F16, F16) => {}
            (F32, other) => return wrong_type(NAME, "the result", other, "f32, f16"),
            (F16, other) => return wrong_type(NAME, "the result", other, "f16"),
            (other, _) => return wrong_type(NAME, "source 1", other, "f32, f16"),
        }
        let geometry = Geometry::of(node)?;
        let ([width, height], channels) = (geometry.kernel, geometry.channels);
        let expected_channels = if geometry.plane { a.ne[2] } else { a.ne[1] };
        require(NAME, channels == expected_channels && (geometry.plane || b.ne[3] == 1), || {
            format!("an image with extents {:?} does not fit a kernel with {:?}", b.ne, a.ne)
        })?;
        let row = width.checked_mul(height).and_then(|area| area.checked_mul(channels));
        let images = if geometry.plane { out.ne[3] == b.ne[3] } else { out.ne[2] == b.ne[2] && out.ne[3] == 1 };
        require(NAME, row == Some(out.ne[0]) && images, || {
            format!("the result has extents {:?}, for a kernel with {:?} and an image with {:?}", out.ne, a.ne, b.ne)
        })?;
        // So positions stay far from the limits of 64 bits.
        require(NAME, out.ne[1].max(out.ne[2]) < 1 << 31, || format!("{:?} positions are too many", &out.ne[1..3]))?;
        dense_rows(NAME, out)
    }

    /// Of the kernel only the extents count, and positions can lie further apart than the kernel is wide.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index.is_none()
    }

    /// Of the kernel only the extents count, so it is not converted; what is moved is f32.
    fn array_type(&self, node: &Node, index: Option<usize>, _: DataType) -> DataType {
        match (index, node.source(0)) {
            (Some(0), Some(a)) => a.dtype,
            _ => DataType::F32,
        }
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let mut params = OpParams([1; 16]);
        (params.0[2], params.0[3]) = (0, 0);
        let weights = Tensor::contiguous(dtype, [3, 3, 8, 4]);
        let nodes = [DataType::F32, DataType::F16].map(|image| {
            let out = Tensor::contiguous(image, [72, 6, 6, 2]);
            Node::new(NAME, params, out, vec![Some(weights), Some(Tensor::contiguous(image, [8, 8, 8, 2]))])
        });
        nodes.to_vec()
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [_, b] = arguments(node);
        let (out, geometry) = (node.output, Geometry::of(node)?);
        let (size, step) = (b.tensor.dtype.block_bytes(), b.tensor.nb[0]);
        let [width, height] = geometry.kernel;
        let [row_stride, channel_stride, image_stride] = geometry.strides;
        Ok(kernel(node, None, move |inputs, output| {
            let bytes = inputs[b.position];
            fill_rows(
                &out,
                output,
                out.elements(),
                inputs,
                &[],
                #[inline(always)]
                |Row([x, second, third]), [], values| {
                    let (y, image) = if geometry.plane { (second, third) } else { (0, second) };
                    let mut rows = values.chunks_exact_mut(width.max(1));
                    for channel in 0..geometry.channels {
                        let first = image * image_stride + channel * channel_stride;
                        for k in 0..height {
                            let Some(values) = rows.next() else { return };
                            let Some(row) = geometry.rows.place(y, k) else {
                                values.fill(0.0);
                                continue;
                            };
                            let first = first + row * row_stride;
                            for (k, value) in values.iter_mut().enumerate() {
                                *value = geometry.columns.place(x, k).map_or(0.0, |column| {
                                    let at = first + column * step;
                                    load_one(b.tensor.dtype, &bytes[at..at + size])
                                });
                            }
                        }
                    }
                },
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn is_the_definition(
        #[values([1, 1, 0, 0, 1, 1, 1], [2, 3, 1, 2, 1, 1, 1], [1, 2, 3, 0, 2, 3, 1])] steps: [i32; 7],
        #[values(
            (DataType::F32, DataType::F32),
            (DataType::F32, DataType::F16),
            (DataType::F16, DataType::F16)
        )]
        types: (DataType, DataType),
        #[values(false, true)] transposed: bool,
    ) {
        let weights = Data::random(Tensor::contiguous(types.0, [3, 2, 3, 4]), &mut Rng::with_seed(31));
        let image = Data::random(layout(types.0, [12, 10, 3, 2], transposed), &mut Rng::with_seed(32));
        let positions = |extent: i32, kernel: i32, d: usize| {
            ((extent + 2 * steps[2 + d] - steps[4 + d] * (kernel - 1) - 1) / steps[d] + 1) as usize
        };
        let out = Tensor::contiguous(types.1, [18, positions(12, 3, 0), positions(10, 2, 1), 2]);
        let tolerance = if types.0 == types.1 { 0.0 } else { 1.0 / 2048.0 };
        assert_formula(NAME, words(steps), out, &[&weights, &image], tolerance, |[i, x, y, n], get| {
            let (kx, ky, channel) = (i % 3, i / 3 % 2, i / 6);
            let column = x as i32 * steps[0] + kx as i32 * steps[4] - steps[2];
            let row = y as i32 * steps[1] + ky as i32 * steps[5] - steps[3];
            if !(0..12).contains(&column) || !(0..10).contains(&row) {
                return 0.0;
            }
            get(1, [column as usize, row as usize, channel, n])
        });
    }

    #[test]
    fn one_dimension_by_hand() {
        let weights = Data::contiguous(DataType::F32, [2, 1, 1, 1], &[0.0; 2]);
        let signal = Data::contiguous(DataType::F32, [3, 1, 2, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let out = f32s([2, 3, 2, 1]);
        let result = run(NAME, words([1, 0, 1, 0, 1, 0, 0]), out, &[Some(&weights), Some(&signal)]).unwrap();
        assert_eq!(result.values(), [0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 0.0, 4.0, 4.0, 5.0, 5.0, 6.0]);
    }

    #[rstest]
    #[case::channels([3, 3, 2, 4], [18, 6, 6, 1])]
    #[case::row([3, 3, 3, 4], [26, 6, 6, 1])]
    #[case::images([3, 3, 3, 4], [27, 6, 6, 2])]
    fn rejects(#[case] weights: [usize; 4], #[case] out: [usize; 4]) {
        let sources = [weights, [8, 8, 3, 1]].map(f32s);
        assert!(!accepts(NAME, words([1, 1, 0, 0, 1, 1, 1]), f32s(out), &sources));
    }
}
