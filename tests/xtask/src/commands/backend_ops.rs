//! `cargo xtask backend-ops`: ggml's own operation tests on our device, compared with the checked-in table.
//!
//! Each operation runs in a process of its own: memory is given back between operations, and a crash costs one of them.
//! Beside the counts, every single case the CPU backend supports must have passed here, unless an exclusion names it:
//! the program's support mode lists those cases in a second.

use crate::ops_output::{Listing, Outcome};
use crate::ops_table::{self, Counts, Table};
use crate::output;
use crate::process::{self, Finished};
use crate::session::{DEVICE_NAME, DriverOptions, Options, Session};
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);

/// Run stock test-backend-ops on our device and compare with tests/backend-ops/expected.toml.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask backend-ops                          every operation of the table
  cargo xtask backend-ops -o MUL_MAT,ADD           two of them
  cargo xtask backend-ops -o MUL_MAT -p type_a=q4_0
  cargo xtask backend-ops --driver xdna            through AMD's ROCR, on a simulated kernel device
  cargo xtask backend-ops --update                 write the counts seen into the table
  cargo xtask backend-ops --reference              the same on ggml's CPU backend

Exit code 1 if a case failed, became unsupported or is missing.")]
pub struct BackendOpsArgs {
    /// Operations, separated by commas; all of the table if absent
    #[arg(short = 'o', long = "operation", value_name = "OP", value_delimiter = ',')]
    operations: Vec<String>,
    /// Only cases whose parameters match this regular expression; counts are then not compared
    #[arg(short = 'p', long = "parameters", value_name = "REGEX")]
    parameters: Option<String>,
    /// Worker threads of test-backend-ops
    #[arg(short = 'j', long, value_name = "N", default_value_t = default_jobs())]
    jobs: usize,
    /// Write the counts seen into the table (only if nothing failed)
    #[arg(long, conflicts_with = "parameters")]
    update: bool,
    /// Test ggml's CPU backend instead of our device; with --update, writes the `cpu` column
    #[arg(long)]
    reference: bool,
    #[command(flatten)]
    driver: DriverOptions,
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

#[derive(Serialize)]
struct Report {
    ggml: String,
    backend: &'static str,
    passed: usize,
    failed: usize,
    unsupported: usize,
    ok: bool,
    operations: Vec<Row>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    operation: String,
    passed: usize,
    failed: usize,
    unsupported: usize,
    cpu: Option<usize>,
    expected: Option<usize>,
    excluded: usize,
    seconds: f64,
    /// Commands the simulated kernel device executed, with `--driver xdna`.
    kernel_commands: Option<u64>,
    ok: bool,
    problems: Vec<String>,
}

/// Where the tests run: nothing but the CPU backend, or our device in a session.
enum Bench {
    Reference(crate::testbed::Testbed),
    Device(Session),
}

impl Bench {
    fn testbed(&self) -> &crate::testbed::Testbed {
        match self {
            Self::Reference(testbed) => testbed,
            Self::Device(session) => &session.testbed,
        }
    }

    fn backend(&self) -> &'static str {
        match self {
            Self::Reference(_) => "CPU",
            Self::Device(_) => DEVICE_NAME,
        }
    }

    fn command(&self) -> Result<std::process::Command> {
        match self {
            Self::Reference(testbed) => testbed.command("test-backend-ops"),
            Self::Device(session) => session.on_device("test-backend-ops", None),
        }
    }

    /// Commands that reached the simulated kernel device in the run that ended last, if there is one.
    fn kernel_commands(&self) -> Result<Option<u64>> {
        match self {
            Self::Reference(_) => Ok(None),
            Self::Device(session) => Ok(session.kernel_report()?.map(|report| report.commands)),
        }
    }
}

/// Runs the command.
pub fn run(args: &BackendOpsArgs, options: &Options) -> Result<()> {
    let mut table = Table::read()?;
    let bench = if args.reference {
        Bench::Reference(crate::testbed::Testbed::ensure(&options.testbed, options.offline)?)
    } else {
        Bench::Device(Session::open_with(options, &args.driver)?)
    };
    let operations: Vec<String> =
        if args.operations.is_empty() { table.operations.keys().cloned().collect() } else { args.operations.clone() };
    let ggml = bench.testbed().stamp().packages.get("libggml0").cloned().unwrap_or_default();
    let total: usize =
        operations.iter().filter_map(|name| table.operations.get(name)).map(|counts| counts.passing).sum();
    let bar = output::progress(total as u64)?;
    let mut rows = Vec::new();
    for operation in &operations {
        bar.set_message(operation.clone());
        rows.push(run_operation(operation, args, &bench, &table, &bar)?);
    }
    bar.finish_and_clear();

    let sum = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
    let (passed, failed, unsupported) = (sum(|row| row.passed), sum(|row| row.failed), sum(|row| row.unsupported));
    let mut problems: Vec<String> = rows.iter().flat_map(|row| row.problems.iter().cloned()).collect();
    if args.operations.is_empty() && args.parameters.is_none() && passed < table.minimum {
        problems.push(format!("{passed} cases passed in all, the table asks for {}", table.minimum));
    }
    let commands: Vec<u64> = rows.iter().filter_map(|row| row.kernel_commands).collect();
    if !commands.is_empty() && commands.iter().sum::<u64>() == 0 {
        problems.push("no command reached the simulated kernel device: nothing ran on the array".to_owned());
    }
    let ok = problems.is_empty();
    let report = Report {
        ggml: ggml.clone(),
        backend: bench.backend(),
        passed,
        failed,
        unsupported,
        ok,
        operations: rows,
        problems,
    };
    if options.json {
        output::json(&report)?;
    } else {
        print(&report, &table);
    }
    if args.update {
        update(&mut table, &report, args.reference, ggml)?;
        eprintln!("wrote {}", ops_table::path().display());
    }
    if !ok {
        bail!(
            "backend-ops: {} problem(s), listed above; run one operation with -o to look closer",
            report.problems.len()
        );
    }
    Ok(())
}

fn run_operation(
    operation: &str,
    args: &BackendOpsArgs,
    bench: &Bench,
    table: &Table,
    bar: &ProgressBar,
) -> Result<Row> {
    let filter = table.filter(operation, args.parameters.as_deref());
    let wanted = supported_by_cpu(operation, filter.as_deref(), bench)?;
    if args.parameters.is_none() && filter.is_some() {
        let all = supported_by_cpu(operation, None, bench)?.len();
        if all - wanted.len() != table.excluded(operation) {
            bail!(
                "the exclusions of {operation} take out {} cases and say {}; correct `cases` in {}",
                all - wanted.len(),
                table.excluded(operation),
                ops_table::path().display()
            );
        }
    }
    let mut command = bench.command()?;
    command.args(["test", "-b", bench.backend(), "-o", operation, "-j", &args.jobs.to_string()]);
    if let Some(filter) = &filter {
        command.args(["-p", filter]);
    }
    let mut pending = Vec::new();
    let finished = process::run_watched(&mut command, LIMIT, |bytes| {
        pending.extend_from_slice(bytes);
        if let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') {
            let lines: Vec<u8> = pending.drain(..=end).collect();
            bar.inc(Listing::parse(&String::from_utf8_lossy(&lines)).count(Outcome::Passed) as u64);
        }
    })?;
    let listing = Listing::parse(&finished.stdout);
    let counts = table.operations.get(operation).copied().filter(|_| args.parameters.is_none());
    let expected =
        counts.map(|counts| if args.reference { counts.cpu - table.excluded(operation) } else { counts.passing });
    let mut problems = judge(operation, bench.backend(), &finished, &listing, &wanted, expected);
    let kernel_commands = bench.kernel_commands().unwrap_or_else(|error| {
        problems.push(format!("{error:#}"));
        None
    });
    let problems = problems.into_iter().map(|problem| format!("{operation}: {problem}")).collect::<Vec<_>>();
    Ok(Row {
        operation: operation.to_owned(),
        passed: listing.count(Outcome::Passed),
        failed: listing.count(Outcome::Failed),
        unsupported: listing.count(Outcome::Unsupported),
        cpu: counts.map(|counts| counts.cpu),
        expected,
        excluded: if args.parameters.is_none() { table.excluded(operation) } else { 0 },
        seconds: finished.elapsed.as_secs_f64(),
        kernel_commands,
        ok: problems.is_empty(),
        problems,
    })
}

/// The parameters of every case of `operation` that the CPU backend supports, with repetitions.
fn supported_by_cpu(operation: &str, filter: Option<&str>, bench: &Bench) -> Result<Vec<String>> {
    let mut command = bench.testbed().command("test-backend-ops")?;
    command.args(["support", "-b", "CPU", "-o", operation]);
    if let Some(filter) = filter {
        command.args(["-p", filter]);
    }
    let finished = process::run(&mut command, LIMIT)?;
    let listing = Listing::parse(&finished.stdout);
    if listing.cases.is_empty() {
        bail!(
            "test-backend-ops has no case for -o {operation}{} ({}); names are exact, as in MUL_MAT\n{}",
            filter.map_or_else(String::new, |filter| format!(" -p '{filter}'")),
            finished.describe(),
            finished.last_words(4)
        );
    }
    Ok(listing.cases.into_iter().filter(|case| case.outcome == Outcome::Passed).map(|case| case.parameters).collect())
}

/// Everything wrong with one operation's run.
fn judge(
    operation: &str,
    backend: &str,
    finished: &Finished,
    listing: &Listing,
    wanted: &[String],
    expected: Option<usize>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let passed = listing.count(Outcome::Passed);
    if !finished.success() {
        let words = finished.last_words(6);
        problems.push(format!(
            "test-backend-ops: {}{}{words}",
            finished.describe(),
            if words.is_empty() { "" } else { "\n" }
        ));
    }
    if !listing.good_backends.iter().any(|name| name == backend) {
        let words = finished.last_words(6);
        problems.push(format!("no line `Backend {backend}: OK`: the device was not there or failed\n{words}"));
    }
    match listing.summary {
        Some((good, all)) if good != all => problems.push(format!("{good} of {all} cases passed")),
        Some((good, _)) if good != passed => {
            problems.push(format!("{good} cases counted by the program, {passed} lines say OK"));
        }
        Some(_) => {}
        None => problems.push("no line `N/N tests passed`".to_owned()),
    }
    for case in listing.cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed | Outcome::Unfinished)) {
        problems.push(format!("{operation}({}): {}", case.parameters, case.detail));
    }
    let missing = missing_cases(listing, wanted);
    if !missing.is_empty() {
        problems.push(format!("{} case(s) that the CPU backend supports did not pass:", missing.len()));
        const SHOWN: usize = 20;
        problems.extend(missing.iter().take(SHOWN).map(|parameters| format!("{operation}({parameters})")));
        if missing.len() > SHOWN {
            problems.push(format!("and {} more; see them with -o {operation}", missing.len() - SHOWN));
        }
    }
    if let Some(expected) = expected
        && passed < expected
    {
        problems.push(format!("{passed} cases passed, the table has {expected}"));
    }
    problems
}

/// Cases of `wanted` that are not among the passed ones; a case printed twice must pass twice.
fn missing_cases<'a>(listing: &Listing, wanted: &'a [String]) -> Vec<&'a str> {
    let mut left: HashMap<&str, usize> = HashMap::new();
    for case in listing.cases.iter().filter(|case| case.outcome == Outcome::Passed) {
        *left.entry(case.parameters.as_str()).or_default() += 1;
    }
    wanted
        .iter()
        .map(String::as_str)
        .filter(|parameters| match left.get_mut(parameters) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .collect()
}

fn print(report: &Report, table: &Table) {
    let mut lines = output::table(&[
        "operation",
        "#passed",
        "#failed",
        "#not supported",
        "#CPU",
        "#excluded",
        "#kernel commands",
        "#seconds",
        "result",
    ]);
    for row in &report.operations {
        lines.add_row([
            row.operation.clone(),
            row.passed.to_string(),
            row.failed.to_string(),
            row.unsupported.to_string(),
            row.cpu.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            row.excluded.to_string(),
            row.kernel_commands.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            format!("{:.1}", row.seconds),
            if row.ok { output::good("ok") } else { output::bad("FAIL") },
        ]);
    }
    println!("{lines}");
    for row in report.operations.iter().filter(|row| row.excluded > 0) {
        for exclusion in table.exclusions_of(&row.operation) {
            println!(
                "excluded: {} {} ({}): {}",
                exclusion.cases, exclusion.operation, exclusion.parameters, exclusion.reason
            );
        }
    }
    for problem in &report.problems {
        println!("{} {problem}", output::bad("problem:"));
    }
    if table.ggml != report.ggml {
        println!("note: the table was taken with ggml {}, the testbed has {}", table.ggml, report.ggml);
    }
    let behind = report.operations.iter().filter(|row| row.expected.is_some_and(|expected| row.passed > expected));
    for row in behind {
        println!("note: {} passes more cases than the table has; record it with --update", row.operation);
    }
    println!(
        "{} on ggml {}: {} cases passed, {} failed, {} not supported by the device or the CPU backend",
        report.backend, report.ggml, report.passed, report.failed, report.unsupported
    );
}

fn update(table: &mut Table, report: &Report, reference: bool, ggml: String) -> Result<()> {
    if report.failed > 0 {
        bail!("{} cases failed; the table is left as it was", report.failed);
    }
    for row in &report.operations {
        let excluded = table.excluded(&row.operation);
        let counts = table.operations.entry(row.operation.clone()).or_insert(Counts { cpu: 0, passing: 0 });
        if reference {
            counts.cpu = row.passed + excluded;
        } else {
            counts.passing = row.passed;
        }
    }
    table.ggml = ggml;
    table.write().context("cannot update the table")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn finished(code: i32, stdout: &str) -> Finished {
        Finished {
            status: std::process::ExitStatus::from_raw(code << 8),
            stdout: stdout.to_owned(),
            stderr: String::new(),
            elapsed: Duration::ZERO,
            timed_out: false,
        }
    }

    fn problems(stdout: &str, wanted: &[&str], expected: usize) -> Vec<String> {
        let end = finished(0, stdout);
        let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
        judge("ADD", "HSA0", &end, &Listing::parse(stdout), &wanted, Some(expected))
    }

    const GOOD: &str = "  ADD(a=1): OK\n  ADD(a=1): OK\n  2/2 tests passed\n  Backend HSA0: OK\n";

    #[test]
    fn a_good_run_has_no_problem() {
        assert_eq!(problems(GOOD, &["a=1", "a=1"], 2), Vec::<String>::new());
    }

    #[test]
    fn exit_code_zero_without_our_backend_is_a_problem() {
        let found = problems("  Skipping\n2/2 backends passed\nOK\n", &["a=1"], 1);
        assert!(found.iter().any(|problem| problem.contains("Backend HSA0: OK")));
        assert!(found.iter().any(|problem| problem.contains("did not pass")));
    }

    #[test]
    fn a_case_that_became_unsupported_is_named() {
        let text = "  ADD(a=1): OK\n  ADD(a=2): not supported [HSA0]\n  1/1 tests passed\n  Backend HSA0: OK\n";
        let found = problems(text, &["a=1", "a=2"], 2);
        assert!(found.contains(&"ADD(a=2)".to_owned()), "{found:?}");
        assert!(found.iter().any(|problem| problem.contains("the table has 2")));
    }

    #[test]
    fn a_repeated_case_must_pass_as_often_as_it_is_wanted() {
        assert!(!problems(GOOD, &["a=1", "a=1", "a=1"], 2).is_empty());
    }

    #[test]
    fn a_failed_case_and_a_crash_are_problems() {
        let text = "  ADD(a=1): [ADD] NMSE = 1 > 0.1 FAIL\n  0/1 tests passed\n  Backend HSA0: FAIL\n";
        assert!(problems(text, &["a=1"], 1).iter().any(|problem| problem.contains("NMSE")));
        let mut end = finished(0, GOOD);
        end.status = std::process::ExitStatus::from_raw(11);
        let found = judge("ADD", "HSA0", &end, &Listing::parse(GOOD), &[], None);
        assert!(found[0].contains("SIGSEGV"));
    }
}
