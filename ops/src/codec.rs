//! Reading and writing quantised blocks.
//!
//! The formats are ggml's. Whoever hosts the operations provides the codec; inside llama.cpp it is ggml's own conversion
//! functions, so that results are exactly ggml's.

use crate::tensor::DataType;
use std::fmt::Debug;

/// Converts rows of quantised blocks to and from f32. Thread-safe.
pub trait BlockCodec: Send + Sync + Debug {
    /// Whether [`BlockCodec::decode`] knows `dtype`.
    fn can_decode(&self, dtype: DataType) -> bool;
    /// Whether [`BlockCodec::encode`] knows `dtype`.
    fn can_encode(&self, dtype: DataType) -> bool;
    /// Decodes `target.len()` elements, a multiple of the block, from exactly their blocks. Returns false when the type is
    /// unknown or the lengths do not fit; `target` is then unchanged.
    fn decode(&self, dtype: DataType, source: &[u8], target: &mut [f32]) -> bool;
    /// The reverse of [`BlockCodec::decode`], same rules.
    fn encode(&self, dtype: DataType, source: &[f32], target: &mut [u8]) -> bool;
}

/// Knows no quantised type.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCodec;

impl BlockCodec for NoCodec {
    fn can_decode(&self, _: DataType) -> bool {
        false
    }
    fn can_encode(&self, _: DataType) -> bool {
        false
    }
    fn decode(&self, _: DataType, _: &[u8], _: &mut [f32]) -> bool {
        false
    }
    fn encode(&self, _: DataType, _: &[f32], _: &mut [u8]) -> bool {
        false
    }
}
