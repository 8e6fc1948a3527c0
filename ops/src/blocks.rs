//! The block formats of GGUF: every quantised type's bytes as numbers, and numbers as bytes.
//!
//! A format is a unit type with the trait [`Block`], which decodes one block between fixed-size arrays. A kernel that reads
//! quantised rows is generic over it, decodes a block at a time into registers or the first cache, and is compiled once per
//! format; [`visit`] finds the format of a type at run time. Whole rows go through [`decode`] and [`encode`].
//!
//! Decoding equals ggml's `to_float` bit for bit, encoding ggml's reference quantisation (`quantize_row_*_ref`) byte for
//! byte, as `cargo xtask block-formats` checks against the stock library. Both are for finite numbers: what a block
//! with an infinite or NaN scale decodes to, and what rows with NaN or infinity encode to, is not defined.
//!
//! Layouts and grids are facts of the format. Sources: ggml-common.h and ggml-quants.c, and gguf-py's quants.py.

mod conversion;
mod fp4;
mod k_encode;
mod k_fit;
mod k_quants;
mod lattice;
mod low_bit;
mod nonlinear;
mod simple;
mod ternary;

use crate::tensor::DataType;
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use pulp::Arch;

pub use fp4::{MXFP4, NVFP4};
pub use k_quants::{Q2K, Q3K, Q4K, Q5K, Q6K};
pub use lattice::{IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS};
pub use low_bit::{Q1_0, Q2_0};
pub use nonlinear::{IQ4NL, IQ4XS};
pub use simple::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub use ternary::{TQ1_0, TQ2_0};

/// A block format. Stateless; the functions are pure.
pub trait Block: Copy + Send + Sync + 'static {
    /// The type whose rows consist of these blocks.
    const TYPE: DataType;
    /// Numbers in a block.
    const ELEMENTS: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// A block's bytes: `[u8; BYTES]`. Rows of whole blocks are cast to them.
    type Bytes: Pod + AsRef<[u8]>;
    /// A block's numbers, in the order of the row: `[f32; ELEMENTS]`.
    type Values: Pod + AsRef<[f32]>;

    /// Decodes a block. Always inlined and free of branches in the formats that matter: within
    /// `pulp`'s dispatch it becomes straight vector code.
    fn decode(bytes: &Self::Bytes, out: &mut Self::Values);
}

/// A format that can be written: those which ggml's CPU backend converts to.
pub trait Encode: Block {
    /// Encodes a block. Writes all bytes.
    fn encode(values: &Self::Values, bytes: &mut Self::Bytes);
}

/// Declares the unit types of formats.
macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[derive(Debug, Clone, Copy, PartialEq, Eq)] pub struct $name;)*
    };
}
use formats;

/// The items of [`Block`] that follow from type, bytes and elements.
macro_rules! layout {
    ($variant:ident, $bytes:literal, $elements:literal) => {
        const TYPE: $crate::tensor::DataType = $crate::tensor::DataType::$variant;
        const ELEMENTS: usize = $elements;
        const BYTES: usize = $bytes;
        type Bytes = [u8; $bytes];
        type Values = [f32; $elements];
    };
}
use layout;

/// Something to do with a format that is known at run time only.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<F: Block>(self) -> Self::Output;
}

/// Declares which formats are known.
macro_rules! known {
    (read: $($read:ident)*; write: $($write:ident)*;) => {
        /// Calls `visitor` with the format of `dtype`. `None` when the type is not quantised.
        #[inline(always)]
        pub fn visit<V: Visitor>(dtype: DataType, visitor: V) -> Option<V::Output> {
            match dtype {
                $(<$read as Block>::TYPE => Some(visitor.visit::<$read>()),)*
                _ => None,
            }
        }

        /// The reverse of [`decode`], same rules. Returns false also for types that can only be read.
        pub fn encode(dtype: DataType, source: &[f32], target: &mut [u8]) -> bool {
            match dtype {
                $(<$write as Block>::TYPE => encode_row::<$write>(source, target),)*
                _ => false,
            }
        }

        /// Whether [`decode`] knows `dtype`: every quantised type.
        pub fn can_decode(dtype: DataType) -> bool {
            [$(<$read as Block>::TYPE),*].contains(&dtype)
        }

        /// Whether [`encode`] knows `dtype`: the types ggml's CPU backend converts to.
        pub fn can_encode(dtype: DataType) -> bool {
            [$(<$write as Block>::TYPE),*].contains(&dtype)
        }
    };
}

known! {
    read: Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K IQ1S IQ1M IQ2XXS IQ2XS IQ2S IQ3XXS IQ3S IQ4NL IQ4XS
        TQ1_0 TQ2_0 MXFP4 NVFP4;
    write: Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K IQ4NL IQ4XS TQ1_0 TQ2_0 MXFP4 NVFP4;
}

/// Whether lengths are whole blocks and fit each other.
fn fits<F: Block>(bytes: usize, elements: usize) -> bool {
    elements.is_multiple_of(F::ELEMENTS) && elements / F::ELEMENTS * F::BYTES == bytes && bytes.is_multiple_of(F::BYTES)
}

/// Decodes `target.len()` numbers, a multiple of the block, from exactly their blocks, at any alignment. Returns false when
/// the type is not quantised or the lengths do not fit; `target` is then unchanged.
pub fn decode(dtype: DataType, source: &[u8], target: &mut [f32]) -> bool {
    struct Row<'a>(&'a [u8], &'a mut [f32]);
    impl Visitor for Row<'_> {
        type Output = bool;
        #[inline(always)]
        fn visit<F: Block>(self) -> bool {
            let fits = fits::<F>(self.0.len(), self.1.len());
            if fits {
                Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        for (bytes, values) in cast_slice(self.0).iter().zip(cast_slice_mut(self.1)) {
                            F::decode(bytes, values);
                        }
                    },
                );
            }
            fits
        }
    }
    visit(dtype, Row(source, target)).unwrap_or(false)
}

fn encode_row<F: Encode>(source: &[f32], target: &mut [u8]) -> bool {
    let fits = fits::<F>(target.len(), source.len());
    if fits {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (values, bytes) in cast_slice(source).iter().zip(cast_slice_mut(target)) {
                    F::encode(values, bytes);
                }
            },
        );
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable as _;

    fn quantised() -> impl Iterator<Item = DataType> {
        DataType::ALL.iter().copied().filter(|dtype| dtype.is_quantised())
    }

    #[test]
    fn layouts_are_those_of_the_types() {
        struct Sizes;
        impl Visitor for Sizes {
            type Output = (DataType, usize, usize, usize, usize);
            fn visit<F: Block>(self) -> Self::Output {
                let (bytes, values) = (F::Bytes::zeroed(), F::Values::zeroed());
                (F::TYPE, F::ELEMENTS, F::BYTES, values.as_ref().len(), bytes.as_ref().len())
            }
        }
        for dtype in quantised() {
            let (elements, bytes) = (dtype.block_elements(), dtype.block_bytes());
            assert_eq!(visit(dtype, Sizes), Some((dtype, elements, bytes, elements, bytes)));
        }
        assert_eq!(visit(DataType::F16, Sizes), None);
    }

    #[test]
    fn all_quantised_types_can_be_read_and_some_written() {
        for dtype in DataType::ALL {
            assert_eq!(can_decode(*dtype), dtype.is_quantised(), "{dtype}");
            let lattice = ["iq1", "iq2", "iq3"].iter().any(|prefix| dtype.name().starts_with(prefix));
            assert_eq!(can_encode(*dtype), dtype.is_quantised() && !lattice, "{dtype}");
        }
    }

    #[test]
    fn wrong_lengths_and_types_are_rejected() {
        for dtype in quantised() {
            let (elements, bytes) = (dtype.block_elements(), dtype.block_bytes());
            let mut values = vec![7.0; 2 * elements];
            assert!(!decode(dtype, &vec![0; 2 * bytes - 1], &mut values), "{dtype}");
            assert!(!decode(dtype, &vec![0; bytes], &mut values), "{dtype}");
            assert!(!decode(dtype, &vec![0; 2 * bytes], &mut values[1..]), "{dtype}");
            assert!(values.iter().all(|value| *value == 7.0), "{dtype}");
            let mut target = vec![0xaa; 2 * bytes];
            assert!(!encode(dtype, &values[1..], &mut target), "{dtype}");
            assert!(!encode(dtype, &values, &mut target[1..]), "{dtype}");
            assert!(target.iter().all(|byte| *byte == 0xaa), "{dtype}");
            assert!(decode(dtype, &[], &mut []), "{dtype}");
        }
        assert!(!decode(DataType::F32, &[0; 4], &mut [0.0]));
        assert!(!encode(DataType::IQ2_XS, &[0.0; 256], &mut [0; 74]));
    }

    #[test]
    fn rows_begin_at_any_byte() {
        for dtype in quantised() {
            let length = dtype.row_bytes(512);
            let bytes: Vec<u8> = (0..length + 3).map(|i| (i * 7 % 113) as u8).collect();
            let copy = bytes[3..].to_vec();
            let (mut aligned, mut shifted) = (vec![0.0_f32; 512], vec![1.0_f32; 512]);
            assert!(decode(dtype, &copy, &mut aligned) && decode(dtype, &bytes[3..], &mut shifted), "{dtype}");
            assert!(aligned.iter().zip(&shifted).all(|(a, b)| a.to_bits() == b.to_bits()), "{dtype}");
        }
    }

    /// What a block decodes to is encoded to a block that decodes to the same, within half a step of the format.
    #[test]
    fn what_is_written_is_read_again() {
        for dtype in quantised().filter(|dtype| can_encode(*dtype)) {
            let values: Vec<f32> = (0..512).map(|i| [0.5, -0.5, 0.0][i % 3]).collect();
            let (mut bytes, mut back) = (vec![0; dtype.row_bytes(512)], vec![9.0; 512]);
            assert!(encode(dtype, &values, &mut bytes), "{dtype}");
            assert!(decode(dtype, &bytes, &mut back), "{dtype}");
            // One bit cannot hold three levels; the four of q2_K are a third apart.
            let limit = if dtype == DataType::Q1_0 { 0.35 } else { 0.17 };
            let worst = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= limit, "{dtype}: {worst}");
        }
    }
}
