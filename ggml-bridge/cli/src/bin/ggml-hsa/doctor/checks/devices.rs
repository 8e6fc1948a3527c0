//! The NPUs: what the driver sees from outside, and what opening them shows.

use super::super::finding::Finding;
use super::super::machine::Machine;
use super::super::opening::Opening;
use aie_driver_xdna::SCHEME;
use aie_driver_xdna::discovery::{LOCK_MORE, Warning};
use aie_hal::error::Remedy;
use aie_jit_iron::JitPolicy;
use ggml_hsa::settings::{GGML_HSA, GGML_HSA_DEVICES};

/// Each NPU with everything that is in its way.
pub fn npus(machine: &Machine) -> Vec<Finding> {
    let survey = machine.survey();
    if survey.npus.is_empty() {
        let text =
            "this machine has no NPU that its kernel knows: no accel node and no PCI device of a known generation";
        let simulated =
            machine.config.devices.as_ref().is_some_and(|uris| {
                !uris.is_empty() && uris.iter().all(|uri| uri.starts_with(aie_driver_mock::SCHEME))
            });
        return vec![match simulated {
            true => Finding::note("npu", format!("{text}; only simulated ones are requested")),
            false => Finding::error(
                "npu",
                text,
                "switch the NPU (IPU, AI engine) on in the firmware setup (BIOS); in a container, share the host's /sys and \
                 give `--device=/dev/accel`; without an NPU: `ggml-hsa run --device mock PROGRAM`",
            ),
        }];
    }
    let mut findings = Vec::new();
    for npu in &survey.npus {
        let name = format!("{SCHEME}://{} ({})", npu.id, npu.name);
        if npu.usable() {
            let node = npu.node.as_ref().map_or_else(String::new, |node| format!(", {}", node.display()));
            let firmware = npu.firmware.as_ref().map_or_else(String::new, |version| format!(", firmware {version}"));
            findings.push(Finding::ok("npu", format!("{name}{node}{firmware}: no problem found without opening it")));
        }
        for obstacle in &npu.obstacles {
            let (cause, fix) = obstacle.cause_and_fix();
            findings.push(Finding::error(
                "npu",
                format!("{name}: {cause}"),
                fix.unwrap_or_else(|| "`sudo dmesg | grep amdxdna` may say more".to_owned()),
            ));
        }
    }
    for warning in &survey.warnings {
        if let Warning::FirmwareUnreadable { .. } = warning {
            findings.push(Finding::warning("npu", warning.to_string(), "update the kernel driver amdxdna"));
        }
    }
    findings
}

/// Whether enough memory can be locked.
pub fn lockable_memory(machine: &Machine) -> Vec<Finding> {
    let survey = machine.survey();
    let limits = survey.warnings.iter().filter(|warning| matches!(warning, Warning::LockableMemory { .. }));
    let mut findings: Vec<Finding> = limits
        .map(|warning| {
            let (cause, fix) = warning.cause_and_fix();
            Finding::warning("memlock", cause, fix.unwrap_or_default())
        })
        .collect();
    if findings.is_empty() && !survey.npus.is_empty() {
        let limit = machine.process.lockable_bytes();
        let limit = limit.map_or_else(|| "without a limit".to_owned(), |bytes| format!("up to {bytes} bytes"));
        findings.push(Finding::ok("memlock", format!("memory can be locked {limit}")));
    }
    findings
}

/// What became of the devices that a run would open.
pub fn opened(machine: &Machine) -> Vec<Finding> {
    let Some(open) = machine.open else {
        return vec![Finding::note("open", "nothing was opened (--closed)")];
    };
    let (mut findings, mut offered): (Vec<Finding>, usize) = Default::default();
    for opening in open(machine) {
        findings.push(match opening {
            Opening::Offered { uri, copied } => {
                let way = copied.map_or("used where they are mapped".to_owned(), |why| format!("copied, because {why}"));
                offered += 1;
                Finding::ok("open", format!("{uri} works; llama.cpp gets it as HSA{}; models are {way}", offered - 1))
            }
            Opening::Idle { uri, reason, has_unused } => Finding::error(
                "open",
                format!("{uri} works, but llama.cpp does not get it: {reason}"),
                if machine.config.jit.policy == JitPolicy::Off {
                    "`unset GGML_HSA_JIT GGML_HSA_JIT_COMPILE`, so that kernels are compiled, or name a directory of compiled ones: \
                     `export GGML_HSA_KERNEL_DIR=DIR`"
                } else if has_unused {
                    "`unset GGML_HSA_COMPILERS`, so that the library's own kernels are used, or name a directory of compiled ones: \
                     `export GGML_HSA_KERNEL_DIR=DIR`"
                } else {
                    "install IRON, which compiles kernels (docs/iron-toolchain.md), or name a directory of compiled ones: \
                     `export GGML_HSA_KERNEL_DIR=DIR`"
                },
            ),
            Opening::Rejected { uri, reason, remedy } => {
                Finding::error("open", format!("{uri}: {reason}"), fix_of(remedy))
            }
        });
    }
    if findings.is_empty() && !machine.config.enabled {
        findings.push(Finding::note("open", format!("nothing is requested: {GGML_HSA} is off")));
    } else if findings.is_empty() && machine.config.devices.is_some() {
        findings.push(Finding::note("open", format!("nothing is requested: {GGML_HSA_DEVICES} is empty")));
    }
    findings
}

/// How to fix what keeps a device from being opened, whose message has the whole story.
fn fix_of(remedy: Option<Remedy>) -> &'static str {
    match remedy {
        Some(Remedy::AnotherUri) => {
            "correct GGML_HSA_DEVICES with a URI that `ggml-hsa devices` lists, or `unset GGML_HSA_DEVICES`"
        }
        Some(Remedy::ReleasedByOthers) => {
            "stop the program that `sudo lsof /dev/accel/accel*` shows, or close what uses the NPU"
        }
        Some(Remedy::RestartedFirmware) => {
            "`sudo modprobe -r amdxdna; sudo modprobe amdxdna`, which starts the NPU's firmware anew, or restart the machine"
        }
        Some(Remedy::NewerKernelDriver) => {
            "update the kernel to 6.14 or later, or AMD's module (https://github.com/amd/xdna-driver), and restart"
        }
        Some(Remedy::Iommu) => {
            "turn the IOMMU (AMD-Vi) on in the firmware setup, and start the kernel without `iommu=off`, `iommu=pt` and \
             `amd_iommu=off`"
        }
        Some(Remedy::LockableMemory) => LOCK_MORE,
        Some(Remedy::AddressSpace) => "`ulimit -v unlimited`",
        Some(Remedy::OpenFiles) => "`ulimit -n 4096`",
        None => "the message says what to do; `sudo dmesg | grep amdxdna` may say more",
    }
}
