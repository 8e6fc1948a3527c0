//! Speed and memory of both sides, in turn.
//!
//! The sides take turns with every repetition (CPU backend, ours, CPU backend, ours), each time in a process of its own, so that
//! whatever else the machine does meets both. The ratio is that of the means.

use crate::generation;
use crate::process::{self, Finished};
use crate::session::Session;
use crate::stats::DeviceStats;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const PREFILL: u64 = 128;
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
    pub flash_attention: bool,
    /// Tokens per second of the prompt.
    pub prefill: Pair<Speed>,
    /// Tokens per second, one by one.
    pub decode: Pair<Speed>,
    /// The most resident memory of a process of all repetitions in bytes, pages of mapped files (the weights) counted on both
    /// sides.
    pub peak_resident: Pair<u64>,
}

/// One measurement on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair<T> {
    pub cpu: T,
    pub device: T,
    /// Ours by the CPU backend's.
    pub ratio: f64,
}

/// Mean and standard deviation over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    pub tokens_per_second: f64,
    /// Of a sample; 0 with one repetition.
    pub deviation: f64,
}

struct Sample {
    prefill: f64,
    decode: f64,
    peak_resident: u64,
}

pub struct Found {
    pub comparison: Comparison,
    /// Our device's counts in the last repetition.
    pub device: DeviceStats,
}

pub fn compare(
    session: &Session,
    model: &Path,
    threads: usize,
    repetitions: usize,
    flash_attention: bool,
) -> Result<Found> {
    let (mut cpu, mut ours, mut last) = (Vec::new(), Vec::new(), None);
    let prepare = |command: &mut Command| {
        command.arg("-m").arg(model).args(["-r", "1", "-o", "json", "-fa", if flash_attention { "1" } else { "0" }]);
        command.args(["-p", &PREFILL.to_string(), "-n", &DECODE.to_string()]);
        generation::set_threads(command, Some(threads));
    };
    for _ in 0..repetitions {
        let mut command = session.on_cpu("llama-bench")?;
        prepare(&mut command);
        let finished = process::run(&mut command, LIMIT)?;
        generation::require_success(&finished).context("on the CPU backend")?;
        cpu.push(Sample::of(&finished)?);
        let run = session.run("llama-bench", LIMIT, prepare).context("on our device")?;
        ours.push(Sample::of(&run.finished)?);
        last = Some(run.device()?.clone());
    }
    let device = last.context("there was no repetition; pass --repetitions 1 or more")?;
    Ok(Found { comparison: Comparison::of(flash_attention, &cpu, &ours), device })
}

impl Comparison {
    fn of(flash_attention: bool, cpu: &[Sample], device: &[Sample]) -> Self {
        let pair = |value: fn(&Sample) -> f64| {
            let [cpu, device] = [cpu, device].map(|samples| Speed::of(&samples.iter().map(value).collect::<Vec<_>>()));
            Pair { cpu, device, ratio: device.tokens_per_second / cpu.tokens_per_second }
        };
        let peak = |samples: &[Sample]| samples.iter().map(|sample| sample.peak_resident).max().unwrap_or(0);
        let [cpu_peak, device_peak] = [cpu, device].map(peak);
        Self {
            flash_attention,
            prefill: pair(|sample| sample.prefill),
            decode: pair(|sample| sample.decode),
            peak_resident: Pair { cpu: cpu_peak, device: device_peak, ratio: device_peak as f64 / cpu_peak as f64 },
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

impl Sample {
    fn of(finished: &Finished) -> Result<Self> {
        let (prefill, decode) = parse(&finished.stdout)?;
        Ok(Self { prefill, decode, peak_resident: finished.peak_resident })
    }
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
