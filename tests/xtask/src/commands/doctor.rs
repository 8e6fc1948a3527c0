//! `cargo xtask doctor`: `ggml-hsa doctor` and `ggml-hsa devices` on the simulated kernel device, in order and broken.
//!
//! The program's unit tests break trees of files; here what is broken answers the program's own kernel calls, so that what only
//! shows when an NPU is opened is among the cases. Each machine has to be named with its cause and a mend; with the mend applied
//! (the setting of the simulated machine taken back) the NPU is offered.

use crate::process;
use crate::session::Options;
use crate::steps::Steps;
use crate::{build, library};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Check that `ggml-hsa doctor` and `devices` name what is broken, on the simulated kernel device.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask doctor
  cargo xtask doctor --program target/debug/ggml-hsa --preload target/debug/libamdxdna_preload.so

Exit code 1 if a machine was not named, or not mended.")]
pub struct DoctorArgs {
    /// The program to check [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The simulated kernel device [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
}

type Variables = &'static [(&'static str, &'static str)];

/// A broken machine: what it is in variables, the check that finds it, and words of cause and mend.
struct Case {
    name: &'static str,
    variables: Variables,
    check: &'static str,
    cause: &'static str,
    mend: &'static str,
}

const fn machine(
    name: &'static str,
    variables: Variables,
    check: &'static str,
    (cause, mend): (&'static str, &'static str),
) -> Case {
    Case { name, variables, check, cause, mend }
}

const MACHINE: &str = "AMDXDNA_SIM_MACHINE";

const CASES: &[Case] = &[
    machine(
        "a forbidden node",
        &[(MACHINE, "node=forbidden")],
        "npu",
        ("no permission", "sudo usermod -aG render $USER"),
    ),
    machine("a missing node", &[(MACHINE, "node=missing")], "npu", ("does not exist", "sudo udevadm trigger")),
    machine("an unknown generation", &[(MACHINE, "pci=17f9:00")], "npu", ("no arch file names", "AIE_HAL_ARCH_PATH")),
    machine("old firmware", &[(MACHINE, "firmware=0.0.0.1")], "npu", ("is older than", "update linux-firmware")),
    machine("an IOMMU that is off", &[(MACHINE, "iommu=off")], "open", ("cannot be opened", "AMD-Vi")),
    machine(
        "an IOMMU in passthrough mode",
        &[(MACHINE, "iommu=passthrough")],
        "open",
        ("cannot be opened", "iommu=pt"),
    ),
    machine("no way to wait", &[(MACHINE, "wait=none")], "open", ("no way to wait", "update the kernel")),
    machine(
        "no contexts",
        &[(MACHINE, "contexts=0")],
        "open",
        ("grants no hardware context", "sudo lsof /dev/accel/accel*"),
    ),
    machine(
        "contexts that another program holds",
        &[("AMDXDNA_SIM_FAULTS", "CREATE_HWCTX@*=EBUSY")],
        "open",
        ("another program holds the NPU", "sudo lsof"),
    ),
    machine("no room in the device heap", &[(MACHINE, "heap=4096")], "open", ("device heap", "ulimit -l")),
    machine(
        "AMD's runtime without the KFD",
        &[(MACHINE, "kfd=missing"), ("GGML_HSA_RUNTIME", "rocr")],
        "npu",
        ("KFD", "modprobe amdgpu"),
    ),
    machine(
        "no kernels",
        &[("GGML_HSA_REFERENCE_KERNELS", "0"), ("GGML_HSA_JIT", "off")],
        "open",
        ("does not get it", "GGML_HSA_KERNEL_DIR"),
    ),
    machine("a hidden NPU", &[("AIE_HAL_VISIBLE_DEVICES", "")], "settings", ("hides", "unset AIE_HAL_VISIBLE_DEVICES")),
];

pub fn run(args: &DoctorArgs, options: &Options) -> Result<()> {
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => build::cargo(&build::BACKEND, options.offline)?.executable("bin", "ggml-hsa")?,
    };
    let preload = match &args.preload {
        Some(preload) => std::path::absolute(preload)?,
        None => library::preload(options.offline)?,
    };
    let cache = tempfile::Builder::new().prefix("ggml-hsa-doctor-").tempdir()?;
    let rig = Rig { program, preload, cache: cache.path().to_owned() };
    let mut steps = Steps::default();
    steps.check("a machine in order", || rig.in_order(&[]));
    for kernel in ["legacy", "6.14", "6.18", "7.2"] {
        steps
            .check(&format!("a machine in order, kernel {kernel}"), || rig.in_order(&[("AMDXDNA_SIM_KERNEL", kernel)]));
    }
    for case in CASES {
        steps.check(case.name, || rig.broken(case));
    }
    steps.report()?.finish("doctor", options)
}

struct Rig {
    program: PathBuf,
    preload: PathBuf,
    cache: PathBuf,
}

impl Rig {
    /// What the program prints with `--json`, and its exit code.
    fn ask(&self, what: &str, variables: &[(&str, &str)]) -> Result<(Value, Option<i32>)> {
        let mut command = Command::new(&self.program);
        process::clear_settings(&mut command);
        command.args([what, "--json"]).env("LD_PRELOAD", &self.preload).env("AMDXDNA_SIM_DEVICES", "aie2p");
        command.env("GGML_HSA_KERNEL_CACHE_DIR", &self.cache).env("GGML_HSA_REFERENCE_KERNELS", "1");
        command.envs(variables.iter().copied());
        let end = process::run(&mut command, Duration::from_secs(120))?;
        let value = serde_json::from_str(&end.stdout).with_context(|| format!("{what}: {}", end.describe()))?;
        Ok((value, end.status.code()))
    }

    /// The NPU is offered, and neither program has anything against it. What is missing of llama.cpp here does not count.
    fn in_order(&self, variables: &[(&str, &str)]) -> Result<String> {
        let (report, _) = self.ask("doctor", variables)?;
        let wrong: Vec<&Value> = findings(&report).filter(|f| f["level"] == "error" && about_the_npu(f)).collect();
        ensure!(wrong.is_empty(), "{wrong:?}");
        let offered = findings(&report).find(|f| f["check"] == "open" && f["level"] == "ok");
        let offered = offered.context("the NPU was not opened")?["text"].as_str().unwrap_or_default().to_owned();
        let (devices, code) = self.ask("devices", variables)?;
        ensure!(code == Some(0) && devices[0]["state"] == "offered", "exit code {code:?}, {devices}");
        Ok(offered)
    }

    fn broken(&self, case: &Case) -> Result<String> {
        let (report, code) = self.ask("doctor", case.variables)?;
        ensure!(code == Some(1), "exit code {code:?} instead of 1");
        let named = findings(&report).find(|f| f["check"] == case.check && contains(&f["text"], case.cause));
        let named = named.with_context(|| format!("no `{}` with `{}` in {report:#}", case.check, case.cause))?;
        ensure!(named["level"] == "error" && contains(&named["mend"], case.mend), "{named:#}");
        let (devices, code) = self.ask("devices", case.variables)?;
        let offered = devices.as_array().into_iter().flatten().any(|device| device["state"] == "offered");
        ensure!(code == Some(1) && !offered, "exit code {code:?} of `devices`, {devices}");
        self.in_order(&[]).context("mended")?;
        Ok(named["text"].as_str().unwrap_or_default().to_owned())
    }
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

/// Whether a finding is about the simulated machine, not about this one.
fn about_the_npu(finding: &Value) -> bool {
    ["npu", "open", "driver", "iommu", "settings"].iter().any(|check| finding["check"] == *check)
}

fn contains(text: &Value, words: &str) -> bool {
    text.as_str().is_some_and(|text| text.contains(words))
}
