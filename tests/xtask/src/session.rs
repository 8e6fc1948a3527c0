//! What every command that runs stock programs shares: its options, and the programs with our device plugged in.

use crate::generation::{DeviceRun, StatsFile, require_success};
use crate::process::{self, Finished};
use crate::settings::AIE_TESTBED;
use crate::simulation::{KernelReport, Simulation};
use crate::stats::Stats;
use crate::testbed::{self, Testbed};
use crate::{library, model, workspace};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Options of every command that runs a program of the testbed.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Download nothing; fail if something is missing
    #[arg(long, global = true)]
    pub offline: bool,
    /// Folder of the testbed
    #[arg(long, global = true, value_name = "DIR", env = AIE_TESTBED.name, default_value_os_t = testbed::default_dir())]
    pub testbed: PathBuf,
    /// Print the result as JSON on standard output
    #[arg(long, global = true)]
    pub json: bool,
}

/// Options of the commands that use our device.
#[derive(Debug, Clone, Args)]
pub struct DeviceOptions {
    /// Device URI for GGML_HSA_DEVICES; by default the simulated device, mock:aie2p
    #[arg(long, value_name = "URI")]
    pub device: Option<String>,
    /// Use this libggml-hsa.so and do not build one
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
}

/// Options of the commands that can use our device through either driver.
#[derive(Debug, Clone, Args)]
pub struct DriverOptions {
    /// mock: the simulated device; xdna: the kernel's own interface, on a simulated kernel device; rocr: AMD's ROCR of the
    /// testbed, on the same
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t = DriverName::Mock)]
    pub driver: DriverName,
    /// Run everything that has a native kernel as machine code on the emulated array, of aie2 or of the generation named:
    /// `--emulated=aie2p`
    #[arg(
        long,
        value_name = "GENERATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "aie2",
        conflicts_with_all = ["device", "npus"]
    )]
    pub emulated: Option<String>,
    #[command(flatten)]
    pub simulation: SimulationOptions,
    #[command(flatten)]
    pub device: DeviceOptions,
}

/// What is behind the driver for real NPUs.
#[derive(Debug, Clone, Args)]
pub struct SimulationOptions {
    /// With --driver xdna or rocr: generations of the NPUs to simulate, separated by commas
    #[arg(long, value_name = "LIST", default_value = "aie2p")]
    pub npus: String,
    /// With --driver xdna or rocr: the kernel to simulate, `legacy`, `6.14`, `6.18` or `7.2`; see docs/simulated-kernels.md. `faults`
    /// takes several, separated by commas
    #[arg(long, value_name = "KERNEL", default_value = "6.18")]
    pub kernel: String,
    /// With --driver xdna or rocr: what is unusual about the machine, as in AMDXDNA_SIM_MACHINE: `wait=cmd,contexts=2`
    #[arg(long, value_name = "LIST")]
    pub machine: Option<String>,
    /// With --driver rocr: the HSA runtime, `new` or `old` (both of the testbed) or a file
    #[arg(long, value_name = "ROCR", default_value = "new")]
    pub rocr: String,
}

/// The kernels that can be simulated, oldest first.
pub const KERNELS: [&str; 4] = ["legacy", "6.14", "6.18", "7.2"];

impl Default for SimulationOptions {
    fn default() -> Self {
        Self { npus: "aie2p".to_owned(), kernel: "6.18".to_owned(), machine: None, rocr: "new".to_owned() }
    }
}

/// A driver of the HAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DriverName {
    /// The simulated device.
    Mock,
    /// The kernel's own interface.
    Xdna,
    /// AMD's ROCR.
    Rocr,
}

impl DriverName {
    pub fn first_device(self) -> &'static str {
        match self {
            Self::Mock => "mock:aie2p",
            Self::Xdna => "xdna:0",
            Self::Rocr => "xdna:0?runtime=rocr",
        }
    }
}

/// What the simulated device that gets kernels as machine code says by itself, for the simulated kernel device.
const EMULATED_COMPILERS: &str = "native,reference";

/// The simulated device of a generation that gets kernels as machine code.
fn emulated_device(generation: &str) -> String {
    format!("mock:{generation}?execute=emulated")
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
    pub device: String,
    /// What is behind the kernel interface, if our device is reached through it.
    pub simulation: Option<Simulation>,
    /// The generation, if kernels are machine code where there are any.
    pub emulated: Option<String>,
    offline: bool,
}

impl Session {
    /// Makes or opens what is needed, the testbed first: its absence is the cheaper error.
    pub fn open(options: &Options, device: &DeviceOptions) -> Result<Self> {
        let testbed = Testbed::ensure(&options.testbed, options.offline)?;
        let library = library::locate(device.library.as_deref(), options.offline)?;
        let device = device.device.clone().unwrap_or_else(|| DriverName::Mock.first_device().to_owned());
        Ok(Self { testbed, library, device, simulation: None, emulated: None, offline: options.offline })
    }

    /// The same with the driver that was chosen.
    pub fn open_with(options: &Options, driver: &DriverOptions) -> Result<Self> {
        let mut session = Self::open(options, &driver.device)?;
        if driver.device.device.is_none() {
            session.device = driver.driver.first_device().to_owned();
        }
        let mut simulation = driver.simulation.clone();
        session.emulated = driver.emulated.clone();
        if let Some(generation) = &driver.emulated {
            simulation.npus = generation.clone();
            if driver.driver == DriverName::Mock {
                session.device = emulated_device(generation);
            }
        }
        session.simulation = Simulation::for_driver(driver.driver, &session.testbed, &simulation, options.offline)?;
        Ok(session)
    }

    /// The same session on the simulated device, to compare with.
    pub fn on_mock(&self) -> Self {
        let plain = || DriverName::Mock.first_device().to_owned();
        let device = self.emulated.as_deref().map_or_else(plain, emulated_device);
        Self { device, simulation: None, ..self.clone() }
    }

    /// The same session on the simulated device with reference kernels only, of the same generation.
    pub fn on_reference(&self) -> Self {
        let generation = self.emulated.as_deref().unwrap_or("aie2");
        Self { device: format!("mock:{generation}"), simulation: None, emulated: None, ..self.clone() }
    }

    /// The same session on the driver for NPUs, on a simulated kernel device.
    pub fn on_simulated_npu(&self) -> Result<Self> {
        let options = SimulationOptions::default();
        let simulation = Simulation::for_driver(DriverName::Xdna, &self.testbed, &options, self.offline)?;
        Ok(Self { device: DriverName::Xdna.first_device().to_owned(), simulation, ..self.clone() })
    }

    /// The same session with another library and device.
    pub fn with(&self, library: &Path, device: &str) -> Self {
        Self { library: library.to_owned(), device: device.to_owned(), ..self.clone() }
    }

    /// The same session with another simulated machine.
    pub fn with_simulation(&self, simulation: Simulation) -> Self {
        Self { simulation: Some(simulation), ..self.clone() }
    }

    /// The same session with reports of its own, for a program that runs at the same time as others.
    pub fn apart(&self) -> Result<Self> {
        let simulation = self.simulation.as_ref().map(Simulation::apart).transpose()?;
        Ok(Self { simulation, ..self.clone() })
    }

    /// The model: the user's or the testbed's own.
    pub fn model(&self, given: Option<&Path>) -> Result<PathBuf> {
        model::locate(given, &self.testbed, self.offline)
    }

    /// A stock program without our library: ggml's CPU backend alone.
    pub fn on_cpu(&self, program: &str) -> Result<Command> {
        self.testbed.command(program)
    }

    /// The same program with our library loaded and our device requested; it writes statistics if `stats` is given.
    pub fn on_device(&self, program: &str, stats: Option<&Path>) -> Result<Command> {
        let mut command = match &self.simulation {
            Some(simulation) => simulation.command(&self.testbed, &self.testbed.program(program)?),
            None => self.testbed.command(program)?,
        };
        command.env("GGML_BACKEND_PATH", &self.library).env("GGML_HSA_DEVICES", &self.device);
        self.kernels(&mut command);
        if let Some(path) = stats {
            command.env("GGML_HSA_STATS", path);
        }
        Ok(command)
    }

    /// Runs a stock program on our device to its end, which has to be a good one; `prepare` adds to the command.
    pub fn run(&self, program: &str, limit: Duration, prepare: impl FnOnce(&mut Command)) -> Result<DeviceRun> {
        let (finished, stats) = self.attempt(program, limit, prepare)?;
        require_success(&finished)?;
        Ok(DeviceRun { finished, stats: stats?, kernel: self.kernel_report()? })
    }

    /// The same, whatever its end is and whatever it left open at the kernel.
    pub fn attempt(
        &self,
        program: &str,
        limit: Duration,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<(Finished, Result<Stats>)> {
        let file = StatsFile::new()?;
        let mut command = self.on_device(program, Some(&file.path()))?;
        prepare(&mut command);
        let finished = process::run(&mut command, limit)?;
        Ok((finished, Stats::read(&file.path())))
    }

    /// Settings of the kernel store: a cache of the workspace's own unless the caller has set one, and reference kernels also
    /// behind the kernel interface, whose device is simulated here.
    pub fn kernels(&self, command: &mut Command) {
        if std::env::var_os("GGML_HSA_KERNEL_CACHE_DIR").is_none_or(|path| path.is_empty()) {
            command.env("GGML_HSA_KERNEL_CACHE_DIR", workspace::target().join("kernel-cache"));
        }
        if self.simulation.is_some() {
            command.env("GGML_HSA_REFERENCE_KERNELS", "1");
            if self.emulated.is_some() {
                command.env("GGML_HSA_COMPILERS", EMULATED_COMPILERS);
            }
        }
    }

    /// What the simulated kernel device saw of the program that ended last; `None` without one. Errors if the program left
    /// anything open there.
    pub fn kernel_report(&self) -> Result<Option<KernelReport>> {
        let report = self.kernel_report_unchecked()?;
        if let (Some(report), Some(simulation)) = (&report, &self.simulation) {
            simulation.nothing_open(report)?;
        }
        Ok(report)
    }

    /// The same, whatever was left open.
    pub fn kernel_report_unchecked(&self) -> Result<Option<KernelReport>> {
        self.simulation.as_ref().map(|simulation| simulation.report()).transpose()
    }
}
