//! `aie-npu-pci`: serves a simulated NPU as a PCI device to one virtual machine.

use aie_hal::ArchRegistry;
use aie_npu_pci::device::Device;
use aie_npu_pci::faults::{self, FaultPlan};
use aie_npu_pci::journal::Journal;
use aie_npu_pci::model::{MODELS, Model, Protocol};
use aie_npu_pci::server::Listener;
use aie_npu_pci::settings::Settings;
use anyhow::{Context, Result};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve a simulated NPU as a PCI device to one virtual machine
///
/// QEMU gets it with memory that both can map, and an IOMMU:
///
///   -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m
///   -device intel-iommu,intremap=off,caching-mode=on,aw-bits=39
///   -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"npu.sock"}}'
///
/// `cargo xtask vm` does all of this.
#[derive(Debug, Parser)]
#[command(name = "aie-npu-pci", version, verbatim_doc_comment, after_help = EXAMPLES)]
struct Options {
    /// Socket to listen on; it is created, and removed at the end
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Which NPU
    #[arg(long, default_value = "npu4", value_parser = model)]
    npu: &'static Model,
    /// Protocol of the firmware's mailbox, by default the newest that its kernel driver knows
    #[arg(long, value_name = "MAJOR.MINOR", value_parser = Settings::parse_protocol)]
    protocol: Option<Protocol>,
    /// Contexts at one time, by default as many as the NPU has
    #[arg(long, value_name = "N")]
    contexts: Option<usize>,
    /// Faults: timeout@N, garbage@N, untouched@N, lost@N, status=S@N, async@N for the N-th command, MESSAGE@N=S or MESSAGE@N=silent for
    /// messages of the kernel driver; a comma list
    #[arg(long, value_name = "LIST", default_value = "", value_parser = faults::parse, hide_default_value = true)]
    faults: FaultPlan,
    /// File for a line about every register access and message
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// File for counts, as JSON, when the virtual machine has ended; `-` is standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  aie-npu-pci --socket npu.sock
  aie-npu-pci --socket npu.sock --npu npu1 --protocol 5.7 --journal npu.log
  aie-npu-pci --socket npu.sock --faults timeout@3,CREATE_CONTEXT@2=0x2000003";

fn model(name: &str) -> Result<&'static Model, String> {
    let known =
        || MODELS.iter().map(|model| format!("{} ({})", model.name, model.title)).collect::<Vec<_>>().join(", ");
    Model::by_name(name).ok_or_else(|| format!("possible: {}", known()))
}

fn run(options: &Options) -> Result<()> {
    let (registry, problems) = ArchRegistry::from_environment();
    problems.iter().for_each(|problem| eprintln!("aie-npu-pci: {problem}"));
    let arch = registry.get(options.npu.arch);
    let arch = arch.with_context(|| format!("there is no arch file for {}", options.npu.arch))?;
    let mut settings = Settings::new(options.npu, arch);
    settings.faults = options.faults.clone();
    settings.protocol = options.protocol.unwrap_or(settings.protocol);
    if let Some(contexts) = options.contexts {
        settings = settings.with_contexts(contexts);
    }
    let journal = Journal::new(options.journal.as_deref());
    let journal = journal.with_context(|| format!("cannot write the journal {:?}", options.journal))?;
    let device = Device::new(settings, simulated_kernels::executor(), journal).context("cannot make the device")?;
    let served = Listener::new(device.clone(), &options.socket)?.serve();
    if let Some(path) = &options.report {
        let report = serde_json::to_string_pretty(&device.report())?;
        if path.as_os_str() == "-" {
            println!("{report}");
        } else {
            std::fs::write(path, report).with_context(|| format!("cannot write the report {}", path.display()))?;
        }
    }
    Ok(served?)
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("aie-npu-pci: {error:#}");
            ExitCode::FAILURE
        }
    }
}
