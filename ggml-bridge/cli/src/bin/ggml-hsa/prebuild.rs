//! `ggml-hsa prebuild`: makes and caches the kernels that a model needs, so that a run compiles nothing.

use crate::model::{FlashAttention, Opened, Subject};
use crate::output::{complain, counted, json, say};
use aie_hal::{Device, Environment};
use aie_jit_iron::settings::GGML_HSA_KERNEL_CACHE_DIR;
use aie_jit_iron::{JitPolicy, KernelStore, Missed, Supplied, Supplier};
use aie_ops::table;
use clap::Args;
use ggml_hsa::config::Config;
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa_cli::explain::planning::plan;
use ggml_hsa_cli::model::Model;
use ggml_hsa_cli::model::graph::{Batch, Cache, KEY_STEP};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Make and cache the kernels that a model needs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa prebuild model.gguf
  ggml-hsa prebuild model.gguf --ctx 4096 --device xdna:0
  ggml-hsa prebuild model.gguf --prompt 1-64 --flash-attention on      for short prompts only
  ggml-hsa prebuild model.gguf --dry-run --json

Kernels have fixed shapes. Made are those of a decoded token at every length of the context, of whole batches of a prompt at every
length, and of first batches of the lengths that --prompt names. What continues a conversation in a batch of another length is
not among them, and is compiled when it comes.

Exit code: 0 when all kernels exist, 1 when some cannot be made or cached or parts of the model are not known, 2 when the command line, the
model or the device cannot be used.")]
pub struct PrebuildArguments {
    #[command(flatten)]
    subject: Subject,
    /// Lengths of first batches of a prompt
    #[arg(long, value_name = "FIRST-LAST", default_value = "1-512")]
    prompt: Lengths,
    /// Tokens of a whole batch, as llama.cpp's `-ub`
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// llama.cpp's `-fa` [default: kernels of both]
    #[arg(long, value_enum, value_name = "SWITCH")]
    flash_attention: Option<FlashAttention>,
    /// Say how many kernels there are and make none
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Numbers of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lengths(RangeInclusive<usize>);

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse().ok().filter(|number: &usize| *number > 0);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!("`{text}` is no number of tokens, or two with the smaller one first: 5, 1-64")),
        }
    }
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Kernels that runs ask for.
    kernels: usize,
    /// Of them, those that existed.
    existed: usize,
    /// Those that were made, or would be.
    made: usize,
    /// Those that could not be made, with the reason; their operations run on the CPU. Fused forms without a kernel are not among
    /// them: their parts run one by one.
    failed: Vec<(String, String)>,
    /// Made, and not in the cache afterwards.
    lost: usize,
    /// Why the first of these was not kept.
    lost_because: Option<String>,
    /// What was assumed or left out of the model.
    reservations: Vec<String>,
}

impl Report {
    /// A line for each cause, since thousands of kernels may lack for the same one.
    fn failures(&self) -> impl Iterator<Item = String> {
        let mut by_cause = BTreeMap::<String, Vec<&str>>::new();
        for (kernel, cause) in &self.failed {
            by_cause.entry(cause.replace(kernel.as_str(), "...")).or_default().push(kernel);
        }
        by_cause.into_iter().map(|(cause, kernels)| match kernels[..] {
            [kernel] => format!("kernel {kernel}: {cause}"),
            [first, ..] => format!("{}, the first {first}: {cause}", counted(kernels.len(), "kernel")),
            [] => cause,
        })
    }
}

/// Runs the command.
pub fn run(arguments: &PrebuildArguments) -> ExitCode {
    let report = match prebuilt(arguments) {
        Ok(report) => report,
        Err(cause) => {
            complain(&cause);
            return ExitCode::from(2);
        }
    };
    if let Some(reason) = &report.lost_because {
        complain(reason);
    }
    if arguments.json {
        json(&report);
    } else {
        report.reservations.iter().for_each(|reservation| complain(&format!("note: {reservation}")));
        report.failures().for_each(|failure| complain(&failure));
        let verb = if arguments.dry_run { "to be made" } else { "made" };
        let Report { kernels, existed, made, failed, lost, .. } = &report;
        say(&format!(
            "{}: {existed} existed, {made} {verb}, {} cannot be made",
            counted(*kernels, "kernel"),
            failed.len()
        ));
        if *lost > 0 {
            complain(&format!(
                "{lost} of them could not be cached, so a run makes them again: is the disk full, or the cache read-only? \
                 `ggml-hsa doctor` looks at it; {} names the folder",
                GGML_HSA_KERNEL_CACHE_DIR.name
            ));
        }
    }
    if report.failed.is_empty() && report.lost == 0 && report.reservations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn prebuilt(arguments: &PrebuildArguments) -> Result<Report, String> {
    let environment = Environment::process();
    let Opened { model, device, mut config } = arguments.subject.open(environment, None)?;
    let context = arguments.subject.context(&model);
    let most = context.min(arguments.batch as usize);
    if *arguments.prompt.0.start() > most {
        return Err(format!(
            "--prompt {}: a batch has at most {most} tokens, the smaller of --batch and the context",
            arguments.prompt
        ));
    }
    // Somebody asked for them: now is the time.
    config.jit.policy = JitPolicy::Eager;
    let foresight = KernelStores::foreseeing(&config, environment);
    let foresight = foresight.of(&*device).map_err(|cause| cause.to_string())?;
    let failed = foresee(arguments, &model, context, &device, &foresight, &config)?;
    let missed = foresight.missed();
    let found = foresight.counters();
    let given = found.embedded + found.directory + found.cache;
    let mut report = Report { reservations: model.reservations(), ..Report::default() };
    let wanted: Vec<_> = missed.into_iter().filter(|missed| missed.reason == "compiled").collect();
    report.existed = usize::try_from(given).unwrap_or(usize::MAX);
    report.kernels = report.existed + wanted.len() + failed.len();
    report.failed.extend(failed);
    if arguments.dry_run {
        report.made = wanted.len();
        return Ok(report);
    }
    let stores = KernelStores::new(&config, environment);
    let store = stores.of(&*device).map_err(|cause| cause.to_string())?;
    let failed = make(&wanted, &store, &device, config.jit.limits.workers.max(1));
    report.made = wanted.len() - failed.len();
    let made = wanted.iter().filter(|missed| failed.iter().all(|(kernel, _)| *kernel != missed.kernel));
    report.lost = not_cached(made, &device, &config, environment)?;
    report.lost_because = store.not_kept();
    report.failed.extend(failed);
    Ok(report)
}

/// How many of the kernels are not in the cache, although they were made: the disk may be full, or the folder read-only.
fn not_cached<'a>(
    made: impl Iterator<Item = &'a Missed>,
    device: &Arc<dyn Device>,
    config: &Config,
    environment: &Environment,
) -> Result<usize, String> {
    let stores = KernelStores::foreseeing(config, environment);
    let store = stores.of(&**device).map_err(|cause| cause.to_string())?;
    let is_cached = |missed: &Missed| {
        let found = table::lookup(&missed.node.op).map(|op| store.find(op, &missed.node, device.arch()));
        matches!(found, Some(Ok(Supplied { supplier: Supplier::Cache(_), .. })))
    };
    Ok(made.filter(|missed| !is_cached(missed)).count())
}

fn bar(length: usize, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        complain(&format!("{what}: {length}"));
    }
    let bar = ProgressBar::new(length as u64).with_message(what);
    // The template is a constant that indicatif understands; without it the bar has another look.
    match ProgressStyle::with_template("{msg} {bar:32} {pos}/{len} {elapsed_precise}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The batches whose kernels are made.
fn batches(arguments: &PrebuildArguments, context: usize, flash: bool) -> Vec<Batch> {
    let cache = Cache::new(context, arguments.batch as usize, flash);
    let whole = cache.reserved;
    let steps = (0..cache.size).step_by(KEY_STEP);
    let decoded = steps.clone().map(|past| Batch::new(1, past, cache));
    let prompt = steps.filter(|past| past + whole <= cache.size).map(|past| Batch::new(whole, past, cache));
    let first = arguments.prompt.0.clone().filter(|tokens| *tokens <= whole);
    decoded.chain(prompt).chain(first.map(|tokens| Batch::new(tokens, 0, cache))).collect()
}

/// Has `store` foresee the kernels of all batches; returns those without which an operation runs on the CPU, with the reason.
fn foresee(
    arguments: &PrebuildArguments,
    model: &Model,
    context: usize,
    device: &Arc<dyn Device>,
    store: &Arc<KernelStore>,
    config: &Config,
) -> Result<BTreeMap<String, String>, String> {
    let switches = match arguments.flash_attention {
        Some(switch) => vec![switch],
        None => vec![FlashAttention::On, FlashAttention::Off],
    };
    let batches: Vec<Batch> =
        switches.into_iter().flat_map(|switch| batches(arguments, context, switch == FlashAttention::On)).collect();
    let bar = bar(batches.len(), "planning batches");
    let mut failed = BTreeMap::new();
    for batch in batches {
        let planned = plan(model, batch, device, store, config).map_err(|cause| cause.to_string())?;
        let counted = planned.context.statistics.operations();
        for (index, _) in planned.plan.share.operations.iter().filter(|(_, share)| share.host > 0) {
            let operation = &counted[*index];
            // Without the switch both forms of attention are planned, and llama.cpp chooses the fused one where it can.
            let is_needed = arguments.flash_attention.is_some() || batch.cache.flash;
            if let (Some(_), Some(reason), true) = (&operation.fallback, &operation.host_reason, is_needed) {
                failed.insert(operation.shape.clone(), reason.clone());
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(failed)
}

/// Makes `wanted` with `threads` threads; returns those that failed.
fn make(
    wanted: &[Missed],
    store: &Arc<KernelStore>,
    device: &Arc<dyn Device>,
    threads: usize,
) -> Vec<(String, String)> {
    let bar = bar(wanted.len(), "making kernels");
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(wanted.len()) {
            scope.spawn(|| {
                while let Some(missed) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = table::lookup(&missed.node.op)
                        .ok_or_else(|| format!("operation {} is not in the table", missed.node.op))
                        .and_then(|op| store.get(op, &missed.node, device.arch()).map_err(|cause| cause.to_string()));
                    if let Err(cause) = found {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push((missed.kernel.clone(), cause));
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("5", Some(5..=5))]
    #[case("1-64", Some(1..=64))]
    #[case("64-1", None)]
    #[case("0-3", None)]
    #[case("all", None)]
    fn lengths(#[case] text: &str, #[case] expected: Option<RangeInclusive<usize>>) {
        assert_eq!(text.parse::<Lengths>().ok().map(|lengths| lengths.0), expected);
    }
}
