//! One run of stock `llama-completion`: a prompt in, text out, greedily, so that two runs can be compared.

use crate::output::on_or_off;
use crate::process::{self, Finished};
use crate::session::Session;
use crate::simulation::KernelReport;
use crate::stats::{DeviceStats, Stats};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Debug, Clone)]
pub struct Request {
    /// GGUF file, absolute.
    pub model: PathBuf,
    /// The prompt, taken as it is (no chat template).
    pub prompt: String,
    pub tokens: usize,
    /// Threads of the CPU backend and of the reference kernels; by default each chooses.
    pub threads: Option<usize>,
    /// Attention as one operation instead of two products and a softmax.
    pub flash_attention: bool,
}

impl Request {
    /// Adds the program's arguments to `command`. The temperature is 0 and the seed fixed.
    pub fn arguments(&self, command: &mut Command) {
        command.arg("-m").arg(&self.model);
        command.args(["-no-cnv", "-fa", on_or_off(self.flash_attention)]);
        command.args(["--temp", "0", "--seed", "1", "--offline", "--simple-io"]);
        command.args(["-n", &self.tokens.to_string(), "-p", &self.prompt]);
        set_threads(command, self.threads);
    }

    /// Runs `command` (an unstarted `llama-completion`); `watch` sees the text as it comes.
    pub fn run(&self, mut command: Command, watch: impl FnMut(&[u8])) -> Result<Finished> {
        self.arguments(&mut command);
        process::run_watched(&mut command, LIMIT, watch)
    }

    /// The text behind the prompt. Errors if the program failed or generated nothing.
    pub fn text(&self, command: Command) -> Result<String> {
        let finished = self.run(command, |_| ())?;
        require_success(&finished)?;
        self.text_in(&finished)
    }

    /// Runs it on our device to a good end; `prepare` adds to the command.
    pub fn on_device(&self, session: &Session, prepare: impl FnOnce(&mut Command)) -> Result<DeviceRun> {
        session.run("llama-completion", LIMIT, |command| {
            prepare(command);
            self.arguments(command);
        })
    }

    /// The text behind the prompt. Errors if there is none.
    pub fn text_in(&self, finished: &Finished) -> Result<String> {
        let text = finished.stdout.trim_start().strip_prefix(self.prompt.trim_start()).map_or("", str::trim_end);
        if text.is_empty() {
            bail!("llama-completion printed nothing after the prompt; its output:\n{}", finished.last_lines(8));
        }
        Ok(text.to_owned())
    }
}

/// Gives llama.cpp's CPU backend (`-t`) and the reference kernels' thread pool the same number of threads.
pub fn set_threads(command: &mut Command, threads: Option<usize>) {
    if let Some(threads) = threads {
        command.args(["-t", &threads.to_string()]).env("RAYON_NUM_THREADS", threads.to_string());
    }
}

/// Turns a failed end into an error with the program's last output.
pub fn require_success(finished: &Finished) -> Result<()> {
    if finished.success() {
        return Ok(());
    }
    bail!("llama.cpp failed: {}; its output:\n{}", finished.describe(), finished.last_lines(12));
}

/// What our library said on a program's standard error.
pub fn library_messages(stderr: &str) -> Vec<String> {
    process::meaningful(stderr)
        .filter(|line| line.contains("ggml-hsa") || line.contains("GGML_HSA_") || line.contains("libggml-hsa"))
        .filter(|line| !line.contains("load_backend: loaded"))
        .map(str::to_owned)
        .collect()
}

/// Which of our library's messages are errors: a request failed, even if llama.cpp continued.
/// llama.cpp writes the level, `E`, before the message.
pub fn errors(messages: &[String]) -> Vec<&str> {
    messages
        .iter()
        .map(String::as_str)
        .filter(|line| line.split(" ggml-hsa:").next().is_some_and(|start| start.ends_with(" E")))
        .collect()
}

/// A run of a stock program on our device.
#[derive(Debug)]
pub struct DeviceRun {
    pub finished: Finished,
    pub stats: Stats,
    /// What the simulated kernel device saw, if there is one.
    pub kernel: Option<KernelReport>,
}

impl DeviceRun {
    /// The counts of our device; errors if it was not used.
    pub fn device(&self) -> Result<&DeviceStats> {
        self.stats.used()
    }
}

/// A statistics file in a folder of its own, removed when dropped.
#[derive(Debug)]
pub struct StatsFile {
    dir: tempfile::TempDir,
}

impl StatsFile {
    pub fn new() -> Result<Self> {
        Ok(Self { dir: tempfile::Builder::new().prefix("ggml-hsa-stats-").tempdir()? })
    }

    pub fn path(&self) -> PathBuf {
        Path::new(self.dir.path()).join("stats.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            model: "/m.gguf".into(),
            prompt: "One two".into(),
            tokens: 4,
            threads: Some(2),
            flash_attention: false,
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        command
    }

    #[test]
    fn the_text_is_what_follows_the_prompt() {
        assert_eq!(request().text(shell("printf 'One two three\n\n'")).unwrap(), " three");
    }

    #[test]
    fn silence_and_failure_are_errors() {
        assert!(request().text(shell("printf 'One two'")).unwrap_err().to_string().contains("nothing after"));
        let error = request().text(shell("echo broken >&2; exit 1")).unwrap_err().to_string();
        assert!(error.contains("exit code 1") && error.contains("broken"), "{error}");
    }

    #[test]
    fn errors_are_distinguished_from_other_messages() {
        let lines = ["0.01 E ggml-hsa: HSA0: a graph failed", "0.01 I ggml-hsa: fine", "ggml-hsa: E ggml-hsa"]
            .map(str::to_owned);
        assert_eq!(errors(&lines), [lines[0].as_str()]);
    }

    #[test]
    fn only_our_messages_are_kept() {
        let text = "load_backend: loaded HSA backend from /x/libggml-hsa.so\nggml-hsa: no such device\nother\n";
        assert_eq!(library_messages(text), ["ggml-hsa: no such device"]);
    }
}
