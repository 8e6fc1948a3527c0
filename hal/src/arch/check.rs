//! What makes the values of an arch file sensible together.
//!
//! The type system checks that a value is a number; this checks that it can be one of an array: counts are not zero, sizes
//! divide into banks, rows add up. Code that divides by a value of an [`Arch`] relies on it.

use super::{Arch, CostModel, Estimate, FirmwareVersion, Mmul, PciId, Tile};
use std::fmt::{Display, Formatter};
use thiserror::Error;

impl Display for PciId {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.revision {
            Some(revision) => write!(f, "{:#06x}:{revision:#04x}", self.device),
            None => write!(f, "{:#06x} (any revision)", self.device),
        }
    }
}

/// Two values of an arch file contradict each other, or one makes no sense: the key, its value and what is expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ContradictionError(pub(super) String);

fn contradiction(text: impl Into<String>) -> Result<(), ContradictionError> {
    Err(ContradictionError(text.into()))
}

fn positive(section: &str, values: &[(&str, usize)]) -> Result<(), ContradictionError> {
    match values.iter().find(|(_, value)| *value == 0) {
        Some((key, _)) => contradiction(format!("{section} `{key}` is 0; it has to be at least 1")),
        None => Ok(()),
    }
}

fn check_dma(tile: &str, values: &Tile) -> Result<(), ContradictionError> {
    let dma = &values.dma;
    let values = [
        ("s2mm", dma.s2mm),
        ("mm2s", dma.mm2s),
        ("bds", dma.bds),
        ("bd_dimensions", dma.bd_dimensions),
        ("locks", dma.locks),
        ("max_lock", dma.max_lock),
        ("task_queue", dma.task_queue),
    ];
    positive(&format!("[{tile}] dma:"), &values)
}

fn check_memory(tile: &str, Tile { data_bytes, banks, .. }: &Tile) -> Result<(), ContradictionError> {
    positive(&format!("[{tile}]"), &[("data_bytes", *data_bytes), ("banks", *banks)])?;
    if data_bytes.is_multiple_of(*banks) {
        return Ok(());
    }
    contradiction(format!("[{tile}] `data_bytes` is {data_bytes}, which does not divide into {banks} banks"))
}

fn check_absent(tile: &str, key: &str, value: usize) -> Result<(), ContradictionError> {
    if value == 0 {
        Ok(())
    } else {
        contradiction(format!("[{tile}] `{key}` is {value}; such a tile has none, write 0"))
    }
}

/// Checks one generation.
pub(super) fn check(arch: &Arch) -> Result<(), ContradictionError> {
    check_names(arch)?;
    let array = &arch.array;
    positive("[array]", &[("columns", array.columns), ("mem_rows", array.mem_rows), ("core_rows", array.core_rows)])?;
    // `checked_add`: the values come from a file.
    if array.mem_rows.checked_add(array.core_rows).and_then(|rows| rows.checked_add(1)) != Some(array.rows) {
        return contradiction(format!(
            "[array] `rows` is {}; it has to be 1 shim row + {} mem tile rows + {} core rows",
            array.rows, array.mem_rows, array.core_rows
        ));
    }
    check_memory("core", &arch.core)?;
    positive("[core]", &[("program_bytes", arch.core.program_bytes)])?;
    check_memory("mem_tile", &arch.mem_tile)?;
    check_absent("mem_tile", "program_bytes", arch.mem_tile.program_bytes)?;
    check_absent("shim", "program_bytes", arch.shim.program_bytes)?;
    check_absent("shim", "data_bytes", arch.shim.data_bytes)?;
    check_absent("shim", "banks", arch.shim.banks)?;
    for (name, tile) in [("core", &arch.core), ("mem_tile", &arch.mem_tile), ("shim", &arch.shim)] {
        check_dma(name, tile)?;
    }
    check_limits(arch)?;
    check_cost(&arch.cost)?;
    check_mmul(arch)?;
    check_pci(arch)
}

fn check_names(arch: &Arch) -> Result<(), ContradictionError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    if arch.name.is_empty() || !arch.name.bytes().all(allowed) {
        return contradiction(format!(
            "`name` is {:?}; it has to be lower case letters, digits, `_` and `-`, because URIs and file names carry it",
            arch.name
        ));
    }
    if arch.instruction_set.as_ref().is_some_and(String::is_empty) {
        return contradiction("`instruction_set` is empty; omit the key if there are no tables of its instructions");
    }
    // The field of a shim's descriptor has two bits.
    if ![64, 128, 256, 512].contains(&arch.shim_burst_bytes) {
        return contradiction(format!(
            "`shim_burst_bytes` is {}; it has to be 64, 128, 256 or 512",
            arch.shim_burst_bytes
        ));
    }
    if arch.columns_per_sync == 0 {
        return contradiction("`columns_per_sync` is 0; it has to be at least 1");
    }
    if arch.title.is_empty() {
        return contradiction("`title` is empty; write the product line's name");
    }
    if arch.native_types.is_empty() {
        return contradiction("`native_types` is empty; name at least one type, for example \"i8\"");
    }
    if arch.min_firmware == Some(FirmwareVersion([0; 4])) {
        return contradiction("`min_firmware` is 0.0.0.0, which rejects nothing; omit the key");
    }
    Ok(())
}

fn check_limits(arch: &Arch) -> Result<(), ContradictionError> {
    let limits = &arch.limits;
    let values = [
        ("pdis_per_context", limits.pdis_per_context),
        ("commands_per_chain", limits.commands_per_chain),
        ("chain_buffer_bytes", limits.chain_buffer_bytes),
        ("contexts", limits.contexts),
        ("device_heap_bytes", limits.device_heap_bytes),
        ("max_buffer_bytes", limits.max_buffer_bytes),
        ("queue_packets", limits.queue_packets),
        ("queues", limits.queues),
        ("kernel_arguments", limits.kernel_arguments),
    ];
    positive("[limits]", &values)?;
    for (key, value) in [("max_alignment", limits.max_alignment), ("granule", limits.granule)] {
        if !value.is_power_of_two() {
            return contradiction(format!("[limits] `{key}` is {value}; it has to be a power of two"));
        }
    }
    Ok(())
}

fn check_cost(cost: &CostModel) -> Result<(), ContradictionError> {
    for (key, value) in [
        ("switch_ns", cost.switch_ns),
        ("switch_ns_per_descriptor", cost.switch_ns_per_descriptor),
        ("chain_ns", cost.chain_ns),
        ("command_ns", cost.command_ns),
        ("operation_ns", cost.operation_ns),
        ("ddr_bytes_per_second", cost.ddr_bytes_per_second),
        ("ddr_piece_bytes", cost.ddr_piece_bytes),
        ("channel_bytes_per_second", cost.channel_bytes_per_second),
        ("clock_mhz", cost.clock_mhz),
        ("delays.task_start_idle", cost.delays.task_start_idle),
        ("delays.task_start_busy", cost.delays.task_start_busy),
    ] {
        let Estimate { low, expected, high } = value;
        if low == 0 || expected < low || high < expected {
            return contradiction(format!(
                "[cost] `{key}` is {low}, {expected}, {high}; `low` has to be at least 1, `expected` at least `low`, and `high` at \
                 least `expected`"
            ));
        }
    }
    Ok(())
}

fn check_mmul(arch: &Arch) -> Result<(), ContradictionError> {
    for shape in &arch.mmul {
        let place = format!("[[mmul]] {:?}:", shape.types);
        let Mmul { m, k, n, macs_per_cycle, .. } = *shape;
        positive(&place, &[("m", m), ("k", k), ("n", n), ("macs_per_cycle", macs_per_cycle)])?;
        if !matches!(shape.types.split_once(" x "), Some((left, right)) if !left.is_empty() && !right.is_empty()) {
            return contradiction(format!("{place} `types` has to name both inputs, for example \"i8 x i8\""));
        }
        // At most the whole product in one cycle.
        let product = m.checked_mul(k).and_then(|mk| mk.checked_mul(n));
        if product.is_none_or(|product| macs_per_cycle > product) {
            return contradiction(format!(
                "{place} `macs_per_cycle` is {macs_per_cycle}, more than the shape {m}x{k}x{n} has"
            ));
        }
    }
    Ok(())
}

fn check_pci(arch: &Arch) -> Result<(), ContradictionError> {
    for (index, id) in arch.pci.iter().enumerate() {
        if arch.pci[..index].iter().any(|other| (other.device, other.revision) == (id.device, id.revision)) {
            return contradiction(format!("[[pci]] id {id} is given twice; keep one"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ArchRegistry;
    use rstest::rstest;

    #[rstest]
    #[case(|a: &mut Arch| a.name = "AIE 9".into(), "`name` is \"AIE 9\"; it has to be lower case")]
    #[case(|a: &mut Arch| a.instruction_set = Some(String::new()), "`instruction_set` is empty; omit the key")]
    #[case(|a: &mut Arch| a.shim_burst_bytes = 1024, "`shim_burst_bytes` is 1024; it has to be 64, 128, 256 or 512")]
    #[case(|a: &mut Arch| a.columns_per_sync = 0, "`columns_per_sync` is 0; it has to be at least 1")]
    #[case(|a: &mut Arch| a.title.clear(), "`title` is empty")]
    #[case(|a: &mut Arch| a.native_types.clear(), "`native_types` is empty")]
    #[case(|a: &mut Arch| a.min_firmware = Some(FirmwareVersion([0; 4])), "`min_firmware` is 0.0.0.0")]
    #[case(|a: &mut Arch| a.array.columns = 0, "[array] `columns` is 0")]
    #[case(|a: &mut Arch| a.array.rows = 5, "[array] `rows` is 5; it has to be 1 shim row + 1 mem tile rows + 4 core rows")]
    #[case(|a: &mut Arch| a.array.mem_rows = usize::MAX, "[array] `rows` is 6")]
    #[case(|a: &mut Arch| a.core.banks = 0, "[core] `banks` is 0")]
    #[case(|a: &mut Arch| a.core.banks = 3, "[core] `data_bytes` is 65536, which does not divide into 3 banks")]
    #[case(|a: &mut Arch| a.core.program_bytes = 0, "[core] `program_bytes` is 0")]
    #[case(|a: &mut Arch| a.mem_tile.program_bytes = 1, "[mem_tile] `program_bytes` is 1; such a tile has none")]
    #[case(|a: &mut Arch| a.shim.data_bytes = 1, "[shim] `data_bytes` is 1; such a tile has none")]
    #[case(|a: &mut Arch| a.shim.dma.bds = 0, "[shim] dma: `bds` is 0")]
    #[case(|a: &mut Arch| a.limits.contexts = 0, "[limits] `contexts` is 0")]
    #[case(|a: &mut Arch| a.limits.granule = 0, "[limits] `granule` is 0; it has to be a power of two")]
    #[case(|a: &mut Arch| a.limits.max_alignment = 48, "[limits] `max_alignment` is 48; it has to be a power of two")]
    #[case(|a: &mut Arch| a.cost.clock_mhz.low = 0, "[cost] `clock_mhz` is 0, 1800, 1808; `low` has to be at least 1")]
    #[case(|a: &mut Arch| a.cost.operation_ns.high = 85, "[cost] `operation_ns` is 86, 190, 85; `low` has to be at least 1")]
    #[case(|a: &mut Arch| a.mmul[0].k = 0, "[[mmul]] \"i8 x i8\": `k` is 0")]
    #[case(|a: &mut Arch| a.mmul[0].types = "i8".into(), "[[mmul]] \"i8\": `types` has to name both inputs")]
    #[case(|a: &mut Arch| a.mmul[0].macs_per_cycle = 513, "[[mmul]] \"i8 x i8\": `macs_per_cycle` is 513")]
    #[case(|a: &mut Arch| a.mmul[0].m = usize::MAX, "[[mmul]] \"i8 x i8\": `macs_per_cycle` is 512")]
    #[case(|a: &mut Arch| { let id = a.pci[0].clone(); a.pci.push(id) }, "[[pci]] id 0x17f0:0x10 is given twice")]
    fn contradictions_are_named(#[case] change: fn(&mut Arch), #[case] expected: &str) {
        let mut arch = (*ArchRegistry::builtin().get("aie2p").unwrap()).clone();
        check(&arch).unwrap();
        change(&mut arch);
        let reason = check(&arch).unwrap_err().to_string();
        assert!(reason.starts_with(expected), "{reason}");
    }
}
