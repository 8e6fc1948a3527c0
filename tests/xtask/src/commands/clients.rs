//! `cargo xtask clients`: stock programs that people use llama.cpp through. Each gets the variables that `ggml-hsa env` prints
//! and nothing else of ours, has to generate the text that llama.cpp's own program generates, and to run operations on the array.

mod bindings;
mod draft;
mod embeddings;
mod lemonade;
mod llama;
mod whisper;

use crate::build;
use crate::generation::Request;
use crate::process::run_helper;
use crate::session::{DeviceOptions, DriverName, Options, Session};
use crate::stats::Stats;
use crate::steps::Steps;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const PROMPT: &str = "The three states of matter are";
const TOKENS: usize = 8;

/// Use the device through stock programs: llama-server, llama-bench, bindings for Python and Node.js, lemonade-server,
/// whisper.cpp.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask clients
  cargo xtask clients llama-server lemonade-server

They come from Debian, PyPI and npm into target/. docs/clients.md says how each is used.
Exit code 1 if one of them failed.")]
pub struct ClientsArgs {
    /// Only these
    #[arg(value_enum)]
    names: Vec<Client>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Client {
    LlamaServer,
    LlamaBench,
    Embeddings,
    DraftModel,
    LlamaCppPySync,
    NodeLlamaCpp,
    LemonadeServer,
    Whisper,
}

struct Setup<'a> {
    options: &'a Options,
    session: Session,
    /// What `ggml-hsa env` prints.
    variables: BTreeMap<String, String>,
    model: PathBuf,
    work: tempfile::TempDir,
}

pub fn run(args: &ClientsArgs, options: &Options) -> Result<()> {
    let setup = Setup::new(options)?;
    let mut steps = Steps::default();
    for client in Client::value_variants().iter().filter(|client| args.names.is_empty() || args.names.contains(client))
    {
        let name = client.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        steps.check(&name, || match client {
            Client::LlamaServer => llama::server(&setup),
            Client::LlamaBench => llama::bench(&setup),
            Client::Embeddings => embeddings::serve(&setup),
            Client::DraftModel => draft::serve(&setup),
            Client::LlamaCppPySync => bindings::python(&setup),
            Client::NodeLlamaCpp => bindings::node(&setup),
            Client::LemonadeServer => lemonade::serve(&setup),
            Client::Whisper => whisper::hear(&setup),
        });
    }
    steps.report()?.finish("clients", options)
}

impl<'a> Setup<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let session = Session::open(options, &DeviceOptions { device: None, library: None })?;
        let program = build::cargo(&build::BACKEND, options.offline)?.executable("bin", "ggml-hsa")?;
        let mut command = Command::new(program);
        command.args(["env", "--json", "--device", DriverName::Mock.first_device(), "--library"]).arg(&session.library);
        let variables =
            serde_json::from_str(&run_helper(&mut command, LIMIT)?).context("ggml-hsa env printed no JSON")?;
        let model = session.model(None)?;
        Ok(Self {
            options,
            session,
            variables,
            model,
            work: tempfile::Builder::new().prefix("xtask-clients-").tempdir()?,
        })
    }

    /// Gives a program the variables, and has it write statistics; returns their file.
    fn prepare(&self, command: &mut Command, name: &str) -> PathBuf {
        let stats = self.work.path().join(format!("{name}.json"));
        command.envs(&self.variables).env("GGML_HSA_STATS", &stats);
        self.session.kernels(command);
        stats
    }

    /// What llama.cpp's own program generates.
    fn expected(&self) -> Result<String> {
        let model = self.model.clone();
        let request =
            Request { model, prompt: PROMPT.to_owned(), tokens: TOKENS, threads: None, flash_attention: false };
        request.text(self.session.on_device("llama-completion", None)?)
    }

    /// Errors unless a program generated the same.
    fn judge(&self, text: &str) -> Result<()> {
        let expected = self.expected()?;
        ensure!(text.trim() == expected.trim(), "it generated {text:?}, and llama-completion {expected:?}");
        Ok(())
    }
}

/// Hardware contexts of the simulated device.
const CONTEXTS: u64 = 16;

/// Operations on the array, of which there have to be some, and what contexts they took.
fn on_the_array(stats: &Path) -> Result<String> {
    let stats = Stats::read(stats)?;
    let device = stats.used()?;
    let (array, counters, graphs) = (device.array(), &device.counters, device.graphs.computed);
    ensure!(array > 0, "no operation ran on the array");
    let (made, switches) = (counters.contexts_created, counters.context_switches);
    // All kernels of a graph are in one context, and contexts stay as long as the NPU has others.
    ensure!(
        switches <= graphs,
        "{switches} context switches for {graphs} graphs: kernels of a graph are in several contexts"
    );
    ensure!(made <= CONTEXTS, "{made} hardware contexts made: the NPU has {CONTEXTS}, so some were made again");
    Ok(format!("{array} operations on the array, {graphs} graphs, {made} hardware contexts, {switches} switches"))
}

/// A script or program of `tests/clients`.
fn script(name: &str) -> PathBuf {
    workspace::root().join("tests/clients").join(name)
}
