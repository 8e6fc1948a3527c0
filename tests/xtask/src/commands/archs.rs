//! `cargo xtask archs`: llama.cpp's own test programs on our device.
//!
//! `test-llama-archs` builds a model with random weights for nearly every architecture llama.cpp knows, and compares the
//! logits of a device with the CPU backend's, the model with itself after it was saved and loaded, and a batch of tokens
//! and embeddings mixed. `test-thread-safety` computes in several contexts at once, `test-llama-context` saves, restores
//! and rewinds their states. None of them requires our device: that it was used is read from the statistics. A program
//! or an architecture that is left out is left out with a reason, which the table prints.

mod programs;
mod rows;

use crate::process::{self, Finished};
use crate::schedule;
use crate::session::{DEVICE_NAME, DriverOptions, Options, Session};
use crate::steps::Steps;
use anyhow::{Result, ensure};
use clap::Args;
use rows::{Row, Verdict};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);
const SEED: &str = "1";
/// The bound on the normalised mean squared error that test-llama-archs has.
const BOUND: f64 = 1e-4;

/// Architectures left out, with the reason.
const EXCLUDED: &[(&str, &str)] = &[(
    "deepseek2",
    "its third configuration, the cache of experts, is filled when the scheduler copies the table of cached experts to \
     the device; our device reads CPU memory in place, nothing is copied, the table keeps its -1 and MUL_MAT_ID rejects \
     that expert, which ends the program (without MUL_MAT_ID on the device, the CPU backend corrupts memory instead). \
     mistral4 and deepseek32 have the same attention",
)];

/// One architecture of each kind, for CI: the kinds differ in their operations.
const FEW: &[&str] = &[
    "apertus",
    "bloom",
    "cohere2",
    "deepseek32",
    "falcon-h1",
    "gemma3",
    "gemma3n",
    "gpt-oss",
    "granitehybrid",
    "grok",
    "jais",
    "kimi-linear",
    "lfm2moe",
    "llama",
    "llama4",
    "mamba",
    "mamba2",
    "minicpm3",
    "mpt",
    "nemotron_h",
    "phimoe",
    "plamo2",
    "qwen3",
    "qwen3moe",
    "qwen3next",
    "starcoder2",
    "t5",
];

/// Run llama.cpp's own tests of architectures, threads and states on our device.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask archs
  cargo xtask archs --few
  cargo xtask archs --arch 'qwen3.*|gpt-oss'
  cargo xtask archs --splits --arch mamba2
  cargo xtask archs --json

Exit code 1 if a test failed, a program ended badly, or our device was not used.")]
pub struct ArchsArgs {
    /// Only an architecture of each kind instead of all
    #[arg(long, conflicts_with = "arch")]
    few: bool,
    /// Only architectures whose name matches this expression
    #[arg(long, value_name = "REGEX")]
    arch: Option<String>,
    /// Also report how the graphs were split and what did not run on our device (slower)
    #[arg(long)]
    splits: bool,
    #[command(flatten)]
    driver: DriverOptions,
}

pub fn run(args: &ArchsArgs, options: &Options) -> Result<()> {
    let session = Session::open_with(options, &args.driver)?;
    let pattern = match (&args.arch, args.few) {
        (Some(pattern), _) => pattern.clone(),
        (None, true) => format!("^({})$", FEW.join("|")),
        (None, false) => everything(),
    };
    let (finished, stats) = session.attempt("test-llama-archs", LIMIT, |command| {
        wait_quietly(command).args(["-s", SEED, "-b", DEVICE_NAME, "-a", &pattern]);
        if args.splits {
            command.args(["-v", "5"]).env("GGML_SCHED_DEBUG", "2");
        }
    })?;
    session.kernel_report()?;
    let architectures = rows::parse(&finished.stdout)?;
    let mut steps = Steps::default();
    steps.check("test-llama-archs", || {
        let problems = judge(&finished, &architectures);
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        let count = |verdict| architectures.iter().filter(|row| row.logits == verdict).count();
        let (compared, skipped) = (count(Verdict::Ok), count(Verdict::Skipped));
        let operations = stats?.used()?.operations_run();
        Ok(format!(
            "{compared} models compared, {skipped} skipped by the program itself; {operations} operations on our device"
        ))
    });
    let elsewhere = if args.splits { elsewhere(&finished)? } else { BTreeMap::new() };
    for program in programs::all().iter().filter(|_| args.arch.is_none()) {
        steps.check(&program.title(), || program.run(&session, options.offline));
    }
    let mut report = steps.report()?;
    report.field("architectures", &architectures)?;
    let compared: Vec<&Row> = architectures.iter().filter(|row| row.logits != Verdict::Skipped).collect();
    report.rows(
        "compared",
        &compared,
        &[
            ("architecture", |row| row.arch.clone()),
            ("kind", |row| row.config.clone()),
            ("device", |row| row.device.clone()),
            ("#NMSE", |row| row.nmse.map_or_else(String::new, |nmse| format!("{nmse:.1e}"))),
            ("logits", |row| row.logits.word().to_owned()),
            ("saved, loaded", |row| row.roundtrip.word().to_owned()),
            ("mixed batch", |row| row.mixed.word().to_owned()),
        ],
    )?;
    for (arch, ops) in elsewhere.iter().filter(|(_, ops)| !ops.is_empty()) {
        let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{op} {count}")).collect();
        report.line(format!("not on {DEVICE_NAME}, {arch}: {}", ops.join(", ")));
    }
    if !elsewhere.is_empty() {
        let whole = elsewhere.values().filter(|ops| ops.is_empty()).count();
        report.line(format!("{whole} of {} architectures ran whole on {DEVICE_NAME}", elsewhere.len()));
    }
    let left_out: Vec<_> = EXCLUDED.iter().chain(programs::LEFT_OUT).collect();
    left_out.iter().for_each(|(name, reason)| report.line(format!("skipped: {name}: {reason}")));
    report.field("elsewhere", elsewhere)?;
    report.field("left_out", left_out)?;
    report.finish("archs", options)
}

/// All architectures but those left out, as the program's (ECMAScript) expression.
fn everything() -> String {
    let names: Vec<&str> = EXCLUDED.iter().map(|(name, _)| *name).collect();
    if names.is_empty() { ".*".to_owned() } else { format!("^(?!({})$).*$", names.join("|")) }
}

/// Lets threads wait without spinning: these tests start more threads than there are processors.
fn wait_quietly(command: &mut Command) -> &mut Command {
    command.env("OMP_WAIT_POLICY", "passive").env("OMP_THREAD_LIMIT", process::processors().to_string())
}

fn judge(finished: &Finished, rows: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    if !finished.success() {
        problems.push(format!("test-llama-archs: {}; its output:\n{}", finished.describe(), finished.last_lines(6)));
    }
    if !rows.iter().any(|row| row.logits == Verdict::Ok) {
        problems.push("test-llama-archs compared no logits: no architecture matches, or all were skipped".to_owned());
    }
    for row in rows {
        let parts = [("logits", row.logits), ("saved and loaded", row.roundtrip), ("mixed batch", row.mixed)];
        for (part, _) in parts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed | Verdict::Missing)) {
            problems.push(format!("{} ({}, {}): {part} failed", row.arch, row.config, row.device));
        }
        if row.logits == Verdict::Ok && row.nmse.is_none_or(|nmse| nmse.is_nan() || nmse > BOUND) {
            problems.push(format!("{} ({}): its NMSE is not at most {BOUND:e}", row.arch, row.config));
        }
    }
    problems
}

/// By architecture, the operations of computed and reserved graphs that another backend got. The CPU backend's own run,
/// for comparison, has graphs without any split on our device and does not count.
fn elsewhere(finished: &Finished) -> Result<BTreeMap<String, BTreeMap<String, usize>>> {
    let mut found: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let name = regex::Regex::new(r"llama_model_init_from_user|arch\s+= (\S+)")?;
    let mut arch = String::from("?");
    let mut start = 0;
    let log = &finished.stderr;
    let mut count = |arch: &str, part: &str| -> Result<()> {
        let Some(first) = part.find("## SPLIT #0") else { return Ok(()) };
        for graph in schedule::graphs(&part[first..])? {
            if graph.splits.iter().any(|split| split == DEVICE_NAME) {
                let entry = found.entry(arch.to_owned()).or_default();
                for (op, nodes) in graph.not_on(DEVICE_NAME) {
                    *entry.entry(op.to_owned()).or_default() += nodes;
                }
            }
        }
        Ok(())
    };
    for captures in name.captures_iter(log) {
        let Some(new) = captures.get(1) else { continue };
        if new.as_str() != arch {
            count(&arch, &log[start..new.start()])?;
            (arch, start) = (new.as_str().to_owned(), new.start());
        }
    }
    count(&arch, &log[start..])?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_left_out_do_not_match() {
        assert!(everything() == ".*" || everything().contains("(?!"));
        assert!(EXCLUDED.iter().all(|(name, reason)| !FEW.contains(name) && reason.len() > 20));
    }

    #[test]
    fn the_few_are_sorted_and_unique() {
        assert!(FEW.is_sorted() && FEW.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
