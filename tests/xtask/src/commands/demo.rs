//! `cargo xtask demo`: stock llama.cpp generates text on the simulated NPU, and the statistics say what ran where.
//!
//! With `--emulated` kernels are machine code on the emulated array where there are any. Then the first tokens must be those that
//! reference kernels choose, and nearly all multiply-accumulates must have been machine code.
//!
//! With `--driver xdna` the text goes through the driver for real NPUs, and with `--driver rocr` through AMD's runtime too, and must be
//! the one the simulated device gives without: both execute the same kernels, so that any difference is a mistake on the way. An
//! ordinary user, who may lock 8 MiB of memory, must get it as well, whichever memory the kernel pins.

use crate::generation::{Request, StatsFile, errors, library_messages, require_success};
use crate::ordinary_user;
use crate::output;
use crate::session::{DriverName, DriverOptions, Options, Session};
use crate::simulation::KernelReport;
use crate::stats::{DeviceStats, Stats, Store, Work};
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
  cargo xtask demo --emulated -n 16     machine code on the emulated array
  cargo xtask demo --driver xdna        through AMD's ROCR, on a simulated kernel device
  cargo xtask demo --json | jq .device.counters

On a fresh machine this builds the library, creates the testbed and downloads a small model first.
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
    /// Attention as one operation (llama.cpp's `-fa on`) instead of two products and a softmax
    #[arg(long)]
    flash_attention: bool,
    /// Decode with native kernels of this family (`GGML_HSA_NATIVE_PRODUCTS`). With `rings` each graph has to be one dispatch of one PDI,
    /// which those of up to four tokens are
    #[arg(long, value_name = "FAMILY", value_parser = ["product", "rings"], requires = "emulated")]
    products: Option<String>,
    /// Write the statistics to this file
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    #[command(flatten)]
    driver: DriverOptions,
}

#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    seconds: f64,
    device: &'a DeviceStats,
    /// Where the kernels came from.
    store: &'a Store,
    /// What the simulated kernel device saw, with `--driver xdna`.
    kernel: Option<KernelReport>,
}

pub fn run(args: &DemoArgs, options: &Options) -> Result<()> {
    if let Some(model) = &args.model {
        crate::model::check(model)?;
    }
    let session = Session::open_with(options, &args.driver)?;
    let request = Request {
        model: session.model(args.model.as_deref())?,
        prompt: args.prompt.clone(),
        tokens: args.tokens as usize,
        threads: args.threads.map(usize::from),
        flash_attention: args.flash_attention,
    };
    let kept = StatsFile::new()?;
    let stats = match &args.stats {
        Some(path) => crate::files::absolute(path)?,
        None => kept.path(),
    };
    // What an earlier run left must not pass for this run's.
    match std::fs::remove_file(&stats) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound && !stats.is_dir() => {
            return Err(error).with_context(|| format!("cannot replace the statistics file {}", stats.display()));
        }
        _ => {}
    }
    let mut command = session.on_device("llama-completion", Some(&stats))?;
    command.envs(args.products.iter().map(|family| ("GGML_HSA_NATIVE_PRODUCTS", family)));
    if session.emulated.is_some() {
        // It takes as long as a token, and nothing looks at its result.
        command.arg("--no-warmup");
    }
    let finished = request.run(command, |bytes| {
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
    let kernel = session.kernel_report()?;
    if options.json {
        let (text, seconds) = (finished.stdout.trim_end(), finished.elapsed.as_secs_f64());
        output::json(&Report { text, seconds, device, store: &stats.store, kernel: kernel.clone() })?;
    } else {
        crate::say!("{}\n{}", device.operation_table(), device.summary_table());
        crate::say!(
            "{} operations ran on the array, {} on the host, in {} s on this machine's CPU (simulated device)",
            device.array(),
            device.host(),
            output::seconds(finished.elapsed)
        );
        if session.emulated.is_some() {
            crate::say!("{}", device.work.summary(device.counters.bundles));
            crate::say!("{} bundles per graph", device.counters.bundles / device.graphs.computed.max(1));
        }
        crate::say!("{}", stats.store.summary());
        if stats.store.compiled == 0 {
            crate::say!("nothing was compiled: all kernels existed already");
        }
        if let Some(kernel) = &kernel {
            crate::say!("{}", kernel.summary());
        }
    }
    if let [first, rest @ ..] = &device.damaged_kernels()[..] {
        bail!("the text is complete, but kernels could not be used ({} more): {first}", rest.len());
    }
    if let [first, ..] = errors(&messages)[..] {
        bail!("llama.cpp continued, but the library reported an error: {first}");
    }
    if device.array() == 0 {
        bail!("no operation ran on the array; the statistics say why");
    }
    if session.emulated.is_some() {
        let compared = machine_code(&request, &session, &device.work, &finished.stdout)?;
        if !options.json {
            crate::say!("the first {compared} tokens are those of the reference kernels");
        }
        if args.products.as_deref() == Some("rings") {
            one_dispatch(device)?;
        }
    }
    if let Some(simulation) = session.simulation.as_ref().filter(|_| args.driver.driver == DriverName::Xdna) {
        for kernel in PINNING_KERNELS {
            let session = session.with_simulation(simulation.on_kernel(kernel));
            as_ordinary_user(&request, &session, &finished.stdout).with_context(|| format!("with kernel {kernel}"))?;
        }
        if !options.json {
            crate::say!("an ordinary user, who may lock 8 MiB, gets it too (kernels {})", PINNING_KERNELS.join(", "));
        }
    }
    if kernel.is_some() {
        same_as_mock(&request, &session, &finished.stdout)?;
        if !options.json {
            crate::say!("the text is that of the simulated device without ROCR, byte for byte");
        }
    }
    Ok(())
}

/// Kernels that differ in which memory of a program they pin.
const PINNING_KERNELS: [&str; 3] = ["legacy", "6.18", "7.2"];

/// Whether someone who may lock 8 MiB loads the model, which is larger, and gets the same text.
fn as_ordinary_user(request: &Request, session: &Session, text: &str) -> Result<()> {
    let short = Request { tokens: request.tokens.min(2), ..request.clone() };
    let command = ordinary_user::command(&session.on_device("llama-completion", None)?);
    let finished = short.run(command, |_| ())?;
    require_success(&finished)?;
    let said = finished.stdout.trim_end();
    if !text.starts_with(said) || said.is_empty() {
        bail!("an ordinary user gets another text: {said:?}");
    }
    if let [first, ..] = errors(&library_messages(&finished.stderr))[..] {
        bail!("an ordinary user sees an error: {first}");
    }
    Ok(())
}

/// Tokens that have to be the same with reference kernels.
const COMPARED: usize = 16;

/// Each graph of a few tokens is one dispatch, and all of them have one PDI.
fn one_dispatch(device: &DeviceStats) -> Result<()> {
    let (dispatches, graphs) = (device.counters.dispatches - device.counters.joined, device.graphs.computed);
    let (pdis, contexts) = (device.work.code_pdis, device.counters.contexts_created);
    if (dispatches, pdis, contexts) != (graphs, 1, 1) {
        bail!(
            "{graphs} graphs took {dispatches} dispatches of {pdis} PDIs in {contexts} contexts, expected one each of one PDI in one \
             context; with more than four tokens, as in a longer prompt, they are others"
        );
    }
    Ok(())
}

/// Whether enough ran as machine code, and chose the tokens that reference kernels choose; returns how many were compared.
fn machine_code(request: &Request, session: &Session, work: &Work, text: &str) -> Result<usize> {
    work.mostly_code()?;
    let reference = session.on_reference();
    let short = Request { tokens: request.tokens.min(COMPARED), ..request.clone() };
    let finished = short.run(reference.on_device("llama-completion", None)?, |_| ())?;
    require_success(&finished).context("with reference kernels")?;
    let expected = finished.stdout.trim_end();
    if !text.starts_with(expected) {
        bail!(
            "the first {} tokens differ from those of the reference kernels, which are:\n{expected}\n`cargo xtask kld \
             --emulated` says whether the difference matters",
            short.tokens
        );
    }
    Ok(short.tokens)
}

/// Decoding is greedy, so the same kernels must choose the same tokens.
fn same_as_mock(request: &Request, session: &Session, text: &str) -> Result<()> {
    let finished = request.run(session.on_mock().on_device("llama-completion", None)?, |_| ())?;
    require_success(&finished).context("on the simulated device without ROCR")?;
    if finished.stdout != text {
        let same = text.chars().zip(finished.stdout.chars()).take_while(|(left, right)| left == right).count();
        bail!(
            "the text differs from that of the simulated device without ROCR after {same} characters, where it continues:\n{}",
            finished.stdout.chars().skip(same).collect::<String>().trim_end()
        );
    }
    Ok(())
}
