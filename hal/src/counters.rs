//! Counters of the cost of work. Counts are repeatable where timings are not, so tests and budgets use them.

use serde::{Deserialize, Serialize};

/// A snapshot of a device's counters since it was opened. Bytes and nanoseconds are totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Submissions executed, failed ones included.
    pub submissions: u64,
    /// Kernels run on the array.
    pub dispatches: u64,
    /// How many of them ran as part of the dispatch of another one with the same PDI, so that they took no place in a chain.
    pub joined: u64,
    /// Bytes of instruction streams that were put into the device heap for submissions: made for the data at hand, joined, or changed in
    /// one of them. Those of loaded kernels do not count.
    pub stream_bytes: u64,
    /// Functions run on the host inside command lists.
    pub host_calls: u64,
    /// Command chains sent to the device.
    pub chains: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Hardware contexts created.
    pub contexts_created: u64,
    /// Changes of the active hardware context.
    pub context_switches: u64,
    /// Bytes moved by fill, update and copy commands.
    pub bytes_copied: u64,
    /// Bytes flushed from host to device.
    pub bytes_flushed: u64,
    /// Bytes invalidated from device to host.
    pub bytes_invalidated: u64,
    /// Device memory allocations.
    pub allocations: u64,
    /// Bytes allocated now.
    pub allocated_bytes: u64,
    /// Most bytes allocated at one time.
    pub peak_bytes: u64,
    /// Time on the device's virtual clock in nanoseconds; 0 on hardware.
    pub virtual_ns: u64,
    /// Instruction bundles that emulated cores have executed; 0 on hardware.
    pub bundles: u64,
}
