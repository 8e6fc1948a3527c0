//! The accel node: what the amdxdna kernel driver does, on plain structures.
//!
//! A [`Device`] is one NPU; a [`File`] is one `open` of its node, with handles, a device heap and contexts of its own. Calls
//! are functions on these, with structures of [`amdxdna_sys`] as arguments, and so can be tested without any preloading.
//! [`ioctl`] is the layer that reads and writes the caller's memory.
//!
//! # Fidelity
//! The order of checks and the error codes are those of the kernel driver; what differs from kernel to kernel is in
//! [`kernel`](crate::kernel). Deliberate differences:
//! - SYNC_BO of older kernels rejects a range outside of its BO, which they would follow.
//! - Contexts are those that the hardware holds at one time, although `legacy` swaps more in and out on aie2p.
//!
//! As in the kernel, a submission is accepted before its commands are read. A chain that then turns out to be malformed, or too
//! long for the 4 KiB chain buffer, is dropped: EXEC_CMD and the wait report success, and its state stays NEW. The reason is
//! in the log and in the report.

mod bo;
mod chain;
mod completion;
mod create_bo;
mod descriptors;
mod exec_cmd;
mod execution;
mod file;
mod get_info;
mod heap;
mod hwctx;
pub mod ioctl;
mod jobs;
mod mappings;
mod sync_bo;
mod syncobj;
mod syncobj_ioctl;
#[cfg(test)]
mod tests;
mod user_memory;
mod wakeup;

pub use bo::Kind;
pub use descriptors::{Descriptors, Open};
pub use file::File;
pub(crate) use file::prefix as ioctl_prefix;
pub(crate) use get_info::default_firmware;
pub use mappings::{MapRequest, Mappings};

use crate::journal::Journal;
use crate::kernel::Profile;
use crate::memory::Arena;
use crate::settings::{DeviceSettings, Iommu, Settings};
use aie_driver_mock::npu::array::Array;
use aie_driver_mock::npu::{ContextId, SimulatedNpu};
use aie_hal::KernelExecutor;
use aie_hal::arch::Arch;
use amdxdna_sys::limits;
use bo::MapOffset;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;
use syncobj::Syncobj;

#[derive(Debug)]
pub struct Device {
    address: String,
    pub arch: Arc<Arch>,
    profile: Profile,
    /// Whether the driver gives device addresses.
    iova: bool,
    /// What opening the node gives, if it fails.
    rejected: Option<Errno>,
    firmware: [u32; 4],
    /// Another process, which holds all contexts.
    holder: Option<i64>,
    pdis: Option<usize>,
    hung_stays_dead: bool,
    /// How much of the first heap can be handed out.
    heap_bytes: usize,
    /// How much all heaps of a file can have.
    heaps_bytes: usize,
    /// The silicon: clock and counts.
    pub npu: SimulatedNpu,
    journal: Arc<Journal>,
    mappings: Arc<Mappings>,
    arena: Arc<Arena>,
    /// Held while a job runs.
    array: Mutex<Array>,
    queue: Arc<jobs::Queue>,
    lines: Mutex<Vec<Weak<jobs::ContextQueue>>>,
    next_iova: AtomicU64,
    next_offset: AtomicU64,
    /// The offsets of BOs that there are.
    offsets: Arc<Mutex<HashSet<u64>>>,
    next_file: AtomicU64,
    power_mode: AtomicU8,
    forced_preemption: AtomicU8,
    boundary_preemption: AtomicU8,
    lost: AtomicBool,
}

/// The first offset that DRM hands out for `mmap`.
const FIRST_MAP_OFFSET: u64 = 1 << 32;
/// The first device address that the driver gives: above the device heap, below any pointer.
const FIRST_IOVA: u64 = 1 << 33;

impl Device {
    pub fn new(
        device: &DeviceSettings,
        settings: &Settings,
        executor: Arc<dyn KernelExecutor>,
        journal: Arc<Journal>,
        mappings: Arc<Mappings>,
    ) -> Arc<Self> {
        let machine = &settings.machine;
        let profile = machine.profile(settings.kernel);
        let rejected = match machine.iommu {
            Iommu::On => None,
            Iommu::Off => profile.without_sva.iommu_off,
            Iommu::Passthrough => Some(profile.without_sva.passthrough),
        };
        let mut arch = (*device.arch).clone();
        arch.limits.contexts = match machine.holder {
            Some(_) => 0,
            None => machine.contexts.unwrap_or(arch.limits.contexts),
        };
        let arch = Arc::new(arch);
        let array = Mutex::new(Array::new(arch.clone(), executor));
        let heap_bytes = machine.heap.unwrap_or(limits::DEV_MEM_SIZE).min(limits::DEV_MEM_SIZE);
        Arc::new(Self {
            address: device.address.clone(),
            profile,
            iova: machine.iova,
            rejected: rejected.filter(|_| !machine.iova),
            holder: machine.holder,
            pdis: machine.pdis,
            hung_stays_dead: machine.hung_stays_dead,
            firmware: machine.firmware.unwrap_or_else(|| default_firmware(&arch)),
            heap_bytes,
            heaps_bytes: if profile.heaps_grow && arch.dev_gen != 3 { heap::HEAPS_BYTES } else { limits::DEV_MEM_SIZE },
            npu: SimulatedNpu::new(arch.clone(), heap_bytes),
            arch,
            journal,
            mappings,
            arena: Arc::default(),
            array,
            queue: Arc::default(),
            lines: Mutex::default(),
            next_iova: AtomicU64::new(FIRST_IOVA),
            next_offset: AtomicU64::new(FIRST_MAP_OFFSET),
            offsets: Arc::default(),
            next_file: AtomicU64::new(1),
            power_mode: AtomicU8::new(0),
            forced_preemption: AtomicU8::new(0),
            boundary_preemption: AtomicU8::new(0),
            lost: AtomicBool::new(false),
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    fn map_offset(&self, length: usize) -> MapOffset {
        MapOffset::new(self.next_offset.fetch_add(length as u64, Ordering::Relaxed), &self.offsets)
    }

    /// Device address of a new BO, where the driver gives one.
    fn new_iova(&self, length: usize) -> Option<u64> {
        self.iova.then(|| self.next_iova.fetch_add(length as u64, Ordering::Relaxed))
    }

    /// A place for the jobs of a new context.
    fn new_line(self: &Arc<Self>, npu: ContextId, timeline: Option<&Arc<Syncobj>>) -> Arc<jobs::ContextQueue> {
        let line = jobs::ContextQueue::new(self, npu, timeline);
        let mut lines = self.lines.lock();
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(&line));
        line
    }

    /// Lets all jobs end, until `deadline`.
    pub fn drain(&self, deadline: Instant) {
        let lines: Vec<_> = self.lines.lock().iter().filter_map(Weak::upgrade).collect();
        lines.iter().for_each(|line| line.drain(self, Some(deadline)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.queue.stop();
    }
}
