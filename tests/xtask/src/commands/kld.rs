//! `cargo xtask kld`: is the text right? Greedy decoding side by side, and llama-perplexity's KL divergence.
//!
//! The CPU backend writes its logits over a text of the testbed, our device is measured against them. The array computes
//! matrix products in bf16, so that a greedy choice between two nearly equal tokens may differ; the divergence over
//! thousands of tokens is the measure, and the bound is the acceptance criterion's. The emulated array takes a minute for 30
//! tokens, so there the measure is taken over 257, and nothing is decoded: `demo --emulated` does that.

use crate::generation::{self, Request};
use crate::output::{self, Report};
use crate::process::{self, Finished};
use crate::session::{DriverOptions, Options, Session};
use anyhow::{Context, Result, bail};
use clap::Args;
use regex::Regex;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The highest mean KL divergence allowed. The command can ask for less, never for more.
const BOUND: f64 = 0.005;

/// How much text is compared.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Tokens of a chunk; those of its second half are scored.
    context: u64,
    chunks: u64,
    /// The fewest tokens scored that count as a measure.
    least: u64,
}

const WHOLE: Extent = Extent { context: 512, chunks: 8, least: 2000 };
const EMULATED: Extent = Extent { context: 516, chunks: 1, least: 256 };
const TOKENS: usize = 64;
const LIMIT: Duration = Duration::from_secs(3600);
const PROMPTS: [&str; 3] =
    ["The capital of France is", "Once upon a time, a young engineer", "Water boils at 100 degrees because"];

/// Compare greedy text and token probabilities with the CPU backend.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask kld
  cargo xtask kld --driver xdna
  cargo xtask kld --emulated             machine code on the emulated array, over 257 tokens
  cargo xtask kld --bound 0.001
  cargo xtask kld --model other.gguf --json

Exit code 1 if the mean KL divergence is above the bound (0.005 at most) or a run failed.")]
pub struct KldArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Highest mean KL divergence; at most the default
    #[arg(long, value_name = "NATS", default_value_t = BOUND, value_parser = parse_bound)]
    bound: f64,
    /// Threads of both sides
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    driver: DriverOptions,
}

fn parse_bound(text: &str) -> Result<f64, String> {
    let bound: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if bound > 0.0 && bound <= BOUND {
        Ok(bound)
    } else {
        Err(format!("the bound must be above 0 and at most {BOUND}"))
    }
}

#[derive(Serialize)]
struct Greedy {
    prompt: &'static str,
    cpu: String,
    device: String,
    same_words: usize,
    words: usize,
}

#[derive(Debug, PartialEq, Serialize)]
struct Divergence {
    mean: f64,
    maximum: f64,
    same_top_percent: f64,
    perplexity: f64,
    perplexity_cpu: f64,
    tokens: u64,
}

pub fn run(args: &KldArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let model = session.model(args.model.as_deref())?;
    let mut greedy = Vec::new();
    let is_emulated = args.driver.emulated.is_some();
    for prompt in PROMPTS.into_iter().filter(|_| !is_emulated) {
        let request = Request {
            model: model.clone(),
            prompt: prompt.to_owned(),
            tokens: TOKENS,
            threads: args.threads,
            flash_attention: false,
        };
        let cpu = request.text(session.on_cpu("llama-completion")?).context("on the CPU backend")?;
        let run = request.on_device(&session, |_| ()).context("on our device")?;
        run.device()?;
        let device = request.text_in(&run.finished)?;
        let (same_words, words) = same_start(&cpu, &device);
        greedy.push(Greedy { prompt, cpu, device, same_words, words });
    }
    let extent = if is_emulated { EMULATED } else { WHOLE };
    let (divergence, code) = measure(&session, &model, args.threads, extent)?;
    // Written so that a NaN is a failure.
    let ok = divergence.mean <= args.bound;
    let mut report = Report::default();
    for Greedy { prompt, cpu, device, same_words, words } in &greedy {
        report.line(format!("prompt: {prompt}\n  CPU:    {}\n  device: {}", squeezed(cpu), squeezed(device)));
        report.line(format!("  the first {same_words} of {words} words are the same"));
    }
    let mut table = output::table(&["against the CPU backend", "#value"]);
    for (name, value) in [
        ("tokens compared", divergence.tokens.to_string()),
        ("mean KL divergence", format!("{:.6} (at most {})", divergence.mean, args.bound)),
        ("maximum KL divergence", format!("{:.6}", divergence.maximum)),
        ("same most likely token", format!("{:.2} %", divergence.same_top_percent)),
        ("perplexity, device", format!("{:.4}", divergence.perplexity)),
        ("perplexity, CPU", format!("{:.4}", divergence.perplexity_cpu)),
        ("result", output::verdict(ok)),
    ] {
        table.add_row([name.to_owned(), value]);
    }
    report.line(table);
    code.into_iter().for_each(|code| report.line(code));
    if !ok {
        report
            .problems
            .push(format!("the mean KL divergence is {}, at most {} is allowed", divergence.mean, args.bound));
    }
    report.field("greedy", greedy)?;
    report.field("divergence", divergence)?;
    report.field("bound", args.bound)?;
    report.finish("kld", options)
}

/// How many words two texts share at their start, and how many the first has.
fn same_start(left: &str, right: &str) -> (usize, usize) {
    let same = left.split_whitespace().zip(right.split_whitespace()).take_while(|(left, right)| left == right).count();
    (same, left.split_whitespace().count())
}

/// The divergence, and on the emulated array how much ran as machine code.
fn measure(
    session: &Session,
    model: &std::path::Path,
    threads: Option<usize>,
    Extent { context, chunks, least }: Extent,
) -> Result<(Divergence, Option<String>)> {
    let dir = tempfile::Builder::new().prefix(".kld-").tempdir_in(&session.testbed.dir)?;
    let base = dir.path().join("base.kld");
    let arguments = |command: &mut std::process::Command| {
        command.arg("-m").arg(model).args(["-fa", "off", "--offline"]);
        command.args(["-c", &context.to_string(), "--chunks", &chunks.to_string()]);
        command.arg("--kl-divergence-base").arg(&base);
        generation::set_threads(command, threads);
    };
    let mut command = session.on_cpu("llama-perplexity")?;
    arguments(&mut command);
    command.arg("-f").arg(session.testbed.text()?);
    let reference = process::run(&mut command, LIMIT)?;
    generation::require_success(&reference).context("the CPU backend's reference logits")?;
    let tokens = tokens_scored(&reference)?;
    if tokens < least {
        bail!("{tokens} tokens are compared, at least {least} are needed");
    }
    let run = session.run("llama-perplexity", LIMIT, |command| {
        arguments(command);
        command.arg("--kl-divergence");
    });
    let run = run.context("the comparison on our device")?;
    let device = run.device()?;
    if session.emulated.is_some() {
        device.work.mostly_code()?;
    }
    let measured = &run.finished;
    let divergence = parse(&measured.stdout, tokens)
        .or_else(|_| parse(&measured.stderr, tokens))
        .with_context(|| format!("llama-perplexity's output:\n{}", measured.last_lines(10)))?;
    Ok((divergence, session.emulated.as_ref().map(|_| device.work.summary(device.counters.bundles))))
}

/// llama-perplexity scores the second half of each chunk, less its last token.
fn tokens_scored(reference: &Finished) -> Result<u64> {
    let pattern = Regex::new(r"over (\d+) chunks, n_ctx=(\d+)")?;
    let found = pattern
        .captures(&reference.stderr)
        .or_else(|| pattern.captures(&reference.stdout))
        .context("llama-perplexity did not print its number of chunks")?;
    let (chunks, context): (u64, u64) = (found[1].parse()?, found[2].parse()?);
    Ok(chunks * (context - 1 - context / 2))
}

fn parse(text: &str, tokens: u64) -> Result<Divergence> {
    let number = |label: &str| -> Result<f64> {
        let line = text
            .lines()
            .find(|line| line.split(':').next().is_some_and(|start| squeezed(start) == label))
            .with_context(|| format!("no line `{label}:`"))?;
        let value = line.split(':').nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
        value.trim_end_matches('%').parse().with_context(|| format!("`{label}` is not a number: {line}"))
    };
    Ok(Divergence {
        mean: number("Mean KLD")?,
        maximum: number("Maximum KLD")?,
        same_top_percent: number("Same top p")?,
        perplexity: number("Mean PPL(Q)")?,
        perplexity_cpu: number("Mean PPL(base)")?,
        tokens,
    })
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Mean PPL(Q)                   :  18.270598 ±   1.373288\nMean PPL(base)                :  18.270590 ±   1.373289\n\
        Mean    KLD:   0.000123 ±   0.000000\nMaximum KLD:   0.000046\nSame top p: 99.500 ± 0.000 %\n";

    #[test]
    fn the_program_s_numbers_are_read() {
        let found = parse(TEXT, 2040).unwrap();
        assert_eq!((found.mean, found.maximum, found.same_top_percent), (0.000123, 0.000046, 99.5));
        assert_eq!((found.perplexity, found.perplexity_cpu, found.tokens), (18.270598, 18.27059, 2040));
    }

    #[test]
    fn a_missing_number_is_an_error_and_nan_fails_the_bound() {
        assert!(parse("Mean    KLD:   0.1\n", 1).is_err());
        let broken = parse(&TEXT.replace("0.000123", "nan"), 1).unwrap();
        assert_ne!(broken.mean.partial_cmp(&BOUND), Some(std::cmp::Ordering::Less));
    }

    #[test]
    fn the_bound_only_goes_down() {
        assert_eq!(parse_bound("0.001"), Ok(0.001));
        assert!(parse_bound("0.006").is_err() && parse_bound("0").is_err() && parse_bound("NaN").is_err());
    }

    #[test]
    fn shared_words_are_counted_from_the_start() {
        assert_eq!(same_start("a b c d", "a b x d"), (2, 4));
    }
}
