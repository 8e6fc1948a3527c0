//! Which kernel the node behaves like: every difference between kernels, as data with its source.
//!
//! A simulated machine has one kernel. `docs/simulated-kernels.md` shows these facts as a table. "Source" names files of the kernel
//! driver: `drivers/accel/amdxdna` in mainline of that version, `src/driver/amdxdna` in amd/xdna-driver for `legacy`.

use nix::errno::Errno;
use std::fmt::{Display, Formatter};

/// A kernel with its amdxdna driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelVersion {
    /// Any kernel with AMD's own module, built out of tree: amd/xdna-driver 1.6 with its file `src/driver/amdxdna` of 2026-08.
    Legacy,
    /// Linux 6.14, the first with amdxdna.
    V6_14,
    /// Linux 6.18, as released.
    #[default]
    V6_18,
    /// Linux 7.2 (read from Debian's `linux-source-7.2` 7.2.13-1).
    V7_2,
}

/// What WAIT_CMD does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCmd {
    Works,
    /// There is no such ioctl: EINVAL.
    Missing,
    /// It is there for other devices only: EOPNOTSUPP.
    Unsupported,
}

/// State of a job that runs longer than [`Profile::job_limit_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// ABORT; nothing else is written.
    Abort,
    /// TIMEOUT, on the failed command too, whose payload becomes a health report.
    TimeoutInCommand,
    /// TIMEOUT on what was submitted; the payload of its first command becomes a health report.
    TimeoutInFirst,
}

/// What a failed chain's state becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedChain {
    /// The lowest four bits of the firmware's status, whatever they mean.
    StatusBits,
    Error,
    /// ERROR, and the payload of the first command is overwritten with ones.
    ErrorAndOnes,
}

/// What `open` of the node gives when user addresses cannot be shared with the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WithoutSva {
    /// The IOMMU is off. `None`: the driver does not even make the node.
    pub iommu_off: Option<Errno>,
    pub passthrough: Errno,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserPointers {
    /// Whether that is possible with memory that the caller may only read.
    pub read_only: bool,
    /// The error for memory that cannot be pinned.
    pub unpinnable: Errno,
    /// Whether the kernel can look at such a BO and map it: only then a command in it runs.
    pub visible: bool,
}

/// What SYNC_BO looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// The handle. A range outside of the BO is rejected here, which the kernel would follow.
    Handle,
    /// What can be inspected, and where the range begins; it is cut at the end of the BO. Only debug BOs come from the device.
    Range,
}

/// Which questions GET_INFO, GET_ARRAY and SET_STATE know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queries {
    /// Those of the first kernels.
    Few,
    /// With sensors, preemption, resources, errors and usage, as AMD's module has them.
    Amd,
    /// The same and the state of columns, as mainline has them.
    Mainline,
}

/// The differences. All of them concern aie2 and aie2p only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    pub kernel: KernelVersion,
    /// Version that VERSION reports. Source: `amdxdna_pci_drv.c` (`AMDXDNA_DRIVER_MAJOR`, `_MINOR`), legacy the same.
    pub version: (i32, i32),
    /// Version of the module in sysfs. Source: `MODULE_VERSION`, which mainline does not have.
    pub module_version: Option<&'static str>,
    /// Source: the ioctl tables of `amdxdna_pci_drv.c`; 7.2 `amdxdna_ctx.c` (`cmd_wait`, which only `aie4_pci.c` sets); legacy
    /// `aie2_ctx.c` (`aie2_cmd_wait`).
    pub wait_cmd: WaitCmd,
    /// Whether contexts complete on a timeline synchronisation object, and the DRM core answers its ioctls. Source:
    /// `aie2_ctx.c` (`aie2_ctx_syncobj_create`), `DRIVER_SYNCOBJ_TIMELINE` in every version, legacy `amdxdna_ctx.c`.
    pub syncobj: bool,
    /// What a context more than the device can hold gets. Source: legacy `aie2_ctx_runqueue.c` (`aie2_rq_add`); mainline
    /// `aie2_message.c` (`aie2_create_context`: the firmware rejects, `aie_send_mgmt_msg_wait` makes EINVAL of that).
    pub contexts_exhausted: Errno,
    /// What a BO of no bytes gets. Source: `amdxdna_gem.c`; 7.2 leaves it to the DRM core, which has no offset for it.
    pub empty_bo: Errno,
    /// What a part of a heap gets that there is not. Source: `amdxdna_gem.c`; 7.2 `amdxdna_init_dev_bo`.
    pub heap_missing: Errno,
    /// What a part of a heap that is not mapped gets, and a context with it. Source: `amdxdna_gem.c`.
    pub heap_unmapped: Errno,
    /// Whether further heaps follow the first one, on aie2p up to 512 MiB. Source: 7.2 `amdxdna_gem.c`
    /// (`amdxdna_drm_create_dev_heap_bo`), `npu4_regs.c` (`dev_heap_max_size`).
    pub heaps_grow: bool,
    /// Source: 7.2 `amdxdna_gem.c` (`amdxdna_drm_sync_bo_ioctl`, `amdxdna_flush_bo`).
    pub sync: Sync,
    /// Whether CONFIG_HWCTX assigns debug BOs. Source: 7.2 `aie2_ctx.c` (`aie2_hwctx_cfg_debug_bo`).
    pub debug_bos: bool,
    /// Whether a descriptor becomes a new BO in another file than its own. Source: 7.2 `amdxdna_gem.c`
    /// (`amdxdna_gem_prime_import`).
    pub imports_anew: bool,
    /// What `mmap` of an offset below the first gets. Source: 7.2 `amdxdna_pci_drv.c` (`amdxdna_drm_gem_mmap`).
    pub low_offset: Errno,
    /// Whether SYNCOBJ_DESTROY of handle 0 is rejected and makes 0 free for the next object anyway. Seen on 7.2.
    pub zero_becomes_free: bool,
    /// What a context with more columns than the array has gets. Source: legacy `aie2_ctx_runqueue.c` (`aie2_rq_add`); mainline
    /// `aie2_ctx.c` (`aie2_hwctx_col_list`).
    pub too_many_columns: Errno,
    /// Source: 6.14, 6.18 `aie2_ctx.c` (`aie2_sched_cmdlist_resp_handler` puts the firmware's status into the field of the
    /// state); 7.2 `amdxdna_ctx.c` (`amdxdna_cmd_set_error`).
    pub failed_chain: FailedChain,
    /// Source: `aie2_ctx.c` (`aie2_sched_job_timedout`), legacy `aie2_tdr.c`.
    pub overdue: Overdue,
    /// How long one job may take, in nanoseconds of device time. Source: 6.14, 6.18 `aie2_ctx.c` (`HWCTX_MAX_TIMEOUT`); 7.2
    /// `aie2_ctx.c` (`tdr_timeout_ms`); legacy `aie2_tdr.c` (`timeout_in_sec`).
    pub job_limit_ns: u64,
    /// Whether a context reaches the firmware with its first command only, so that what is wrong with its configuration is EIO
    /// of EXEC_CMD. Source: legacy `aie2_ctx_runqueue.c` (`aie2_rq_submit_enter`).
    pub lazy_contexts: bool,
    /// Whether a single command goes through the chain buffer. Source: `aie2_ctx.c` (`force_cmdlist`).
    pub single_in_chain_buffer: bool,
    /// Whether the npu4 firmware of that time rejects slots of an odd number of words below 15. Source: AMD's README of ROCR's
    /// XDNA driver; commands with odd counts ran on AMD's module in 2025, so older firmware takes them.
    pub even_slots: bool,
    /// Source: `amdxdna_pci_drv.c` (`amdxdna_drm_open`), reports at amd/xdna-driver (issues 704 and 1028); the errors are those of
    /// `iommu_sva_bind_device`.
    pub without_sva: WithoutSva,
    /// Whether the driver can give device addresses of its own (`force_iova`). Source: `amdxdna_iommu.c`.
    pub iova: bool,
    /// How a BO can be made of the caller's memory; `None`: not at all, EINVAL. Source: `amdxdna_gem.c`, `amdxdna_ubuf.c`.
    pub user_pointers: Option<UserPointers>,
    /// Whether command BOs are a type of their own: nothing else can be submitted, and they have 4 bytes to 32 KiB. Source:
    /// `amdxdna_gem.c`, `amdxdna_ctx.c` (`AMDXDNA_BO_CMD` in 6.14 and 6.18, `AMDXDNA_BO_SHARE` elsewhere).
    pub typed_commands: bool,
    /// Whether a context needs PDIs before its first command (EINVAL). Source: 6.14, 6.18 `amdxdna_ctx.c`
    /// (`HWCTX_STAT_READY`).
    pub configured_first: bool,
    /// Whether EXEC_CMD takes the command types DEPENDENCY and SIGNAL. Source: `amdxdna_ctx.c`.
    pub dependencies: bool,
    /// Whether there is GET_ARRAY. Source: the ioctl table of `amdxdna_pci_drv.c`.
    pub get_array: bool,
    /// Whether there are START_NPU_PREEMPT and START_NPU_PREEMPT_ELF. Source: `aie2_message.c` (`aie2_cmdlist_fill_slot`).
    pub preemption: bool,
    /// Source: `aie2_pci.c` (`aie2_get_info`, `aie2_get_array`, `aie2_set_state`).
    pub queries: Queries,
    /// Whether a START_CU whose header promises no payload, or more than its BO has, goes to the firmware with no words. Source: 7.2
    /// `aie2_message.c` (`aie2_cmdlist_fill_npu_cf` does not look whether there is a payload).
    pub empty_payloads_run: bool,
    /// Whether a structure's padding has to be zero in DESTROY_HWCTX and CONFIG_HWCTX. Source: `amdxdna_ctx.c` (`XDNA_MBZ_DBG`).
    pub padding_is_checked: bool,
}

const SECOND: u64 = 1_000_000_000;

/// Through Linux 6.19 the driver hands on what `iommu_sva_bind_device` says.
const HANDED_ON: WithoutSva = WithoutSva { iommu_off: Some(Errno::ENODEV), passthrough: Errno::EOPNOTSUPP };

const V6_14: Profile = Profile {
    kernel: KernelVersion::V6_14,
    version: (0, 0),
    module_version: None,
    wait_cmd: WaitCmd::Missing,
    syncobj: true,
    contexts_exhausted: Errno::EINVAL,
    empty_bo: Errno::EINVAL,
    heap_missing: Errno::EINVAL,
    heap_unmapped: Errno::EINVAL,
    heaps_grow: false,
    sync: Sync::Handle,
    debug_bos: false,
    imports_anew: false,
    low_offset: Errno::EINVAL,
    zero_becomes_free: false,
    too_many_columns: Errno::EINVAL,
    failed_chain: FailedChain::StatusBits,
    overdue: Overdue::Abort,
    job_limit_ns: 60 * SECOND,
    lazy_contexts: false,
    single_in_chain_buffer: false,
    even_slots: false,
    without_sva: HANDED_ON,
    iova: false,
    user_pointers: None,
    typed_commands: true,
    configured_first: true,
    dependencies: false,
    get_array: false,
    preemption: false,
    queries: Queries::Few,
    empty_payloads_run: false,
    padding_is_checked: true,
};

const LEGACY: Profile = Profile {
    kernel: KernelVersion::Legacy,
    version: (1, 0),
    module_version: Some("0.1"),
    wait_cmd: WaitCmd::Works,
    contexts_exhausted: Errno::ENOENT,
    too_many_columns: Errno::ENOSPC,
    failed_chain: FailedChain::Error,
    overdue: Overdue::TimeoutInCommand,
    job_limit_ns: 2 * SECOND,
    lazy_contexts: true,
    single_in_chain_buffer: true,
    user_pointers: Some(UserPointers { read_only: true, unpinnable: Errno::ENOMEM, visible: true }),
    typed_commands: false,
    configured_first: false,
    dependencies: true,
    get_array: true,
    preemption: true,
    queries: Queries::Amd,
    padding_is_checked: false,
    ..V6_14
};

const V6_18: Profile = Profile {
    kernel: KernelVersion::V6_18,
    version: (0, 1),
    even_slots: true,
    user_pointers: Some(UserPointers { read_only: false, unpinnable: Errno::ENOMEM, visible: true }),
    get_array: true,
    ..V6_14
};

const V7_2: Profile = Profile {
    kernel: KernelVersion::V7_2,
    version: (0, 10),
    wait_cmd: WaitCmd::Unsupported,
    empty_bo: Errno::ENOSPC,
    heap_missing: Errno::EAGAIN,
    heap_unmapped: Errno::EAGAIN,
    heaps_grow: true,
    sync: Sync::Range,
    debug_bos: true,
    imports_anew: true,
    low_offset: Errno::EOPNOTSUPP,
    zero_becomes_free: true,
    failed_chain: FailedChain::ErrorAndOnes,
    overdue: Overdue::TimeoutInFirst,
    job_limit_ns: 2 * SECOND,
    single_in_chain_buffer: true,
    without_sva: WithoutSva { iommu_off: None, passthrough: Errno::EINVAL },
    iova: true,
    user_pointers: Some(UserPointers { read_only: false, unpinnable: Errno::EFAULT, visible: false }),
    typed_commands: false,
    configured_first: false,
    preemption: true,
    queries: Queries::Mainline,
    empty_payloads_run: true,
    ..V6_18
};

impl KernelVersion {
    /// All, oldest interface first.
    pub const ALL: [Self; 4] = [Self::Legacy, Self::V6_14, Self::V6_18, Self::V7_2];

    /// Its name in `AMDXDNA_SIM_KERNEL`.
    pub fn name(self) -> &'static str {
        ["legacy", "6.14", "6.18", "7.2"][self as usize]
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// What it does.
    pub fn profile(self) -> &'static Profile {
        [&LEGACY, &V6_14, &V6_18, &V7_2][self as usize]
    }
}

impl Display for KernelVersion {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_names_and_their_own_profiles() {
        for kernel in KernelVersion::ALL {
            assert_eq!(KernelVersion::by_name(kernel.name()), Some(kernel));
            assert_eq!(kernel.profile().kernel, kernel);
        }
        assert_eq!(KernelVersion::by_name("6.17"), None);
        assert_eq!(KernelVersion::default().name(), "6.18");
    }
}
