//! Who waits for what: the report of a deadlock or a timeout.
//!
//! A deadlock is a circle of waiting, and finding it takes the whole picture: every core, every DMA channel that has a task,
//! and every stream port that holds words, each with what would let it continue and what that is at the moment.

use aie_hal::format::dma_channel::Direction;
use aie_hal::format::stream_switch::Port;
use std::fmt;

/// Who cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Who {
    /// The core of the tile.
    Core {
        /// Address of its next bundle.
        pc: u32,
    },
    /// A DMA channel of the tile.
    Channel {
        /// Its direction.
        direction: Direction,
        /// Its number.
        channel: usize,
        /// The descriptor it runs.
        descriptor: u8,
    },
    /// A slave port of the tile's stream switch that holds words.
    Port {
        /// Which.
        port: Option<Port>,
        /// How many words.
        words: usize,
    },
    /// An operation of the instruction stream, about a channel of the tile.
    Operation {
        /// Its index.
        operation: usize,
    },
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A lock with another value.
    Lock {
        /// Column of its tile.
        column: u8,
        /// Row of its tile.
        row: u8,
        /// Its number there.
        lock: usize,
        /// What it is.
        value: i32,
        /// What it should be.
        wanted: i32,
        /// Whether more would do.
        at_least: bool,
    },
    /// Words from a stream.
    Words {
        /// Words that have come, and that are to come in all; none for a core.
        moved: Option<(u64, u64)>,
    },
    /// Space in a stream.
    Space {
        /// Words that have left, and that are to leave in all; none for a core.
        moved: Option<(u64, u64)>,
    },
    /// The header of a packet, which names the descriptor.
    Header,
    /// A value from the cascade neighbour.
    CascadeInput,
    /// The cascade neighbour to take a value.
    CascadeOutput,
    /// The shim's multiplexer, which does not connect the channel with the switch.
    Multiplexer,
    /// Its reset or pause bit to be cleared.
    Release,
    /// Its column's clock.
    Clock,
    /// A port that is not configured to take words.
    Configuration,
    /// A master port that takes what this port sends.
    Route,
    /// An arbiter that another slave port has.
    Arbiter {
        /// Its number.
        number: usize,
        /// The other port.
        port: Option<Port>,
    },
    /// Space behind master ports; those that lead nowhere never have any.
    Masters {
        /// The ports without space, and whether there is nothing behind them.
        ports: Vec<(Option<Port>, bool)>,
    },
    /// A completion token.
    Token {
        /// Direction of the channel.
        direction: Direction,
        /// The channel.
        channel: u8,
    },
    /// A register with another value.
    Register {
        /// Its offset.
        offset: u32,
        /// The value wanted under the mask.
        wanted: u32,
        /// The bits that count.
        mask: u32,
    },
    /// Nothing: it was at work when the run ended.
    Nothing,
}

/// Something that cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Column of the tile.
    pub column: u8,
    /// Row of the tile.
    pub row: u8,
    /// Who.
    pub who: Who,
    /// For what.
    pub what: What,
}

/// Everything that cannot continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of columns and rows; behind an operation, those that it waits for come first.
    pub waiters: Vec<Waiter>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.waiters.is_empty() {
            return f.write_str("nothing waits");
        }
        for (index, waiter) in self.waiters.iter().enumerate() {
            write!(f, "{}{waiter}", if index == 0 { "" } else { "\n  " })?;
        }
        Ok(())
    }
}

/// The name that registers and public documents have for a direction.
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::StreamToMemory => "S2MM",
        Direction::MemoryToStream => "MM2S",
    }
}

/// A port by its name, such as `North(2)`.
struct Name<'a>(&'a Option<Port>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(port) => write!(f, "{port:?}"),
            None => f.write_str("?"),
        }
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (column, row) = (self.column, self.row);
        match &self.who {
            Who::Core { pc } => write!(f, "core ({column}, {row}) at {pc:#x}")?,
            Who::Channel { direction, channel, descriptor } => {
                write!(f, "{} {channel} of tile ({column}, {row}), BD {descriptor},", direction_name(*direction))?;
            }
            Who::Port { port, words } => {
                write!(f, "slave port {} of tile ({column}, {row}), with {words} words,", Name(port))?;
            }
            Who::Operation { operation } => write!(f, "operation {operation} of the instruction stream")?,
        }
        match &self.what {
            What::Nothing if matches!(self.who, Who::Core { .. }) => f.write_str(" runs"),
            What::Nothing => f.write_str(" is not waiting"),
            what => write!(f, " waits for {}", Said(what, column, row)),
        }
    }
}

/// What something in a tile waits for, in words.
struct Said<'a>(&'a What, u8, u8);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, tile_column, tile_row) = self;
        let after = |f: &mut fmt::Formatter<'_>, moved: &Option<(u64, u64)>| match moved {
            Some((moved, all)) => write!(f, " after {moved} of {all} words"),
            None => Ok(()),
        };
        match what {
            What::Lock { column, row, lock, value, wanted, at_least } => {
                let least = if *at_least { "at least " } else { "" };
                write!(f, "lock {lock} of tile ({column}, {row}) to be {least}{wanted}: it is {value}")
            }
            What::Words { moved } => f.write_str("words of its stream").and_then(|()| after(f, moved)),
            What::Space { moved } => f.write_str("space in its stream").and_then(|()| after(f, moved)),
            What::Header => f.write_str("the header of a packet"),
            What::CascadeInput => f.write_str("a value from its cascade neighbour"),
            What::CascadeOutput => f.write_str("its cascade neighbour to take a value"),
            What::Multiplexer => f.write_str("the shim's multiplexer, which does not connect the DMA"),
            What::Release => f.write_str("its reset or pause bit to be cleared"),
            What::Clock => f.write_str("the clock of its column"),
            What::Configuration => f.write_str("its configuration: the port is off"),
            What::Route => f.write_str("a master that takes its words: there is none"),
            What::Arbiter { number, port } => write!(f, "arbiter {number}, which slave port {} has", Name(port)),
            What::Masters { ports } => {
                f.write_str("space behind")?;
                for (port, nothing) in ports {
                    let nothing = if *nothing { " (which leads nowhere)" } else { "" };
                    write!(f, " master port {}{nothing}", Name(port))?;
                }
                Ok(())
            }
            What::Token { direction, channel } => {
                let name = direction_name(*direction);
                write!(f, "a token of {name} {channel} of tile ({tile_column}, {tile_row})")
            }
            What::Register { offset, wanted, mask } => {
                write!(
                    f,
                    "register {offset:#x} of tile ({tile_column}, {tile_row}) to be {wanted:#x} under mask {mask:#x}"
                )
            }
            What::Nothing => f.write_str("nothing"),
        }
    }
}
