//! A generation of the AI Engine as data.
//!
//! Everything that differs between generations is in one TOML file: the array, memories, DMA channels, limits,
//! PCI ids, costs. `aie2` and `aie2p` are built in; [`ArchRegistry`] also reads files from a search path, so a new
//! generation needs no new code. Unknown keys are errors, so that a typo does not become a default.

mod check;
mod firmware;
mod registry;

pub use firmware::FirmwareVersion;
pub use registry::{ArchError, ArchRegistry};

use crate::format::extent::Traffic;
use crate::format::instructions::Header;
use crate::format::register::TileKind;
use serde::{Deserialize, Serialize};

/// DMA engine, buffer descriptors and locks of one kind of tile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileDma {
    /// Stream-to-memory channels.
    pub s2mm: usize,
    /// Memory-to-stream channels.
    pub mm2s: usize,
    /// Buffer descriptors.
    pub bds: usize,
    /// Address dimensions of a BD, without the iteration dimension.
    pub bd_dimensions: usize,
    /// Locks.
    pub locks: usize,
    /// Largest lock value.
    pub max_lock: usize,
    /// Tasks a channel can queue.
    pub task_queue: usize,
}

/// A tile with memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// Data memory in bytes; 0 for shim tiles.
    pub data_bytes: usize,
    /// Banks of the data memory.
    pub banks: usize,
    /// Program memory in bytes; 0 unless a core.
    pub program_bytes: usize,
    /// DMA, BDs and locks.
    pub dma: TileDma,
}

/// The grid. Row 0 is the shim row, then mem tile rows, then cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Columns a context can use.
    pub columns: usize,
    /// Rows in all.
    pub rows: usize,
    /// Mem tile rows.
    pub mem_rows: usize,
    /// Core rows.
    pub core_rows: usize,
}

/// What a device does not exceed: what its generation's kernel driver and firmware reject beyond, perhaps narrowed by a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Distinct PDIs (compute units) that one hardware context can hold.
    pub pdis_per_context: usize,
    /// Commands in one chain.
    pub commands_per_chain: usize,
    /// Bytes of a chain's command buffer.
    pub chain_buffer_bytes: usize,
    /// Hardware contexts of one process.
    pub contexts: usize,
    /// Bytes of the device heap.
    pub device_heap_bytes: usize,
    /// Largest alignment of an allocation in bytes.
    pub max_alignment: usize,
    /// Allocation granule of data memory in bytes.
    pub granule: usize,
    /// Largest single allocation in bytes.
    pub max_buffer_bytes: usize,
    /// Packets a queue's ring holds.
    pub queue_packets: usize,
    /// Queues of one device.
    pub queues: usize,
    /// Arguments of one kernel.
    pub kernel_arguments: usize,
}

/// A matrix shape that the vector unit multiplies at its full rate for these types (`aie::mmul` of aie_api).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mmul {
    /// Input types, e.g. "bf16 x bf16".
    pub types: String,
    /// Rows of the left operand.
    pub m: usize,
    /// Inner extent.
    pub k: usize,
    /// Columns of the right operand.
    pub n: usize,
    /// Multiply-accumulates per cycle and core.
    pub macs_per_cycle: usize,
}

/// A PCI id that carries this generation. Vendor is 0x1022.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciId {
    /// Device id.
    pub device: u16,
    /// Revision, when it matters.
    pub revision: Option<u8>,
    /// Product name.
    pub name: String,
}

/// A quantity on which machines, firmwares or authors differ: the smallest and the largest published value, and one to expect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// The smallest published value.
    pub low: u64,
    /// What to count with where one value is needed.
    pub expected: u64,
    /// The largest published value.
    pub high: u64,
}

/// Costs, for the virtual clock, for predictions and for how much goes into a chain. Each value is a measurement published by
/// others on hardware; the file names the source. A virtual clock takes the expected values, the budget of a chain the slow ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Creating a hardware context, in nanoseconds.
    pub context_create_ns: u64,
    /// Switching to another context or PDI that configures next to nothing, in nanoseconds.
    pub switch_ns: Estimate,
    /// What each buffer descriptor that the PDI writes adds to that, in nanoseconds ([`load`](crate::format::load)).
    pub switch_ns_per_descriptor: Estimate,
    /// One chain without any work, in nanoseconds.
    pub chain_ns: Estimate,
    /// Each further command in a chain, in nanoseconds.
    pub command_ns: Estimate,
    /// One operation of an instruction stream (a write, a block write, a push to a task queue), in nanoseconds. The command
    /// processor executes them one after the other.
    pub operation_ns: Estimate,
    /// Reachable DDR bandwidth of all shim channels together, in bytes per second and direction.
    pub ddr_bytes_per_second: Estimate,
    /// What a piece of DDR that a channel moves without a gap costs besides its own bytes, in bytes.
    pub ddr_piece_bytes: Estimate,
    /// What one shim channel reads alone, in bytes per second.
    pub channel_bytes_per_second: Estimate,
    /// Array clock in MHz, from the lowest step of the kernel driver to the highest that was measured.
    pub clock_mhz: Estimate,
    /// What passes within the array.
    pub delays: Delays,
}

/// What passes in the array besides the bundles of its cores and the words of its channels, in cycles of its clock. By default
/// nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delays {
    /// An access of a core that needs the memory bank of another access of its bundle.
    pub bank_conflict: u64,
    /// A lock request of a core, although it is granted at once.
    pub lock_request: u64,
    /// A word on its way from the switch of one tile to that of the next.
    pub hop: u64,
    /// From the start of a shim channel's first task in a dispatch to its first word, from memory.
    pub first_read: u64,
    /// The same for a channel that writes to memory.
    pub first_write: u64,
    /// From the start of one task of a shim channel to that of the next, when the channel was idle in between.
    pub task_start_idle: Estimate,
    /// The same when the next task was already in the channel's queue.
    pub task_start_busy: Estimate,
}

impl Estimate {
    /// A value without a range.
    #[must_use]
    pub const fn exactly(value: u64) -> Self {
        Self { low: value, expected: value, high: value }
    }
}

impl CostModel {
    /// Nanoseconds in which `bytes` pass the memory interface at `bytes_per_second`, rounded up.
    #[must_use]
    pub fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
        let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_second.max(1)));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that a switch to a PDI with so many buffer descriptors takes.
    #[must_use]
    pub fn switch(&self, descriptors: u64) -> Estimate {
        let at = |end: fn(Estimate) -> u64| {
            end(self.switch_ns).saturating_add(end(self.switch_ns_per_descriptor).saturating_mul(descriptors))
        };
        Estimate { low: at(|value| value.low), expected: at(|value| value.expected), high: at(|value| value.high) }
    }

    /// Nanoseconds in which DDR passes `traffic` one way, by the expected costs.
    #[must_use]
    pub fn ddr_ns(&self, traffic: Traffic) -> u64 {
        let bytes = with_gaps(traffic, self.ddr_piece_bytes.expected);
        Self::transfer_ns(bytes, self.ddr_bytes_per_second.expected)
    }

    /// Nanoseconds that a dispatch takes whose stream has `operations` and which moves `traffic`, at the slow ends of the ranges. What
    /// its cores compute is not in it.
    #[must_use]
    pub fn slow_dispatch_ns(&self, operations: u64, traffic: Traffic) -> u64 {
        let bytes = with_gaps(traffic, self.ddr_piece_bytes.high);
        self.command_ns
            .high
            .saturating_add(self.operation_ns.high.saturating_mul(operations))
            .saturating_add(Self::transfer_ns(bytes, self.ddr_bytes_per_second.low))
    }

    /// Nanoseconds that a stream takes, by the expected costs: its `operations`, and then `cycles` of the array or the time of memory for
    /// `traffic`, whatever is longer. What a dispatch takes besides is not in it.
    #[must_use]
    pub fn stream_ns(&self, operations: u64, cycles: u64, traffic: Traffic) -> u64 {
        let array = cycles.saturating_mul(1000) / self.clock_mhz.expected.max(1);
        self.operation_ns.expected.saturating_mul(operations).saturating_add(array.max(self.ddr_ns(traffic)))
    }
}

/// The bytes that take as long as `traffic` whose pieces cost so many bytes each.
fn with_gaps(traffic: Traffic, piece_bytes: u64) -> u64 {
    traffic.bytes.saturating_add(traffic.pieces.saturating_mul(piece_bytes))
}

/// What a generation has or can do unless its file says otherwise.
fn yes() -> bool {
    true
}

/// As [`yes`], of numbers.
fn one() -> usize {
    1
}

/// One generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arch {
    /// Short name, as ROCR names the agent: `aie2`, `aie2p`.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Device generation in the header of instruction streams.
    pub dev_gen: u8,
    /// Instruction set of the cores, by its name in `aie-isa`; `None` if it has no tables, and so no machine code is made or executed
    /// for this generation.
    pub instruction_set: Option<String>,
    /// Largest burst of a shim's DMA in bytes.
    pub shim_burst_bytes: usize,
    /// Types the vector unit computes natively, by ggml's names.
    pub native_types: Vec<String>,
    /// Whether zero-overhead loops of cores (LS, LE, LC) repeat. Without them native kernels branch back.
    #[serde(default = "yes")]
    pub hardware_loops: bool,
    /// Whether channels of mem tiles that a stream starts run after every start of the machine. Where they do not, a self-test of kernels
    /// that start them holds until the next start only.
    #[serde(default = "yes")]
    pub mem_tile_starts: bool,
    /// Columns whose tokens an instruction stream waits for by one operation, at most.
    #[serde(default = "one")]
    pub columns_per_sync: usize,
    /// Oldest firmware a device may have; `None` when nothing is known of old ones.
    pub min_firmware: Option<FirmwareVersion>,
    /// The grid.
    pub array: Array,
    /// A core tile.
    pub core: Tile,
    /// A mem tile.
    pub mem_tile: Tile,
    /// A shim tile.
    pub shim: Tile,
    /// Limits.
    pub limits: Limits,
    /// Costs.
    pub cost: CostModel,
    /// Matrix shapes; of several for the same types, the first is to be preferred.
    pub mmul: Vec<Mmul>,
    /// Products.
    pub pci: Vec<PciId>,
}

impl Arch {
    /// The kind of tile in a row of the array; none above its last one.
    #[must_use]
    pub fn tile_kind(&self, row: u8) -> Option<TileKind> {
        let row = usize::from(row);
        (row < self.array.rows).then_some(match row {
            0 => TileKind::Shim,
            row if row <= self.array.mem_rows => TileKind::Mem,
            _ => TileKind::Core,
        })
    }

    /// What an instruction stream says about a partition of `columns` columns.
    #[must_use]
    pub fn stream_header(&self, columns: usize) -> Header {
        // Arch files are checked, and there are five bits for a row in an address.
        let small = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
        Header {
            generation: self.dev_gen,
            rows: small(self.array.rows),
            columns: small(columns),
            mem_tile_rows: small(self.array.mem_rows),
        }
    }

    /// The largest burst of a shim's descriptors, as their field has it.
    #[must_use]
    pub fn shim_burst(&self) -> u32 {
        // Powers of two from 64 bytes on: arch files with others are rejected.
        (self.shim_burst_bytes / 64).max(1).ilog2()
    }
}
