//! One NPU, with what the kernel driver knows of it.

use super::bo::MapOffset;
use super::mappings::Mappings;
use super::worker::Worker;
use crate::journal::Journal;
use crate::kernel::Profile;
use crate::memory::Arena;
use crate::npu_model::NpuModel;
use crate::settings::{DeviceSettings, Iommu, Settings};
use aie_driver_mock::npu::SimulatedNpu;
use aie_driver_mock::npu::array::Array;
use aie_hal::KernelExecutor;
use aie_hal::arch::Arch;
use amdxdna_sys::limits;
use nix::errno::Errno;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

#[derive(Debug)]
pub struct Device {
    pub(super) address: String,
    pub arch: Arc<Arch>,
    pub(super) model: &'static NpuModel,
    pub(super) profile: Profile,
    /// Whether the driver gives device addresses.
    pub(super) iova: bool,
    /// What opening the node gives, if it fails.
    pub(super) rejected: Option<Errno>,
    pub(super) firmware: [u32; 4],
    /// Another process, which holds all contexts.
    pub(super) holder: Option<i64>,
    pub(super) pdis: Option<usize>,
    pub(super) hung_stays_dead: bool,
    /// How much of the first heap can be handed out.
    pub(super) heap_bytes: usize,
    /// How much all heaps of a file can have.
    pub(super) heaps_bytes: usize,
    /// The silicon: clock and counts.
    pub npu: SimulatedNpu,
    pub(super) journal: Arc<Journal>,
    pub(super) mappings: Arc<Mappings>,
    pub(super) arena: Arc<Arena>,
    /// Held while a job runs.
    pub(super) array: Mutex<Array>,
    pub(super) worker: Arc<Worker>,
    next_iova: AtomicU64,
    next_offset: AtomicU64,
    /// The offsets of BOs that there are.
    pub(super) offsets: Arc<Mutex<HashSet<u64>>>,
    pub(super) next_file: AtomicU64,
    pub(super) power_mode: AtomicU8,
    pub(super) forced_preemption: AtomicU8,
    pub(super) boundary_preemption: AtomicU8,
    lost: AtomicBool,
}

/// The first offset that DRM hands out for `mmap`.
pub(super) const FIRST_MAP_OFFSET: u64 = 1 << 32;
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
            model: device.model,
            profile,
            iova: machine.iova,
            rejected: rejected.filter(|_| !machine.iova),
            holder: machine.holder,
            pdis: machine.pdis,
            hung_stays_dead: machine.hung_stays_dead,
            firmware: machine.firmware.unwrap_or(device.model.firmware),
            heap_bytes,
            heaps_bytes: if profile.heaps_grow { device.model.heaps_bytes } else { limits::DEV_MEM_SIZE },
            npu: SimulatedNpu::new(arch.clone(), heap_bytes),
            arch,
            journal,
            mappings,
            arena: Arc::default(),
            array,
            worker: Arc::default(),
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

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// An offset for `mmap` of a new BO.
    pub(super) fn map_offset(&self, length: usize) -> MapOffset {
        MapOffset::new(self.next_offset.fetch_add(length as u64, Ordering::Relaxed), &self.offsets)
    }

    /// Device address of a new BO, where the driver gives one.
    pub(super) fn new_iova(&self, length: usize) -> Option<u64> {
        self.iova.then(|| self.next_iova.fetch_add(length as u64, Ordering::Relaxed))
    }

    /// What the report says of it.
    pub fn describe(&self) -> Value {
        let mut described = json!(self.npu.counts());
        described["arch"] = json!(self.arch.name);
        described["pci"] = json!(self.address);
        described["lost"] = json!(self.is_lost());
        described
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.worker.stop();
    }
}
