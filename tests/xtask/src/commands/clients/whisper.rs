//! whisper.cpp: Debian's libwhisper, with a model of random weights, in a Debian root.

use super::{LIMIT, Setup, on_the_array, script};
use crate::testbed::clean_root::{CleanRoot, USER};
use anyhow::{Context, Result, ensure};
use std::fs;

const TOKENS: usize = 8;
/// Mean squared difference of the logits over their mean square. Products of f16 weights are made of bf16 inputs on the array.
const MOST_NMSE: f64 = 1e-3;

/// The tokens are those of the CPU, and so nearly are the logits behind them. Only ggml's own variable names the library.
pub fn hear(setup: &Setup) -> Result<String> {
    let root = CleanRoot::new(&setup.options.testbed, setup.options.offline)?;
    root.install(&["python3", "python3-numpy", "libwhisper1"])?;
    root.give(&script("whisper.py"))?;
    root.own_home()?;
    root.give_library(setup.options.offline)?;
    root.run(Some(USER), LIMIT, &["python3", "whisper.py", "make", "model.bin"])?.ensure("whisper.py make")?;
    let hear = |name: &str, variables: &[&str]| -> Result<(String, Vec<f32>)> {
        let count = TOKENS.to_string();
        let program = ["python3", "whisper.py", "hear", "model.bin", &count, name];
        let finished = root.run(Some(USER), LIMIT, &[&["env"], variables, &program].concat())?;
        finished.ensure("whisper.py hear")?;
        let bytes = fs::read(root.home().join(name)).context("whisper.py wrote no logits")?;
        let logits = bytes.as_chunks::<4>().0.iter().copied().map(f32::from_le_bytes).collect();
        Ok((finished.stdout.trim().to_owned(), logits))
    };
    let (expected, reference) = hear("cpu.logits", &[])?;
    let device = format!("GGML_HSA_DEVICES={}", setup.session.device);
    let path = "GGML_BACKEND_PATH=/usr/local/lib/libggml-hsa.so";
    let (text, logits) = hear("npu.logits", &[path, &device, "GGML_HSA_STATS=stats.json"])?;
    ensure!(text == expected, "it heard {text:?}, and the CPU {expected:?}");
    let nmse = nmse(&reference, &logits)?;
    ensure!(nmse <= MOST_NMSE, "NMSE of the logits {nmse:.1e}, at most {MOST_NMSE:.0e}");
    Ok(format!("{text:?}, NMSE of the logits {nmse:.1e}, {}", on_the_array(&root.home().join("stats.json"))?))
}

/// Errors if there is nothing to compare, or if the reference is the same everywhere.
fn nmse(reference: &[f32], measured: &[f32]) -> Result<f64> {
    ensure!(
        !reference.is_empty() && reference.len() == measured.len(),
        "{} and {} logits",
        reference.len(),
        measured.len()
    );
    let sum = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>();
    let mean = sum(&mut reference.iter().map(|value| f64::from(*value))) / reference.len() as f64;
    let energy = sum(&mut reference.iter().map(|value| (f64::from(*value) - mean).powi(2)));
    ensure!(energy > 0.0, "all logits are the same");
    let pairs = reference.iter().zip(measured);
    Ok(sum(&mut pairs.map(|(left, right)| (f64::from(*left) - f64::from(*right)).powi(2))) / energy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_differences() {
        assert_eq!(nmse(&[1.0, -1.0], &[1.0, -1.0]).unwrap(), 0.0);
        assert_eq!(nmse(&[1.0, -1.0], &[0.0, 0.0]).unwrap(), 1.0);
        assert!(nmse(&[1.0, -1.0], &[f32::NAN, -1.0]).unwrap().is_nan());
        assert!(nmse(&[2.0, 2.0], &[2.0, 2.0]).is_err() && nmse(&[1.0], &[]).is_err());
    }
}
