//! What `explain` and `prebuild` share: a model file, and a device to plan for.

use crate::output::complain;
use aie_hal::{ArchRegistry, Device, Environment};
use clap::{Args, ValueEnum};
use ggml_hsa::config::Config;
use ggml_hsa::device::drivers;
use ggml_hsa::device::requested::{Message, requested};
use ggml_hsa::settings::GGML_HSA_DEVICES;
use ggml_hsa_cli::model::{Model, ModelFile};
use std::path::PathBuf;
use std::sync::Arc;

/// The device to plan for when the user names none and there is no NPU.
pub const SIMULATED: &str = "mock:aie2p";

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
}

/// llama.cpp's `-fa`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FlashAttention {
    /// Attention as one operation, which llama.cpp chooses by itself.
    On,
    /// Two products and what is between them.
    Off,
}

/// What [`Subject`] names, opened.
pub struct Opened {
    /// The model.
    pub model: Model,
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
        let (mut config, problems) = Config::read(environment);
        problems.iter().for_each(complain);
        // Looking at a model empties no cache.
        config.cache_clear = false;
        let file = ModelFile::open(&self.model).map_err(|cause| cause.to_string())?;
        let model = Model::find(&file).map_err(|cause| format!("{}: {cause}", self.model.display()))?;
        let (arches, problems) = ArchRegistry::from_environment();
        problems.iter().for_each(complain);
        let uri = match &self.device {
            Some(named) => named.clone(),
            None => default_device(&config, &arches, otherwise)?,
        };
        let opened = drivers::looking(arches, config.route).open(&uri).map_err(|cause| cause.to_string())?;
        let device = opened.into_iter().next().ok_or_else(|| format!("{uri} is no device"))?;
        Ok(Opened { model, device, config })
    }

    /// Tokens of the context. Says when they are more than the model was trained for, as llama.cpp does.
    pub fn context(&self, model: &Model) -> usize {
        let trained = model.hyper.context;
        let Some(asked) = self.ctx else { return trained };
        let context = asked as usize;
        if context > trained {
            complain(&format!(
                "note: --ctx {asked}: the model was trained for {trained} tokens, and may write nonsense behind them"
            ));
        }
        context
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
