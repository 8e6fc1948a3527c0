//! `cargo xtask models`: small models of further families through stock llama.cpp, against ggml's CPU backend.
//!
//! `llama-results` writes the logits of every token of a text. With the whole text in one batch it is a prefill, with
//! batches of one token (`-ub 1`) every token is decoded on its own. Each runs with flash attention off and on, on the
//! CPU backend and on our device, and three things are judged: the graphs stay whole, every logit is a number, and the
//! logits are those of the CPU backend. The weights are random, so that a file of every family can be made anywhere; the
//! bound on the difference is the acceptance criterion's.

mod logits;
pub mod making;

use crate::generation;
use crate::output::{self, Report};
use crate::process;
use crate::schedule;
use crate::session::{DEVICE_NAME, DriverOptions, Options, Session};
use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use logits::{Comparison, Logits};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Highest normalised mean squared error of the logits of random weights.
const BOUND: f64 = 5e-4;
/// A text whose logits hardly differ from token to token would prove nothing.
const LEAST_SPREAD: f64 = 0.5;
/// A token per letter: the models know letters and no words.
const TEXT: &str =
    "the quick brown fox jumps over the lazy dog and then it walks home to sleep until the morning comes again";
const LEAST_TOKENS: usize = 64;
const CONTEXT: &str = "256";
const LIMIT: Duration = Duration::from_secs(600);

/// A random model of `tests/models/make_models.py`.
struct Random {
    name: &'static str,
    covers: &'static str,
}

const MODELS: &[Random] = &[
    Random { name: "qwen3", covers: "grouped attention with biases of Q, K, V and norms of Q, K; f16, q8_0, q4_0" },
    Random { name: "qwen2", covers: "grouped attention with biases, tied embeddings; q4_K, q6_K" },
    Random { name: "qwen3moe", covers: "mixture of 8 experts, 2 used; f16, q8_0, q4_K" },
    Random { name: "gpt-oss", covers: "experts with biases, bounded gate, attention sinks, sliding window; mxfp4" },
    Random { name: "mamba2", covers: "recurrent: Mamba-2; q8_0" },
    Random { name: "falcon-h1", covers: "hybrid: attention beside Mamba-2; q4_0, q8_0" },
    Random { name: "qwen3next", covers: "hybrid: gated delta nets, gated attention, experts and a shared one" },
];

/// Run small models of further families and compare their logits with the CPU backend's.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask models
  cargo xtask models --only qwen3moe,mamba2
  cargo xtask models --driver xdna --only qwen3
  cargo xtask models --json

The models are built on the first run, with the Python package gguf, and stored beside the testbed's model.
Exit code 1 if a graph was split, a logit is not a number, or the normalised mean squared error of the logits is
above 5e-4.")]
pub struct ModelsArgs {
    /// Only these models, separated by commas
    #[arg(long, value_name = "MODEL", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Threads of both sides; one is fastest for such small models
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    #[command(flatten)]
    driver: DriverOptions,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(MODELS.iter().map(|model| model.name))
}

/// One model with flash attention off or on.
#[derive(Serialize)]
struct Run {
    model: &'static str,
    covers: &'static str,
    flash_attention: &'static str,
    prefill: Measured,
    decode: Measured,
}

/// One run on our device beside one on the CPU backend.
#[derive(Serialize)]
struct Measured {
    /// Splits of the graph with most of them.
    splits: usize,
    /// Operations of our device's graphs that another backend got, with their number of nodes.
    elsewhere: BTreeMap<String, usize>,
    comparison: Comparison,
    not_finite: usize,
    /// Operations that ran on the array and on the host.
    array: u64,
    host: u64,
    graphs: u64,
}

pub fn run(args: &ModelsArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let chosen: Vec<&Random> =
        MODELS.iter().filter(|model| args.only.is_empty() || args.only.iter().any(|name| name == model.name)).collect();
    let chosen_names: Vec<&str> = chosen.iter().map(|model| model.name).collect();
    let files = making::ensure(&chosen_names, &session.testbed, options.offline)?;
    let bar = output::progress(4 * chosen.len() as u64)?;
    let mut runs = Vec::new();
    let mut problems = Vec::new();
    for (model, file) in chosen.into_iter().zip(&files) {
        for flash_attention in ["off", "on"] {
            bar.set_message(format!("{} with flash attention {flash_attention}", model.name));
            let measure = |batch: Batch| {
                let run = Trial { file, flash_attention, batch, threads: args.threads.into() };
                bar.inc(1);
                run.measure(&session)
                    .with_context(|| format!("{}, {}, flash attention {flash_attention}", model.name, batch.name()))
            };
            let run = Run {
                model: model.name,
                covers: model.covers,
                flash_attention,
                prefill: measure(Batch::Whole)?,
                decode: measure(Batch::Single)?,
            };
            problems.extend(run.problems());
            runs.push(run);
        }
    }
    bar.finish_and_clear();
    let mut report = Report::with(problems);
    report.rows(
        "runs",
        &runs,
        &[
            ("model", |run| run.model.to_owned()),
            ("covers", |run| run.covers.to_owned()),
            ("flash attention", |run| run.flash_attention.to_owned()),
            ("#splits, prefill", |run| run.prefill.splits.to_string()),
            ("#decode", |run| run.decode.splits.to_string()),
            ("#NMSE, prefill", |run| format!("{:.1e}", run.prefill.comparison.nmse)),
            ("#decode", |run| format!("{:.1e}", run.decode.comparison.nmse)),
            ("#KLD, decode", |run| format!("{:.1e}", run.decode.comparison.kld)),
            ("#array", |run| (run.prefill.array + run.decode.array).to_string()),
            ("#host", |run| (run.prefill.host + run.decode.host).to_string()),
        ],
    )?;
    report.line("NMSE and KLD are against ggml's CPU backend; array and host count operations of both runs.");
    report.field("bound", BOUND)?;
    report.finish("models", options)
}

/// How many tokens of the text are computed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batch {
    Whole,
    Single,
}

impl Batch {
    fn name(self) -> &'static str {
        match self {
            Self::Whole => "prefill",
            Self::Single => "decode",
        }
    }

    fn size(self) -> &'static str {
        match self {
            Self::Whole => CONTEXT,
            Self::Single => "1",
        }
    }
}

struct Trial<'a> {
    file: &'a Path,
    flash_attention: &'a str,
    batch: Batch,
    threads: usize,
}

impl Trial<'_> {
    fn measure(&self, session: &Session) -> Result<Measured> {
        // In a folder of its own, so that what another run left cannot pass for this one's.
        let folder = tempfile::Builder::new().prefix(".models-").tempdir_in(&session.testbed.dir)?;
        let [expected, results] = ["cpu.gguf", "device.gguf"].map(|name| folder.path().join(name));
        let mut command = session.on_cpu("llama-results")?;
        self.prepare(&mut command, &expected);
        generation::require_success(&process::run(&mut command, LIMIT)?).context("on the CPU backend")?;
        let reference = Logits::read(&expected)?;
        if reference.tokens.len() < LEAST_TOKENS {
            bail!("the text has {} tokens, at least {LEAST_TOKENS} are needed", reference.tokens.len());
        }
        let unusable = reference.not_finite();
        if unusable > 0 {
            bail!("{unusable} logits of the CPU backend are not numbers: the model is unusable");
        }
        let run = session.run("llama-results", LIMIT, |command| {
            self.prepare(command.env("GGML_SCHED_DEBUG", "2"), &results);
        });
        let run = run.context("on our device")?;
        let (measured, log) = (Logits::read(&results)?, run.finished.stderr.as_str());
        let messages = generation::library_messages(log);
        if let [first, ..] = generation::errors(&messages)[..] {
            bail!("the library reported an error: {first}");
        }
        let device = run.device()?;
        if let [first, ..] = device.damaged_kernels()[..] {
            bail!("kernels could not be used: {first}");
        }
        let graphs = schedule::graphs(schedule::after_reservation(log)?)?;
        let splits = graphs.iter().map(|graph| graph.splits.len()).max().context("no graph was split")?;
        let mut elsewhere = BTreeMap::new();
        for (op, count) in graphs.iter().flat_map(|graph| graph.not_on(DEVICE_NAME)) {
            *elsewhere.entry(op.to_owned()).or_default() += count;
        }
        // One split, but the CPU's, is not a pass either.
        if splits == 1 && !graphs.iter().all(|graph| graph.is_whole_on(DEVICE_NAME)) {
            bail!("a graph is whole, but not on {DEVICE_NAME}");
        }
        Ok(Measured {
            splits,
            elsewhere,
            comparison: reference.compare(&measured)?,
            not_finite: measured.not_finite(),
            array: device.array(),
            host: device.host(),
            graphs: device.graphs.computed,
        })
    }

    /// Adds the arguments of llama-results, which writes `results`.
    fn prepare(&self, command: &mut Command, results: &Path) {
        command.arg("-m").arg(self.file).args(["--offline", "-lv", "5", "-c", CONTEXT, "-p", TEXT]);
        command.args(["-ub", self.batch.size(), "-fa", self.flash_attention]).arg("-o").arg(results);
        generation::set_threads(command, Some(self.threads));
        // On a busy machine a thread that waits must not keep another from working.
        command.env("OMP_WAIT_POLICY", "passive");
    }
}

impl Run {
    fn problems(&self) -> Vec<String> {
        let mut problems = self.prefill.problems(Batch::Whole);
        problems.extend(self.decode.problems(Batch::Single));
        let start = format!("{}, flash attention {}", self.model, self.flash_attention);
        problems.into_iter().map(|problem| format!("{start}, {problem}")).collect()
    }
}

impl Measured {
    fn problems(&self, batch: Batch) -> Vec<String> {
        let name = batch.name();
        let mut problems = Vec::new();
        if self.splits != 1 {
            let ops: Vec<String> = self.elsewhere.iter().map(|(op, count)| format!("{op} {count}")).collect();
            problems.push(format!(
                "{name}: {} splits, expected 1; not on {DEVICE_NAME}: {}",
                self.splits,
                ops.join(", ")
            ));
        }
        if self.not_finite > 0 {
            problems.push(format!("{name}: {} logits are not numbers", self.not_finite));
        }
        let found = &self.comparison;
        if found.nmse.is_nan() || found.nmse > BOUND {
            problems.push(format!("{name}: the logits' NMSE is {:.2e}, allowed is {BOUND:e}", found.nmse));
        }
        if found.spread.is_nan() || found.spread < LEAST_SPREAD {
            problems.push(format!("{name}: the logits hardly differ from token to token ({:.2})", found.spread));
        }
        if batch == Batch::Single && self.graphs < found.tokens as u64 {
            problems.push(format!("{name}: the device computed {} graphs for {} tokens", self.graphs, found.tokens));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let comparison = Comparison { tokens: 100, nmse: 1e-5, kld: 1e-5, spread: 2.0 };
        Measured { splits: 1, elsewhere: BTreeMap::new(), comparison, not_finite: 0, array: 1, host: 1, graphs: 100 }
    }

    #[test]
    fn a_good_run_has_no_problem() {
        assert!(measured().problems(Batch::Whole).is_empty() && measured().problems(Batch::Single).is_empty());
    }

    #[test]
    fn each_mistake_is_a_problem() {
        let changed = |change: fn(&mut Measured), batch| {
            let mut measured = measured();
            change(&mut measured);
            let problems = measured.problems(batch);
            assert_eq!(problems.len(), 1, "{problems:?}");
            problems.into_iter().next().unwrap()
        };
        let split = |measured: &mut Measured| {
            measured.splits = 3;
            measured.elsewhere.insert("ARGSORT".to_owned(), 2);
        };
        assert!(changed(split, Batch::Whole).contains("3 splits, expected 1; not on HSA0: ARGSORT 2"));
        assert!(changed(|measured| measured.not_finite = 4, Batch::Whole).contains("4 logits"));
        assert!(changed(|measured| measured.comparison.nmse = 6e-4, Batch::Whole).contains("6.00e-4"));
        assert!(changed(|measured| measured.comparison.nmse = f64::NAN, Batch::Whole).contains("NaN"));
        assert!(changed(|measured| measured.comparison.spread = 0.0, Batch::Whole).contains("hardly differ"));
        assert!(changed(|measured| measured.graphs = 1, Batch::Single).contains("1 graphs for 100 tokens"));
    }

    #[test]
    fn the_script_makes_the_models_of_the_table() {
        let script = crate::workspace::root().join("tests/models/make_models.py");
        let text = std::fs::read_to_string(script).unwrap();
        let table = text.split("MODELS = {").nth(1).unwrap().split('}').next().unwrap();
        let made: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
        assert_eq!(made, MODELS.iter().map(|model| model.name).collect::<Vec<_>>());
    }
}
