//! `cargo xtask xrt`: AMD's other user-space stack on the simulated kernel device, and what its dispatches cost beside ours.
//!
//! XRT shares no code with ROCR and none with us. That it finds the simulated NPU and gets right results from our PDIs and
//! instruction streams judges both: the files, and the kernel device, which has to behave as XRT knows it from the real driver.

mod costs;

use crate::judges::xrt_job::{self, JUDGE, PARTS, Printed};
use crate::library;
use crate::output::Report;
use crate::process::{self, Finished};
use crate::session::{KERNELS, Options};
use crate::simulation::KernelReport;
use crate::testbed::Testbed;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use clap::Args;
use costs::Costs;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const GENERATIONS: [&str; 2] = ["aie2", "aie2p"];
const KERNEL_VARIABLE: &str = "AMDXDNA_SIM_KERNEL";
/// The PCI address the simulated device has unless another is asked for, as XRT prints it.
const ADDRESS: &str = "0000:c5:00.1";
/// Run reference kernels through AMD's XRT on the simulated kernel device, and compare its kernel calls with ours.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask xrt
  cargo xtask xrt --kernel 7.2 --generation aie2
  cargo xtask xrt --json

Exit code 1 if XRT does not find the device, a result is wrong, anything is left open at the kernel, or our dispatches cost more
kernel calls than XRT's.")]
pub struct XrtArgs {
    /// Only these kernels, separated by commas
    #[arg(long, value_name = "KERNEL", value_delimiter = ',', value_parser = KERNELS)]
    kernel: Vec<String>,
    /// Only these generations, separated by commas
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = GENERATIONS)]
    generation: Vec<String>,
}

/// One program on one machine.
#[derive(Serialize)]
struct Row {
    generation: String,
    kernel: String,
    part: String,
    dispatches: u64,
    seconds: f64,
}

/// Everything needed to start XRT's programs.
struct Stage {
    testbed: Testbed,
    preload: PathBuf,
    work: tempfile::TempDir,
}

#[derive(Clone)]
struct Machine {
    generation: String,
    kernel: String,
}

pub fn run(args: &XrtArgs, options: &Options) -> Result<()> {
    let started = Instant::now();
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    testbed.xrt("xrt-smi")?;
    let stage = Stage {
        preload: library::preload(options.offline)?,
        work: tempfile::Builder::new().prefix("xrt-").tempdir()?,
        testbed,
    };
    let chosen = |all: &[&str], only: &[String]| -> Vec<String> {
        let wanted = |name: &&&str| only.is_empty() || only.iter().any(|only| only == **name);
        all.iter().filter(wanted).map(|name| (*name).to_owned()).collect()
    };
    let (mut report, mut runs, mut all_costs) = (Report::default(), Vec::new(), Vec::new());
    let ours = costs::program(options)?;
    let generations = chosen(&GENERATIONS, &args.generation);
    for generation in &generations {
        let kernels = xrt_job::kernels(&stage.testbed, stage.work.path(), generation)?;
        for kernel in chosen(&KERNELS, &args.kernel) {
            let machine = Machine { generation: generation.clone(), kernel };
            stage.judge(&machine, &kernels, &mut runs, &mut report.problems);
            // The kernel calls are the same on all generations.
            if Some(generation) != generations.last() {
                continue;
            }
            match Costs::measure(&stage, &machine, &kernels[..1], &ours) {
                Ok(costs) => {
                    report.problems.extend(costs.problems());
                    all_costs.push(costs);
                }
                Err(error) => report.problems.push(format!("{}: kernel calls: {error:#}", machine.name())),
            }
        }
    }
    report.rows(
        "runs",
        &runs,
        &[
            ("generation", |row| row.generation.clone()),
            ("kernel", |row| row.kernel.clone()),
            ("part", |row| row.part.clone()),
            ("#dispatches", |row| row.dispatches.to_string()),
            ("#seconds", |row| format!("{:.2}", row.seconds)),
        ],
    )?;
    report.line(costs::table(&all_costs));
    let xrt = stage.testbed.stamp().packages.get("libxrt2").cloned().unwrap_or_default();
    let (dispatches, seconds) = (runs.iter().map(|row| row.dispatches).sum::<u64>(), started.elapsed().as_secs_f64());
    let problems = report.problems.len();
    report.summary(format!(
        "XRT {xrt}: {dispatches} dispatches with checked results, {problems} problems, {seconds:.1} s"
    ));
    report.field("costs", all_costs)?;
    report.field("xrt", xrt)?;
    report.field("seconds", seconds)?;
    report.finish("xrt", options)
}

impl Machine {
    fn name(&self) -> String {
        format!("{} on Linux {}", self.generation, self.kernel)
    }

    fn set(&self, command: &mut Command) {
        command.env("AMDXDNA_SIM_DEVICES", &self.generation).env(KERNEL_VARIABLE, &self.kernel);
    }
}

impl Stage {
    /// XRT's tool and our program on one machine.
    fn judge(&self, machine: &Machine, kernels: &[serde_json::Value], runs: &mut Vec<Row>, problems: &mut Vec<String>) {
        if let Err(error) = self.examine(machine) {
            problems.push(format!("{}: xrt-smi examine: {error:#}", machine.name()));
        }
        for (part, count) in PARTS {
            let started = Instant::now();
            let job = xrt_job::job(kernels, part, count);
            match self.run_part(machine, &job, None) {
                Ok(printed) => runs.push(Row {
                    generation: machine.generation.clone(),
                    kernel: machine.kernel.clone(),
                    part: printed.part,
                    dispatches: printed.dispatches,
                    seconds: started.elapsed().as_secs_f64(),
                }),
                Err(error) => problems.push(format!("{}: {part}: {error:#}", machine.name())),
            }
        }
    }

    fn command(&self, program: &str, machine: &Machine) -> Result<Command> {
        let mut command = self.testbed.command_with(&self.testbed.xrt(program)?, Some(&self.preload));
        machine.set(&mut command);
        Ok(command)
    }

    /// `xrt-smi examine` lists the device by its address, as an NPU.
    fn examine(&self, machine: &Machine) -> Result<()> {
        let finished = process::run(self.command("xrt-smi", machine)?.arg("examine"), LIMIT)?;
        ensure!(finished.success(), "{}", told(&finished));
        let listed = finished.stdout.lines().any(|line| line.contains(ADDRESS) && line.contains("NPU"));
        ensure!(listed, "it lists no NPU at {ADDRESS}:\n{}", finished.stdout);
        Ok(())
    }

    /// Runs our program with a job; `record` gets the stream of calls. Everything it made must be gone from the kernel device.
    fn run_part(&self, machine: &Machine, job: &serde_json::Value, record: Option<&Path>) -> Result<Printed> {
        let (file, kernel_report) = (self.work.path().join("job.json"), self.work.path().join("report.json"));
        fs::write(&file, serde_json::to_vec(job)?)?;
        // Absent unless a program has ended since.
        let _ = fs::remove_file(&kernel_report);
        let mut command = self.command("python3", machine)?;
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("AMDXDNA_SIM_REPORT", &kernel_report);
        if let Some(record) = record {
            command.env("AMDXDNA_SIM_RECORD", record);
        }
        command.arg(workspace::root().join(JUDGE)).arg(&file);
        let finished = process::run(&mut command, LIMIT)?;
        ensure!(finished.success(), "{}", told(&finished));
        let printed: Printed = serde_json::from_str(&finished.stdout)
            .with_context(|| format!("{JUDGE} printed no report but {:?}", finished.stdout))?;
        let kernel: KernelReport = KernelReport::read(&kernel_report)?;
        ensure!(
            kernel.commands == printed.dispatches,
            "the program counts {} dispatches, the kernel device {} commands",
            printed.dispatches,
            kernel.commands
        );
        kernel.nothing_open()?;
        Ok(printed)
    }
}

/// How a program ended, with its last words.
fn told(finished: &Finished) -> String {
    format!("{}\n{}", finished.describe(), finished.last_words(8))
}
