//! The device heap of a context: addresses that the firmware uses, and where they are.

use crate::address_space::AddressSpace;
use amdxdna_sys::limits::DEV_MEM_BASE;

/// Parts of host memory that are one range of device addresses.
#[derive(Debug, Clone, Default)]
pub struct Heap {
    /// Address of each part, and its bytes.
    parts: Vec<(u64, u64)>,
}

impl Heap {
    /// Adds a part behind those there are.
    pub fn add(&mut self, address: u64, bytes: u64) {
        self.parts.push((address, bytes));
    }

    /// Where a device address is: the same one, unless it is in the heap.
    pub fn resolve(&self, address: u64) -> u64 {
        let mut start = DEV_MEM_BASE;
        for (part, bytes) in &self.parts {
            if (start..start + bytes).contains(&address) {
                return part + (address - start);
            }
            start += bytes;
        }
        address
    }

    pub fn read(&self, space: &AddressSpace, address: u64, length: usize) -> Option<Vec<u8>> {
        space.read(self.resolve(address), length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let mut heap = Heap::default();
        assert_eq!(heap.resolve(DEV_MEM_BASE), DEV_MEM_BASE);
        heap.add(0x10_0000, 0x1000);
        heap.add(0x50_0000, 0x1000);
        assert_eq!(heap.resolve(DEV_MEM_BASE + 8), 0x10_0008);
        assert_eq!(heap.resolve(DEV_MEM_BASE + 0x1008), 0x50_0008);
        assert_eq!(heap.resolve(DEV_MEM_BASE + 0x2000), DEV_MEM_BASE + 0x2000);
        assert_eq!(heap.resolve(0x7f_0000_0000), 0x7f_0000_0000);
    }
}
