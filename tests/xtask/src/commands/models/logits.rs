//! The results of `llama-results`: a GGUF file with the tokens of a text and the logits behind each of them.
//!
//! The program can compare two such files itself, but only prints one number. Read here, they also show whether a logit
//! is not a number, which token is worst, and whether the logits differ from token to token at all: two files of zeros are
//! equal too. The layout is GGUF's (ggml's docs/gguf.md): a header, keys, descriptions of tensors, aligned data.

use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Logits of one run, token by token.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    pub tokens: Vec<i32>,
    values: Vec<f32>,
}

/// Two runs of one text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    pub tokens: usize,
    /// Mean squared difference over the mean square of the reference.
    pub nmse: f64,
    /// Mean KL divergence of the tokens' probabilities, in nats.
    pub kld: f64,
    /// Standard deviation of the reference over the text, averaged over the vocabulary.
    pub spread: f64,
}

impl Logits {
    /// Reads a file of `llama-results`.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("llama-results wrote no {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} is not a result of llama-results", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let file = Gguf::parse(bytes)?;
        let words = |name| -> Result<Vec<[u8; 4]>> { Ok(file.tensor(name)?.as_chunks::<4>().0.to_vec()) };
        let tokens: Vec<i32> = words("tokens")?.into_iter().map(i32::from_le_bytes).collect();
        let values: Vec<f32> = words("logits")?.into_iter().map(f32::from_le_bytes).collect();
        if tokens.is_empty() || values.is_empty() || !values.len().is_multiple_of(tokens.len()) {
            bail!("{} logits for {} tokens", values.len(), tokens.len());
        }
        Ok(Self { tokens, values })
    }

    /// Logits that are no finite numbers.
    pub fn not_finite(&self) -> usize {
        self.values.iter().filter(|value| !value.is_finite()).count()
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.values.len() / self.tokens.len())
    }

    /// Compares with a run of the same text, `self` being the reference.
    pub fn compare(&self, other: &Self) -> Result<Comparison> {
        if self.tokens != other.tokens || self.values.len() != other.values.len() {
            bail!("the runs differ in their tokens or vocabulary: {} and {}", self.tokens.len(), other.tokens.len());
        }
        let (mut error, mut energy, mut kld) = (0.0, 0.0, 0.0);
        for (reference, measured) in self.rows().zip(other.rows()) {
            let pairs = || reference.iter().zip(measured).map(|(&left, &right)| (f64::from(left), f64::from(right)));
            error += pairs().map(|(left, right)| (left - right).powi(2)).sum::<f64>();
            energy += pairs().map(|(left, _)| left * left).sum::<f64>();
            kld += divergence(reference, measured);
        }
        let tokens = self.tokens.len();
        Ok(Comparison { tokens, nmse: error / energy, kld: kld / tokens as f64, spread: self.spread() })
    }

    fn spread(&self) -> f64 {
        let width = self.values.len() / self.tokens.len();
        let count = self.tokens.len() as f64;
        let deviation = |column: usize| {
            let (sum, squares) = self.rows().fold((0.0, 0.0), |(sum, squares), row| {
                let value = f64::from(row[column]);
                (sum + value, squares + value * value)
            });
            (squares / count - (sum / count).powi(2)).max(0.0).sqrt()
        };
        (0..width).map(deviation).sum::<f64>() / width as f64
    }
}

/// KL divergence of the probabilities two rows of logits stand for.
fn divergence(reference: &[f32], measured: &[f32]) -> f64 {
    let (left, right) = (log_sum(reference), log_sum(measured));
    let terms = reference.iter().zip(measured).map(|(&one, &other)| {
        let one = f64::from(one) - left;
        one.exp() * (one - (f64::from(other) - right))
    });
    terms.sum()
}

fn log_sum(row: &[f32]) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = f64::from(most);
    most + row.iter().map(|&value| (f64::from(value) - most).exp()).sum::<f64>().ln()
}

/// The tensors of a GGUF file: name, bytes.
struct Gguf<'a> {
    tensors: Vec<(String, &'a [u8])>,
}

const STRING: u64 = 8;
const ARRAY: u64 = 9;
const ALIGNMENT: usize = 32;

impl<'a> Gguf<'a> {
    /// Only what llama-results writes: tensors of 4-byte elements (f32 is type 0, i32 type 26), default alignment.
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let at = &mut &*bytes;
        if take(at, 4)? != b"GGUF" || number::<4>(at)? != 3 {
            bail!("not a GGUF file of version 3");
        }
        let (tensors, keys) = (number::<8>(at)?, number::<8>(at)?);
        for _ in 0..keys {
            string(at)?;
            let kind = number::<4>(at)?;
            skip_value(at, kind)?;
        }
        let mut described = Vec::new();
        for _ in 0..tensors {
            let name = string(at)?;
            let mut size = 4_u64;
            for _ in 0..number::<4>(at)? {
                size = size.checked_mul(number::<8>(at)?).context("a tensor is too large")?;
            }
            let kind = number::<4>(at)?;
            if ![0, 26].contains(&kind) {
                bail!("tensor {name} has type {kind}, expected f32 or i32");
            }
            described.push((name, number::<8>(at)?, size));
        }
        let data = bytes.get((bytes.len() - at.len()).next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        let tensors = described.into_iter().map(|(name, offset, size)| {
            let at = &mut &*data;
            take(at, offset).and_then(|_| take(at, size)).map(|bytes| (name, bytes)).context("a tensor")
        });
        Ok(Self { tensors: tensors.collect::<Result<_>>()? })
    }

    fn tensor(&self, wanted: &str) -> Result<&'a [u8]> {
        let found = self.tensors.iter().find(|(name, _)| name == wanted);
        found.map(|(_, bytes)| *bytes).with_context(|| format!("no tensor `{wanted}`"))
    }
}

fn take<'a>(at: &mut &'a [u8], count: u64) -> Result<&'a [u8]> {
    let split = usize::try_from(count).ok().and_then(|count| at.split_at_checked(count));
    let (taken, rest) = split.context("the file ends too early")?;
    *at = rest;
    Ok(taken)
}

/// A number of `BYTES` bytes, at most 8.
fn number<const BYTES: usize>(at: &mut &[u8]) -> Result<u64> {
    let mut number = [0; 8];
    number[..BYTES].copy_from_slice(take(at, BYTES as u64)?);
    Ok(u64::from_le_bytes(number))
}

fn string(at: &mut &[u8]) -> Result<String> {
    let length = number::<8>(at)?;
    Ok(String::from_utf8_lossy(take(at, length)?).into_owned())
}

fn skip_value(at: &mut &[u8], kind: u64) -> Result<()> {
    let bytes = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        STRING => number::<8>(at)?,
        ARRAY => {
            let (kind, count) = (number::<4>(at)?, number::<8>(at)?);
            if kind == ARRAY {
                bail!("an array of arrays");
            }
            return (0..count).try_for_each(|_| skip_value(at, kind));
        }
        other => bail!("a key of type {other}"),
    };
    take(at, bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(values: &[f32]) -> Logits {
        Logits { tokens: vec![5, 6], values: values.to_vec() }
    }

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    fn file() -> Vec<u8> {
        let mut bytes = [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &2_u64.to_le_bytes(), &2_u64.to_le_bytes()].concat();
        bytes.extend([string("path_model"), (STRING as u32).to_le_bytes().to_vec(), string("/m.gguf")].concat());
        bytes.extend([string("decode_steps"), 4_u32.to_le_bytes().to_vec(), vec![0; 4]].concat());
        for (name, kind, elements, offset) in [("tokens", 26_u32, 2_u64, 0_u64), ("logits", 0, 4, 32)] {
            bytes.extend([string(name), 1_u32.to_le_bytes().to_vec(), elements.to_le_bytes().to_vec()].concat());
            bytes.extend([kind.to_le_bytes().as_slice(), &offset.to_le_bytes()].concat());
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend([5_i32, 6].map(i32::to_le_bytes).concat());
        bytes.resize(bytes.len() + 24, 0);
        bytes.extend([1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
        bytes
    }

    #[test]
    fn a_result_is_read() {
        assert_eq!(Logits::parse(&file()).unwrap(), logits(&[1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn damaged_results_are_errors() {
        let whole = file();
        for length in 0..whole.len() {
            assert!(Logits::parse(&whole[..length]).is_err(), "{length}");
        }
        let mut huge = whole.clone();
        huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Logits::parse(&huge).is_err());
    }

    #[test]
    fn the_difference_is_relative_to_the_reference() {
        let reference = logits(&[3.0, 4.0, 0.0, 5.0]);
        let same = reference.compare(&reference).unwrap();
        assert_eq!((same.nmse, same.kld), (0.0, 0.0));
        let other = reference.compare(&logits(&[3.0, 4.0, 0.0, 6.0])).unwrap();
        assert_eq!(other.nmse, 1.0 / 50.0);
        assert!((other.spread - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_divergence_is_that_of_the_probabilities() {
        // ln 1 : ln 3 against 1 : 1.
        let found = divergence(&[0.0, 3.0_f32.ln()], &[7.0, 7.0]);
        let expected = 0.25 * (0.25_f64 / 0.5).ln() + 0.75 * (0.75_f64 / 0.5).ln();
        assert!((found - expected).abs() < 1e-6, "{found}");
        assert!(divergence(&[1.0, 2.0], &[101.0, 102.0]).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_number_is_seen() {
        let broken = logits(&[f32::NAN, 1.0, f32::INFINITY, 1.0]);
        assert_eq!(broken.not_finite(), 2);
        let compared = logits(&[1.0, 1.0, 1.0, 1.0]).compare(&broken).unwrap();
        assert!(compared.nmse.is_nan());
        assert!(logits(&[1.0; 4]).compare(&logits(&[1.0; 6])).is_err());
    }
}
