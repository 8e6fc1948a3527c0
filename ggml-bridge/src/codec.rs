//! Quantised blocks, read and written by ggml itself.
//!
//! ggml's own functions are used, so that the values are exactly those of its CPU backend whatever the format.

use crate::abi::ggml;
use crate::abi::symbols::Symbols;
use crate::abi::types::FromFloat;
use aie_ops::{BlockCodec, DataType};
use std::ffi::c_int;

/// Largest alignment of a block in ggml-common.h: q8_K starts with a float, so four bytes serve every format.
const BLOCK_ALIGNMENT: usize = 4;

/// The conversion functions of the ggml in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct GgmlCodec;

/// Formats that ggml quantises only with an importance matrix; asked without one it aborts
/// (`ggml_quantize_requires_imatrix`).
fn needs_importance_matrix(dtype: DataType) -> bool {
    matches!(dtype, DataType::IQ2_XXS | DataType::IQ2_XS | DataType::IQ1_S)
}

fn number(dtype: DataType) -> Option<(&'static Symbols, c_int)> {
    if !dtype.is_quantised() {
        return None;
    }
    let ggml = ggml().ok()?;
    Some((ggml.symbols, ggml.names.number(ggml.symbols, dtype)?))
}

/// The function that quantises to `dtype`: the CPU backend's when it is there, so that results are the same, else ggml's
/// reference.
fn encoder(dtype: DataType, symbols: &Symbols, raw: c_int) -> Option<FromFloat> {
    if needs_importance_matrix(dtype) {
        return None;
    }
    symbols.from_float_cpu(raw).or_else(|| symbols.type_traits(raw)?.from_float_ref)
}

/// The number of blocks, when `elements` and `bytes` are the same whole number of them.
fn blocks(dtype: DataType, elements: usize, bytes: usize) -> Option<i64> {
    let count = elements / dtype.block_elements();
    let fits = elements == count * dtype.block_elements() && bytes == count * dtype.block_bytes();
    fits.then(|| i64::try_from(elements).ok()).flatten()
}

impl BlockCodec for GgmlCodec {
    fn can_decode(&self, dtype: DataType) -> bool {
        number(dtype).and_then(|(symbols, raw)| symbols.type_traits(raw)).is_some_and(|t| t.to_float.is_some())
    }

    fn can_encode(&self, dtype: DataType) -> bool {
        number(dtype).and_then(|(symbols, raw)| encoder(dtype, symbols, raw)).is_some()
    }

    fn decode(&self, dtype: DataType, source: &[u8], target: &mut [f32]) -> bool {
        let to_float = number(dtype).and_then(|(symbols, raw)| symbols.type_traits(raw)).and_then(|t| t.to_float);
        let (Some(to_float), Some(elements)) = (to_float, blocks(dtype, target.len(), source.len())) else {
            return false;
        };
        // Rows may start anywhere, and ggml reads the half-precision scales of a block as aligned 16-bit values.
        let aligned: Vec<u64>;
        let mut pointer = source.as_ptr();
        if !pointer.addr().is_multiple_of(BLOCK_ALIGNMENT) {
            aligned = copy_aligned(source);
            pointer = aligned.as_ptr().cast();
        }
        // SAFETY: `to_float` reads the blocks of `elements` elements, which `source` holds, and writes `elements` floats, which
        // `target` holds; both were checked in `blocks` against the block size that ggml itself reported for this type.
        unsafe { to_float(pointer.cast(), target.as_mut_ptr(), elements) };
        true
    }

    fn encode(&self, dtype: DataType, source: &[f32], target: &mut [u8]) -> bool {
        let Some((symbols, raw)) = number(dtype) else { return false };
        let from_float = encoder(dtype, symbols, raw);
        let (Some(from_float), Some(elements)) = (from_float, blocks(dtype, source.len(), target.len())) else {
            return false;
        };
        symbols.quantize_init(raw);
        if target.as_ptr().addr().is_multiple_of(BLOCK_ALIGNMENT) {
            // SAFETY: as in `decode`, with the roles of source and target exchanged.
            unsafe { from_float(source.as_ptr(), target.as_mut_ptr().cast(), elements) };
        } else {
            let mut aligned = vec![0u64; target.len().div_ceil(8)];
            // SAFETY: as above; `aligned` holds at least as many bytes as `target`.
            unsafe { from_float(source.as_ptr(), aligned.as_mut_ptr().cast(), elements) };
            for (bytes, word) in target.chunks_mut(8).zip(aligned) {
                bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
            }
        }
        true
    }
}

fn copy_aligned(source: &[u8]) -> Vec<u64> {
    source
        .chunks(8)
        .map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        assert_eq!(blocks(DataType::Q4_0, 64, 36), Some(64));
        assert_eq!(blocks(DataType::Q4_0, 64, 35), None);
        assert_eq!(blocks(DataType::Q4_0, 40, 18), None);
    }

    #[test]
    fn types_that_need_more_than_data_are_not_offered() {
        assert!(!GgmlCodec.can_encode(DataType::IQ2_XXS));
        assert!(!GgmlCodec.can_encode(DataType::F32) && !GgmlCodec.can_decode(DataType::F32));
    }

    #[test]
    fn unaligned_bytes_keep_their_order() {
        let bytes: Vec<u8> = (0..11).collect();
        let words = copy_aligned(&bytes);
        let back: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).take(11).collect();
        assert_eq!(back, bytes);
    }
}
