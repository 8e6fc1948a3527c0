//! PCI configuration space: ids, the class, the kinds of BARs, and the capability for MSI-X. QEMU keeps what a guest writes to BARs and
//! to the interrupt table itself.

use crate::model::Model;

pub const VECTORS: u16 = 32;
const BYTES: usize = 256;
const AMD: u16 = 0x1022;
/// Signal processing controller, other.
const CLASS: [u8; 3] = [0, 0x80, 0x11];
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u8 = 0x10;
const REVISION: usize = 0x08;
const BARS: usize = 0x10;
/// A BAR of 64 bits that can be prefetched.
const WIDE: u32 = 0xc;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
/// Where the capability for MSI-X is.
const MSIX: usize = 0x40;
const MSIX_ID: u8 = 0x11;
/// The BAR with the interrupt table, and where the pending bits are in it.
const MSIX_BAR: u32 = 1;
const PENDING: u32 = 0x1000;

#[derive(Debug)]
pub struct ConfigSpace {
    bytes: [u8; BYTES],
}

impl ConfigSpace {
    pub fn new(model: &Model) -> Self {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &AMD.to_le_bytes());
        put(2, &model.device_id.to_le_bytes());
        put(STATUS, &[HAS_CAPABILITIES]);
        put(REVISION, &[model.revision]);
        put(REVISION + 1, &CLASS);
        put(BARS + 4 * model.layout.sram.bar, &WIDE.to_le_bytes());
        put(SUBSYSTEM, &AMD.to_le_bytes());
        put(SUBSYSTEM + 2, &model.device_id.to_le_bytes());
        put(CAPABILITIES, &[MSIX as u8]);
        put(MSIX, &[MSIX_ID, 0]);
        put(MSIX + 2, &(VECTORS - 1).to_le_bytes());
        put(MSIX + 4, &MSIX_BAR.to_le_bytes());
        put(MSIX + 8, &(PENDING | MSIX_BAR).to_le_bytes());
        Self { bytes }
    }

    /// Reads; what is beyond the end reads as ones.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        for (index, byte) in target.iter_mut().enumerate() {
            *byte = offset.checked_add(index).and_then(|at| self.bytes.get(at)).copied().unwrap_or(0xff);
        }
    }

    /// Writes what can be written.
    pub fn write(&mut self, offset: usize, source: &[u8]) {
        for (index, byte) in source.iter().enumerate() {
            match offset.saturating_add(index) {
                at if (COMMAND..COMMAND + 2).contains(&at) || at == INTERRUPT_LINE => self.bytes[at] = *byte,
                _ => {}
            }
        }
    }

    pub fn length() -> usize {
        BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_finds_an_npu() {
        let mut config = ConfigSpace::new(Model::by_name("npu4").unwrap());
        let mut bytes = [0; 12];
        config.read(0, &mut bytes);
        assert_eq!(bytes, [0x22, 0x10, 0xf0, 0x17, 0, 0, 0x10, 0, 0x10, 0, 0x80, 0x11]);
        config.write(0, &[1; 8]);
        config.read(0, &mut bytes);
        assert_eq!(bytes[..8], [0x22, 0x10, 0xf0, 0x17, 1, 1, 0x10, 0], "ids stay");
        config.read(BYTES - 1, &mut bytes[..2]);
        assert_eq!(bytes[..2], [0, 0xff]);
        config.read(usize::MAX, &mut bytes[..2]);
        assert_eq!(bytes[1], 0xff);
    }
}
