//! The block formats of `aie_ops::blocks` against ggml's own: `cargo xtask block-formats` runs this program with the stock
//! library.
//!
//! Both sides decode the same bytes and encode the same rows. Decoded numbers must have the same bits; two NaNs count as the
//! same, because they differ in bits that carry nothing. Blocks with an infinite or NaN f16 scale are not compared: no sound
//! file has them, and the formats' module leaves open what they decode to. Encoded bytes must be the same. The one exception
//! is the quants of an iq4_nl block of nothing (all magnitudes below 1e-15): ggml leaves them as it finds them, so there only
//! what the block decodes to is compared, which is zero.
//!
//! It prints a line of JSON with the counts and the first difference of each type. Exit code 1 only if it cannot compare.

mod ggml;
mod material;

use aie_ops::DataType;
use aie_ops::blocks::{can_decode, can_encode, decode, encode};
use anyhow::{Result, ensure};
use ggml::Ggml;
use serde::Serialize;

/// What came of a type.
#[derive(Debug, Serialize)]
struct Report {
    dtype: DataType,
    /// `None` when the type cannot be read.
    decoding: Option<Outcome>,
    /// `None` when the type cannot be written.
    encoding: Option<Outcome>,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    blocks: usize,
    /// Blocks that differ.
    differences: usize,
    /// The first of them, in words.
    first: Option<String>,
}

impl Outcome {
    fn differs(&mut self, describe: impl FnOnce() -> String) {
        self.differences += 1;
        if self.first.is_none() {
            self.first = Some(describe());
        }
    }
}

fn main() -> Result<()> {
    let ggml = Ggml::load()?;
    let reports = DataType::ALL.iter().filter(|dtype| dtype.is_quantised()).map(|dtype| compare(&ggml, *dtype));
    println!("{}", serde_json::to_string(&reports.collect::<Result<Vec<_>>>()?)?);
    Ok(())
}

fn compare(ggml: &Ggml, dtype: DataType) -> Result<Report> {
    let decoding = can_decode(dtype).then(|| decoding(ggml, dtype)).transpose()?;
    let encoding = can_encode(dtype).then(|| encoding(ggml, dtype)).transpose()?;
    Ok(Report { dtype, decoding, encoding })
}

fn decoding(ggml: &Ggml, dtype: DataType) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let elements = dtype.block_elements();
    for bytes in material::blocks(dtype) {
        let count = bytes.len() / dtype.block_bytes();
        let expected = ggml.decode(dtype, &bytes)?;
        let mut found = vec![f32::NAN; expected.len()];
        ensure!(decode(dtype, &bytes, &mut found), "{dtype}: {count} blocks are rejected");
        outcome.blocks += count;
        for (block, (expected, found)) in expected.chunks(elements).zip(found.chunks(elements)).enumerate() {
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            if let Some(at) = expected.iter().zip(found).position(|pair| !same(pair)) {
                let bytes = &bytes[block * dtype.block_bytes()..][..dtype.block_bytes()];
                outcome
                    .differs(|| format!("value {at} of {bytes:02x?} is {:e}, ggml has {:e}", found[at], expected[at]));
            }
        }
    }
    Ok(outcome)
}

fn encoding(ggml: &Ggml, dtype: DataType) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (kind, row) in material::rows(dtype.block_elements()) {
        let expected = ggml.encode(dtype, &row)?;
        let mut found = vec![0xaa; expected.len()];
        ensure!(encode(dtype, &row, &mut found), "{dtype}: a row of {} is rejected", row.len());
        let blocks = expected.chunks(dtype.block_bytes()).zip(found.chunks(dtype.block_bytes()));
        for ((expected, found), values) in blocks.zip(row.chunks(dtype.block_elements())) {
            outcome.blocks += 1;
            let same = if dtype == DataType::IQ4_NL && values.iter().all(|value| value.abs() < 1e-15) {
                decodes_to_zero(dtype, expected) && decodes_to_zero(dtype, found)
            } else {
                expected == found
            };
            if !same {
                outcome.differs(|| format!("{kind}: {values:?} gives {found:02x?}, ggml has {expected:02x?}"));
            }
        }
    }
    Ok(outcome)
}

fn decodes_to_zero(dtype: DataType, bytes: &[u8]) -> bool {
    let mut values = vec![f32::NAN; dtype.block_elements()];
    decode(dtype, bytes, &mut values) && values.iter().all(|value| *value == 0.0)
}
