//! How the NPU sees the process's memory: IOMMU and shared virtual addresses.

use super::super::finding::Finding;
use super::super::machine::Machine;

/// From this kernel on the driver can do without shared addresses.
const IOVA: (u32, u32) = (7, 0);

/// What the kernel was started with, and how the IOMMU treats the NPUs. Only opening shows whether it works after all.
pub fn iommu(machine: &Machine) -> Vec<Finding> {
    let survey = machine.survey();
    if survey.npus.is_empty() {
        return Vec::new();
    }
    let forced = machine.text("/sys/module/amdxdna/parameters/force_iova");
    if forced.as_deref().is_some_and(|value| matches!(value, "Y" | "1")) {
        return vec![Finding::ok("iommu", "amdxdna gives the NPU addresses of its own (force_iova=1)")];
    }
    let can_do_without = machine.kernel().is_some_and(|version| version >= IOVA);
    let mut findings = Vec::new();
    for option in ["iommu=off", "amd_iommu=off"] {
        if machine.booted_with(option) {
            let text =
                format!("the kernel was started with `{option}`, so the NPU cannot use the addresses of processes");
            let remove = format!(
                "remove it: `sudo sed -i 's/\\b{option}\\b//' /etc/default/grub && sudo update-grub`, then restart"
            );
            findings.push(match can_do_without {
                true => Finding::warning(
                    "iommu",
                    text,
                    format!(
                        "{remove}; or `echo 'options amdxdna force_iova=1' | sudo tee /etc/modprobe.d/70-npu.conf`"
                    ),
                ),
                false => Finding::error("iommu", text, remove),
            });
        }
    }
    if !findings.is_empty() {
        return findings;
    }
    for option in ["iommu=pt", "iommu.passthrough=1"] {
        if machine.booted_with(option) {
            findings.push(passed_through(&format!("the kernel was started with `{option}`")));
        }
    }
    for npu in &survey.npus {
        let address = npu.id.trim_start_matches("pci-");
        let group = format!("/sys/bus/pci/devices/{address}/iommu_group");
        match machine.text(format!("{group}/type")).as_deref() {
            Some("identity") => {
                findings.push(passed_through(&format!("the IOMMU passes the addresses of {} through", npu.id)));
            }
            Some(kind) => findings.push(Finding::ok("iommu", format!("on for {}, domain type {kind}", npu.id))),
            // Kernels and containers that show no groups.
            None => {}
        }
    }
    if findings.is_empty() {
        findings.push(match machine.names("/sys/class/iommu").is_empty() {
            true => Finding::warning(
                "iommu",
                "the kernel shows no IOMMU",
                "if the NPU cannot be opened, turn the IOMMU (AMD-Vi) on in the firmware setup (BIOS)",
            ),
            false => Finding::ok("iommu", "on"),
        });
    }
    findings
}

/// A Strix Halo has run kernels of its own with `iommu=pt` and a group of type `identity` on Linux 7.0; other machines are reported to
/// reject that. So it is no fault before opening has shown it to be one.
fn passed_through(what: &str) -> Finding {
    Finding::note("iommu", format!("{what}; some NPUs work so and others do not, which opening shows"))
}
