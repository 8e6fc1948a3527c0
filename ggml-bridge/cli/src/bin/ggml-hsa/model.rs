//! What `explain` and `prebuild` share: a model file, and a device to plan for.

use crate::program::find;
use crate::surroundings::{arches, backend, config};
use aie_hal::{ArchRegistry, Device, Environment};
use clap::{Args, ValueEnum};
use ggml_hsa::config::Config;
use ggml_hsa::device::drivers;
use ggml_hsa::device::requested::{Message, requested};
use ggml_hsa::settings::GGML_HSA_DEVICES;
use ggml_hsa_cli::llama_cpp::server::{Server, Start};
use ggml_hsa_cli::model::ModelFile;
use ggml_hsa_cli::output::complain;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The device to plan for when the user names none and there is no NPU.
pub const SIMULATED: &str = "mock:aie2p";
/// llama.cpp counts keys in steps of so many, and makes contexts of whole steps.
pub const KEY_STEP: usize = 256;

/// A model and where it is to run.
#[derive(Debug, Args)]
pub struct Subject {
    /// The model
    pub model: PathBuf,
    /// Tokens of the context, as llama.cpp's `-c` [default: those that the model was trained for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// The device, as `ggml-hsa devices` lists them [default: the first that a run would use]
    #[arg(long, value_name = "URI")]
    device: Option<String>,
    /// The program of llama.cpp that builds the graphs [default: llama-server, in the folders of PATH]
    #[arg(long, value_name = "FILE")]
    llama_server: Option<PathBuf>,
    /// libggml-hsa.so, or a folder that has it [default: beside this program, else in ../lib or up to three folders below]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// llama.cpp's `-fa`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FlashAttention {
    /// Attention as one operation, which llama.cpp chooses by itself.
    On,
    /// Two products and what is between them.
    Off,
}

/// The context that llama.cpp makes of one of `tokens`, and the most tokens of a batch there that is to have at most `batch`: llama-server
/// leaves the last place free.
pub fn places(tokens: usize, batch: usize) -> (usize, usize) {
    let context = tokens.next_multiple_of(KEY_STEP);
    (context, batch.min(tokens).min(context - 1))
}

/// What llama.cpp is to be told of a model, with the meaning that [`Start`] gives it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Tokens of the context.
    pub context: usize,
    /// Tokens that are computed at once at most.
    pub batch: usize,
    /// Whether attention is one operation.
    pub flash: bool,
    /// Whether the model continues no text.
    pub embeds: bool,
}

/// What [`Subject`] names, opened.
pub struct Opened {
    /// The model.
    pub model: ModelFile,
    /// The device.
    pub device: Arc<dyn Device>,
    /// The settings.
    pub config: Config,
}

impl Subject {
    /// Reads the model and opens the device: the one that is named, or else the first that a run would use, or else `otherwise`. What
    /// was not named is said.
    ///
    /// # Errors
    /// Why one of them cannot be used; that there is no NPU, without `otherwise`.
    pub fn open(&self, environment: &Environment, otherwise: Option<&str>) -> Result<Opened, String> {
        let (config, arches) = (config(environment), arches());
        let model = ModelFile::open(&self.model).map_err(|cause| cause.to_string())?;
        let uri = match &self.device {
            Some(named) => named.clone(),
            None => default_device(&config, &arches, otherwise)?,
        };
        let opened = drivers::looking(arches, config.route).open(&uri).map_err(|cause| cause.to_string())?;
        let device = opened.into_iter().next().ok_or_else(|| format!("{uri} is no device"))?;
        Ok(Opened { model, device, config })
    }

    /// Tokens of the context. Says when they are more than the model was trained for, as llama.cpp does.
    ///
    /// # Errors
    /// The file does not say how many that are.
    pub fn context(&self, model: &ModelFile) -> Result<usize, String> {
        let trained = model.context().map_err(|cause| format!("{}: {cause}", self.model.display()))?;
        let Some(asked) = self.ctx else { return Ok(trained) };
        let context = asked as usize;
        if context > trained {
            complain(&format!(
                "note: --ctx {asked}: the model was trained for {trained} tokens, and may write nonsense behind them"
            ));
        }
        Ok(context)
    }

    /// Starts llama.cpp with the model, for a device of the generation `arch`.
    ///
    /// # Errors
    /// The program or the library is not found, or the model cannot be loaded.
    pub fn start(&self, environment: &Environment, arch: &str, wanted: Wanted) -> Result<Server, String> {
        let program = self.llama_server.as_deref().unwrap_or(Path::new("llama-server"));
        let program = find(program, environment)
            .map_err(|cause| format!("llama.cpp builds the graphs: {cause}; --llama-server FILE names it"))?;
        // The program may be a script that goes elsewhere.
        let model = std::path::absolute(&self.model).map_err(|cause| format!("{}: {cause}", self.model.display()))?;
        let Wanted { context, batch, flash, embeds } = wanted;
        let library = vec![backend(self.library.as_deref())?];
        Start { program: &program, library, arch, model: &model, context, batch, flash, embeds }.run()
    }
}

/// The device that a run would use first, or else `otherwise`; says which it is.
fn default_device(config: &Config, arches: &ArchRegistry, otherwise: Option<&str>) -> Result<String, String> {
    let requested = requested(config, arches);
    if let Some(first) = requested.uris.into_iter().next() {
        let why = match config.devices {
            Some(_) => format!("the first of {GGML_HSA_DEVICES}"),
            None => "the NPU that a run would use".to_owned(),
        };
        complain(&format!("device {first}, {why}; --device URI names another"));
        return Ok(first);
    }
    // Why none is used, if anything is known of it.
    let reason = requested.messages.into_iter().find_map(|message| match message {
        Message::Notice(text) | Message::Error(text) | Message::Warning(text) => Some(text),
        Message::Info(_) => None,
    });
    let reason = reason.unwrap_or_else(|| "there is no NPU that could be used".to_owned());
    match otherwise {
        Some(uri) => {
            complain(&format!("{reason}; this is for the simulated device {uri}; --device URI names another"));
            Ok(uri.to_owned())
        }
        None => Err(format!("{reason}; name a device: `--device {SIMULATED}`, for example, for a simulated one")),
    }
}
