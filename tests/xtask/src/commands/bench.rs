//! `cargo xtask bench`: speed and memory as ratios to ggml's CPU backend, and what a token costs.
//!
//! Both sides run in turn on the same machine with the same number of threads. On the simulated device the time is that
//! of the reference kernels on this CPU and says nothing about an NPU; the counts per token hold for both.

mod emulator;
mod kernel;
mod machine;
mod page;
mod speed;

use crate::output::{self, Report};
use crate::per_token::FusionCounts;
use crate::session::{DriverOptions, Options, Session};
use crate::stats::DeviceStats;
use anyhow::Result;
use clap::Args;
use kernel::KernelCosts;
use machine::{Machine, Programs};
use serde::Serialize;
use speed::{Comparison, DECODE};
use std::path::PathBuf;

/// Measure tokens per second and memory against ggml's CPU backend, and dispatches and allocations per token.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask bench
  cargo xtask bench --threads 1 --repetitions 10
  cargo xtask bench --driver xdna       and what a token and a dispatch cost at the kernel
  cargo xtask bench --json | jq '.figures.comparisons[].decode.ratio'
  cargo xtask bench --write             on an idle machine: the figures in docs/performance.md

Times and memory are reported and never asserted; `cargo xtask splits` checks what fusion saves.")]
pub struct BenchArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Threads of both sides; by default one per core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Repetitions of each measurement, both sides in turn
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    repetitions: usize,
    /// Print the figures as docs/performance.md has them
    #[arg(long, conflicts_with_all = ["write", "json"])]
    markdown: bool,
    /// Write the figures into docs/performance.md
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    driver: DriverOptions,
}

#[derive(Serialize)]
struct Figures {
    machine: Machine,
    programs: Programs,
    model: String,
    threads: usize,
    repetitions: usize,
    /// Flash attention off and on.
    comparisons: Vec<Comparison>,
    /// Flash attention off and on.
    tokens: Vec<FusionCounts>,
    submissions_per_graph: f64,
    allocations_per_decoded_token: f64,
    on_array: u64,
    on_host: u64,
    /// Counts of a run without flash attention.
    device: DeviceStats,
    /// Speed of the emulated array.
    emulator: Vec<String>,
}

pub fn run(args: &BenchArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let model = session.model(args.model.as_deref())?;
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let compare = |flash| speed::compare(&session, &model, threads, args.repetitions, flash);
    let (off, on) = (compare(false)?, compare(true)?);
    let tokens = [false, true].map(|flash| FusionCounts::measure(&session, &model, Some(threads), flash));
    let kernel = KernelCosts::measure(&session, &model, threads, options)?;
    let device = off.device;
    let figures = Figures {
        machine: Machine::read()?,
        programs: Programs::of(&session.testbed.stamp),
        model: model.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        threads,
        repetitions: args.repetitions,
        comparisons: vec![off.comparison, on.comparison],
        tokens: tokens.into_iter().collect::<Result<_>>()?,
        submissions_per_graph: device.counters.submissions as f64 / device.graphs.computed.max(1) as f64,
        allocations_per_decoded_token: allocations_per_token(&device),
        on_array: device.array(),
        on_host: device.host(),
        device,
        emulator: emulator::measure(threads, options)?,
    };
    if args.write {
        page::write(&figures)?;
    }
    if args.markdown {
        output::put(format_args!("{}", page::markdown(&figures)));
        return Ok(());
    }
    let mut report = Report::default();
    page::tables(&figures).into_iter().for_each(|table| report.line(table));
    let mut costs = output::table(&["cost", "#value"]);
    let (array, host) = (figures.on_array, figures.on_host);
    let share = 100.0 * array as f64 / (array + host).max(1) as f64;
    for (name, value) in [
        ("submissions per graph", format!("{:.2}", figures.submissions_per_graph)),
        ("device allocations per decoded token", format!("{:.2}", figures.allocations_per_decoded_token)),
        ("operations on the array", format!("{array} ({share:.1} %)")),
        ("operations on the host", host.to_string()),
    ] {
        costs.add_row([name.to_owned(), value]);
    }
    report.line(costs);
    report.line(figures.device.summary_table());
    if let Some(kernel) = kernel {
        kernel.report(&mut report)?;
    }
    figures.emulator.iter().for_each(|line| report.line(line));
    report.summary(format!("{}; {}", figures.machine.describe(), figures.programs.describe()));
    report.summary(format!(
        "{threads} threads on both sides, {} repetitions each in turn; simulated device, its kernels run on this CPU",
        figures.repetitions
    ));
    report.field("figures", figures)?;
    report.finish("bench", options)
}

/// Mean of the last graphs of the log: llama-bench decodes last.
fn allocations_per_token(device: &DeviceStats) -> f64 {
    let log = &device.graph_log;
    let tail = &log[log.len().saturating_sub(DECODE as usize)..];
    tail.iter().map(|entry| entry.allocations).sum::<u64>() as f64 / tail.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    pub fn figures() -> Figures {
        let stats: Stats = serde_json::from_str(&crate::stats::tests::sample("[]")).unwrap();
        Figures {
            machine: machine::tests::small(),
            programs: Programs { llama_cpp: "0.7.0".into(), ggml: "0.27.0-1".into() },
            model: "small".into(),
            threads: 2,
            repetitions: 2,
            comparisons: vec![speed::tests::half(false), speed::tests::half(true)],
            tokens: vec![crate::per_token::tests::third()],
            submissions_per_graph: 1.0,
            allocations_per_decoded_token: 0.0,
            on_array: 8,
            on_host: 1,
            device: stats.devices[0].clone(),
            emulator: Vec::new(),
        }
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
