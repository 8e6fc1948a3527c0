//! Plays scripts, each in a process of its own with a time limit.

use crate::record::Record;
use crate::scripts::{self, Script};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Map;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a process may take to go away that was killed: one that waits inside of the kernel may never.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How this program is started once more.
#[derive(Debug)]
pub struct OwnCommand {
    program: PathBuf,
    /// What is in front of the program's own arguments when a dynamic loader was started with the program as its argument.
    leading: Vec<OsString>,
}

impl OwnCommand {
    /// As it was started this time.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn find() -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program cannot be read; is /proc mounted?")?;
        let line = std::fs::read("/proc/self/cmdline").context("cannot read /proc/self/cmdline; is /proc mounted?")?;
        let words: Vec<&[u8]> = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0).collect();
        let own = std::env::args_os().len();
        let leading = words.len().saturating_sub(own.saturating_sub(1)).max(1);
        let leading = words[1..leading.min(words.len())].iter().map(|word| OsStr::from_bytes(word).to_owned());
        Ok(Self { program, leading: leading.collect() })
    }
}

/// How scripts are played.
#[derive(Debug)]
pub struct Player {
    /// This program.
    pub own: OwnCommand,
    /// The node.
    pub node: PathBuf,
    /// The longest that a script may take.
    pub limit: Duration,
}

impl Player {
    /// Plays `scripts` one after the other and hands each line on when it is there.
    ///
    /// # Errors
    /// When a process cannot be started, or `out` takes no more.
    pub fn play(&self, scripts: &[&Script], out: &mut dyn Write) -> Result<()> {
        for script in scripts {
            self.play_one(script.name, out)?;
        }
        Ok(())
    }

    fn play_one(&self, name: &str, out: &mut dyn Write) -> Result<()> {
        let mut child = Command::new(&self.own.program)
            .args(&self.own.leading)
            .args(["script", name, "--node"])
            .arg(&self.node)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // What a script forks is killed with it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} cannot be started for the script `{name}`", self.own.program.display()))?;
        let (sender, lines) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            // The thread ends with the last process that has the pipe; one that hangs in the kernel is not waited for.
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let end = Instant::now() + self.limit;
        let mut count = 0;
        let mut timed_out = false;
        loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    count += 1;
                    writeln!(out, "{line}")?;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    timed_out = true;
                    break;
                }
            }
        }
        let result = if timed_out {
            kill_group(child.id());
            match wait_until(&mut child, Instant::now() + KILL_TIMEOUT)? {
                Some(_) => "did not end in time".to_owned(),
                None => "did not end in time, and cannot be killed".to_owned(),
            }
        } else {
            match wait_until(&mut child, end.max(Instant::now() + KILL_TIMEOUT))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => format!("ended with {status}"),
                None => "closed its output and did not end".to_owned(),
            }
        };
        let record = Record {
            script: name.to_owned(),
            step: count + 1,
            call: "the script".to_owned(),
            structure: None,
            input: Map::new(),
            result,
            output: Map::new(),
        };
        writeln!(out, "{}", serde_json::to_string(&record)?)?;
        Ok(())
    }
}

/// Ends all processes of a group that was started here.
fn kill_group(leader: u32) {
    if let Ok(leader @ 2..) = i32::try_from(leader) {
        // They may be gone already.
        let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    }
}

fn wait_until(child: &mut Child, end: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context("a script's process cannot be waited for")? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Plays one script in this process.
///
/// # Errors
/// When there is no such script.
pub fn here(name: &str, node: &Path) -> Result<()> {
    let script = scripts::all().find(|script| script.name == name);
    let script = script.with_context(|| format!("there is no script `{name}`; `list` names them"))?;
    let mut probe = crate::probe::Probe::new(node, name);
    script.run(&mut probe);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_started_directly_has_nothing_in_front() {
        let own = OwnCommand::find().unwrap();
        assert!(own.leading.is_empty(), "{own:?}");
        assert!(own.program.is_absolute());
    }

    #[test]
    fn what_does_not_end_is_killed_and_recorded() {
        let sleep =
            OwnCommand { program: "/bin/sh".into(), leading: vec!["-c".into(), "echo '{}'; exec sleep 30".into()] };
        let player = Player { own: sleep, node: "/nowhere".into(), limit: Duration::from_millis(300) };
        let mut out = Vec::new();
        player.play(&[scripts::all().next().unwrap()], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("\"step\":2,\"call\":\"the script\",\"result\":\"did not end in time\"}\n"), "{text}");
    }

    #[test]
    fn what_breaks_is_recorded_and_the_next_continues() {
        let breaks = OwnCommand { program: "/bin/sh".into(), leading: vec!["-c".into(), "kill -SEGV $$".into()] };
        let player = Player { own: breaks, node: "/nowhere".into(), limit: Duration::from_secs(20) };
        let mut out = Vec::new();
        let two: Vec<&Script> = scripts::all().take(2).collect();
        player.play(&two, &mut out).unwrap();
        let records = crate::record::read(&String::from_utf8(out).unwrap()).unwrap();
        assert_eq!(records.len(), 2);
        assert!(records[1].result.contains("SIGSEGV"), "{}", records[1].result);
    }
}
