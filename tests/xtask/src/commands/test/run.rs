//! Running one stage: its output, its end and what it took.

use super::stage::Stage;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write, stderr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use wait4::{ResUse, Wait4};

/// How much a stage gives way to one beside it that has a clock.
const NICENESS: &str = "10";

/// Lines of a failed stage that are shown again at the end.
const LAST_LINES: usize = 40;

/// Where a stage's output goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// To where ours goes: a terminal may show it with colours.
    Ours,
    /// To our standard error, with its last lines kept.
    StandardError,
    /// Into this file, until the stage has ended.
    File(PathBuf),
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub stage: &'static str,
    /// The stage's command as a user would type it.
    pub command: String,
    pub end: String,
    pub seconds: f64,
    /// Of processors, with those of all programs that it has started and waited for.
    pub processor_seconds: f64,
    pub ok: bool,
    /// Its last lines, where they were not printed to a terminal.
    #[serde(skip)]
    pub last_lines: VecDeque<String>,
}

/// Runs a stage's command to its end.
pub fn run(stage: &Stage, command: Command, output: &Output) -> Row {
    let (started, mut last_lines) = (Instant::now(), VecDeque::new());
    let ended = match output {
        Output::Ours => finish(command),
        Output::StandardError => passing_on(command, &mut last_lines),
        Output::File(path) => File::create(path).and_then(|file| to(file, command)),
    };
    let seconds = started.elapsed().as_secs_f64();
    // A stage that cannot be started is a failed one; the others still have something to say.
    let (ok, end, processor_seconds) = match ended {
        Ok(ResUse { status, rusage }) => {
            (status.success(), status.to_string(), (rusage.utime + rusage.stime).as_secs_f64())
        }
        Err(error) => (false, format!("cannot be started: {error}"), 0.0),
    };
    Row { stage: stage.name, command: stage.shown(), end, seconds, processor_seconds, ok, last_lines }
}

impl Row {
    /// Prints what the stage has written into its file.
    pub fn print(&mut self, output: &Output) {
        if let Output::File(path) = output
            && let Ok(file) = File::open(path)
        {
            self.last_lines = pass_on(file);
            let _ = fs::remove_file(path);
        }
    }
}

/// Starts a command, and waits for its end.
fn finish(mut command: Command) -> io::Result<ResUse> {
    let child = command.spawn();
    // It has our ends of the pipe.
    drop(command);
    child?.wait4()
}

fn to(file: File, mut command: Command) -> io::Result<ResUse> {
    command.stdout(file.try_clone()?).stderr(file);
    finish(command)
}

fn passing_on(mut command: Command, last_lines: &mut VecDeque<String>) -> io::Result<ResUse> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || sender.send(pass_on(reader)));
    let ended = finish(command);
    // What a stage has left running keeps the pipe open.
    *last_lines = lines.recv_timeout(Duration::from_secs(10)).unwrap_or_default();
    ended
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

/// The same command, which gives way to others.
pub fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", NICENESS]).arg(command.get_program()).args(command.get_args());
    nice.envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    // cargo runs in the workspace.
    command.get_current_dir().map(|folder| nice.current_dir(folder));
    nice
}

#[cfg(test)]
mod tests {
    use super::super::stage::Company;
    use super::super::stage::tests::trial;
    use super::*;

    const TRIAL: Stage = trial("trial", &[], Company::Any);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failed_and_an_absent_program_are_failed_stages() {
        let folder = tempfile::tempdir().unwrap();
        for output in [Output::StandardError, Output::File(folder.path().join("log"))] {
            let run = |program: &str| run(&TRIAL, Command::new(program), &output);
            let failed = run("/bin/false");
            assert!(!failed.ok && failed.end.contains("exit status: 1"), "{}", failed.end);
            let absent = run("/nowhere/xtask");
            assert!(!absent.ok && absent.end.contains("cannot be started"), "{}", absent.end);
            assert!(run("/bin/true").ok);
        }
    }

    #[test]
    fn both_outputs_of_a_stage_are_in_its_file_until_they_are_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let output = Output::File(path.clone());
        let mut row = run(&TRIAL, shell("echo one; echo two >&2; exit 3"), &output);
        assert!(row.last_lines.is_empty() && fs::read_to_string(&path).unwrap() == "one\ntwo\n");
        row.print(&output);
        assert_eq!(row.last_lines, ["one", "two"]);
        assert!(!path.exists() && row.end.contains("exit status: 3"));
        row.print(&Output::StandardError);
        assert_eq!(row.last_lines, ["one", "two"]);
    }

    #[test]
    fn a_command_that_gives_way_keeps_its_arguments_and_settings() {
        let mut command = shell("echo $0 $SETTING; pwd; nice");
        command.arg("argument").env("SETTING", "x").current_dir("/");
        let last_lines = run(&TRIAL, nice(&command), &Output::StandardError).last_lines;
        assert_eq!(last_lines.iter().take(2).collect::<Vec<_>>(), ["argument x", "/"]);
        let niceness: u32 = last_lines[2].parse().unwrap();
        assert!((10..20).contains(&niceness), "{niceness}");
        assert!(!run(&TRIAL, nice(&Command::new("/nowhere/xtask")), &Output::StandardError).ok);
    }

    #[test]
    fn the_last_lines_of_an_output_are_kept() {
        let text = (0..100).map(|line| format!("{line}\n")).collect::<String>() + "end";
        let last = pass_on(text.as_bytes());
        assert_eq!((last.len(), &*last[0], &*last[LAST_LINES - 1]), (LAST_LINES, "61", "end"));
    }
}
