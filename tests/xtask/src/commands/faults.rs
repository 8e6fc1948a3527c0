//! `cargo xtask faults`: every kernel call fails once, and llama.cpp must get an error, not be ended.
//!
//! A first run without faults counts the kernel calls by name. Then stock llama.cpp is run again and again, each time with
//! one planned fault: a call at its first, second and last occurrence with each error code the kernel can return there,
//! commands that time out, abort or return with the device gone.

use crate::generation::{Request, library_messages};
use crate::output::{self, Report};
use crate::process::{self, Finished};
use crate::session::{DeviceOptions, DriverName, DriverOptions, Options, Session, SimulationOptions};
use crate::simulation::{KernelReport, Levels};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The longest a case may take, in seconds. Far above the driver's own limits in [`LIMITS`].
const SECONDS: u64 = 60;
/// Time limits for the driver, in milliseconds: long enough for every command of a run without faults.
const LIMITS: (&str, &str) = ("AIE_HAL_TIME_LIMIT_MS", "10000");
const PROMPT: &str = "Water is";

/// Error codes the kernel returns from a call. Source: the amdxdna kernel driver, and open(2), mmap(2) and munmap(2).
const CODES: &[(&str, &[&str])] = &[
    ("OPEN_ACCEL", &["ENOENT", "EACCES", "EMFILE", "ENODEV"]),
    ("OPEN_KFD", &["ENOENT", "EACCES", "EMFILE", "ENODEV"]),
    ("VERSION", &["EFAULT", "ENODEV"]),
    ("GET_CAP", &["EINVAL"]),
    ("GET_INFO", &["EINVAL", "EFAULT", "ENODEV", "ENOMEM", "ETIME", "EOPNOTSUPP"]),
    ("GET_ARRAY", &["EINVAL", "EFAULT", "ENODEV", "ENOMEM", "EOPNOTSUPP"]),
    ("SET_STATE", &["EPERM", "EINVAL", "ENODEV", "EOPNOTSUPP"]),
    (
        "CREATE_HWCTX",
        &["EINVAL", "ENODEV", "ENOENT", "ENOMEM", "EFAULT", "EBUSY", "ENOSPC", "EAGAIN", "EMFILE", "ETIME"],
    ),
    ("DESTROY_HWCTX", &["EINVAL", "ENODEV"]),
    ("CONFIG_HWCTX", &["EINVAL", "E2BIG", "ENOMEM", "EFAULT", "EOPNOTSUPP", "ETIME"]),
    ("CREATE_BO", &["EINVAL", "EBUSY", "ENOMEM"]),
    ("GET_BO_INFO", &["EINVAL", "ENOENT"]),
    ("SYNC_BO", &["EINVAL", "ENOENT", "ETIME"]),
    ("EXEC_CMD", &["EINVAL", "ENOENT", "EIO", "ENOMEM", "EFAULT", "EINTR", "ENODEV", "ETIME"]),
    ("SYNCOBJ_CREATE", &["EOPNOTSUPP", "ENOMEM"]),
    ("SYNCOBJ_DESTROY", &["EINVAL", "EOPNOTSUPP"]),
    ("SYNCOBJ_QUERY", &["EINVAL", "ENOENT", "EFAULT", "EOPNOTSUPP"]),
    ("SYNCOBJ_TIMELINE_WAIT", &["EINVAL", "ENOENT", "ENOMEM", "EFAULT", "EINTR", "ETIME", "EOPNOTSUPP"]),
    ("WAIT_CMD", &["EINVAL", "EINTR", "ETIME", "EOPNOTSUPP"]),
    ("GEM_CLOSE", &["EINVAL"]),
    ("PRIME_HANDLE_TO_FD", &["ENOENT", "EMFILE", "ENOMEM"]),
    ("PRIME_FD_TO_HANDLE", &["EBADF", "EINVAL", "ENOMEM"]),
    ("MMAP", &["EINVAL", "EAGAIN", "ENOMEM"]),
    ("MUNMAP", &["EINVAL", "ENOMEM"]),
    ("CLOSE", &["EIO"]),
    ("KFD_GET_VERSION", &["EFAULT"]),
    ("KFD_CREATE_EVENT", &["EINVAL", "ENOMEM"]),
    ("KFD_DESTROY_EVENT", &["EINVAL"]),
    ("KFD_SET_EVENT", &["EINVAL"]),
    ("KFD_RESET_EVENT", &["EINVAL"]),
    ("KFD_WAIT_EVENTS", &["EIO", "EINTR"]),
    ("KFD_GET_PROCESS_APERTURES_NEW", &["EFAULT", "ENOMEM"]),
    ("KFD_SET_XNACK_MODE", &["EPERM", "EINVAL"]),
    ("KFD_RUNTIME_ENABLE", &["EINVAL", "EBUSY"]),
];

/// Faults of commands: what they do is in the simulated device's description. The first command is the driver's test dispatch.
const COMMAND_FAULTS: [&str; 4] = ["timeout", "abort", "lost", "status=0x1000006"];

/// Those after which the same graph is computed once more, where it has not overwritten what it reads: of a run the last one has not, and
/// the first one has.
const PASSING: [&str; 3] = ["timeout", "abort", "status=0x1000006"];
/// The library's words for that.
const REPEATED: &str = "computed once more";

/// Children that are forked before a submission, by how they end. Nothing may come of them.
const FORKS: [&str; 3] = ["fork=exit", "fork=_exit", "fork=exec"];

/// Faults of the test dispatch with which an NPU is used all the same: it could be waited for.
const HARMLESS_AT_OPENING: [&str; 2] = ["abort@1", "status=0x1000006@1"];
/// The library's words for that.
const USED: &str = "it is used all the same";

/// Calls in which ROCR ends the process itself when they fail, and its words. Builds of ROCR with asserts do so.
const RUNTIME_ABORTS: &[(&str, &str)] = &[
    // Signals need events of KFD, and ROCR makes its first ones while it starts.
    ("KFD_CREATE_EVENT", "EopEvent"),
    // Without a CPU agent ROCR has no memory for its signals. This driver has opened KFD and asked for its version just before,
    // so only a failure between the two calls comes to this.
    ("OPEN_KFD", "Shared object allocator is not set"),
    ("KFD_GET_VERSION", "Shared object allocator is not set"),
];

/// What is left open because giving it back is what failed, and the kernel takes it back when the process ends: buffer
/// objects, mappings and contexts. A device that is lost gives nothing back.
fn leaves(fault: &str) -> Levels {
    let none = Levels::default();
    match fault.split('@').next().unwrap_or(fault) {
        "lost" => Levels { bos: i64::MAX, bo_bytes: i64::MAX, mappings: i64::MAX, contexts: i64::MAX, files: i64::MAX },
        // A context has four buffer objects in the device heap, of 4 KiB each.
        "DESTROY_HWCTX" => Levels { bos: 4, bo_bytes: 4 * 4096, contexts: 1, ..none },
        // The buffer object that is not unmapped or closed, of any size.
        "MUNMAP" | "GEM_CLOSE" => Levels { bos: 1, bo_bytes: i64::MAX, mappings: 1, ..none },
        _ => none,
    }
}

/// Make every kernel call fail once under stock llama.cpp.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask faults
  cargo xtask faults --call CREATE_HWCTX,EXEC_CMD
  cargo xtask faults --kernel legacy,7.2 --sample 8
  cargo xtask faults --driver rocr
  cargo xtask faults --json

Exit code 1 if llama.cpp hung, was ended by a signal that is not a documented abort of the runtime, or
left something open.")]
pub struct FaultsArgs {
    /// Only these calls or command faults, separated by commas
    #[arg(long, value_name = "CALL", value_delimiter = ',')]
    call: Vec<String>,
    /// Every N-th case only, starting with the first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
    /// xdna: the kernel's own interface; rocr: AMD's ROCR of the testbed
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t = DriverName::Xdna)]
    driver: DriverName,
    #[command(flatten)]
    simulation: SimulationOptions,
    /// Cases in parallel
    #[arg(short = 'j', long, value_name = "N", default_value_t = process::processors())]
    jobs: usize,
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// The text is the one without faults.
    Unharmed,
    /// The same, as the library has computed a graph once more.
    Repeated,
    /// The library or llama.cpp said what failed.
    Error,
    /// The runtime ended the process, as documented.
    RuntimeAbort,
    /// None of these: the problem says what.
    Wrong,
}

#[derive(Debug, Serialize)]
struct Row {
    kernel: String,
    fault: String,
    outcome: Outcome,
    seconds: f64,
    /// The message to the user.
    message: String,
    problem: Option<String>,
}

pub fn run(args: &FaultsArgs, options: &Options) -> Result<()> {
    let rows = run_cases(args, options)?;
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for row in &rows {
        *outcomes.entry(format!("{:?}", row.outcome).to_lowercase()).or_default() += 1;
    }
    let mut report = Report::default();
    report.rows(
        "rows",
        &rows,
        &[
            ("kernel", |row| row.kernel.clone()),
            ("fault", |row| row.fault.clone()),
            ("outcome", |row| match row.outcome {
                Outcome::Wrong => output::bad("WRONG"),
                other => format!("{other:?}"),
            }),
            ("#s", |row| format!("{:.1}", row.seconds)),
            ("message", |row| row.message.clone()),
        ],
    )?;
    for Row { fault, kernel, problem, .. } in &rows {
        report.problems.extend(problem.iter().map(|problem| format!("{fault} on {kernel}: {problem}")));
    }
    // A part of the faults may have only such that come too early.
    for name in PASSING.iter().filter(|_| args.sample == 1 && args.call.is_empty()) {
        let of = |row: &&Row| row.fault.split('@').next() == Some(*name) && row.outcome == Outcome::Repeated;
        if !rows.iter().any(|row| of(&row)) {
            report.problems.push(format!("no graph is computed once more after `{name}`"));
        }
    }
    let counts: Vec<String> = outcomes.iter().map(|(name, count)| format!("{name} {count}")).collect();
    report.summary(format!("{} cases: {}", rows.len(), counts.join(", ")));
    report.field("cases", rows.len())?;
    report.field("outcomes", outcomes)?;
    report.finish("faults", options)
}

fn run_cases(args: &FaultsArgs, options: &Options) -> Result<Vec<Row>> {
    let driver = DriverOptions {
        emulated: None,
        driver: args.driver,
        simulation: args.simulation.clone(),
        device: DeviceOptions { device: None, library: None },
    };
    let kernels: Vec<String> = args.simulation.kernel.split(',').map(|kernel| kernel.trim().to_owned()).collect();
    let mut rows = Vec::new();
    for kernel in kernels {
        let simulation = SimulationOptions { kernel: kernel.clone(), ..args.simulation.clone() };
        let driver = DriverOptions { simulation, ..driver.clone() };
        let cases = cases_on(args, &Session::open_with(options, &driver)?)?;
        rows.extend(cases.into_iter().map(|row| Row { kernel: kernel.clone(), ..row }));
    }
    Ok(rows)
}

fn cases_on(args: &FaultsArgs, session: &Session) -> Result<Vec<Row>> {
    let model = session.model(args.model.as_deref())?;
    let request = Request { model, prompt: PROMPT.to_owned(), tokens: 2, threads: Some(1), flash_attention: false };
    let (text, reference) = healthy(session, &request)?;
    let wanted =
        |fault: &str| args.call.is_empty() || args.call.iter().any(|call| fault.split('@').next() == Some(call));
    let faults = plan(&reference)?.into_iter().filter(|fault| wanted(fault)).step_by(args.sample as usize);
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() {
        bail!("no such call in a run without faults; available: {}", names(&reference));
    }
    let documented = if args.driver == DriverName::Rocr { RUNTIME_ABORTS } else { &[] };
    let bar = output::progress(faults.len() as u64)?;
    let rows = process::parallel(&faults, args.jobs, |fault| {
        let row = case(fault, &session.apart()?, &request, &text, documented);
        bar.inc(1);
        row
    })?;
    bar.finish_and_clear();
    Ok(rows)
}

/// A run without faults: its text and its kernel calls.
fn healthy(session: &Session, request: &Request) -> Result<(String, KernelReport)> {
    let finished = request.run(command(session, None)?, |_| ())?;
    crate::generation::require_success(&finished).context("without a fault")?;
    let report = session.kernel_report()?.context("the session has a simulated kernel device")?;
    Ok((finished.stdout, report))
}

fn command(session: &Session, fault: Option<&str>) -> Result<std::process::Command> {
    let mut command = session.on_device("llama-completion", None)?;
    command.arg("--no-warmup").env(LIMITS.0, LIMITS.1);
    if let Some(fault) = fault {
        match fault.strip_prefix("fork=") {
            Some(fork) => command.env("AMDXDNA_SIM_FORK", fork),
            None => command.env("AMDXDNA_SIM_FAULTS", fault),
        };
    }
    Ok(command)
}

fn names(report: &KernelReport) -> String {
    report.calls.keys().map(String::as_str).chain(COMMAND_FAULTS).chain(FORKS).collect::<Vec<_>>().join(", ")
}

/// The faults to plan: for each call of a run without faults, and for its commands.
fn plan(report: &KernelReport) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, calls) in &report.calls {
        let (_, codes) = CODES
            .iter()
            .find(|(known, _)| known == name)
            .with_context(|| format!("the run makes the kernel call {name}, and no error code of it is known"))?;
        for occurrence in occurrences(calls.count) {
            faults.extend(codes.iter().map(|code| format!("{name}@{occurrence}={code}")));
        }
    }
    for name in COMMAND_FAULTS {
        faults.extend(occurrences(report.commands).map(|occurrence| format!("{name}@{occurrence}")));
    }
    for name in FORKS {
        faults.extend(occurrences(report.doorbells).map(|occurrence| format!("{name}@{occurrence}")));
    }
    Ok(faults)
}

/// First, second and last, each once.
fn occurrences(count: u64) -> impl Iterator<Item = u64> {
    (1..=count.min(2)).chain((count > 2).then_some(count))
}

fn case(fault: &str, session: &Session, request: &Request, text: &str, documented: &[(&str, &str)]) -> Result<Row> {
    let mut command = command(session, Some(fault))?;
    request.arguments(&mut command);
    let finished = process::run(&mut command, Duration::from_secs(SECONDS))?;
    let left_open = left_open(fault, session);
    let (outcome, problem) = judge(fault, &finished, text, left_open, documented);
    let message = library_messages(&finished.stderr).into_iter().next_back().unwrap_or_default();
    Ok(Row {
        kernel: String::new(),
        fault: fault.to_owned(),
        outcome,
        seconds: finished.elapsed.as_secs_f64(),
        message,
        problem,
    })
}

/// What is wrong with the kernel's report.
fn left_open(fault: &str, session: &Session) -> Option<String> {
    let report = match session.kernel_report_unchecked() {
        Ok(Some(report)) => report,
        Ok(None) => return None,
        // A program that never opened the device leaves nothing and writes no report.
        Err(_) if fault.starts_with("OPEN_") || fault.starts_with("KFD_GET_VERSION@1=") => return None,
        Err(error) => return Some(format!("{error:#}")),
    };
    let simulation = session.simulation.as_ref()?;
    simulation.nothing_open_but(&report, leaves(fault)).err().map(|error| format!("{error:#}"))
}

/// What came of a run, and why that is wrong if it is. `left_open` is what is wrong with the kernel's report.
/// `documented`: calls in which the runtime ends the process itself.
fn judge(
    fault: &str,
    finished: &Finished,
    text: &str,
    left_open: Option<String>,
    documented: &[(&str, &str)],
) -> (Outcome, Option<String>) {
    let wrong = |why: String| (Outcome::Wrong, Some(format!("{why}\n{}", finished.last_lines(6))));
    if finished.timed_out {
        return wrong(format!("llama.cpp hung for {SECONDS} s"));
    }
    let mut logged = library_messages(&finished.stderr);
    // About the machine and not the fault: every run on it says so.
    logged.retain(|line| !line.contains("`ulimit -l`"));
    if finished.status.code().is_none() {
        let call = fault.split('@').next().unwrap_or(fault);
        let documented = documented.iter().any(|(name, words)| *name == call && finished.stderr.contains(words));
        return match documented {
            true => (Outcome::RuntimeAbort, None),
            false => wrong(format!("llama.cpp was {}", finished.describe())),
        };
    }
    if let Some(left_open) = left_open {
        return wrong(left_open);
    }
    if fault.starts_with("fork=") && !(finished.success() && finished.stdout == text && logged.is_empty()) {
        return wrong(format!("a forked child harmed its parent: llama.cpp {}", finished.describe()));
    }
    if HARMLESS_AT_OPENING.contains(&fault)
        && !(finished.stdout == text && logged.iter().any(|line| line.contains(USED)))
    {
        return wrong(format!(
            "the NPU was not used, though its test dispatch was waited for: {}",
            finished.describe()
        ));
    }
    if finished.success() && finished.stdout == text && logged.is_empty() {
        return (Outcome::Unharmed, None);
    }
    if finished.success() && finished.stdout == text && logged.iter().any(|line| line.contains(REPEATED)) {
        return (Outcome::Repeated, None);
    }
    if logged.is_empty() {
        return wrong(format!(
            "llama.cpp: {}, with another text or none, and no message of the library",
            finished.describe()
        ));
    }
    if finished.success() && finished.stdout != text && !logged.iter().any(|line| line.contains(" E ")) {
        return wrong("llama.cpp printed another text, and the library reported no error".to_owned());
    }
    (Outcome::Error, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::ended as end;

    fn outcome(finished: &Finished, left_open: Option<&str>) -> Outcome {
        judge("EXEC_CMD@1=EIO", finished, "text", left_open.map(str::to_owned), &[]).0
    }

    const TOLD: &str = "0.01 E ggml-hsa: HSA0: a command failed";

    #[test]
    fn every_call_fails_first_second_and_last() {
        let report: KernelReport = serde_json::from_str(&crate::simulation::tests::sample(0)).unwrap();
        let faults = plan(&report).unwrap();
        assert!(
            faults.contains(&"EXEC_CMD@3=EINTR".to_owned()) && faults.contains(&"MMAP@4=EAGAIN".to_owned()),
            "{faults:?}"
        );
        assert_eq!(occurrences(1).collect::<Vec<_>>(), [1]);
        assert_eq!(occurrences(2).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(occurrences(9).collect::<Vec<_>>(), [1, 2, 9]);
    }

    #[test]
    fn errors_that_are_reported_are_right_and_silence_is_wrong() {
        assert_eq!(outcome(&end(0, "text", ""), None), Outcome::Unharmed);
        let repeated = "0.01 W ggml-hsa: HSA0: a graph is computed once more, in a new context: aborted";
        assert_eq!(outcome(&end(0, "text", repeated), None), Outcome::Repeated);
        assert_eq!(outcome(&end(0, "another", repeated), None), Outcome::Wrong);
        assert_eq!(outcome(&end(256, "", TOLD), None), Outcome::Error);
        assert_eq!(outcome(&end(256, "", "other"), None), Outcome::Wrong);
        assert_eq!(outcome(&end(0, "another", "0.01 I ggml-hsa: fine"), None), Outcome::Wrong);
        assert_eq!(outcome(&end(0, "text", ""), Some("2 contexts")), Outcome::Wrong);
    }

    #[test]
    fn what_must_do_no_harm_is_told_from_errors() {
        let judged = |fault, finished: &Finished| judge(fault, finished, "text", None, &[]).0;
        assert_eq!(judged("fork=exit@2", &end(0, "text", "")), Outcome::Unharmed);
        assert_eq!(judged("fork=exit@2", &end(256, "", TOLD)), Outcome::Wrong);
        assert_eq!(
            judged("abort@1", &end(0, "text", "0.01 W ggml-hsa: failed; it is used all the same")),
            Outcome::Error
        );
        assert_eq!(judged("abort@1", &end(0, "text", TOLD)), Outcome::Wrong);
        assert_eq!(judged("abort@2", &end(256, "", TOLD)), Outcome::Error);
    }

    #[test]
    fn a_signal_is_wrong_unless_it_is_documented() {
        assert_eq!(outcome(&end(6, "", TOLD), None), Outcome::Wrong);
        let assert = end(6, "", "Assertion `EopEvent() != NULL' failed");
        assert_eq!(judge("KFD_CREATE_EVENT@1=ENOMEM", &assert, "text", None, RUNTIME_ABORTS).0, Outcome::RuntimeAbort);
        assert_eq!(outcome(&assert, None), Outcome::Wrong);
        let mut hung = end(0, "text", "");
        hung.timed_out = true;
        assert_eq!(outcome(&hung, None), Outcome::Wrong);
    }
}
