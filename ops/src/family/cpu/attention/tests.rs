//! The layout of values that FLASH_ATTN_EXT does not have, against the one it has.

use super::*;
use crate::family::testing::{Data, Random};
use crate::tensor::DataType;
use rstest::rstest;

#[rstest]
fn transposed_values_give_the_same(
    #[values(1, 2, 17, 90)] tokens: usize,
    #[values(5, 64, 150, 1000)] keys: usize,
    #[values(DataType::F32, DataType::F16)] dtype: DataType,
    #[values(DataType::F32, DataType::F16)] mask_type: DataType,
) {
    let mut random = Random(81);
    let (dk, dv) = (24, 40);
    let q = Data::random(Tensor::contiguous(DataType::F32, [dk, tokens, 4, 1]), &mut random);
    let k = Data::random(Tensor::contiguous(dtype, [dk, keys, 2, 1]), &mut random);
    let v = Data::random(Tensor::contiguous(dtype, [dv, keys, 2, 1]), &mut random);
    let values = v.values();
    let element = |i: usize| {
        let (key, d, head) = (i % keys, i / keys % dv, i / keys / dv);
        values[d + dv * (key + keys * head)]
    };
    let turned: Vec<f32> = (0..values.len()).map(element).collect();
    // Rows of a cache are longer than what is in use.
    let mut transposed = Tensor::contiguous(dtype, [keys, dv, 2, 1]);
    let long = (keys + 7) * dtype.block_bytes();
    transposed.nb = [dtype.block_bytes(), long, long * dv, long * dv * 2];
    let transposed = Data::new(transposed, &turned);
    let mut mask = random.floats(keys * tokens);
    for (i, value) in mask.iter_mut().enumerate() {
        // As causal masks are.
        *value = if i % keys <= i / keys + keys / 2 { 0.0 } else { f32::NEG_INFINITY };
    }
    let mask = Data::contiguous(mask_type, [keys, tokens, 1, 1], &mask);
    let attend = |v: &Data, layout| {
        let attention = Attention {
            q: q.tensor,
            k: k.tensor,
            v: v.tensor,
            layout,
            mask: Some(mask.tensor),
            scale: 0.3,
            max_bias: 0.0,
            softcap: 0.0,
        };
        let sources = Sources { q: &q.bytes, k: &k.bytes, v: &v.bytes, mask: Some(&mask.bytes), sinks: None };
        let mut output = vec![0; tokens * 4 * dv * 4];
        attention.run("TEST", sources, &mut output).unwrap();
        let values: Vec<f32> = output.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        values
    };
    let rows = attend(&v, ValueLayout::Rows);
    let columns = attend(&transposed, ValueLayout::Transposed);
    for (i, (a, b)) in rows.iter().zip(&columns).enumerate() {
        assert!((a - b).abs() < 1e-5, "element {i}: {a} and {b}");
    }
}
