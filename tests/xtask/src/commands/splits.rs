//! `cargo xtask splits`: one split per graph, one submission per graph, no allocation and no context switch per token, fewer
//! dispatches by fusion; and nothing of the layers that are left to the CPU.
//!
//! The scheduler's debug output (`GGML_SCHED_DEBUG=1`, shown by llama.cpp at verbosity 5) has a line for each split of a
//! graph it cuts. Reused graphs are not cut again, so after the line that announces the generation the first graph is
//! the prefill and the second the first decode. Two prompts are run, because llama.cpp places nodes differently for
//! batches of 32 tokens and more.

mod offload;

use super::models::making;
use crate::generation::Request;
use crate::output::{Report, on_or_off};
use crate::per_token::FusionCounts;
use crate::schedule;
use crate::session::{DEVICE_NAME, DriverOptions, Options, Session};
use crate::stats::GraphEntry;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

const TOKENS: usize = 24;
/// Tokens of the runs with some layers on the CPU.
const OFFLOAD_TOKENS: usize = 10;
const SHORT: &str = "The capital of France is";

/// Check that llama.cpp's graphs stay whole on our device and cost one submission each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask splits
  cargo xtask splits --driver xdna
  cargo xtask splits --json

Exit code 1 if a graph was split, took more than one submission, a token allocated device memory after the
second decoded one, a token behind a prompt switched between hardware contexts, fusion saves less than 30 % of the
dispatches of a decoded token, or the device takes part in a layer that `-ngl` leaves to the CPU.")]
pub struct SplitsArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    #[command(flatten)]
    driver: DriverOptions,
}

#[derive(Serialize)]
struct Run {
    prompt: &'static str,
    prefill_splits: usize,
    decode_splits: usize,
    graphs: usize,
    submissions: u64,
    most_submissions_per_graph: u64,
    replayed: usize,
    /// Device allocations of each decoded token.
    decode_allocations: Vec<u64>,
}

/// A model whose prompts and tokens need more configurations of the array than one context holds: layers with a window and
/// without one have kernels of their own.
const WINDOWED: &str = "gemma3";
/// Tokens of the two runs that are compared.
const CONTEXT_TOKENS: [usize; 2] = [8, 24];

/// What a prompt and tokens in one process cost in hardware contexts.
#[derive(Serialize)]
struct Contexts {
    flash_attention: bool,
    tokens: usize,
    created: u64,
    switches: u64,
}

/// The backend of each split of one graph.
type Graph = Vec<String>;

pub fn run(args: &SplitsArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let model = session.model(args.model.as_deref())?;
    let long = "A machine that adds and multiplies is built of small parts. ".repeat(8);
    let mut runs = Vec::new();
    let mut problems = Vec::new();
    for (name, prompt) in [("short (under 32 tokens)", SHORT), ("long (over 32 tokens)", long.trim_end())] {
        let request = Request {
            model: model.clone(),
            prompt: prompt.to_owned(),
            tokens: TOKENS,
            threads: None,
            flash_attention: false,
        };
        let (run, found) = measure(name, &session, &request)?;
        problems.extend(found.into_iter().map(|problem| format!("{name} prompt: {problem}")));
        runs.push(run);
    }
    // A prompt of more than 32 tokens, and then one at a time: llama.cpp places the nodes of both differently.
    let request = Request {
        model: model.clone(),
        prompt: long.trim_end().to_owned(),
        tokens: OFFLOAD_TOKENS,
        threads: None,
        flash_attention: true,
    };
    let (offload, found) = offload::measure(&session, &request)?;
    problems.extend(found);
    let mut fusion = Vec::new();
    for flash_attention in [false, true] {
        let counts = FusionCounts::measure(&session, &model, None, flash_attention)?;
        let switch = on_or_off(flash_attention);
        problems.extend(counts.problems().into_iter().map(|problem| format!("flash attention {switch}: {problem}")));
        fusion.push(counts);
    }
    let windowed = making::ensure(&[WINDOWED], &session.testbed, options.offline)?;
    let mut contexts = Vec::new();
    for flash_attention in [false, true] {
        let runs = CONTEXT_TOKENS
            .iter()
            .map(|tokens| Contexts::measure(&session, &windowed[0], *tokens, flash_attention))
            .collect::<Result<Vec<_>>>()?;
        problems.extend(switch_problem(&runs));
        contexts.extend(runs);
    }
    let mut report = Report::with(problems);
    report.rows(
        "runs",
        &runs,
        &[
            ("prompt", |run| run.prompt.to_owned()),
            ("#prefill splits", |run| run.prefill_splits.to_string()),
            ("#decode splits", |run| run.decode_splits.to_string()),
            ("#graphs", |run| run.graphs.to_string()),
            ("#submissions", |run| run.submissions.to_string()),
            ("#decoded", |run| run.decode_allocations.len().to_string()),
            ("#replayed", |run| run.replayed.to_string()),
            ("#allocations after 2", |run| run.decode_allocations.iter().skip(2).sum::<u64>().to_string()),
        ],
    )?;
    report.rows(
        "offload",
        &offload,
        &[
            ("device", |run| run.way.to_owned()),
            ("#layers", |run| format!("{} of {}", run.layers, run.of)),
            ("#prefill splits", |run| run.prefill.len().to_string()),
            ("#decode splits", |run| run.decode.len().to_string()),
            ("#graphs", |run| run.graphs.to_string()),
            ("#replayed", |run| run.replayed.to_string()),
            ("#s", |run| format!("{:.1}", run.seconds)),
        ],
    )?;
    report.rows(
        "fusion",
        &fusion,
        &[
            ("dispatches for a decoded token", |counts| {
                format!("flash attention {}", on_or_off(counts.flash_attention))
            }),
            ("#node by node", |counts| format!("{:.1}", counts.dispatches()[0])),
            ("#fused", |counts| format!("{:.1}", counts.dispatches()[1])),
            ("#saved", |counts| format!("{:.1} %", 100.0 * counts.saved)),
        ],
    )?;
    report.rows(
        "contexts",
        &contexts,
        &[
            ("windowed model", |run| format!("flash attention {}", on_or_off(run.flash_attention))),
            ("#tokens behind a prompt", |run| run.tokens.to_string()),
            ("#contexts", |run| run.created.to_string()),
            ("#switches", |run| run.switches.to_string()),
        ],
    )?;
    report.finish("splits", options)
}

fn measure(name: &'static str, session: &Session, request: &Request) -> Result<(Run, Vec<String>)> {
    let run = request.on_device(session, |command| {
        // Every run decodes the same number of tokens: the end token does not stop it.
        command.env("GGML_SCHED_DEBUG", "1").args(["-lv", "5", "--ignore-eos"]);
    })?;
    let graphs = generated_graphs(&run.finished.stderr)?;
    let [prefill, decode, ..] = &graphs[..] else {
        bail!(
            "the scheduler's debug output shows {} graphs after the start of the generation, expected 2",
            graphs.len()
        );
    };
    let device = run.device()?;
    let expected = expected_splits(session);
    let mut problems = split_problems("prefill", prefill, expected);
    problems.extend(split_problems("decode", decode, expected));
    problems.extend(log_problems(&device.graph_log, device.graphs.computed));
    let decoded = decoded(&device.graph_log);
    Ok((
        Run {
            prompt: name,
            prefill_splits: prefill.len(),
            decode_splits: decode.len(),
            graphs: device.graph_log.len(),
            submissions: device.counters.submissions,
            most_submissions_per_graph: device.graph_log.iter().map(|entry| entry.submissions).max().unwrap_or(0),
            replayed: decoded.iter().filter(|entry| entry.replayed).count(),
            decode_allocations: decoded.iter().map(|entry| entry.allocations).collect(),
        },
        problems,
    ))
}

impl Contexts {
    fn measure(session: &Session, model: &Path, tokens: usize, flash_attention: bool) -> Result<Self> {
        let prompt = "the three states of matter are solid liquid and gas".to_owned();
        let request = Request { model: model.to_owned(), prompt, tokens, threads: None, flash_attention };
        let run = request.on_device(session, |command| {
            command.arg("--ignore-eos");
        })?;
        let counters = &run.device()?.counters;
        let (created, switches) = (counters.contexts_created, counters.context_switches);
        Ok(Self { flash_attention, tokens, created, switches })
    }
}

/// What runs that differ in how many tokens they decode say about a token.
fn switch_problem(runs: &[Contexts]) -> Option<String> {
    let [few, many] = runs else { return Some(format!("{} runs to compare, expected 2", runs.len())) };
    let (switches, tokens) = (many.switches.abs_diff(few.switches), many.tokens - few.tokens);
    (switches > 0).then(|| {
        format!(
            "{WINDOWED}, flash attention {}: {tokens} more decoded tokens took {switches} context switches, expected 0",
            on_or_off(few.flash_attention)
        )
    })
}

/// The graphs the scheduler cut after the generation began.
fn generated_graphs(stderr: &str) -> Result<Vec<Graph>> {
    let start = stderr.find("generate: n_ctx").context("llama-completion did not announce the generation")?;
    Ok(schedule::graphs(&stderr[start..])?.into_iter().map(|graph| graph.splits).collect())
}

/// The splits of a graph. llama.cpp keeps the table of embeddings, the input layer, in memory of the CPU, unless a device can use the
/// mapped model in place, which mainline kernels cannot do for an NPU: there the lookup is a split of its own.
fn expected_splits(session: &Session) -> &'static [&'static str] {
    if session.simulation.is_some() { &["CPU", DEVICE_NAME] } else { &[DEVICE_NAME] }
}

fn split_problems(kind: &str, graph: &Graph, expected: &[&str]) -> Vec<String> {
    if *graph == expected {
        return Vec::new();
    }
    vec![format!(
        "the {kind} graph has {} split(s) on {}, expected {} on {}",
        graph.len(),
        graph.join(", "),
        expected.len(),
        expected.join(", ")
    )]
}

/// The log's entries of decoded tokens: all but the last token generated are decoded, one graph each.
fn decoded(log: &[GraphEntry]) -> &[GraphEntry] {
    &log[log.len().saturating_sub(TOKENS - 1)..]
}

fn log_problems(log: &[GraphEntry], computed: u64) -> Vec<String> {
    let mut problems = Vec::new();
    // Fewer graphs than tokens, and the conclusions below would rest on nothing. The prefill comes on top.
    if log.len() < TOKENS {
        problems.push(format!("the statistics log has {} graphs ({computed} computed), expected {TOKENS}", log.len()));
    }
    for (index, entry) in log.iter().enumerate().filter(|(_, entry)| entry.submissions != 1) {
        problems.push(format!("graph {index} took {} submissions, expected 1", entry.submissions));
    }
    for (index, entry) in decoded(log).iter().enumerate().skip(2).filter(|(_, entry)| entry.allocations > 0) {
        problems.push(format!(
            "decoding token {} made {} device allocations, expected 0",
            index + 1,
            entry.allocations
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBUG: &str = "## SPLIT #0: CPU # 0 inputs0.0 D\n0.1 I generate: n_ctx = 8192\n\
        ## SPLIT #0: HSA0 # 0 inputs0.0 D\nnode\n## SPLIT #0: HSA0 # 0 inputs\n\n## SPLIT #1: CPU # 2 inputs: [a]\n";

    #[test]
    fn graphs_before_the_generation_do_not_count() {
        let graphs = generated_graphs(DEBUG).unwrap();
        assert_eq!(graphs, [vec!["HSA0"], vec!["HSA0", "CPU"]]);
        assert!(split_problems("prefill", &graphs[0], &["HSA0"]).is_empty());
        assert!(split_problems("decode", &graphs[1], &["HSA0"])[0].contains("2 split(s) on HSA0, CPU"));
        assert_eq!(split_problems("decode", &vec!["CPU".to_owned()], &["HSA0"]).len(), 1);
        assert!(generated_graphs("nothing").is_err());
    }

    #[test]
    fn a_switch_for_a_token_is_a_problem() {
        let run = |tokens, switches| Contexts { flash_attention: true, tokens, created: 2, switches };
        assert_eq!(switch_problem(&[run(8, 1), run(24, 1)]), None);
        let problem = switch_problem(&[run(8, 15), run(24, 47)]).unwrap();
        assert!(problem.contains("16 more decoded tokens took 32 context switches"), "{problem}");
        assert!(switch_problem(&[]).is_some());
    }

    fn log(change: impl Fn(usize, &mut GraphEntry)) -> Vec<GraphEntry> {
        let mut log = vec![GraphEntry { nodes: 1, submissions: 1, allocations: 0, replayed: true }; TOKENS];
        log.iter_mut().enumerate().for_each(|(index, entry)| change(index, entry));
        log
    }

    #[test]
    fn the_log_is_judged() {
        assert!(log_problems(&log(|_, _| ()), 24).is_empty());
        assert!(log_problems(&log(|index, entry| entry.allocations = u64::from(index < 3)), 24).is_empty());
        assert_eq!(log_problems(&log(|index, entry| entry.allocations = u64::from(index == 3)), 24).len(), 1);
        assert_eq!(log_problems(&log(|index, entry| entry.submissions += u64::from(index == 0)), 24).len(), 1);
        assert_eq!(log_problems(&log(|_, _| ())[..5], 5).len(), 1);
    }
}
