//! The command lines of a machine: QEMU's and the kernel's.
//!
//! The IOMMU has to come before the NPU. QEMU passes its mappings on to the device server with file descriptors of the machine's
//! memory, hence the shared memory file. With translation the IOMMU has to tell QEMU of each new mapping (caching mode);
//! without, all memory is mapped once, and the driver takes its buffers from a part of it that the kernel leaves alone.

use super::machine::{Iommu, Machine};
use std::path::{Path, PathBuf};

/// The NPU's place on the PCI bus.
pub const NPU_ADDRESS: &str = "0000:00:05.0";
const NPU_SLOT: &str = "5";
/// The port through which the host controls the guest.
pub const CONTROL_PORT: &str = "aie-vm.control";
/// What the kernel leaves alone for the NPU's buffers, as its command line and the driver's file write it.
const SET_ASIDE: &str = "memmap=128M$768M";
/// The same for the driver.
pub const CARVEOUT: &str = "0x8000000@0x30000000";

/// A folder of the host that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// What the guest asks for.
    pub tag: String,
    pub folder: PathBuf,
    /// Whether the guest may write.
    pub writable: bool,
}

#[derive(Debug)]
pub struct Files<'a> {
    pub image: &'a Path,
    pub initramfs: &'a Path,
    /// Where the first serial line is written to.
    pub console: &'a Path,
    /// The socket of the device server.
    pub device: &'a Path,
    /// The socket of the control port, on which we listen.
    pub control: &'a Path,
}

pub fn kernel(machine: &Machine) -> String {
    let mut words = vec!["console=ttyS0", "panic=-1", "quiet", "intel_iommu=on", "transparent_hugepage_shmem=always"];
    if machine.iommu == Iommu::Passthrough {
        words.extend(["iommu=pt", SET_ASIDE]);
    }
    words.extend(machine.kernel_arguments.iter().map(String::as_str));
    words.join(" ")
}

pub fn module_parameters(machine: &Machine) -> String {
    let own = match machine.iommu {
        Iommu::Translated => "force_iova=1",
        Iommu::Passthrough => "force_iova=0",
    };
    std::iter::once(own).chain(machine.module_parameters.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// What follows the name of QEMU.
pub fn qemu(machine: &Machine, files: &Files<'_>, shares: &[Share]) -> Vec<String> {
    let memory = format!("{}M", machine.memory_mib);
    let mut line = Line::default();
    line.pair("-machine", "q35,kernel-irqchip=off,memory-backend=memory");
    line.pair("-accel", "tcg,thread=multi").pair("-cpu", "max").pair("-smp", "1").pair("-m", &memory);
    line.pair("-object", &format!("memory-backend-memfd,id=memory,size={memory},share=on"));
    line.words(&["-nodefaults", "-no-user-config", "-no-reboot"]).pair("-display", "none").pair("-monitor", "none");
    // Whatever ends us ends the machine.
    line.pair("-run-with", "exit-with-parent=on");
    line.pair("-serial", &format!("file:{}", files.console.display())).pair("-append", &kernel(machine));
    line.pair("-kernel", &files.image.display().to_string());
    line.pair("-initrd", &files.initramfs.display().to_string());
    line.pair(
        "-device",
        match machine.iommu {
            Iommu::Translated => "intel-iommu,intremap=off,caching-mode=on,aw-bits=39",
            Iommu::Passthrough => "intel-iommu,intremap=off,aw-bits=39",
        },
    );
    line.pair("-device", "virtio-serial-pci,addr=8");
    if machine.terminal {
        line.pair("-chardev", "stdio,id=terminal,signal=off").pair("-device", "virtconsole,chardev=terminal");
    }
    line.pair("-chardev", &format!("socket,id=control,path={}", doubled(files.control)));
    line.pair("-device", &format!("virtserialport,chardev=control,name={CONTROL_PORT}"));
    for (index, share) in shares.iter().enumerate() {
        let access = if share.writable { "" } else { ",readonly=on" };
        let folder = doubled(&share.folder);
        let shown = format!("local,id=share{index},path={folder},security_model=none,multidevs=remap{access}");
        line.pair("-fsdev", &shown);
        let device = format!("virtio-9p-pci,fsdev=share{index},mount_tag={},addr={:#x}", share.tag, 0x10 + index);
        line.pair("-device", &device);
    }
    let device = serde_json::json!({
        "driver": "vfio-user-pci",
        "socket": {"type": "unix", "path": files.device},
        "addr": NPU_SLOT,
    });
    line.pair("-device", &device.to_string());
    line.0
}

/// A path among values that commas separate: its own are doubled.
fn doubled(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn words(&mut self, words: &[&str]) -> &mut Self {
        self.0.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    fn pair(&mut self, option: &str, value: &str) -> &mut Self {
        self.words(&[option, value])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(machine: &Machine) -> Vec<String> {
        let share = |tag: &str, folder: &str, writable| Share { tag: tag.into(), folder: folder.into(), writable };
        let files = Files {
            image: Path::new("/k/vmlinuz"),
            initramfs: Path::new("/l/initramfs"),
            console: Path::new("/l/console"),
            device: Path::new("/t/npu.sock"),
            control: Path::new("/t/control.sock"),
        };
        let shares = [share("root", "/t,b/root", false), share("results", "/l/share", true)];
        qemu(machine, &files, &shares)
    }

    fn place(line: &[String], part: &str) -> usize {
        line.iter().position(|word| word.contains(part)).unwrap_or_else(|| panic!("no {part} in {line:?}"))
    }

    #[test]
    fn the_iommu_comes_before_the_npu_and_memory_is_shared() {
        let line = line(&Machine::default());
        assert!(place(&line, "intel-iommu,intremap=off,caching-mode=on") < place(&line, "vfio-user-pci"));
        assert!(place(&line, "memory-backend-memfd,id=memory,size=1024M,share=on") > 0);
        assert!(line.contains(&"exit-with-parent=on".to_owned()));
        assert!(!line.iter().any(|word| word.contains("virtconsole")));
    }

    #[test]
    fn folders_are_shared_with_their_rights() {
        let line = line(&Machine::default());
        assert!(line[place(&line, "id=share0")].contains("path=/t,,b/root,security_model=none"), "a comma is doubled");
        assert!(line[place(&line, "id=share0")].ends_with("readonly=on"));
        assert!(!line[place(&line, "id=share1")].contains("readonly"));
        assert!(place(&line, "mount_tag=results,addr=0x11") > 0);
    }

    #[test]
    fn without_translation_memory_is_set_aside() {
        let machine = Machine {
            iommu: Iommu::Passthrough,
            kernel_arguments: vec!["dyndbg".into()],
            module_parameters: vec!["tdr_timeout_ms=500".into()],
            ..Machine::default()
        };
        assert!(kernel(&machine).ends_with("iommu=pt memmap=128M$768M dyndbg"), "{}", kernel(&machine));
        assert_eq!(module_parameters(&machine), "force_iova=0 tdr_timeout_ms=500");
        assert!(line(&machine).contains(&"intel-iommu,intremap=off,aw-bits=39".to_owned()));
        assert_eq!(module_parameters(&Machine::default()), "force_iova=1");
        assert!(!kernel(&Machine::default()).contains("memmap"));
    }
}
