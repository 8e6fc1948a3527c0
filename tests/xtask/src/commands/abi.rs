//! `cargo xtask abi`: one `libggml-hsa.so` in every structure layout of ggml it was made for.
//!
//! ggml's version check does not distinguish two of the layouts, and a backend with the wrong one crashes. So the same
//! file, not one built per version, is loaded into a ggml of each layout: two releases built from source and the
//! testbed's. In each a small program of ours runs ADD, MUL_MAT and the memory functions and compares with the CPU
//! backend; it is written in C against ggml's own headers, so that it shares no declaration with the library.

mod build;
pub mod sources;

use crate::ops_output::{Listing, Outcome};
use crate::output::{self, Report};
use crate::process::{self, Finished};
use crate::session::{DEVICE_NAME, DeviceOptions, Options, Session};
use crate::workspace;
use anyhow::{Context, Result};
use build::Build;
use clap::Args;
use serde::Serialize;
use sources::{CRATE, Layout, Sources, Version};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Versions of the crate with the sources: ggml 0.9.4 (layout 2a) and 0.24.0 (layout 2b).
pub const CRATE_VERSIONS: [&str; 2] = ["0.1.126", "0.1.159"];
const LIMIT: Duration = Duration::from_secs(600);

/// The cases abi_test.c has, by operation. TENSOR_2D came with layout 2b.
const CASES: [(&str, usize); 12] = [
    ("ADD", 27),
    ("MUL_MAT", 32),
    ("TENSOR_SET", 1),
    ("TENSOR_GET", 1),
    ("TENSOR_MEMSET", 1),
    ("TENSOR_COPY", 1),
    ("TENSOR_2D", 1),
    ("BUFFER_CLEAR", 1),
    ("ASYNC", 1),
    ("EVENT", 1),
    ("SCHED", 1),
    ("RELOAD", 1),
];

/// Run the same library on ggml of every structure layout.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask abi                            two older ggml built from source, and the testbed's
  cargo xtask abi --crate-version 0.1.138    another release, by the version of the crate with its sources

The first run builds two releases of ggml under target/abi, a minute or two each; later runs reuse them.
Exit code 1 if a case failed or is missing, or if a layout was not run.")]
pub struct AbiArgs {
    /// Build the ggml inside this version of the crate llama-cpp-sys-2, in place of the usual two; may be repeated
    #[arg(long, value_name = "VERSION")]
    crate_version: Vec<String>,
    /// Build ggml again, even if it was built before
    #[arg(long)]
    force: bool,
    /// Parallel compilations
    #[arg(short = 'j', long, value_name = "N", default_value_t = process::processors())]
    jobs: usize,
    #[command(flatten)]
    device: DeviceOptions,
}

/// Where the releases of ggml and what was built of them lie.
pub fn home() -> PathBuf {
    workspace::target().join("abi")
}

#[derive(Serialize)]
struct Run {
    /// What `ggml_version()` said, without a suffix.
    ggml: Option<String>,
    layout: Option<Layout>,
    origin: String,
    passed: usize,
    failed: usize,
    expected: usize,
    operations: BTreeMap<String, usize>,
    build_seconds: Option<f64>,
    build_cached: bool,
    seconds: f64,
    problems: Vec<String>,
}

pub fn run(args: &AbiArgs, options: &Options) -> Result<()> {
    let session = Session::open(options, &args.device)?;
    let home = home();
    let crate_versions: Vec<&str> = if args.crate_version.is_empty() {
        CRATE_VERSIONS.to_vec()
    } else {
        args.crate_version.iter().map(String::as_str).collect()
    };
    let mut runs = Vec::new();
    let mut newest: Option<Sources> = None;
    for crate_version in crate_versions {
        let folder = home.join(crate_version);
        let sources = Sources::fetch(crate_version, &folder.join("fetch"), options.offline)?;
        let built = Build::ensure(&sources, &folder, args.jobs, options.offline, args.force)?;
        let program = folder.join("abi_test");
        build::compile_test(&program, &sources.folder.join("include"), &built.link_arguments())?;
        let mut command = Command::new(&program);
        process::clear_settings(&mut command);
        let origin = format!("{CRATE} {crate_version}");
        runs.push(Run {
            build_seconds: Some(built.seconds),
            build_cached: built.cached,
            ..run_on(command, &session, origin, Some(sources.ggml))?
        });
        if newest.as_ref().is_none_or(|known| known.ggml < sources.ggml) {
            newest = Some(sources);
        }
    }
    let newest = newest.context("no release of ggml to take headers from")?;
    runs.push(run_on_testbed(&session, &newest, &home)?);

    let mut report = Report::default();
    for Run { origin, problems, .. } in &runs {
        report.problems.extend(problems.iter().map(|problem| format!("{origin}: {problem}")));
    }
    if args.crate_version.is_empty() {
        report.problems.extend(missing_layouts(&runs));
    }
    report.rows(
        "runs",
        &runs,
        &[
            ("ggml", |run| output::count(run.ggml.as_ref())),
            ("layout", |run| output::count(run.layout.map(Layout::name))),
            ("from", |run| run.origin.clone()),
            ("#ADD", |run| run.count("ADD").to_string()),
            ("#MUL_MAT", |run| run.count("MUL_MAT").to_string()),
            ("#other", |run| (run.passed - run.count("ADD") - run.count("MUL_MAT")).to_string()),
            ("#failed", |run| run.failed.to_string()),
            ("#build s", |run| {
                let earlier = if run.build_cached { " (earlier)" } else { "" };
                output::count(run.build_seconds.map(|seconds| format!("{seconds:.0}{earlier}")))
            }),
            ("#run s", |run| format!("{:.1}", run.seconds)),
            ("result", |run| output::verdict(run.problems.is_empty())),
        ],
    )?;
    let sum = |count: fn(&Run) -> usize| runs.iter().map(count).sum::<usize>();
    let (passed, failed) = (sum(|run| run.passed), sum(|run| run.failed));
    report.summary(format!(
        "{passed} cases passed, {failed} failed, on {} versions of ggml with one {}",
        runs.len(),
        session.library.display()
    ));
    report.field("passed", passed)?;
    report.field("failed", failed)?;
    report.field("library", &session.library)?;
    report.field("device", &session.device)?;
    report.finish("abi", options)
}

/// The testbed has no headers. The public functions the program uses are declared alike in all versions, so those of the
/// newest release at hand serve.
fn run_on_testbed(session: &Session, headers: &Sources, home: &std::path::Path) -> Result<Run> {
    let testbed = &session.testbed;
    let program = home.join("abi_test_testbed");
    let link = [
        testbed.library("libggml.so.0")?.into_os_string(),
        testbed.library("libggml-base.so.0")?.into_os_string(),
        // These libraries want a newer libc than this machine may have; they get it from the testbed when they run.
        "-Wl,--allow-shlib-undefined".into(),
    ];
    build::compile_test(&program, &headers.folder.join("include"), &link)?;
    let version = testbed.stamp.packages.get("libggml0").cloned().unwrap_or_default();
    run_on(testbed.command_for(&program), session, format!("Debian libggml0 {version}"), Version::parse(&version))
}

fn run_on(mut command: Command, session: &Session, origin: String, wanted: Option<Version>) -> Result<Run> {
    command.arg(&session.library).arg(DEVICE_NAME).env("GGML_HSA_DEVICES", &session.device);
    session.kernels(&mut command);
    let finished = process::run(&mut command, LIMIT)?;
    let listing = Listing::parse(&finished.stdout);
    let version = finished.stdout.lines().find_map(|line| line.strip_prefix("ggml ")).and_then(Version::parse);
    let problems = judge(&finished, &listing, version, wanted);
    let mut operations = BTreeMap::new();
    for case in listing.cases.iter().filter(|case| case.outcome == Outcome::Passed) {
        *operations.entry(case.operation.clone()).or_default() += 1;
    }
    let layout = version.or(wanted).map(Layout::of);
    Ok(Run {
        ggml: version.map(|version| version.to_string()),
        layout,
        origin,
        passed: listing.count(Outcome::Passed),
        failed: listing.cases.len() - listing.count(Outcome::Passed),
        expected: layout.map_or(0, |layout| expected(layout).map(|(_, count)| count).sum()),
        operations,
        build_seconds: None,
        build_cached: false,
        seconds: finished.elapsed.as_secs_f64(),
        problems,
    })
}

/// The cases that must pass on a layout.
fn expected(layout: Layout) -> impl Iterator<Item = (&'static str, usize)> {
    CASES.into_iter().filter(move |(operation, _)| *operation != "TENSOR_2D" || layout > Layout::V2a)
}

/// Everything wrong with one run.
fn judge(finished: &Finished, listing: &Listing, version: Option<Version>, wanted: Option<Version>) -> Vec<String> {
    let mut problems = listing.problems("abi_test", finished, DEVICE_NAME);
    let Some(version) = version else {
        problems.push("the program ended before its first case".to_owned());
        return problems;
    };
    if wanted != Some(version) {
        let wanted = wanted.map_or_else(|| "an unknown version".to_owned(), |wanted| wanted.to_string());
        problems.push(format!("the program ran with ggml {version}, expected {wanted}"));
    }
    for (operation, count) in expected(Layout::of(version)) {
        let cases = listing.cases.iter().filter(|case| case.operation == operation);
        let passed = cases.filter(|case| case.outcome == Outcome::Passed).count();
        if passed != count {
            problems.push(format!("{operation}: {passed} cases passed, expected {count}"));
        }
    }
    problems
}

fn missing_layouts(runs: &[Run]) -> Vec<String> {
    [Layout::V2a, Layout::V2b, Layout::V3]
        .into_iter()
        .filter(|layout| !runs.iter().any(|run| run.layout == Some(*layout) && run.problems.is_empty()))
        .map(|layout| format!("no ggml with layout {} passed", layout.name()))
        .collect()
}

impl Run {
    fn count(&self, operation: &str) -> usize {
        self.operations.get(operation).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const V2A: Version = Version(0, 9, 4);
    const V3: Version = Version(0, 27, 0);

    fn good_output(layout: Layout) -> String {
        let mut text = String::from("ggml 0\n");
        let mut all = 0;
        for (operation, count) in expected(layout) {
            for index in 0..count {
                writeln!(text, "  {operation}(i={index}): OK").unwrap();
            }
            all += count;
        }
        write!(text, "  {all}/{all} tests passed\n  Backend HSA0: OK\n").unwrap();
        text
    }

    fn problems(status: i32, text: &str, version: Version, wanted: Version) -> Vec<String> {
        judge(&process::tests::ended(status, text, ""), &Listing::parse(text), Some(version), Some(wanted))
    }

    #[test]
    fn complete_outputs_of_both_kinds_have_no_problem() {
        assert_eq!(problems(0, &good_output(Layout::V2a), V2A, V2A), Vec::<String>::new());
        assert_eq!(problems(0, &good_output(Layout::V3), V3, V3), Vec::<String>::new());
    }

    #[test]
    fn a_case_that_is_not_there_is_a_problem() {
        let text = good_output(Layout::V2a);
        assert!(problems(0, &text, V3, V3).iter().any(|problem| problem.starts_with("TENSOR_2D: 0")));
        let shorter = text.replace("  ADD(i=3): OK\n", "").replace("68/68", "67/67");
        assert_eq!(problems(0, &shorter, V2A, V2A), ["ADD: 26 cases passed, expected 27"]);
    }

    #[test]
    fn a_crash_is_seen_in_its_case() {
        let text = "ggml 0.9.4\n  ADD(i=0): OK\n  ADD(i=1): ";
        let found = problems(11, text, V2A, V2A);
        assert!(found[0].contains("SIGSEGV"), "{found:?}");
        assert!(found.iter().any(|problem| problem == "ADD(i=1): the program ended here"), "{found:?}");
    }

    #[test]
    fn the_wrong_ggml_and_a_missing_device_are_problems() {
        let text = good_output(Layout::V2a);
        assert!(problems(0, &text, V2A, Version(0, 9, 7))[0].contains("expected 0.9.7"));
        let other = text.replace("Backend HSA0: OK", "Backend CPU: OK");
        assert_eq!(problems(0, &other, V2A, V2A), ["no line `Backend HSA0: OK`"]);
    }

    #[test]
    fn every_layout_must_have_passed() {
        assert_eq!(missing_layouts(&[]).len(), 3);
    }
}
