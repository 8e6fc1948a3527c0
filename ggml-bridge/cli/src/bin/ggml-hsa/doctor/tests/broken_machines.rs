//! Machines whose kernel, driver, node, addresses or memory are broken, and those whose NPU does not open.

use super::super::finding::Level::{Error, Warning};
use super::broken::{Broken, row};
use super::rig::DEVICE;

const NODE: &str = "/dev/accel/accel0";
const BARS: &str = "/etc/modprobe.d/local.conf";

pub const MACHINES: &[Broken] = &[
    // The kernel and its driver.
    row(
        "a kernel from before the driver",
        |rig| {
            rig.write("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
            rig.unload();
        },
        ("kernel", Error),
        ("6.8.0-45-generic has no driver", "install a newer kernel"),
        |rig| {
            rig.write("/proc/sys/kernel/osrelease", "6.14.0-9-generic\n");
            rig.serve();
        },
    ),
    row(
        "a module that is not loaded",
        |rig| rig.unload(),
        ("npu", Error),
        ("amdxdna is not loaded", "sudo modprobe amdxdna"),
        |rig| rig.serve(),
    ),
    row(
        "a module on a blacklist",
        |rig| {
            rig.unload();
            rig.write(BARS, "# mine\nblacklist amdxdna\n");
        },
        ("driver", Error),
        (
            "/etc/modprobe.d/local.conf has the line `blacklist amdxdna`",
            "sudo sed -i '/amdxdna/s/^/# /' /etc/modprobe.d/local.conf",
        ),
        |rig| {
            rig.write(BARS, "# mine\n# blacklist amdxdna\n");
            rig.serve();
        },
    ),
    row(
        "a module on a blacklist, loaded by hand",
        |rig| rig.write(BARS, "blacklist amdxdna\n"),
        ("driver", Warning),
        ("missing after the next start", "sudo sed -i"),
        |rig| rig.write(BARS, "# blacklist amdxdna\n"),
    ),
    row(
        "a module that modprobe replaces by nothing",
        |rig| {
            rig.unload();
            rig.write(BARS, "install amdxdna /bin/false\n");
        },
        ("driver", Error),
        ("install amdxdna /bin/false", "sudo sed -i"),
        |rig| {
            rig.remove(BARS);
            rig.serve();
        },
    ),
    row(
        "a module that the kernel's command line bars",
        |rig| {
            rig.unload();
            rig.boot("modprobe.blacklist=amdxdna");
        },
        ("driver", Error),
        ("started with `modprobe.blacklist=amdxdna`", "update-grub"),
        |rig| {
            rig.boot("");
            rig.serve();
        },
    ),
    row(
        "firmware that is not installed",
        |rig| {
            rig.unserve();
            rig.remove("/lib/firmware/amdnpu");
        },
        ("firmware", Error),
        ("no amdnpu/17f0_10 in /lib/firmware", "linux-firmware"),
        |rig| {
            rig.write("/lib/firmware/amdnpu/17f0_10/npu.sbin.xz", "");
            rig.serve();
        },
    ),
    row(
        "firmware that is too new for the kernel",
        |rig| {
            rig.unserve();
            rig.remove("/lib/firmware/amdnpu/17f0_10/npu.sbin.zst");
            rig.link("/lib/firmware/amdnpu/17f0_10/npu.sbin.zst", "/lib/firmware/amdnpu/17f0_10/npu.sbin.1.1.2.65.zst");
        },
        ("firmware", Error),
        (
            "firmware 1.1.2.65 of amdnpu/17f0_10 is for Linux 7.0 and newer; this is 6.18",
            "start a kernel of 7.0 or newer",
        ),
        |rig| {
            rig.write("/proc/sys/kernel/osrelease", "7.1.3-amd64\n");
            rig.serve();
        },
    ),
    row(
        "firmware that the driver does not take",
        |rig| rig.unserve(),
        ("npu", Error),
        ("did not bind to PCI device 0000:c6:00.1", "update linux-firmware and the kernel together"),
        |rig| rig.serve(),
    ),
    row(
        "firmware that is too old",
        |rig| rig.write(&format!("{DEVICE}/fw_version"), "0.0.0.1\n"),
        ("npu", Error),
        ("firmware 0.0.0.1 is older than", "update linux-firmware"),
        |rig| rig.write(&format!("{DEVICE}/fw_version"), "1.1.2.64\n"),
    ),
    row(
        "firmware with a version that is none",
        |rig| rig.write(&format!("{DEVICE}/fw_version"), "unknown\n"),
        ("npu", Warning),
        ("version was not checked", "update the kernel driver"),
        |rig| rig.write(&format!("{DEVICE}/fw_version"), "1.1.2.64\n"),
    ),
    row(
        "an NPU that is passed to virtual machines",
        |rig| {
            rig.unserve();
            rig.bind("vfio-pci");
        },
        ("npu", Error),
        ("bound to the kernel driver `vfio-pci`", "drivers/vfio-pci/unbind"),
        |rig| rig.serve(),
    ),
    row(
        "a container without the host's accel class",
        |rig| {
            rig.remove("/sys/class/accel/accel0");
            rig.remove(NODE);
        },
        ("npu", Error),
        ("shows no accel node", "share the host's /sys"),
        |rig| rig.serve(),
    ),
    row(
        "a generation that is not known",
        |rig| rig.write(&format!("{DEVICE}/device"), "0x17f1\n"),
        ("npu", Error),
        ("no arch file names PCI device 0x17f1", "AIE_HAL_ARCH_PATH"),
        |rig| rig.write(&format!("{DEVICE}/device"), "0x17f0\n"),
    ),
    row(
        "an attribute that is not there",
        |rig| rig.remove(&format!("{DEVICE}/revision")),
        ("npu", Error),
        ("revision: No such file", "update the kernel driver"),
        |rig| rig.write(&format!("{DEVICE}/revision"), "0x10"),
    ),
    row(
        "no NPU",
        |rig| {
            rig.unload();
            rig.remove("/sys/bus/pci/devices/0000:c6:00.1");
        },
        ("npu", Error),
        ("no NPU that its kernel knows", "firmware setup (BIOS)"),
        |rig| {
            rig.link("/sys/bus/pci/devices/0000:c6:00.1", DEVICE);
            rig.serve();
        },
    ),
    // The node and who may use it.
    row(
        "a node that udev did not make",
        |rig| rig.remove(NODE),
        ("npu", Error),
        ("accel0 does not exist", "sudo udevadm trigger"),
        |rig| rig.write(NODE, ""),
    ),
    row(
        "a user who is not in the group",
        |rig| {
            rig.groups(&["video"]);
            rig.forbid(NODE, "render", 0o660, false);
        },
        ("npu", Error),
        ("no permission", "sudo usermod -aG render $USER"),
        |rig| {
            rig.groups(&["video", "render"]);
            rig.allow_all();
        },
    ),
    row(
        "a user who has joined the group since this login",
        |rig| {
            rig.groups(&["video"]);
            rig.forbid(NODE, "render", 0o660, true);
        },
        ("npu", Error),
        ("no permission", "log out and in again"),
        |rig| {
            rig.groups(&["video", "render"]);
            rig.allow_all();
        },
    ),
    row(
        "a node for root alone",
        |rig| rig.forbid(NODE, "root", 0o600, false),
        ("npu", Error),
        ("mode 0600", "/etc/udev/rules.d/70-npu.rules"),
        |rig| rig.allow_all(),
    ),
    row(
        "a security module that denies access",
        |rig| rig.forbid(NODE, "render", 0o660, true),
        ("npu", Error),
        ("no permission", "a security module or the container's rules"),
        |rig| rig.allow_all(),
    ),
    // Addresses and memory.
    row(
        "an IOMMU that is off",
        |rig| rig.boot("iommu=off"),
        ("iommu", Error),
        ("started with `iommu=off`", "sudo sed -i 's/\\biommu=off\\b//' /etc/default/grub"),
        |rig| rig.boot(""),
    ),
    row(
        "AMD's IOMMU that is off",
        |rig| rig.boot("amd_iommu=off"),
        ("iommu", Error),
        ("started with `amd_iommu=off`", "update-grub"),
        |rig| rig.boot(""),
    ),
    row(
        "an IOMMU that the firmware setup has off",
        |rig| {
            rig.remove("/sys/class/iommu");
            rig.remove(&format!("{DEVICE}/iommu_group"));
        },
        ("iommu", Warning),
        ("shows no IOMMU", "firmware setup"),
        |rig| rig.folder("/sys/class/iommu/ivhd0"),
    ),
    row(
        "little memory that may be locked",
        |rig| rig.lockable(Some(8 << 20)),
        ("memlock", Warning),
        ("may lock 8388608 bytes", "/etc/security/limits.d/70-npu.conf"),
        |rig| rig.lockable(None),
    ),
    // Others and what opening shows.
    row(
        "another program with the NPU open",
        |rig| rig.open_file("/proc/4711/fd/3", NODE),
        ("users", Warning),
        ("have the NPU open: 4711", "ps -p 4711"),
        |rig| rig.remove("/proc/4711"),
    ),
    row(
        "another program that holds all of the NPU",
        |rig| {
            rig.opening("rejected ReleasedByOthers: the kernel driver grants no hardware context of 8 tiles: another program holds the NPU; stop it")
        },
        ("open", Error),
        ("grants no hardware context", "sudo lsof /dev/accel/accel*"),
        |rig| rig.opens(),
    ),
    row(
        "a kernel without a way to wait",
        |rig| rig.opening("rejected NewerKernelDriver: a test dispatch: this kernel has no way to wait for a command"),
        ("open", Error),
        ("no way to wait", "update the kernel to 6.14"),
        |rig| rig.opens(),
    ),
    row(
        "a kernel that rejects the process's addresses",
        |rig| {
            rig.opening("rejected Iommu: /dev/accel/accel0 cannot be opened: turn the IOMMU on in the firmware setup")
        },
        ("open", Error),
        ("cannot be opened", "AMD-Vi"),
        |rig| rig.opens(),
    ),
    row(
        "no kernels from any source",
        |rig| rig.opening("idle: no kernel for aie2p is available from any source"),
        ("open", Error),
        ("llama.cpp does not get it", "GGML_HSA_KERNEL_DIR"),
        |rig| rig.opens(),
    ),
    row(
        "no kernels but those of the library, which a setting leaves out",
        |rig| rig.opening("idle unused: no kernel for aie2p is available from any source"),
        ("open", Error),
        ("llama.cpp does not get it", "unset GGML_HSA_COMPILERS"),
        |rig| rig.opens(),
    ),
    row(
        "no kernels, and compiling is off",
        |rig| {
            rig.set("GGML_HSA_JIT", "off");
            rig.opening("idle: no kernel for aie2p is available from any source: compiling is off (GGML_HSA_JIT)");
        },
        ("open", Error),
        ("compiling is off", "unset GGML_HSA_JIT"),
        |rig| {
            rig.unset("GGML_HSA_JIT");
            rig.opens();
        },
    ),
    row(
        "a device URI of no driver",
        |rig| {
            rig.set("GGML_HSA_DEVICES", "bogus://x");
            rig.opening("rejected AnotherUri: no driver for scheme `bogus` in `bogus://x`; available in this build: [xdna, mock]");
        },
        ("open", Error),
        ("available in this build", "unset GGML_HSA_DEVICES"),
        |rig| {
            rig.unset("GGML_HSA_DEVICES");
            rig.opens();
        },
    ),
];
