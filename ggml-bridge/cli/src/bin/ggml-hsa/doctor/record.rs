//! A record: what a bug report needs of a machine, in a file that can be replayed elsewhere ([`super::replay`]).
//!
//! docs/npus.md describes the format. Nothing in it names the user, the machine or their files.

use super::finding::{Finding, Level};
use super::machine::Machine;
use super::privacy::Redactor;
use aie_driver_xdna::direct;
use aie_driver_xdna::discovery::FoundNpu;
use aie_driver_xdna::sysfs::{self, PciDevice};
use aie_jit_native::codegen::LoopForm;
use ggml_hsa::kernels::selftest::Outcome;
use ggml_hsa::kernels::selftest::npu::Npu;
use ggml_hsa::kernels::selftest::record::Record as Kept;
use ggml_hsa::kernels::selftest::subject::Subject;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// Number of the format.
pub const FORMAT: u32 = 1;

/// A record. Those for tests have the NPUs alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// What the machine runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// The lines of the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<RecordedFinding>,
    /// The NPUs.
    pub npus: Vec<RecordedNpu>,
    /// What the self-tests of these NPUs have found so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selftest: Vec<RecordedTest>,
}

/// What the machine runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// This program.
    pub ggml_hsa: String,
    /// The processor's architecture.
    pub processor: String,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The kernel module, when it shows a version.
    pub amdxdna: Option<String>,
}

/// A line of the report, without its fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFinding {
    /// What was looked at.
    pub check: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub text: String,
}

/// An NPU, and what the kernel has answered while it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedNpu {
    /// Its generation, when it is known.
    pub generation: Option<String>,
    /// PCI device id and revision in hexadecimal: `17f0:10`.
    pub pci: Option<String>,
    /// Its name.
    pub name: String,
    /// Its firmware's version as the kernel shows it.
    pub firmware: Option<String>,
    /// What became of opening it.
    pub outcome: String,
    /// The kernel calls, one a line.
    pub calls: Vec<String>,
}

/// A subject of the self-test on one NPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTest {
    /// The NPU's name.
    pub npu: String,
    /// A family of the library's own kernels, `hardware-loops`, or `imported-memory`.
    pub family: String,
    /// As `ggml-hsa selftest` says it: `right`, `wrong`, `hung`, `failed`; `untested`: nothing is known under this firmware, kernel and
    /// library.
    pub outcome: String,
    /// Which node was not right, and what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Record {
    /// Examines `machine`, whose report is `findings`, and opens its NPUs, unless nothing is to be opened.
    pub fn of(machine: &Machine, findings: &[Finding], redactor: &Redactor) -> Self {
        let clean = |text: &str| redactor.publish(text);
        let npus = machine.survey().npus;
        // Containers may show the nodes' devices only.
        let nodes = sysfs::accel_nodes(&machine.file("/sys")).into_iter().map(|node| node.pci);
        let devices: Vec<PciDevice> = nodes.chain(sysfs::pci_devices(&machine.file("/sys"))).collect();
        let module = sysfs::module(&machine.file("/sys"));
        let versions = Versions {
            ggml_hsa: env!("CARGO_PKG_VERSION").to_owned(),
            processor: std::env::consts::ARCH.to_owned(),
            kernel: machine.text("/proc/sys/kernel/osrelease").map(|release| clean(&release)),
            amdxdna: module.and_then(|module| module.version),
        };
        let finding = |Finding { check, level, text, .. }: &Finding| RecordedFinding {
            check: (*check).to_owned(),
            level: *level,
            text: clean(text),
        };
        Self {
            format: FORMAT,
            versions: Some(versions),
            findings: findings.iter().map(finding).collect(),
            npus: npus.iter().map(|npu| recorded(npu, &devices, machine, redactor)).collect(),
            selftest: npus.iter().flat_map(|npu| tested(npu, machine, redactor)).collect(),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads one.
    ///
    /// # Errors
    /// The system's; that it is no record, or one of a later version.
    pub fn read(path: &Path) -> io::Result<Self> {
        let record: Self = serde_json::from_str(&fs::read_to_string(path)?)?;
        match record.format {
            FORMAT => Ok(record),
            other => Err(io::Error::other(format!("its format is {other}, and this program reads {FORMAT}"))),
        }
    }
}

/// What is kept of the self-tests of `npu`. Nothing is tested: a kernel that hangs the NPU would change what is recorded.
fn tested(npu: &FoundNpu, machine: &Machine, redactor: &Redactor) -> Vec<RecordedTest> {
    let Some(arch) = &npu.arch else { return Vec::new() };
    // A record makes no cache where there is none.
    let cache = Some(&machine.config.cache).filter(|cache| cache.path().exists());
    let known = Npu::found(npu, &arch.name).ok().zip(cache.and_then(|cache| Kept::open(cache).ok()));
    let turn = known.as_ref().and_then(|(id, kept)| Some((id, kept.turn().ok()?)));
    Subject::all()
        .filter(|subject| subject.is_for(arch))
        .map(|subject| {
            let outcome = turn.as_ref().and_then(|(id, turn)| {
                [subject.key(arch), subject.key(&LoopForm::Jnz.on(arch))].iter().find_map(|key| turn.outcome(id, key))
            });
            let word = outcome.as_ref().map_or("untested", Outcome::word).to_owned();
            let reason = outcome.filter(|outcome| *outcome != Outcome::Right);
            let reason = reason.map(|outcome| redactor.publish(&outcome.to_string()));
            RecordedTest { npu: npu.name.clone(), family: subject.name().to_owned(), outcome: word, reason }
        })
        .collect()
}

fn recorded(npu: &FoundNpu, devices: &[PciDevice], machine: &Machine, redactor: &Redactor) -> RecordedNpu {
    let address = npu.id.trim_start_matches("pci-");
    let ids = devices.iter().find(|pci| pci.address == address).and_then(|pci| match (&pci.device, &pci.revision) {
        (Ok(device), Ok(revision)) => Some(format!("{device:04x}:{revision:02x}")),
        _ => None,
    });
    let (outcome, calls) = match (&npu.arch, &npu.node, npu.disabled()) {
        _ if machine.open.is_none() => ("not opened".to_owned(), Vec::new()),
        (Some(arch), Some(node), None) => {
            let (outcome, calls) = direct::record(node, arch);
            let outcome = outcome.map_or_else(|cause| cause.to_string(), |info| info.runtime);
            (outcome, calls.iter().map(ToString::to_string).collect())
        }
        (.., disabled) => (disabled.unwrap_or_else(|| "it has no node".to_owned()), Vec::new()),
    };
    RecordedNpu {
        generation: npu.arch.as_ref().map(|arch| arch.name.clone()),
        pci: ids,
        name: npu.name.clone(),
        firmware: npu.firmware.clone(),
        outcome: redactor.publish(&outcome),
        calls,
    }
}
