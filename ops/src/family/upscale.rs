//! UPSCALE: images resampled to other extents: nearest, bilinear with or without anti-aliasing, or bicubic.
//!
//! Word 0 of the parameters is the mode, with flags above its eighth bit (`enum ggml_scale_mode`, `enum ggml_scale_flag`).
//! Every mode works along rows and columns apart: what a column of the result takes from the source, a few places and their
//! weights, is the same in all rows. It is worked out once for each direction. The outer two dimensions take the nearest.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Upscale];

const NAME: &str = "UPSCALE";
const ALIGN_CORNERS: i32 = 1 << 8;
const ANTI_ALIAS: i32 = 1 << 9;

struct Upscale;

/// How an element of the result is made from those of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Bilinear,
    AntiAliased,
    Bicubic,
}

impl Mode {
    fn of(node: &Node) -> Option<Self> {
        let word = node.params.int(0);
        match (word & 0xff, word & ANTI_ALIAS != 0) {
            (0, false) => Some(Self::Nearest),
            (1, false) => Some(Self::Bilinear),
            (1, true) => Some(Self::AntiAliased),
            (2, false) => Some(Self::Bicubic),
            _ => None,
        }
    }
}

/// What one element of the result takes in one direction: places in the source and their weights.
type Taps = Vec<(usize, f32)>;

impl Operation for Upscale {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(NAME, node)?, &node.output);
        require(NAME, Mode::of(node).is_some(), || {
            let mode = node.params.int(0);
            format!(
                "mode {mode:#x}; possible: 0 (nearest), 1 (bilinear), 2 (bicubic), anti-aliasing (0x200) with 1 only"
            )
        })?;
        require(NAME, a.elements() > 0 || out.elements() == 0, || {
            format!("a source with extents {:?} has no elements to make {:?} of", a.ne, out.ne)
        })?;
        dense_rows(NAME, out)
    }

    /// The nearest elements of a smaller image are not all.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index.is_none()
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |extent| Tensor::contiguous(dtype, [extent, extent, 3, 1]);
        vec![Node::new(NAME, OpParams::default(), tensor(128), vec![Some(tensor(64))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
        let out = node.output;
        let [columns, rows, third, fourth] = directions(node, &a.tensor).unwrap_or_default();
        let work = out.elements().saturating_mul(columns.first().map_or(1, Vec::len) * 4);
        Ok(kernel(node, None, move |inputs, output| {
            let (bytes, tensor) = (inputs[a.position], a.tensor);
            for_each_row(&out, output, work, |scratch, Row([y, c, d]), target| {
                let first = third[c][0].0 * tensor.nb[2] + fourth[d][0].0 * tensor.nb[3];
                // The rows are mixed first, then the columns of the mixture.
                let mixed = &mut scratch.a;
                mixed.clear();
                mixed.resize(tensor.ne[0], 0.0);
                for (row, weight) in &rows[y] {
                    let row = first + row * tensor.nb[1];
                    for (i, mixed) in mixed.iter_mut().enumerate() {
                        *mixed += weight * load_one(tensor.dtype, &bytes[row + i * tensor.nb[0]..]);
                    }
                }
                write(out.dtype, target, &mut scratch.out, |values| {
                    for (value, taps) in values.iter_mut().zip(&columns) {
                        *value = taps.iter().map(|(place, weight)| weight * mixed[*place]).sum();
                    }
                });
                Ok(())
            })
        }))
    }
}

/// The taps of each element in each dimension; none for an empty result, whose extents can still be anything.
fn directions(node: &Node, a: &Tensor) -> Option<[Vec<Taps>; 4]> {
    let mode = Mode::of(node).filter(|_| node.output.elements() > 0)?;
    let corners = node.params.int(0) & ALIGN_CORNERS != 0;
    Some(std::array::from_fn(|d| {
        let (from, to) = (a.ne[d], node.output.ne[d]);
        let plain = to as f32 / from as f32;
        if d < 2 {
            // The outermost elements of both lie on each other, or the edges do.
            let aligned = (to as f32 - 1.0) / (from as f32 - 1.0);
            let scale = if corners && to > 1 && from > 1 { aligned } else { plain };
            let middle = if corners { 0.0 } else { 0.5 };
            (0..to).map(|i| taps(mode, i, scale, middle, from)).collect()
        } else {
            (0..to).map(|i| taps(Mode::Nearest, i, plain, 0.0, from)).collect()
        }
    }))
}

/// What element `i` takes from a source of `extent`, with so many elements of the result for one of the source. `middle` is
/// where an element's middle lies in it.
fn taps(mode: Mode, i: usize, scale: f32, middle: f32, extent: usize) -> Taps {
    let last = extent.saturating_sub(1) as i64;
    let inside = |place: i64| place.clamp(0, last) as usize;
    let centre = (i as f32 + middle) / scale;
    match mode {
        Mode::Nearest => vec![(inside((i as f32 / scale) as i64), 1.0)],
        Mode::Bilinear => {
            let x = centre - middle;
            let (low, high) = (inside(x.floor() as i64), inside((x.floor() as i64).saturating_add(1)));
            let part = (x - low as f32).clamp(0.0, 1.0);
            vec![(low, 1.0 - part), (high, part)]
        }
        Mode::AntiAliased => {
            let support = (1.0 / scale).max(1.0);
            let first = ((centre - support + middle) as i64).clamp(0, extent as i64) as usize;
            let end = ((centre + support + middle) as i64).clamp(0, extent as i64) as usize;
            let mut taps: Taps = (first..end)
                .map(|place| (place, (1.0 - ((place as f32 - centre + middle) / support).abs()).max(0.0)))
                .collect();
            let total: f32 = taps.iter().map(|(_, weight)| weight).sum();
            if total > 0.0 {
                taps.iter_mut().for_each(|(_, weight)| *weight /= total);
            }
            taps
        }
        Mode::Bicubic => {
            // The coefficient of Keys' kernel that ggml and PyTorch use.
            const SHARPNESS: f32 = -0.75;
            let near = |x: f32| ((SHARPNESS + 2.0) * x - (SHARPNESS + 3.0)) * x * x + 1.0;
            let far = |x: f32| ((SHARPNESS * x - 5.0 * SHARPNESS) * x + 8.0 * SHARPNESS) * x - 4.0 * SHARPNESS;
            let x = centre - middle;
            let (place, part) = (x.floor() as i64, x - x.floor());
            let weights = [far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)];
            (-1..).zip(weights).map(|(step, weight)| (inside(place.saturating_add(step)), weight)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn row(values: &[f32], to: usize, word: i32) -> Vec<f32> {
        let a = Data::contiguous(DataType::F32, [values.len(), 1, 1, 1], values);
        run(NAME, words([word]), f32s([to, 1, 1, 1]), &[Some(&a)]).unwrap().values()
    }

    #[test]
    fn by_hand() {
        assert_eq!(row(&[1.0, 2.0, 3.0], 6, 0), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(row(&[1.0, 2.0, 3.0, 4.0], 2, 0), [1.0, 3.0]);
        assert_eq!(row(&[0.0, 4.0], 4, 1), [0.0, 1.0, 3.0, 4.0]);
        assert_eq!(row(&[0.0, 3.0], 4, 1 | ALIGN_CORNERS), [0.0, 1.0, 2.0, 3.0]);
        // Half the elements: each is the mean of the ones around it, weighted by a triangle of twice the width.
        let found = row(&[0.0, 8.0, 8.0, 0.0], 2, 1 | ANTI_ALIAS);
        let expected = (3.0 * 0.0 + 3.0 * 8.0 + 8.0) / 7.0;
        assert_close(&found, [expected, expected], 1e-6);
    }

    #[test]
    fn constants_stay_and_outer_dimensions_repeat() {
        for word in [0, 1, 2, 1 | ALIGN_CORNERS, 2 | ALIGN_CORNERS, 1 | ANTI_ALIAS] {
            let a = Data::contiguous(DataType::F32, [5, 7, 2, 1], &[[2.5; 35], [-1.0; 35]].concat());
            let out = f32s([12, 3, 4, 2]);
            assert_formula(NAME, words([word]), out, &[&a], 1e-5, |[_, _, c, _], _| if c < 2 { 2.5 } else { -1.0 });
        }
    }

    #[rstest]
    fn a_plane_stays_a_plane(#[values(1, 2)] word: i32, #[values(false, true)] transposed: bool) {
        // Away from the edges linear functions are reproduced, by Keys' kernel up to a shift within each element: with the
        // coefficient -3/4 the weights at part t of the way to the next element have their mean at t^3 - 3/2 t^2 + 3/2 t.
        let place = |x: f64| {
            let t = x - x.floor();
            if word == 1 { x } else { x.floor() + ((t - 1.5) * t + 1.5) * t }
        };
        let layout = layout(DataType::F32, [8, 6, 1, 1], transposed);
        let values: Vec<f32> = indices(layout.ne).map(|[i, j, ..]| 3.0 * i as f32 - 2.0 * j as f32).collect();
        let a = Data::new(layout, &values);
        let out = f32s([24, 12, 1, 1]);
        let found = run(NAME, words([word]), out, &[Some(&a)]).unwrap().values();
        for ([i, j, ..], found) in indices(out.ne).zip(found) {
            if (5..19).contains(&i) && (4..8).contains(&j) {
                let (x, y) = (place((i as f64 + 0.5) / 3.0 - 0.5), place((j as f64 + 0.5) / 2.0 - 0.5));
                assert!((f64::from(found) - (3.0 * x - 2.0 * y)).abs() < 1e-4, "{i} {j}: {found}");
            }
        }
    }

    #[test]
    fn directions_are_independent() {
        let a = Data::random(f32s([4, 5, 1, 1]), &mut Rng::with_seed(35));
        let both = run(NAME, words([1]), f32s([9, 5, 1, 1]), &[Some(&a)]).unwrap().values();
        for (from, to) in a.values().chunks(4).zip(both.chunks(9)) {
            assert_close(to, row(from, 9, 1).into_iter().map(f64::from), 1e-6);
        }
    }

    #[rstest]
    #[case::mode(3, DataType::F32)]
    #[case::aliased_cubic(2 | ANTI_ALIAS, DataType::F32)]
    #[case::halves(0, DataType::F16)]
    fn rejects(#[case] word: i32, #[case] dtype: DataType) {
        let [a, out] = [4, 8].map(|size| Tensor::contiguous(dtype, [size, size, 1, 1]));
        assert!(!accepts(NAME, words([word]), out, &[a]));
    }
}
