//! Multiply-accumulate: shapes of the configuration word, integers modulo the lane, bf16 with the array's own rounding.

use super::block_float::EXPONENTS;
use super::lanes::{self, Bytes};
use super::operation::Accumulate;

/// The configuration word of the vec slot.
#[derive(Clone, Copy, Debug)]
struct Configuration(u32);

impl Configuration {
    fn zero_first(self) -> bool {
        self.0 & 1 == 1
    }

    fn amode(self) -> u32 {
        self.0 >> 1 & 3
    }

    fn shape(self) -> (u32, u32, u32) {
        (self.amode(), self.0 >> 3 & 3, self.0 >> 5 & 7)
    }

    fn bit(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }
}

/// How products become lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// `m x k` times `k x n`, row-major.
    Matrix { m: usize, k: usize, n: usize },
    /// This many lanes, each with this many products that lie a vector of lanes apart.
    Elements { lanes: usize, products: usize },
    /// Output i of channel c is the sum over points p of data (i + p) times coefficient p; channels lie beside each other. Known
    /// from the names in LLVM's headers and from how aie_api's sliding multiplications use them.
    Convolution { outputs: usize, points: usize, channels: usize },
}

/// A multiplication: the widths of the operands' elements, and the pattern. `amode` says how wide a lane is.
#[derive(Clone, Copy, Debug)]
struct Shape {
    left_bits: u32,
    right_bits: u32,
    pattern: Pattern,
}

const fn matrix(left_bits: u32, right_bits: u32, [m, k, n]: [usize; 3]) -> Shape {
    Shape { left_bits, right_bits, pattern: Pattern::Matrix { m, k, n } }
}

const fn elements(bits: u32, lanes: usize, products: usize) -> Shape {
    Shape { left_bits: bits, right_bits: bits, pattern: Pattern::Elements { lanes, products } }
}

const fn convolution(bits: u32, [outputs, points, channels]: [usize; 3]) -> Shape {
    Shape { left_bits: bits, right_bits: bits, pattern: Pattern::Convolution { outputs, points, channels } }
}

/// The shapes of AIE2 that are known; products of matrices with several channels are not.
fn shape_aie2(mode: (u32, u32, u32)) -> Option<Shape> {
    Some(match mode {
        (0, 0, 0) => matrix(8, 4, [4, 16, 8]),
        (0, 1, 0) => matrix(8, 8, [4, 8, 8]),
        (0, 1, 1) => elements(8, 32, 2),
        (0, 1, 2) => convolution(8, [4, 4, 8]),
        (0, 1, 3) => convolution(8, [8, 8, 4]),
        (0, 1, 4) => convolution(8, [32, 8, 1]),
        (0, 2, 0) => matrix(16, 8, [4, 4, 8]),
        (0, 3, 0) => matrix(16, 16, [4, 2, 8]),
        (0, 3, 1) => elements(16, 32, 1),
        (1, 2, 0) => matrix(16, 8, [2, 8, 8]),
        (1, 2, 1) => matrix(16, 8, [4, 8, 4]),
        (1, 3, 0) => matrix(16, 16, [2, 4, 8]),
        (1, 3, 1) => matrix(16, 16, [4, 4, 4]),
        (1, 3, 2) => elements(16, 16, 2),
        (1, 3, 3) => convolution(16, [16, 4, 1]),
        (1, 0, 0) => matrix(32, 16, [4, 2, 4]),
        (2, 3, 0) => matrix(16, 16, [4, 8, 4]),
        (2, 3, 1) => elements(16, 16, 2),
        _ => return None,
    })
}

/// The shapes of AIE2P that are known. Of products by element, those of 512-bit factors: with 1024 bits some add two products,
/// and public sources do not agree on which.
fn shape_aie2p(mode: (u32, u32, u32), left_bytes: usize) -> Option<Shape> {
    Some(match mode {
        (0, 1, 1) | (1, 3, 2) if left_bytes > 64 => return None,
        (2, 3, 1) => elements(16, left_bytes / 2, 1),
        (0, 1, 0) => matrix(8, 8, [8, 8, 8]),
        (0, 1, 1) => elements(8, 64, 1),
        (0, 1, 2) => convolution(8, [8, 8, 8]),
        (0, 1, 4) => convolution(8, [64, 8, 1]),
        (0, 1, 6) => matrix(8, 8, [4, 8, 16]),
        (0, 2, 0) => matrix(16, 8, [8, 4, 8]),
        (0, 3, 0) => matrix(16, 16, [8, 2, 8]),
        (0, 3, 1) => elements(16, 64, 1),
        (1, 0, 0) => matrix(32, 16, [4, 2, 8]),
        (1, 2, 0) => matrix(16, 8, [4, 8, 8]),
        (1, 3, 0) => matrix(16, 16, [4, 4, 8]),
        (1, 3, 1) => convolution(16, [4, 4, 8]),
        (1, 3, 2) => elements(16, 32, 1),
        (1, 3, 3) => convolution(16, [32, 4, 1]),
        _ => return None,
    })
}

impl Shape {
    fn lanes(&self) -> usize {
        match self.pattern {
            Pattern::Matrix { m, n, .. } => m * n,
            Pattern::Elements { lanes, .. } => lanes,
            Pattern::Convolution { outputs, channels, .. } => outputs * channels,
        }
    }

    /// How many elements of both operands are used.
    fn elements(&self) -> (usize, usize) {
        match self.pattern {
            Pattern::Matrix { m, k, n } => (m * k, k * n),
            Pattern::Elements { lanes, products } => (lanes * products, lanes * products),
            Pattern::Convolution { outputs, points, channels } => {
                ((outputs + points - 1) * channels, points * channels)
            }
        }
    }

    /// Whether the operands have all the elements.
    fn fits(&self, operands: &Operands<'_>) -> bool {
        let (left, right) = self.elements();
        left * self.left_bits as usize <= operands.left_bytes * 8
            && right * self.right_bits as usize <= operands.right_bytes * 8
    }

    fn products(&self) -> usize {
        match self.pattern {
            Pattern::Matrix { k, .. } => k,
            Pattern::Elements { products, .. } => products,
            Pattern::Convolution { points, .. } => points,
        }
    }

    /// The elements of both operands that make product `term` of a lane.
    fn terms(&self, lane: usize, term: usize) -> (usize, usize) {
        match self.pattern {
            Pattern::Matrix { k, n, .. } => (lane / n * k + term, term * n + lane % n),
            Pattern::Elements { lanes, .. } => (lane + term * lanes, lane + term * lanes),
            Pattern::Convolution { channels, .. } => (lane + term * channels, lane % channels + term * channels),
        }
    }
}

/// The most lanes of an accumulator, and the most elements of a factor.
const MOST_LANES: usize = 64;
const MOST_ELEMENTS: usize = 128;

/// The values an accumulation works on. What the operation does not have is not looked at.
pub struct Operands<'a> {
    pub first: &'a Bytes,
    pub second: &'a Bytes,
    pub left: &'a Bytes,
    pub right: &'a Bytes,
    pub configuration: u32,
    /// Size of an accumulator.
    pub bytes: usize,
    /// Size of the left factor.
    pub left_bytes: usize,
    /// Size of the right factor.
    pub right_bytes: usize,
}

/// Computes an accumulation.
///
/// None when the configuration word names a shape, or asks for something, that no public source describes.
pub fn accumulate(operation: Accumulate, aie2p: bool, operands: &Operands<'_>, out: &mut Bytes) -> Option<()> {
    let word = Configuration(operands.configuration);
    let shape = if aie2p { shape_aie2p(word.shape(), operands.left_bytes) } else { shape_aie2(word.shape()) };
    let negate_product = operation.negate_product ^ word.bit(11);
    let negate_first = operation.negate_first ^ word.bit(12);
    let negate_second = operation.negate_second ^ word.bit(13);
    let has_first = operation.accumulators > 0 && !word.zero_first();
    let has_second = operation.accumulators > 1;
    // Negated terms of complex products have no model, nor has a lane type that is not the instruction's.
    if word.0 >> 16 != 0 || operation.float != (word.amode() == 2) {
        return None;
    }
    let negations = [negate_first, negate_second, negate_product];
    if aie2p && operation.product && word.shape() == (2, 1, 0) {
        return block_float(operands, [has_first, has_second], negations, out);
    }
    if operation.product && !shape.is_some_and(|shape| shape.fits(operands)) {
        return None;
    }
    if operation.float {
        if word.bit(10) {
            return None;
        }
        if aie2p && operation.product {
            return float_elements(shape?, operands, [has_first, has_second], negations, out);
        }
        return float(operation, shape, operands, [has_first, has_second], negations, out);
    }
    let bits = if word.amode() == 0 { 32 } else { 64 };
    let mut sums = [0i64; MOST_LANES];
    let sums = &mut sums[..operands.bytes / if bits == 64 { 8 } else { 4 }];
    if let Some(shape) = shape.filter(|_| operation.product) {
        products(shape, operands, [word.bit(9), word.bit(8)], bits == 64, sums);
    }
    if negate_product {
        sums.iter_mut().for_each(|sum| *sum = sum.wrapping_neg());
    }
    if has_first {
        let up = if word.bit(10) { 16 } else { 0 };
        add(sums, operands.first, bits, up, negate_first);
    }
    if has_second {
        add(sums, operands.second, bits, 0, negate_second);
    }
    lanes::set_accumulators(out, bits, sums);
    Some(())
}

/// Adds the lanes of an accumulator shifted up, or subtracts them.
fn add(sums: &mut [i64], accumulator: &Bytes, bits: u32, up: u32, subtract: bool) {
    match (bits, subtract) {
        (32, false) => sums.iter_mut().zip(accumulator.as_chunks().0).for_each(|(sum, lane)| {
            *sum = sum.wrapping_add(i64::from(i32::from_le_bytes(*lane)) << up);
        }),
        (32, true) => sums.iter_mut().zip(accumulator.as_chunks().0).for_each(|(sum, lane)| {
            *sum = sum.wrapping_sub(i64::from(i32::from_le_bytes(*lane)) << up);
        }),
        (_, false) => sums.iter_mut().zip(accumulator.as_chunks().0).for_each(|(sum, lane)| {
            *sum = sum.wrapping_add(i64::from_le_bytes(*lane) << up);
        }),
        (_, true) => sums.iter_mut().zip(accumulator.as_chunks().0).for_each(|(sum, lane)| {
            *sum = sum.wrapping_sub(i64::from_le_bytes(*lane) << up);
        }),
    }
}

/// The sums of products of all lanes, of which those of 32 bits need to be right in their low 32 bits only.
fn products(
    shape: Shape,
    operands: &Operands<'_>,
    [left_signed, right_signed]: [bool; 2],
    wide_lanes: bool,
    sums: &mut [i64],
) {
    if shape.left_bits == 32 || matches!(shape.pattern, Pattern::Convolution { .. }) {
        // 32-bit factors without a sign do not fit the arrays below, and convolutions are rare.
        for (lane, sum) in sums.iter_mut().enumerate().take(shape.lanes()) {
            for term in 0..shape.products() {
                let (left, right) = shape.terms(lane, term);
                let left = lanes::number(operands.left, shape.left_bits, left, left_signed);
                let right = lanes::number(operands.right, shape.right_bits, right, right_signed);
                *sum = sum.wrapping_add(left.wrapping_mul(right));
            }
        }
        return;
    }
    let (left_count, right_count) = shape.elements();
    if (shape.left_bits, shape.right_bits, left_signed, right_signed) == (16, 16, true, true) {
        let ((left, _), (right, _)) = (operands.left.as_chunks(), operands.right.as_chunks());
        if wide_lanes {
            sums_of_products::<[u8; 2], i64>(shape.pattern, left, right, sums);
        } else {
            sums_of_products::<[u8; 2], i32>(shape.pattern, left, right, sums);
        }
        return;
    }
    let fits = |bits: u32, signed: bool| signed || bits < 16;
    if fits(shape.left_bits, left_signed) && fits(shape.right_bits, right_signed) {
        let (mut left, mut right) = ([0i16; MOST_ELEMENTS], [0i16; MOST_ELEMENTS]);
        lanes::numbers(operands.left, shape.left_bits, left_signed, &mut left[..left_count]);
        lanes::numbers(operands.right, shape.right_bits, right_signed, &mut right[..right_count]);
        // One factor has 8 bits at most, or lanes have 32: a sum of 16 products or fewer fits.
        sums_of_products::<i16, i32>(shape.pattern, &left, &right, sums);
        return;
    }
    let (mut left, mut right) = ([0i32; MOST_ELEMENTS], [0i32; MOST_ELEMENTS]);
    lanes::numbers(operands.left, shape.left_bits, left_signed, &mut left[..left_count]);
    lanes::numbers(operands.right, shape.right_bits, right_signed, &mut right[..right_count]);
    sums_of_products::<i32, i64>(shape.pattern, &left, &right, sums);
}

/// An element of a factor, and the number that its products are summed in, modulo its size.
trait Element<Sum>: Copy {
    fn multiply_add(self, other: Self, sum: Sum) -> Sum;
}

/// A 16-bit number as a register has it.
impl Element<i32> for [u8; 2] {
    #[inline(always)]
    fn multiply_add(self, other: Self, sum: i32) -> i32 {
        i16::from_le_bytes(self).multiply_add(i16::from_le_bytes(other), sum)
    }
}

impl Element<i64> for [u8; 2] {
    #[inline(always)]
    fn multiply_add(self, other: Self, sum: i64) -> i64 {
        sum + i64::from(i32::from(i16::from_le_bytes(self)) * i32::from(i16::from_le_bytes(other)))
    }
}

impl Element<i32> for i16 {
    #[inline(always)]
    fn multiply_add(self, other: Self, sum: i32) -> i32 {
        sum.wrapping_add(i32::from(self) * i32::from(other))
    }
}

impl Element<i64> for i32 {
    #[inline(always)]
    fn multiply_add(self, other: Self, sum: i64) -> i64 {
        sum.wrapping_add(i64::from(self).wrapping_mul(i64::from(other)))
    }
}

fn sums_of_products<E: Element<S>, S: Copy + Default + Into<i64>>(
    pattern: Pattern,
    left: &[E],
    right: &[E],
    sums: &mut [i64],
) {
    match pattern {
        // Loops of constant length, which the compiler turns into vector instructions.
        Pattern::Matrix { m, k: 16, n: 8 } => matrix_product::<E, S, 16, 8>(m, left, right, sums),
        Pattern::Matrix { m, k: 8, n: 8 } => matrix_product::<E, S, 8, 8>(m, left, right, sums),
        Pattern::Matrix { m, k: 4, n: 8 } => matrix_product::<E, S, 4, 8>(m, left, right, sums),
        Pattern::Matrix { m, k: 2, n: 8 } => matrix_product::<E, S, 2, 8>(m, left, right, sums),
        Pattern::Matrix { m, k: 8, n: 4 } => matrix_product::<E, S, 8, 4>(m, left, right, sums),
        Pattern::Matrix { m, k: 4, n: 4 } => matrix_product::<E, S, 4, 4>(m, left, right, sums),
        Pattern::Matrix { m, k, n } => {
            for (lane, sum) in sums.iter_mut().enumerate().take(m * n) {
                let (row, column) = (lane / n, lane % n);
                let terms = (0..k).map(|term| (left[row * k + term], right[term * n + column]));
                *sum = terms.fold(S::default(), |sum, (left, right)| left.multiply_add(right, sum)).into();
            }
        }
        // Computed from the operands themselves.
        Pattern::Convolution { .. } => {}
        Pattern::Elements { lanes, products } => {
            for (lane, sum) in sums.iter_mut().enumerate().take(lanes) {
                let terms = (0..products).map(|term| (left[lane + term * lanes], right[lane + term * lanes]));
                *sum = terms.fold(S::default(), |sum, (left, right)| left.multiply_add(right, sum)).into();
            }
        }
    }
}

#[inline(always)]
fn matrix_product<E: Element<S>, S: Copy + Default + Into<i64>, const K: usize, const N: usize>(
    m: usize,
    left: &[E],
    right: &[E],
    sums: &mut [i64],
) {
    let (left, _) = left.as_chunks::<K>();
    let (right, _) = right.as_chunks::<N>();
    let (sums, _) = sums.as_chunks_mut::<N>();
    for (sums, left) in sums.iter_mut().zip(left).take(m) {
        let mut row = [S::default(); N];
        for (factor, right) in left.iter().zip(right) {
            for (sum, right) in row.iter_mut().zip(right) {
                *sum = factor.multiply_add(*right, *sum);
            }
        }
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum = value.into();
        }
    }
}

fn float(
    operation: Accumulate,
    shape: Option<Shape>,
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, negate_second, negate_product]: [bool; 3],
    out: &mut Bytes,
) -> Option<()> {
    let single = |bytes: &Bytes, lane, negate: bool| lanes::get(bytes, 32, lane) as u32 ^ u32::from(negate) << 31;
    for lane in 0..operands.bytes / 4 {
        let mut sum = Aligned::default();
        if !operation.product {
            // Two accumulators, added as the array adds fp32; agrees with the published programs.
            let first = if has_first { single(operands.first, lane, negate_first) } else { 0 };
            let second = if has_second { single(operands.second, lane, negate_second) } else { 0 };
            lanes::set(out, 32, lane, (f32::from_bits(first) + f32::from_bits(second)).to_bits().into());
            continue;
        }
        if has_first {
            sum.single(single(operands.first, lane, negate_first));
        }
        if has_second {
            sum.single(single(operands.second, lane, negate_second));
        }
        if let Some(shape) = shape.filter(|shape| lane < shape.lanes()) {
            for term in 0..shape.products() {
                let (left, right) = shape.terms(lane, term);
                let (left, right) = (lanes::get(operands.left, 16, left), lanes::get(operands.right, 16, right));
                sum.product(left as u16, right as u16, negate_product);
            }
        }
        lanes::set(out, 32, lane, sum.finish().into());
    }
    Some(())
}

/// bf16 by element on AIE2P: the product is exact in fp32, and one addition follows.
fn float_elements(
    shape: Shape,
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, _, negate_product]: [bool; 3],
    out: &mut Bytes,
) -> Option<()> {
    // In which order three terms are rounded is not public.
    if has_second {
        return None;
    }
    let bf16 = |bytes: &Bytes, lane| f32::from_bits((lanes::get(bytes, 16, lane) as u32) << 16);
    for lane in 0..operands.bytes / 4 {
        let mut sum = 0f32;
        if lane < shape.lanes() {
            let product = bf16(operands.left, lane) * bf16(operands.right, lane);
            sum = if negate_product { -product } else { product };
            if has_first {
                let first = f32::from_bits(lanes::get(operands.first, 32, lane) as u32);
                sum += if negate_first { -first } else { first };
            }
        }
        lanes::set(out, 32, lane, sum.to_bits().into());
    }
    Some(())
}

/// Blocks of eight mantissas with one exponent: lane `i * 8 + j` gets row i of the left factor times row j of the right one.
/// The sum of products is exact; only the addition to the accumulator is rounded.
fn block_float(
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, _, negate_product]: [bool; 3],
    out: &mut Bytes,
) -> Option<()> {
    let both_signed = operands.configuration >> 8 & 3 == 3;
    if has_second || !both_signed || [operands.left_bytes, operands.right_bytes] != [EXPONENTS + 8; 2] {
        return None;
    }
    for lane in 0..64 {
        let (row, column) = (lane / 8, lane % 8);
        let mantissa = |bytes: &Bytes, index| lanes::number(bytes, 8, index, true);
        let products = (0..8).map(|k| mantissa(operands.left, row * 8 + k) * mantissa(operands.right, column * 8 + k));
        let sum: i64 = products.sum();
        let exponent = i32::from(operands.left[EXPONENTS + row]) + i32::from(operands.right[EXPONENTS + column]) - 254;
        let product = (sum as f64 * 2f64.powi(exponent) / 4096.0) * if negate_product { -1.0 } else { 1.0 };
        let first = f32::from_bits(lanes::get(operands.first, 32, lane) as u32);
        let first = if !has_first {
            0.0
        } else if negate_first {
            -first
        } else {
            first
        };
        // Both are exact in double precision; where their sum is not, the second rounding can differ in the last place only if the
        // first lands on a tie, which 17 significant bits beside 24 cannot make within 53 unless they are far apart.
        lanes::set(out, 32, lane, ((f64::from(first) + product) as f32).to_bits().into());
    }
    Some(())
}

/// The most terms of one lane: sixteen products and two accumulators.
const MOST_TERMS: usize = 18;

/// A floating-point sum as the array makes it, seen in values captured on silicon: all terms are aligned to the largest exponent
/// with 23 fractional bits, each rounded to nearest even; the sum is exact, and rounded to nearest even in the end.
/// Numbers with exponent 0 count as zero.
#[derive(Default)]
struct Aligned {
    /// (sign, significand, exponent of its lowest bit relative to 2^-277, comparable exponent).
    terms: arrayvec::ArrayVec<(bool, u64, i32, i32), MOST_TERMS>,
    /// A NaN or infinity went in: the sum of all terms with exponent 255 taken as an ordinary one decides the sign.
    special: bool,
}

impl Aligned {
    fn product(&mut self, left: u16, right: u16, negate: bool) {
        let exponent = |x: u16| i32::from(x >> 7 & 0xff);
        let significand = |x: u16| u64::from(x & 0x7f | 0x80);
        if exponent(left) == 0 || exponent(right) == 0 {
            return;
        }
        self.special |= exponent(left) == 255 || exponent(right) == 255;
        let sum = exponent(left) + exponent(right);
        let negative = (left ^ right) >> 15 == 1;
        self.terms.push((negative != negate, significand(left) * significand(right), 9, sum));
    }

    fn single(&mut self, bits: u32) {
        let exponent = (bits >> 23 & 0xff) as i32;
        if exponent == 0 {
            return;
        }
        self.special |= exponent == 255;
        self.terms.push((bits >> 31 == 1, u64::from(bits & 0x7f_ffff | 0x80_0000), 0, exponent + 127));
    }

    fn finish(&self) -> u32 {
        let Some(largest) = self.terms.iter().map(|(.., exponent)| *exponent).max() else {
            return 0;
        };
        let mut sum = 0i64;
        for (negative, significand, up, exponent) in &self.terms {
            let aligned = round_even((*significand) << up, (largest - exponent).cast_unsigned()).cast_signed();
            sum += if *negative { -aligned } else { aligned };
        }
        let negative = sum < 0;
        let sign = u32::from(negative) << 31;
        if self.special {
            return sign | 0x7f80_0001;
        }
        if sum == 0 {
            return 0;
        }
        // sum * 2^(largest - 277), normalised to 24 bits.
        let magnitude = sum.unsigned_abs();
        let extra = 64 - magnitude.leading_zeros() as i32 - 24;
        let mut rounded = if extra > 0 { round_even(magnitude, extra.cast_unsigned()) } else { magnitude << -extra };
        let mut exponent = largest - 277 + 150 + extra;
        if rounded >> 24 == 1 {
            rounded >>= 1;
            exponent += 1;
        }
        match exponent {
            ..=0 => sign,
            255.. => sign | 0x7f80_0000,
            _ => sign | exponent.cast_unsigned() << 23 | rounded as u32 & 0x7f_ffff,
        }
    }
}

/// `value / 2^shift`, to nearest, ties to even.
fn round_even(value: u64, shift: u32) -> u64 {
    if shift == 0 {
        return value;
    }
    if shift > 63 {
        return 0;
    }
    let (floor, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    floor + u64::from(rest > half || rest == half && floor & 1 == 1)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unusual_byte_groupings, reason = "the groups are the fields of the configuration word")]

    use super::*;
    use rstest::rstest;

    const MULTIPLY: Accumulate = Accumulate {
        accumulators: 0,
        product: true,
        negate_product: false,
        negate_first: false,
        negate_second: false,
        float: false,
    };

    fn product(aie2p: bool, configuration: u32, left: &Bytes, right: &Bytes, sizes: [usize; 2]) -> Option<Bytes> {
        let (zero, mut out) = ([0; 256], [0; 256]);
        let operands = Operands {
            first: &zero,
            second: &zero,
            left,
            right,
            configuration,
            bytes: if aie2p { 256 } else { 128 },
            left_bytes: sizes[0],
            right_bytes: sizes[1],
        };
        accumulate(MULTIPLY, aie2p, &operands, &mut out).map(|()| out)
    }

    /// Data counts up from 1; of the coefficients only those of point 2 are not zero, so every output is a data element further
    /// on times its channel's coefficient.
    #[rstest]
    #[case(false, 0b010_01_00_0, 8, 32, 8)]
    #[case(false, 0b011_01_00_0, 8, 32, 4)]
    #[case(false, 0b100_01_00_0, 8, 32, 1)]
    #[case(false, 0b011_11_01_0, 16, 16, 1)]
    #[case(true, 0b010_01_00_0, 8, 64, 8)]
    #[case(true, 0b100_01_00_0, 8, 64, 1)]
    #[case(true, 0b001_11_01_0, 16, 32, 8)]
    #[case(true, 0b011_11_01_0, 16, 32, 1)]
    fn convolutions_slide_over_the_data(
        #[case] aie2p: bool,
        #[case] configuration: u32,
        #[case] bits: u32,
        #[case] lanes: usize,
        #[case] channels: usize,
    ) {
        let (mut data, mut coefficients) = ([0; 256], [0; 256]);
        let bytes = if aie2p { 128 } else { 64 };
        for index in 0..bytes * 8 / bits as usize {
            lanes::set(&mut data, bits, index, index as u64 + 1);
        }
        for channel in 0..channels {
            lanes::set(&mut coefficients, bits, 2 * channels + channel, channel as u64 + 3);
        }
        let out = product(aie2p, configuration, &data, &coefficients, [bytes, 64]).unwrap();
        let width = if configuration >> 1 & 3 == 0 { 32 } else { 64 };
        for lane in 0..lanes {
            let expected = (lane + 2 * channels + 1) * (lane % channels + 3);
            assert_eq!(lanes::get(&out, width, lane), expected as u64, "lane {lane}");
        }
    }

    #[test]
    fn a_factor_that_is_too_short_is_rejected() {
        // 64 elements of 16 bits.
        let zero = [0; 256];
        assert!(product(true, 0b001_11_00_0, &zero, &zero, [128, 128]).is_some());
        assert!(product(true, 0b001_11_00_0, &zero, &zero, [64, 128]).is_none());
    }
}
