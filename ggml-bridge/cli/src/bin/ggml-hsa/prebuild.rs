//! `ggml-hsa prebuild`: makes and caches the kernels that a model needs, so that a run compiles nothing.

use crate::Ended;
use crate::model::{FlashAttention, KEY_STEP, Opened, Subject, Wanted, places};
use aie_hal::{Device, Environment};
use aie_jit_iron::settings::GGML_HSA_KERNEL_CACHE_DIR;
use aie_jit_iron::{JitPolicy, KernelStore, Missed, Supplied, Supplier};
use aie_ops::{Node, table};
use clap::Args;
use ggml_hsa::config::Config;
use ggml_hsa::kernels::frames::Frames;
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa_cli::explain::planning::plan;
use ggml_hsa_cli::llama_cpp::{Batch, GraphSource};
use ggml_hsa_cli::model::ModelFile;
use ggml_hsa_cli::output::{complain, counted, say, show, with_template};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::BTreeMap;
use std::error::Error;
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

llama.cpp has to be installed: its llama-server builds the graphs, and nothing is computed. Kernels have fixed shapes. Made are those of a decoded token at every length of the context, of whole batches of a prompt at every
length, and of first batches of the lengths that --prompt names. What continues a conversation in a batch of another length is
not among them, and is compiled when it comes.

Exit code: 0 when all kernels exist, 1 when some cannot be made or cached, 2 when the command line, the model, the device or
llama.cpp cannot be used.")]
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
pub fn run(arguments: &PrebuildArguments) -> Ended {
    let report = prebuilt(arguments)?;
    if let Some(reason) = &report.lost_because {
        complain(reason);
    }
    show(arguments.json, &report, |report| {
        report.failures().for_each(|failure| complain(&failure));
        let verb = if arguments.dry_run { "to be made" } else { "made" };
        let Report { kernels, existed, made, failed, lost, .. } = report;
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
    });
    Ok(if report.failed.is_empty() && report.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn prebuilt(arguments: &PrebuildArguments) -> Result<Report, Box<dyn Error>> {
    let environment = Environment::process();
    let Opened { model, device, mut config } = arguments.subject.open(environment, None)?;
    let tokens = arguments.subject.context(&model)?;
    let (_, most) = places(tokens, arguments.batch as usize);
    if *arguments.prompt.0.start() > most {
        return Err(format!(
            "--prompt {}: a batch has at most {most} tokens, the smaller of --batch and the context without the token behind it",
            arguments.prompt
        )
        .into());
    }
    // Somebody asked for them: now is the time.
    config.jit.policy = JitPolicy::Eager;
    let foresight = KernelStores::foreseeing(&config, environment);
    let foresight = foresight.of(&*device)?;
    let failed = foresee(arguments, &model, (tokens, most), &device, &foresight, (&config, environment))?;
    let missed = foresight.missed();
    let found = foresight.counters();
    let given = found.embedded + found.directory + found.cache;
    let mut report = Report::default();
    let wanted: Vec<_> = missed.iter().filter(|missed| missed.reason == "compiled").cloned().collect();
    report.existed = usize::try_from(given).unwrap_or(usize::MAX);
    report.kernels = report.existed + wanted.len() + failed.len();
    report.failed.extend(failed);
    if arguments.dry_run {
        report.made = wanted.len();
        return Ok(report);
    }
    let stores = KernelStores::new(&config, environment);
    let store = stores.of(&*device)?;
    let failed = make(&wanted, &store, &device, config.jit.limits.workers.max(1));
    report.made = wanted.len() - failed.len();
    settle(&missed, &store, &device);
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
) -> Result<usize, Box<dyn Error>> {
    let stores = KernelStores::foreseeing(config, environment);
    let store = stores.of(&**device)?;
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
    with_template(bar, "{msg} {bar:32} {pos}/{len} {elapsed_precise}")
}

/// The batches whose kernels are made, of at most `most` tokens in a context of `context`, in an order in which few need what is before them once more. Keys are counted in steps, so that
/// only the step decides where a batch begins.
fn batches(prompt: RangeInclusive<usize>, (context, most): (usize, usize), embeds: bool) -> Vec<Batch> {
    let first = prompt.filter(|tokens| *tokens <= most).map(|tokens| Batch { tokens, past: 0 });
    if embeds {
        return first.collect();
    }
    let steps = context / KEY_STEP;
    let decoded = (0..steps).map(|step| Batch { tokens: 1, past: step * KEY_STEP });
    // A whole batch begins where another ends: as many rounds as it has steps.
    let rounds = most.div_ceil(KEY_STEP);
    let in_round = |round| (round..steps).step_by(rounds);
    let whole = (0..rounds).flat_map(in_round).filter_map(|step| {
        let past = (step * KEY_STEP).min((context - 1).checked_sub(most)?);
        // The last step has room for a whole batch only if that begins a token earlier.
        (past + KEY_STEP > step * KEY_STEP).then_some(Batch { tokens: most, past })
    });
    decoded.chain(whole).chain(first).collect()
}

/// Has `store` foresee the kernels of all batches; returns those without which an operation runs on the CPU, with the reason.
fn foresee(
    arguments: &PrebuildArguments,
    model: &ModelFile,
    (tokens, most): (usize, usize),
    device: &Arc<dyn Device>,
    store: &Arc<KernelStore>,
    (config, environment): (&Config, &Environment),
) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    let switches = match arguments.flash_attention {
        Some(switch) => vec![switch],
        None => vec![FlashAttention::On, FlashAttention::Off],
    };
    let embeds = model.embeds();
    let (context, _) = places(tokens, arguments.batch as usize);
    let batches = batches(arguments.prompt.0.clone(), (context, most), embeds);
    let bar = bar(switches.len() * batches.len(), "planning batches");
    let mut failed = BTreeMap::new();
    for switch in switches {
        let flash = switch == FlashAttention::On;
        let wanted = Wanted { context: tokens, batch: arguments.batch as usize, flash, embeds };
        let mut server = arguments.subject.start(environment, &device.info().arch, wanted)?;
        for batch in &batches {
            let graphs = server.graphs(*batch)?;
            bar.inc(1);
            if graphs.is_empty() {
                continue;
            }
            let planned = plan(*batch, graphs, device, store, config)?;
            let counted = planned.context.statistics.operations();
            for (index, _) in planned.share().operations.iter().filter(|(_, share)| share.host > 0) {
                let operation = &counted[*index];
                // Without the switch both forms of attention are planned, and llama.cpp chooses the fused one where it can.
                let is_needed = arguments.flash_attention.is_some() || flash;
                if let (Some(_), Some(reason), true) = (&operation.fallback, &operation.host_reason, is_needed) {
                    failed.insert(operation.shape.clone(), reason.clone());
                }
            }
        }
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

/// Has the PDIs made that runs choose for kernels that work with several, and puts them in the cache.
fn settle(kernels: &[Missed], store: &KernelStore, device: &Arc<dyn Device>) {
    let op_of = |node: &Node| table::lookup(&node.op);
    let made = kernels.iter().filter_map(|missed| {
        let kernel = store.get(op_of(&missed.node)?, &missed.node, device.arch()).ok()?;
        Some((&missed.node, kernel))
    });
    let made: Vec<_> = made.collect();
    Frames::default().settle(made.iter().map(|(node, kernel)| (*node, kernel)), &|node, features| {
        store.widen(op_of(node)?, node, device.arch(), features).ok()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn begins(batches: &[Batch], tokens: usize) -> Vec<usize> {
        batches.iter().filter(|batch| batch.tokens == tokens).map(|batch| batch.past).collect()
    }

    #[test]
    fn tokens_and_whole_batches_are_planned_at_every_step_of_the_context() {
        let found = batches(3..=4, (1024, 512), false);
        assert_eq!(begins(&found, 1), [0, 256, 512, 768]);
        // One after the other as far as they have room; the last is one that ends before the last place.
        assert_eq!(begins(&found, 512), [0, 511, 256]);
        assert_eq!((begins(&found, 3), begins(&found, 4), found.len()), (vec![0], vec![0], 9));
        // A whole batch that is nearly the context begins at its beginning only.
        assert_eq!(begins(&batches(1..=1, (256, 255), false), 255), [0]);
        assert_eq!(batches(2..=9, (512, 8), true).len(), 7);
    }

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
