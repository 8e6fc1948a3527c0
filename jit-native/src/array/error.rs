//! Why an array program or a dispatch cannot be made.

use super::tile::{Channel, End, Source, Tile};
use aie_hal::format::FormatError;
use aie_hal::format::register::RegisterError;
use aie_hal::format::stream_switch::PortError;

/// What an array program or a dispatch asks for is more than the array has, or contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// More columns than the generation has.
    #[error("a partition of {asked} columns: the array has {columns}")]
    Columns {
        /// Columns asked for.
        asked: u8,
        /// Columns of the array.
        columns: usize,
    },
    /// A place outside of the partition.
    #[error("there is no tile {tile}: the partition has {columns} columns and {rows} rows")]
    NoTile {
        /// The place.
        tile: Tile,
        /// Columns of the partition.
        columns: usize,
        /// Rows of the array.
        rows: usize,
    },
    /// A tile that is no core, no mem tile or no shim although one is needed.
    #[error("tile {tile} is no {expected} tile")]
    Kind {
        /// The tile.
        tile: Tile,
        /// What it has to be.
        expected: &'static str,
    },
    /// A program that does not fit.
    #[error("the program of core {tile} has {bytes} bytes: the core has {limit}")]
    Program {
        /// The core.
        tile: Tile,
        /// Bytes of the program.
        bytes: usize,
        /// Bytes of program memory.
        limit: usize,
    },
    /// Memory that the tile does not have.
    #[error("bytes {start:#x}..{end:#x} of tile {tile}: it has {limit:#x}")]
    Memory {
        /// The tile.
        tile: Tile,
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// Bytes that there are.
        limit: usize,
    },
    /// No gap in a tile's memory is large enough.
    #[error("{bytes} bytes of tile {tile}: the largest free range has {free}")]
    Full {
        /// The tile.
        tile: Tile,
        /// Bytes asked for.
        bytes: u32,
        /// Bytes of the largest gap.
        free: u32,
    },
    /// Memory that is used already.
    #[error("bytes {start:#x}..{end:#x} of tile {tile} are in use from {used_start:#x} to {used_end:#x}")]
    Overlap {
        /// The tile.
        tile: Tile,
        /// First byte.
        start: u32,
        /// Behind the last byte.
        end: u32,
        /// First byte in use.
        used_start: u32,
        /// Behind the last byte in use.
        used_end: u32,
    },
    /// A number that is not aligned.
    #[error("{what} is {value}, no multiple of {unit}")]
    Unaligned {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What it has to be a multiple of.
        unit: u64,
    },
    /// A number outside of its range.
    #[error("{what} is {value}: it has to be {min} to {max}")]
    Range {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// Something of a tile is used twice.
    #[error("{what} {number} of tile {tile} is in use already")]
    InUse {
        /// The tile.
        tile: Tile,
        /// What it is.
        what: &'static str,
        /// Its number.
        number: u8,
    },
    /// All of a tile's things of a kind are used.
    #[error("tile {tile} has {limit} {what}, all in use")]
    Exhausted {
        /// The tile.
        tile: Tile,
        /// What is missing.
        what: &'static str,
        /// How many there are.
        limit: usize,
    },
    /// A channel without a stream.
    #[error("{0} has no stream")]
    Unconnected(Channel),
    /// A source whose tasks shall run ahead, and that does not send through chains alone.
    #[error("tasks of {0} cannot run ahead: they have to go from a shim through endless chains only")]
    Ahead(Source),
    /// An end of a stream in the wrong role.
    #[error("{0} cannot be the {1} of a stream")]
    WrongEnd(End, &'static str),
    /// There is no way through the switches that the other streams leave free.
    #[error("there is no free way from {from} to {to}")]
    Unroutable {
        /// Where the stream begins.
        from: End,
        /// Where it does not get to.
        to: End,
    },
    /// A core without a parameter block.
    #[error("core {0} has no parameter block")]
    NoParameters(Tile),
    /// More tasks than a channel queues in one phase.
    #[error("{channel} needs {needed} tasks in one phase: it queues {limit}")]
    Tasks {
        /// The channel.
        channel: Channel,
        /// Tasks that are needed.
        needed: usize,
        /// Tasks that it queues.
        limit: usize,
    },
    /// More descriptors than a tile has for a channel.
    #[error("{channel} needs {needed} more buffer descriptors: its tile has {free} left for it of {limit}")]
    Descriptors {
        /// The channel.
        channel: Channel,
        /// Descriptors that are needed.
        needed: usize,
        /// Descriptors that are left.
        free: usize,
        /// Descriptors that the channel can use.
        limit: usize,
    },
    /// More dimensions than a descriptor has.
    #[error("{channel} needs {needed} dimensions: its descriptors have {limit}")]
    Dimensions {
        /// The channel.
        channel: Channel,
        /// Dimensions that are needed.
        needed: usize,
        /// Dimensions that there are.
        limit: usize,
    },
    /// The two ends of a stream do not move the same number of words in a phase: something would wait forever.
    #[error("{from} sends {sent} words in a phase, and {to} receives {received}")]
    Unbalanced {
        /// Where the stream begins.
        from: Source,
        /// Words that it sends.
        sent: u64,
        /// Where it ends.
        to: Channel,
        /// Words that it receives.
        received: u64,
    },
    /// Tiles of two operands over one channel that do not go with the order in which the program takes them.
    #[error(
        "core {tile} takes {a} tiles of its first operand and {b} of its second over one channel, and its order is {b_first} of the second, \
         then {a_for_each_b} of the first for each of the second"
    )]
    TileOrder {
        /// The core.
        tile: Tile,
        /// Tiles of the first operand.
        a: u64,
        /// Tiles of the second.
        b: u64,
        /// Tiles of the second that come first.
        b_first: u32,
        /// Tiles of the first for each other one of the second.
        a_for_each_b: u32,
    },
    /// What all channels of a merge send is not what arrives: something would wait forever.
    #[error("{to} receives {received} words in a phase, and the {streams} channels that send to it send {sent}")]
    UnbalancedMerge {
        /// Where the streams end.
        to: Channel,
        /// Words that it receives.
        received: u64,
        /// How many channels send to it.
        streams: usize,
        /// Words that they send.
        sent: u64,
    },
    /// Words on a channel of a shim without an id that the channel needs, or with one that it does not have.
    #[error("{}", packet_message(*channel, *packet, ids))]
    Packet {
        /// The channel.
        channel: Channel,
        /// The id asked for.
        packet: Option<u8>,
        /// The ids that it has.
        ids: Vec<u8>,
    },
    /// Words that are not whole turns of a chain of the configuration: the next dispatch would find it at another buffer.
    #[error(
        "{channel} moves {words} words in a phase: its chain has turns of {turn} words, and has to end where it began"
    )]
    Turn {
        /// The channel.
        channel: Channel,
        /// Words that it moves.
        words: u64,
        /// Words of a turn.
        turn: u64,
    },
    /// A part of a chain that does not wait for each buffer, hand it over and go on to the next.
    #[error("a part of the chain of {0} does not wait for each buffer, hand it over and go on to the next")]
    Part(Channel),
    /// A channel with a chain of the configuration, which has no end.
    #[error(
        "{0} has a chain that the configuration starts: it takes no task, and its rings and locks are for it alone"
    )]
    Chained(Channel),
    /// A tensor region that no descriptors can cover.
    #[error("a region of argument {argument}: {reason}")]
    Region {
        /// The argument.
        argument: u16,
        /// Why not.
        reason: String,
    },
    /// A number that does not fit a register's field.
    #[error(transparent)]
    Field(#[from] RegisterError),
    /// A port that a switch does not have.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A file that cannot be written.
    #[error(transparent)]
    Format(#[from] FormatError),
}

fn packet_message(channel: Channel, packet: Option<u8>, ids: &[u8]) -> String {
    let asked = packet.map_or("words without a packet id".to_owned(), |id| format!("words with packet id {id}"));
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    match &ids[..] {
        [] => format!("{asked} on {channel}: it leads to one place, and has no ids"),
        ids => format!("{asked} on {channel}: it has the ids {}", ids.join(", ")),
    }
}
