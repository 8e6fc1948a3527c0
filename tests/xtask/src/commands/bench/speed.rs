//! Speed and memory of both sides, in turn.
//!
//! The sides take turns with every repetition (CPU backend, ours, CPU backend, ours), each time in a process of its own, so that
//! whatever else the machine does meets both. The ratio is that of the means.

use crate::generation::{self, StatsFile};
use crate::process;
use crate::session::Session;
use crate::stats::{DeviceStats, Stats};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Tokens of the prompt.
pub const PREFILL: u64 = 128;
/// Tokens decoded.
pub const DECODE: u64 = 32;
const LIMIT: Duration = Duration::from_secs(1800);

/// What llama-bench prints for one measurement.
#[derive(Debug, Deserialize)]
struct Measurement {
    n_prompt: u64,
    n_gen: u64,
    avg_ts: f64,
}

/// Both sides with or without flash attention.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Whether attention was one operation.
    pub flash_attention: bool,
    /// The prompt.
    pub prefill: Pair,
    /// Tokens one by one.
    pub decode: Pair,
    /// The most resident memory of a process, of all repetitions.
    pub peak_resident: Memory,
}

/// One measurement on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    /// How many tokens.
    pub tokens: u64,
    /// The CPU backend.
    pub cpu: Speed,
    /// Ours.
    pub device: Speed,
    /// Ours by the CPU backend's.
    pub ratio: f64,
}

/// Mean and standard deviation over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Mean.
    pub tokens_per_second: f64,
    /// Of a sample; 0 with one repetition.
    pub deviation: f64,
}

/// Resident memory of both sides in bytes, pages of mapped files (the weights) counted on both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// The CPU backend.
    pub cpu: u64,
    /// Ours.
    pub device: u64,
    /// Ours by the CPU backend's.
    pub ratio: f64,
}

/// One process.
struct Sample {
    prefill: f64,
    decode: f64,
    peak_resident: u64,
}

/// What a comparison found.
pub struct Found {
    /// Both sides.
    pub comparison: Comparison,
    /// Our device's counts in the last repetition.
    pub device: DeviceStats,
}

/// Compares.
pub fn compare(
    session: &Session,
    model: &Path,
    threads: usize,
    repetitions: usize,
    flash_attention: bool,
) -> Result<Found> {
    let (mut cpu, mut ours, mut last) = (Vec::new(), Vec::new(), None);
    let sample = |command| sample(command, model, threads, flash_attention);
    for _ in 0..repetitions {
        cpu.push(sample(session.on_cpu("llama-bench")?).context("on the CPU backend")?);
        let file = StatsFile::new()?;
        ours.push(sample(session.on_device("llama-bench", Some(&file.path()))?).context("on our device")?);
        last = Some(Stats::read(&file.path())?.used()?.clone());
        session.kernel_report()?;
    }
    let device = last.context("there was no repetition; pass --repetitions 1 or more")?;
    Ok(Found { comparison: Comparison::of(flash_attention, &cpu, &ours), device })
}

impl Comparison {
    fn of(flash_attention: bool, cpu: &[Sample], device: &[Sample]) -> Self {
        let pair = |tokens, value: fn(&Sample) -> f64| {
            let [cpu, device] = [cpu, device].map(|samples| Speed::of(&samples.iter().map(value).collect::<Vec<_>>()));
            Pair { tokens, cpu, device, ratio: device.tokens_per_second / cpu.tokens_per_second }
        };
        let peak = |samples: &[Sample]| samples.iter().map(|sample| sample.peak_resident).max().unwrap_or(0);
        let (cpu_peak, device_peak) = (peak(cpu), peak(device));
        let ratio = device_peak as f64 / cpu_peak as f64;
        Self {
            flash_attention,
            prefill: pair(PREFILL, |sample| sample.prefill),
            decode: pair(DECODE, |sample| sample.decode),
            peak_resident: Memory { cpu: cpu_peak, device: device_peak, ratio },
        }
    }
}

impl Speed {
    fn of(samples: &[f64]) -> Self {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        Self { tokens_per_second: mean, deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

fn sample(mut command: Command, model: &Path, threads: usize, flash_attention: bool) -> Result<Sample> {
    command.arg("-m").arg(model).args(["-r", "1", "-o", "json", "-fa", if flash_attention { "1" } else { "0" }]);
    command.args(["-p", &PREFILL.to_string(), "-n", &DECODE.to_string()]);
    generation::set_threads(&mut command, Some(threads));
    let finished = process::run(&mut command, LIMIT)?;
    generation::require_success(&finished)?;
    let (prefill, decode) = parse(&finished.stdout)?;
    Ok(Sample { prefill, decode, peak_resident: finished.peak_resident })
}

fn parse(text: &str) -> Result<(f64, f64)> {
    let measurements: Vec<Measurement> = serde_json::from_str(text).context("llama-bench printed no JSON list")?;
    let speed = |prompt, generated| {
        measurements
            .iter()
            .find(|found| found.n_prompt == prompt && found.n_gen == generated)
            .map(|found| found.avg_ts)
            .with_context(|| format!("llama-bench printed no measurement of {prompt} + {generated} tokens"))
    };
    Ok((speed(PREFILL, 0)?, speed(0, DECODE)?))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two repetitions: 200 and 220 tokens a second against half of that, 100 MB against 120 MB.
    pub fn half(flash_attention: bool) -> Comparison {
        let sample = |prefill: f64, peak_resident| Sample { prefill, decode: prefill / 4.0, peak_resident };
        let cpu = [sample(200.0, 90_000_000), sample(220.0, 100_000_000)];
        let device = [sample(100.0, 120_000_000), sample(110.0, 110_000_000)];
        Comparison::of(flash_attention, &cpu, &device)
    }

    #[test]
    fn llama_bench_s_list_is_read() {
        let text = r#"[{"n_prompt":128,"n_gen":0,"avg_ts":200.5,"stddev_ts":0.0,"n_depth":0},
            {"n_prompt":0,"n_gen":32,"avg_ts":50.0,"stddev_ts":0.0}]"#;
        assert_eq!(parse(text).unwrap(), (200.5, 50.0));
        assert!(parse("[]").unwrap_err().to_string().contains("128"));
        assert!(parse("llama").is_err());
    }

    #[test]
    fn means_and_largest_are_compared() {
        let found = half(true);
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value} and not {expected}");
        near(found.prefill.cpu.tokens_per_second, 210.0);
        near(found.prefill.cpu.deviation, 200_f64.sqrt());
        near(found.decode.ratio, 0.5);
        assert_eq!((found.peak_resident.cpu, found.peak_resident.device), (100_000_000, 120_000_000));
        near(found.peak_resident.ratio, 1.2);
        assert_eq!(Speed::of(&[3.0]), Speed { tokens_per_second: 3.0, deviation: 0.0 });
    }
}
