//! The host, as far as the array reaches it.

/// Host memory, as shim DMAs see it.
pub trait HostMemory {
    /// Reads bytes. False if there is no such memory.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;
    /// Writes bytes. False if there is no such memory.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool;
}
