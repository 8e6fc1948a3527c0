//! `ggml-hsa check`: what silicon would reject in a compiled kernel, from its files alone.
//!
//! The array's side is the reader of designs; the cores' side is the checker that native kernels go through. Where a stack
//! lies among buffers needs both.

mod stack;

use crate::Ended;
use crate::disassemble::{self, KernelFiles};
use aie_emulator::design::{Design, Problem};
use aie_emulator::{Array, NoHost, Rules, Undefined};
use aie_hal::Arch;
use aie_hal::arch::Estimate;
use aie_hal::format::load;
use aie_hal::format::pdi::Pdi;
use aie_isa::Isa;
use aie_jit_native::check::{Program, Severity, check};
use clap::Args;
use ggml_hsa_cli::output::{counted, say, show};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Check a compiled kernel by the rules that silicon does not enforce: queues, buffer descriptors, tokens, wires, code
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa check kernel.pdi kernel_insts.bin           both files
  ggml-hsa check final.xclbin insts.txt --warnings     also what correct programs may have
  ggml-hsa check kernel.pdi --arch aie2p               the PDI alone
  ggml-hsa check kernel.pdi insts.bin --json | jq '.findings[] | [.rule, .place, .what]'

An error breaks a rule of the array or of a core: on an NPU the kernel hangs, or is wrong, perhaps not in every run. A warning is
something that correct programs may have, or a place from which the code could not be followed further. Nothing is executed; what
shows only when it runs shows in `ggml-hsa dispatch`, also in other orders of events (--seeds).

Exit code: 0 when there is no error, 1 when there is one, 2 when a file or the command line cannot be used.")]
pub struct CheckArguments {
    #[command(flatten)]
    files: KernelFiles,
    /// Also list warnings
    #[arg(long)]
    warnings: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What was looked at, and what was found.
#[derive(Debug, Serialize)]
struct Report {
    arch: String,
    /// Cores with a program.
    cores: usize,
    /// Programs that differ.
    programs: usize,
    /// Operations of the stream.
    operations: usize,
    /// Buffer descriptors that the PDI writes.
    descriptors: u64,
    /// Nanoseconds that a change to the PDI takes by published costs.
    switch_ns: Estimate,
    errors: usize,
    /// Also those that are not listed.
    warnings: usize,
    findings: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    /// `error` or `warning`.
    severity: &'static str,
    /// A short name: `array`, or a rule of programs.
    rule: &'static str,
    /// The tiles, and an address in a program.
    place: String,
    what: String,
}

/// Runs the command.
pub fn run(arguments: &CheckArguments) -> Ended {
    let report = report(arguments)?;
    show(arguments.json, &report, print);
    Ok(if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(arguments: &CheckArguments) -> Result<Report, String> {
    disassemble::with_source(&arguments.files, |arch, source| {
        let design = Design::read(arch, source).map_err(|cause| cause.to_string())?;
        let errors = design.problems.iter().map(|problem| of_array("error", problem));
        let warnings = design.doubts.iter().map(|doubt| of_array("warning", doubt));
        let mut findings: Vec<Found> = errors.chain(warnings).collect();
        let isa = arch.instruction_set.as_deref().and_then(Isa::for_arch);
        let isa = isa.ok_or_else(|| format!("there are no instructions of `{}`", arch.name))?;
        let (programs, rejected) = programs(arch, isa, &source.pdi);
        findings.extend(rejected);
        for (code, cores) in &programs {
            findings.extend(of_program(&design, isa, code, cores));
        }
        let errors = findings.iter().filter(|found| found.severity == "error").count();
        let descriptors = load::descriptors(&source.pdi.cdo(), arch);
        let warnings = findings.len() - errors;
        findings.retain(|found| arguments.warnings || found.severity == "error");
        Ok(Report {
            arch: arch.name.clone(),
            cores: programs.values().map(Vec::len).sum(),
            programs: programs.len(),
            operations: design.stream.map_or(0, |stream| stream.steps.len()),
            descriptors,
            switch_ns: arch.cost.switch(descriptors),
            errors,
            warnings,
            findings,
        })
    })
}

fn of_array(severity: &'static str, problem: &Problem) -> Found {
    let place = problem.tile.map_or_else(|| "stream".to_owned(), |tile| tile.to_string());
    Found { severity, rule: "array", place, what: problem.what.clone() }
}

/// Bytes of five bundles without instructions, and up to 16 to the next line.
const DELAY_SLOTS: usize = 26;

/// Code, and the cores that have it by column and row.
type Programs = BTreeMap<Vec<u8>, Vec<(u8, u8)>>;

/// What is in program memory of the cores, once for each program, and where the emulated array stops loading the PDI, if it does.
fn programs(arch: &Arch, isa: &'static Isa, pdi: &Pdi<'_>) -> (Programs, Option<Found>) {
    // Code alone counts, and zeros behind it are none.
    let mut rules = Rules::default();
    rules.undefined = Undefined::Zero;
    let (columns, rows) = (arch.array.columns as u8, arch.array.rows as u8);
    let mut array = Array::with_rules(isa, columns, rows, rules);
    let rejected = array.load(pdi, &mut NoHost).err().map(|cause| {
        let (place, what) = ("PDI".to_owned(), format!("the emulated array stops loading it: {cause}"));
        Found { severity: "error", rule: "array", place, what }
    });
    let mut programs = Programs::new();
    for (column, row, code) in array.programs() {
        // The zeros at its end may be bundles: the delay slots of a jump.
        let code = [code, &[0; DELAY_SLOTS]].concat();
        programs.entry(code).or_default().push((column, row));
    }
    (programs, rejected)
}

fn of_program(design: &Design, isa: &'static Isa, code: &[u8], cores: &[(u8, u8)]) -> Vec<Found> {
    let checked = check(&Program::new(isa, code));
    let severity = |severity| match severity {
        Severity::Error => Some("error"),
        Severity::Warning => Some("warning"),
        _ => None,
    };
    let found = checked.findings.into_iter().filter_map(|finding| {
        let place = format!("{} at {:#x}", place(cores), finding.address);
        let severity = severity(finding.problem.severity())?;
        Some(Found { severity, rule: finding.problem.rule(), place, what: finding.problem.to_string() })
    });
    // Tiles with one program need not have the same buffers.
    let mut stacks: BTreeMap<(&str, String), Vec<(u8, u8)>> = BTreeMap::new();
    for core in cores {
        let found = checked.stack.as_ref().and_then(|stack| stack::finding(design, *core, stack));
        found.into_iter().for_each(|found| stacks.entry(found).or_default().push(*core));
    }
    let stacks = stacks.into_iter().map(|((severity, what), cores)| {
        let place = place(&cores);
        Found { severity, rule: "stack", place, what }
    });
    found.chain(stacks).collect()
}

/// As `core (0,2) and 3 others`; there is at least one.
fn place(cores: &[(u8, u8)]) -> String {
    let (column, row) = cores[0];
    match cores.len() - 1 {
        0 => format!("core ({column},{row})"),
        others => format!("core ({column},{row}) and {}", counted(others, "other")),
    }
}

fn print(report: &Report) {
    for Found { severity, place, what, rule } in &report.findings {
        say(&format!("{severity}: {place}: {what} [{rule}]"));
    }
    let unlisted = if report.warnings > 0 && report.findings.len() == report.errors { " (--warnings)" } else { "" };
    say(&format!(
        "{}: {} in {}, {} of the stream: {}, {}{unlisted}",
        report.arch,
        counted(report.programs, "program"),
        counted(report.cores, "core"),
        counted(report.operations, "operation"),
        counted(report.errors, "error"),
        counted(report.warnings, "warning")
    ));
    let [low, expected, high] =
        [report.switch_ns.low, report.switch_ns.expected, report.switch_ns.high].map(|ns| ns as f64 / 1e6);
    let descriptors = counted(report.descriptors as usize, "buffer descriptor");
    say(&format!("{descriptors}: a change to this PDI takes about {expected:.1} ms ({low:.1} to {high:.1})"));
}
