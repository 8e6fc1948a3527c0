//! `cargo xtask stress`: the driver for real NPUs under load, on the simulated kernel device.
//!
//! Three loads, each in a process of its own: very many dispatches on one queue, graphs with more PDIs than a context holds,
//! and four queues used from eight threads. The program checks every result, that its memory and descriptors stay flat, and that
//! all device memory was released; this command checks what the kernel device saw: that every dispatch arrived there, how
//! many contexts were made, that no call failed, and that nothing was left open.

use crate::build;
use crate::output::{self, Report};
use crate::process;
use crate::session::{DriverName, Options, SimulationOptions};
use crate::simulation::{KernelReport, Simulation};
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

const PACKAGE: &str = "xdna-stress";
/// Longest time for a load, on top of what was requested.
const LIMIT: Duration = Duration::from_secs(600);

/// A load, by the program's word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Load {
    /// 100,000 dispatches on one queue, one by one and in lists of 1000
    Dispatches,
    /// Graphs with 200 distinct PDIs, repeated 50 times
    Pdis,
    /// Four queues used from eight threads, with semaphores between them
    Queues,
}

/// Put load on the driver for real NPUs: results, memory, and what is left open at the kernel.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask stress
  cargo xtask stress --load queues --seconds 600
  cargo xtask stress --driver rocr
  cargo xtask stress --driver rocr --rocr target/release/libhsa_stand_in.so

Exit code 1 if a result was wrong, memory or descriptors grew in the second half of a load, a kernel call failed, or
anything was left open.")]
pub struct StressArgs {
    /// Only these loads, separated by commas
    #[arg(long, value_enum, value_name = "LOAD", value_delimiter = ',')]
    load: Vec<Load>,
    /// Seconds of the load `queues`
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    seconds: u64,
    /// xdna: the kernel's own interface; rocr: AMD's ROCR of the testbed
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t = DriverName::Xdna)]
    driver: DriverName,
    #[command(flatten)]
    simulation: SimulationOptions,
}

#[derive(Debug, Serialize, Deserialize)]
struct Printed {
    load: Load,
    seconds: f64,
    submissions: u64,
    dispatches: u64,
    contexts_created: u64,
    context_switches: u64,
    later_contexts: Option<u64>,
    footprints: Footprints,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Footprints {
    early: Footprint,
    middle: Footprint,
    end: Footprint,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Footprint {
    resident_kib: i64,
    descriptors: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    printed: Printed,
    kernel: Option<KernelReport>,
}

pub fn run(args: &StressArgs, options: &Options) -> Result<()> {
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let simulation = Simulation::for_driver(args.driver, &testbed, &args.simulation, options.offline)?
        .context("the mock has no kernel device to stress; choose `xdna` or `rocr`")?;
    let program = build::program(PACKAGE, options.offline)?;
    let all = [Load::Dispatches, Load::Pdis, Load::Queues];
    let loads = all.into_iter().filter(|load| args.load.is_empty() || args.load.contains(load));
    let rows = loads
        .map(|load| measure(&testbed, &simulation, &program, load, args).with_context(|| format!("load {load:?}")))
        .collect::<Result<Vec<_>>>()?;
    if args.driver == DriverName::Xdna && (args.load.is_empty() || args.load.contains(&Load::Queues)) {
        beside_a_child(&testbed, &simulation, &program)?;
    }
    let mut report = Report::default();
    report.rows(
        "loads",
        &rows,
        &[
            ("load", |row| format!("{:?}", row.printed.load).to_lowercase()),
            ("#seconds", |row| format!("{:.1}", row.printed.seconds)),
            ("#submissions", |row| row.printed.submissions.to_string()),
            ("#dispatches", |row| row.printed.dispatches.to_string()),
            ("#doorbells", |row| row.at_kernel(|kernel| kernel.doorbells)),
            ("#contexts", |row| row.at_kernel(|kernel| kernel.contexts_created)),
            ("#later", |row| output::count(row.printed.later_contexts)),
            ("#switches", |row| row.at_kernel(|kernel| kernel.context_switches)),
            ("#KiB at half", |row| row.printed.footprints.middle.resident_kib.to_string()),
            ("#KiB more", |row| {
                let Footprints { middle, end, .. } = row.printed.footprints;
                (end.resident_kib - middle.resident_kib).to_string()
            }),
            ("#descriptors", |row| row.printed.footprints.end.descriptors.to_string()),
        ],
    )?;
    let kernel = if rows.iter().all(|row| row.kernel.is_some()) {
        "nothing was left open at the kernel"
    } else {
        "the runtime does not use the kernel device (-)"
    };
    report.summary(format!("every result was right, memory stayed flat, all device memory was released; {kernel}"));
    report.finish("stress", options)
}

/// A child that is forked during a wait, and ends by `exit`, leaves the contexts of its parent alone. Its exit handlers try for 2 s to get
/// locks that another thread of the parent holds, so the load takes longer.
fn beside_a_child(testbed: &Testbed, simulation: &Simulation, program: &Path) -> Result<()> {
    let mut command = simulation.command(testbed, program);
    command.args(["queues", "--seconds", "6", "--device", DriverName::Xdna.first_device()]);
    command.env("AMDXDNA_SIM_FORK", "exit@wait:20");
    process::run(&mut command, LIMIT)?.ensure(PACKAGE).context("a forked child harmed its parent")
}

fn measure(testbed: &Testbed, simulation: &Simulation, program: &Path, load: Load, args: &StressArgs) -> Result<Row> {
    let mut command = simulation.command(testbed, program);
    let word = load.to_possible_value().context("every load has a word")?;
    command.arg(word.get_name()).args(["--seconds", &args.seconds.to_string()]);
    command.args(["--device", args.driver.first_device()]);
    let finished = process::run(&mut command, LIMIT + Duration::from_secs(args.seconds))?;
    let printed: Printed = finished.json(PACKAGE)?;
    // The stand-in for later runtimes does not use the kernel device, and then there is no report.
    let kernel = match (simulation.report(), args.simulation.rocr.as_str()) {
        (Ok(kernel), _) => Some(kernel),
        (Err(absent), "new" | "old") => return Err(absent),
        (Err(_), _) => None,
    };
    let row = Row { printed, kernel };
    let trial = Trial { commands: 1, contexts: 1, imports: u64::from(args.driver == DriverName::Xdna) };
    row.arrived(trial, |kernel| simulation.nothing_open(kernel))?;
    Ok(row)
}

/// With what the driver tries a device when it opens it. It dispatches, and on the direct way it asks whether mapped files can be used
/// in place, which some kernels answer with an error of CREATE_BO.
#[derive(Debug, Clone, Copy, Default)]
struct Trial {
    commands: u64,
    contexts: u64,
    imports: u64,
}

impl Row {
    fn at_kernel(&self, count: fn(&KernelReport) -> u64) -> String {
        output::count(self.kernel.as_ref().map(count))
    }

    /// Errors unless the kernel device did what the driver says it requested, and has nothing open but what it may.
    fn arrived(&self, trial: Trial, nothing_open: impl FnOnce(&KernelReport) -> Result<()>) -> Result<()> {
        let Self { printed, kernel: Some(kernel) } = self else { return Ok(()) };
        nothing_open(kernel)?;
        for (name, calls) in &kernel.calls {
            let failed: u64 = calls.errors.values().sum();
            if failed > if name == "CREATE_BO" { trial.imports } else { 0 } {
                bail!("the kernel call {name} failed: {:?}", calls.errors);
            }
        }
        ensure!(
            kernel.commands == printed.dispatches + trial.commands,
            "the driver counts {} dispatches, the kernel device {} commands",
            printed.dispatches,
            kernel.commands
        );
        ensure!(
            kernel.contexts_created == printed.contexts_created + trial.contexts,
            "the driver counts {} contexts, the kernel device {}",
            printed.contexts_created,
            kernel.contexts_created
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(dispatches: u64, contexts: u64) -> Row {
        let look = r#"{"resident_kib":9,"descriptors":3}"#;
        let printed = format!(
            r#"{{"load":"pdis","seconds":1.5,"submissions":4,"dispatches":{dispatches},"chains":3,
            "contexts_created":{contexts},"context_switches":0,"later_contexts":0,
            "footprints":{{"early":{look},"middle":{look},"end":{look}}}}}"#
        );
        // 9 commands, 1 context, and an EXEC_CMD that failed.
        let kernel = crate::simulation::tests::sample(0);
        let mut kernel: KernelReport = serde_json::from_str(&kernel).unwrap();
        kernel.calls.values_mut().for_each(|calls| calls.errors.clear());
        Row { printed: serde_json::from_str(&printed).unwrap(), kernel: Some(kernel) }
    }

    #[test]
    fn what_did_not_arrive_is_an_error() {
        row(9, 1).arrived(Trial::default(), |_| Ok(())).unwrap();
        assert!(row(10, 1).arrived(Trial::default(), |_| Ok(())).unwrap_err().to_string().contains("9 commands"));
        assert!(row(9, 2).arrived(Trial::default(), |_| Ok(())).unwrap_err().to_string().contains("2 contexts"));
        Row { kernel: None, ..row(10, 1) }.arrived(Trial::default(), |_| Ok(())).unwrap();
    }

    #[test]
    fn calls_that_failed_and_what_is_left_open_are_errors() {
        let with = |change: fn(&mut KernelReport)| {
            let mut row = row(9, 1);
            row.kernel.as_mut().into_iter().for_each(change);
            let open = |kernel: &KernelReport| match kernel.open_at_exit.contexts {
                0 => Ok(()),
                _ => bail!("left open"),
            };
            row.arrived(Trial::default(), open).unwrap_err().to_string()
        };
        let error = with(|kernel| {
            kernel.calls.get_mut("EXEC_CMD").unwrap().errors.insert("EINTR".to_owned(), 1);
        });
        assert!(error.contains("EXEC_CMD") && error.contains("EINTR"), "{error}");
        assert!(with(|kernel| kernel.open_at_exit.contexts = 1).contains("left open"));
    }
}
