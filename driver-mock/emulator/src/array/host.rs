//! The host, as far as the array reaches it: its memory begins at an offset of the addresses that shim DMAs use.

use aie_hal::format::instructions::ARRAY_OFFSET;

/// Host memory, as shim DMAs see it. Addresses are the host's.
pub trait HostMemory {
    /// Reads bytes. False if there is no such memory.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;
    /// Writes bytes. False if there is no such memory.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool;
}

/// No host memory, for what moves nothing to or from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl HostMemory for NoHost {
    fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// Reads at an address as a shim DMA has it. False if there is no such memory.
pub(super) fn read(host: &mut impl HostMemory, address: u64, bytes: &mut [u8]) -> bool {
    address.checked_sub(ARRAY_OFFSET).is_some_and(|address| host.read(address, bytes))
}

/// Writes at an address as a shim DMA has it. False if there is no such memory.
pub(super) fn write(host: &mut impl HostMemory, address: u64, bytes: &[u8]) -> bool {
    address.checked_sub(ARRAY_OFFSET).is_some_and(|address| host.write(address, bytes))
}
