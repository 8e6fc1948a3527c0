//! What `explain` and `prebuild` share: a model file, and a device to plan for.

use crate::output::complain;
use aie_hal::{ArchRegistry, Device, Environment};
use clap::{Args, ValueEnum};
use ggml_hsa::config::Config;
use ggml_hsa::drivers;
use ggml_hsa::model::{Model, ModelFile};
use std::path::PathBuf;
use std::sync::Arc;

/// The device when the user names none: there need not be an NPU.
const SIMULATED: &str = "mock:aie2p";

/// A model and where it is to run.
#[derive(Debug, Args)]
pub struct Subject {
    /// The model
    pub model: PathBuf,
    /// Tokens of the context, as llama.cpp's `-c` [default: those that the model was trained for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// The device, as `ggml-hsa devices` lists them [default: the first of GGML_HSA_DEVICES if it is set, else mock:aie2p]
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
    /// Reads the model and opens the device.
    ///
    /// # Errors
    /// Why one of them cannot be used.
    pub fn open(&self, environment: &Environment) -> Result<Opened, String> {
        let (mut config, problems) = Config::read(environment);
        problems.iter().for_each(complain);
        // Looking at a model empties no cache.
        config.cache_clear = false;
        let file = ModelFile::open(&self.model).map_err(|cause| cause.to_string())?;
        let model = Model::find(&file).map_err(|cause| format!("{}: {cause}", self.model.display()))?;
        let (arches, problems) = ArchRegistry::from_environment();
        problems.iter().for_each(complain);
        let set = config.devices.as_ref().and_then(|devices| devices.first());
        let uri = self.device.as_ref().or(set).map_or(SIMULATED, String::as_str);
        let opened = drivers::registry(arches, config.route, false).open(uri).map_err(|cause| cause.to_string())?;
        let device = opened.into_iter().next().ok_or_else(|| format!("{uri} is no device"))?;
        Ok(Opened { model, device, config })
    }

    /// Tokens of the context.
    pub fn context(&self, model: &Model) -> usize {
        self.ctx.map_or(model.hyper.context, |ctx| ctx as usize)
    }
}
