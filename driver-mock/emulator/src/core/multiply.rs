//! Multiply-accumulate: what the configuration word asks for, and integers, whose sums are modulo the lane.

use super::lanes::{self, Bytes};
use super::operation::Accumulate;
use super::shape::{Configuration, Operands, Pattern, Shape, shape_aie2, shape_aie2p};
use super::{MOST_BYTES, block_float, float};
use aie_isa::InstructionSet;

/// The most lanes of an accumulator, and the most elements of a factor.
const MOST_LANES: usize = 64;
const MOST_ELEMENTS: usize = 128;

/// Computes an accumulation.
///
/// None when the configuration word names a shape, or asks for something, that no public source describes.
pub fn accumulate(operation: Accumulate, set: InstructionSet, operands: &Operands<'_>, out: &mut Bytes) -> Option<()> {
    let word = Configuration(operands.configuration);
    let is_integer_sum = !operation.product && !operation.float;
    // AIE2's sums of integers look neither at negations of complex products nor at the lane type, as seen on silicon.
    let (shape, sums_any, has_block_float, adds_by_element) = match set {
        InstructionSet::Aie2 => (shape_aie2(word.shape()), is_integer_sum, false, false),
        InstructionSet::Aie2p => (shape_aie2p(word.shape(), operands.left_bytes), false, true, true),
    };
    let negate_product = operation.negate_product ^ word.bit(11);
    let negate_first = operation.negate_first ^ word.bit(12);
    let negate_second = operation.negate_second ^ word.bit(13);
    let has_first = operation.accumulators > 0 && !word.zero_first();
    let has_second = operation.accumulators > 1;
    // Negated terms of complex products have no model, nor has a lane type that is not the instruction's.
    if !sums_any && (word.0 >> 16 != 0 || operation.float != (word.amode() == 2)) {
        return None;
    }
    let negations = [negate_first, negate_second, negate_product];
    if has_block_float && operation.product && word.shape() == (2, 1, 0) {
        return block_float::multiply(operands, [has_first, has_second], negations, out);
    }
    if operation.product && !shape.is_some_and(|shape| shape.fits(operands.left_bytes, operands.right_bytes)) {
        return None;
    }
    if operation.float {
        if word.bit(10) {
            return None;
        }
        if adds_by_element && operation.product {
            return float::by_element(shape?, operands, [has_first, has_second], negations, out);
        }
        return float::sums(operation, shape, operands, [has_first, has_second], negations, out);
    }
    integers(word, shape.filter(|_| operation.product), operands, [has_first, has_second], negations, out);
    Some(())
}

/// Lanes of 32 or 64 bits: the sums of products and of accumulators, modulo the lane.
fn integers(
    word: Configuration,
    shape: Option<Shape>,
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, negate_second, negate_product]: [bool; 3],
    out: &mut Bytes,
) {
    let bits = if word.amode() == 1 { 64 } else { 32 };
    let adds_as_they_are = !(has_second || word.bit(10) || negate_first || negate_second || negate_product);
    if let Some(shape) = shape.filter(|_| adds_as_they_are && word.bit(8) && word.bit(9))
        && let Some(()) = signed_matrices(shape, bits, operands, has_first, out)
    {
        return;
    }
    let mut sums = [0i64; MOST_LANES];
    let sums = &mut sums[..operands.bytes / if bits == 64 { 8 } else { 4 }];
    if let Some(shape) = shape {
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
}

/// The most frequent: matrices of signed 16-bit numbers, whose product is added to an accumulator. None if it is something else.
#[inline]
fn signed_matrices(shape: Shape, bits: u32, operands: &Operands<'_>, has_first: bool, out: &mut Bytes) -> Option<()> {
    let Pattern::Matrix { m, k, n } = shape.pattern else { return None };
    let first = if has_first { operands.first } else { &[0; MOST_BYTES] };
    let (left, right) = (operands.left, operands.right);
    match (shape.left_bits, shape.right_bits, bits, [m, k, n]) {
        (16, 16, 64, [4, 4, 4]) => add_wide::<4, 4, 4>(left, right, first, out),
        (16, 16, 64, [2, 4, 8]) => add_wide::<2, 4, 8>(left, right, first, out),
        (16, 16, 64, [4, 4, 8]) => add_wide::<4, 4, 8>(left, right, first, out),
        (16, 16, 32, [4, 2, 8]) => add_narrow::<4, 2, 8>(left, right, first, out),
        (16, 16, 32, [8, 2, 8]) => add_narrow::<8, 2, 8>(left, right, first, out),
        _ => return None,
    }
    Some(())
}

/// Adds a product of `M x K` and `K x N` matrices to lanes of 64 bits. Constant sizes, so that the compiler makes vector
/// instructions of it.
#[inline(always)]
fn add_wide<const M: usize, const K: usize, const N: usize>(
    left: &Bytes,
    right: &Bytes,
    first: &Bytes,
    out: &mut Bytes,
) {
    for row in 0..M {
        let mut sums = [0i64; N];
        for k in (0..K).step_by(2) {
            let (a, b) = (number(left, row * K + k), number(left, row * K + k + 1));
            for (column, sum) in sums.iter_mut().enumerate() {
                let products = [a * number(right, k * N + column), b * number(right, (k + 1) * N + column)];
                // Hosts add 32 bits faster. One sum does not fit them, 2^31: it is there as -2^31, which no other is.
                *sum += i64::from(products[0].wrapping_add(products[1]).wrapping_sub(1)) + 1;
            }
        }
        let at = row * N * 8..(row + 1) * N * 8;
        let lanes = out[at.clone()].as_chunks_mut().0.iter_mut().zip(first[at].as_chunks().0);
        for ((lane, first), sum) in lanes.zip(sums) {
            *lane = i64::from_le_bytes(*first).wrapping_add(sum).to_le_bytes();
        }
    }
}

/// The same with lanes of 32 bits.
#[inline(always)]
fn add_narrow<const M: usize, const K: usize, const N: usize>(
    left: &Bytes,
    right: &Bytes,
    first: &Bytes,
    out: &mut Bytes,
) {
    for row in 0..M {
        let mut sums = [0i32; N];
        for k in 0..K {
            let factor = number(left, row * K + k);
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(factor * number(right, k * N + column));
            }
        }
        let at = row * N * 4..(row + 1) * N * 4;
        let lanes = out[at.clone()].as_chunks_mut().0.iter_mut().zip(first[at].as_chunks().0);
        for ((lane, first), sum) in lanes.zip(sums) {
            *lane = i32::from_le_bytes(*first).wrapping_add(sum).to_le_bytes();
        }
    }
}

/// A number of 16 bits.
#[inline(always)]
fn number(bytes: &Bytes, index: usize) -> i32 {
    i16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).into()
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unusual_byte_groupings, reason = "the groups are the fields of the configuration word")]

    use super::*;
    use InstructionSet::{Aie2, Aie2p};
    use rstest::rstest;

    const MULTIPLY: Accumulate = Accumulate {
        accumulators: 0,
        product: true,
        negate_product: false,
        negate_first: false,
        negate_second: false,
        float: false,
    };

    fn product(
        set: InstructionSet,
        configuration: u32,
        left: &Bytes,
        right: &Bytes,
        sizes: [usize; 2],
    ) -> Option<Bytes> {
        let (zero, mut out) = ([0; 256], [0; 256]);
        let operands = Operands {
            first: &zero,
            second: &zero,
            left,
            right,
            configuration,
            bytes: if set == Aie2p { 256 } else { 128 },
            left_bytes: sizes[0],
            right_bytes: sizes[1],
        };
        accumulate(MULTIPLY, set, &operands, &mut out).map(|()| out)
    }

    /// Data counts up from 1; of the coefficients only those of point 2 are not zero, so every output is a data element further
    /// on times its channel's coefficient.
    #[rstest]
    #[case(Aie2, 0b010_01_00_0, 8, 32, 8)]
    #[case(Aie2, 0b011_01_00_0, 8, 32, 4)]
    #[case(Aie2, 0b100_01_00_0, 8, 32, 1)]
    #[case(Aie2, 0b011_11_01_0, 16, 16, 1)]
    #[case(Aie2p, 0b010_01_00_0, 8, 64, 8)]
    #[case(Aie2p, 0b100_01_00_0, 8, 64, 1)]
    #[case(Aie2p, 0b001_11_01_0, 16, 32, 8)]
    #[case(Aie2p, 0b011_11_01_0, 16, 32, 1)]
    fn convolutions_slide_over_the_data(
        #[case] set: InstructionSet,
        #[case] configuration: u32,
        #[case] bits: u32,
        #[case] lanes: usize,
        #[case] channels: usize,
    ) {
        let (mut data, mut coefficients) = ([0; 256], [0; 256]);
        let bytes = if set == Aie2p { 128 } else { 64 };
        for index in 0..bytes * 8 / bits as usize {
            lanes::set(&mut data, bits, index, index as u64 + 1);
        }
        for channel in 0..channels {
            lanes::set(&mut coefficients, bits, 2 * channels + channel, channel as u64 + 3);
        }
        let out = product(set, configuration, &data, &coefficients, [bytes, 64]).unwrap();
        let width = if configuration >> 1 & 3 == 0 { 32 } else { 64 };
        for lane in 0..lanes {
            let expected = (lane + 2 * channels + 1) * (lane % channels + 3);
            assert_eq!(lanes::get(&out, width, lane), expected as u64, "lane {lane}");
        }
    }

    /// Every lane is its accumulator and the sum of its products, for all matrices of signed 16-bit numbers, also at the ends of
    /// their range.
    #[rstest]
    #[case(Aie2, 0b000_11_00_0, [4, 2, 8])]
    #[case(Aie2, 0b000_11_01_0, [2, 4, 8])]
    #[case(Aie2, 0b001_11_01_0, [4, 4, 4])]
    #[case(Aie2p, 0b000_11_00_0, [8, 2, 8])]
    #[case(Aie2p, 0b000_11_01_0, [4, 4, 8])]
    fn signed_matrices_are_added(#[case] set: InstructionSet, #[case] configuration: u32, #[case] sizes: [usize; 3]) {
        let [m, k, n] = sizes;
        let bits = if configuration >> 1 & 3 == 0 { 32 } else { 64 };
        let spread = |seed: u64, index: usize| (index as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        for seed in 0..8 {
            let [mut left, mut right, mut first, mut out] = [[0; 256]; 4];
            for index in 0..128 {
                let extreme = seed == 0 || seed == 1 && index % 3 > 0;
                let number = |seed| if extreme { 0x8000 } else { spread(seed, index) & 0xffff };
                lanes::set(&mut left, 16, index, number(seed));
                lanes::set(&mut right, 16, index, number(seed + 100));
            }
            for lane in 0..m * n {
                lanes::set(&mut first, bits, lane, spread(seed + 200, lane));
            }
            let operands = Operands {
                first: &first,
                second: &[0; 256],
                left: &left,
                right: &right,
                configuration: configuration | 0b11 << 8,
                bytes: m * n * bits as usize / 8,
                left_bytes: if set == Aie2p { 128 } else { 64 },
                right_bytes: if set == Aie2p { 128 } else { 64 },
            };
            accumulate(Accumulate { accumulators: 1, ..MULTIPLY }, set, &operands, &mut out).unwrap();
            for lane in 0..m * n {
                let product = |term| {
                    let (row, column) = (lane / n, lane % n);
                    lanes::number(&left, 16, row * k + term, true) * lanes::number(&right, 16, term * n + column, true)
                };
                let sum = lanes::number(&first, bits, lane, true) + (0..k).map(product).sum::<i64>();
                let expected = if bits == 32 { i64::from(sum as i32) } else { sum };
                assert_eq!(lanes::number(&out, bits, lane, true), expected, "lane {lane}, seed {seed}");
            }
        }
    }

    #[test]
    fn a_factor_that_is_too_short_is_rejected() {
        // 64 elements of 16 bits.
        let zero = [0; 256];
        assert!(product(Aie2p, 0b001_11_00_0, &zero, &zero, [128, 128]).is_some());
        assert!(product(Aie2p, 0b001_11_00_0, &zero, &zero, [64, 128]).is_none());
    }
}
