//! `cargo xtask conformance`: the conformance suite on one driver.
//!
//! On the mock it is an ordinary test of the workspace. On the driver for real NPUs the same suite runs as a program of the
//! testbed on the simulated kernel device, directly or with AMD's own runtime; arguments are passed on to the test program.

use crate::build;
use crate::session::{DriverName, KERNELS, Options, SimulationOptions};
use crate::simulation::Simulation;
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::process::Command;

/// Run the conformance suite of the HAL on a driver.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask conformance --driver xdna
  cargo xtask conformance --driver xdna --kernel 7.2 --npus aie2
  cargo xtask conformance --driver xdna --every-kernel
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
    /// On every simulated kernel and every generation, and on machines of other kinds, one after the other; --kernel, --npus and
    /// --machine are ignored then
    #[arg(long)]
    every_kernel: bool,
    /// Arguments for the test program
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// A machine on which the second PDI of a context times out (amd/xdna-driver issue 906). The driver's setting for it is set.
const ONE_PDI: &str = "pdis=1";

pub fn run(args: &ConformanceArgs, options: &Options) -> Result<()> {
    let name = match args.driver {
        DriverName::Mock => "mock",
        DriverName::Xdna => "xdna",
        DriverName::Rocr => "rocr",
    };
    let program = build::conformance(name, options.offline)?;
    if args.driver == DriverName::Mock {
        return run_suite(name, Command::new(&program), args);
    }
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    for machine in machines(args) {
        let simulation = Simulation::for_driver(args.driver, &testbed, &machine, options.offline)?
            .context("this driver has a simulated kernel device")?;
        let place = format!(
            "on {} behind the kernel {}{}",
            machine.npus,
            machine.kernel,
            machine.machine.as_ref().map_or_else(String::new, |machine| format!(" ({machine})"))
        );
        crate::say!("{place}:");
        let mut command = simulation.command(&testbed, &program);
        if machine.machine.as_deref() == Some(ONE_PDI) {
            command.env("AIE_HAL_PDIS_PER_CONTEXT", "1");
        }
        run_suite(name, command, args).context(place)?;
        let report = simulation.report()?;
        simulation.nothing_open(&report)?;
        crate::say!("{}", report.summary());
    }
    Ok(())
}

fn machines(args: &ConformanceArgs) -> Vec<SimulationOptions> {
    if !args.every_kernel {
        return vec![args.simulation.clone()];
    }
    let on = |kernel: &&str, npus: &str| SimulationOptions {
        npus: npus.to_owned(),
        kernel: (*kernel).to_owned(),
        ..args.simulation.clone()
    };
    let mut machines: Vec<SimulationOptions> =
        KERNELS.iter().flat_map(|kernel| ["aie2", "aie2p"].map(|npus| on(kernel, npus))).collect();
    // Without timelines, and with addresses of the device's own.
    machines.push(SimulationOptions { machine: Some("wait=cmd".to_owned()), ..on(&"legacy", "aie2p") });
    machines.push(SimulationOptions { machine: Some("addresses=iova".to_owned()), ..on(&"7.2", "aie2p") });
    machines.push(SimulationOptions { machine: Some(ONE_PDI.to_owned()), ..on(&"6.18", "aie2") });
    machines
}

fn run_suite(name: &str, mut command: Command, args: &ConformanceArgs) -> Result<()> {
    let status = command.args(&args.arguments).status().context("cannot start the test program")?;
    if !status.success() {
        bail!("the conformance suite failed on {name}: {status}");
    }
    Ok(())
}
