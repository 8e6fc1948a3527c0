//! Tensors with values.

use aie_ops::{DataType, Tensor, blocks};
use fastrand::Rng;

/// To the nearest bf16, ties to even; finite numbers only.
pub fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The number of a bf16.
pub fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// An f16 with a mantissa of eight bits, as bf16 has it, to nearest, ties to even.
fn eight_bits(half: u16) -> u16 {
    let (sign, magnitude) = (half & 0x8000, half & 0x7fff);
    // Of numbers below 2^-14 those bits that are there.
    let bits = if magnitude < 0x400 { (16 - magnitude.leading_zeros() as u16).saturating_sub(8) } else { 3 };
    if bits == 0 {
        return half;
    }
    let unit = 1 << bits;
    let rounded = (magnitude + unit / 2 - 1 + (magnitude >> bits & 1)) / unit * unit;
    sign | rounded
}

/// The number of a finite f16.
fn of_f16(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    let magnitude = if exponent == 0 {
        fraction / 1024.0 * 2f32.powi(-14)
    } else {
        (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15)
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// A block of q4_K whose scales and centres of parts are rounded to bf16.
fn long_block(block: &[u8]) -> Vec<f32> {
    let half = |at: usize| of_f16(u16::from_le_bytes([block[at], block[at + 1]]));
    let (packed, quants) = (&block[4..16], &block[16..]);
    let part = |part: usize, minimum: usize| match part {
        0..4 => packed[part + 4 * minimum] & 63,
        _ => packed[part + 4] >> (4 * minimum) & 15 | packed[part - 4 + 4 * minimum] >> 6 << 4,
    };
    let rounded = |value: f32| of_bf16(bf16(value));
    let value = |index: usize| {
        let (of, byte) = (index / 32, quants[index / 64 * 32 + index % 32]);
        let quant = if of.is_multiple_of(2) { byte & 15 } else { byte >> 4 };
        let (scale, minimum) = (half(0) * f32::from(part(of, 0)), half(2) * f32::from(part(of, 1)));
        rounded(scale) * (f32::from(quant) - 8.0) - rounded(minimum - 8.0 * scale)
    };
    (0..256).map(value).collect()
}

/// A block of q6_K whose scales of parts are rounded to bf16.
fn block_of_six_bits(block: &[u8]) -> Vec<f32> {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = of_f16(u16::from_le_bytes([block[208], block[209]]));
    let value = |index: usize| {
        // In each 128: nibbles of 64 bytes, the lower ones first; two bits of 32 bytes, from the lowest on.
        let (half, within) = (index / 128, index % 128);
        let nibble = low[64 * half + within % 64] >> (within / 64 * 4) & 15;
        let top = high[32 * half + within % 32] >> (within / 32 * 2) & 3;
        let scale = of_bf16(bf16(d * f32::from(scales[index / 16] as i8)));
        scale * (f32::from(nibble | top << 4) - 32.0)
    };
    (0..256).map(value).collect()
}

/// A tensor and its bytes.
#[derive(Clone)]
pub struct Data {
    pub tensor: Tensor,
    pub bytes: Vec<u8>,
}

impl Data {
    /// Random values between -1 and 1, times `scale`, as the strides say; gaps are 0xAA.
    pub fn random(tensor: Tensor, random: &mut Rng, scale: f32) -> Self {
        let mut data = Self { tensor, bytes: vec![0xAA; tensor.span_bytes()] };
        for row in 0..tensor.rows() {
            let values: Vec<f32> = (0..tensor.ne[0]).map(|_| (2.0 * random.f32() - 1.0) * scale).collect();
            let start = data.row(row);
            if tensor.dtype.is_quantised() {
                let end = start + tensor.dtype.row_bytes(tensor.ne[0]);
                assert!(blocks::encode(tensor.dtype, &values, &mut data.bytes[start..end]));
                continue;
            }
            for (index, value) in values.iter().enumerate() {
                let at = start + index * tensor.nb[0];
                match tensor.dtype {
                    DataType::F32 => data.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
                    DataType::BF16 => data.bytes[at..at + 2].copy_from_slice(&bf16(*value).to_le_bytes()),
                    DataType::I8 => data.bytes[at] = ((*value * 128.0) as i8).cast_unsigned(),
                    _ => {}
                }
            }
        }
        data
    }

    /// Where row number `row`, counted over dimensions 1 to 3, begins.
    fn row(&self, row: usize) -> usize {
        let (ne, nb) = (self.tensor.ne, self.tensor.nb);
        row % ne[1] * nb[1] + row / ne[1] % ne[2] * nb[2] + row / (ne[1] * ne[2]) * nb[3]
    }

    /// The same with scales and minimums of blocks of at most 32 rounded to bf16, as the cores hold them.
    pub fn with_rounded_scales(&self) -> Self {
        let (mut rounded, dtype) = (self.clone(), self.tensor.dtype);
        let scales = match dtype {
            DataType::Q4_0 | DataType::Q8_0 | DataType::Q6_K => 1,
            DataType::Q4_1 => 2,
            _ => 0,
        };
        for block in rounded.bytes.chunks_exact_mut(dtype.block_bytes()) {
            if dtype == DataType::Q6_K {
                block.rotate_right(2);
            }
            for scale in block.chunks_exact_mut(2).take(scales) {
                let bits = u16::from_le_bytes([scale[0], scale[1]]);
                scale.copy_from_slice(&eight_bits(bits).to_le_bytes());
            }
            // Where the scale is behind all else.
            if dtype == DataType::Q6_K {
                block.rotate_left(2);
            }
        }
        rounded
    }

    /// The values of a row as the cores hold them before they round them to bf16.
    pub fn values_on_cores(&self, row: usize) -> Vec<f32> {
        let rounded = self.with_rounded_scales();
        let dtype = self.tensor.dtype;
        let decode = match dtype {
            DataType::Q4_K => long_block,
            DataType::Q6_K => block_of_six_bits,
            _ => return rounded.values(row),
        };
        let start = self.row(row);
        let end = start + dtype.row_bytes(self.tensor.ne[0]);
        rounded.bytes[start..end].chunks_exact(dtype.block_bytes()).flat_map(decode).collect()
    }

    /// The values of a row.
    pub fn values(&self, row: usize) -> Vec<f32> {
        let (start, count) = (self.row(row), self.tensor.ne[0]);
        let mut values = vec![0.0; count];
        if self.tensor.dtype.is_quantised() {
            let end = start + self.tensor.dtype.row_bytes(count);
            assert!(blocks::decode(self.tensor.dtype, &self.bytes[start..end], &mut values));
            return values;
        }
        for (index, value) in values.iter_mut().enumerate() {
            let at = &self.bytes[start + index * self.tensor.nb[0]..];
            match self.tensor.dtype {
                DataType::F32 => *value = f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
                DataType::BF16 => *value = of_bf16(u16::from_le_bytes([at[0], at[1]])),
                _ => {}
            }
        }
        values
    }
}

/// `tensor` with its dimensions exchanged: dimension `order[i]` of the result is dimension `i` of `tensor`.
pub fn permuted(tensor: Tensor, order: [usize; 4]) -> Tensor {
    let mut result = tensor;
    for (from, to) in order.into_iter().enumerate() {
        (result.ne[to], result.nb[to]) = (tensor.ne[from], tensor.nb[from]);
    }
    result
}
