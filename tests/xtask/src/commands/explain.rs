//! `cargo xtask explain`: `ggml-hsa explain` against the statistics of runs, and `ggml-hsa prebuild` before one.
//!
//! Stock `llama-bench` computes one prompt, or decodes a few tokens, in a context of just that many. What the library counts then
//! has to be what the program says beforehand, operation by operation: dispatches, host calls, bytes, multiply-accumulates, who makes
//! the kernel; and in all: fused nodes, conversions, chains. Nothing is compared that is not equal to the last one. The same run on a
//! device that only plans has to count the same, too.

use super::models::making;
use crate::generation::{self, Request};
use crate::output::on_or_off;
use crate::process;
use crate::session::{DeviceOptions, Options, Session};
use crate::stats::DeviceStats;
use crate::steps::Steps;
use crate::{build, library};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);
/// Tokens of the prompt, and tokens decoded. Different, so that one cannot pass for the other.
const PROMPT: usize = 5;
const DECODED: usize = 3;
/// Tokens of the context of an ordinary run: so few that no token needs another graph than the one before.
const CONTEXT: usize = 256;
/// Families beside the demonstration's: dense ones, mixtures of experts, recurrent and hybrid ones, and an encoder.
const FAMILIES: [&str; 17] = [
    "qwen2",
    "qwen3",
    "baichuan",
    "bloom",
    "falcon",
    "jais",
    "olmo",
    "refact",
    "starcoder",
    "cohere2",
    "gemma3",
    "qwen3moe",
    "gpt-oss",
    "mamba2",
    "falcon-h1",
    "qwen3next",
    ENCODER,
];

/// The one that continues no text.
const ENCODER: &str = "bert";

/// Of them, those with layers that see a window of the text only.
const WINDOWED: [&str; 2] = ["cohere2", "gemma3"];

/// Check that `ggml-hsa explain` says what runs then count, and that nothing is compiled after `ggml-hsa prebuild`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask explain
  cargo xtask explain --model ~/models/any.gguf
  cargo xtask explain --library target/debug/libggml_hsa.so --program target/debug/ggml-hsa

Exit code 1 if a count differs or a kernel was compiled.")]
pub struct ExplainArgs {
    /// The program to check [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Also compare this model
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceOptions,
}

/// What is compared of `ggml-hsa explain --json`.
#[derive(Deserialize)]
struct Explanation {
    passes: Vec<Pass>,
    run: OrdinaryRun,
}

/// A prompt and tokens in one process.
#[derive(Deserialize)]
struct OrdinaryRun {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Deserialize)]
struct Step {
    chains: u64,
    contexts_made: u64,
    context_switches: u64,
}

#[derive(Deserialize)]
struct Pass {
    name: String,
    dispatches: u64,
    host_calls: u64,
    fused: u64,
    fused_nodes: u64,
    conversions: u64,
    conversion_bytes: u64,
    chains: u64,
    operations: Vec<Operation>,
}

#[derive(Deserialize)]
struct Operation {
    op: String,
    shape: String,
    kernel: Option<String>,
    array: u64,
    host: u64,
    bytes: u64,
    macs: u64,
}

/// Counts by what they are of.
type Counts = BTreeMap<String, u64>;

pub fn run(args: &ExplainArgs, options: &Options) -> Result<()> {
    let session = Session::open(options, &args.device)?;
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => build::cargo(&build::BACKEND, options.offline)?.executable("bin", "ggml-hsa")?,
    };
    let demo = session.model(None)?;
    let mut models = vec![demo.clone()];
    models.extend(making::ensure(&FAMILIES, &session.testbed, options.offline)?);
    models.extend(args.model.as_deref().map(|model| session.model(Some(model))).transpose()?);
    let folder = tempfile::tempdir()?;
    let server = session.testbed.script("llama-server", folder.path())?;
    let rig = Rig { program, server, session };
    let mut steps = Steps::default();
    for model in &models {
        let name = model.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        for flash in [true, false] {
            for (pass, tokens) in [("prefill", PROMPT), ("decode", DECODED)] {
                if name == ENCODER && pass == "decode" {
                    continue;
                }
                let title = format!("{name}: {pass}, flash attention {}", on_or_off(flash));
                steps.check(&title, || rig.compare(model, pass, tokens, flash));
            }
        }
    }
    steps.check("prebuild, then a run", || rig.prebuild(&demo));
    for model in models.iter().filter(|model| has_windows(model) || **model == demo) {
        let name = model.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        for flash in [true, false] {
            let title = |what: &str| format!("{name}: {what}, flash attention {}", on_or_off(flash));
            steps.check(&title("an ordinary run"), || rig.ordinary_run(model, flash));
            if has_windows(model) {
                steps.check(&title("two contexts and windows"), || rig.contexts(model, flash));
            }
        }
        if has_windows(model) {
            steps.check(&format!("{name}: prebuild, then a run"), || rig.prebuild(model));
        }
    }
    steps.report()?.finish("explain", options)
}

/// Whether layers of the model see a window of the text only.
fn has_windows(model: &Path) -> bool {
    model.file_stem().is_some_and(|name| WINDOWED.iter().any(|known| name == *known))
}

struct Rig {
    program: PathBuf,
    /// Starts the testbed's `llama-server`.
    server: PathBuf,
    session: Session,
}

impl Rig {
    /// The program with a cache of its own.
    fn program(&self, cache: &Path) -> Command {
        let mut command = Command::new(&self.program);
        process::clear_settings(&mut command);
        command.env("GGML_HSA_KERNEL_CACHE_DIR", cache).env("GGML_HSA_DEVICES", &self.session.device);
        command
    }

    /// Names llama.cpp and the library.
    fn add_llama(&self, command: &mut Command) {
        command.arg("--llama-server").arg(&self.server).arg("--library").arg(&self.session.library);
    }

    fn explain(&self, model: &Path, context: usize, flash: bool, more: &[&str]) -> Result<Explanation> {
        let folder = tempfile::tempdir()?;
        let mut command = self.program(&folder.path().join("cache"));
        command.arg("explain").arg(model).args(["--json", "--ctx", &context.to_string()]);
        self.add_llama(&mut command);
        command.args(["--flash-attention", on_or_off(flash)]).args(more);
        let end = process::run(&mut command, LIMIT)?;
        ensure!(end.success(), "explain: {}; its output:\n{}", end.describe(), end.last_lines(8));
        ensure!(!folder.path().join("cache").exists(), "explain made a cache");
        serde_json::from_str(&end.stdout).context("explain --json")
    }

    /// A prompt and tokens in one process: chains, hardware contexts and changes between them are as explained.
    fn ordinary_run(&self, model: &Path, flash_attention: bool) -> Result<String> {
        let prompt = "The three states of matter are".to_owned();
        let request = Request { model: model.to_owned(), prompt, tokens: 6, threads: None, flash_attention };
        let run = request.on_device(&self.session, |command| {
            command.args(["-c", &CONTEXT.to_string(), "--no-warmup", "--ignore-eos"]);
        })?;
        let prompt = prompt_tokens(&run.finished.stderr)?;
        let explained = self.explain(model, CONTEXT, flash_attention, &["--prompt", prompt])?;
        let [prompt, first, token] = explained.run.steps[..] else { bail!("{} steps", explained.run.steps.len()) };
        let device = run.device()?;
        let further = device.graphs.computed.checked_sub(2).context("no token behind the first")?;
        let counters = &device.counters;
        let steps = |of: fn(Step) -> u64| [of(prompt), of(first), of(token)];
        let compared = [
            ("chains", counters.chains, steps(|step| step.chains)),
            ("contexts made", counters.contexts_created, steps(|step| step.contexts_made)),
            ("context switches", counters.context_switches, steps(|step| step.context_switches)),
        ];
        let mut seen = Vec::new();
        for (what, counted, [prompt, first, token]) in compared {
            ensure!(
                counted == prompt + first + further * token,
                "{counted} {what}, explained {prompt} for the prompt, {first} for the first token, {token} for each of {further} more"
            );
            seen.push(format!("{counted} {what}"));
        }
        Ok(format!("{} as explained", seen.join(", ")))
    }

    fn compare(&self, model: &Path, pass: &str, tokens: usize, flash: bool) -> Result<String> {
        let prompt = tokens.to_string();
        let more = if pass == "prefill" { vec!["--prompt", &prompt] } else { Vec::new() };
        let pass_with = |more: &[&str]| -> Result<Pass> {
            let explanation = self.explain(model, tokens, flash, more)?;
            explanation.passes.into_iter().find(|found| found.name == pass).context("no such pass")
        };
        let explained = pass_with(&more)?;
        let bench = |session: &Session| {
            session.run("llama-bench", LIMIT, |command| {
                command.arg("-m").arg(model).args(["--no-warmup", "-r", "1", "-o", "json"]);
                let (prompt, decoded) = if pass == "prefill" { (tokens, 0) } else { (0, tokens) };
                command.args([
                    "-p",
                    &prompt.to_string(),
                    "-n",
                    &decoded.to_string(),
                    "-fa",
                    if flash { "1" } else { "0" },
                ]);
                if model.file_stem().is_some_and(|name| name == ENCODER) {
                    command.args(["-embd", "1"]);
                }
                generation::set_threads(command, None);
            })
        };
        let run = bench(&self.session)?;
        let device = run.device()?;
        let graphs = if pass == "prefill" { 1 } else { tokens as u64 };
        ensure!(device.graphs.computed == graphs, "{} graphs instead of {graphs}", device.graphs.computed);
        let mut expected_counts = expected(&explained, 1);
        if graphs > 1 {
            // The first token of a text clears the states of recurrent layers, those behind it do not.
            let further = expected(&pass_with(&["--past", "1"])?, graphs - 1);
            further.into_iter().for_each(|(name, count)| *expected_counts.entry(name).or_default() += count);
        }
        let told = equal(&expected_counts, &counted(device))?;
        // A device with parameters of its own can get other kernels than one that only plans.
        if self.session.device.contains('?') {
            return Ok(told);
        }
        let planning = self.session.with(&self.session.library, &format!("{}?execute=plan", self.session.device));
        let planned = bench(&planning)?;
        let [counted, planned] = [device, planned.device()?].map(|device| without_counters(counted(device)));
        equal(&planned, &counted).context("on a device that only plans")?;
        Ok(told)
    }

    /// Caches of two sizes take turns, and so do layers with a window and without one in each: none may overwrite the kernels of another.
    fn contexts(&self, model: &Path, flash_attention: bool) -> Result<String> {
        let cache = tempfile::tempdir()?;
        let mut compiled = Vec::new();
        for (turn, context) in [256, 512, 256, 512].into_iter().enumerate() {
            let prompt = "the three states of matter are".to_owned();
            let request = Request { model: model.to_owned(), prompt, tokens: 4, threads: None, flash_attention };
            let run = request.on_device(&self.session, |command| {
                command.args(["-ub", "32", "-c", &context.to_string()]).env("GGML_HSA_KERNEL_CACHE_DIR", cache.path());
            })?;
            let store = &run.stats.store;
            ensure!(turn < 2 || store.compiled == 0, "-c {context} again: {}: {:?}", store.summary(), store.missed);
            compiled.push(store.compiled.to_string());
        }
        Ok(format!("{} kernels compiled with -c 256, 512, 256, 512", compiled.join(", ")))
    }

    fn prebuild(&self, model: &Path) -> Result<String> {
        let cache = tempfile::tempdir()?;
        let mut command = self.program(cache.path());
        command.arg("prebuild").arg(model).args(["--json", "--prompt", "1-32"]);
        self.add_llama(&mut command);
        if let Some(folder) = self.session.library.parent() {
            command.env("GGML_HSA_JIT_WORKER", folder.join(library::WORKER));
        }
        let end = process::run(&mut command, LIMIT)?;
        ensure!(end.success(), "prebuild: {}; its output:\n{}", end.describe(), end.last_lines(8));
        let mut seen = Vec::new();
        for flash_attention in [false, true] {
            let prompt = "The three states of matter are".to_owned();
            let request = Request { model: model.to_owned(), prompt, tokens: 8, threads: None, flash_attention };
            let run = request.on_device(&self.session, |command| {
                command.env("GGML_HSA_KERNEL_CACHE_DIR", cache.path());
            })?;
            let store = &run.stats.store;
            ensure!(store.cache > 0, "no kernel came from the cache: {}", store.summary());
            ensure!(store.compiled == 0, "{}: {:?}", store.summary(), store.missed);
            seen.push(format!("{} kernels from the cache, 0 compiled", store.cache));
        }
        Ok(seen.join("; "))
    }
}

/// The number of tokens that `llama-completion` says its prompt had.
fn prompt_tokens(said: &str) -> Result<&str> {
    let line = said.lines().find(|line| line.contains("prompt eval time"));
    let (_, tokens) = line.and_then(|line| line.split_once('/')).context("llama.cpp did not say `prompt eval time`")?;
    tokens.split_whitespace().next().context("llama.cpp did not say how many tokens the prompt had")
}

/// What `graphs` runs of a pass would count.
fn expected(pass: &Pass, graphs: u64) -> Counts {
    let mut counts = Counts::new();
    for operation in &pass.operations {
        let Operation { op, shape, kernel, array, host, bytes, macs } = operation;
        add(&mut counts, op, shape, kernel.as_deref(), [*array, *host, *bytes, *macs]);
    }
    let Pass { dispatches, host_calls, fused, fused_nodes, conversions, conversion_bytes, chains, .. } = *pass;
    let sums = [dispatches, host_calls, fused, fused_nodes, conversions, conversion_bytes, chains];
    counts.extend(SUMS.iter().map(|name| (*name).to_owned()).zip(sums));
    counts.into_iter().map(|(name, count)| (name, count * graphs)).collect()
}

/// Those of the device's queue.
const COUNTERS: [&str; 3] = ["dispatches", "host calls", "chains"];

const SUMS: [&str; 7] =
    ["dispatches", "host calls", "fused dispatches", "fused nodes", "conversions", "bytes of conversions", "chains"];

/// The counts that need nothing to run.
fn without_counters(mut counts: Counts) -> Counts {
    counts.retain(|name, _| !COUNTERS.contains(&name.as_str()));
    counts
}

fn counted(device: &DeviceStats) -> Counts {
    let mut counts = Counts::new();
    // What another graph of the process planned and none ran counts nothing.
    for found in device.operations.iter().filter(|found| found.array + found.host > 0) {
        let numbers = [found.array, found.host, found.bytes, found.macs];
        add(&mut counts, &found.op, &found.shape, found.kernel.as_deref(), numbers);
    }
    let sums = [
        device.counters.dispatches,
        device.counters.host_calls,
        device.fusion.dispatches,
        device.fusion.nodes,
        device.conversions.host_calls,
        device.conversions.bytes,
        device.counters.chains,
    ];
    counts.extend(SUMS.iter().map(|name| (*name).to_owned()).zip(sums));
    counts
}

fn add(counts: &mut Counts, op: &str, shape: &str, kernel: Option<&str>, numbers: [u64; 4]) {
    for (what, number) in ["dispatches", "host calls", "bytes", "multiply-accumulates"].iter().zip(numbers) {
        let kernel = kernel.unwrap_or("the host");
        *counts.entry(format!("{what} of {op} {shape} by {kernel}")).or_default() += number;
    }
}

/// Whether all counts are the same; what differs otherwise.
fn equal(expected: &Counts, counted: &Counts) -> Result<String> {
    let names: std::collections::BTreeSet<&String> = expected.keys().chain(counted.keys()).collect();
    let differ: Vec<String> = names
        .iter()
        .filter(|name| expected.get(**name) != counted.get(**name))
        .map(|name| {
            let show = |counts: &Counts| counts.get(*name).map_or_else(|| "nothing".to_owned(), u64::to_string);
            format!("{name}: explained {}, counted {}", show(expected), show(counted))
        })
        .collect();
    if !differ.is_empty() {
        bail!("{} of {} counts differ: {}", differ.len(), names.len(), differ.join("; "));
    }
    let sum = |name| counted.get(name).copied().unwrap_or(0);
    Ok(format!("{} counts equal; {} dispatches, {} host calls", names.len(), sum(SUMS[0]), sum(SUMS[1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        let sums = SUMS.iter().map(|name| ((*name).to_owned(), 1));
        sums.chain(pairs.iter().map(|(name, count)| ((*name).to_owned(), *count))).collect()
    }

    #[test]
    fn the_tokens_of_a_prompt_are_read() {
        let said = "llama_perf: load time = 3 ms\ncommon_perf_print: prompt eval time =      12.70 ms /     6 tokens ( 2.1 ms per token)";
        assert_eq!(prompt_tokens(said).unwrap(), "6");
        assert!(prompt_tokens("nothing").is_err());
    }

    #[test]
    fn one_count_that_differs_is_named() {
        assert!(equal(&counts(&[("a", 1)]), &counts(&[("a", 1)])).unwrap().starts_with("8 counts equal"));
        let error = equal(&counts(&[("a", 1), ("b", 2)]), &counts(&[("a", 3)])).unwrap_err().to_string();
        assert_eq!(error, "2 of 9 counts differ: a: explained 1, counted 3; b: explained 2, counted nothing");
    }

    #[test]
    fn passes_and_statistics_have_the_same_names() {
        let pass = r#"{"name":"decode","dispatches":4,"host_calls":1,"fused":0,"fused_nodes":0,"conversions":0,"conversion_bytes":0,
            "chains":1,"operations":[{"op":"ADD","shape":"add-4f32","kernel":null,"array":4,"host":0,"bytes":32,"macs":0},
            {"op":"CPY","shape":"cpy","kernel":null,"array":0,"host":1,"bytes":8,"macs":0}]}"#;
        let stats: crate::stats::Stats = serde_json::from_str(&crate::stats::tests::sample("[]")).unwrap();
        let (expected, counted) = (expected(&serde_json::from_str(pass).unwrap(), 2), counted(&stats.devices[0]));
        assert_eq!(expected.keys().collect::<Vec<_>>(), counted.keys().collect::<Vec<_>>());
        let bytes = "bytes of ADD add-4f32 by the host";
        assert_eq!((expected[bytes], counted[bytes], counted["dispatches"]), (64, 64, 9));
    }
}
