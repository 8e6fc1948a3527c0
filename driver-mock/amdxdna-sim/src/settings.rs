//! What the environment asks for. Read once, at the start of the process; [`VARIABLES`] describes it.

use crate::faults::{self, FaultPlan};
use crate::kernel::{KernelVersion, Profile, WaitCmd};
use crate::npu_model::NpuModel;
use crate::planned_fork::Fork;
use aie_hal::arch::{Arch, ArchRegistry};
use aie_hal::settings::AIE_HAL_ARCH_PATH;
use std::path::PathBuf;
use std::sync::Arc;

/// The variables and their values, for messages.
pub const VARIABLES: &str = "AMDXDNA_SIM_DEVICES (comma list of ARCH or ARCH@PCIADDRESS, or host), AMDXDNA_SIM_KERNEL (legacy, \
                             6.14, 6.18 or 7.2), AMDXDNA_SIM_ROOT, AMDXDNA_SIM_MACHINE (comma list of kfd=missing, kfd=forbidden, \
                             node=missing, node=forbidden, pci=DEVICE:REVISION, firmware=A.B.C.D, heap=BYTES, contexts=N, pdis=N, \
                             holder=PID, hung=dead, iommu=off, iommu=passthrough, addresses=iova, wait=cmd, wait=syncobj, wait=none), \
                             AMDXDNA_SIM_FAULTS, AMDXDNA_SIM_FORK (exit@N, _exit@N or exec@N), AMDXDNA_SIM_REPORT, AMDXDNA_SIM_RECORD, AMDXDNA_SIM_REPLAY, AMDXDNA_SIM_LOG=1";

/// The value of `AMDXDNA_SIM_DEVICES` that stands for the host's own devices.
const HOST: &str = "host";

/// Whether something exists and may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Presence {
    #[default]
    Usable,
    Missing,
    /// It exists, and opening it gives EACCES, even for root.
    Forbidden,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Iommu {
    /// On, with shared virtual addressing.
    #[default]
    On,
    Off,
    /// On, in passthrough mode: no shared virtual addressing.
    Passthrough,
}

/// How the simulated machine differs from one in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub kfd: Presence,
    pub node: Presence,
    /// PCI device id and revision of every device instead of its generation's.
    pub pci: Option<(u16, u8)>,
    /// Firmware version of every device.
    pub firmware: Option<[u32; 4]>,
    /// Bytes of the device heap that can be handed out.
    pub heap: Option<usize>,
    pub contexts: Option<usize>,
    /// PDIs of a context that work: commands of others never signal.
    pub pdis: Option<usize>,
    /// Whether a context in which a job has hung stays dead.
    pub hung_stays_dead: bool,
    /// The process that holds all contexts.
    pub holder: Option<i64>,
    pub iommu: Iommu,
    /// Whether the driver gives device addresses of its own (`force_iova`).
    pub iova: bool,
    /// Whether the driver has rejected the devices: they are on the bus only. Follows from kernel and IOMMU.
    pub unbound: bool,
    /// Whether a program can wait by WAIT_CMD, and by synchronisation objects, when it is not as the kernel has it.
    pub waiting: Option<(bool, bool)>,
}

impl Machine {
    /// What `kernel` does on this machine.
    pub fn profile(&self, kernel: KernelVersion) -> Profile {
        let profile = *kernel.profile();
        let Some((by_cmd, syncobj)) = self.waiting else { return profile };
        Profile { wait_cmd: if by_cmd { WaitCmd::Works } else { WaitCmd::Missing }, syncobj, ..profile }
    }
}

#[derive(Debug, Clone)]
pub struct DeviceSettings {
    pub arch: Arc<Arch>,
    pub model: &'static NpuModel,
    pub address: String,
}

/// The environment asks for what cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    #[error("AMDXDNA_SIM_{name}: {reason}. The variables are {VARIABLES}")]
    Value { name: &'static str, reason: String },
    #[error("AMDXDNA_SIM_{name}: {} cannot be {verb}: {source}", path.display())]
    File { name: &'static str, path: PathBuf, verb: &'static str, source: std::io::Error },
}

#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The devices, by the number of their accel node.
    pub devices: Vec<DeviceSettings>,
    /// Whether there are the host's own devices instead, whose calls are recorded.
    pub host: bool,
    pub kernel: KernelVersion,
    pub machine: Machine,
    /// Where the files are made; a temporary directory if not given.
    pub root: Option<PathBuf>,
    pub faults: FaultPlan,
    /// A child that is made for the program.
    pub fork: Option<Fork>,
    pub report: Option<PathBuf>,
    pub record: Option<PathBuf>,
    /// The stream of calls to compare with.
    pub replay: Option<PathBuf>,
    pub log: bool,
}

impl Settings {
    /// Reads the variables through `variable`.
    ///
    /// # Errors
    /// The variable that cannot be used, why, and the possible values.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let get = |name: &str| variable(&format!("AMDXDNA_SIM_{name}")).filter(|value| !value.is_empty());
        let wrong = |name, reason| SettingsError::Value { name, reason };
        let devices = get("DEVICES").unwrap_or_else(|| "aie2p".into());
        let paths = variable(AIE_HAL_ARCH_PATH.name).unwrap_or_default();
        let host = devices == HOST;
        if host && let Some(name) = ["KERNEL", "MACHINE"].into_iter().find(|name| get(name).is_some()) {
            let why = format!("the devices are the host's, with its own kernel; leave out AMDXDNA_SIM_{name}");
            return Err(wrong("DEVICES", why));
        }
        let kernel = get("KERNEL").map(|name| read_kernel(&name)).transpose().map_err(|why| wrong("KERNEL", why))?;
        let kernel = kernel.unwrap_or_default();
        let mut machine = read_machine(&get("MACHINE").unwrap_or_default()).map_err(|why| wrong("MACHINE", why))?;
        if machine.iova && !kernel.profile().iova {
            let why =
                format!("addresses=iova: the driver of kernel {kernel} has no addresses of its own, that of 7.2 has");
            return Err(wrong("MACHINE", why));
        }
        if machine.iommu == Iommu::Off && kernel.profile().without_sva.iommu_off.is_none() {
            (machine.unbound, machine.node) = (true, Presence::Missing);
        }
        Ok(Self {
            devices: match host {
                true => Vec::new(),
                false => read_devices(&devices, &paths).map_err(|why| wrong("DEVICES", why))?,
            },
            host,
            kernel,
            machine,
            faults: faults::parse(&get("FAULTS").unwrap_or_default())
                .map_err(|why| wrong("FAULTS", why.to_string()))?,
            fork: match get("FORK") {
                None => None,
                Some(text) => {
                    let fork = Fork::parse(&text);
                    let why = || format!("`{text}` is none of exit@N, _exit@N and exec@N, with N or wait:N, from 1");
                    Some(fork.ok_or_else(|| wrong("FORK", why()))?)
                }
            },
            root: get("ROOT").map(PathBuf::from),
            report: get("REPORT").map(PathBuf::from),
            record: get("RECORD").map(PathBuf::from),
            replay: get("REPLAY").map(PathBuf::from),
            log: match get("LOG").as_deref() {
                None | Some("0") => false,
                Some("1") => true,
                Some(other) => return Err(wrong("LOG", format!("`{other}` is neither 0 nor 1"))),
            },
        })
    }
}

#[cfg(test)]
impl Settings {
    /// Those of variables, whose names are given without the prefix.
    pub fn of(variables: &[(&str, &str)]) -> Result<Self, SettingsError> {
        Self::read(|name| {
            let found = variables.iter().find(|(known, _)| name == format!("AMDXDNA_SIM_{known}"));
            found.map(|(_, value)| (*value).to_owned())
        })
    }
}

fn read_kernel(name: &str) -> Result<KernelVersion, String> {
    let known = || KernelVersion::ALL.map(KernelVersion::name).join(", ");
    KernelVersion::by_name(name).ok_or_else(|| format!("unknown kernel `{name}`; available: {}", known()))
}

/// Reads the list of devices; `paths` names directories of further generations.
fn read_devices(text: &str, paths: &str) -> Result<Vec<DeviceSettings>, String> {
    let paths = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
    let (registry, problems) = ArchRegistry::load(paths);
    let unknown = |name: &str| {
        let problems: String = problems.iter().map(|problem| format!("; {problem}")).collect();
        format!("unknown generation `{name}`; available: {}{problems}", registry.names().collect::<Vec<_>>().join(", "))
    };
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let mut devices: Vec<DeviceSettings> = Vec::new();
    for (index, entry) in entries.enumerate() {
        let (name, address) = entry.split_once('@').map_or((entry, None), |(name, address)| (name, Some(address)));
        let arch = registry.get(name).ok_or_else(|| unknown(name))?;
        let address = address.map_or_else(|| format!("0000:{:02x}:00.1", 0xc5 + index), str::to_owned);
        if !is_pci_address(&address) {
            return Err(format!("`{address}` is not a PCI address such as 0000:c5:00.1"));
        }
        if devices.iter().any(|device| device.address == address) {
            return Err(format!("two devices have the PCI address {address}"));
        }
        devices.push(DeviceSettings { model: NpuModel::of(&arch)?, arch, address });
    }
    if devices.len() > 32 {
        return Err(format!("{} devices, at most 32 are possible", devices.len()));
    }
    Ok(devices)
}

/// Whether `text` is domain:bus:device.function in hexadecimal.
fn is_pci_address(text: &str) -> bool {
    let shape = "0000:00:00.0";
    text.len() == shape.len()
        && text
            .chars()
            .zip(shape.chars())
            .all(|(c, s)| if s == '0' { c.is_ascii_hexdigit() && !c.is_uppercase() } else { c == s })
}

fn read_machine(text: &str) -> Result<Machine, String> {
    let mut machine = Machine::default();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let wrong = || format!("`{entry}` is not understood");
        let (name, value) = entry.split_once('=').ok_or_else(wrong)?;
        let presence = match value {
            "missing" => Some(Presence::Missing),
            "forbidden" => Some(Presence::Forbidden),
            _ => None,
        };
        match name {
            "kfd" => machine.kfd = presence.ok_or_else(wrong)?,
            "node" => machine.node = presence.ok_or_else(wrong)?,
            "pci" => {
                let (device, revision) = value.split_once(':').ok_or_else(wrong)?;
                let device = u16::from_str_radix(device, 16).map_err(|_| wrong())?;
                machine.pci = Some((device, u8::from_str_radix(revision, 16).map_err(|_| wrong())?));
            }
            "firmware" => {
                let numbers: Result<Vec<u32>, _> = value.split('.').map(str::parse).collect();
                machine.firmware = Some(numbers.ok().and_then(|n| n.try_into().ok()).ok_or_else(wrong)?);
            }
            "heap" => machine.heap = Some(value.parse().map_err(|_| wrong())?),
            "iommu" => {
                machine.iommu = match value {
                    "off" => Iommu::Off,
                    "passthrough" => Iommu::Passthrough,
                    _ => return Err(wrong()),
                }
            }
            "addresses" if value == "iova" => machine.iova = true,
            "wait" => {
                machine.waiting = Some(match value {
                    "cmd" => (true, false),
                    "syncobj" => (false, true),
                    "none" => (false, false),
                    _ => return Err(wrong()),
                });
            }
            "holder" => machine.holder = Some(value.parse().map_err(|_| wrong())?),
            "hung" if value == "dead" => machine.hung_stays_dead = true,
            "pdis" => machine.pdis = Some(value.parse().map_err(|_| wrong())?),
            "contexts" => machine.contexts = Some(value.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
    }
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn without_variables_there_is_one_device() {
        let settings = Settings::of(&[]).unwrap();
        assert_eq!(settings.devices.len(), 1);
        assert_eq!(settings.devices[0].arch.name, "aie2p");
        assert_eq!(settings.devices[0].address, "0000:c5:00.1");
        assert_eq!(settings.machine, Machine::default());
        assert_eq!(settings.kernel, KernelVersion::V6_18);
        assert!(!settings.log);
    }

    #[test]
    fn devices_and_defects_are_read() {
        let devices = "aie2p,aie2@0000:0a:00.2";
        let machine = "kfd=forbidden,node=missing,pci=17f9:0a,firmware=1.0.2.3,heap=65536,contexts=3,pdis=1,hung=dead,holder=77,iommu=off,\
                       addresses=iova,wait=none";
        let variables = [("DEVICES", devices), ("MACHINE", machine), ("KERNEL", "7.2"), ("LOG", "1")];
        let settings = Settings::of(&variables).unwrap();
        assert_eq!(settings.kernel, KernelVersion::V7_2);
        assert_eq!(settings.devices[1].arch.name, "aie2");
        assert_eq!(settings.devices[1].address, "0000:0a:00.2");
        let expected = Machine {
            kfd: Presence::Forbidden,
            node: Presence::Missing,
            pci: Some((0x17f9, 0x0a)),
            firmware: Some([1, 0, 2, 3]),
            heap: Some(65536),
            contexts: Some(3),
            pdis: Some(1),
            hung_stays_dead: true,
            holder: Some(77),
            iommu: Iommu::Off,
            iova: true,
            unbound: true,
            waiting: Some((false, false)),
        };
        assert_eq!(settings.machine, expected);
        assert!(settings.log);
    }

    #[test]
    fn generations_of_the_search_path_are_simulated() {
        let folder = tempfile::tempdir().unwrap();
        let mut arch = (*ArchRegistry::builtin().get("aie2p").unwrap()).clone();
        (arch.name, arch.array.columns, arch.pci) = ("four".into(), 4, Vec::new());
        let read = |arch: &Arch| {
            std::fs::write(folder.path().join("four.toml"), toml::to_string(arch).unwrap()).unwrap();
            Settings::read(|name| match name {
                "AMDXDNA_SIM_DEVICES" => Some("four".into()),
                "AIE_HAL_ARCH_PATH" => folder.path().to_str().map(str::to_owned),
                _ => None,
            })
        };
        assert_eq!(read(&arch).unwrap().devices[0].arch.array.columns, 4);
        arch.dev_gen = 9;
        let error = read(&arch).unwrap_err().to_string();
        assert!(error.contains("generation `four` has `dev_gen` 9"), "{error}");
        arch.name = "Four".into();
        let error = read(&arch).unwrap_err().to_string();
        assert!(
            error.contains("unknown generation `four`; available: aie2, aie2p") && error.contains("; arch file"),
            "{error}"
        );
    }

    #[test]
    fn the_host_has_its_own_devices_and_kernel() {
        let settings = Settings::of(&[("DEVICES", "host")]).unwrap();
        assert!(settings.host && settings.devices.is_empty());
        let error = Settings::of(&[("DEVICES", "host"), ("KERNEL", "7.2")]).unwrap_err().to_string();
        assert!(error.contains("leave out AMDXDNA_SIM_KERNEL"), "{error}");
    }

    #[rstest]
    #[case("DEVICES", "aie9", "unknown generation `aie9`")]
    #[case("DEVICES", "aie2p@c5:00.1", "is not a PCI address")]
    #[case("DEVICES", "aie2@0000:c5:00.1,aie2@0000:c5:00.1", "two devices")]
    #[case("MACHINE", "kfd=gone", "`kfd=gone` is not understood")]
    #[case("MACHINE", "firmware=1.2", "`firmware=1.2` is not understood")]
    #[case("MACHINE", "wait=long", "`wait=long` is not understood")]
    #[case("MACHINE", "addresses=iova", "the driver of kernel 6.18 has no addresses of its own")]
    #[case("KERNEL", "6.17", "unknown kernel `6.17`; available: legacy, 6.14, 6.18, 7.2")]
    #[case("FAULTS", "CREATE_BO@1=EWHAT", "EWHAT is not an error code")]
    #[case("FORK", "exit", "none of exit@N")]
    #[case("LOG", "yes", "neither 0 nor 1")]
    fn mistakes_name_the_variable(#[case] name: &str, #[case] value: &str, #[case] expected: &str) {
        let error = Settings::of(&[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("AMDXDNA_SIM_{name}: ")) && error.contains(expected), "{error}");
        assert!(error.contains("The variables are"), "{error}");
    }
}
