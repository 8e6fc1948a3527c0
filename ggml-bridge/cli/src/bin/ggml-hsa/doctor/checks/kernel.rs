//! The kernel and its module amdxdna.

use super::super::finding::Finding;
use super::super::machine::Machine;
use aie_driver_xdna::sysfs;

/// The first kernel with amdxdna.
const FIRST: (u32, u32) = (6, 14);

/// Folders with settings of modules, those of the administrator first.
const FOLDERS: [&str; 4] = ["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"];

/// Whether the kernel is one that can have the driver.
pub fn version(machine: &Machine) -> Vec<Finding> {
    let release = machine.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let loaded = sysfs::module(&machine.file("/sys")).is_some();
    vec![match machine.kernel() {
        Some(version) if version >= FIRST => Finding::ok("kernel", format!("Linux {release}")),
        Some(_) if loaded => Finding::ok("kernel", format!("Linux {release}, with a module amdxdna from elsewhere")),
        Some(_) => Finding::error(
            "kernel",
            format!("Linux {release} has no driver for NPUs; the first that has is 6.14"),
            "install a newer kernel (Ubuntu 24.04: `sudo apt install linux-generic-hwe-24.04`; Debian: \
             `sudo apt install -t stable-backports linux-image-amd64`) and restart, or install AMD's module from \
             https://github.com/amd/xdna-driver",
        ),
        None => Finding::warning(
            "kernel",
            "the kernel's version cannot be read from /proc/sys/kernel/osrelease",
            "in a container or sandbox, mount /proc",
        ),
    }]
}

/// Whether amdxdna is loaded, and what keeps it from being loaded at the next start.
pub fn module(machine: &Machine) -> Vec<Finding> {
    let loaded = sysfs::module(&machine.file("/sys"));
    let mut findings = Vec::new();
    if let Some(module) = &loaded {
        let version = module.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        findings.push(Finding::ok("driver", format!("amdxdna{version} is loaded")));
    }
    let barred = |text: String, fix: String| match loaded {
        Some(_) => Finding::warning("driver", format!("{text}: it will be missing after the next start"), fix),
        None => Finding::error("driver", text, fix),
    };
    for option in ["modprobe.blacklist=amdxdna", "module_blacklist=amdxdna", "initcall_blacklist=amdxdna_mod_init"] {
        if machine.booted_with(option) {
            findings.push(barred(
                format!("the kernel was started with `{option}`"),
                format!("remove it: `sudo sed -i 's/{option}//' /etc/default/grub && sudo update-grub`, then restart"),
            ));
        }
    }
    for (file, line) in barring_lines(machine) {
        findings.push(barred(
            format!("{file} has the line `{line}`"),
            format!("`sudo sed -i '/amdxdna/s/^/# /' {file} && sudo modprobe amdxdna`"),
        ));
    }
    findings
}

/// Lines that keep modprobe from loading amdxdna, with their files.
fn barring_lines(machine: &Machine) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for folder in FOLDERS {
        for name in machine.names(folder).into_iter().filter(|name| name.ends_with(".conf")) {
            let file = format!("{folder}/{name}");
            for line in machine.text(&file).unwrap_or_default().lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let bars = match words[..] {
                    ["blacklist", "amdxdna", ..] => true,
                    ["install", "amdxdna", program, ..] => program.ends_with("/false") || program.ends_with("/true"),
                    _ => false,
                };
                if bars {
                    lines.push((file.clone(), line.trim().to_owned()));
                }
            }
        }
    }
    lines
}
