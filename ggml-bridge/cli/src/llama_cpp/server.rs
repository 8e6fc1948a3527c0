//! `llama-server` on a device that only plans, for the time of some requests.
//!
//! It listens on a socket in a folder of its own and not on the network. Prompts are lists of tokens, so that a batch has as many tokens as
//! are wanted, and what is behind others in the cache is the next request with a longer prompt. Only options that all versions have are on
//! the command line; others are variables, which older versions ignore.

use super::graphs::Reader;
use super::http::{Answer, request};
use super::{Batch, Graph, GraphSource};
use crate::child::Child;
use aie_jit_iron::settings::GGML_HSA_KERNEL_CACHE_CLEAR;
use aie_ops::Node;
use ggml_hsa::settings::{
    GGML_HSA, GGML_HSA_DEVICES, GGML_HSA_GRAPHS, GGML_HSA_REQUIRE_ARRAY, GGML_HSA_STATS, GGML_HSA_TRACE,
};
use serde_json::{Value, json};
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
/// How long drafts of n-grams are. With drafts of a batch llama-server reserves memory for the logits of a whole batch, as other programs do,
/// and not of one token. Where tensors lie decides what can be fused. Nothing is drafted, as nothing is generated.
const DRAFT_LENGTH: &str = "--spec-ngram-simple-size-m";
/// A token that every vocabulary has, and not the first, which is the most likely one where all are zero.
const TOKEN: u32 = 2;
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
    /// Tokens in its cache that the next prompt can go on with.
    placed: usize,
    /// Graphs of a batch.
    parts: usize,
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
        let mut child = Child::start(command).map_err(|cause| format!("{name} cannot be started: {cause}"))?;
        child.end_with_this_process();
        let graphs = Reader::of(folder.path().join("graphs"));
        let mut server = Server {
            child: Some(child),
            folder,
            graphs,
            foreseen: Vec::new(),
            placed: 0,
            parts: 1,
            embeds: self.embeds,
        };
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

    /// Whether its help names `option`.
    fn knows(&self, option: &str) -> bool {
        let output = Command::new(self.program).arg("--help").stdin(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(option))
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
        } else if self.knows(DRAFT_LENGTH) {
            let length = self.batch.saturating_sub(1).max(1).to_string();
            command.args(["--spec-type", "ngram-simple", DRAFT_LENGTH, &length]);
        }
        for name in ["LLAMA_API_KEY", "LLAMA_ARG_API_PREFIX", "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"] {
            command.env_remove(name);
        }
        // The user's files and checks of runs are not meant for this one, and looking at a model empties no cache.
        for variable in [&GGML_HSA_STATS, &GGML_HSA_TRACE, &GGML_HSA_REQUIRE_ARRAY, &GGML_HSA_KERNEL_CACHE_CLEAR] {
            command.env_remove(variable.name);
            if let Some(older) = variable.older {
                command.env_remove(older);
            }
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

    /// Has a prompt of `tokens` tokens computed, and the first token that it generates, if that is `decoded`. If it `continues`, those in the
    /// cache are its beginning, as far as the server can use them. Returns the graphs, and how many tokens of the prompt were computed.
    fn prompt(&mut self, tokens: usize, continues: bool, decoded: bool) -> Result<(Vec<Graph>, usize), String> {
        let prompt = vec![TOKEN; tokens];
        let (path, content) = match self.embeds {
            true => ("/embedding", json!({"content": prompt})),
            false => {
                // The first token comes with the prompt; that there is a second one is why it is computed.
                let count = if decoded { 2 } else { 0 };
                let how = json!({"prompt": prompt, "n_predict": count, "cache_prompt": continues, "temperature": 0, "ignore_eos": true});
                ("/completion", how)
            }
        };
        let answer = match request(&self.socket(), path, Some(&content.to_string())) {
            Ok(Answer { status: 200, content }) => content,
            Ok(Answer { status, content }) => {
                return Err(format!("llama-server does not compute {tokens} tokens (status {status}): {content}"));
            }
            Err(cause) => {
                let said = self.said();
                return Err(format!(
                    "llama-server ended at a prompt of {tokens} tokens: {cause}; its last lines:\n{said}"
                ));
            }
        };
        // What is generated is not what the next prompt goes on with.
        self.placed = if decoded { 0 } else { tokens };
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let computed = answer["timings"]["prompt_n"].as_u64().and_then(|computed| usize::try_from(computed).ok());
        Ok((self.computed()?, computed.unwrap_or(tokens)))
    }

    /// Has `past` tokens in the cache.
    fn advance(&mut self, past: usize) -> Result<(), String> {
        match past == self.placed {
            true => Ok(()),
            false => self.prompt(past, past > self.placed, false).map(drop),
        }
    }
}

impl GraphSource for Server {
    fn graphs(&mut self, Batch { tokens, past }: Batch) -> Result<Vec<Graph>, String> {
        let mut graphs = match (tokens, past) {
            (_, 0) => {
                let (graphs, _) = self.prompt(tokens, false, false)?;
                self.parts = graphs.len();
                graphs
            }
            (1, _) => {
                let (mut graphs, _) = self.prompt(past, past > self.placed, true)?;
                graphs.split_off(graphs.len().saturating_sub(self.parts.max(1)))
            }
            _ => {
                self.advance(past)?;
                match self.prompt(past + tokens, true, false)? {
                    (graphs, computed) if computed == tokens => graphs,
                    _ => return Ok(Vec::new()),
                }
            }
        };
        if graphs.is_empty() {
            let said = self.said();
            return Err(format!(
                "llama-server gives the device nothing of the model to compute; its last lines:\n{said}"
            ));
        }
        if let (Some(first), false) = (graphs.first_mut(), self.foreseen.is_empty()) {
            Arc::make_mut(first).foreseen.append(&mut self.foreseen);
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
