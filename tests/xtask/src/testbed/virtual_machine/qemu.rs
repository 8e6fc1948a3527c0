//! QEMU and busybox: their packages, and what is stored of them.

use crate::apt::{self, PrivateApt};
use crate::process;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PACKAGES: [&str; 2] = ["qemu-system-x86", "busybox-static"];
/// What QEMU's packages depend on and a machine like ours does not: a manager of services, and ROMs of network cards.
pub const ASSUMED: [&str; 3] = ["systemd", "systemd-standalone-sysusers", "ipxe-qemu"];
const LIMIT: Duration = Duration::from_secs(60);

pub const BUSYBOX: &str = "busybox";
/// Folder of QEMU with its libraries and firmware.
pub const FOLDER: &str = "qemu";
pub const PROGRAM: &str = "qemu/qemu-system-x86_64";
pub const LIBRARIES: &str = "qemu/lib";
pub const LOADER: &str = "qemu/lib/ld-linux-x86-64.so.2";
/// What the machine executes before its kernel.
pub const FIRMWARE: &str = "qemu/firmware";
/// Files without which there is no machine.
pub const FILES: [&str; 4] = [BUSYBOX, PROGRAM, LOADER, "qemu/firmware/bios-256k.bin"];

/// Firmware by the place it has in the packages.
const FIRMWARE_FILES: [&str; 3] = [
    "seabios/bios-256k.bin",
    // Maps the interrupt controller early in the start.
    "qemu/kvmvapic.bin",
    // Starts a kernel that is given on the command line.
    "qemu/linuxboot_dma.bin",
];

/// Downloads QEMU and busybox and puts what is needed of them into `made`. Returns versions by package, and the bytes
/// downloaded.
pub fn make(apt: &PrivateApt, root: &Path, made: &Path) -> Result<(BTreeMap<String, String>, u64)> {
    let mut packages = BTreeMap::new();
    let mut bytes = 0;
    for file in apt.download(&PACKAGES)? {
        let package = apt::unpack(&file, root)?;
        packages.insert(package.name, package.version);
        bytes += package.bytes;
    }
    let (libraries, firmware) = (made.join(LIBRARIES), made.join(FIRMWARE));
    fs::create_dir_all(&libraries)?;
    fs::create_dir_all(&firmware)?;
    let program = root.join("usr/bin/qemu-system-x86_64");
    let source = root.join("usr/lib/x86_64-linux-gnu");
    let loader = source.join("ld-linux-x86-64.so.2");
    let mut command = Command::new(&loader);
    command.arg("--library-path").arg(&source).arg("--list").arg(&program);
    process::clear_settings(&mut command);
    let listing = process::run_helper(&mut command, LIMIT).context("QEMU's libraries cannot be listed")?;
    for library in linked(&listing, &source) {
        keep(&library, &libraries)?;
    }
    keep(&loader, &libraries)?;
    for file in FIRMWARE_FILES {
        keep(&root.join("usr/share").join(file), &firmware)?;
    }
    fs::copy(&program, made.join(PROGRAM)).with_context(|| format!("cannot copy {}", program.display()))?;
    keep(&root.join("usr/bin/busybox"), made)?;
    ensure!(made.join(PROGRAM).exists(), "the package qemu-system-x86 has no qemu-system-x86_64");
    Ok((packages, bytes))
}

/// The files below `folder` in the loader's lines `NAME => PATH (ADDRESS)`.
fn linked(listing: &str, folder: &Path) -> Vec<PathBuf> {
    let paths = listing.lines().filter_map(|line| line.split_once(" => ")?.1.split_whitespace().next());
    paths.map(PathBuf::from).filter(|path| path.starts_with(folder)).collect()
}

/// Copies a file, or what a link points to, into `folder` under its name.
fn keep(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().with_context(|| format!("{} has no name", file.display()))?;
    fs::copy(file, folder.join(name))
        .with_context(|| format!("cannot copy {}; Debian's packages have changed", file.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_loader_s_list() {
        let listing = "\tlinux-vdso.so.1 (0x7f)\n\tlibz.so.1 => /r/lib/libz.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7e)\n\
                       \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 => /r/lib/ld.so (0x7f)\n";
        let found = linked(listing, Path::new("/r/lib"));
        assert_eq!(found, [PathBuf::from("/r/lib/libz.so.1"), PathBuf::from("/r/lib/ld.so")]);
    }
}
