//! `ggml-hsa-gen-kernels`: generates kernels ahead of time, for machines without a compiler.
//!
//! Options, messages and the last line are those of the C++ backend's tool of this name where it has them.

mod simulate;

use aie_hal::environment::Misnamed;
use aie_hal::{Arch, ArchRegistry, Environment};
use aie_jit_iron::configuration::{self, Document, KernelRequest, KernelSet, Problem, Rules};
use aie_jit_iron::pregeneration::{
    Deferred, Interruption, Options, OutputDirectory, Progress, Report, Status, generate, iron_compiler, plan,
    stats_file, write_hsacos, write_packs,
};
use aie_jit_iron::settings::GGML_HSA_F16;
use aie_jit_native::{NativeCompiler, Products};
use aie_ops::F16Policy;
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use clap::{CommandFactory, Parser, ValueEnum};
use ggml_hsa_cli::command_line::parsed;
use ggml_hsa_cli::output::{is_complete, say, show};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  ggml-hsa-gen-kernels --config kernels.json --output-dir ./kernels
      Generates the kernels listed in a configuration. Use them with GGML_HSA_KERNEL_DIR=./kernels.
  ggml-hsa-gen-kernels --config kernels.json --dry-run
      Checks a configuration and shows what would be generated. Needs no toolchain.
  ggml-hsa-gen-kernels --config kernels.json --output-dir ./kernels --format hsaco
      Writes add_f32_1024.hsaco too, which newer versions of the C++ backend look for.
  ggml-hsa-gen-kernels --config kernels.json --simulate
      Runs the IRON designs on a simulator, and compares them with the reference kernels. Needs Python and a C++ compiler.
  ggml-hsa-gen-kernels --config kernels.json --simulate --native
      The same, beside this program's own kernels on the emulated array.
  GGML_HSA_STATS=run.json llama-cli ...
  ggml-hsa-gen-kernels --from-stats run.json --output-dir ./kernels --jobs 4
      Generates the kernels that a run missed.

Configuration:
  {\"kernels\": [{\"kernel_name\": \"ggml_op_add\", \"kernel_source\": \"binary_ops.py\", \"arch\": \"aie2\",
    \"input_tensors\": [\"(1024,1,1,1)/f32\", \"(1024,1,1,1)/f32\"], \"output_tensor\": \"(1024,1,1,1)/f32\",
    \"exported_name\": \"add_f32_1024\"}]}
  Tensors are (dim0,dim1,dim2,dim3)/dtype[/(stride0,stride1,stride2,stride3)], strides in elements.
  Optional: exported_name (default: the name the backend looks for), op_params.
  With --kernels-dir, kernel_name is any function of any file there; \"operation\": \"ADD\" says what it computes.

Exit codes:
  0  all kernels exist         2  configuration or usage is wrong, or there is no kernel to generate
  1  some kernels failed       3  the toolchain is missing     130  interrupted
With --simulate:
  0  all results are right     1  some are wrong               3  the simulator, or numpy for it, is missing";

/// Generates kernels ahead of time, from a configuration or from the statistics of a run
#[derive(Debug, Parser)]
#[command(name = "ggml-hsa-gen-kernels", version, after_help = EXAMPLES)]
struct Arguments {
    /// Configuration file (JSON)
    #[arg(long, value_name = "FILE", required_unless_present = "from_stats")]
    config: Option<PathBuf>,
    /// Statistics file of a run (GGML_HSA_STATS): generates the kernels it missed
    #[arg(long, value_name = "FILE")]
    from_stats: Option<PathBuf>,
    /// Directory for the kernels, with a folder per generation
    #[arg(long, value_name = "DIR", required_unless_present_any = ["dry_run", "simulate"])]
    output_dir: Option<PathBuf>,
    /// Folder of the kernel sources, also of designs of others [default: those installed, or of the sources this was built in]
    #[arg(long, value_name = "DIR")]
    kernels_dir: Option<PathBuf>,
    /// Which compiler generates the kernels [default: native where it has the kernel, iron for the rest]
    #[arg(long, value_enum)]
    compiler: Option<CompilerName>,
    /// Only kernels of this generation; may be given several times
    #[arg(long, value_name = "ARCH")]
    arch: Vec<String>,
    /// Kernels compiled in parallel [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// How f16 is computed, which decides kernel names; must match the backend's setting [default: GGML_HSA_F16, or f32]
    #[arg(long, value_name = "POLICY", value_parser = F16Policy::parse)]
    f16: Option<F16Policy>,
    /// Rebuilds kernels that are up to date too
    #[arg(long)]
    force: bool,
    /// Checks everything and shows what would be generated
    #[arg(long)]
    dry_run: bool,
    /// Generates nothing, but runs the kernels' IRON designs on a simulator and compares them with the reference kernels
    #[arg(long, conflicts_with_all = ["dry_run", "output_dir", "compiler", "embed", "force", "format"])]
    simulate: bool,
    /// With --simulate, executes what --compiler native makes too, on the emulated array, and compares all three
    #[arg(long, requires = "simulate")]
    native: bool,
    /// How long a kernel may take with --simulate
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "simulate", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Writes DIR/ARCH.pack too, for building the kernels into the library
    #[arg(long, conflicts_with = "dry_run")]
    embed: bool,
    /// What is written for each kernel
    #[arg(long, value_enum, default_value_t = Format::Files)]
    format: Format,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
    /// Reports every kernel, and prints the compilers' output
    #[arg(short, long)]
    verbose: bool,
    /// Writes the man page and shell completions of this program into this folder, and does nothing else
    #[arg(long, value_name = "DIR", exclusive = true)]
    manual: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompilerName {
    /// Code for the array, made by this program; needs nothing else, and has a part of the kernels
    Native,
    /// Code for the array; needs the IRON environment
    Iron,
    /// Descriptions that simulated devices execute; on an NPU they do nothing
    Reference,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// NAME.pdi, NAME_insts.bin and a manifest
    Files,
    /// These, and NAME.hsaco, a code object with PDI and instructions in one
    Hsaco,
}

/// Why nothing was generated.
struct Rejection {
    /// The program's exit code.
    code: u8,
    /// What is wrong with the files.
    problems: Vec<Problem>,
    message: String,
}

impl Rejection {
    /// The options are wrong.
    fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, problems: Vec::new(), message: message.into() }
    }
}

fn main() -> ExitCode {
    let arguments: Arguments = match parsed() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    if let Some(folder) = &arguments.manual {
        return manual(folder);
    }
    let outcome = if arguments.simulate { simulate::run(&arguments) } else { run(&arguments) };
    let code = outcome.unwrap_or_else(|rejection| reject(&arguments, rejection));
    if is_complete() { ExitCode::from(code) } else { ExitCode::FAILURE }
}

fn manual(folder: &Path) -> ExitCode {
    match ggml_hsa_cli::manual::write(&mut Arguments::command(), folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write the manual to {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn arches() -> ArchRegistry {
    let (arches, problems) = ArchRegistry::from_environment();
    for problem in problems {
        eprintln!("warning: {problem}");
    }
    arches
}

/// Makes the kernels, or says what would be made, and prints what came of it.
fn run(arguments: &Arguments) -> Result<u8, Rejection> {
    let (code, report) = generated(arguments)?;
    print(arguments, &report);
    Ok(code)
}

fn generated(arguments: &Arguments) -> Result<(u8, Report), Rejection> {
    let arches = arches();
    let misnamed = Environment::process().misnamed(&[aie_jit_iron::settings::SETTINGS, aie_hal::settings::SETTINGS]);
    // Other names may be settings of the library.
    for misnamed in misnamed.iter().filter(|misnamed| !matches!(misnamed, Misnamed::Unknown(_))) {
        eprintln!("warning: {misnamed}");
    }
    let wanted = wanted(arguments, &arches)?;
    if let Some(report) = nothing_to_make(arguments, &wanted)? {
        return Ok((0, report));
    }
    let jobs = arguments.jobs.map_or_else(processors, usize::from);
    let options = Options { jobs, force: arguments.force, arches: arguments.arch.clone() };
    if arguments.dry_run {
        return Ok((0, plan(&wanted, arguments.output_dir.as_deref(), &options)));
    }
    let Some(path) = &arguments.output_dir else {
        return Err(Rejection::usage("--output-dir is missing"));
    };
    // Before any other thread is there: threads inherit which signals are blocked.
    let interruption =
        Interruption::watch().map_err(|error| Rejection::usage(format!("cannot watch signals: {error}")))?;
    let compilers = compilers(arguments, jobs)?;
    let compilers: Vec<&dyn KernelCompiler> = compilers.iter().map(|compiler| &**compiler).collect();
    let output = OutputDirectory::open(path).map_err(|error| Rejection::usage(error.to_string()))?;
    let progress = Progress::new(wanted.kernels.len(), arguments.verbose);
    let (mut report, nothing_tried) = generate(&wanted, &compilers, &output, &options, &progress, &interruption);
    let failed = report.with(Status::Failed).count();
    let mut code = match (report.interrupted, nothing_tried, failed) {
        (true, _, 1..) => 130,
        (_, true, _) => 3,
        (_, _, 1..) => 1,
        _ => 0,
    };
    if arguments.embed && failed > 0 {
        eprintln!("error: no pack was written: {failed} kernel(s) are missing");
    } else if arguments.embed {
        match write_packs(&output, generations(&wanted, &report)) {
            Ok(packs) => report.packs = packs.iter().map(|path| path.display().to_string()).collect(),
            Err(error) => {
                eprintln!("error: {error}");
                code = 1;
            }
        }
    }
    if arguments.format == Format::Hsaco {
        match write_hsacos(&output, present(&wanted, &report)) {
            Ok(files) => report.hsacos = files.iter().map(|path| path.display().to_string()).collect(),
            Err(error) => {
                eprintln!("error: {error}");
                code = 1;
            }
        }
    }
    Ok((code, report))
}

/// The kernels that are there now, with their links.
fn present<'a>(wanted: &'a KernelSet, report: &'a Report) -> impl Iterator<Item = (&'a KernelRequest, &'a [String])> {
    let pairs = wanted.kernels.iter().zip(&report.kernels);
    let present = pairs.filter(|(_, report)| matches!(report.status, Status::Made | Status::Kept));
    present.map(|(kernel, report)| (kernel, &report.links[..]))
}

fn wanted(arguments: &Arguments, arches: &ArchRegistry) -> Result<KernelSet, Rejection> {
    for name in &arguments.arch {
        if arches.get(name).is_none() {
            let known = arches.names().collect::<Vec<_>>().join(", ");
            return Err(Rejection::usage(format!("--arch {name}: no such generation; possible: {known}")));
        }
    }
    if let Some(folder) = arguments.kernels_dir.as_ref().filter(|folder| !folder.is_dir()) {
        let message =
            format!("Kernels directory not found: {}; correct --kernels-dir or leave it out", folder.display());
        return Err(Rejection::usage(message));
    }
    let f16 = match (arguments.f16, Environment::process().text(&GGML_HSA_F16)) {
        (Some(policy), _) => policy,
        (None, Some(text)) => {
            F16Policy::parse(&text).map_err(|error| Rejection::usage(format!("{GGML_HSA_F16}: {error}")))?
        }
        (None, None) => F16Policy::default(),
    };
    let rules = Rules { arches, f16, kernels_dir: arguments.kernels_dir.as_deref() };
    let (mut names, mut problems) = (KernelSet::default(), Vec::new());
    if let Some(path) = &arguments.config {
        match configuration::load(path, &rules) {
            Ok(found) => names = found,
            Err(found) => problems = found,
        }
    }
    if let Some(path) = &arguments.from_stats {
        let document = Document::read(path).map_err(|problem| vec![problem]);
        if let Err(found) = document.and_then(|document| stats_file::read(&document, arches, &mut names)) {
            problems.extend(found);
        }
    }
    if problems.is_empty() {
        return Ok(names);
    }
    let message = format!("{} error(s); nothing was generated", problems.len());
    Err(Rejection { code: 2, problems, message })
}

/// A report without kernels when a run missed none; any other request without kernels is an error.
fn nothing_to_make(arguments: &Arguments, wanted: &KernelSet) -> Result<Option<Report>, Rejection> {
    let (kernels, asked) = (&wanted.kernels, &arguments.arch);
    let cause = if kernels.is_empty() && arguments.config.is_some() {
        "the configuration lists no kernels".to_owned()
    } else if kernels.is_empty() && wanted.notes.is_empty() {
        return Ok(Some(Report::new(Vec::new(), Vec::new())));
    } else if kernels.is_empty() {
        wanted.notes.iter().for_each(|note| eprintln!("note: {note}"));
        "every kernel in the statistics was skipped; see the notes".to_owned()
    } else if !asked.is_empty() && !kernels.iter().any(|kernel| asked.contains(&kernel.arch.name)) {
        format!("none of the {} kernel(s) is for {} (--arch)", kernels.len(), asked.join(", "))
    } else {
        return Ok(None);
    };
    Err(Rejection::usage(format!("there is no kernel to generate: {cause}")))
}

/// What makes machine code, as the library has it.
fn native_compiler() -> NativeCompiler {
    NativeCompiler::default().with_products(Products::default())
}

/// The compilers to ask, in order. Without a choice IRON is started only when it is needed.
fn compilers(arguments: &Arguments, jobs: usize) -> Result<Vec<Arc<dyn KernelCompiler>>, Rejection> {
    let (kernels, verbose) = (arguments.kernels_dir.clone(), arguments.verbose);
    let iron = move || {
        let image = std::env::current_exe().ok();
        iron_compiler(kernels.clone(), jobs, verbose, Environment::process(), image.as_deref())
    };
    Ok(match arguments.compiler {
        None => vec![Arc::new(native_compiler()), Arc::new(Deferred::new("iron", iron))],
        Some(CompilerName::Native) => vec![Arc::new(native_compiler())],
        Some(CompilerName::Reference) => {
            eprintln!(
                "warning: --compiler reference: these kernels are descriptions for SIMULATED devices. On a real NPU they do \
                 nothing. Do not install them on machines with an NPU."
            );
            vec![Arc::new(ReferenceCompiler)]
        }
        Some(CompilerName::Iron) => {
            vec![iron().map_err(|error| Rejection { code: 3, problems: Vec::new(), message: error.to_string() })?]
        }
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The generations of kernels that are there now.
fn generations<'a>(wanted: &'a KernelSet, report: &Report) -> Vec<&'a Arch> {
    let mut arches: Vec<&Arch> = Vec::new();
    for (kernel, report) in wanted.kernels.iter().zip(&report.kernels) {
        if report.status != Status::Skipped && !arches.iter().any(|arch| arch.name == kernel.arch.name) {
            arches.push(&kernel.arch);
        }
    }
    arches
}

/// Reports why nothing was generated.
fn reject(arguments: &Arguments, rejection: Rejection) -> u8 {
    let Rejection { code, problems, message } = rejection;
    for problem in &problems {
        eprintln!("error: {problem}");
    }
    eprintln!("error: {message}");
    show(arguments.json, &json!({"version": 1, "error": message, "problems": problems}), |_| {});
    code
}

fn print(arguments: &Arguments, report: &Report) {
    report.notes.iter().for_each(|note| eprintln!("note: {note}"));
    show(arguments.json, report, |report| match report.kernels[..] {
        [] => say(&"The run missed no kernel: there is nothing to generate"),
        _ if arguments.dry_run => print_plan(report),
        _ => print_result(report),
    });
}

fn print_result(report: &Report) {
    let linked = report.kernels.iter().filter(|kernel| !kernel.links.is_empty()).count();
    if linked > 0 {
        say(&format!(
            "{linked} kernel(s) have names that no backend looks for; links with the right names point to them"
        ));
    }
    let native = report.kernels.iter().filter(|kernel| kernel.compiler == NativeCompiler::default().name()).count();
    if native > 0 {
        say(&format!("{native} kernel(s) are this program's own code, which has not run on silicon yet"));
    }
    let slowest = report.slowest(5);
    if slowest.len() > 1 {
        let time = |milliseconds: u64| format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100);
        let names: Vec<String> = slowest
            .iter()
            .map(|kernel| format!("{}/{} {}", kernel.arch, kernel.name, time(kernel.milliseconds)))
            .collect();
        say(&format!("Slowest: {}", names.join(", ")));
    }
    report.packs.iter().for_each(|pack| say(&format!("Packed {pack}")));
    if !report.hsacos.is_empty() {
        say(&format!("Wrote {} code object(s) (.hsaco)", report.hsacos.len()));
    }
    if report.interrupted {
        say(&"Interrupted; run the same command again to continue");
    }
    say(&report.summary());
}

fn print_plan(report: &Report) {
    for kernel in &report.kernels {
        let what = match kernel.status {
            Status::Kept => "keep",
            Status::Skipped => "skip",
            _ => "generate",
        };
        let links = match &kernel.links[..] {
            [] => String::new(),
            links => format!(" (links: {})", links.join(", ")),
        };
        let cause = kernel.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
        say(&format!("{what} {}/{}{links}{cause}", kernel.arch, kernel.name));
    }
    let count = |status| report.with(status).count();
    let (make, keep) = (count(Status::Planned), count(Status::Kept));
    say(&format!("No errors found: {make} kernel(s) to generate, {keep} up to date"));
}
