//! `llama-server` on a device that only plans, for the time of some requests.
//!
//! It listens on a socket in a folder of its own and not on the network. Prompts are lists of tokens, so that a batch has as many tokens as
//! are wanted, and what is behind others in the cache is the next request with a longer prompt. Only options that all versions have are on
//! the command line; others are variables, which older versions ignore.

use super::graphs::Reader;
use super::http::{Answer, request};
use super::{Batch, Graph, GraphSource};
use crate::child::Child;
use aie_ops::Node;
use ggml_hsa::settings::{
    GGML_HSA, GGML_HSA_DEVICES, GGML_HSA_GRAPHS, GGML_HSA_REQUIRE_ARRAY, GGML_HSA_STATS, GGML_HSA_TRACE,
};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// How often it is asked whether the model is loaded.
const PAUSE: Duration = Duration::from_millis(20);
/// A token that every vocabulary has.
const TOKEN: u32 = 1;
/// Lines of its log that an error shows.
const SHOWN: usize = 12;

/// What is started.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program.
    pub program: &'a Path,
    /// Variables that make it load the library.
    pub library: Vec<(&'static str, OsString)>,
    /// The generation that is planned for.
    pub arch: &'a str,
    /// The model.
    pub model: &'a Path,
    /// Tokens of the context.
    pub context: usize,
    /// Tokens that are computed at once at most.
    pub batch: usize,
    /// Whether attention is one operation.
    pub flash: bool,
    /// Whether the model makes embeddings of a text and continues none.
    pub embeds: bool,
}

/// A running server; ended when dropped.
pub struct Server {
    child: Option<Child>,
    folder: TempDir,
    graphs: Reader,
    /// What later graphs may have, until the first of them.
    foreseen: Vec<Node>,
    /// Tokens in its cache.
    placed: usize,
    embeds: bool,
}

impl Start<'_> {
    /// Starts it and waits until the model is loaded.
    ///
    /// # Errors
    /// It cannot be started, or has ended, with the last lines of its log.
    pub fn run(&self) -> Result<Server, String> {
        let name = self.program.display();
        let no_place = |cause: io::Error| format!("there is no place for temporary files: {cause}");
        let folder = tempfile::Builder::new().prefix("ggml-hsa-plan-").tempdir().map_err(no_place)?;
        let log = File::create(folder.path().join("log")).map_err(no_place)?;
        let mut command = self.command(folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(no_place)?).stderr(log);
        let child = Child::start(command).map_err(|cause| format!("{name} cannot be started: {cause}"))?;
        let graphs = Reader::of(folder.path().join("graphs"));
        let mut server =
            Server { child: Some(child), folder, graphs, foreseen: Vec::new(), placed: 0, embeds: self.embeds };
        loop {
            if server.child.as_ref().is_none_or(|child| child.has_ended().unwrap_or(true)) {
                return Err(format!("{name} has ended without loading the model; its last lines:\n{}", server.said()));
            }
            match request(&server.socket(), "/health", None) {
                Ok(Answer { status: 200, .. }) => break,
                _ => sleep(PAUSE),
            }
        }
        // Skip what it computes by itself when it starts. The nodes that later graphs may have came with that.
        server.foreseen = server.computed()?.iter().flat_map(|graph| graph.foreseen.clone()).collect();
        Ok(server)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.arg("-m").arg(self.model).args(["--device", "HSA0", "--no-warmup", "-np", "1"]);
        // 2048 is llama.cpp's default of the logical batch, which is at least a batch.
        for (option, tokens) in [("-c", self.context), ("-ub", self.batch), ("-b", self.batch.max(2048))] {
            command.args([option, &tokens.to_string()]);
        }
        command.arg("--host").arg(socket(folder));
        if self.embeds {
            command.arg("--embedding");
        }
        for name in ["LLAMA_API_KEY", "LLAMA_ARG_API_PREFIX", "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"] {
            command.env_remove(name);
        }
        // The user's files and checks of runs are not meant for this one.
        for variable in [&GGML_HSA_STATS, &GGML_HSA_TRACE, &GGML_HSA_REQUIRE_ARRAY] {
            command.env_remove(variable.name);
        }
        command.env("LLAMA_ARG_FLASH_ATTN", if self.flash { "on" } else { "off" });
        // Options are not fitted to memory, and batches are not split to save copies of the cache.
        command.env("LLAMA_ARG_FIT", "off").env("LLAMA_ARG_CACHE_RAM", "0").env("LLAMA_ARG_CTX_CHECKPOINTS", "0");
        command.envs(self.library.iter().map(|(name, value)| (name, value))).env(GGML_HSA.name, "on");
        command.env(GGML_HSA_DEVICES.name, format!("{}:{}?execute=plan", aie_driver_mock::SCHEME, self.arch));
        command.env(GGML_HSA_GRAPHS.name, folder.join("graphs"));
        command
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("s.sock")
}

impl Server {
    fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// The last lines of its log.
    fn said(&self) -> String {
        let text = fs::read(self.folder.path().join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    fn computed(&mut self) -> Result<Vec<Graph>, String> {
        self.graphs.computed().map_err(|cause| format!("the graphs of llama-server cannot be read: {cause}"))
    }

    /// Has a prompt of `tokens` tokens computed. If it `continues`, those in the cache are its beginning.
    fn prompt(&mut self, tokens: usize, continues: bool) -> Result<Vec<Graph>, String> {
        let prompt = vec![TOKEN; tokens];
        let (path, content) = match self.embeds {
            true => ("/embedding", json!({"content": prompt})),
            false => ("/completion", json!({"prompt": prompt, "n_predict": 0, "cache_prompt": continues})),
        };
        match request(&self.socket(), path, Some(&content.to_string())) {
            Ok(Answer { status: 200, .. }) => {}
            Ok(Answer { status, content }) => {
                return Err(format!("llama-server does not compute {tokens} tokens (status {status}): {content}"));
            }
            Err(cause) => {
                return Err(format!(
                    "llama-server ended at a prompt of {tokens} tokens: {cause}; its last lines:\n{}",
                    self.said()
                ));
            }
        }
        self.placed = tokens;
        self.computed()
    }
}

impl GraphSource for Server {
    fn graphs(&mut self, Batch { tokens, past }: Batch) -> Result<Vec<Graph>, String> {
        if past > 0 && past != self.placed {
            self.prompt(past, past > self.placed)?;
        }
        let mut graphs = self.prompt(past + tokens, past > 0)?;
        if let (Some(first), false) = (graphs.first_mut(), self.foreseen.is_empty()) {
            Arc::make_mut(first).foreseen.append(&mut self.foreseen);
        }
        if graphs.is_empty() {
            return Err(format!(
                "llama-server gives the device nothing of the model to compute; its last lines:\n{}",
                self.said()
            ));
        }
        Ok(graphs)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // An error means that it is gone already.
            let _ = child.kill();
        }
    }
}
