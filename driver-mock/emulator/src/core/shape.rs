//! What a multiplication works on: its operands, and the shape that its configuration word names, which says what elements make
//! which lane.

use super::lanes::Bytes;

/// The configuration word of the vec slot.
#[derive(Clone, Copy, Debug)]
pub struct Configuration(pub u32);

impl Configuration {
    pub fn zero_first(self) -> bool {
        self.0 & 1 == 1
    }

    pub fn amode(self) -> u32 {
        self.0 >> 1 & 3
    }

    pub fn shape(self) -> (u32, u32, u32) {
        (self.amode(), self.0 >> 3 & 3, self.0 >> 5 & 7)
    }

    pub fn bit(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }
}

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

/// How products become lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
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
pub struct Shape {
    pub left_bits: u32,
    pub right_bits: u32,
    pub pattern: Pattern,
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
pub fn shape_aie2(mode: (u32, u32, u32)) -> Option<Shape> {
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
pub fn shape_aie2p(mode: (u32, u32, u32), left_bytes: usize) -> Option<Shape> {
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
    pub fn lanes(&self) -> usize {
        match self.pattern {
            Pattern::Matrix { m, n, .. } => m * n,
            Pattern::Elements { lanes, .. } => lanes,
            Pattern::Convolution { outputs, channels, .. } => outputs * channels,
        }
    }

    /// How many elements of both operands are used.
    pub fn elements(&self) -> (usize, usize) {
        match self.pattern {
            Pattern::Matrix { m, k, n } => (m * k, k * n),
            Pattern::Elements { lanes, products } => (lanes * products, lanes * products),
            Pattern::Convolution { outputs, points, channels } => {
                ((outputs + points - 1) * channels, points * channels)
            }
        }
    }

    /// Whether factors of these sizes have all the elements.
    pub fn fits(&self, left_bytes: usize, right_bytes: usize) -> bool {
        let (left, right) = self.elements();
        left * self.left_bits as usize <= left_bytes * 8 && right * self.right_bits as usize <= right_bytes * 8
    }

    pub fn products(&self) -> usize {
        match self.pattern {
            Pattern::Matrix { k, .. } => k,
            Pattern::Elements { products, .. } => products,
            Pattern::Convolution { points, .. } => points,
        }
    }

    /// The elements of both operands that make product `term` of a lane.
    pub fn terms(&self, lane: usize, term: usize) -> (usize, usize) {
        match self.pattern {
            Pattern::Matrix { k, n, .. } => (lane / n * k + term, term * n + lane % n),
            Pattern::Elements { lanes, .. } => (lane + term * lanes, lane + term * lanes),
            Pattern::Convolution { channels, .. } => (lane + term * channels, lane % channels + term * channels),
        }
    }
}
