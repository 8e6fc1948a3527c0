//! What a dispatch costs the host: `cargo xtask bench --driver xdna` runs this program on the simulated kernel device.
//!
//! Both ways run the same kernel on the same two buffers in turn, each dispatch reading what the one before wrote, and
//! look at the result: a way that loses a dispatch or changes the order has no time. `plain` is what a C program would
//! do with the runtime's functions; with `--chain 1` it rings the doorbell for each dispatch. `hal` records the same
//! dispatches in a command list and submits it.
//!
//! It prints one line of JSON: nanoseconds for a dispatch, of the whole run and of its fastest round.

mod hal;
mod plain;
mod rounds;

use aie_conformance::kernels::TestKernel;
use aie_driver_rocr::settings::AIE_HAL_LIBHSA_PATH;
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use rounds::Rounds;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of each buffer.
const BYTES: usize = 256;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Way {
    /// The runtime's functions.
    Plain,
    /// The HAL's driver.
    Hal,
}

#[derive(Debug, Parser)]
#[command(about = "Measure the host's time for a dispatch")]
struct Args {
    /// How to dispatch
    #[arg(value_enum)]
    way: Way,
    /// Dispatches for one doorbell, or for one submission
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=32))]
    chain: u16,
    /// Rounds that are timed, of one doorbell or submission each. ROCR 7.2.4 makes a context for each doorbell of `plain`,
    /// and from the 256th on it considers old ones alive
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Warm-up rounds
    #[arg(long, default_value_t = 20)]
    warm_up: u32,
    /// The runtime library, for `plain`
    #[arg(long, env = AIE_HAL_LIBHSA_PATH.name)]
    library: Option<PathBuf>,
    /// The device, for `hal`
    #[arg(long, default_value = "xdna:0")]
    device: String,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let rounds = Rounds { chain: usize::from(args.chain), warm_up: args.warm_up, timed: args.rounds };
    ensure!(rounds.dispatches().is_multiple_of(2), "an odd number of dispatches leaves the result in the other buffer");
    let measured = match args.way {
        Way::Plain => {
            let library = args.library.context("pass the runtime library with --library or AIE_HAL_LIBHSA_PATH")?;
            plain::run(&library, &rounds)?
        }
        Way::Hal => hal::run(&args.device, &rounds)?,
    };
    println!("{}", measured.json(&rounds));
    Ok(())
}

fn generation(name: &str) -> Result<Arc<Arch>> {
    ArchRegistry::builtin().get(name).with_context(|| format!("no generation is called `{name}`"))
}

/// The kernel of both ways: the source's bytes plus 1.
fn kernel(arch: &Arch) -> KernelArtifact {
    TestKernel::Add8(1).artifact(arch)
}

/// The byte every element has after so many dispatches on a zeroed buffer.
fn expected(dispatches: usize) -> u8 {
    (dispatches % 256) as u8
}
