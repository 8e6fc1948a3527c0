//! The guest's first root: busybox, the modules, firmware that the driver only copies, and our first program.

use super::command_line::{self, CARVEOUT, CONTROL_PORT, NPU_ADDRESS, Share};
use super::machine::{Iommu, Machine};
use crate::files;
use crate::simulation::quoted;
use crate::testbed::virtual_machine::{DRIVER, Kernel, Parts};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("init.sh");
/// The driver hands its firmware to the NPU's security processor, and the one served here does not look at it.
const FIRMWARE: [u8; 4096] = [b'D'; 4096];
pub const ROOT_TAG: &str = "root";
/// The tag of the folder the guest can write to.
pub const RESULTS_TAG: &str = "results";

/// Makes the archive in `folder` and returns it.
pub fn make(parts: &Parts, machine: &Machine, shares: &[Share], folder: &Path) -> Result<PathBuf> {
    let kernel = parts.kernel(&machine.kernel)?;
    let unpacked = tempfile::Builder::new().prefix("initramfs-").tempdir_in(folder)?;
    let root = unpacked.path();
    for name in ["bin", "modules", "lib/firmware"] {
        fs::create_dir_all(root.join(name))?;
    }
    copy(&parts.busybox(), &root.join("bin/busybox"))?;
    for module in kernel.modules.keys() {
        copy(&parts.module(&machine.kernel, module), &root.join("modules").join(format!("{module}.ko")))?;
    }
    for name in &kernel.firmware {
        let file = root.join("lib/firmware").join(name);
        fs::create_dir_all(file.parent().context("firmware is in a folder")?)?;
        fs::write(file, FIRMWARE)?;
    }
    fs::write(root.join("init"), INIT)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    fs::write(root.join("machine.sh"), settings(kernel, machine, shares)?)?;
    archive(&parts.busybox(), root, &folder.join("initramfs.cpio"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| {
        format!("cannot copy {}; download it again with `cargo xtask vm prepare --force`", from.display())
    })
}

/// What the first program has to know of this machine, in the shell's language.
fn settings(kernel: &Kernel, machine: &Machine, shares: &[Share]) -> Result<String> {
    let (driver, others) = kernel.load_order()?;
    let carveout = if machine.iommu == Iommu::Passthrough { CARVEOUT } else { "" };
    let results =
        shares.iter().find(|share| share.tag == RESULTS_TAG).context("the guest needs a folder for results")?;
    let mut text = String::new();
    for (name, value) in [
        ("control", CONTROL_PORT),
        ("modules", &others.join(" ")),
        ("driver_modules", &driver.join(" ")),
        ("driver", DRIVER),
        ("parameters", &command_line::module_parameters(machine)),
        ("carveout", carveout),
        ("address", NPU_ADDRESS),
        ("results", &results.folder.to_string_lossy()),
    ] {
        text += &format!("{name}={}\n", quoted(value));
    }
    text += "shares() {\n";
    // The root is mounted first and elsewhere.
    for Share { tag, folder, writable } in shares.iter().filter(|share| share.tag != ROOT_TAG) {
        let place = format!("/machine{}", folder.display());
        text += &format!("    share {tag} {} {}\n", quoted(&place), if *writable { "rw" } else { "ro" });
    }
    Ok(text + "}\n")
}

/// Packs a folder in the form the kernel unpacks.
fn archive(busybox: &Path, root: &Path, file: &Path) -> Result<PathBuf> {
    let names: Vec<String> = files::below(root)?.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let mut name_list = tempfile::tempfile()?;
    name_list.write_all((names.join("\n") + "\n").as_bytes())?;
    name_list.rewind()?;
    let status = Command::new(busybox)
        .args(["cpio", "-o", "-H", "newc"])
        .current_dir(root)
        .stdin(name_list)
        .stdout(File::create(file)?)
        .stderr(std::process::Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", busybox.display()))?;
    ensure!(status.success(), "busybox cannot pack the guest's first root: {status}");
    Ok(file.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        let needs = [("9p", vec![]), ("drm", vec![]), ("amdxdna", vec!["drm".to_owned()])];
        Kernel {
            wanted: vec!["9p".to_owned(), "amdxdna".to_owned()],
            modules: needs.map(|(name, needs)| (name.to_owned(), needs)).into(),
            ..Kernel::default()
        }
    }

    fn shares() -> Vec<Share> {
        [(ROOT_TAG, "/bed/root", false), ("host0", "/it's", false), (RESULTS_TAG, "/logs/share", true)]
            .map(|(tag, folder, writable)| Share { tag: tag.to_owned(), folder: folder.into(), writable })
            .into()
    }

    /// What a shell makes of the settings, then of `script`.
    fn shell(machine: &Machine, script: &str) -> String {
        let text = settings(&kernel(), machine, &shares()).unwrap();
        let output = Command::new("sh").args(["-c", &format!("{text}{script}")]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_first_program_reads_the_settings() {
        let passthrough = Machine { iommu: Iommu::Passthrough, ..Machine::default() };
        let script = "echo \"$modules|$driver_modules|$parameters|$carveout|$results\"";
        assert_eq!(shell(&Machine::default(), script), "9p|drm amdxdna|force_iova=1||/logs/share\n");
        assert!(shell(&passthrough, script).contains("|force_iova=0|0x8000000@0x30000000|"));
        let listed = shell(&Machine::default(), "share() { echo \"$@\"; }; shares");
        assert_eq!(listed, "host0 /machine/it's ro\nresults /machine/logs/share rw\n", "the root is mounted elsewhere");
    }

    #[test]
    fn the_first_program_is_a_script_a_shell_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("init");
        fs::write(&file, INIT).unwrap();
        assert!(Command::new("sh").arg("-n").arg(&file).status().unwrap().success());
    }
}
