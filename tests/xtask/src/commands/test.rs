//! `cargo xtask test`: everything CI checks, stage by stage.
//!
//! Every stage is a program of its own, either cargo or this one with another command: a crash costs one stage, and each can
//! be repeated alone exactly as it ran here. A stage that fails does not stop the others. Output goes straight through,
//! so that the test runners' own summaries stay where they are. At the end come the last lines of each stage that failed, since logs
//! of this length are cut, and a line that counts the stages. What leaves processors idle runs beside other stages ([`Beside`]), and
//! its output comes when it has ended.

use crate::session::Options;
use crate::{Cli, output, process, workspace};
use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Seek, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use wait4::{ResUse, Wait4};

/// What a stage runs.
#[derive(Clone, Copy)]
enum Program {
    /// cargo, in this environment.
    Cargo(&'static [(&'static str, &'static str)]),
    /// This program.
    Xtask,
}

struct Stage {
    name: &'static str,
    /// What it checks; empty for this program's own commands, whose help says it.
    about: &'static str,
    program: Program,
    /// Its arguments, separated by blanks.
    arguments: &'static str,
    beside: Option<Beside>,
}

/// A stage that runs beside those behind it.
#[derive(Clone, Copy)]
struct Beside {
    /// The stage that waits for it first.
    until: &'static str,
    /// Who gets processors only when the other leaves them free.
    gives_way: GivesWay,
}

#[derive(Clone, Copy, PartialEq)]
enum GivesWay {
    /// The stage itself, which takes what those behind it leave.
    Itself,
    /// Those behind it: it waits for answers by a clock that does not wait for it.
    Others,
}

impl Stage {
    /// The same beside those behind it.
    const fn beside(self, until: &'static str, gives_way: GivesWay) -> Self {
        Self { beside: Some(Beside { until, gives_way }), ..self }
    }
}

const fn xtask(name: &'static str, arguments: &'static str) -> Stage {
    Stage { name, about: "", program: Program::Xtask, arguments, beside: None }
}

const fn cargo(
    name: &'static str,
    about: &'static str,
    arguments: &'static str,
    environment: &'static [(&'static str, &'static str)],
) -> Stage {
    Stage { name, about, program: Program::Cargo(environment), arguments, beside: None }
}

/// The stages in their order: quick ones first, and what builds most before what uses it.
const STAGES: &[Stage] = &[
    cargo("fmt", "all sources are formatted", "fmt --all --check", &[]),
    xtask("typos", "lint typos"),
    xtask("deny", "lint deny"),
    xtask("commits", "lint commits"),
    // It waits for the network.
    xtask("testbed", "testbed").beside("hsa-headers", GivesWay::Itself),
    // At the end of what the stages beside it compile, and in tests that wait, processors are idle.
    cargo(
        "release",
        "the library and its programs build in release mode, as other stages use them",
        "build --release --package aie-ggml-bridge --package aie-jit-iron --package aie-ggml-cli",
        &[],
    )
    .beside("kernel-calls", GivesWay::Itself),
    cargo("clippy", "no warning in any target", "clippy --workspace --all-targets -- -D warnings", &[]),
    cargo("unit", "unit, conformance and documentation tests of the workspace", "test --workspace --no-fail-fast", &[]),
    cargo(
        "docs",
        "the documentation builds without a warning",
        "doc --workspace --no-deps --keep-going",
        &[("RUSTDOCFLAGS", "-D warnings")],
    ),
    xtask("hsa-headers", "hsa-headers"),
    xtask("kernel-headers", "kernel-headers"),
    xtask("kernel-calls", "kernel-calls"),
    xtask("formats", "formats"),
    xtask("xrt", "xrt"),
    xtask("block-formats", "block-formats"),
    xtask("conformance-xdna", "conformance --driver xdna --every-kernel"),
    xtask("conformance-rocr", "conformance --driver rocr --every-kernel"),
    xtask("demo", "demo"),
    xtask("demo-xdna", "demo --driver xdna"),
    xtask("demo-rocr", "demo --driver rocr"),
    xtask("demo-emulated", "demo --emulated --flash-attention --products product -n 2"),
    xtask("demo-rings", "demo --emulated --flash-attention --products rings --prompt The -n 2"),
    xtask("store", "store"),
    xtask("iron", "iron"),
    // The virtual machine has one processor, and takes four minutes. The guest's kernel gives the NPU 2 s for a chain and 5 s for a
    // message, by a clock that does not wait. The stages beside it neither build nor download anything.
    xtask("vm", "vm check --ci").beside("explain", GivesWay::Others),
    xtask("operations", "gen operations --check"),
    xtask("environment", "gen environment --check"),
    xtask("backend-ops", "backend-ops --ci"),
    // What differs from the stage before is the way of buffers and dispatches, which all operations share.
    xtask(
        "backend-ops-xdna",
        "backend-ops --ci --driver xdna -o ADD,ARGSORT,CLAMP,CONT,EXP,FILL,FLASH_ATTN_EXT,GEGLU,IM2COL,MEAN,MUL_MAT,\
         MUL_MAT_VEC_FUSION,NORM,OUT_PROD,POOL_2D,RMS_NORM,RMS_NORM_MUL_ROPE,ROPE,ROPE_SET_ROWS,SCALE,SET_ROWS,SILU,SOFT_MAX,\
         SSM_CONV,SSM_SCAN,SUM_ROWS,SWIGLU,TANH,TOP_K",
    ),
    xtask(
        "backend-ops-emulated",
        "backend-ops --emulated -o CONCAT,CPY,EXP,GEGLU,GET_ROWS,NORM,RMS_NORM,SET_ROWS,SILU,SUB,SWIGLU,TANH",
    ),
    xtask("kld", "kld --texts 1"),
    xtask("splits", "splits"),
    xtask("splits-xdna", "splits --driver xdna"),
    xtask("explain", "explain"),
    xtask("models", "models"),
    xtask("archs", "archs"),
    xtask("abi", "abi"),
    xtask("cmake", "cmake"),
    xtask("rpc", "rpc"),
    xtask("faults", "faults"),
    xtask("faults-kernels", "faults --kernel legacy,6.14,7.2 --sample 6 --machine hung=dead"),
    xtask("faults-rocr", "faults --driver rocr --sample 4"),
    xtask("stress", "stress --seconds 30"),
    xtask("stress-rocr", "stress --driver rocr --load pdis,queues --seconds 10"),
    xtask("package", "package check"),
    xtask("clients", "clients"),
    xtask("doctor", "doctor"),
    xtask("selftest", "selftest"),
    xtask("bad-input", "bad-input"),
];

/// How much a stage gives way to one beside it.
const NICENESS: &str = "15";

/// Lines of a failed stage that are shown again at the end.
const LAST_LINES: usize = 40;

/// Stages that only run when they are named: what they need is not part of the project.
const NAMED_STAGES: &[Stage] = &[xtask(REAL_PROGRAMS, REAL_PROGRAMS)];

/// The stage that takes `--programs`.
const REAL_PROGRAMS: &str = "real-programs";

/// What all stages write, from a clean clone, rounded up.
const DISK_BYTES: u64 = 16_000_000_000;

/// Run everything CI checks, or the stages named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask test
  cargo xtask test --list
  cargo xtask test unit clippy
  cargo xtask test --skip backend-ops,vm
  cargo xtask test real-programs --programs DIR

A stage that fails does not stop the others. The last line is `N passed, N failed` and counts stages.
Exit code 1 if a stage failed.")]
pub struct TestArgs {
    /// Only these stages
    #[arg(value_name = "NAME", value_parser = stage_names(), conflicts_with = "skip")]
    names: Vec<String>,
    /// All stages but these, separated by commas
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage_names())]
    skip: Vec<String>,
    /// For the stage real-programs, which only runs when it is named: the folder with the programs
    #[arg(long, value_name = "DIR", requires = "names")]
    programs: Option<PathBuf>,
    /// List the stages and run none
    #[arg(long)]
    list: bool,
}

fn stage_names() -> PossibleValuesParser {
    PossibleValuesParser::new(STAGES.iter().chain(NAMED_STAGES).map(|stage| stage.name))
}

#[derive(Serialize)]
struct Row {
    stage: &'static str,
    /// The stage's command as a user would type it.
    command: String,
    end: String,
    seconds: f64,
    /// Of processors, with those of all programs that it has started and waited for.
    processor_seconds: f64,
    ok: bool,
    /// Its last lines, where they were not printed to a terminal.
    #[serde(skip)]
    last_lines: VecDeque<String>,
}

impl Row {
    fn new(stage: &Stage) -> Self {
        let command = shown(stage);
        Self {
            stage: stage.name,
            command,
            end: String::new(),
            seconds: 0.0,
            processor_seconds: 0.0,
            ok: false,
            last_lines: VecDeque::new(),
        }
    }

    fn end(&mut self, (ended, elapsed): (io::Result<ResUse>, Duration)) {
        // A stage that cannot be started is a failed one; the others still have something to say.
        (self.ok, self.end) = match ended {
            Ok(ResUse { status, rusage }) => {
                self.processor_seconds = (rusage.utime + rusage.stime).as_secs_f64();
                (status.success(), status.to_string())
            }
            Err(error) => (false, format!("cannot be started: {error}")),
        };
        self.seconds = elapsed.as_secs_f64();
    }
}

/// Starts a stage, and waits for its end.
fn finish(mut command: Command) -> (io::Result<ResUse>, Duration) {
    let started = Instant::now();
    let child = command.spawn();
    // It has our ends of the pipe.
    drop(command);
    (child.and_then(|mut child| child.wait4()), started.elapsed())
}

/// Runs the command. The exit code is 1 if a stage failed; the table and the last line have said so then.
pub fn run(args: &TestArgs, options: &Options) -> Result<ExitCode> {
    let chosen = choose(&args.names, &args.skip);
    let takes_programs = chosen.iter().any(|stage| stage.name == REAL_PROGRAMS);
    ensure!(
        takes_programs == args.programs.is_some() || args.list,
        "{REAL_PROGRAMS} and `--programs DIR` belong together"
    );
    if args.list {
        list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    warn_of_little_room();
    // Found out first: a stage may replace the file this program was started from.
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut rows = Vec::with_capacity(chosen.len());
    let started = Instant::now();
    let mut running: Vec<Running> = Vec::new();
    for (index, stage) in chosen.iter().enumerate() {
        let is_awaited = |other: &mut Running| place(other.beside.until) <= place(stage.name);
        rows.extend(running.extract_if(.., is_awaited).map(Running::end));
        let (number, count, minutes) = (index + 1, chosen.len(), started.elapsed().as_secs() / 60);
        announce(&format!("stage {number} of {count}, {minutes} min: {} ({})", stage.name, about(stage)));
        match stage.beside {
            Some(beside) if number < count && process::processors() > 1 => {
                running.push(Running::start(stage, beside, &own, options)?);
            }
            _ => {
                let programs = args.programs.as_deref().filter(|_| stage.name == REAL_PROGRAMS);
                let gives_way = running.iter().any(|other| other.beside.gives_way == GivesWay::Others);
                rows.push(run_stage(stage, &own, programs, gives_way, options)?);
            }
        }
    }
    rows.extend(running.into_iter().map(Running::end));
    if options.json {
        output::json(&rows)?;
    } else {
        print(&rows, started.elapsed());
    }
    let line = summary(&rows);
    if options.json {
        eprintln!("{line}");
    } else {
        crate::say!("{line}");
    }
    Ok(if rows.iter().all(|row| row.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says so when the disk may have no room for what the stages build: late in a build that looks like an error of the sources.
fn warn_of_little_room() {
    let folder = workspace::root();
    let Ok(disk) = rustix::fs::statvfs(&folder) else { return };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < DISK_BYTES {
        let (folder, free, most) = (folder.display(), free as f64 / 1e9, DISK_BYTES / 1_000_000_000);
        announce(&format!("{folder} has {free:.1} GB free; all stages together write up to {most} GB"));
    }
}

/// Where a stage is among all.
fn place(name: &str) -> usize {
    STAGES.iter().position(|stage| stage.name == name).unwrap_or(STAGES.len())
}

fn choose(only: &[String], skip: &[String]) -> Vec<&'static Stage> {
    let named = |names: &[String], stage: &Stage| names.iter().any(|name| name == stage.name);
    let unnamed = STAGES.iter().filter(|stage| (only.is_empty() || named(only, stage)) && !named(skip, stage));
    unnamed.chain(NAMED_STAGES.iter().filter(|stage| named(only, stage))).collect()
}

fn list(stages: &[&Stage]) {
    let mut table = output::table(&["stage", "what it checks", "command"]);
    for stage in stages {
        table.add_row([stage.name.to_owned(), about(stage), shown(stage)]);
    }
    crate::say!("{table}");
}

/// What a stage checks: for our own commands the first line of their help.
fn about(stage: &Stage) -> String {
    let cli = Cli::command();
    let mut command = &cli;
    for word in stage.arguments.split(' ').filter(|_| matches!(stage.program, Program::Xtask)) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    if stage.about.is_empty() {
        command.get_about().map(ToString::to_string).unwrap_or_default()
    } else {
        stage.about.to_owned()
    }
}

fn announce(text: &str) {
    // A closed standard error must not end the tests.
    let _ = writeln!(stderr().lock(), "\n== {text}");
}

fn run_stage(stage: &Stage, own: &Path, programs: Option<&Path>, gives_way: bool, options: &Options) -> Result<Row> {
    let mut command = command(stage, own, options);
    command.args(programs.into_iter().flat_map(|programs| [Path::new("--programs"), programs]));
    if gives_way {
        command = nice(&command);
    }
    command.stdin(Stdio::null());
    let mut row = Row::new(stage);
    if stderr().is_terminal() && !options.json {
        row.end(finish(command));
        return Ok(row);
    }
    // With JSON, standard output is not the stages'.
    let (reader, writer) = io::pipe().context("cannot read a stage's output")?;
    command.stdout(writer.try_clone().context("cannot read a stage's output")?).stderr(writer);
    let (sender, last_lines) = mpsc::channel();
    thread::spawn(move || sender.send(pass_on(reader)));
    row.end(finish(command));
    // What a stage has left running keeps the pipe open.
    row.last_lines = last_lines.recv_timeout(Duration::from_secs(10)).unwrap_or_default();
    Ok(row)
}

/// The same command, which gives way to others.
fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", NICENESS]).arg(command.get_program()).args(command.get_args());
    nice.envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    // cargo runs in the workspace.
    command.get_current_dir().map(|folder| nice.current_dir(folder));
    nice
}

/// Copies a stage's output to standard error; its last lines.
fn pass_on(output: impl Read) -> VecDeque<String> {
    let mut last = VecDeque::with_capacity(LAST_LINES);
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // A closed standard error must not end the tests.
        let _ = stderr().write_all(&line);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    last
}

/// A stage that runs while others do.
struct Running {
    beside: Beside,
    row: Row,
    ended: JoinHandle<(io::Result<ResUse>, Duration)>,
    output: File,
}

impl Running {
    fn start(stage: &Stage, beside: Beside, own: &Path, options: &Options) -> Result<Self> {
        let output = tempfile::tempfile().context("cannot keep a stage's output")?;
        let mut command = command(stage, own, options);
        if beside.gives_way == GivesWay::Itself {
            command = nice(&command);
        }
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        Ok(Self { beside, row: Row::new(stage), ended: thread::spawn(|| finish(command)), output })
    }

    /// Waits for its end, and prints what it has said.
    fn end(self) -> Row {
        let Self { mut row, ended, mut output, .. } = self;
        row.end(ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        announce(&format!("the output of stage {}", row.stage));
        if output.rewind().is_ok() {
            row.last_lines = pass_on(output);
        }
        row
    }
}

fn command(stage: &Stage, own: &Path, options: &Options) -> Command {
    let mut command = match stage.program {
        Program::Cargo(environment) => {
            let mut command = workspace::cargo();
            command.envs(environment.iter().copied());
            command
        }
        Program::Xtask => Command::new(own),
    };
    command.args(stage.arguments.split(' '));
    match stage.program {
        Program::Cargo(_) if options.offline && stage.name != "fmt" => drop(command.env("CARGO_NET_OFFLINE", "true")),
        Program::Cargo(_) => {}
        Program::Xtask => {
            command.arg("--testbed").arg(&options.testbed).args(options.offline.then_some("--offline"));
        }
    }
    command
}

fn shown(stage: &Stage) -> String {
    match stage.program {
        Program::Cargo(environment) => {
            let settings = environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
            format!("{settings}cargo {}", stage.arguments)
        }
        Program::Xtask => format!("cargo xtask {}", stage.arguments),
    }
}

fn print(rows: &[Row], elapsed: Duration) {
    let mut table = output::table(&["stage", "#seconds", "#of processors", "result"]);
    for row in rows {
        let result = if row.ok { output::good("ok") } else { output::bad(&format!("FAIL: {}", row.end)) };
        let [seconds, of_processors] = [row.seconds, row.processor_seconds].map(|seconds| format!("{seconds:.1}"));
        table.add_row([row.stage.to_owned(), seconds, of_processors, result]);
    }
    let all = rows.iter().map(|row| row.processor_seconds).sum::<f64>();
    table.add_row(["all".to_owned(), output::seconds(elapsed), format!("{all:.1}"), String::new()]);
    crate::say!("\n{table}");
    for row in rows.iter().filter(|row| !row.ok && !row.last_lines.is_empty()) {
        crate::say!("\nthe last lines of stage {}:", row.stage);
        row.last_lines.iter().for_each(|line| crate::say!("  {line}"));
    }
    for row in rows.iter().filter(|row| !row.ok) {
        crate::say!("{} {}; repeat it with: {}", output::bad("failed:"), row.stage, row.command);
    }
}

fn summary(rows: &[Row]) -> String {
    let passed = rows.iter().filter(|row| row.ok).count();
    format!("{passed} passed, {} failed", rows.len() - passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(only: &[&str], skip: &[&str]) -> Vec<&'static str> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        choose(&owned(only), &owned(skip)).iter().map(|stage| stage.name).collect()
    }

    fn options(offline: bool) -> Options {
        Options { offline, testbed: "/t".into(), json: false }
    }

    #[test]
    fn only_stages_that_build_nothing_run_beside_the_virtual_machine() {
        let all = names(&[], &[]);
        let beside = &all[place("vm") + 1..place("explain")];
        let quiet = ["operations", "environment", "backend-ops", "kld", "splits"];
        assert!(beside.iter().all(|name| quiet.iter().any(|quiet| name.starts_with(quiet))), "{beside:?}");
        assert!(!beside.is_empty());
    }

    #[test]
    fn stages_wait_for_those_beside_them() {
        for (index, stage) in STAGES.iter().enumerate() {
            let Some(beside) = stage.beside else { continue };
            assert!(index < place(beside.until) && place(beside.until) < STAGES.len(), "{}", stage.name);
        }
        // What is built beside others is what commands build, so that they find it.
        let release = &STAGES[place("release")];
        assert_eq!(release.arguments.split(' ').collect::<Vec<_>>(), crate::build::BACKEND);
    }

    #[test]
    fn stages_are_chosen_in_their_own_order() {
        assert_eq!(names(&["docs", "fmt"], &[]), ["fmt", "docs"]);
        let all = names(&[], &[]);
        assert_eq!(all.len(), STAGES.len());
        assert_eq!(names(&[], &["fmt"]), all[1..]);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "names are unique");
    }

    #[test]
    fn stages_and_commands_are_the_same() {
        let cli = Cli::command();
        let stages = || STAGES.iter().chain(NAMED_STAGES).filter(|stage| matches!(stage.program, Program::Xtask));
        for stage in stages() {
            let programs = if stage.name == REAL_PROGRAMS { " --programs x" } else { "" };
            let line = format!("xtask {}{programs}", stage.arguments);
            assert!(cli.clone().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
        // Timings and predictions are never judged, and `test` is this one.
        let others = ["bench", "predict", "test", "help"];
        for command in cli.get_subcommands().map(clap::Command::get_name) {
            let stage = stages().any(|stage| stage.arguments.split(' ').next() == Some(command));
            assert!(stage || others.contains(&command), "`{command}` is no stage of `test`");
        }
    }

    #[test]
    fn a_failed_and_an_absent_program_are_failed_stages() {
        let trial = xtask("trial", "demo");
        let run = |program: &str| run_stage(&trial, Path::new(program), None, false, &options(false)).unwrap();
        let failed = run("/bin/false");
        assert!(!failed.ok && failed.end.contains("exit status: 1"), "{}", failed.end);
        let absent = run("/nowhere/xtask");
        assert!(!absent.ok && absent.end.contains("cannot be started"), "{}", absent.end);
        let passed = run("/bin/true");
        assert_eq!(summary(&[failed, absent, passed]), "1 passed, 2 failed");
    }

    #[test]
    fn a_stage_beside_another_gives_way_and_keeps_its_arguments() {
        let trial = xtask("trial", "demo");
        let row = run_stage(
            &trial,
            Path::new("/bin/echo"),
            Some(Path::new("/p")),
            true,
            &Options { json: true, ..options(true) },
        );
        assert_eq!(row.unwrap().last_lines, ["demo --testbed /t --offline --programs /p"]);
        assert!(!run_stage(&trial, Path::new("/nowhere/xtask"), None, true, &options(false)).unwrap().ok);
    }

    #[test]
    fn the_last_lines_of_an_output_are_kept() {
        let text = (0..100).map(|line| format!("{line}\n")).collect::<String>() + "end";
        let last = pass_on(text.as_bytes());
        assert_eq!((last.len(), &*last[0], &*last[LAST_LINES - 1]), (LAST_LINES, "61", "end"));
    }

    #[test]
    fn options_are_handed_on() {
        let command = command(&xtask("trial", "kld"), Path::new("/x"), &options(true));
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["kld", "--testbed", "/t", "--offline"]);
    }

    #[test]
    fn a_stage_is_shown_as_it_would_be_typed() {
        let docs = STAGES.iter().find(|stage| stage.name == "docs").unwrap();
        assert_eq!(shown(docs), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --keep-going");
    }
}
