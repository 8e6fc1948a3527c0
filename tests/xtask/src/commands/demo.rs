//! `cargo xtask demo`: stock llama.cpp generates text on the simulated NPU, and the statistics say what ran where.

use crate::generation::{Request, StatsFile, errors, library_messages, require_success};
use crate::output;
use crate::session::{DeviceOptions, Options, Session};
use crate::stats::{DeviceStats, Stats};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Generate text with stock llama.cpp on the simulated NPU.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask demo
  cargo xtask demo --prompt \"Water boils at\" -n 32
  cargo xtask demo --model ~/models/any.gguf --threads 4
  cargo xtask demo --json | jq .device.counters

On a fresh machine this builds the library, makes the testbed and downloads a small model first.
Exit code 1 if llama.cpp failed or nothing ran on the device.")]
pub struct DemoArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// The text to continue
    #[arg(long, value_name = "TEXT", default_value = "The three states of matter are")]
    prompt: String,
    /// Tokens to generate
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Threads of llama.cpp and of the reference kernels
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Keep the statistics in this file
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceOptions,
}

#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    seconds: f64,
    device: &'a DeviceStats,
}

/// Runs the command.
pub fn run(args: &DemoArgs, options: &Options) -> Result<()> {
    if let Some(model) = &args.model {
        crate::model::check(model)?;
    }
    let session = Session::open(options, &args.device)?;
    let request = Request {
        model: session.model(args.model.as_deref())?,
        prompt: args.prompt.clone(),
        tokens: args.tokens as usize,
        threads: args.threads.map(usize::from),
    };
    let kept = StatsFile::new()?;
    let stats = match &args.stats {
        Some(path) => std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?,
        None => kept.path(),
    };
    // What an earlier run left must not pass for this run's.
    match std::fs::remove_file(&stats) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound && !stats.is_dir() => {
            return Err(error).with_context(|| format!("cannot replace the statistics file {}", stats.display()));
        }
        _ => {}
    }
    let finished = request.run(session.on_device("llama-completion", Some(&stats))?, |bytes| {
        if !options.json {
            // A closed standard output ends the demonstration of the text, not the check.
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(bytes).and_then(|()| out.flush());
        }
    })?;
    let messages = library_messages(&finished.stderr);
    for message in &messages {
        eprintln!("{message}");
    }
    require_success(&finished)?;
    let stats = Stats::read(&stats)?;
    let device = stats.used()?;
    if options.json {
        output::json(&Report { text: finished.stdout.trim_end(), seconds: finished.elapsed.as_secs_f64(), device })?;
    } else {
        println!("{}\n{}", device.operation_table(), device.summary_table());
        println!(
            "{} operations ran on the array, {} on the host, in {} s on this machine's CPU (simulated device)",
            device.array(),
            device.host(),
            output::seconds(finished.elapsed)
        );
    }
    if let [first, rest @ ..] = &device.damaged_kernels()[..] {
        bail!("the text is complete, but kernels could not be used ({} more): {first}", rest.len());
    }
    if let [first, ..] = errors(&messages)[..] {
        bail!("llama.cpp went on, but the library reported an error: {first}");
    }
    if device.array() == 0 {
        bail!("no operation ran on the array; the statistics say why");
    }
    Ok(())
}
