//! What attention has to get right: each type of cache, with and without mask, sinks, ALiBi and a soft cap.

use crate::kit::{Case, Exactness, Input};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

/// What a case has besides queries, keys and values.
#[derive(Clone, Copy, Default)]
struct With {
    mask: bool,
    sinks: bool,
    /// ALiBi's largest bias.
    bias: f32,
    cap: f32,
}

/// Attention.
pub(super) fn cases(_: &Arch) -> Vec<Case> {
    let sinks = With { mask: true, sinks: true, ..With::default() };
    without_sinks().into_iter().chain([attention(DataType::F16, 3, 4, 64, sinks)]).collect()
}

/// Attention without sinks.
pub(in crate::families) fn without_sinks() -> Vec<Case> {
    let mask = With { mask: true, ..With::default() };
    vec![
        attention(DataType::F16, 1, 6, 144, mask),
        attention(DataType::BF16, 1, 4, 64, With::default()),
        attention(DataType::F32, 2, 4, 66, mask),
        attention(DataType::F16, 2, 4, 80, With { bias: 8.0, cap: 10.0, ..mask }),
    ]
}

/// `heads` heads of queries of 32 elements, two for each head of keys, for some tokens and keys.
fn attention(cache: DataType, tokens: usize, heads: usize, keys: usize, with: With) -> Case {
    const ELEMENTS: usize = 32;
    let of = Tensor::contiguous;
    let kv = of(cache, [ELEMENTS, keys, heads / 2, 1]);
    let mut sources = vec![of(DataType::F32, [ELEMENTS, tokens, heads, 1]), kv, kv];
    if with.mask {
        sources.push(of(DataType::F16, [keys, tokens, 1, 1]));
    }
    if with.sinks {
        sources.push(of(DataType::F32, [heads, 1, 1, 1]));
    }
    let output = of(DataType::F32, [ELEMENTS, heads, tokens, 1]);
    let scale = 1.0 / (ELEMENTS as f32).sqrt();
    let mut case = Case::new("FLASH_ATTN_EXT", output, &sources).floats(&[(0, scale), (1, with.bias), (2, with.cap)]);
    if with.mask {
        case = case.input(3, Input::Mask);
    }
    case.exactly(Exactness::PRODUCTS)
}
