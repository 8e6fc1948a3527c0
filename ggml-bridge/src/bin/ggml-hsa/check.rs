//! `ggml-hsa check`: what of a compiled kernel silicon would not forgive, from its files alone.
//!
//! The array's side is the reader of designs; the cores' side is the checker that native kernels go through.

use crate::disassemble::{self, KernelFiles};
use crate::output::{complain, counted, json, say};
use aie_emulator::array::HostMemory;
use aie_emulator::design::Design;
use aie_emulator::{Array, Rules, Undefined};
use aie_hal::Arch;
use aie_hal::format::pdi::Pdi;
use aie_isa::Isa;
use aie_jit_native::check::{Program, Severity, check};
use clap::Args;
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
pub fn run(arguments: &CheckArguments) -> ExitCode {
    let report = match report(arguments) {
        Ok(report) => report,
        Err(cause) => {
            complain(&cause);
            return ExitCode::from(2);
        }
    };
    let errors = report.findings.iter().filter(|found| found.severity == "error").count();
    if arguments.json {
        json(&report);
    } else {
        print(&report, errors);
    }
    if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(arguments: &CheckArguments) -> Result<Report, String> {
    disassemble::with_source(&arguments.files, |arch, source| {
        let design = Design::read(arch, source).map_err(|cause| cause.to_string())?;
        let mut findings: Vec<Found> = design.problems.iter().map(of_array).collect();
        let programs = programs(arch, &source.pdi)?;
        for (code, cores) in &programs {
            findings.extend(of_program(arch, code, cores));
        }
        findings.retain(|found| arguments.warnings || found.severity == "error");
        Ok(Report {
            arch: arch.name.clone(),
            cores: programs.values().map(Vec::len).sum(),
            programs: programs.len(),
            operations: design.stream.map_or(0, |stream| stream.steps.len()),
            findings,
        })
    })
}

fn of_array(problem: &aie_emulator::design::Problem) -> Found {
    let place = problem.tile.map_or_else(|| "stream".to_owned(), |tile| tile.to_string());
    Found { severity: "error", rule: "array", place, what: problem.what.clone() }
}

/// Bytes of five bundles without instructions, and up to 16 to the next line.
const DELAY_SLOTS: usize = 26;

/// Code, and the cores that have it by column and row.
type Programs = BTreeMap<Vec<u8>, Vec<(u8, u8)>>;

/// What is in program memory of the cores, once for each program.
fn programs(arch: &Arch, pdi: &Pdi<'_>) -> Result<Programs, String> {
    let isa = isa(arch)?;
    // Code alone counts, and zeros behind it are none.
    let mut rules = Rules::default();
    rules.undefined = Undefined::Zero;
    let (columns, rows) = (arch.array.columns as u8, arch.array.rows as u8);
    let mut array = Array::with_rules(isa, columns, rows, rules);
    array.load(pdi, &mut NoHost).map_err(|cause| format!("the PDI cannot be loaded: {cause}"))?;
    let mut programs = Programs::new();
    for (column, row, code) in array.programs() {
        // The zeros at its end may be bundles: the delay slots of a jump.
        let code = [code, &[0; DELAY_SLOTS]].concat();
        programs.entry(code).or_default().push((column, row));
    }
    Ok(programs)
}

/// A PDI moves nothing while it is loaded.
struct NoHost;

impl HostMemory for NoHost {
    fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
}

fn isa(arch: &Arch) -> Result<&'static Isa, String> {
    Isa::for_arch(&arch.name).ok_or_else(|| format!("there are no instruction tables of generation `{}`", arch.name))
}

fn of_program(arch: &Arch, code: &[u8], cores: &[(u8, u8)]) -> Vec<Found> {
    let Ok(isa) = isa(arch) else { return Vec::new() };
    let others = cores.len() - 1;
    let (column, row) = cores[0];
    let more = if others == 0 { String::new() } else { format!(" and {}", counted(others, "other")) };
    let findings = check(&Program::new(isa, code)).findings.into_iter();
    let severity = |severity| match severity {
        Severity::Error => Some("error"),
        Severity::Warning => Some("warning"),
        _ => None,
    };
    let found = findings.filter_map(|finding| {
        let place = format!("core ({column},{row}){more} at {:#x}", finding.address);
        let severity = severity(finding.problem.severity())?;
        Some(Found { severity, rule: finding.problem.rule(), place, what: finding.problem.to_string() })
    });
    found.collect()
}

fn print(report: &Report, errors: usize) {
    for Found { severity, place, what, rule } in &report.findings {
        say(&format!("{severity}: {place}: {what} [{rule}]"));
    }
    say(&format!(
        "{}: {} in {}, {} of the stream: {}, {}",
        report.arch,
        counted(report.programs, "program"),
        counted(report.cores, "core"),
        counted(report.operations, "operation"),
        counted(errors, "error"),
        counted(report.findings.len() - errors, "warning")
    ));
}
