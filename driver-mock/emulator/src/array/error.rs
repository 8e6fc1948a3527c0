//! Why an array cannot continue.

use super::report::{Report, direction_name};
use crate::core::Fault;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::ARRAY_OFFSET;
use aie_hal::format::stream_switch::Port;

/// Why an array cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// A core stopped.
    #[error("core ({column}, {row}) at {pc:#x}: {fault}")]
    Core {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The bundle's address.
        pc: u32,
        /// Why.
        fault: Fault,
    },
    /// Something that a DMA channel cannot do.
    #[error("{} {channel} of tile ({column}, {row}), BD {descriptor}: {problem}", direction_name(*.direction))]
    Dma {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The channel's direction.
        direction: Direction,
        /// The channel.
        channel: usize,
        /// The descriptor it runs.
        descriptor: u8,
        /// What is wrong.
        problem: DmaProblem,
    },
    /// A packet that no rule of a port matches.
    #[error("slave port {port} of tile ({column}, {row}): no slot matches the packet header {header:#010x}")]
    Packet {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The port's index.
        port: usize,
        /// The header.
        header: u32,
    },
    /// A control packet that cannot be executed.
    #[error("control packet {words:08x?} of tile ({column}, {row}): {problem}")]
    ControlPacket {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// What is wrong.
        problem: String,
        /// The packet.
        words: Vec<u32>,
    },
    /// A register outside of the array.
    #[error("there is no tile ({column}, {row})")]
    Tile {
        /// Its column.
        column: u8,
        /// Its row.
        row: u8,
    },
    /// A release that takes a lock out of its six bits; what hardware does is not documented.
    #[error("releasing lock {lock} of tile ({column}, {row}) makes it {value}, outside of 0 to 63")]
    LockRange {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The lock, as the tile numbers it.
        lock: usize,
        /// What it would be.
        value: i32,
    },
    /// Ports of a switch that have no wire between them.
    #[error("tile ({column}, {row}): its switch has no wire from {slave} to {master}")]
    NoWire {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// Where words come from.
        slave: Port,
        /// Where they are to go.
        master: Port,
    },
    /// Completion tokens that the stream which ended has not waited for: see [`LeftTokens`](super::LeftTokens).
    #[error(
        "completion tokens of {} {channel} of tile ({column}, {row}) that the stream asks for and does not wait for: {tokens}; \
        the next stream that waits there goes on too early",
        direction_name(*.direction)
    )]
    TokensLeft {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The channel's direction.
        direction: Direction,
        /// The channel.
        channel: usize,
        /// How many are there, or will come.
        tokens: u32,
    },
    /// A register that switches on something without a model.
    #[error("register {offset:#x} of tile ({column}, {row}): {what} is not modelled")]
    Unmodelled {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The register.
        offset: u32,
        /// What it switches on.
        what: &'static str,
    },
    /// More cycles than the limit allows: see [`Array::set_cycle_limit`](super::Array::set_cycle_limit).
    #[error("not at an end after {cycles} cycles: {report}")]
    Timeout {
        /// The limit.
        cycles: u64,
        /// Where everything is.
        report: Report,
    },
    /// A task for a channel whose queue is full, which hardware loses without a sign but a bit of the channel's status.
    #[error(
        "the task queue of {} {channel} of tile ({column}, {row}) holds {places} tasks that have not ended: \
        a fifth push, of BD {descriptor}, is lost",
        direction_name(*.direction)
    )]
    QueueFull {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The channel's direction.
        direction: Direction,
        /// The channel.
        channel: usize,
        /// The first descriptor of the task.
        descriptor: u8,
        /// Tasks that fit, the one that runs included.
        places: usize,
    },
    /// A write to a descriptor that a task has which has not ended.
    #[error(
        "BD {descriptor} of tile ({column}, {row}) is written while a task of {} {channel}, which begins at BD {task}, uses it",
        direction_name(*.direction)
    )]
    LiveDescriptor {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The descriptor.
        descriptor: u8,
        /// Direction of the channel that has the task.
        direction: Direction,
        /// The channel.
        channel: usize,
        /// The task's first descriptor.
        task: u8,
    },
    /// A lock that is set to what its six bits do not hold.
    #[error(
        "setting lock {lock} of tile ({column}, {row}) to {value}, outside of 0 to 63: silicon keeps its low six bits"
    )]
    LockValue {
        /// Column of the tile.
        column: u8,
        /// Row of the tile.
        row: u8,
        /// The lock, as the tile numbers it.
        lock: usize,
        /// What was written.
        value: u32,
    },
}

/// What a DMA channel cannot do. Hardware sets a bit of the channel's status and stops it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmaProblem {
    /// The descriptor's valid bit is off.
    #[error("the descriptor is not valid")]
    NotValid,
    /// A descriptor that the tile does not have, or one of a mem tile's odd channels for an even one or the reverse.
    #[error("the channel cannot use this descriptor")]
    NotOfThisChannel,
    /// A shim's descriptor with another quality of service than 0: 15 stopped the whole NPU until the machine was restarted.
    #[error("its quality of service is {qos}: on silicon other values than 0 have stopped the NPU until a reboot")]
    Qos {
        /// AxQoS of the descriptor.
        qos: u32,
    },
    /// The byte order of compressed data is not public.
    #[error("compression is not modelled")]
    Compression,
    /// A packet header for no words.
    #[error("a packet of no words")]
    EmptyPacket,
    /// An address outside of what the channel reaches.
    #[error("there is no memory at {address:#x}")]
    NoMemory {
        /// In bytes, as the channel counts them.
        address: u64,
    },
    /// An address below those at which the array sees the host's memory.
    #[error(
        "there is no memory at {address:#x}: the array sees the host's memory from {ARRAY_OFFSET:#x} on, which was not added"
    )]
    BelowHost {
        /// In bytes.
        address: u64,
    },
    /// A lock that the channel does not reach.
    #[error("there is no lock {lock}")]
    NoLock {
        /// As the descriptor names it.
        lock: u32,
    },
    /// A release that takes a lock out of its six bits; what hardware does is not documented.
    #[error("releasing lock {lock} makes it {value}, outside of 0 to 63")]
    LockRange {
        /// As the descriptor names it.
        lock: u32,
        /// What it would be.
        value: i32,
    },
    /// A channel that finishes on TLAST got as many words as the descriptor allows, and no TLAST.
    #[error("no TLAST within the {length} words of the descriptor")]
    NoTlast {
        /// Words of the descriptor.
        length: u64,
    },
}

/// What the parts of the array give.
pub(super) type Result<T> = std::result::Result<T, ArrayError>;
