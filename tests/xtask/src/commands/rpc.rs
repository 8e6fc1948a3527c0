//! `cargo xtask rpc`: past one machine. The stock `ggml-rpc-server` serves our device on loopback, and llama.cpp at the
//! other end, which knows nothing of our library, generates the same text as it does locally.

use crate::generation::Request;
use crate::output::Report;
use crate::server::{Server, free_port};
use crate::session::{DEVICE_NAME, DeviceOptions, Options, Session};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

const TOKENS: usize = 48;

/// Serve our device with stock ggml-rpc-server on loopback and compare the text with a local run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask rpc
  cargo xtask rpc --prompt \"Once upon a time\"

Exit code 1 if the texts differ or the server did not offer our device.")]
pub struct RpcArgs {
    /// GGUF model; by default the small one of the testbed
    #[arg(long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// The text to continue
    #[arg(long, value_name = "TEXT", default_value = "Once upon a time, a young engineer")]
    prompt: String,
    #[command(flatten)]
    device: DeviceOptions,
}

fn start(session: &Session, dir: &Path) -> Result<Server> {
    let port = free_port()?;
    let mut command = session.on_device("ggml-rpc-server", None)?;
    command.args(["-H", "127.0.0.1", "-p", &port.to_string(), "-d", DEVICE_NAME]);
    Server::start("ggml-rpc-server", command, port, dir)
}

pub fn run(args: &RpcArgs, options: &Options) -> Result<()> {
    let session = Session::open(options, &args.device)?;
    let request = Request {
        model: session.model(args.model.as_deref())?,
        prompt: args.prompt.clone(),
        tokens: TOKENS,
        threads: None,
        flash_attention: false,
    };
    let local = request.text(session.on_device("llama-completion", None)?).context("locally")?;
    let dir = tempfile::Builder::new().prefix("ggml-hsa-rpc-").tempdir()?;
    let mut server = start(&session, dir.path())?;
    let mut client = session.on_cpu("llama-completion")?;
    client.args(["--rpc", &format!("127.0.0.1:{}", server.port)]);
    let remote = request.text(client);
    let said = server.said();
    let remote = remote.with_context(|| format!("through the server, with the output\n{said}"))?;
    server.check_alive()?;
    if !said.lines().any(|line| line.trim_start().starts_with(&format!("{DEVICE_NAME}:"))) {
        bail!("ggml-rpc-server does not list {DEVICE_NAME} among its devices; its output:\n{said}");
    }
    // The first connection is our own wait for the port.
    let connections = said.matches("Accepted client connection").count().saturating_sub(1);
    if connections == 0 {
        bail!("llama.cpp never connected to the server; its output:\n{said}");
    }
    let mut report = Report::default();
    report.line(format!("local:  {}{local}\nremote: {}{remote}", args.prompt, args.prompt));
    if local != remote {
        report.problems.push("the text generated through the server differs from the local one".to_owned());
    }
    for (name, value) in [("prompt", &args.prompt), ("local", &local), ("remote", &remote)] {
        report.field(name, value)?;
    }
    report.field("connections", connections)?;
    report.finish("rpc", options)
}
