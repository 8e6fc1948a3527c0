//! Tensors as ggml sees them: a type, four extents, four byte strides.
//!
//! Extents and strides are innermost first: `ne[0]` is the number of elements in a row, `nb[1]` the distance of two rows in
//! bytes. Quantised types store blocks along `ne[0]`, so `nb[0]` is the size of a block.

use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

/// Declares the element types: variant, ggml name, elements per block, bytes per block.
macro_rules! data_types {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $block:literal, $bytes:literal;)*) => {
        /// Element types, by ggml's names (`ggml_type_name`). Block sizes: ggml.h and ggml-common.h.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[allow(non_camel_case_types, reason = "the variants carry ggml's own spelling")]
        pub enum DataType { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl DataType {
            /// All types, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// ggml's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Elements per block; 1 for plain types.
            pub fn block_elements(self) -> usize {
                match self { $(Self::$variant => $block,)* }
            }

            /// Bytes per block (per element for plain types).
            pub fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes,)* }
            }

            /// Finds a type by ggml's name (case-insensitive: some versions spell `q4_K`, some `q4_k`).
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(name))
            }
        }
    };
}

data_types! {
    /// IEEE single precision.
    F32 = "f32", 1, 4;
    /// IEEE half precision.
    F16 = "f16", 1, 2;
    /// Upper half of a single.
    BF16 = "bf16", 1, 2;
    /// IEEE double precision.
    F64 = "f64", 1, 8;
    /// Signed 8 bits.
    I8 = "i8", 1, 1;
    /// Signed 16 bits.
    I16 = "i16", 1, 2;
    /// Signed 32 bits.
    I32 = "i32", 1, 4;
    /// Signed 64 bits.
    I64 = "i64", 1, 8;
    /// 4 bits, scale.
    Q4_0 = "q4_0", 32, 18;
    /// 4 bits, scale and minimum.
    Q4_1 = "q4_1", 32, 20;
    /// 5 bits, scale.
    Q5_0 = "q5_0", 32, 22;
    /// 5 bits, scale and minimum.
    Q5_1 = "q5_1", 32, 24;
    /// 8 bits, scale.
    Q8_0 = "q8_0", 32, 34;
    /// 2-bit super-blocks.
    Q2_K = "q2_K", 256, 84;
    /// 3-bit super-blocks.
    Q3_K = "q3_K", 256, 110;
    /// 4-bit super-blocks.
    Q4_K = "q4_K", 256, 144;
    /// 5-bit super-blocks.
    Q5_K = "q5_K", 256, 176;
    /// 6-bit super-blocks.
    Q6_K = "q6_K", 256, 210;
    /// 2.06 bits, lattice.
    IQ2_XXS = "iq2_xxs", 256, 66;
    /// 2.31 bits, lattice.
    IQ2_XS = "iq2_xs", 256, 74;
    /// 2.5 bits, lattice.
    IQ2_S = "iq2_s", 256, 82;
    /// 3.06 bits, lattice.
    IQ3_XXS = "iq3_xxs", 256, 98;
    /// 3.44 bits, lattice.
    IQ3_S = "iq3_s", 256, 110;
    /// 1.56 bits, lattice.
    IQ1_S = "iq1_s", 256, 50;
    /// 1.75 bits, lattice.
    IQ1_M = "iq1_m", 256, 56;
    /// 4 bits, non-linear.
    IQ4_NL = "iq4_nl", 32, 18;
    /// 4 bits, non-linear super-blocks.
    IQ4_XS = "iq4_xs", 256, 136;
    /// Ternary, 1.69 bits.
    TQ1_0 = "tq1_0", 256, 54;
    /// Ternary, 2.06 bits.
    TQ2_0 = "tq2_0", 256, 66;
    /// 4-bit float, shared power-of-two scale.
    MXFP4 = "mxfp4", 32, 17;
    /// 4-bit float, shared 8-bit float scales.
    NVFP4 = "nvfp4", 64, 36;
    /// 1 bit, scale.
    Q1_0 = "q1_0", 128, 18;
    /// 2 bits, scale.
    Q2_0 = "q2_0", 64, 18;
}

impl DataType {
    /// Whether elements come in blocks.
    pub fn is_quantised(self) -> bool {
        self.block_elements() > 1
    }

    /// Bytes of a row of `elements`, which is a multiple of the block.
    pub fn row_bytes(self, elements: usize) -> usize {
        elements / self.block_elements() * self.block_bytes()
    }
}

impl Display for DataType {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Type, extents and strides of a tensor; no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tensor {
    /// Element type.
    pub dtype: DataType,
    /// Elements by dimension, innermost first; unused dimensions are 1.
    pub ne: [usize; 4],
    /// Bytes between neighbours by dimension.
    pub nb: [usize; 4],
}

/// The numbers of a tensor make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Its rows have other lengths than the blocks of its type.
    #[error("a row of {row} elements of {dtype} is not whole blocks of {block}")]
    #[allow(missing_docs, reason = "the message names them")]
    Blocks { row: usize, block: usize, dtype: DataType },
    /// Its bytes cannot be counted.
    #[error("extents {:?} with strides {:?} of {} exceed any memory", .0.ne, .0.nb, .0.dtype)]
    TooLarge(Tensor),
}

impl Tensor {
    /// A contiguous tensor.
    pub fn contiguous(dtype: DataType, ne: [usize; 4]) -> Self {
        let row = dtype.row_bytes(ne[0]);
        let nb = [dtype.block_bytes(), row, row * ne[1], row * ne[1] * ne[2]];
        Self { dtype, ne, nb }
    }

    /// Whether the numbers make sense: whole blocks in a row, and sizes that can be computed. The other methods are defined for
    /// tensors that pass; check what comes from outside with this first.
    ///
    /// # Errors
    /// [`TensorError`].
    pub fn validate(&self) -> Result<(), TensorError> {
        let (row, block) = (self.ne[0], self.dtype.block_elements());
        if !row.is_multiple_of(block) {
            return Err(TensorError::Blocks { row, block, dtype: self.dtype });
        }
        // Products over all extents, with empty ones counted as 1, bound every partial product the methods form.
        let extents = self.ne.map(|extent| extent.max(1));
        let elements = extents.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        let bytes = elements.and_then(|elements| elements.checked_mul(self.dtype.block_bytes().max(8)));
        let span = extents
            .iter()
            .zip(self.nb)
            .try_fold(self.dtype.block_bytes(), |sum, (extent, stride)| sum.checked_add(extent.checked_mul(stride)?));
        match bytes.zip(span) {
            // Offsets into memory are at most isize::MAX.
            Some((bytes, span)) if bytes.max(span) <= isize::MAX.cast_unsigned() => Ok(()),
            _ => Err(TensorError::TooLarge(*self)),
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.ne.iter().product()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ne[1..].iter().product()
    }

    /// Bytes from the first to behind the last element, gaps included (`ggml_nbytes`). 0 when empty.
    pub fn span_bytes(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let first = if self.dtype.is_quantised() {
            self.dtype.row_bytes(self.ne[0])
        } else {
            self.dtype.block_bytes() + (self.ne[0] - 1) * self.nb[0]
        };
        (1..4).fold(first, |sum, i| sum + (self.ne[i] - 1) * self.nb[i])
    }

    /// Number of dimensions in use (`ggml_n_dims`): the highest with more than one element, at least 1.
    pub fn dimensions(&self) -> usize {
        (1..4).rev().find(|&i| self.ne[i] > 1).map_or(1, |i| i + 1)
    }

    /// Whether elements follow each other without gaps in dimension order (`ggml_is_contiguous`).
    pub fn is_contiguous(&self) -> bool {
        self.contiguous_from(0)
    }

    /// Whether each row has no gaps (`ggml_is_contiguous_rows`, type size as inner stride); empty rows have none.
    pub fn has_contiguous_rows(&self) -> bool {
        self.ne[0] <= self.dtype.block_elements() || self.nb[0] == self.dtype.block_bytes()
    }

    /// As `ggml_is_contiguous_n`: strides of dimensions up to `n` are free.
    fn contiguous_from(&self, n: usize) -> bool {
        let mut next = self.dtype.block_bytes();
        if self.ne[0] != self.dtype.block_elements() && self.nb[0] != next {
            return false;
        }
        next *= self.ne[0] / self.dtype.block_elements();
        for i in 1..4 {
            if i > n {
                if self.ne[i] != 1 && self.nb[i] != next {
                    return false;
                }
                next *= self.ne[i];
            } else {
                next = self.ne[i] * self.nb[i];
            }
        }
        true
    }

    /// Whether the elements fill their span, in whatever dimension order (`ggml_is_contiguously_allocated`).
    pub fn is_contiguously_allocated(&self) -> bool {
        self.span_bytes() == self.elements() * self.dtype.block_bytes() / self.dtype.block_elements()
    }

    /// Whether a dimension has a larger stride than the next (`ggml_is_permuted`).
    pub fn is_permuted(&self) -> bool {
        self.nb[0] > self.nb[1] || self.nb[1] > self.nb[2] || self.nb[2] > self.nb[3]
    }

    /// Whether elements share memory, and so much of it that ggml counts the tensor as contiguously allocated: the span is as
    /// long as the elements without gaps would be. The C++ backend leaves the layout of such a source as it is.
    pub fn shares_memory(&self) -> bool {
        let size = self.dtype.block_bytes();
        self.nb.iter().all(|stride| stride.is_multiple_of(size))
            && !self.dtype.is_quantised()
            && !self.is_contiguous()
            && self.is_contiguously_allocated()
            && !self.is_permuted()
    }

    /// Same extents.
    pub fn same_shape(&self, other: &Self) -> bool {
        self.ne == other.ne
    }

    /// Whether this tensor repeats to `target`'s extents (`ggml_can_repeat`).
    pub fn repeats_to(&self, target: &Self) -> bool {
        if self.elements() == 0 {
            return target.elements() == 0;
        }
        self.ne.iter().zip(&target.ne).all(|(a, b)| b % a == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn strided(ne: [usize; 4], nb: [usize; 4]) -> Tensor {
        Tensor { dtype: DataType::F32, ne, nb }
    }

    #[test]
    fn types_are_found_by_name() {
        for dtype in DataType::ALL {
            assert_eq!(DataType::from_name(&dtype.name().to_uppercase()), Some(*dtype));
        }
        assert_eq!(DataType::from_name("q9_9"), None);
    }

    /// Spans as `ggml_nbytes` gives them.
    #[rstest]
    #[case::plain(Tensor::contiguous(DataType::F32, [5, 3, 1, 1]), 60)]
    #[case::blocks(Tensor::contiguous(DataType::Q4_1, [64, 3, 1, 1]), 120)]
    #[case::gaps(strided([5, 3, 1, 1], [4, 32, 96, 96]), 84)]
    #[case::transposed(strided([3, 5, 1, 1], [20, 4, 60, 60]), 60)]
    #[case::empty(Tensor::contiguous(DataType::F32, [5, 0, 1, 1]), 0)]
    fn spans(#[case] tensor: Tensor, #[case] bytes: usize) {
        assert_eq!(tensor.span_bytes(), bytes);
    }

    /// Contiguous, contiguously allocated, permuted, contiguous rows.
    #[rstest]
    #[case::plain(Tensor::contiguous(DataType::F32, [5, 3, 2, 1]), [true, true, false, true])]
    #[case::gaps(strided([5, 3, 2, 1], [4, 32, 96, 192]), [false, false, false, true])]
    #[case::transposed(strided([3, 5, 1, 1], [20, 4, 60, 60]), [false, true, true, false])]
    #[case::free_stride_of_one(strided([5, 1, 2, 1], [4, 999, 20, 40]), [true, true, true, true])]
    fn layouts(#[case] tensor: Tensor, #[case] expected: [bool; 4]) {
        let found = [
            tensor.is_contiguous(),
            tensor.is_contiguously_allocated(),
            tensor.is_permuted(),
            tensor.has_contiguous_rows(),
        ];
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case(strided([4, 3, 2, 1], [4, 16, 48, 96]), None)]
    #[case(strided([0, 3, 2, 1], [4, 16, 48, 96]), None)]
    #[case(Tensor { dtype: DataType::Q4_0, ne: [33, 1, 1, 1], nb: [18; 4] }, Some("not whole blocks of 32"))]
    #[case(strided([1 << 40, 1 << 40, 1, 1], [4; 4]), Some("exceed any memory"))]
    #[case(strided([2, 2, 2, 2], [4, usize::MAX, 4, 4]), Some("exceed any memory"))]
    #[case(strided([0, 1 << 40, 1 << 40, 1], [4; 4]), Some("exceed any memory"))]
    #[case(strided([usize::MAX, 1, 1, 1], [4; 4]), Some("exceed any memory"))]
    #[case(strided([1 << 20, 1 << 20, 1 << 20, 1 << 20], [4; 4]), Some("exceed any memory"))]
    #[case(strided([4, 1, 2, 1], [4, usize::MAX, usize::MAX, 4]), Some("exceed any memory"))]
    fn nonsense_is_found(#[case] tensor: Tensor, #[case] expected: Option<&str>) {
        match (tensor.validate(), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn dimensions_and_repetition() {
        let tensor = |ne| Tensor::contiguous(DataType::F32, ne);
        assert_eq!([[1; 4], [8, 1, 1, 1], [1, 4, 1, 1], [2, 1, 1, 3]].map(|ne| tensor(ne).dimensions()), [1, 1, 2, 4]);
        assert!(tensor([5, 1, 2, 1]).repeats_to(&tensor([10, 3, 2, 1])));
        assert!(!tensor([5, 2, 1, 1]).repeats_to(&tensor([10, 3, 2, 1])));
        assert!(tensor([0, 1, 1, 1]).repeats_to(&tensor([0, 7, 1, 1])));
    }
}
