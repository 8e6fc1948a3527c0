//! `ggml-hsa explain`: what a model would do on a device: operations, kernels, memory and time, without running it.

mod text;

use crate::Ended;
use crate::model::{FlashAttention, Opened, SIMULATED, Subject, Wanted, places};
use aie_hal::Environment;
use clap::Args;
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa_cli::explain::Explanation;
use ggml_hsa_cli::explain::html::page;
use ggml_hsa_cli::explain::report::{Question, explain};
use ggml_hsa_cli::output::{say, show, write};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tell what a model would do on a device: operations, kernels, memory and time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa explain model.gguf
  ggml-hsa explain model.gguf --ctx 4096 --past 1000         a token behind 1000 others
  ggml-hsa explain model.gguf --device mock:aie2?execute=emulated    with native kernels
  ggml-hsa explain model.gguf --json | jq '.passes[0].predicted'
  ggml-hsa explain model.gguf --html model.html              with pictures, for a browser

llama.cpp has to be installed: its llama-server builds the graphs, on a device that only plans, so that every family it knows is explained.
Nothing is computed, no weights are read by the device, and no kernel is compiled but those that take milliseconds, which are not kept. The
plan is made by the code that makes it in a run. Times are sums of published costs of others: nothing was measured on an NPU.

Exit code: 0 when the whole model is explained, 1 when llama.cpp leaves parts of it to other devices, 2 when the command line, the model, the
device or llama.cpp cannot be used.")]
pub struct ExplainArguments {
    #[command(flatten)]
    subject: Subject,
    /// Tokens in the cache when one more is decoded
    #[arg(long, value_name = "N", default_value_t = 0)]
    past: u32,
    /// Tokens of the prompt's first batch [default: as many as --batch and the context allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    prompt: Option<u32>,
    /// Tokens that are computed at once at most, as llama.cpp's `-ub`
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// llama.cpp's `-fa`
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = FlashAttention::On)]
    flash_attention: FlashAttention,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Write the result with pictures into a file, a page that needs no network, instead of printing text; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &ExplainArguments) -> Ended {
    let explanation = explained(arguments)?;
    match &arguments.html {
        Some(path) => {
            write(path, &page(&explanation)).map_err(|cause| format!("{cause}; --html - prints the page"))?;
        }
        None => show(arguments.json, &explanation, |explanation| say(&text::text(explanation))),
    }
    Ok(if explanation.model.whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn explained(arguments: &ExplainArguments) -> Result<Explanation, Box<dyn Error>> {
    let environment = Environment::process();
    let subject = &arguments.subject;
    let Opened { model, device, config } = subject.open(environment, Some(SIMULATED))?;
    let tokens = subject.context(&model)?;
    let asked = arguments.past as usize;
    if asked >= tokens {
        return Err(format!("--past {asked}: the context has {tokens} tokens, one of which is decoded").into());
    }
    let batch = arguments.batch as usize;
    let (context, most) = places(tokens, batch);
    let prompt = arguments.prompt.map_or(most, |prompt| prompt as usize);
    if prompt > most {
        return Err(format!(
            "--prompt {prompt}: a batch has at most {most} tokens, the smaller of --batch and the context without the token behind it"
        )
        .into());
    }
    let stores = KernelStores::foreseeing(&config, environment);
    let store = stores.of(&*device)?;
    let flash = arguments.flash_attention == FlashAttention::On;
    let embeds = model.embeds();
    let mut server =
        subject.start(environment, &device.info().arch, Wanted { context: tokens, batch, flash, embeds })?;
    // The server leaves the last place of its context free; with a token less the graph is the same.
    let past = asked.min(context - 2);
    let question = Question { context, past, prompt, flash, embeds };
    Ok(explain(&model, &question, &mut server, &device, &store, &config)?)
}
