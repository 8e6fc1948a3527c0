//! `cargo xtask conformance`: the conformance suite on one driver.
//!
//! On the mock it is an ordinary test of the workspace. On the driver for real NPUs the same suite runs as a program of the
//! testbed on the simulated kernel device, directly or with AMD's own runtime; arguments go on to the test program.

use crate::build;
use crate::session::{DriverName, Options, SimulationOptions};
use crate::simulation::Simulation;
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::process::Command;

const PACKAGE: &str = "aie-conformance";

/// Run the conformance suite of the HAL on a driver.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask conformance --driver xdna
  cargo xtask conformance --driver xdna --kernel 7.2 --npus aie2
  cargo xtask conformance --driver rocr
  cargo xtask conformance --driver xdna -- --list
  cargo xtask conformance --driver xdna -- semaphore --test-threads 1

Exit code 1 if a test failed, or the program left anything open on the kernel device.")]
pub struct ConformanceArgs {
    /// The driver
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t = DriverName::Mock)]
    driver: DriverName,
    #[command(flatten)]
    simulation: SimulationOptions,
    /// Arguments for the test program
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Runs the command.
pub fn run(args: &ConformanceArgs, options: &Options) -> Result<()> {
    let name = match args.driver {
        DriverName::Mock => "mock",
        DriverName::Xdna => "xdna",
        DriverName::Rocr => "rocr",
    };
    let program = build::cargo(&["test", "--package", PACKAGE, "--test", name, "--no-run"], options.offline)?
        .executable("test", name)?;
    let simulation = match args.driver {
        DriverName::Mock => None,
        driver => {
            let testbed = Testbed::ensure(&options.testbed, options.offline)?;
            let simulation = Simulation::for_driver(driver, &testbed, &args.simulation, options.offline)?;
            simulation.map(|simulation| (testbed, simulation))
        }
    };
    let mut command = match &simulation {
        None => Command::new(&program),
        Some((testbed, simulation)) => simulation.command(testbed, &program),
    };
    command.args(&args.arguments);
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    if !status.success() {
        bail!("the conformance suite failed on {name}: {status}");
    }
    if let Some((_, simulation)) = &simulation {
        let report = simulation.report()?;
        simulation.nothing_open(&report)?;
        println!("{}", report.summary());
    }
    Ok(())
}
