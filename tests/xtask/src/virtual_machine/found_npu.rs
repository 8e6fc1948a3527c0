//! What the guest's kernel shows of its NPU.

use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// The NPU as the guest's kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundNpu {
    /// What the driver calls it.
    pub name: String,
    /// PCI vendor, device and revision.
    pub pci: String,
    /// The version its firmware tells.
    pub firmware: String,
    /// The kernel that found it.
    pub kernel: String,
}

impl FoundNpu {
    /// Prints the driver's files as lines `NAME=VALUE`, in the guest; exit code 1 if there is no NPU.
    pub const SCRIPT: &str = "cd /sys/class/accel/accel0/device || exit 1\n\
                              for name in vendor device revision vbnv fw_version; do echo \"$name=$(cat $name)\"; done\n\
                              echo \"kernel=$(uname -r)\"\n";

    /// Reads these lines.
    pub fn parse(text: &str) -> Result<Self> {
        let values: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
        let value = |name: &str| {
            let value = values.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
            value.with_context(|| format!("the guest's kernel shows an NPU without {name}: {text:?}"))
        };
        let number = |name: &str| value(name).map(|value| value.trim_start_matches("0x"));
        Ok(Self {
            name: value("vbnv")?.to_owned(),
            pci: format!("{}:{} revision {}", number("vendor")?, number("device")?, number("revision")?),
            firmware: value("fw_version")?.to_owned(),
            kernel: value("kernel")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_npu_is_read_from_the_driver_s_files() {
        let text = "vendor=0x1022\ndevice=0x17f0\nrevision=0x10\nvbnv=NPU Strix\nfw_version=1.2.3.4\nkernel=7.2.13\n";
        let npu = FoundNpu::parse(text).unwrap();
        assert_eq!((npu.name.as_str(), npu.pci.as_str()), ("NPU Strix", "1022:17f0 revision 10"));
        let error = FoundNpu::parse("vendor=0x1022\nvbnv=\n").unwrap_err().to_string();
        assert!(error.contains("without vbnv"), "{error}");
    }
}
