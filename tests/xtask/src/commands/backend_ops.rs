//! `cargo xtask backend-ops`: ggml's own operation tests on our device, compared with the checked-in table.
//!
//! Each operation runs in a process of its own: memory is released between operations, and a crash costs one of them.
//! Several of them run side by side, those with most cases first. That fills the cores better than workers within one
//! process: much of the time one thread of ggml quantises operands or computes the reference.
//! Beside the counts, every single case the CPU backend supports must have passed here, unless an exclusion names it.
//! With `--emulated` the operations are those that native kernels exist for, and what ran as machine code is counted by
//! dispatches; a case is mostly one. Every case must pass, whichever kernel computed it.
//! A name of ggml's tests that the table does not know is an error: nothing new goes unnoticed.

mod catalogue;
mod judge;

use self::catalogue::Catalogue;
use self::judge::judge;
use super::operations::with_native_kernels;
use crate::generation::StatsFile;
use crate::ops_output::{Listing, Outcome};
use crate::ops_table::{self, Exclusion, Extent, Table};
use crate::output::{self, Report};
use crate::process;
use crate::session::{DEVICE_NAME, DriverOptions, Options, Session};
use crate::stats::Stats;
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(3600);

/// Run stock test-backend-ops on our device and compare with tests/backend-ops/expected.toml.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask backend-ops                          every operation of the table
  cargo xtask backend-ops --ci                     the fixed part of it that `cargo xtask test` runs
  cargo xtask backend-ops -o MUL_MAT,ADD           two of them
  cargo xtask backend-ops -o MUL_MAT -p type_a=q4_0
  cargo xtask backend-ops --emulated               native kernels as machine code on the emulated array
  cargo xtask backend-ops --emulated=aie2p         the same of another generation
  cargo xtask backend-ops --driver xdna            through AMD's ROCR, on a simulated kernel device
  cargo xtask backend-ops --update                 write the counts seen into the table
  cargo xtask backend-ops --reference              the same on ggml's CPU backend

Exit code 1 if a case failed, became unsupported or is missing.")]
pub struct BackendOpsArgs {
    /// Operations, separated by commas; all of the table if absent, with --emulated those with native kernels
    #[arg(short = 'o', long = "operation", value_name = "OP", value_delimiter = ',')]
    operations: Vec<String>,
    /// Only cases whose parameters match this regular expression; counts are then not compared
    #[arg(short = 'p', long = "parameters", value_name = "REGEX")]
    parameters: Option<String>,
    /// Only the fixed part of large operations that the table lists under `ci`
    #[arg(long, conflicts_with_all = ["parameters", "update"])]
    ci: bool,
    /// How many operations to run in parallel
    #[arg(short = 'j', long, value_name = "N", default_value_t = process::processors().min(4))]
    jobs: usize,
    /// Write the observed counts into the table (only if nothing failed)
    #[arg(long, conflicts_with = "parameters")]
    update: bool,
    /// Test ggml's CPU backend instead of our device; with --update, writes the `cpu` counts
    #[arg(long)]
    reference: bool,
    #[command(flatten)]
    driver: DriverOptions,
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
    /// With `--emulated`.
    code: Option<CodeCounts>,
    ok: bool,
    problems: Vec<String>,
}

/// How the operation ran on the emulated array.
#[derive(Debug, Clone, Copy, Serialize)]
struct CodeCounts {
    /// Dispatches of it as machine code.
    code: u64,
    /// Dispatches of it as reference kernels.
    reference: u64,
    /// Bundles that cores executed.
    bundles: u64,
}

/// What every operation's run needs to know.
struct Course<'a> {
    args: &'a BackendOpsArgs,
    table: &'a Table,
    session: &'a Session,
    catalogue: &'a Catalogue,
}

impl Course<'_> {
    fn backend(&self) -> &'static str {
        if self.args.reference { "CPU" } else { DEVICE_NAME }
    }

    fn extent(&self) -> Extent {
        if self.args.ci { Extent::Ci } else { Extent::Whole }
    }

    /// The program in a session of its own, since several run at the same time.
    fn command(&self, session: &Session, stats: Option<&Path>) -> Result<std::process::Command> {
        let mut command = if self.args.reference {
            session.on_cpu("test-backend-ops")?
        } else {
            session.on_device("test-backend-ops", stats)?
        };
        command.args(["test", "-b", self.backend()]);
        Ok(command)
    }

    /// Commands that reached the simulated kernel device in the run that ended last, if there is one.
    fn kernel_commands(&self, session: &Session) -> Result<Option<u64>> {
        if self.args.reference {
            return Ok(None);
        }
        Ok(session.kernel_report()?.map(|report| report.commands))
    }
}

pub fn run(args: &BackendOpsArgs, options: &Options) -> Result<()> {
    let mut table = Table::read()?;
    let session = Session::open_with(options, &args.driver)?;
    let started = Instant::now();
    let catalogue = Catalogue::read(&session, args.parameters.as_deref())?;
    let operations: Vec<String> = match (&args.operations[..], args.driver.emulated.is_some()) {
        ([], false) => table.operations.keys().cloned().collect(),
        ([], true) => {
            let native = with_native_kernels(options)?;
            table.operations.keys().filter(|name| native.contains(*name)).cloned().collect()
        }
        (chosen, _) => chosen.to_vec(),
    };
    let course = Course { args, table: &table, session: &session, catalogue: &catalogue };
    let is_whole = args.operations.is_empty() && args.parameters.is_none() && args.driver.emulated.is_none();
    let mut report = Report::default();
    if is_whole {
        report.problems.extend(catalogue.unknown(&table));
        report.problems.extend(no_longer_unclaimed(&course)?);
    }
    let rows = run_all(&operations, &course)?;

    let ggml = session.testbed.stamp.packages.get("libggml0").cloned().unwrap_or_default();
    let sum = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
    let (passed, failed, unsupported) = (sum(|row| row.passed), sum(|row| row.failed), sum(|row| row.unsupported));
    report.problems.extend(rows.iter().flat_map(|row| row.problems.iter().cloned()));
    if is_whole && !args.ci && passed < table.minimum {
        report.problems.push(format!("{passed} cases passed in all, the table has {}", table.minimum));
    }
    let code: Vec<CodeCounts> = rows.iter().filter_map(|row| row.code).collect();
    if args.driver.emulated.is_some() {
        let sum = |count: fn(&CodeCounts) -> u64| code.iter().map(count).sum::<u64>();
        let (native, reference, bundles) = (sum(|c| c.code), sum(|c| c.reference), sum(|c| c.bundles));
        if native == 0 {
            report.problems.push("nothing ran as machine code".to_owned());
        }
        for (name, count) in [("code", native), ("reference", reference), ("bundles", bundles)] {
            report.field(name, count)?;
        }
        report.summary(format!(
            "machine code: {native} dispatches with {bundles} bundles; reference kernels: {reference} dispatches"
        ));
    }
    let commands: Vec<u64> = rows.iter().filter_map(|row| row.kernel_commands).collect();
    if !commands.is_empty() && commands.iter().sum::<u64>() == 0 {
        report.problems.push("no command reached the simulated kernel device: nothing ran on the array".to_owned());
    }
    report.rows(
        "operations",
        &rows,
        &[
            ("operation", |row| row.operation.clone()),
            ("#passed", |row| row.passed.to_string()),
            ("#failed", |row| row.failed.to_string()),
            ("#not supported", |row| row.unsupported.to_string()),
            ("#CPU", |row| output::count(row.cpu)),
            ("#excluded", |row| row.excluded.to_string()),
            ("#kernel commands", |row| output::count(row.kernel_commands)),
            ("#as machine code", |row| output::count(row.code.map(|counts| counts.code))),
            ("#as reference", |row| output::count(row.code.map(|counts| counts.reference))),
            ("#bundles", |row| output::count(row.code.map(|counts| counts.bundles))),
            ("#seconds", |row| format!("{:.1}", row.seconds)),
            ("result", |row| output::verdict(row.ok)),
        ],
    )?;
    let excluded = rows.iter().filter(|row| row.excluded > 0);
    for Exclusion { operation, parameters, cases, reason } in
        excluded.flat_map(|row| table.exclusions_of(&row.operation))
    {
        report.line(format!("excluded: {cases} {operation} ({parameters}): {reason}"));
    }
    if table.ggml != ggml {
        report.summary(format!("note: the table was taken with ggml {}, the testbed has {ggml}", table.ggml));
    }
    for row in rows.iter().filter(|row| row.expected.is_some_and(|expected| row.passed > expected)) {
        let name = &row.operation;
        report.summary(format!("note: {name} passes more cases than the table has; record them with --update"));
    }
    let (backend, seconds) = (course.backend(), started.elapsed().as_secs_f64());
    report.summary(format!(
        "{backend} on ggml {ggml}: {passed} cases passed, {failed} failed, {unsupported} not supported by the device or the CPU \
         backend, {seconds:.0} s"
    ));
    for (name, count) in [("passed", passed), ("failed", failed), ("unsupported", unsupported)] {
        report.field(name, count)?;
    }
    report.field("ggml", &ggml)?;
    report.field("backend", backend)?;
    report.field("seconds", seconds)?;
    if !report.problems.is_empty() {
        report.summary("run one operation with -o to look closer");
    }
    let finished = report.finish("backend-ops", options);
    if args.update {
        update(&mut table, &rows, args.reference, ggml)?;
        eprintln!("wrote {}", ops_table::path().display());
    }
    finished
}

/// Names the table calls unclaimed of which our device supports a case.
fn no_longer_unclaimed(course: &Course) -> Result<Vec<String>> {
    if course.args.reference || course.table.unclaimed.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = course.table.unclaimed.keys().map(String::as_str).collect();
    let mut command = course.session.on_device("test-backend-ops", None)?;
    command.args(["support", "-b", DEVICE_NAME, "-o", &names.join(",")]);
    let finished = process::run(&mut command, LIMIT)?;
    let listing = Listing::parse(&finished.stdout);
    if listing.cases.is_empty() {
        bail!("test-backend-ops ({}) listed no unclaimed case\n{}", finished.describe(), finished.last_lines(4));
    }
    let mut claimed: Vec<&str> = listing
        .cases
        .iter()
        .filter(|case| case.outcome == Outcome::Passed)
        .map(|case| case.operation.as_str())
        .collect();
    claimed.dedup();
    Ok(claimed
        .into_iter()
        .map(|name| {
            format!("{name}: supported now, but listed under [unclaimed]; remove it there and run -o {name} --update")
        })
        .collect())
}

/// Runs the operations, those with most cases first; the rows come in the order of the names.
fn run_all(operations: &[String], course: &Course) -> Result<Vec<Row>> {
    let mut order: Vec<(usize, &String)> = operations.iter().enumerate().collect();
    order.sort_by_key(|(_, name)| std::cmp::Reverse(course.catalogue.supported(name)));
    let total: usize = operations.iter().map(|name| course.catalogue.supported(name)).sum();
    let bar = output::progress(total as u64)?;
    let mut rows = process::parallel(&order, course.args.jobs, |(index, name)| {
        bar.set_message((*name).clone());
        Ok((*index, run_operation(name, course, &bar)?))
    })?;
    bar.finish_and_clear();
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn run_operation(operation: &str, course: &Course, bar: &ProgressBar) -> Result<Row> {
    let Course { args, table, session, catalogue } = course;
    let session = session.apart()?;
    let extent = course.extent();
    let selection = table.selection(operation, extent)?;
    let wanted = catalogue.wanted(operation, &selection)?;
    if args.parameters.is_none() && wanted.excluded != table.excluded(operation) {
        bail!(
            "the exclusions of {operation} match {} cases, but state {}; correct `cases` in {}",
            wanted.excluded,
            table.excluded(operation),
            ops_table::path().display()
        );
    }
    let stats = (args.driver.emulated.is_some() && !args.reference).then(StatsFile::new).transpose()?;
    let stats_path = stats.as_ref().map(StatsFile::path);
    let mut command = course.command(&session, stats_path.as_deref())?;
    command.args(["-o", operation]);
    if let Some(filter) = table.filter(operation, extent, args.parameters.as_deref()) {
        command.args(["-p", &filter]);
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
    let counts = table.operations.get(operation).filter(|_| args.parameters.is_none());
    let expected = counts.map(|counts| match (&counts.ci, args.reference) {
        (Some(part), _) if args.ci => part.cases,
        (_, true) => counts.cpu - table.excluded(operation),
        (_, false) => counts.passing,
    });
    let mut problems = judge(operation, course.backend(), &finished, &listing, &wanted.parameters, expected);
    let kernel_commands = course.kernel_commands(&session).unwrap_or_else(|error| {
        problems.push(format!("{error:#}"));
        None
    });
    let code = stats_path.map(|path| code_counts(operation, &path)).transpose().unwrap_or_else(|error| {
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
        code,
        ok: problems.is_empty(),
        problems,
    })
}

fn code_counts(operation: &str, stats: &Path) -> Result<CodeCounts> {
    let stats = Stats::read(stats)?;
    let mut counts = CodeCounts { code: 0, reference: 0, bundles: 0 };
    for device in &stats.devices {
        let (code, reference) = device.dispatches_of(operation);
        counts.code += code;
        counts.reference += reference;
        counts.bundles += device.counters.bundles;
    }
    Ok(counts)
}

fn update(table: &mut Table, rows: &[Row], reference: bool, ggml: String) -> Result<()> {
    let failed: usize = rows.iter().map(|row| row.failed).sum();
    if failed > 0 {
        bail!("{failed} cases failed; the table is unchanged");
    }
    for row in rows {
        let excluded = table.excluded(&row.operation);
        let counts = table.operations.entry(row.operation.clone()).or_default();
        if reference {
            counts.cpu = row.passed + excluded;
        } else {
            counts.passing = row.passed;
        }
    }
    table.ggml = ggml;
    table.write().context("cannot update the table")
}
