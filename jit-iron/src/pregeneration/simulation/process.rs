//! A conversation of one request with the simulator.

use aie_ops::Node;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How much of what the simulator printed is shown, in lines.
const LINES: usize = 4;
/// How often the end is looked for.
const TICK: Duration = Duration::from_millis(20);

/// What is asked; the fields are those of `simulate.py`.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    pub id: u64,
    pub kernel: &'a str,
    pub arch: &'a str,
    pub node: &'a Node,
    pub source: &'a str,
    pub function: &'a str,
    pub kernels_dir: &'a Path,
    pub inputs: Vec<Option<PathBuf>>,
    pub output: &'a Path,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Simulate(&'a Request<'a>),
}

/// What is answered.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Done {
        cores: u64,
        columns: u64,
    },
    Failed {
        cause: String,
        #[serde(default)]
        place: Option<String>,
    },
    Unsupported {
        cause: String,
    },
}

/// Whether `python` has what the simulator imports.
///
/// # Errors
/// It cannot be started, is too old, or lacks a package.
pub(super) fn check(python: &Path) -> Result<(), String> {
    let imports = "import sys; assert sys.version_info >= (3, 10), sys.version; import numpy, ml_dtypes";
    let output = Command::new(python).args(["-c", imports]).output().map_err(|error| not_started(python, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!(
        "{} cannot run the simulator, which needs Python 3.10 or later with numpy and ml_dtypes: {last}; install the packages \
         (`pip install numpy ml_dtypes`), or name a Python that has them with GGML_HSA_JIT_PYTHON",
        python.display()
    ))
}

fn not_started(python: &Path, error: &io::Error) -> String {
    format!(
        "{} cannot be started: {error}; install Python 3.10 or later, or name one with GGML_HSA_JIT_PYTHON",
        python.display()
    )
}

/// Starts the simulator, asks, and waits for its end; `folder` is for what it prints.
///
/// # Errors
/// It cannot be started, takes longer than `limit`, or says nothing that is an answer.
pub(super) fn ask(
    python: &Path,
    program: &Path,
    folder: &Path,
    request: &Request<'_>,
    limit: Duration,
) -> Result<Answer, String> {
    let line = serde_json::to_vec(&Line::Simulate(request)).map_err(|error| error.to_string())?;
    let [said, errors] = ["answer", "errors"].map(|name| folder.join(name));
    let open = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut command = Command::new(python);
    command.arg(program).stdin(Stdio::piped()).stdout(open(&said)?).stderr(open(&errors)?).process_group(0);
    let mut child = command.spawn().map_err(|error| not_started(python, &error))?;
    let group = Pid::from_child(&child);
    // A simulator that has ended takes no request; what it printed says why.
    if let Some(mut input) = child.stdin.take() {
        drop(input.write_all(&line).and_then(|()| input.write_all(b"\n")));
    }
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < limit => std::thread::sleep(TICK),
            outcome => {
                let _gone = kill_process_group(group, Signal::KILL);
                drop(child.wait());
                return Err(match outcome {
                    Err(error) => error.to_string(),
                    _ => format!("it took longer than {} s and was ended", limit.as_secs()),
                });
            }
        }
    };
    // Compilers that it may have left behind.
    let _gone = kill_process_group(group, Signal::KILL);
    answered(&fs::read(&said).unwrap_or_default(), &fs::read(&errors).unwrap_or_default(), status)
}

fn answered(said: &[u8], errors: &[u8], status: ExitStatus) -> Result<Answer, String> {
    let line = String::from_utf8_lossy(said);
    match serde_json::from_str(line.lines().next_back().unwrap_or_default()) {
        Ok(answer) => Ok(answer),
        Err(_) => {
            let errors = String::from_utf8_lossy(errors);
            let last: Vec<&str> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = last[last.len().saturating_sub(LINES)..].join(" | ");
            Err(format!("the simulator ended without an answer ({status}): {last}"))
        }
    }
}
