//! How much of the array a PDI sets up, which is what a change to it takes.
//!
//! Firmware executes the CDO at each change of context. On an NPU of XDNA 2 that took 89 us for a design of 6 buffer descriptors and 8
//! locks, and 2,348 us for one of 388 and 320, about in proportion (vegah/Npu-Embeddings, research/notes/0004). Descriptors are what
//! other authors count, too, so they stand for all of it here.

use super::bd::{CoreBd, MemTileBd, ShimBd};
use super::cdo::{Cdo, CdoCommand};
use super::register::TileKind;
use super::tile_location;
use crate::Arch;
use std::collections::BTreeSet;

/// Bytes from one descriptor to the next.
const STRIDE: u32 = 0x20;

/// The buffer descriptors that a CDO writes, each counted once. Takes time in proportion to its length.
#[must_use]
pub fn descriptors(cdo: &Cdo<'_>, arch: &Arch) -> u64 {
    let mut written = BTreeSet::new();
    for command in cdo.commands() {
        let (address, words) = match command {
            CdoCommand::Write { address, .. } | CdoCommand::MaskWrite { address, .. } => (address, 1),
            CdoCommand::DmaWrite { address, data } => (address, data.len()),
            _ => continue,
        };
        let Ok(address) = u32::try_from(address) else { continue };
        let (column, row, offset) = tile_location(address);
        let Some(kind) = arch.tile_kind(row) else { continue };
        let (first, count) = match kind {
            TileKind::Shim => (ShimBd::register(0), arch.shim.dma.bds),
            TileKind::Mem => (MemTileBd::register(0), arch.mem_tile.dma.bds),
            TileKind::Core => (CoreBd::register(0), arch.core.dma.bds),
        };
        let end = first + STRIDE * count as u32;
        // A block does not reach from one tile into the next.
        let bytes = offset.max(first)..(offset + 4 * words as u32).min(end);
        let numbers = bytes.step_by(4).map(|offset| (offset - first) / STRIDE);
        written.extend(numbers.map(|number| (column, row, number)));
    }
    written.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ArchRegistry;
    use crate::format::cdo::CdoBuilder;
    use crate::format::tile_address;

    #[test]
    fn each_descriptor_counts_once_and_nothing_else_does() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let at = |column, row, offset| u64::from(tile_address(column, row, offset));
        let mut cdo = CdoBuilder::new();
        // Two of a shim in one block; one of them again, in part.
        cdo.dma_write(at(0, 0, ShimBd::register(3)), &[1; 16]).write(at(0, 0, ShimBd::register(4) + 4), 2);
        // The same place in a mem tile is its memory, and there are 48 further up.
        cdo.dma_write(at(0, 1, ShimBd::register(3)), &[1; 16]);
        cdo.dma_write(at(1, 1, MemTileBd::register(46)), &[1; 64]);
        // A core's last one, and what is behind it.
        cdo.mask_write(at(3, 5, CoreBd::register(15)), 1, 1).write(at(3, 5, CoreBd::register(15) + STRIDE), 1);
        // No row of this array.
        cdo.write(at(0, 9, CoreBd::register(0)), 1);
        let bytes = cdo.finish().unwrap();
        assert_eq!(descriptors(&Cdo::parse(&bytes).unwrap(), &arch), 2 + 2 + 1);
    }
}
