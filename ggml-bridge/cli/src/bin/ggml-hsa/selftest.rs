//! `ggml-hsa selftest`: the native kernels of this library on an NPU, family by family, and memory that it imports.
//!
//! The trials are the library's own, which runs them when it first needs to know. On an NPU their outcomes are kept for it.

use crate::Ended;
use crate::surroundings::{arches, config};
use aie_driver_xdna::SCHEME;
use aie_driver_xdna::route::Route;
use aie_hal::{Arch, Clocks, Device, DeviceUri, Driver, Environment};
use aie_jit_native::codegen::LoopForm;
use clap::Args;
use clap::builder::PossibleValuesParser;
use ggml_hsa::config::NativeLoops;
use ggml_hsa::device::drivers;
use ggml_hsa::kernels::selftest::Outcome;
use ggml_hsa::kernels::selftest::npu::Npu;
use ggml_hsa::kernels::selftest::subject::Subject;
use ggml_hsa::kernels::selftest::tester::Tester;
use ggml_hsa::kernels::selftest::trial::{self, ROUNDS};
use ggml_hsa_cli::output::{complain, counted, say, show, table};
use serde::Serialize;
use std::cell::OnceCell;
use std::error::Error;
use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Test the library's own kernels on an NPU, each family in a context of its own
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa selftest                                  on the first NPU
  ggml-hsa selftest --device xdna:1 --family product           one family on the second NPU
  ggml-hsa selftest --device mock:aie2                         on the emulated array
  ggml-hsa selftest --device 'mock:aie2?fault=garbage@3'       what a wrong result looks like
  ggml-hsa selftest --forget                         drop what is known of an NPU

Families whose streams start rings in mem tiles come behind those of cores alone, and behind one that hung none is tried. A result that
is right only when it is read again, but for its last 64 bytes, counts as right, with a warning.

On an NPU the outcome is kept in the kernel cache. llama.cpp uses the families that are right; what was wrong or hung stays out of
use, with a warning, until the firmware, the kernel with its driver or the library changes, or this command finds it right.

The family `hardware-loops` is a program whose zero-overhead loops have to repeat. Where it is not right, and
GGML_HSA_NATIVE_LOOPS does not say otherwise, the kernels of all families branch back, and are tested so.

The family `joined-dispatches` is 1 to 16 dispatches submitted together, which become one with up to 16 arguments; where it is not right,
each dispatch stays one of its own.

The family `imported-memory` is the nodes of `copies` on a file that is mapped for reading, as llama.cpp maps a model. Models are used
where they are mapped if it is right, and else copied.

Outcomes of a family:
  right       every result is that of the reference kernels
  wrong       a result is not
  hung        a kernel did not end in time, or the NPU was lost
  failed      the NPU ended a kernel with an error
  untested    it could not be tried, which says nothing about it
  not made    there is no program of it for this generation
  refused     the device does not import such memory, for the reason given

Exit code: 0 when everything is right, not made or refused, 1 when not, 2 when the command line or the device cannot be used.")]
pub struct SelftestArguments {
    /// The device, as `ggml-hsa devices` lists them [default: the first NPU]
    #[arg(long, value_name = "URI")]
    device: Option<String>,
    /// The same, as earlier versions had it
    #[arg(value_name = "URI", hide = true, conflicts_with = "device")]
    unnamed_device: Option<String>,
    /// Only this family; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Subject::all().map(Subject::name)))]
    family: Vec<String>,
    /// How long one family may take, in seconds [default: that of GGML_HSA_SELFTEST_LIMIT]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// How often each node is computed, with other numbers each time
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Drop what is known of the NPU, and test nothing
    #[arg(long)]
    forget: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

impl SelftestArguments {
    /// The URI of the device.
    fn device(&self) -> &str {
        self.device.as_ref().or(self.unnamed_device.as_ref()).map_or(SCHEME, String::as_str)
    }
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    arch: String,
    /// Firmware, kernel and driver, on an NPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// How fast the NPU ran in the last trial, if the kernel says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    clocks: Option<Clocks>,
    /// Where the outcomes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<PathBuf>,
    families: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    family: &'static str,
    outcome: &'static str,
    /// Which node, and what was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Nodes it has to get right.
    cases: usize,
    /// Making its kernels and opening the device included.
    milliseconds: u128,
}

/// Runs the command.
pub fn run(arguments: &SelftestArguments) -> Ended {
    let (bench, mut report) = Bench::new(arguments)?;
    if arguments.forget {
        return Ok(forget(&bench));
    }
    let chosen =
        |subject: &Subject| arguments.family.is_empty() || arguments.family.iter().any(|name| name == subject.name());
    for subject in Subject::all().filter(chosen) {
        let has_hung = report.families.iter().any(|row| row.outcome == HUNG);
        report.families.push(if has_hung { bench.untested(subject, AFTER_HANG) } else { bench.test(subject) });
    }
    report.clocks = bench.tester.clocks();
    show(arguments.json, &report, print);
    let is_well = report.families.iter().all(|row| [RIGHT, NOT_MADE, REFUSED].contains(&row.outcome));
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const RIGHT: &str = "right";
const HUNG: &str = "hung";
/// Why there are no trials behind one that hung.
const AFTER_HANG: &str = "not tried, as an NPU that has hung may need a new boot; `--family` tries it alone";
const NOT_MADE: &str = "not made";
const REFUSED: &str = "refused";

/// A device, and what tests on it.
struct Bench {
    arch: Arc<Arch>,
    /// Why it imports nothing.
    import_obstacle: Option<String>,
    tester: Tester,
    native_loops: NativeLoops,
    /// What the kernels of families have, once that is known.
    form: OnceCell<LoopForm>,
}

impl Bench {
    fn new(arguments: &SelftestArguments) -> Result<(Self, Report), Box<dyn Error>> {
        let (config, arches) = (config(Environment::process()), arches());
        let limit = arguments.limit.map_or(config.self_test_limit, Duration::from_secs);
        let named = arguments.device();
        let uri = DeviceUri::parse(named)?;
        let is_npu = uri.scheme() == SCHEME;
        // On an NPU as trials do: what `runtime=` and others say is not tested.
        let driver: Arc<dyn Driver> = match is_npu {
            true => Arc::new(drivers::npus(&arches, Route::Direct)),
            false => Arc::clone(drivers::registry(arches.clone(), Route::Direct, false).driver(uri.scheme(), named)?),
        };
        let hint = "; a simulated one is `mock:aie2`";
        let opened = driver.open(&uri).map_err(|cause| format!("{cause}{}", if is_npu { hint } else { "" }))?;
        let device: Arc<dyn Device> = opened.into_iter().next().ok_or_else(|| format!("`{uri}` names no device"))?;
        let (arch, import_obstacle) = (Arc::clone(device.arch()), device.info().import_obstacle.clone());
        let mut report = Report {
            device: device.info().uri.to_string(),
            arch: arch.name.clone(),
            firmware: None,
            driver: None,
            clocks: None,
            record: None,
            families: Vec::new(),
        };
        let tester = if is_npu {
            let npu = Npu::of(&*device, &arches)?;
            report.firmware = Some(npu.conditions.firmware.clone());
            report.driver = Some(npu.conditions.driver.clone());
            Tester::of_npu(npu, arches, &config.cache, limit)
        } else {
            // What others have left in the array stays only on a device that stays.
            let kept = (uri.param("residue") == Some("kept")).then(|| Arc::clone(&device));
            let open = move || {
                if let Some(kept) = &kept {
                    return Ok(Arc::clone(kept));
                }
                let devices = driver.open(&uri).map_err(|cause| cause.to_string())?;
                devices.into_iter().next().ok_or_else(|| format!("`{uri}` names no device"))
            };
            Tester::of_simulated(Arc::new(open), limit)
        };
        let tester = tester.with_rounds(arguments.rounds);
        report.record = tester.record().map(|record| record.path());
        let (native_loops, form) = (config.native_loops, OnceCell::new());
        Ok((Self { arch, import_obstacle, tester, native_loops, form }, report))
    }

    fn row(&self, subject: Subject, outcome: &'static str, reason: Option<String>, begun: Instant) -> Row {
        let cases = trial::nodes(subject, &self.arch);
        let milliseconds = begun.elapsed().as_millis();
        Row { family: subject.name(), outcome, reason, cases, milliseconds }
    }

    fn untested(&self, subject: Subject, reason: &str) -> Row {
        self.row(subject, "untested", Some(reason.to_owned()), Instant::now())
    }

    fn test(&self, subject: Subject) -> Row {
        let row = |outcome, reason, begun| self.row(subject, outcome, reason, begun);
        let begun = Instant::now();
        if !subject.is_for(&self.arch) {
            return row(NOT_MADE, None, begun);
        }
        if let (Subject::ImportedMemory, Some(obstacle)) = (subject, &self.import_obstacle) {
            return row(REFUSED, Some(obstacle.clone()), begun);
        }
        if stderr().is_terminal() {
            eprintln!("{}: {}", subject.name(), counted(trial::nodes(subject, &self.arch), "node"));
        }
        let outcome = match subject {
            Subject::HardwareLoops => self.tester.tested(subject, &self.arch),
            _ => self.tester.tested(subject, &self.form().on(&self.arch)),
        };
        match outcome {
            Ok(Outcome::Right) => row(RIGHT, None, begun),
            Ok(outcome) => row(outcome.word(), Some(outcome.to_string()), begun),
            Err(reason) => row("untested", Some(reason), begun),
        }
    }
}

impl Bench {
    /// The form of loops that the library would use.
    fn form(&self) -> LoopForm {
        *self.form.get_or_init(|| match self.native_loops {
            NativeLoops::Always(form) => form,
            NativeLoops::Auto => match self.tester.known_or_tested(Subject::HardwareLoops, &self.arch) {
                Ok(Outcome::Right) => LoopForm::Hardware,
                _ => LoopForm::Jnz,
            },
        })
    }
}

fn forget(bench: &Bench) -> ExitCode {
    let Some(record) = bench.tester.record() else {
        say(&"nothing is kept of a simulated device");
        return ExitCode::SUCCESS;
    };
    match bench.tester.forget() {
        Ok(()) => {
            say(&format!("forgotten in {}", record.path().display()));
            ExitCode::SUCCESS
        }
        Err(cause) => {
            complain(&format!("{}: {cause}", record.path().display()));
            ExitCode::FAILURE
        }
    }
}

fn print(report: &Report) {
    let rows = report.families.iter().map(|row| {
        [row.family.to_owned(), row.cases.to_string(), row.milliseconds.to_string(), row.outcome.to_owned()]
    });
    let table = table(&["family", "nodes", "ms", "outcome"], &[], rows);
    let clocks = report.clocks.map_or_else(String::new, |clocks| format!(", array at {} MHz", clocks.array_mhz));
    let conditions: Vec<&str> = [&report.firmware, &report.driver].into_iter().flatten().map(String::as_str).collect();
    let conditions = match conditions[..] {
        [] => String::new(),
        [firmware, driver] if !firmware.is_empty() => format!(", firmware {firmware}, {driver}"),
        [.., driver] => format!(", {driver}"),
    };
    say(&format!("{} ({}{conditions}{clocks})\n{table}", report.device, report.arch));
    for row in &report.families {
        if let Some(reason) = &row.reason {
            say(&format!("{} is {}: {reason}", row.family, row.outcome));
        }
    }
    if let Some(record) = &report.record {
        say(&format!("kept in {}", record.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        selftest: SelftestArguments,
    }

    #[rstest]
    #[case(&[], Some("xdna"))]
    #[case(&["--device", "mock:aie2"], Some("mock:aie2"))]
    #[case(&["mock:aie2"], Some("mock:aie2"))]
    #[case(&["mock:aie2", "--device", "xdna"], None)]
    fn the_device_is_named_as_for_other_commands(#[case] arguments: &[&str], #[case] expected: Option<&str>) {
        let line = Line::try_parse_from(["selftest"].iter().chain(arguments)).ok();
        assert_eq!(line.as_ref().map(|line| line.selftest.device()), expected);
    }
}
