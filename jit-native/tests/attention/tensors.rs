//! Tensors with values.

use aie_ops::{DataType, Tensor};
use fastrand::Rng;

/// An f16 between -2 and 2: any sign and mantissa, exponents from 2^-7 to 1.
fn half(random: &mut Rng) -> u16 {
    random.u16(0..2) << 15 | random.u16(8..16) << 10 | random.u16(..0x400)
}

/// The number of an f16, by IEEE 754.
pub fn of_half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 => f64::INFINITY,
        _ => (mantissa + 1024.0) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// A tensor and its bytes.
#[derive(Clone)]
pub struct Data {
    pub tensor: Tensor,
    pub bytes: Vec<u8>,
}

impl Data {
    /// Random values of a type of floats.
    pub fn random(tensor: Tensor, random: &mut Rng) -> Self {
        let mut data = Self { tensor, bytes: vec![0xAA; tensor.span_bytes()] };
        let [n0, n1, n2, n3] = tensor.ne;
        for index in 0..n0 * n1 * n2 * n3 {
            let at = data.at([index % n0, index / n0 % n1, index / (n0 * n1) % n2, index / (n0 * n1 * n2)]);
            let half = half(random);
            let number = (of_half(half) as f32).to_bits();
            match tensor.dtype {
                DataType::F16 => data.bytes[at..at + 2].copy_from_slice(&half.to_le_bytes()),
                DataType::BF16 => data.bytes[at..at + 2].copy_from_slice(&((number >> 16) as u16).to_le_bytes()),
                _ => data.bytes[at..at + 4].copy_from_slice(&number.to_le_bytes()),
            }
        }
        data
    }

    fn at(&self, index: [usize; 4]) -> usize {
        index.iter().zip(self.tensor.nb).map(|(index, stride)| index * stride).sum()
    }

    /// Sets an element's bits.
    pub fn set_half(&mut self, index: [usize; 4], bits: u16) {
        let at = self.at(index);
        self.bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }

    /// An element.
    pub fn get(&self, index: [usize; 4]) -> f64 {
        let at = self.at(index);
        let half = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
        match self.tensor.dtype {
            DataType::F16 => of_half(half),
            DataType::BF16 => f32::from_bits(u32::from(half) << 16).into(),
            _ => f32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap()).into(),
        }
    }
}
