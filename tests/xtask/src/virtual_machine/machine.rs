//! What a machine is made of, and how it is to be.

use crate::library;
use crate::session::Options;
use crate::testbed::Testbed;
use crate::testbed::virtual_machine::Parts;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// An NPU that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServedNpu {
    /// Phoenix and Hawk Point: 1022:1502, 5 columns of AIE2.
    Npu1,
    /// Strix: 1022:17f0 revision 10, 8 columns of AIE2P.
    Npu4,
    /// Strix Halo: revision 11.
    Npu5,
    /// Krackan: revision 20.
    Npu6,
}

impl ServedNpu {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npu1 => "npu1",
            Self::Npu4 => "npu4",
            Self::Npu5 => "npu5",
            Self::Npu6 => "npu6",
        }
    }

    /// The generation of its array, by the name of its arch file.
    pub fn arch(self) -> &'static str {
        if self == Self::Npu1 { "aie2" } else { "aie2p" }
    }
}

/// How the addresses the NPU uses become addresses of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Iommu {
    /// Each buffer gets addresses of the device's own.
    Translated,
    /// The device uses addresses of memory, and its buffers come from a part of it set aside.
    Passthrough,
}

impl Iommu {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Translated => "translated",
            Self::Passthrough => "passthrough",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel, by the first two numbers of its version.
    pub kernel: String,
    /// The NPU.
    pub npu: ServedNpu,
    /// What is between it and memory.
    pub iommu: Iommu,
    /// The machine's memory.
    pub memory_mib: u32,
    /// Options of the device server, beside those for the socket and the NPU.
    pub device_options: Vec<String>,
    /// Parameters of the driver for NPUs, `NAME=VALUE`, which come after the ones the machine needs.
    pub module_parameters: Vec<String>,
    /// Words for the kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// Whether its second console is the caller's terminal.
    pub terminal: bool,
}

/// Memory when nothing else is said.
pub const MEMORY_MIB: u32 = 1024;
/// Below this the part set aside for the NPU's buffers would not be in memory.
const LEAST_MEMORY_PASSTHROUGH_MIB: u32 = 1024;
const LEAST_MEMORY_MIB: u32 = 384;

impl Default for Machine {
    fn default() -> Self {
        Self {
            kernel: "7.2".to_owned(),
            npu: ServedNpu::Npu4,
            iommu: Iommu::Translated,
            memory_mib: MEMORY_MIB,
            device_options: Vec::new(),
            module_parameters: Vec::new(),
            kernel_arguments: Vec::new(),
            terminal: false,
        }
    }
}

impl Machine {
    /// Its kernel, NPU and IOMMU, for people and names of folders.
    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.kernel, self.npu.name(), self.iommu.name())
    }

    /// Errors if it cannot be.
    pub fn check(&self) -> Result<()> {
        let least = match self.iommu {
            Iommu::Translated => LEAST_MEMORY_MIB,
            Iommu::Passthrough => LEAST_MEMORY_PASSTHROUGH_MIB,
        };
        ensure!(
            self.memory_mib >= least,
            "a machine with {} MiB of memory was requested; with --iommu {} it needs at least {least}",
            self.memory_mib,
            self.iommu.name()
        );
        Ok(())
    }
}

/// What machines are made of.
#[derive(Debug)]
pub struct Host {
    /// QEMU and the kernels.
    pub parts: Parts,
    /// The guest's root.
    pub testbed: Testbed,
    /// The program that serves the NPU.
    pub server: PathBuf,
}

impl Host {
    /// Downloads and builds what is missing. `server` is used instead of the project's own.
    pub fn ensure(options: &Options, server: Option<&Path>) -> Result<Self> {
        let testbed = Testbed::ensure(&options.testbed, options.offline)?;
        let parts = Parts::ensure(&options.testbed, options.offline)?;
        let server = match server {
            Some(path) => std::fs::canonicalize(path).with_context(|| {
                format!("cannot read the device server {}; leave out --device-server to build it", path.display())
            })?,
            None => library::device_server(options.offline)?,
        };
        Ok(Self { parts, testbed, server })
    }

    /// The folders a guest sees at the paths they have here, read-only; none is inside another.
    pub fn shares(&self) -> Result<Vec<PathBuf>> {
        let mut folders = vec![workspace::root(), workspace::target(), self.testbed.dir.to_path_buf()];
        folders.extend(std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute()));
        let mut found = Vec::new();
        for folder in folders.into_iter().filter(|folder| folder.exists()) {
            found.push(folder.canonicalize().with_context(|| format!("cannot resolve {}", folder.display()))?);
        }
        Ok(outermost(found))
    }
}

fn outermost(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !kept.iter().any(|other| folder.starts_with(other)) {
            kept.push(folder);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_inside_another_is_not_shared_again() {
        let folders = ["/w/target", "/x/bed", "/w", "/w2", "/x/bed"].map(PathBuf::from);
        assert_eq!(outermost(folders.into()), ["/w", "/w2", "/x/bed"].map(PathBuf::from));
    }

    #[test]
    fn too_little_memory_says_how_much_it_takes() {
        Machine::default().check().unwrap();
        let machine = Machine { memory_mib: 512, iommu: Iommu::Passthrough, ..Machine::default() };
        let error = machine.check().unwrap_err().to_string();
        assert!(error.contains("512") && error.contains("at least 1024"), "{error}");
    }
}
