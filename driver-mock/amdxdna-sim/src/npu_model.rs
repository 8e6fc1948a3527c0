//! What kernel driver and firmware have for one NPU and not for another, as data.
//!
//! The kernel driver has a table for each NPU (`npu1_regs.c`, `npu4_regs.c`) and gives up on a device without one. So does the
//! simulated one: a generation is found here by its `dev_gen`, and one that has no entry is an error. What the hardware has is in its
//! arch file. What follows from the kernel's version too is in [`kernel`](crate::kernel).

use aie_hal::arch::Arch;
use amdxdna_sys::limits::DEV_MEM_SIZE;

/// An NPU as the kernel driver knows it.
#[derive(Debug, PartialEq, Eq)]
pub struct NpuModel {
    /// The kernel driver's name of it.
    name: &'static str,
    /// Its generation, in arch files and in the headers of instruction streams.
    dev_gen: u8,
    /// What sysfs says (`vbnv`) instead of the product's name.
    pub product: Option<&'static str>,
    /// Firmware of a device in order: of the versions AMD ships with Linux.
    pub firmware: [u32; 4],
    /// Version of the array; no public source has it.
    pub array_version: [u32; 2],
    /// Columns before the first that contexts can have: without a shim's DMA.
    pub first_column: usize,
    /// MHz of the two clocks of a device that has nothing to do (`dpm_clk_tbl`).
    pub idle_clocks: (u64, u64),
    /// Operations per second in 10^12, of a column at a MHz, as a fraction (npu1_regs.c; `NPU4_DPM_TOPS` of npu4_regs.c).
    tops: (u64, u64),
    /// The clock at which the most operations are stated, if not at the highest of the array.
    pub stated_clock: Option<u64>,
    /// Whether mainline's firmware shares the whole array among contexts in time, and not its columns.
    pub shares_in_time: bool,
    /// Whether mainline's firmware says how a context is, from protocol 6.18 on (7.2 `npu4_regs.c`, `AIE2_APP_HEALTH`).
    pub reports_health: bool,
    /// Bytes of all heaps of a file, where there can be several (`dev_heap_max_size`).
    pub heaps_bytes: usize,
    /// Whether its firmware is the one that [`Profile::even_slots`](crate::kernel::Profile::even_slots) is about.
    pub even_slots: bool,
}

static MODELS: [NpuModel; 2] = [
    NpuModel {
        name: "npu1",
        dev_gen: 3,
        product: Some("Phoenix"),
        firmware: [1, 5, 5, 391],
        array_version: [2, 0],
        first_column: 1,
        idle_clocks: (400, 800),
        tops: (2, 1028),
        stated_clock: Some(1028),
        shares_in_time: false,
        reports_health: false,
        heaps_bytes: DEV_MEM_SIZE,
        even_slots: false,
    },
    NpuModel {
        name: "npu4",
        dev_gen: 4,
        product: None,
        firmware: [1, 1, 2, 65],
        array_version: [2, 1],
        first_column: 0,
        idle_clocks: (396, 792),
        tops: (4096, 1_000_000),
        stated_clock: None,
        shares_in_time: true,
        reports_health: true,
        heaps_bytes: 512 << 20,
        even_slots: true,
    },
];

impl NpuModel {
    /// The entry of a generation.
    ///
    /// # Errors
    /// Which generations have one, when this one has none.
    pub fn of(arch: &Arch) -> Result<&'static Self, String> {
        MODELS.iter().find(|model| model.dev_gen == arch.dev_gen).ok_or_else(|| {
            let known = MODELS.iter().map(|model| format!("{} ({})", model.dev_gen, model.name));
            format!(
                "generation `{}` has `dev_gen` {}, and the simulated kernel's driver has tables for {} only",
                arch.name,
                arch.dev_gen,
                known.collect::<Vec<_>>().join(" and ")
            )
        })
    }

    /// Columns of the array, those included that no context gets.
    pub fn columns(&self, arch: &Arch) -> usize {
        self.first_column + arch.array.columns
    }

    /// Operations per second, in 10^12, of all columns at a clock.
    pub fn tops(&self, arch: &Arch, mhz: u64) -> u64 {
        let (operations, divisor) = self.tops;
        operations * self.columns(arch) as u64 * mhz / divisor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::arch::ArchRegistry;

    #[test]
    fn generations_have_a_model_of_their_own_or_none() {
        let registry = ArchRegistry::builtin();
        let models = ["aie2", "aie2p"].map(|name| NpuModel::of(&registry.get(name).unwrap()).unwrap().name);
        assert_eq!(models, ["npu1", "npu4"]);
        let mut arch = (*registry.get("aie2p").unwrap()).clone();
        (arch.name, arch.dev_gen) = ("aie9".into(), 9);
        let error = NpuModel::of(&arch).unwrap_err();
        assert!(error.contains("`aie9` has `dev_gen` 9") && error.ends_with("3 (npu1) and 4 (npu4) only"), "{error}");
    }
}
