//! The files of the simulated machine: device nodes, sysfs, and KFD's topology, as a real directory tree.
//!
//! Paths below a few prefixes are redirected into the tree; listing, links and permissions then come from the file system. It
//! is laid out as in Linux: `/sys/class/accel/accelN` is a link into the folder of the PCI device, which has the attributes.

use crate::kernel::KernelVersion;
use crate::settings::{DeviceSettings, Machine, Presence};
use aie_hal::arch::FirmwareVersion;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Prefixes that are redirected whatever the devices are.
const PREFIXES: [&str; 4] = ["/sys/class/accel", "/sys/module/amdxdna", "/sys/bus/pci/drivers/amdxdna", "/dev/accel"];
/// Those of KFD among them.
const KFD_PREFIXES: [&str; 3] = ["/sys/class/kfd", "/sys/devices/virtual/kfd", KFD_NODE];
pub const KFD_NODE: &str = "/dev/kfd";
/// Where PCI devices hang, below `/sys`: the bridge that they are behind on these machines.
const BRIDGE: &str = "devices/pci0000:00/0000:00:08.2";
/// Character device numbers: accel is a fixed one, KFD's is handed out at boot.
const ACCEL_MAJOR: u32 = 261;
const KFD_MAJOR: u32 = 235;

/// Properties of KFD's node that are 0 for a CPU.
const ZERO_PROPERTIES: &str = "\
    simd_count caches_count io_links_count p2p_links_count cpu_core_id_base simd_id_base max_waves_per_simd \
    lds_size_in_kb gds_size_in_kb num_gws wave_front_size array_count simd_arrays_per_engine cu_per_simd_array \
    simd_per_cu max_slots_scratch_cu gfx_target_version vendor_id device_id location_id domain drm_render_minor \
    hive_id num_sdma_engines num_sdma_xgmi_engines num_sdma_queues_per_engine num_cp_queues \
    max_engine_clk_fcompute";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    Accel(usize),
    Kfd,
}

impl Node {
    /// Device numbers, major and minor.
    pub fn numbers(self) -> (u32, u32) {
        match self {
            Self::Accel(index) => (ACCEL_MAJOR, index as u32),
            Self::Kfd => (KFD_MAJOR, 0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub path: CString,
    /// The device node it is.
    pub node: Option<Node>,
}

/// The paths that are simulated, known without the tree: most processes never need one.
#[derive(Debug, Default)]
pub struct Prefixes(Vec<String>);

impl Prefixes {
    pub fn new(devices: &[DeviceSettings]) -> Self {
        let mut prefixes: Vec<String> =
            PREFIXES.iter().chain(&KFD_PREFIXES).map(|prefix| (*prefix).to_owned()).collect();
        for DeviceSettings { address, .. } in devices {
            prefixes.push(format!("/sys/{BRIDGE}/{address}"));
            prefixes.push(format!("/sys/bus/pci/devices/{address}"));
        }
        Self(prefixes)
    }

    pub fn of_kfd() -> Self {
        Self(KFD_PREFIXES.map(str::to_owned).to_vec())
    }

    /// Whether `path` is one of them, or below.
    pub fn cover(&self, path: &CStr) -> bool {
        let path = path.to_bytes();
        let below = |prefix: &String| {
            path.strip_prefix(prefix.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        (path.starts_with(b"/sys/") || path.starts_with(b"/dev/")) && self.0.iter().any(below)
    }
}

#[derive(Debug)]
pub struct Tree {
    /// Without links in it.
    root: PathBuf,
    devices: usize,
    temporary: bool,
}

impl Tree {
    /// Makes the tree below `root`, or in a temporary directory.
    pub fn create(
        root: Option<&Path>,
        devices: &[DeviceSettings],
        kernel: KernelVersion,
        machine: &Machine,
    ) -> io::Result<Self> {
        let (folder, temporary) = match root {
            Some(root) => {
                fs::create_dir_all(root)?;
                (root.to_owned(), false)
            }
            None => (tempfile::Builder::new().prefix("amdxdna-sim-").tempdir()?.keep(), true),
        };
        let root = fs::canonicalize(folder)?;
        let tree = Self { root, devices: devices.len(), temporary };
        tree.kfd(machine)?;
        tree.folder("dev/accel")?;
        tree.folder("sys/class/accel")?;
        tree.folder("sys/bus/pci/devices")?;
        tree.folder("sys/bus/pci/drivers/amdxdna")?;
        if let Some(version) = kernel.profile().module_version {
            tree.file("sys/module/amdxdna/version", &format!("{version}\n"))?;
        }
        tree.file("sys/module/amdxdna/refcnt", "0\n")?;
        for (index, device) in devices.iter().enumerate() {
            tree.accel(index, device, machine)?;
        }
        Ok(tree)
    }

    fn folder(&self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.root.join(path))
    }

    fn file(&self, path: &str, content: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, content)
    }

    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        match symlink(to, self.root.join(path)) {
            // A root that is used again.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    fn node(&self, path: &str, presence: Presence) -> io::Result<()> {
        if presence == Presence::Missing {
            return match fs::remove_file(self.root.join(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let target = self.root.join(path);
        if !target.exists() {
            self.file(path, "")?;
        }
        let mode = if presence == Presence::Forbidden { 0o600 } else { 0o666 };
        fs::set_permissions(target, fs::Permissions::from_mode(mode))
    }

    fn accel(&self, index: usize, device: &DeviceSettings, machine: &Machine) -> io::Result<()> {
        let arch = &device.arch;
        let product = arch.pci.first();
        let own = product.map_or((0, 0), |id| (id.device, id.revision.unwrap_or(0)));
        let (id, revision) = machine.pci.unwrap_or(own);
        let firmware = machine.firmware.unwrap_or(device.model.firmware);
        let title = device.model.product.or(product.map(|id| id.name.as_str())).unwrap_or_default();
        let name = format!("NPU {title}");
        let address = &device.address;
        let below = format!("{BRIDGE}/{address}");
        let folder = format!("sys/{below}");
        let write = |name: &str, content: &str| self.file(&format!("{folder}/{name}"), &format!("{content}\n"));
        for (name, content) in [
            ("vendor subsystem_vendor", "0x1022"),
            ("device subsystem_device", &format!("0x{id:04x}")),
            ("revision", &format!("0x{revision:02x}")),
            ("class", "0x118000"),
            ("numa_node", "-1"),
            ("power/runtime_status", "active"),
        ] {
            name.split(' ').try_for_each(|name| write(name, content))?;
        }
        let driver = if machine.unbound { "" } else { "DRIVER=amdxdna\n" };
        let ids = format!("PCI_ID=1022:{id:04X}\nPCI_SUBSYS_ID=1022:{id:04X}");
        write("uevent", &format!("{driver}PCI_CLASS=118000\n{ids}\nPCI_SLOT_NAME={address}"))?;
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../{below}"))?;
        if machine.unbound {
            return Ok(());
        }
        write("vbnv", &name)?;
        write("device_type", "0")?;
        write("fw_version", &FirmwareVersion(firmware).to_string())?;
        self.link(&format!("{folder}/driver"), "../../../../bus/pci/drivers/amdxdna")?;
        self.link(&format!("sys/bus/pci/drivers/amdxdna/{address}"), &format!("../../../../{below}"))?;
        let accel = format!("accel/accel{index}");
        let (major, minor) = Node::Accel(index).numbers();
        write(&format!("{accel}/dev"), &format!("{major}:{minor}"))?;
        let numbers = format!("MAJOR={major}\nMINOR={minor}");
        write(&format!("{accel}/uevent"), &format!("{numbers}\nDEVNAME={accel}\nDEVTYPE=accel_minor"))?;
        self.link(&format!("{folder}/{accel}/device"), "../..")?;
        self.link(&format!("sys/class/accel/accel{index}"), &format!("../../{below}/accel/accel{index}"))?;
        self.node(&format!("dev/accel/accel{index}"), machine.node)
    }

    /// KFD with one node, a CPU: as much as ROCR needs for its host agent.
    fn kfd(&self, machine: &Machine) -> io::Result<()> {
        let present = machine.kfd != Presence::Missing;
        self.node("dev/kfd", machine.kfd).or_else(|_| {
            self.folder("dev")?;
            self.node("dev/kfd", machine.kfd)
        })?;
        self.folder("sys/class/kfd")?;
        if !present {
            return Ok(());
        }
        let topology = "sys/devices/virtual/kfd/kfd/topology";
        self.file(&format!("{topology}/generation_id"), "1\n")?;
        self.file(&format!("{topology}/system_properties"), "platform_oem 0\nplatform_id 0\nplatform_rev 0\n")?;
        let node = format!("{topology}/nodes/0");
        self.file(&format!("{node}/gpu_id"), "0\n")?;
        self.file(&format!("{node}/name"), "\n")?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut properties = format!("cpu_cores_count {cores}\nmem_banks_count 1\nmax_engine_clk_ccompute 3000\n");
        ZERO_PROPERTIES.split(' ').for_each(|name| properties.push_str(&format!("{name} 0\n")));
        self.file(&format!("{node}/properties"), &properties)?;
        let bytes = 1_u64 << 34;
        let bank = format!("heap_type 0\nsize_in_bytes {bytes}\nflags 0\nwidth 64\nmem_clk_max 2400\n");
        self.file(&format!("{node}/mem_banks/0/properties"), &bank)?;
        for empty in ["caches", "io_links", "p2p_links"] {
            self.folder(&format!("{node}/{empty}"))?;
        }
        self.link("sys/class/kfd/kfd", "../../devices/virtual/kfd/kfd")
    }

    /// Where a path that the [`Prefixes`] cover leads; `None` when it cannot be a path of the tree.
    pub fn redirect(&self, path: &CStr) -> Option<Target> {
        let path = path.to_str().ok()?;
        let node = match path.strip_prefix("/dev/") {
            None => None,
            Some("kfd") => Some(Node::Kfd),
            Some(rest) => {
                let index = rest.strip_prefix("accel/accel").and_then(|index| index.parse::<usize>().ok());
                index.filter(|index| *index < self.devices).map(Node::Accel)
            }
        };
        Some(Target { path: self.inside(path)?, node })
    }

    fn inside(&self, path: &str) -> Option<CString> {
        let mut bytes = self.root.as_os_str().as_bytes().to_vec();
        bytes.extend_from_slice(path.as_bytes());
        CString::new(bytes).ok()
    }

    /// The path that leads to a place in the tree: the inverse of [`Tree::redirect`], for results.
    pub fn outside<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(self.root.as_os_str().as_bytes())?;
        rest.starts_with(b"/").then_some(rest)
    }

    pub fn remove(&self) {
        if self.temporary {
            // A file that stays behind in the temporary folder is not worth an error at exit.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn tree(machine: &str) -> Tree {
        tree_of("6.18", machine)
    }

    fn tree_of(kernel: &str, machine: &str) -> Tree {
        let settings = Settings::of(&[("KERNEL", kernel), ("DEVICES", "aie2p,aie2"), ("MACHINE", machine)]).unwrap();
        Tree::create(None, &settings.devices, settings.kernel, &settings.machine).unwrap()
    }

    fn follow(tree: &Tree, path: &str) -> io::Result<String> {
        let target = tree.redirect(&CString::new(path).unwrap()).unwrap();
        fs::read_to_string(Path::new(std::ffi::OsStr::from_bytes(target.path.as_bytes())))
    }

    #[test]
    fn sysfs_is_laid_out_as_in_linux() {
        let tree = tree("");
        assert_eq!(follow(&tree, "/sys/class/accel/accel0/device/device").unwrap(), "0x17f0\n");
        assert_eq!(follow(&tree, "/sys/class/accel/accel1/device/device").unwrap(), "0x1502\n");
        assert_eq!(follow(&tree, "/sys/class/accel/accel0/device/vbnv").unwrap(), "NPU Strix\n");
        assert_eq!(follow(&tree, "/sys/bus/pci/devices/0000:c6:00.1/fw_version").unwrap(), "1.5.5.391\n");
        assert!(follow(&tree, "/sys/class/kfd/kfd/topology/nodes/0/properties").unwrap().contains("mem_banks_count 1"));
        let link = fs::read_link(tree.root.join("sys/class/accel/accel1")).unwrap();
        assert_eq!(link, Path::new("../../devices/pci0000:00/0000:00:08.2/0000:c6:00.1/accel/accel1"));
        let target = tree.redirect(c"/sys/class/accel/accel0/device").unwrap();
        let real = fs::canonicalize(Path::new(target.path.to_str().unwrap())).unwrap();
        let outside = tree.outside(real.as_os_str().as_bytes()).unwrap();
        assert_eq!(outside, b"/sys/devices/pci0000:00/0000:00:08.2/0000:c5:00.1");
        tree.remove();
        assert!(!tree.root.exists());
    }

    #[test]
    fn only_the_simulated_paths_are_covered() {
        let settings = Settings::of(&[]).unwrap();
        let prefixes = Prefixes::new(&settings.devices);
        for path in
            [c"/dev/null", c"/sys/class/accelerated", c"relative", c"/sys/devices/system/cpu", c"/dev/accelerator"]
        {
            assert!(!prefixes.cover(path), "{path:?}");
        }
        for path in
            [c"/dev/accel", c"/dev/kfd", c"/sys/class/accel/accel0", c"/sys/bus/pci/devices/0000:c5:00.1/vendor"]
        {
            assert!(prefixes.cover(path), "{path:?}");
        }
        let kfd = Prefixes::of_kfd();
        assert!(kfd.cover(c"/dev/kfd") && kfd.cover(c"/sys/devices/virtual/kfd/kfd/topology"));
        assert!(!kfd.cover(c"/dev/accel/accel0") && !kfd.cover(c"/sys/class/accel"));
        assert!(!Prefixes::default().cover(c"/dev/kfd"));
        let tree = tree("");
        assert_eq!(tree.redirect(c"/dev/accel/accel1").unwrap().node, Some(Node::Accel(1)));
        assert_eq!(tree.redirect(c"/dev/accel/accel2").unwrap().node, None);
        assert_eq!(tree.redirect(c"/dev/kfd").unwrap().node, Some(Node::Kfd));
        tree.remove();
    }

    #[test]
    fn a_driver_that_rejects_the_device_leaves_it_on_the_bus() {
        let tree = tree_of("7.2", "iommu=off");
        assert!(follow(&tree, "/sys/class/accel/accel0/dev").is_err());
        assert!(follow(&tree, "/dev/accel/accel0").is_err());
        assert!(follow(&tree, "/sys/module/amdxdna/version").is_err(), "mainline has none");
        let device = "/sys/bus/pci/devices/0000:c5:00.1";
        assert_eq!(follow(&tree, &format!("{device}/device")).unwrap(), "0x17f0\n");
        assert!(!follow(&tree, &format!("{device}/uevent")).unwrap().contains("DRIVER"));
        assert!(follow(&tree, &format!("{device}/vbnv")).is_err());
        tree.remove();
        let tree = tree_of("6.18", "iommu=off");
        assert_eq!(follow(&tree, "/sys/class/accel/accel0/dev").unwrap(), "261:0\n");
        tree.remove();
    }

    #[test]
    fn defects_show_in_the_files() {
        let tree = tree("kfd=missing,node=forbidden,pci=17f9:0a,firmware=1.0.0.0");
        assert!(follow(&tree, "/dev/kfd").is_err());
        assert!(follow(&tree, "/sys/class/kfd/kfd/topology/generation_id").is_err());
        assert_eq!(follow(&tree, "/sys/class/accel/accel0/device/device").unwrap(), "0x17f9\n");
        assert_eq!(follow(&tree, "/sys/class/accel/accel0/device/fw_version").unwrap(), "1.0.0.0\n");
        let mode = fs::metadata(tree.root.join("dev/accel/accel0")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        tree.remove();
    }
}
