//! `cargo xtask selftest`: the self-test of native kernels, on the emulated array and before a simulated NPU.
//!
//! `ggml-hsa selftest` has to find every family right, in other orders of events and on a used array too, and each kind of mistake that
//! the simulated kernel device can make. Then
//! stock test-backend-ops runs on that device as users have it, with nothing set: what is right is used, what is wrong is not, is
//! said once, and what is known is not tried again before something has changed. Stock llama.cpp has the same text where the array reads
//! other pages than those of the mapped model: the self-test of imported memory sees it, and the model is copied.

use crate::generation::{Request, library_messages, require_success};
use crate::process::{self, Finished};
use crate::session::{DEVICE_NAME, Options};
use crate::simulation::KernelReport;
use crate::stats::{DeviceStats, Stats};
use crate::steps::Steps;
use crate::testbed::Testbed;
use crate::{build, library, model};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Check the self-test of native kernels: right, wrong and hung families, and what becomes of them in stock programs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask selftest
  cargo xtask selftest --program target/debug/ggml-hsa --library target/debug/libggml_hsa.so --preload target/debug/libamdxdna_preload.so

Exit code 1 if a family is not right, or a mistake has another effect than it should.")]
pub struct SelftestArgs {
    /// The program to check [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The library to check [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The simulated kernel device [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
}

const FAULTS: &str = "AMDXDNA_SIM_FAULTS";
const LIMIT: Duration = Duration::from_secs(300);
/// Each node once: what differs from run to run is not its numbers.
const ONCE: &str = "--rounds=1";
/// What stock ggml is asked to compute: a few nodes of an operation that one family alone has.
const OPERATION: [&str; 4] = ["-o", "SQRT", "-p", "type=f32"];
const FAMILY: &str = "elementwise";
const PRODUCTS: &str = "GGML_HSA_NATIVE_PRODUCTS";
/// Files that are mapped for reading can be imported on this kernel.
const IMPORTING: (&str, &str) = ("AMDXDNA_SIM_KERNEL", "legacy");
const IMPORTED: [&str; 2] = ["--family", "imported-memory"];
/// The array reads zeroes instead of what is imported.
const OTHER_PAGES: (&str, &str) = (FAULTS, "pages@*");

pub fn run(args: &SelftestArgs, options: &Options) -> Result<()> {
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let given = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
    let library = library::locate(args.library.as_deref(), options.offline)?;
    let program = match given(&args.program)? {
        Some(program) => program,
        None => build::cargo(&build::BACKEND, options.offline)?.executable("bin", "ggml-hsa")?,
    };
    let preload = match given(&args.preload)? {
        Some(preload) => preload,
        None => library::preload(options.offline)?,
    };
    let rig = Rig { testbed, library, program, preload, folder: tempfile::tempdir()? };
    let mut steps = Steps::default();
    steps.check("the emulated array", || rig.all_right(&["mock:aie2"], &[]));
    for device in ["mock:aie2?seeds=4&reloads=1", "mock:aie2p?seeds=4&reloads=1"] {
        steps.check(&format!("in other orders of events, {device}"), || rig.all_right(&[device, ONCE], &[]));
    }
    for device in ["mock:aie2?residue=kept", "mock:aie2p?residue=kept"] {
        steps.check(&format!("on what others have left, {device}"), || rig.all_right(&[device, ONCE], &[]));
    }
    steps.check("the simulated kernel device", || rig.all_right(&[], &[]));
    steps.check("its clock", || rig.clock());
    steps.check("wrong results", || rig.found(&["--family", FAMILY], &[(FAULTS, "garbage@*")], "wrong"));
    // The first commands are those that opening tries.
    steps.check("a kernel that never signals", || rig.found(&["--family", "rope"], &[(FAULTS, "timeout@4")], "hung"));
    steps.check("stock ggml, a family that is wrong", || {
        let run = rig.backend("stock", &[(FAULTS, "garbage@*")])?;
        run.is_quarantined(&[FAMILY])?;
        ensure!(run.opened == 2, "the NPU was opened {} times, for itself and for a trial", run.opened);
        Ok(run.seen())
    });
    steps.check("the next program, where all would be right", || {
        let run = rig.backend("stock", &[])?;
        run.is_quarantined(&[FAMILY])?;
        ensure!(run.opened == 1, "there was a trial: the NPU was opened {} times", run.opened);
        Ok(run.seen())
    });
    // All of them are tried before one is used, and the first that is wrong leaves them out.
    steps.check("stock ggml, rings that are wrong, too", || {
        let run = rig.backend("rings", &[(FAULTS, "garbage@*"), (PRODUCTS, "rings")])?;
        run.is_quarantined(&["rings", FAMILY])?;
        Ok(run.seen())
    });
    let newer = ("AMDXDNA_SIM_MACHINE", "firmware=9.0.0.1");
    steps.check("newer firmware", || {
        let run = rig.backend("stock", &[newer])?;
        run.is_used()?;
        ensure!(run.opened == 2, "there was no trial: the NPU was opened {} times", run.opened);
        Ok(run.seen())
    });
    steps.check("the same once more", || {
        let run = rig.backend("stock", &[newer])?;
        run.is_used()?;
        ensure!(run.opened == 1, "there was a trial: the NPU was opened {} times", run.opened);
        Ok(run.seen())
    });
    match rig.import_obstacle()? {
        None => check_imports(&mut steps, &rig, &model::locate(None, &rig.testbed, options.offline)?),
        Some(reason) => steps.check("imported memory", || Ok(format!("not tried, since {reason}"))),
    }
    steps.report()?.finish("selftest", options)
}

/// A mapped model on a kernel that imports it, right and wrongly.
fn check_imports(steps: &mut Steps, rig: &Rig, model: &Path) {
    steps.check("other pages than were imported", || rig.found(&IMPORTED, &[IMPORTING, OTHER_PAGES], "wrong"));
    let request = Request {
        model: model.to_owned(),
        prompt: "The capital of France is".to_owned(),
        tokens: 4,
        threads: None,
        flash_attention: false,
    };
    steps.check("stock llama.cpp, a model in place and one that is copied", || {
        let (in_place, warnings) = rig.text(&request, "pages", &[])?;
        ensure!(warnings.is_empty(), "{warnings:?}");
        let (copied, warnings) = rig.text(&request, "other-pages", &[OTHER_PAGES])?;
        ensure!(copied == in_place, "the text is {copied:?} instead of {in_place:?}");
        let is_said = warnings.len() == 1 && warnings[0].contains("models are copied");
        ensure!(is_said, "not one warning: {warnings:?}");
        Ok(format!("the same text twice; {}", warnings[0]))
    });
    steps.check("without the self-test, a model on other pages", || {
        let variables = [OTHER_PAGES, ("GGML_HSA_SELFTEST", "off")];
        let ((right, _), (wrong, warnings)) =
            (rig.text(&request, "pages", &[])?, rig.text(&request, "off", &variables)?);
        ensure!(
            right != wrong && warnings.is_empty(),
            "nothing shows that the model was in place: {wrong:?}, {warnings:?}"
        );
        Ok("another text, as the model was used where it is mapped".to_owned())
    });
}

struct Rig {
    testbed: Testbed,
    library: PathBuf,
    program: PathBuf,
    preload: PathBuf,
    folder: TempDir,
}

/// A run of stock ggml.
struct Run {
    device: DeviceStats,
    warnings: Vec<String>,
    /// How often the NPU was opened.
    opened: u64,
}

impl Rig {
    /// A program on the simulated kernel device, with a kernel cache of this name.
    fn on_npu(&self, program: &Path, cache: &str) -> Command {
        let mut command = self.testbed.command_with(program, Some(&self.preload));
        // Faults are counted in commands, and what is expected here is of one trial.
        command.env("GGML_HSA_NATIVE_LOOPS", "hardware");
        command.env("AMDXDNA_SIM_DEVICES", "aie2").env("GGML_HSA_KERNEL_CACHE_DIR", self.folder.path().join(cache));
        command
    }

    /// What `ggml-hsa selftest` says.
    fn ask(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(Value, Finished)> {
        let mut command = self.on_npu(&self.program, "program");
        // Emulated cores are slower than an NPU's.
        command.args(["selftest", "--limit", "120"]).args(arguments).arg("--json").envs(variables.iter().copied());
        let end = process::run(&mut command, LIMIT)?;
        Ok((serde_json::from_str(&end.stdout).with_context(|| end.describe())?, end))
    }

    fn all_right(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String> {
        let (report, end) = self.ask(arguments, variables)?;
        let families = report["families"].as_array().context("no families")?;
        // Only memory can be refused, by a kernel that cannot pin what is mapped for reading.
        let refused = |family: &Value| family["family"] == IMPORTED[1] && family["outcome"] == "refused";
        // Some families are of aie2 alone, and what aie2p has instead is for it alone.
        let is_made = |family: &Value| {
            let may_be_absent = report["arch"] == "aie2p" || family["family"] == "rings-products";
            !may_be_absent || family["outcome"] != "not made"
        };
        let families: Vec<&Value> = families.iter().filter(|family| !refused(family) && is_made(family)).collect();
        let right = families.iter().filter(|family| family["outcome"] == "right").count();
        ensure!(end.status.success() && right == families.len() && right > 0, "{}: {report:#}", end.describe());
        let cases: u64 = families.iter().filter_map(|family| family["cases"].as_u64()).sum();
        Ok(format!("{right} families, {cases} nodes"))
    }

    /// The clock that the kernel device tells is in the report, as long as a context is there.
    fn clock(&self) -> Result<String> {
        let (report, end) = self.ask(&["--family", "rope", ONCE], &[])?;
        let mhz = report["clocks"]["array_mhz"].as_u64();
        ensure!(mhz == Some(1600), "{}: {report:#}", end.describe());
        Ok("1600 MHz".to_owned())
    }

    /// A fault has this outcome, and without it the family is right.
    fn found(&self, arguments: &[&str], variables: &[(&str, &str)], outcome: &str) -> Result<String> {
        let (report, end) = self.ask(arguments, variables)?;
        let family = &report["families"][0];
        ensure!(end.status.code() == Some(1) && family["outcome"] == outcome, "{}: {report:#}", end.describe());
        let well: Vec<(&str, &str)> = variables.iter().copied().filter(|(name, _)| *name != FAULTS).collect();
        self.all_right(arguments, &well).context("repeated")?;
        Ok(family["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// Why mapped files cannot be imported here at all: a user has to be allowed to pin as much as the machine has.
    fn import_obstacle(&self) -> Result<Option<String>> {
        let (report, _) = self.ask(&IMPORTED, &[IMPORTING])?;
        let row = &report["families"][0];
        Ok((row["outcome"] == "refused").then(|| row["reason"].as_str().unwrap_or_default().to_owned()))
    }

    /// The text of stock llama.cpp on the kernel that imports, and what our library said of self-tests. Reference kernels compute it,
    /// which are fast here; that native ones are possible, too, is what has the NPU tested.
    fn text(&self, request: &Request, cache: &str, variables: &[(&str, &str)]) -> Result<(String, Vec<String>)> {
        let mut command = self.on_npu(&self.testbed.program("llama-completion")?, cache);
        command.env("GGML_BACKEND_PATH", &self.library).env("GGML_HSA_DEVICES", "xdna:0");
        command.env("GGML_HSA_REFERENCE_KERNELS", "1").env("GGML_HSA_COMPILERS", "reference,native");
        command.envs([IMPORTING]).envs(variables.iter().copied());
        let end = request.run(command, |_| ())?;
        require_success(&end)?;
        let said = library_messages(&end.stderr).into_iter().filter(|line| line.contains("selftest")).collect();
        Ok((request.text_in(&end)?, said))
    }

    /// Stock test-backend-ops, which has to find every result right.
    fn backend(&self, cache: &str, variables: &[(&str, &str)]) -> Result<Run> {
        let (stats, report) = (self.folder.path().join("stats.json"), self.folder.path().join("report.json"));
        let mut command = self.on_npu(&self.testbed.program("test-backend-ops")?, cache);
        // Of one family, so that trials can be counted.
        command.env(PRODUCTS, "product");
        command.args(["test", "-b", DEVICE_NAME]).args(OPERATION).envs(variables.iter().copied());
        command.env("GGML_BACKEND_PATH", &self.library).env("GGML_HSA_DEVICES", "xdna:0");
        command.env("GGML_HSA_STATS", &stats).env("AMDXDNA_SIM_REPORT", &report);
        let end = process::run(&mut command, LIMIT)?;
        ensure!(end.status.success(), "{}: {}", end.describe(), end.stdout);
        let report = KernelReport::read(&report)?;
        let warnings = library_messages(&end.stderr).into_iter().filter(|line| line.contains("selftest")).collect();
        let opened = report.calls.get("OPEN_ACCEL").map_or(0, |calls| calls.count);
        Ok(Run { device: Stats::read(&stats)?.used()?.clone(), warnings, opened })
    }
}

impl Run {
    fn seen(&self) -> String {
        let code = self.device.work.code_dispatches;
        format!(
            "{code} dispatches of machine code, {} nodes on the host, {} warnings",
            self.device.host(),
            self.warnings.len()
        )
    }

    /// Nothing is machine code, and there is one warning for each of these families.
    fn is_quarantined(&self, families: &[&str]) -> Result<()> {
        ensure!(self.device.work.code_dispatches == 0 && self.device.host() > 0, "{}", self.seen());
        let says = |(warning, family): (&String, &&str)| warning.contains(&format!("the family `{family}`"));
        let named = self.warnings.len() == families.len() && self.warnings.iter().zip(families).all(says);
        ensure!(named, "not one warning for each of {families:?}: {:?}", self.warnings);
        Ok(())
    }

    fn is_used(&self) -> Result<()> {
        ensure!(self.device.work.code_dispatches > 0 && self.device.host() == 0, "{}", self.seen());
        ensure!(self.warnings.is_empty(), "{:?}", self.warnings);
        Ok(())
    }
}
