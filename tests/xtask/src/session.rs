//! What every command that runs stock programs shares: its options, and the programs with our device plugged in.

use crate::testbed::{self, Testbed};
use crate::{library, model};
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of every command that runs a program of the testbed.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Download nothing; fail if something is missing
    #[arg(long, global = true)]
    pub offline: bool,
    /// Folder of the testbed
    #[arg(long, global = true, value_name = "DIR", env = "AIE_TESTBED", default_value_os_t = testbed::default_dir())]
    pub testbed: PathBuf,
    /// Print the result as JSON on standard output
    #[arg(long, global = true)]
    pub json: bool,
}

/// Options of the commands that use our device.
#[derive(Debug, Clone, Args)]
pub struct DeviceOptions {
    /// Device URI for GGML_HSA_DEVICES
    #[arg(long, value_name = "URI", default_value = "mock:aie2p")]
    pub device: String,
    /// Use this libggml-hsa.so and do not build one
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
}

/// The name ggml knows our first device by.
pub const DEVICE_NAME: &str = "HSA0";

/// A testbed, our library and a device: everything needed to run stock programs on it.
#[derive(Debug, Clone)]
pub struct Session {
    /// The programs.
    pub testbed: Testbed,
    /// `libggml-hsa.so`.
    pub library: PathBuf,
    /// The device URI.
    pub device: String,
    offline: bool,
}

impl Session {
    /// Makes or opens what is needed, the testbed first: its absence is the cheaper error.
    pub fn open(options: &Options, device: &DeviceOptions) -> Result<Self> {
        let testbed = Testbed::ensure(&options.testbed, options.offline)?;
        let library = library::locate(device.library.as_deref())?;
        Ok(Self { testbed, library, device: device.device.clone(), offline: options.offline })
    }

    /// The model: the user's or the testbed's own.
    pub fn model(&self, given: Option<&Path>) -> Result<PathBuf> {
        model::locate(given, &self.testbed, self.offline)
    }

    /// A stock program without our library: ggml's CPU backend alone.
    pub fn on_cpu(&self, program: &str) -> Result<Command> {
        self.testbed.command(program)
    }

    /// The same program with our library loaded and our device asked for; it writes statistics if `stats` is given.
    pub fn on_device(&self, program: &str, stats: Option<&Path>) -> Result<Command> {
        let mut command = self.testbed.command(program)?;
        command.env("GGML_BACKEND_PATH", &self.library).env("GGML_HSA_DEVICES", &self.device);
        if let Some(path) = stats {
            command.env("GGML_HSA_STATS", path);
        }
        Ok(command)
    }
}
