//! The accel node: what the amdxdna kernel driver does, on plain structures.
//!
//! A [`Device`] is one NPU; a [`File`] is one `open` of its node, with handles, a device heap and contexts of its own. Calls
//! are functions on these, with structures of [`abi`](crate::abi) as arguments, and so can be tested without any preloading.
//! [`ioctl`] is the layer that reads and writes the caller's memory.
//!
//! # Fidelity
//! The order of checks and the error codes are those of the kernel driver (its in-tree version of Linux 6.14 and later, and
//! the newest of amd/xdna-driver). Where the two differ, the stricter one is followed:
//! - `CREATE_BO` refuses flags and user addresses, and command BOs must have type CMD (in-tree).
//! - CUs are checked when they are configured (in-tree), not at the first submission.
//! - A BO twice in an argument list is EALREADY (in-tree).
//! - Contexts are those that the hardware holds at one time, although the newest driver swaps more in and out on aie2p.
//!
//! As in the kernel, a submission is accepted before its commands are read. A chain that then turns out to be malformed, or too
//! long for the 4 KiB chain buffer, is dropped: EXEC_CMD and WAIT_CMD report success, and its state stays NEW. The reason is
//! in the log and in the report.

mod bo;
mod chain;
mod context;
mod file;
mod heap;
mod info;
pub mod ioctl;
mod mappings;
mod run;
#[cfg(test)]
mod tests;

pub use bo::{Bo, Kind};
pub use file::File;
pub(crate) use file::prefix as ioctl_prefix;
pub use heap::HeapAccount;
pub(crate) use info::default_firmware;
pub use mappings::{Mappings, Wanted};

use crate::abi::limits;
use crate::journal::Journal;
use crate::memory::Arena;
use crate::settings::{DeviceSettings, Machine};
use aie_driver_mock::npu::Npu;
use aie_hal::arch::Arch;
use aie_hal::kernel::KernelExecutor;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// One simulated NPU.
#[derive(Debug)]
pub struct Device {
    address: String,
    arch: Arc<Arch>,
    firmware: [u32; 4],
    heap_bytes: usize,
    npu: Npu,
    journal: Arc<Journal>,
    mappings: Arc<Mappings>,
    executor: Arc<dyn KernelExecutor>,
    arena: Arc<Arena>,
    /// Held while commands run.
    array: Mutex<run::Array>,
    /// The next offset for `mmap`.
    next_offset: AtomicU64,
    next_file: AtomicU64,
    power_mode: AtomicU8,
    lost: AtomicBool,
}

/// The first offset that DRM hands out for `mmap`.
const FIRST_MAP_OFFSET: u64 = 1 << 32;

impl Device {
    /// A powered-up device.
    pub fn new(
        settings: &DeviceSettings,
        machine: &Machine,
        executor: Arc<dyn KernelExecutor>,
        journal: Arc<Journal>,
        mappings: Arc<Mappings>,
    ) -> Arc<Self> {
        let mut arch = (*settings.arch).clone();
        arch.limits.contexts = machine.contexts.unwrap_or(arch.limits.contexts);
        let arch = Arc::new(arch);
        let heap_bytes = machine.heap.unwrap_or(limits::DEV_MEM_SIZE).min(limits::DEV_MEM_SIZE);
        Arc::new(Self {
            address: settings.address.clone(),
            firmware: machine.firmware.unwrap_or_else(|| default_firmware(&arch)),
            heap_bytes,
            npu: Npu::new(arch.clone(), heap_bytes),
            arch,
            journal,
            mappings,
            executor,
            arena: Arc::default(),
            array: Mutex::default(),
            next_offset: AtomicU64::new(FIRST_MAP_OFFSET),
            next_file: AtomicU64::new(1),
            power_mode: AtomicU8::new(0),
            lost: AtomicBool::new(false),
        })
    }

    /// PCI address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Generation.
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// The silicon: clock and counts.
    pub fn npu(&self) -> &Npu {
        &self.npu
    }

    /// Whether the device is gone.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Offset for `mmap` of a new BO.
    fn map_offset(&self, length: usize) -> u64 {
        self.next_offset.fetch_add(length as u64, Ordering::Relaxed)
    }
}
