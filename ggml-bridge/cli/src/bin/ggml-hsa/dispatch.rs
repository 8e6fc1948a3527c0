//! `ggml-hsa dispatch`: one kernel from its files, with the bytes of files as arguments, on any device.
//!
//! It goes the way of every kernel: loaded and dispatched through the HAL, with the validation layer in front of the driver.

use crate::Ended;
use crate::dispatch_progress::Progress;
use crate::kernel_files;
use crate::surroundings::arches;
use aie_driver_xdna::route::Route;
use aie_hal::artifact::ArtifactError;
use aie_hal::{
    Arch, Buffer, BufferParams, BufferRef, CommandList, Device, DeviceUri, Executable, KernelArtifact, Submission,
    TimelinePoint,
};
use clap::{Args, ValueEnum};
use ggml_hsa::device::drivers;
use ggml_hsa_cli::output::{complain, counted, say, show};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io};
use tempfile::NamedTempFile;

/// Run one kernel from its two files with given buffers
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa dispatch add.pdi add_insts.bin --input a.bin --input b.bin --output 8192:sum.bin
  ggml-hsa dispatch gemm.xclbin gemm_insts.txt --input a.bin --input b.bin --output 262144 --device mock:aie2
  ggml-hsa dispatch add.pdi add_insts.bin --input a.bin --input b.bin --output 8192 --device mock:aie2 --trace add.json
  ggml-hsa dispatch add.pdi add_insts.bin --input a.bin --input b.bin --output 8192 --device xdna --times 100 --json
  ggml-hsa dispatch k.pdi k_insts.bin --input a.bin --input b.bin --output 8192 --order in,out,in
  ggml-hsa dispatch add.pdi add_insts.bin --input a.bin --input b.bin --output 8192 --device mock:aie2 --seeds 100

A simulated device executes compiled kernels instruction by instruction. Its time is that of the simulated NPU's clock; the cycles
are those of an array that memory and firmware never hinder. A core that never ends is stopped after two seconds of the array's
time, many minutes here: --device 'mock:aie2?cycles=10000000' stops it earlier.

A kernel that depends on who comes first, a core, a DMA channel, an arbiter or the firmware, can be right here every time and wrong or
stuck once in ten runs on an NPU. --seeds runs it in other orders of these events. The order of a seed that it names comes again with
--device 'mock:aie2?seed=N'.

Exit code: 0 when the kernel has completed, 1 when it failed, never signalled or depends on the order, 2 when the command line, a file or the device cannot
be used.")]
pub struct DispatchArguments {
    /// The PDI of the kernel, or an xclbin with it
    pdi: PathBuf,
    /// Its instruction stream: binary, or text with a hexadecimal word a line
    instructions: PathBuf,
    /// Which PDI of an xclbin that has several, counted from 0
    #[arg(long, value_name = "N")]
    pdi_index: Option<usize>,
    /// Bytes of an input, in the order of the kernel's arguments
    #[arg(long, short, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Size of an output in bytes, and perhaps a file to write it to
    #[arg(long, short, value_name = "BYTES[:FILE]", required = true)]
    output: Vec<Output>,
    /// What the kernel's arguments are, in their order [default: the inputs, then the outputs]
    #[arg(long, value_name = "in|out,...", value_enum, value_delimiter = ',')]
    order: Vec<Role>,
    /// The device
    #[arg(long, short, value_name = "URI", default_value = "mock")]
    device: String,
    /// Dispatch it so many times, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Run it again in so many other orders of events, on a simulated device: each has to give the same bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seeds: u32,
    /// Write a timeline of the emulated cores and DMA channels, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What an argument of the kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// The next --input
    In,
    /// The next --output
    Out,
}

impl DispatchArguments {
    /// What the kernel's `needed` arguments are.
    ///
    /// # Errors
    /// Other numbers of inputs and outputs are given.
    fn roles(&self, needed: usize) -> Result<Vec<Role>, String> {
        let (inputs, outputs) = (self.input.len(), self.output.len());
        if inputs + outputs != needed {
            return Err(format!(
                "{} takes {}, {} and {} are given; name each buffer with --input or --output",
                self.instructions.display(),
                counted(needed, "argument"),
                counted(inputs, "input"),
                counted(outputs, "output")
            ));
        }
        if self.order.is_empty() {
            return Ok([vec![Role::In; inputs], vec![Role::Out; outputs]].concat());
        }
        let ordered = self.order.iter().filter(|role| **role == Role::In).count();
        if self.order.len() != needed || ordered != inputs {
            return Err(format!(
                "--order has {} and {}, but {} and {} are given; it needs one `in` for each --input and one `out` for each --output",
                counted(ordered, "input"),
                counted(self.order.len() - ordered, "output"),
                counted(inputs, "input"),
                counted(outputs, "output")
            ));
        }
        Ok(self.order.clone())
    }
}

/// An output as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Output {
    bytes: usize,
    file: Option<PathBuf>,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bytes, file) = text.split_once(':').map_or((text, None), |(bytes, file)| (bytes, Some(file)));
        let number = bytes.parse().ok().filter(|bytes| *bytes > 0);
        let bytes = number.ok_or_else(|| format!("`{bytes}` is not a number of bytes above 0"))?;
        Ok(Self { bytes, file: file.filter(|file| !file.is_empty()).map(PathBuf::from) })
    }
}

/// What a dispatch came to.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    kernel: String,
    dispatches: u32,
    /// Other orders of events that gave the same outputs.
    seeds: u32,
    /// Device time of one dispatch on the virtual clock without the creation of contexts, in nanoseconds; absent on hardware.
    virtual_ns: Option<u64>,
    /// Wall time of one dispatch, in nanoseconds.
    wall_ns: u64,
    /// The last dispatch on the emulated array; absent where a kernel was not executed as machine code.
    #[serde(flatten)]
    emulated: Option<Emulated>,
    outputs: Vec<OutputReport>,
}

/// What the emulated array says of a dispatch, as the trace has it.
#[derive(Debug, Serialize, Deserialize)]
struct Emulated {
    /// From the beginning of the stream to the last token.
    cycles: u64,
    /// What was busy longest, and for how many cycles.
    bound: Option<String>,
    /// The busiest core.
    core: Option<String>,
    /// The busiest DMA channel.
    channel: Option<String>,
    /// The busiest port of a stream switch.
    stream: Option<String>,
}

#[derive(Debug, Serialize)]
struct OutputReport {
    argument: usize,
    bytes: usize,
    /// The first bytes in hexadecimal.
    start: String,
    file: Option<PathBuf>,
}

/// Bytes of an output that are printed.
const SHOWN: usize = 32;

/// Runs the command.
pub fn run(arguments: &DispatchArguments) -> Ended {
    Ok(match Prepared::new(arguments)?.run(arguments) {
        Ok(report) => {
            show(arguments.json, &report, print);
            ExitCode::SUCCESS
        }
        Err(cause) => {
            complain(&cause);
            ExitCode::FAILURE
        }
    })
}

/// The kernel in the files that were given.
fn artifact(arguments: &DispatchArguments, arch: &Arch) -> Result<KernelArtifact, String> {
    let (path, stream) = (&arguments.pdi, &arguments.instructions);
    let file = kernel_files::read(path)?;
    let pdi = kernel_files::pdi(path, &file, arguments.pdi_index)?.to_vec();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let made = KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, pdi, kernel_files::stream(stream)?);
    made.map_err(|error| {
        let path = if matches!(error, ArtifactError::Pdi { .. }) { path } else { stream };
        format!("{}: {error}", path.display())
    })
}

/// A buffer with the bytes of `file`.
fn input(device: &dyn Device, file: &Path) -> Result<Arc<dyn Buffer>, Box<dyn Error>> {
    let bytes = fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    if bytes.is_empty() {
        return Err(format!("{} is empty: an argument has at least one byte", file.display()).into());
    }
    let buffer = device.allocate(&BufferParams::data(bytes.len()))?;
    buffer.write(0, &bytes)?;
    buffer.flush(0..bytes.len())?;
    Ok(buffer)
}

/// A kernel on a device, with its buffers.
struct Prepared {
    device: Arc<dyn Device>,
    kernel: Arc<dyn Executable>,
    name: String,
    /// By argument.
    buffers: Vec<(Role, Arc<dyn Buffer>)>,
    /// What a simulated device writes while it runs.
    trace: Option<NamedTempFile>,
}

impl Prepared {
    fn new(arguments: &DispatchArguments) -> Result<Self, Box<dyn Error>> {
        let is_simulated = DeviceUri::parse(&arguments.device)?.scheme() == aie_driver_mock::SCHEME;
        let trace = is_simulated.then(NamedTempFile::new).transpose()?;
        let uri = match &trace {
            Some(file) => {
                let separator = if arguments.device.contains('?') { '&' } else { '?' };
                let seeds = Some(arguments.seeds).filter(|seeds| *seeds > 0);
                let seeds = seeds.map_or_else(String::new, |seeds| format!("&seeds={seeds}"));
                format!("{}{separator}trace={}{seeds}", arguments.device, file.path().display())
            }
            None if arguments.trace.is_some() || arguments.seeds > 0 => {
                let option = if arguments.seeds > 0 { "--seeds" } else { "--trace" };
                let device = &arguments.device;
                return Err(
                    format!("{option} needs the emulated array: `{device}` is no simulated device, try mock").into()
                );
            }
            None => arguments.device.clone(),
        };
        let devices = drivers::registry(arches(), Route::default(), true).open(&uri)?;
        let device = devices.into_iter().next().ok_or_else(|| format!("`{}` names no device", arguments.device))?;
        let artifact = artifact(arguments, device.arch())?;
        let roles = arguments.roles(artifact.argument_count())?;
        let (mut inputs, mut outputs) = (arguments.input.iter(), arguments.output.iter());
        let mut buffers: Vec<(Role, Arc<dyn Buffer>)> = Vec::with_capacity(roles.len());
        for role in roles {
            let buffer = match (role, inputs.as_slice(), outputs.as_slice()) {
                (Role::In, [file, ..], _) => {
                    inputs.next();
                    input(&*device, file)?
                }
                (Role::Out, _, [output, ..]) => {
                    outputs.next();
                    device.allocate(&BufferParams::data(output.bytes))?
                }
                _ => return Err("a buffer for each argument is needed".into()),
            };
            buffers.push((role, buffer));
        }
        let kernel = device.load_executable(&artifact)?;
        Ok(Self { device, kernel, name: artifact.name().to_owned(), buffers, trace })
    }

    /// The events of the trace, in JSON.
    fn trace_events(&self) -> Result<Vec<String>, io::Error> {
        let Some(trace) = &self.trace else { return Ok(Vec::new()) };
        let text = fs::read_to_string(trace.path())?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(',')).map(str::to_owned).collect())
    }

    fn run(&self, arguments: &DispatchArguments) -> Result<Report, Box<dyn Error>> {
        let mut list = CommandList::builder();
        let bindings = self.buffers.iter().map(|(_, buffer)| BufferRef::direct(buffer, 0, buffer.size())).collect();
        // The list takes the last arguments as outputs: from the first output on, all count as written.
        let first = self.buffers.iter().position(|(role, _)| *role == Role::Out).unwrap_or_default();
        list.dispatch_outputs(&self.kernel, bindings, self.buffers.len() - first)?;
        let commands = Arc::new(list.finish());
        let (queue, done) = (self.device.create_queue()?, self.device.create_semaphore(0)?);
        let (before, started) = (self.device.counters(), Instant::now());
        let mut progress = Progress::new(arguments.times);
        for value in 1..=u64::from(arguments.times) {
            let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value }];
            queue.submit(Submission { commands: Some(Arc::clone(&commands)), signals, ..Submission::default() })?;
            progress.wait(&*done, value, &self.name)?;
        }
        drop(progress);
        let wall = started.elapsed().as_nanos() / u128::from(arguments.times);
        let counted = self.device.counters();
        let contexts = counted.contexts_created - before.contexts_created;
        let creation = contexts.saturating_mul(self.device.arch().cost.context_create_ns);
        let virtual_ns = (counted.virtual_ns - before.virtual_ns).saturating_sub(creation) / u64::from(arguments.times);
        let mut outputs = Vec::new();
        let written = self.buffers.iter().enumerate().filter(|(_, (role, _))| *role == Role::Out);
        for (output, (argument, (_, buffer))) in arguments.output.iter().zip(written) {
            let mut bytes = vec![0; output.bytes];
            buffer.invalidate(0..bytes.len())?;
            buffer.read(0, &mut bytes)?;
            if let Some(file) = &output.file {
                fs::write(file, &bytes).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
            }
            let start = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
            outputs.push(OutputReport { argument, bytes: bytes.len(), start, file: output.file.clone() });
        }
        let events = self.trace_events()?;
        if let Some(file) = &arguments.trace {
            let text = format!("[\n{}\n]\n", events.join(",\n"));
            fs::write(file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        }
        let emulated = |event: &String| {
            let event: serde_json::Value = serde_json::from_str(event).ok()?;
            serde_json::from_value(event.get("args")?.clone()).ok()
        };
        Ok(Report {
            device: arguments.device.clone(),
            emulated: events.iter().rev().find_map(emulated),
            kernel: self.name.clone(),
            dispatches: arguments.times,
            seeds: arguments.seeds,
            virtual_ns: (virtual_ns > 0).then_some(virtual_ns),
            wall_ns: u64::try_from(wall).unwrap_or(u64::MAX),
            outputs,
        })
    }
}

fn print(report: &Report) {
    let microseconds = |ns: u64| format!("{}.{:03} us", ns / 1000, ns % 1000);
    say(&format!("{} on {}: completed", report.kernel, report.device));
    if let Some(ns) = report.virtual_ns {
        say(&format!("device time of a dispatch, simulated: {}", microseconds(ns)));
    }
    if let Some(emulated) = &report.emulated {
        let parts = [&emulated.core, &emulated.channel, &emulated.stream].map(|part| part.as_deref().unwrap_or("none"));
        say(&format!(
            "emulated array: {} cycles, bound by {}",
            emulated.cycles,
            emulated.bound.as_deref().unwrap_or("nothing")
        ));
        say(&format!("busiest: {}", parts.join("; ")));
    }
    say(&format!("wall time of a dispatch: {}", microseconds(report.wall_ns)));
    if report.seeds > 0 {
        say(&format!("the same bytes in {}", counted(report.seeds as usize, "other order")));
    }
    for output in &report.outputs {
        let more = if output.bytes > SHOWN { "..." } else { "" };
        let file = output.file.as_ref().map_or_else(String::new, |file| format!(", written to {}", file.display()));
        say(&format!("argument {}: {} bytes: {}{more}{file}", output.argument, output.bytes, output.start));
    }
}
