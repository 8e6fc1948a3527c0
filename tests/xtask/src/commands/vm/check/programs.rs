//! Programs in a guest: the conformance suite and loads, stock llama.cpp, AMD's runtime ROCR with a stand-in for KFD, and AMD's XRT
//! with its own driver for amdxdna.

use super::{Checks, STRESS};
use crate::commands::xrt::job::{self, JUDGE, Kernels, PARTS, Printed};
use crate::generation::Request;
use crate::session::{DEVICE_NAME, DriverName};
use crate::stats::Stats;
use crate::virtual_machine::{Guest, Machine, NPU_ADDRESS, Rocr};
use crate::{build, generation, model, process, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
/// Places in the cache: enough, and little memory.
const CONTEXT: &str = "256";
const PROMPT: &str = "The three states of matter are";
const TOKENS: [usize; 2] = [8, 32];

impl Checks {
    /// The text has to be that of the simulated device, byte for byte.
    pub(super) fn demo(&mut self, guest: &mut Guest) -> Result<String> {
        let request = Request {
            model: model::locate(None, &self.host.testbed, self.offline)?,
            prompt: PROMPT.to_owned(),
            tokens: TOKENS[usize::from(!self.is_ci)],
            threads: Some(1),
            flash_attention: false,
        };
        let stats = guest.shared_folder().join("stats.json");
        // The checkout is read-only there.
        let mut there = self.llama(DriverName::Xdna, &request, Path::new("/tmp/kernel-cache"))?;
        there.env("GGML_HSA_STATS", &stats);
        let finished = guest.run(&there, LIMIT)?;
        finished.ensure("llama-completion")?;
        let mut here = self.llama(DriverName::Mock, &request, &workspace::target().join("kernel-cache"))?;
        let expected = process::run(&mut here, LIMIT)?;
        generation::require_success(&expected).context("on the simulated device")?;
        ensure!(
            finished.stdout == expected.stdout,
            "the text differs from that of the simulated device:\n{}\nand there\n{}",
            finished.stdout.trim_end(),
            expected.stdout.trim_end()
        );
        let stats = Stats::read(&stats)?;
        let device = stats.used()?;
        ensure!(device.array() > 0, "no operation ran on {DEVICE_NAME}'s array");
        Ok(format!(
            "the same text; {} dispatches in {} chains, {:.1} s",
            device.counters.dispatches,
            device.counters.chains,
            finished.elapsed.as_secs_f64()
        ))
    }

    /// Someone who may lock 8 MiB loads the model, which is larger, and gets the same text; `doctor` says how the model is used.
    pub(super) fn as_ordinary_user(&self, guest: &mut Guest) -> Result<String> {
        let request = Request {
            model: model::locate(None, &self.host.testbed, self.offline)?,
            prompt: PROMPT.to_owned(),
            tokens: 2,
            threads: Some(1),
            flash_attention: false,
        };
        let there = self.llama(DriverName::Xdna, &request, Path::new("/tmp/kernel-cache-of-user"))?;
        let finished = guest.run_as_user(&there, LIMIT)?;
        finished.ensure("llama-completion")?;
        let errors = generation::library_messages(&finished.stderr);
        let errors = generation::errors(&errors).join("; ");
        ensure!(errors.is_empty(), "the library reported {errors}");
        let mut here = self.llama(DriverName::Mock, &request, &workspace::target().join("kernel-cache"))?;
        let expected = process::run(&mut here, LIMIT)?;
        ensure!(finished.stdout == expected.stdout, "another text: {:?} and {:?}", finished.stdout, expected.stdout);
        let mut doctor = self.host.testbed.command_for(&self.program);
        doctor.args(["doctor", "--json"]).env("GGML_HSA_REFERENCE_KERNELS", "1");
        // What else is wrong with the guest does not matter here, so neither does the exit code.
        let report = guest.run_as_user(&doctor, LIMIT)?;
        let report: serde_json::Value = serde_json::from_str(&report.stdout)
            .with_context(|| format!("doctor printed no report: {}", report.last_lines(12)))?;
        let texts = report["findings"].as_array().into_iter().flatten().filter_map(|finding| finding["text"].as_str());
        let way = texts.filter_map(|text| text.split_once("models are ")).map(|(_, way)| way.to_owned()).next();
        Ok(format!("the same text; models are {}", way.context("doctor does not say how models are used")?))
    }

    fn llama(&self, driver: DriverName, request: &Request, cache: &Path) -> Result<Command> {
        let mut command = self.host.testbed.command("llama-completion")?;
        request.arguments(&mut command);
        command.args(["-c", CONTEXT]);
        command.env("GGML_BACKEND_PATH", &self.library).env("GGML_HSA_DEVICES", driver.first_device());
        // Nothing else executes on a simulated array.
        command.env("GGML_HSA_REFERENCE_KERNELS", "1").env("GGML_HSA_KERNEL_CACHE_DIR", cache);
        Ok(command)
    }
}

/// Loads: what is run in CI, and otherwise.
const LOADS: [[&[&str]; 2]; 3] = [
    [&["dispatches", "--dispatches", "2000"], &["dispatches", "--dispatches", "20000"]],
    [&["pdis", "--pdis", "80", "--repetitions", "4"], &["pdis", "--repetitions", "10"]],
    [&["queues", "--seconds", "5"], &["queues", "--seconds", "30"]],
];

impl Checks {
    /// The conformance suite on the direct way.
    pub(super) fn conformance(&mut self, guest: &mut Guest) -> Result<String> {
        let mut suite = self.host.testbed.command_for(&self.conformance);
        if self.is_ci {
            // Half a minute each on a processor that is emulated; stage `conformance-xdna` has them on ten machines.
            for name in LARGE {
                suite.args(["--skip", name]);
            }
        }
        conformance(guest, &suite)
    }

    /// Loads in which every result is looked at.
    pub(super) fn stress(&mut self, guest: &mut Guest) -> Result<String> {
        let mut figures = Vec::new();
        for load in LOADS {
            let load = load[usize::from(!self.is_ci)];
            let finished = guest.run(&self.load(load), LIMIT)?;
            let report: serde_json::Value = finished.json(&load.join(" "))?;
            let count = |name: &str| report[name].as_u64().unwrap_or_default();
            figures.push(format!(
                "{}: {} dispatches in {} chains, {} contexts",
                load[0],
                count("dispatches"),
                count("chains"),
                count("contexts_created")
            ));
        }
        Ok(figures.join("; "))
    }

    /// A child that is forked in the middle of a load and ends in each of its ways leaves the contexts of its parent alone. One that is
    /// made before a submission finds the locks taken; one that is made during a wait could reach the contexts, 2 s after the first try.
    pub(super) fn forks(&mut self, guest: &mut Guest) -> Result<String> {
        const ENDS: [&str; 3] = ["exit", "_exit", "exec"];
        const SHORT: &[&str] = &["dispatches", "--dispatches", "2000"];
        const LONG: &[&str] = &["queues", "--seconds", "6"];
        let ends = ENDS.into_iter().flat_map(|end| [(end, "", SHORT), (end, "wait:", LONG)]);
        for (end, place, arguments) in ends.filter(|(end, place, _)| *end == "exit" || place.is_empty()) {
            let mut load = self.host.testbed.command_with(&self.stress, Some(&self.preload));
            load.args(arguments);
            load.env("AMDXDNA_SIM_DEVICES", "host").env("AMDXDNA_SIM_FORK", format!("{end}@{place}20"));
            guest
                .run(&load, LIMIT)?
                .ensure(STRESS)
                .with_context(|| format!("a forked child that ends by {end}, made at {place}20"))?;
        }
        Ok(format!("loads beside a child that ends by {}, made before a submission and during a wait", ENDS.join(", ")))
    }

    /// Dispatches with checked results, and but for CI the conformance suite.
    pub(super) fn rocr(&mut self, guest: &mut Guest) -> Result<String> {
        let rocr = Rocr::ensure(&self.host, self.offline)?;
        let mut load = self.load(&["dispatches", "--dispatches", "2000", "--device", DriverName::Rocr.first_device()]);
        rocr.prepare(&mut load);
        guest.run(&load, LIMIT)?.ensure(STRESS)?;
        if self.is_ci {
            return Ok("2,000 dispatches".into());
        }
        let mut suite = self.host.testbed.command_for(&build::conformance("rocr", self.offline)?);
        rocr.prepare(&mut suite);
        Ok(format!("2,000 dispatches; conformance: {}", conformance(guest, &suite)?))
    }
}

/// Tests of the conformance suite that move much memory.
const LARGE: [&str; 2] = ["dispatch::large_arguments", "command_list::fills_can_be_large"];
/// By how much less is done in CI.
const CI_SHARE: u32 = 10;

impl Checks {
    /// `xrt-smi examine` lists the NPU.
    pub(super) fn examine(&mut self, guest: &mut Guest) -> Result<String> {
        let mut command = self.host.testbed.command_for(&self.host.testbed.xrt("xrt-smi")?);
        command.arg("examine");
        let finished = guest.run(&command, LIMIT)?;
        finished.ensure("xrt-smi")?;
        let line = finished.stdout.lines().find(|line| line.contains(NPU_ADDRESS));
        let line = line.with_context(|| format!("it lists no NPU at {NPU_ADDRESS}:\n{}", finished.stdout))?;
        Ok(line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", "))
    }

    /// Our program on XRT's Python module, with reference kernels in xclbins.
    pub(super) fn xrt(&mut self, guest: &mut Guest, machine: &Machine) -> Result<String> {
        let testbed = &self.host.testbed;
        let folder = guest.shared_folder();
        let kernels = Kernels::write(&folder.join("xrt"), machine.npu.arch(), self.offline)?.described(testbed)?;
        let python = testbed.xrt("python3")?;
        let mut dispatches = 0;
        for (part, count) in PARTS {
            let count = if self.is_ci { count.div_ceil(CI_SHARE) } else { count };
            let file = folder.join("job.json");
            fs::write(&file, serde_json::to_vec(&job::job(&kernels, part, count))?)?;
            let mut command = testbed.command_for(&python);
            command.env("PYTHONDONTWRITEBYTECODE", "1").arg(workspace::root().join(JUDGE)).arg(&file);
            let finished = guest.run(&command, LIMIT)?;
            let printed: Printed = finished.json(part)?;
            ensure!(printed.part == part && printed.dispatches > 0, "{part}: it ran nothing");
            dispatches += printed.dispatches;
        }
        Ok(format!("{dispatches} dispatches with checked results from {} xclbins", kernels.len()))
    }
}

/// Runs a conformance suite; its own count of cases.
fn conformance(guest: &mut Guest, suite: &Command) -> Result<String> {
    let finished = guest.run(suite, LIMIT)?;
    finished.ensure("the conformance suite")?;
    let summary = finished.stdout.lines().find_map(|line| line.strip_prefix("test result: ok. "));
    let summary = summary.context("the suite printed no result")?;
    Ok(summary.split("; finished").next().unwrap_or(summary).to_owned())
}
