//! Broken machines.

use super::machine::FOLDER;
use anyhow::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub type Variables = &'static [(&'static str, &'static str)];

/// How a machine is fixed.
pub enum Fix {
    /// It has these variables instead: what the fix says is done to the simulated machine.
    Machine(Variables),
    /// The command in the fix that begins so is run.
    Command(&'static str),
    /// The command in the fix writes a file of limits, and a login takes them over.
    Limits,
    /// Files are changed as the fix says.
    Files(fn(&Path) -> Result<()>),
}

/// A machine that is broken in one way.
pub struct Case {
    pub name: &'static str,
    /// What is done to the files of the case.
    pub prepare: fn(&Path) -> Result<()>,
    /// What the machine is, beside one in order.
    pub variables: Variables,
    /// What the shell runs before.
    pub before: &'static str,
    /// The check that finds it, how bad it is, and words of cause and fix.
    pub check: &'static str,
    pub level: &'static str,
    pub cause: &'static str,
    pub fix: &'static str,
    /// Whether `devices`, which runs nothing on an NPU, offers none.
    pub hides: bool,
    pub fixed: Fix,
}

const fn machine(
    name: &'static str,
    variables: Variables,
    check: &'static str,
    (cause, fix): (&'static str, &'static str),
    fixed: Fix,
) -> Case {
    Case { name, prepare: |_| Ok(()), variables, before: "", check, level: "error", cause, fix, hides: true, fixed }
}

const fn setup(case: Case) -> Case {
    Case { hides: false, ..case }
}

/// What shows only when a context is made, and `doctor` makes one.
const fn at_work(case: Case) -> Case {
    Case { hides: false, ..case }
}

const fn warning(case: Case) -> Case {
    Case { level: "warning", hides: false, ..case }
}

const MACHINE: &str = "AMDXDNA_SIM_MACHINE";
const KERNEL: &str = "AMDXDNA_SIM_KERNEL";
/// In parts, since what is in quotes has to be a setting.
const MISSPELT: &str = concat!("GGML_HSA_", "DEVCIES");
/// As it was before it was broken.
const IN_ORDER: Fix = Fix::Machine(&[]);
const UNSET: Fix = Fix::Command("unset ");

/// A generation's file for a PCI id that no built-in one has.
fn new_generation(folder: &Path) -> Result<()> {
    let arch = fs::read_to_string(crate::workspace::root().join("hal/arch/aie2p.toml"))?;
    fs::create_dir_all(folder.join("arches"))?;
    fs::write(folder.join("arches/aie2p.toml"), arch.replace("device = 0x17f0", "device = 0x17f9"))?;
    Ok(())
}

/// A libggml-base from before backends were libraries.
fn old_ggml(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("ggml"))?;
    fs::write(folder.join("ggml/libggml-base.so"), b"\x7fELF\x02\x01\x01\0ggml_init\0")?;
    Ok(())
}

/// A folder without any permission.
fn closed_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("closed"))?;
    fs::set_permissions(folder.join("closed"), fs::Permissions::from_mode(0o000))?;
    Ok(())
}

/// Permissions count for root too.
const UNPRIVILEGED: &str = r#"[ "$(id -u)" != 0 ] || LAUNCHER="setpriv --bounding-set=-dac_override,-dac_read_search""#;

pub const CASES: &[Case] = &[
    // The NPU, its driver and its node.
    machine(
        "a forbidden node",
        &[(MACHINE, "node=forbidden")],
        "npu",
        ("no permission", "sudo usermod -aG render $USER"),
        IN_ORDER,
    ),
    machine(
        "a missing node",
        &[(MACHINE, "node=missing")],
        "npu",
        ("does not exist", "sudo udevadm trigger"),
        IN_ORDER,
    ),
    Case {
        prepare: new_generation,
        ..machine(
            "an unknown generation",
            &[(MACHINE, "pci=17f9:10")],
            "npu",
            ("no arch file names", "AIE_HAL_ARCH_PATH"),
            Fix::Machine(&[(MACHINE, "pci=17f9:10"), ("AIE_HAL_ARCH_PATH", "FOLDER/arches")]),
        )
    },
    machine(
        "old firmware",
        &[(MACHINE, "firmware=0.0.0.1")],
        "npu",
        ("is older than", "update linux-firmware"),
        Fix::Machine(&[(MACHINE, "firmware=1.1.2.65")]),
    ),
    machine("an IOMMU that is off", &[(MACHINE, "iommu=off")], "open", ("cannot be opened", "AMD-Vi"), IN_ORDER),
    machine(
        "an IOMMU in passthrough mode",
        &[(MACHINE, "iommu=passthrough")],
        "open",
        ("cannot be opened", "iommu=pt"),
        IN_ORDER,
    ),
    machine(
        "an IOMMU in passthrough mode, with a kernel that can do without",
        &[(KERNEL, "7.2"), (MACHINE, "iommu=passthrough")],
        "open",
        ("cannot be opened", "iommu=pt"),
        Fix::Machine(&[(KERNEL, "7.2"), (MACHINE, "iommu=passthrough,addresses=iova")]),
    ),
    at_work(machine(
        "no way to wait",
        &[(KERNEL, "6.14"), (MACHINE, "wait=none")],
        "open",
        ("no way to wait", "update the kernel"),
        Fix::Machine(&[(KERNEL, "6.18")]),
    )),
    at_work(machine(
        "firmware that makes no context any more",
        &[(MACHINE, "contexts=0")],
        "open",
        ("makes no context any more", "modprobe -r amdxdna; sudo modprobe amdxdna"),
        IN_ORDER,
    )),
    at_work(machine(
        "a busy NPU without a holder",
        &[("AMDXDNA_SIM_FAULTS", "CREATE_HWCTX@*=EINVAL")],
        "open",
        ("makes no context any more", "modprobe -r amdxdna"),
        IN_ORDER,
    )),
    at_work(machine(
        "contexts that another program holds",
        &[(MACHINE, "holder=1")],
        "open",
        ("another program holds the NPU: process 1 (", "sudo lsof /dev/accel/accel*"),
        IN_ORDER,
    )),
    machine(
        "a node that another program has for itself",
        &[("AMDXDNA_SIM_FAULTS", "OPEN_ACCEL@*=EBUSY")],
        "open",
        ("another program has it open exclusively", "sudo lsof"),
        IN_ORDER,
    ),
    at_work(machine(
        "no room in the device heap",
        &[(MACHINE, "heap=4096")],
        "open",
        ("device heap", "memlock unlimited"),
        IN_ORDER,
    )),
    at_work(machine(
        "memory that may not be locked",
        &[("AMDXDNA_SIM_FAULTS", "CREATE_BO@1=ENOMEM")],
        "open",
        ("the device heap: CREATE_BO", "memlock unlimited"),
        IN_ORDER,
    )),
    machine(
        "no descriptors left",
        &[("AMDXDNA_SIM_FAULTS", "OPEN_ACCEL@*=EMFILE")],
        "open",
        ("see `ulimit -n`", "ulimit -n 4096"),
        IN_ORDER,
    ),
    Case {
        // The limit that a program may raise by itself up to the machine's own.
        before: "ulimit -S -l 64",
        ..warning(machine(
            "a small limit of lockable memory",
            &[],
            "memlock",
            ("may lock 65536 bytes", "memlock unlimited"),
            Fix::Limits,
        ))
    },
    machine(
        "AMD's runtime without the KFD",
        &[(MACHINE, "kfd=missing"), ("GGML_HSA_RUNTIME", "rocr")],
        "npu",
        ("KFD", "modprobe amdgpu"),
        IN_ORDER,
    ),
    // Settings.
    machine(
        "a hidden NPU",
        &[("AIE_HAL_VISIBLE_DEVICES", "")],
        "settings",
        ("hides", "unset AIE_HAL_VISIBLE_DEVICES"),
        UNSET,
    ),
    machine(
        "a variable that shows an NPU that is not there",
        &[("AIE_HAL_VISIBLE_DEVICES", "3")],
        "settings",
        ("`3` names no NPU", "unset AIE_HAL_VISIBLE_DEVICES"),
        UNSET,
    ),
    machine("a backend that is off", &[("GGML_HSA", "off")], "settings", ("GGML_HSA is off", "unset GGML_HSA"), UNSET),
    machine(
        "a list of no devices",
        &[("GGML_HSA_DEVICES", "")],
        "settings",
        ("set and empty", "unset GGML_HSA_DEVICES"),
        UNSET,
    ),
    machine(
        "a scheme of no driver",
        &[("GGML_HSA_DEVICES", "bogus://x")],
        "open",
        ("available in this build: [xdna, mock]", "unset GGML_HSA_DEVICES"),
        UNSET,
    ),
    machine(
        "an NPU that is not there",
        &[("GGML_HSA_DEVICES", "xdna:7")],
        "open",
        ("no device for", "unset GGML_HSA_DEVICES"),
        UNSET,
    ),
    machine(
        "a parameter that there is not",
        &[("GGML_HSA_DEVICES", "xdna:0?colour=red")],
        "open",
        ("colour", "unset GGML_HSA_DEVICES"),
        UNSET,
    ),
    warning(machine(
        "an invalid value",
        &[("GGML_HSA_ENABLE_LOG", "banana")],
        "settings",
        ("`banana` is not valid", "unset GGML_HSA_ENABLE_LOG"),
        UNSET,
    )),
    warning(machine(
        "a misspelt name",
        &[(MISSPELT, "mock")],
        "settings",
        ("did you mean GGML_HSA_DEVICES", "unset GGML_HSA_DEVCIES"),
        UNSET,
    )),
    machine(
        "no kernels but those of the library, which a setting leaves out",
        &[("GGML_HSA_COMPILERS", "iron"), ("GGML_HSA_REFERENCE_KERNELS", "0")],
        "open",
        ("does not get it", "unset GGML_HSA_COMPILERS"),
        UNSET,
    ),
    // The library compiles kernels by itself, which is what the fix turns on again.
    machine(
        "no kernels, and compiling is off",
        &[("GGML_HSA_REFERENCE_KERNELS", "0"), ("GGML_HSA_JIT", "off")],
        "open",
        ("does not get it", "unset GGML_HSA_JIT"),
        UNSET,
    ),
    setup(machine(
        "a directory of kernels that does not exist",
        &[("GGML_HSA_KERNEL_DIR", "FOLDER/nowhere")],
        "settings",
        ("a path that does not exist", "unset GGML_HSA_KERNEL_DIR"),
        UNSET,
    )),
    Case {
        prepare: |folder| Ok(fs::write(folder.join("kernels.tar"), "")?),
        ..setup(machine(
            "a file in the place of a directory of kernels",
            &[("GGML_HSA_KERNEL_DIR", "FOLDER/kernels.tar")],
            "settings",
            ("a file where a folder has to be", "unset GGML_HSA_KERNEL_DIR"),
            UNSET,
        ))
    },
    Case {
        prepare: closed_folder,
        before: UNPRIVILEGED,
        ..setup(machine(
            "a directory of kernels that cannot be read",
            &[("GGML_HSA_KERNEL_DIR", "FOLDER/closed")],
            "settings",
            ("a folder that cannot be read", "chmod -R u+rX"),
            Fix::Command("chmod "),
        ))
    },
    Case {
        prepare: |folder| Ok(fs::write(folder.join("file"), "")?),
        ..warning(machine(
            "a cache that cannot be written",
            &[("GGML_HSA_KERNEL_CACHE_DIR", "FOLDER/file/cache")],
            "cache",
            ("cannot be written", "export GGML_HSA_KERNEL_CACHE_DIR=DIR"),
            Fix::Command("export "),
        ))
    },
    // The library and ggml.
    setup(machine(
        "a variable with a library that is gone",
        &[("GGML_BACKEND_PATH", "FOLDER/old/libggml-hsa.so")],
        "library",
        ("names a file that does not exist", "ggml-hsa env"),
        Fix::Command("eval "),
    )),
    setup(machine(
        "a variable with a folder",
        &[("GGML_BACKEND_PATH", FOLDER)],
        "library",
        ("is a folder", "ggml-hsa env"),
        Fix::Command("eval "),
    )),
    Case {
        prepare: old_ggml,
        ..setup(machine(
            "a ggml from before backends were libraries",
            &[("LD_LIBRARY_PATH", "FOLDER/ggml")],
            "ggml",
            ("too old to have backends as libraries", "GGML_BACKEND_DL=ON"),
            Fix::Files(|folder| Ok(fs::remove_dir_all(folder.join("ggml"))?)),
        ))
    },
];
