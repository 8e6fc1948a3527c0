//! `cargo xtask kld`: is the text right? Greedy decoding side by side, and llama-perplexity's KL divergence.
//!
//! What is right is what the same weights give in f32: `llama-quantize` writes them so, and the CPU backend computes the logits of three texts
//! of the testbed with them. Beside these both the CPU backend and our device are measured with the model as it is. The CPU backend rounds the
//! columns of a product to 8 bits for weights in blocks, so that it is no judge itself: our device has to come closer, by the factor that the
//! acceptance criterion names. The emulated array takes a minute for 30 tokens, so there each measure is taken over 257, and nothing is decoded:
//! `demo --emulated` does that.

use crate::generation::{self, Request};
use crate::output::{self, Report};
use crate::process::{self, Finished};
use crate::session::{DriverOptions, Options, Session};
use anyhow::{Context, Result, bail};
use clap::Args;
use regex::Regex;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The largest share of the CPU backend's mean divergence that our device may have. The command can ask for less, never for more.
const SHARE: f64 = 1.0 / 3.0;

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

/// Compare greedy text with the CPU backend, and token probabilities with those of the weights in f32.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask kld
  cargo xtask kld --texts 1              the first text only, as in CI
  cargo xtask kld --driver xdna
  cargo xtask kld --emulated             machine code on the emulated array, over 257 tokens of each text
  cargo xtask kld --share 0.1
  cargo xtask kld --model other.gguf --json

Exit code 1 if the mean KL divergence beside the weights in f32 is more than a third of the CPU backend's own, or a run failed.")]
pub struct KldArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Texts to compare: a licence, a header in C, a program in Perl
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3))]
    texts: u16,
    /// Largest share of the CPU backend's own mean KL divergence; at most the default
    #[arg(long, value_name = "SHARE", default_value_t = SHARE, value_parser = parse_share)]
    share: f64,
    /// Threads of both sides
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    driver: DriverOptions,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if share > 0.0 && share <= SHARE { Ok(share) } else { Err("the share must be above 0 and at most a third".into()) }
}

#[derive(Serialize)]
struct Greedy {
    prompt: &'static str,
    cpu: String,
    device: String,
    same_words: usize,
    words: usize,
}

/// How far the model is from its own weights in f32.
#[derive(Debug, PartialEq, Serialize)]
struct Divergence {
    mean: f64,
    maximum: f64,
    same_top_percent: f64,
    perplexity: f64,
    perplexity_f32: f64,
}

/// What a text shows.
#[derive(Serialize)]
struct Measured {
    text: String,
    tokens: u64,
    cpu: Divergence,
    device: Divergence,
    /// On the emulated array: how much ran as machine code.
    code: Option<String>,
}

impl Measured {
    fn share(&self) -> f64 {
        self.device.mean / self.cpu.mean
    }
}

pub fn run(args: &KldArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let model = session.model(args.model.as_deref())?;
    let is_emulated = args.driver.emulated.is_some();
    let greedy = if is_emulated { Vec::new() } else { decoded(&session, &model, args.threads)? };
    let dir = tempfile::Builder::new().prefix(".kld-").tempdir_in(&session.testbed.dir)?;
    let exact = dir.path().join("f32.gguf");
    in_f32(&session, &model, &exact)?;
    let extent = if is_emulated { EMULATED } else { WHOLE };
    let comparison =
        Comparison { session: &session, model: &model, exact: &exact, dir: dir.path(), threads: args.threads, extent };
    let texts = session.testbed.texts()?.into_iter().take(args.texts.into());
    let measured = texts.map(|text| comparison.of(&text)).collect::<Result<Vec<_>>>()?;
    let mut report = Report::default();
    for Greedy { prompt, cpu, device, same_words, words } in &greedy {
        report.line(format!("prompt: {prompt}\n  CPU:    {}\n  device: {}", squeezed(cpu), squeezed(device)));
        report.line(format!("  the first {same_words} of {words} words are the same"));
    }
    for text in &measured {
        // Written so that a NaN is a failure.
        let ok = text.share() <= args.share;
        report.line(table(text, args.share, ok));
        text.code.iter().for_each(|code| report.line(code));
        if !ok {
            report.problems.push(format!(
                "{}: the device's mean KL divergence is {}, the CPU backend's {}; at most {:.3} of that is allowed",
                text.text, text.device.mean, text.cpu.mean, args.share
            ));
        }
    }
    report.field("greedy", greedy)?;
    report.field("texts", measured)?;
    report.field("share", args.share)?;
    report.finish("kld", options)
}

fn table(measured: &Measured, share: f64, ok: bool) -> comfy_table::Table {
    let (cpu, device) = (&measured.cpu, &measured.device);
    let mut table = output::table(&[&format!("{}, beside f32", measured.text), "#CPU backend", "#device"]);
    type Shown = fn(&Divergence) -> String;
    let rows: [(&str, Shown); 4] = [
        ("mean KL divergence", |side| format!("{:.6}", side.mean)),
        ("maximum KL divergence", |side| format!("{:.6}", side.maximum)),
        ("same most likely token", |side| format!("{:.2} %", side.same_top_percent)),
        ("perplexity", |side| format!("{:.4}", side.perplexity)),
    ];
    for (name, shown) in rows {
        table.add_row([name.to_owned(), shown(cpu), shown(device)]);
    }
    let allowed = format!("{:.4} of the CPU's (at most {share:.3})", measured.share());
    table.add_row([format!("perplexity in f32: {:.4}", cpu.perplexity_f32), String::new(), allowed]);
    table.add_row([format!("{} tokens", measured.tokens), String::new(), output::verdict(ok)]);
    table
}

/// What both sides decode.
fn decoded(session: &Session, model: &Path, threads: Option<usize>) -> Result<Vec<Greedy>> {
    let decoded = PROMPTS.into_iter().map(|prompt| {
        let request = Request {
            model: model.to_owned(),
            prompt: prompt.to_owned(),
            tokens: TOKENS,
            threads,
            flash_attention: false,
        };
        let cpu = request.text(session.on_cpu("llama-completion")?).context("on the CPU backend")?;
        let run = request.on_device(session, |_| ()).context("on our device")?;
        run.device()?;
        let device = request.text_in(&run.finished)?;
        let (same_words, words) = same_start(&cpu, &device);
        Ok(Greedy { prompt, cpu, device, same_words, words })
    });
    decoded.collect()
}

/// How many words two texts share at their start, and how many the first has.
fn same_start(left: &str, right: &str) -> (usize, usize) {
    let same = left.split_whitespace().zip(right.split_whitespace()).take_while(|(left, right)| left == right).count();
    (same, left.split_whitespace().count())
}

/// Writes the weights of `model` in f32.
fn in_f32(session: &Session, model: &Path, exact: &Path) -> Result<()> {
    let mut command = session.on_cpu("llama-quantize")?;
    command.arg("--allow-requantize").arg(model).arg(exact).arg("F32");
    let finished = process::run(&mut command, LIMIT)?;
    generation::require_success(&finished).context("cannot write the weights in f32")
}

/// A model beside its weights in f32.
struct Comparison<'a> {
    session: &'a Session,
    model: &'a Path,
    exact: &'a Path,
    dir: &'a Path,
    threads: Option<usize>,
    extent: Extent,
}

impl Comparison<'_> {
    fn of(&self, text: &Path) -> Result<Measured> {
        let (session, base) = (self.session, self.dir.join("base.kld"));
        let mut command = session.on_cpu("llama-perplexity")?;
        self.arguments(&mut command, self.exact, &base);
        command.arg("-f").arg(text);
        let reference = process::run(&mut command, LIMIT)?;
        generation::require_success(&reference).context("the logits of the weights in f32")?;
        let (tokens, least) = (tokens_scored(&reference)?, self.extent.least);
        if tokens < least {
            bail!("{}: {tokens} tokens are compared, at least {least} are needed", text.display());
        }
        let compare = |command: &mut Command| {
            self.arguments(command, self.model, &base);
            command.arg("--kl-divergence");
        };
        let mut command = session.on_cpu("llama-perplexity")?;
        compare(&mut command);
        let cpu = process::run(&mut command, LIMIT)?;
        generation::require_success(&cpu).context("the comparison on the CPU backend")?;
        let run = session.run("llama-perplexity", LIMIT, compare).context("the comparison on our device")?;
        let device = run.device()?;
        if session.emulated.is_some() {
            device.work.mostly_code()?;
        }
        Ok(Measured {
            text: text.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            tokens,
            cpu: divergence(&cpu)?,
            device: divergence(&run.finished)?,
            code: session.emulated.as_ref().map(|_| device.work.summary(device.counters.bundles)),
        })
    }

    fn arguments(&self, command: &mut Command, model: &Path, base: &Path) {
        let Extent { context, chunks, .. } = self.extent;
        command.arg("-m").arg(model).args(["-fa", "off", "--offline"]);
        command.args(["-c", &context.to_string(), "--chunks", &chunks.to_string()]);
        command.arg("--kl-divergence-base").arg(base);
        generation::set_threads(command, self.threads);
    }
}

fn divergence(finished: &Finished) -> Result<Divergence> {
    parse(&finished.stdout)
        .or_else(|_| parse(&finished.stderr))
        .with_context(|| format!("llama-perplexity's output:\n{}", finished.last_lines(10)))
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

fn parse(text: &str) -> Result<Divergence> {
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
        perplexity_f32: number("Mean PPL(base)")?,
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
        let found = parse(TEXT).unwrap();
        assert_eq!((found.mean, found.maximum, found.same_top_percent), (0.000123, 0.000046, 99.5));
        assert_eq!((found.perplexity, found.perplexity_f32), (18.270598, 18.27059));
    }

    #[test]
    fn a_missing_number_is_an_error_and_nan_fails_the_share() {
        assert!(parse("Mean    KLD:   0.1\n").is_err());
        let (cpu, device) = (parse(TEXT).unwrap(), parse(&TEXT.replace("0.000123", "nan")).unwrap());
        let measured = Measured { text: "a".into(), tokens: 1, cpu, device, code: None };
        assert_ne!(measured.share().partial_cmp(&SHARE), Some(std::cmp::Ordering::Less));
    }

    #[test]
    fn the_share_only_goes_down() {
        assert_eq!(parse_share("0.001"), Ok(0.001));
        assert!(parse_share("0.34").is_err() && parse_share("0").is_err() && parse_share("NaN").is_err());
    }

    #[test]
    fn shared_words_are_counted_from_the_start() {
        assert_eq!(same_start("a b c d", "a b x d"), (2, 4));
    }
}
