//! `cargo xtask bench`: speed as a ratio to ggml's CPU backend, and what a token costs.
//!
//! Both sides run in turn on the same machine with the same number of threads. On the simulated device the time is that
//! of the reference kernels on this CPU and says nothing about an NPU; the counts per token hold for both.

mod kernel;

use crate::generation::{self, StatsFile};
use crate::output;
use crate::process;
use crate::session::{DriverOptions, Options, Session};
use crate::stats::{DeviceStats, Stats};
use anyhow::{Context, Result};
use clap::Args;
use kernel::KernelCosts;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PREFILL: u64 = 128;
const DECODE: u64 = 32;

/// Measure tokens per second against ggml's CPU backend, and submissions and allocations per token.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask bench
  cargo xtask bench --threads 1 --repetitions 5
  cargo xtask bench --driver xdna       and what a token and a dispatch cost at the kernel
  cargo xtask bench --json | jq .prefill.ratio

Times are reported and never asserted.")]
pub struct BenchArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Threads of both sides; by default one per core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Repetitions of each measurement
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    repetitions: usize,
    #[command(flatten)]
    driver: DriverOptions,
}

/// What llama-bench prints for one measurement.
#[derive(Debug, Deserialize)]
struct Measurement {
    n_prompt: u64,
    n_gen: u64,
    avg_ts: f64,
    stddev_ts: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Speed {
    tokens_per_second: f64,
    deviation: f64,
}

#[derive(Serialize)]
struct Pair {
    tokens: u64,
    cpu: Speed,
    device: Speed,
    ratio: f64,
}

#[derive(Serialize)]
struct Report {
    threads: usize,
    repetitions: usize,
    prefill: Pair,
    decode: Pair,
    submissions_per_graph: f64,
    allocations_per_decoded_token: f64,
    on_array: u64,
    on_host: u64,
    /// Costs at the kernel, with `--driver xdna`.
    kernel: Option<KernelCosts>,
    device: DeviceStats,
}

/// Runs the command.
pub fn run(args: &BenchArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let model = session.model(args.model.as_deref())?;
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (cpu_prefill, cpu_decode) =
        measure(session.on_cpu("llama-bench")?, &model, threads, args.repetitions).context("on the CPU backend")?;
    let file = StatsFile::new()?;
    let (prefill, decode) =
        measure(session.on_device("llama-bench", Some(&file.path()))?, &model, threads, args.repetitions)
            .context("on our device")?;
    let stats = Stats::read(&file.path())?;
    let device = stats.used()?.clone();
    session.kernel_report()?;
    let kernel = KernelCosts::measure(&session, &model, threads, options)?;
    let pair = |tokens, cpu: Speed, device: Speed| Pair {
        tokens,
        cpu,
        device,
        ratio: device.tokens_per_second / cpu.tokens_per_second,
    };
    let report = Report {
        threads,
        repetitions: args.repetitions,
        prefill: pair(PREFILL, cpu_prefill, prefill),
        decode: pair(DECODE, cpu_decode, decode),
        submissions_per_graph: device.counters.submissions as f64 / device.graphs.computed.max(1) as f64,
        allocations_per_decoded_token: allocations_per_token(&device),
        on_array: device.array(),
        on_host: device.host(),
        kernel,
        device,
    };
    if options.json { output::json(&report) } else { print(&report) }
}

/// Mean of the last graphs of the log: llama-bench decodes last.
fn allocations_per_token(device: &DeviceStats) -> f64 {
    let log = &device.graph_log;
    let tail = &log[log.len().saturating_sub(DECODE as usize)..];
    tail.iter().map(|entry| entry.allocations).sum::<u64>() as f64 / tail.len().max(1) as f64
}

fn measure(mut command: Command, model: &Path, threads: usize, repetitions: usize) -> Result<(Speed, Speed)> {
    command.arg("-m").arg(model).args(["-fa", "0", "-o", "json"]);
    command.args(["-p", &PREFILL.to_string(), "-n", &DECODE.to_string(), "-r", &repetitions.to_string()]);
    generation::set_threads(&mut command, Some(threads));
    let finished = process::run(&mut command, Duration::from_secs(1800))?;
    generation::require_success(&finished)?;
    parse(&finished.stdout)
}

fn parse(text: &str) -> Result<(Speed, Speed)> {
    let measurements: Vec<Measurement> = serde_json::from_str(text).context("llama-bench printed no JSON list")?;
    let speed = |prompt, generated| {
        measurements
            .iter()
            .find(|found| found.n_prompt == prompt && found.n_gen == generated)
            .map(|found| Speed { tokens_per_second: found.avg_ts, deviation: found.stddev_ts })
            .with_context(|| format!("llama-bench printed no measurement of {prompt} + {generated} tokens"))
    };
    Ok((speed(PREFILL, 0)?, speed(0, DECODE)?))
}

fn print(report: &Report) -> Result<()> {
    let mut table = output::table(&["tokens per second", "#CPU backend", "#our device", "#ratio"]);
    for (name, pair) in [("prefill", &report.prefill), ("decode", &report.decode)] {
        let speed = |speed: Speed| format!("{:.1} ± {:.1}", speed.tokens_per_second, speed.deviation);
        table.add_row([
            format!("{name} {}", pair.tokens),
            speed(pair.cpu),
            speed(pair.device),
            format!("{:.2}", pair.ratio),
        ]);
    }
    println!("{table}");
    let mut costs = output::table(&["cost", "#value"]);
    let share = 100.0 * report.on_array as f64 / (report.on_array + report.on_host).max(1) as f64;
    for (name, value) in [
        ("submissions per graph", format!("{:.2}", report.submissions_per_graph)),
        ("device allocations per decoded token", format!("{:.2}", report.allocations_per_decoded_token)),
        ("operations on the array", format!("{} ({share:.1} %)", report.on_array)),
        ("operations on the host", report.on_host.to_string()),
    ] {
        costs.add_row([name.to_owned(), value]);
    }
    println!("{costs}\n{}", report.device.summary_table());
    if let Some(kernel) = &report.kernel {
        kernel.print();
    }
    println!(
        "{} threads on both sides, {} repetitions; simulated device, its kernels run on this CPU",
        report.threads, report.repetitions
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_bench_s_list_is_read() {
        let text = r#"[{"n_prompt":128,"n_gen":0,"avg_ts":200.5,"stddev_ts":1.0,"n_depth":0},
            {"n_prompt":0,"n_gen":32,"avg_ts":50.0,"stddev_ts":2.0}]"#;
        let (prefill, decode) = parse(text).unwrap();
        assert_eq!((prefill.tokens_per_second, decode.deviation), (200.5, 2.0));
        assert!(parse("[]").unwrap_err().to_string().contains("128"));
        assert!(parse("llama").is_err());
    }

    #[test]
    fn allocations_are_those_of_the_last_graphs() {
        let log: Vec<String> = (0..40)
            .map(|index| {
                let allocations = if index < 8 { 100 } else { 2 };
                format!(r#"{{"nodes":1,"submissions":1,"allocations":{allocations},"replayed":true}}"#)
            })
            .collect();
        let text = crate::stats::tests::sample(&format!("[{}]", log.join(",")));
        let stats: Stats = serde_json::from_str(&text).unwrap();
        assert_eq!(allocations_per_token(&stats.devices[0]), 2.0);
    }
}
