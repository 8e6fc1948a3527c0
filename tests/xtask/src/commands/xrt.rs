//! `cargo xtask xrt`: AMD's other user-space stack on the simulated kernel device, and what its dispatches cost beside ours.
//!
//! XRT shares no code with ROCR and none with us. That it finds the simulated NPU and gets right results from our PDIs and
//! instruction streams judges both: the files, and the kernel device, which has to behave as XRT knows it from the real driver.

mod costs;
pub mod job;
pub mod program;

use crate::library;
use crate::process;
use crate::session::{KERNELS, Options};
use crate::simulation::KernelReport;
use crate::steps::Steps;
use crate::testbed::Testbed;
use crate::workspace;
use anyhow::{Result, ensure};
use clap::Args;
use costs::Costs;
use job::{Code, JUDGE, Kernels, PARTS, Printed};
use program::{Argument, Job};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const GENERATIONS: [&str; 2] = ["aie2", "aie2p"];
const KERNEL_VARIABLE: &str = "AMDXDNA_SIM_KERNEL";
/// The PCI address the simulated device has unless another is requested, as XRT prints it.
const ADDRESS: &str = "0000:c5:00.1";

/// Run reference kernels and machine code through AMD's XRT on the simulated kernel device, and compare its kernel calls with ours.
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
    let (mut steps, mut dispatches, mut all_costs) = (Steps::default(), 0, Vec::new());
    let ours = costs::program(options)?;
    let generations = chosen(&GENERATIONS, &args.generation);
    for generation in &generations {
        let kernels = Kernels::write(&stage.work.path().join(generation), generation, options.offline)?;
        steps.check(&format!("{generation}: machine code"), || stage.machine_code(generation, &kernels.code));
        let kernels = kernels.described(&stage.testbed)?;
        for kernel in chosen(&KERNELS, &args.kernel) {
            let machine = Machine { generation: generation.clone(), kernel };
            steps.check(&format!("{}: xrt-smi examine", machine.name()), || stage.examine(&machine));
            for (part, count) in PARTS {
                steps.check(&format!("{}: {part}", machine.name()), || {
                    let printed = stage.run_part(&machine, &job::job(&kernels, part, count), None)?;
                    dispatches += printed.dispatches;
                    Ok(format!("{} dispatches with checked results", printed.dispatches))
                });
            }
            // The kernel calls are the same on all generations.
            if Some(generation) == generations.last() {
                steps.check(&format!("{}: kernel calls", machine.name()), || {
                    let costs = Costs::measure(&stage, &machine, &kernels[..1], &ours)?;
                    let problems = costs.problems();
                    all_costs.push(costs);
                    ensure!(problems.is_empty(), "{}", problems.join("\n"));
                    Ok("not more than XRT's".to_owned())
                });
            }
        }
    }
    let mut report = steps.report()?;
    report.line(costs::table(&all_costs));
    let xrt = stage.testbed.stamp.packages.get("libxrt2").cloned().unwrap_or_default();
    report.summary(format!("XRT {xrt}: {dispatches} dispatches with checked results"));
    report.field("costs", all_costs)?;
    report.field("xrt", xrt)?;
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
    fn command(&self, program: &str, machine: &Machine) -> Result<Command> {
        let mut command = self.testbed.command_with(&self.testbed.xrt(program)?, Some(&self.preload));
        machine.set(&mut command);
        Ok(command)
    }

    /// `xrt-smi examine` lists the device by its address, as an NPU.
    fn examine(&self, machine: &Machine) -> Result<String> {
        let finished = process::run(self.command("xrt-smi", machine)?.arg("examine"), LIMIT)?;
        finished.ensure("xrt-smi")?;
        let listed = finished.stdout.lines().any(|line| line.contains(ADDRESS) && line.contains("NPU"));
        ensure!(listed, "it lists no NPU at {ADDRESS}:\n{}", finished.stdout);
        Ok(format!("an NPU at {ADDRESS}"))
    }

    /// Runs the kernel with machine code, from an xclbin.
    fn machine_code(&self, generation: &str, code: &Code) -> Result<String> {
        let (kernel, folder) = (&code.kernel, code.kernel.folder());
        let xclbin = kernel.container(&self.testbed)?;
        let [source, result, after] = ["source.bin", "result.bin", "after.bin"].map(|name| folder.join(name));
        let bytes = |addend: u32| -> Vec<u8> {
            (0..code.words).flat_map(|word| (word * 77_777 + addend).to_le_bytes()).collect()
        };
        fs::write(&source, bytes(0))?;
        fs::write(&result, vec![0; bytes(0).len()])?;
        let arguments = [&source, &result].map(|before| Argument { before: before.clone(), after: after.clone() });
        let job = Job { xclbin, instructions: kernel.instructions.clone(), arguments: arguments.into() };
        job.run(&self.testbed, &self.preload, generation, folder, LIMIT)?;
        ensure!(fs::read(after)? == bytes(code.addend), "the result is not every word plus {}", code.addend);
        Ok(format!("{} words computed by an emulated core", code.words))
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
        let printed: Printed = process::run(&mut command, LIMIT)?.json(JUDGE)?;
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
