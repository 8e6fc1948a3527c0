//! The two small matrix products attention is made of, on blocks that lie in the cache.

use pulp::Simd;

/// Vectors are padded to so many elements: no vector unit has longer ones.
pub const PADDING: usize = 16;

/// How the broadcast operand of [`multiply`] lies: element (i, k) is at `i * row + k * step`.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub step: usize,
}

impl Left<'_> {
    #[inline(always)]
    fn take<const R: usize>(&self, i: usize, k: usize) -> [f32; R] {
        let start = i * self.row + k * self.step;
        if self.row == 1
            && let Some(values) = self.data[start..].first_chunk()
        {
            return *values;
        }
        std::array::from_fn(|r| self.data[start + r * self.row])
    }
}

/// `out[i][j] = sum over k of left(i, k) * right[k][j]`, added to what is there if `ADD`. Rows of `right` and `out` are
/// `width` elements long, a multiple of [`PADDING`].
#[inline(always)]
pub fn multiply<S: Simd, const ADD: bool>(
    simd: S,
    left: Left,
    rows: usize,
    depth: usize,
    right: &[f32],
    width: usize,
    out: &mut [f32],
) {
    let lanes = width / S::F32_LANES;
    let right = S::as_simd_f32s(&right[..depth * width]).0;
    let out = S::as_mut_simd_f32s(&mut out[..rows * width]).0;
    // A tile's sums fill the registers: 32 of 16 lanes, or 16 of 8.
    let wide = if S::F32_LANES >= PADDING { 4 } else { 2 };
    let mut j = 0;
    while j < lanes {
        let c = (lanes - j).min(wide);
        let right = Right { data: right, lanes, column: j };
        match c {
            4 => columns::<S, ADD, 4, 4>(simd, left, rows, depth, right, out),
            3 => columns::<S, ADD, 6, 3>(simd, left, rows, depth, right, out),
            2 => columns::<S, ADD, 4, 2>(simd, left, rows, depth, right, out),
            _ => columns::<S, ADD, 8, 1>(simd, left, rows, depth, right, out),
        }
        j += c;
    }
}

#[derive(Clone, Copy)]
struct Right<'a, V> {
    data: &'a [V],
    lanes: usize,
    column: usize,
}

#[inline(always)]
fn columns<S: Simd, const ADD: bool, const R: usize, const C: usize>(
    simd: S,
    left: Left,
    rows: usize,
    depth: usize,
    right: Right<S::f32s>,
    out: &mut [S::f32s],
) {
    let mut i = 0;
    while i + R <= rows {
        block::<S, ADD, R, C>(simd, left, i, depth, right, out);
        i += R;
    }
    while i < rows {
        block::<S, ADD, 1, C>(simd, left, i, depth, right, out);
        i += 1;
    }
}

#[inline(always)]
fn block<S: Simd, const ADD: bool, const R: usize, const C: usize>(
    simd: S,
    left: Left,
    i: usize,
    depth: usize,
    right: Right<S::f32s>,
    out: &mut [S::f32s],
) {
    let mut sums = [[simd.splat_f32s(0.0); C]; R];
    for (k, line) in right.data.chunks_exact(right.lanes).take(depth).enumerate() {
        let line: &[S::f32s; C] = match line[right.column..].first_chunk() {
            Some(line) => line,
            None => return,
        };
        let values = left.take::<R>(i, k);
        for r in 0..R {
            let value = simd.splat_f32s(values[r]);
            for c in 0..C {
                sums[r][c] = simd.mul_add_e_f32s(value, line[c], sums[r][c]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let start = (i + r) * right.lanes + right.column;
        for (out, sum) in out[start..start + C].iter_mut().zip(sums) {
            *out = if ADD { simd.add_f32s(*out, *sum) } else { *sum };
        }
    }
}

/// Dot products: `out[j * out_stride + i]` for `rows` rows i of `left` (a multiple of [`PADDING`], all there, whatever they
/// hold) with `columns` rows j of `right`. All are `length` long, a multiple of [`PADDING`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two matrices and their shapes")]
pub fn dots<S: Simd>(
    simd: S,
    left: &[f32],
    rows: usize,
    right: &[f32],
    columns: usize,
    length: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    for i in (0..rows).step_by(PADDING) {
        let left = &left[i * length..(i + PADDING) * length];
        let mut j = 0;
        while j < columns {
            let right = &right[j * length..];
            let out = &mut out[j * out_stride + i..];
            let count = (columns - j).min(3);
            match count {
                3 => sixteen::<S, 3>(simd, left, right, length, out, out_stride),
                2 => sixteen::<S, 2>(simd, left, right, length, out, out_stride),
                _ => sixteen::<S, 1>(simd, left, right, length, out, out_stride),
            }
            j += count;
        }
    }
}

/// Sixteen rows with C columns.
#[inline(always)]
fn sixteen<S: Simd, const C: usize>(
    simd: S,
    left: &[f32],
    right: &[f32],
    length: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    const QUAD: usize = 4;
    let vectors = length / S::F32_LANES;
    let right: [&[S::f32s]; C] = std::array::from_fn(|c| S::as_simd_f32s(&right[c * length..c * length + length]).0);
    // Sums in lanes, a vector for each row: row r of column c starts at element r * lanes.
    let mut lanes = [[0.0_f32; PADDING * PADDING]; C];
    for (quad, left) in left.chunks_exact(QUAD * length).enumerate() {
        let left: [&[S::f32s]; QUAD] =
            std::array::from_fn(|r| &S::as_simd_f32s(&left[r * length..(r + 1) * length]).0[..vectors]);
        let mut sums = [[simd.splat_f32s(0.0); C]; QUAD];
        for k in 0..vectors {
            let right: [S::f32s; C] = std::array::from_fn(|c| right[c][k]);
            for r in 0..QUAD {
                let left = left[r][k];
                for c in 0..C {
                    sums[r][c] = simd.mul_add_e_f32s(left, right[c], sums[r][c]);
                }
            }
        }
        for c in 0..C {
            let lanes = S::as_mut_simd_f32s(&mut lanes[c]).0;
            for r in 0..QUAD {
                lanes[quad * QUAD + r] = sums[r][c];
            }
        }
    }
    for (c, lanes) in lanes.iter_mut().enumerate() {
        let sums = fold(lanes, S::F32_LANES);
        let out = &mut out[c * out_stride..c * out_stride + PADDING];
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum;
        }
    }
}

/// Adds up each of sixteen runs of `lanes` elements by halving them, which keeps the vectors full.
#[inline(always)]
fn fold(runs: &mut [f32; PADDING * PADDING], lanes: usize) -> [f32; PADDING] {
    let mut halves = [0.0; PADDING * PADDING / 2];
    let mut length = PADDING * lanes;
    while length > PADDING {
        length /= 2;
        for (half, [a, b]) in halves[..length].iter_mut().zip(runs.as_chunks::<2>().0) {
            *half = a + b;
        }
        runs[..length].copy_from_slice(&halves[..length]);
    }
    std::array::from_fn(|i| runs[i])
}
