//! Which packets a runtime library takes.
//!
//! ROCR has changed the packet of AIE agents without changing the name of a function, so a driver that guesses wrong writes
//! a packet that the library reads as something else. Three signs distinguish them: the version of AMD's extension
//! interface, the build string, and what becomes of a dispatch. The first two are read here; the third is a self-test of
//! the driver, because some libraries accept packets and never process them.
//!
//! | extension interface | packets | source |
//! |---|---|---|
//! | below 1.10 | accepted, never processed | measured: ROCR 6.4.3 says 1.7 |
//! | 1.10 to 1.15 | `hsa_amd_aie_ert_packet_t` | measured: ROCR 7.2.4 says 1.15 |
//! | 1.16 to 1.26 | `hsa_amd_aie_kernel_dispatch_packet_t` | ROCR's public sources; ROCm 7.14 and ROCm Core SDK 10.0 say 1.26 |
//! | above 1.26 | unknown: a public branch has the same packet with a kernel object in place of the addresses of instructions and PDI | ROCR's public sources |
//!
//! A runtime that takes a kernel object would read an instruction address as one, so what is newer than the table is rejected.
//!
//! A development build can carry the version of one row and the packets of another. [`AIE_HAL_PACKET_INTERFACE`] names the packets
//! of such a build; the rejection of runtimes that process none does not apply then, and the self-test still does.

use crate::settings::AIE_HAL_PACKET_INTERFACE;
use aie_driver_xdna::agent::AgentError;
use aie_hal::Environment;
use hsa_sys::*;
use std::ffi::{CStr, c_char};
use std::fmt;

/// The first extension interface whose runtime processes packets of AIE agents.
const FIRST_PROCESSING: ExtensionVersion = ExtensionVersion { major: 1, minor: 10 };
/// The last one whose runtime takes ERT packets.
const LAST_ERT: ExtensionVersion = ExtensionVersion { major: 1, minor: 15 };

/// The newest one whose kernel dispatch packets are known to be those of this driver.
const LAST_KERNEL_DISPATCH: ExtensionVersion = ExtensionVersion { major: 1, minor: 26 };

/// How a runtime takes its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketInterface {
    /// `hsa_amd_aie_ert_packet_t` of ROCm 7.0 to 7.2.
    Ert,
    /// `hsa_amd_aie_kernel_dispatch_packet_t` of ROCR from 2026.
    KernelDispatch,
}

/// Version of AMD's extension interface; not the version of ROCm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtensionVersion {
    /// Changes when programs have to change.
    pub major: u16,
    /// Changes when something was added.
    pub minor: u16,
}

impl fmt::Display for ExtensionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a library says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Version of AMD's extension interface.
    pub extension: ExtensionVersion,
    /// Its build string; empty when it has none.
    pub build: String,
}

impl RuntimeVersion {
    /// Asks a library that `hsa_init` has started.
    ///
    /// # Errors
    /// [`AgentError::Unsupported`] when it does not know the version of the extension: a runtime from before ROCm 6.
    pub fn of(api: &HsaApi) -> Result<Self, AgentError> {
        let number = |attribute: hsa_system_info_t| {
            let mut value = 0_u16;
            // SAFETY: Both attributes are 16-bit numbers, and `value` is one.
            match unsafe { (api.hsa_system_get_info)(attribute, (&raw mut value).cast()) } {
                HSA_STATUS_SUCCESS => Ok(value),
                status => Err(AgentError::Unsupported(format!(
                    "the runtime library does not report the version of AMD's extension ({attribute}: {}), so its packet \
                     interface is unknown; install ROCR of ROCm 7.0 or newer",
                    api.describe(status)
                ))),
            }
        };
        let major = number(HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR)?;
        let minor = number(HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR)?;
        Ok(Self { extension: ExtensionVersion { major, minor }, build: build_string(api) })
    }
}

impl fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if self.build.is_empty() { "none" } else { &self.build };
        write!(f, "AMD extension interface {}, build {build}", self.extension)
    }
}

/// The library's build string; empty when it has none.
fn build_string(api: &HsaApi) -> String {
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: The attribute is one pointer to a text, and `text` is one.
    let status = unsafe { (api.hsa_system_get_info)(HSA_AMD_SYSTEM_INFO_BUILD_VERSION, (&raw mut text).cast()) };
    if status != HSA_STATUS_SUCCESS || text.is_null() {
        return String::new();
    }
    // SAFETY: On success it is a zero-terminated text that the runtime owns and does not change.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The packets that a library of this version takes.
///
/// # Errors
/// [`AgentError::Unsupported`] with what was seen: for a runtime that processes no packets, one that is newer than what is
/// known, and an invalid value of [`AIE_HAL_PACKET_INTERFACE`].
pub fn detect(version: &RuntimeVersion) -> Result<PacketInterface, AgentError> {
    choose(version, Environment::process().text(&AIE_HAL_PACKET_INTERFACE).as_deref())
}

/// [`detect`] without the environment.
fn choose(version: &RuntimeVersion, named: Option<&str>) -> Result<PacketInterface, AgentError> {
    match named {
        Some("ert") => return Ok(PacketInterface::Ert),
        Some("kernel-dispatch") => return Ok(PacketInterface::KernelDispatch),
        Some(other) => {
            return Err(AgentError::Unsupported(format!(
                "{AIE_HAL_PACKET_INTERFACE} is `{other}`; known are `ert` and `kernel-dispatch`; the library says: {version}"
            )));
        }
        None => {}
    }
    if version.extension < FIRST_PROCESSING {
        return Err(AgentError::Unsupported(format!(
            "this runtime accepts packets for NPUs but never processes them, as ROCR 6.x does ({version}; {FIRST_PROCESSING} \
             is the first that does); install ROCR of ROCm 7.0 or newer"
        )));
    }
    if version.extension > LAST_KERNEL_DISPATCH {
        return Err(AgentError::Unsupported(format!(
            "this runtime is newer than what this driver knows ({version}; {LAST_KERNEL_DISPATCH} is the newest): its packets may \
             name kernel objects where this driver writes addresses. An NPU needs no ROCR: remove `runtime=rocr`; or use \
             ROCm 7.0 to 7.14; for a development build that takes these packets, set \
             {AIE_HAL_PACKET_INTERFACE}=kernel-dispatch"
        )));
    }
    Ok(if version.extension <= LAST_ERT { PacketInterface::Ert } else { PacketInterface::KernelDispatch })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn version(major: u16, minor: u16) -> RuntimeVersion {
        RuntimeVersion { extension: ExtensionVersion { major, minor }, build: "1.2.3-test".into() }
    }

    #[rstest]
    #[case::first(None, 1, 10, PacketInterface::Ert)]
    #[case::rocr_7_2_4(None, 1, 15, PacketInterface::Ert)]
    #[case::later(None, 1, 16, PacketInterface::KernelDispatch)]
    #[case::newest(None, 1, 26, PacketInterface::KernelDispatch)]
    #[case::named(Some("kernel-dispatch"), 1, 27, PacketInterface::KernelDispatch)]
    #[case::named_ert(Some("ert"), 1, 16, PacketInterface::Ert)]
    #[case::named_against_the_version(Some("kernel-dispatch"), 1, 15, PacketInterface::KernelDispatch)]
    #[case::named_of_rocr_6(Some("ert"), 1, 7, PacketInterface::Ert)]
    fn the_version_tells_unless_a_development_build_is_named(
        #[case] named: Option<&str>,
        #[case] major: u16,
        #[case] minor: u16,
        #[case] expected: PacketInterface,
    ) {
        assert_eq!(choose(&version(major, minor), named), Ok(expected));
    }

    const PROCESSES_NONE: &[&str] = &["never processes", "1.10", "ROCm 7.0 or newer"];
    const LATER: &[&str] = &[
        "1.26 is the newest",
        "remove `runtime=rocr`",
        "AIE_HAL_PACKET_INTERFACE=kernel-dispatch",
        "ROCm 7.0 to 7.14",
    ];

    #[rstest]
    #[case::rocr_6_4_3(None, 1, 7, PROCESSES_NONE)]
    #[case(None, 1, 9, PROCESSES_NONE)]
    #[case(None, 0, 99, PROCESSES_NONE)]
    #[case::next_minor(None, 1, 27, LATER)]
    #[case::next_major(None, 2, 0, LATER)]
    #[case::another_name(Some("aql"), 1, 15, &[AIE_HAL_PACKET_INTERFACE.name, "`aql`", "`ert`", "`kernel-dispatch`"])]
    fn other_runtimes_are_rejected_with_the_ways_out(
        #[case] named: Option<&str>,
        #[case] major: u16,
        #[case] minor: u16,
        #[case] parts: &[&str],
    ) {
        let error = choose(&version(major, minor), named).unwrap_err().to_string();
        for part in parts.iter().copied().chain([&*format!("{major}.{minor}"), "1.2.3-test"]) {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
