//! Loads for the driver for real NPUs: `cargo xtask stress` runs this program on the simulated kernel device.
//!
//! Each load looks at every result it computes, so a dispatch that is lost, runs twice, or runs out of order is seen. While
//! it runs, the memory and the open descriptors of the process are read ([`footprint`]); at its end all device memory must be
//! released while the device is still open. What the kernel device still has open afterwards is in that device's report.
//!
//! It prints one line of JSON. Exit code 1 if anything did not hold, with the reason.
#![forbid(unsafe_code)]

mod dispatches;
mod footprint;
mod pdis;
mod queues;
mod target;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use footprint::Footprints;
use serde::Serialize;
use std::time::{Duration, Instant};
use target::Target;

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Load {
    /// Dispatches on one queue, one by one and in long lists.
    Dispatches,
    /// Graphs with more distinct PDIs than a context holds.
    Pdis,
    /// Four queues used from eight threads, with semaphores between them.
    Queues,
}

#[derive(Debug, Parser)]
#[command(about = "Put load on the driver for real NPUs and check every result")]
struct Args {
    /// The load
    #[arg(value_enum)]
    load: Load,
    /// `dispatches`: how many; a multiple of 2000
    #[arg(long, default_value_t = 100_000)]
    dispatches: usize,
    /// `pdis`: distinct PDIs of the graph
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u8).range(2..))]
    pdis: u8,
    /// `pdis`: repetitions of the graph
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(4..))]
    repetitions: u32,
    /// `queues`: seconds of load
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    seconds: u64,
    /// The device
    #[arg(long, default_value = "xdna:0")]
    device: String,
}

/// What a load did, as the device and the process saw it.
#[derive(Debug, Serialize)]
struct Report {
    load: Load,
    seconds: f64,
    submissions: u64,
    dispatches: u64,
    chains: u64,
    contexts_created: u64,
    context_switches: u64,
    /// `pdis`: contexts made after the first repetition.
    later_contexts: Option<u64>,
    footprints: Footprints,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let target = Target::open(&args.device)?;
    let mut footprints = Footprints::default();
    let started = Instant::now();
    let mut later_contexts = None;
    match args.load {
        Load::Dispatches => dispatches::run(&target, args.dispatches, &mut footprints)?,
        Load::Pdis => later_contexts = Some(pdis::run(&target, args.pdis, args.repetitions, &mut footprints)?),
        Load::Queues => queues::run(&target, Duration::from_secs(args.seconds), &mut footprints)?,
    }
    let seconds = started.elapsed().as_secs_f64();
    let counters = target.device.counters();
    let memory = target.device.memory();
    ensure!(
        counters.allocated_bytes == 0 && memory.free == memory.total,
        "{} bytes of device memory are still allocated, and {} of {} are free",
        counters.allocated_bytes,
        memory.free,
        memory.total
    );
    footprints.flat()?;
    let report = Report {
        load: args.load,
        seconds,
        submissions: counters.submissions,
        dispatches: counters.dispatches,
        chains: counters.chains,
        contexts_created: counters.contexts_created,
        context_switches: counters.context_switches,
        later_contexts,
        footprints,
    };
    println!("{}", serde_json::to_string(&report).context("the report has no JSON")?);
    Ok(())
}
