//! What a PDI configures and an instruction stream does, without running anything.
//!
//! [`Design::read`] replays the register writes of a PDI into maps of words, tile by tile, and reads them back as what they mean:
//! programs as listings, buffer descriptors with sizes and steps, locks with who uses them, stream switches, and the routes that
//! all switches together make. An instruction stream is replayed on top of it and becomes steps. The result is plain data: it is
//! displayed as text ([`std::fmt::Display`]), serialised, and drawn ([`svg()`](svg())).
//!
//! Everything comes from the files: nothing is guessed, and what has no meaning here is shown as offset and value. Damaged or
//! unusual configurations are read like any other; what cannot work is listed as [`Problem`]s.
//!
//! ```
//! use aie_emulator::design::{Design, Source};
//! use aie_hal::ArchRegistry;
//! use aie_hal::format::{cdo::CdoBuilder, pdi};
//! use aie_isa::{InstructionSet, Isa};
//!
//! let code = Isa::aie2().assemble("movxm r0, #7\ndone").unwrap();
//! let words: Vec<u32> = code.chunks(4).map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect();
//! // Program memory of core (0,2), then its control register.
//! let pdi = pdi::write(CdoBuilder::new().dma_write(0x22_0000, &words).write(0x23_2000, 1)).unwrap();
//! let arch = ArchRegistry::builtin().get("aie2").unwrap();
//! let design = Design::read(&arch, &Source::parse(&pdi, None).unwrap()).unwrap();
//! assert!(design.to_string().contains("movxm r0, #7"));
//! ```

mod arbiters;
mod check;
mod descriptor;
mod flow;
mod in_flight;
mod locks;
mod place;
mod position;
mod program;
mod replay;
mod rings;
mod routes;
mod static_channels;
mod stream;
mod svg;
mod switch;
mod text;
mod tile;

#[cfg(test)]
mod tests;

pub use descriptor::{Address, Descriptor, Dimension, Iteration, LockUse, Owner, PacketHeader};
pub use position::Position;
pub use program::{CoreLock, Line, Program};
pub use routes::{End, Hop, Packets, Place, Route};
pub use stream::{Action, Step, Stream, Transfer};
pub use svg::svg;
pub use switch::{Circuit, PacketMaster, PacketRule, Switch};
pub use text::Shown;
pub use tile::{Channel, ChannelId, Core, LockState, Region, Register, Task, Tile, User};

use aie_hal::Arch;
use aie_hal::format::FormatError;
use aie_hal::format::cdo::CdoCommand;
use aie_hal::format::extent::argument_extents;
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::pdi::Pdi;
use aie_isa::{InstructionSet, Isa};
use check::Check;
use replay::{Outside, Replay};
use serde::Serialize;
use static_channels::{Static, unsynchronised};
use std::collections::BTreeMap;

/// The files of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What configures the array.
    pub pdi: Pdi<'a>,
    /// What runs for each dispatch.
    pub stream: Option<InstructionStream<'a>>,
}

impl<'a> Source<'a> {
    /// Validates both files.
    ///
    /// # Errors
    /// When one of them is not in its format.
    pub fn parse(pdi: &'a [u8], stream: Option<&'a [u8]>) -> Result<Self, FormatError> {
        Ok(Self { pdi: Pdi::parse(pdi)?, stream: stream.map(InstructionStream::parse).transpose()? })
    }
}

/// A design that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesignError {
    /// There are no instruction tables for the generation.
    #[error("there are no instruction tables for `{0}`; there are for {known}", known = InstructionSet::ALL.map(InstructionSet::name).join(" and "))]
    NoInstructions(String),
}

/// Something that cannot work, or may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where, if it is about one tile.
    pub tile: Option<Position>,
    /// What.
    pub what: String,
}

/// The bytes of an argument that a kernel reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentUse {
    /// Its position in the dispatch's list.
    pub argument: usize,
    /// First byte read, and the one behind the last.
    pub read: Option<(u64, u64)>,
    /// First byte written, and the one behind the last.
    pub written: Option<(u64, u64)>,
}

/// What a PDI and its instruction stream say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Design {
    /// Generation.
    pub arch: String,
    /// Its name for people.
    pub title: String,
    /// Columns up to the last that is configured.
    pub columns: u8,
    /// Rows of the array.
    pub rows: u8,
    /// Bytes of data memory of a core and of a mem tile.
    pub data_bytes: (usize, usize),
    /// What is configured, by column and row.
    pub tiles: Vec<Tile>,
    /// The ways of words across tiles.
    pub routes: Vec<Route>,
    /// The stream, if one is given.
    pub stream: Option<Stream>,
    /// What the stream does with its arguments; empty without a stream.
    pub arguments: Vec<ArgumentUse>,
    /// Why it cannot be determined what the stream does with its arguments, if it cannot.
    pub arguments_unknown: Option<String>,
    /// What cannot work.
    pub problems: Vec<Problem>,
    /// What may not work in every run.
    pub doubts: Vec<Problem>,
}

impl Design {
    /// Reads the files of a kernel for a generation. Takes time in proportion to them.
    ///
    /// # Errors
    /// [`DesignError`].
    pub fn read(arch: &Arch, source: &Source<'_>) -> Result<Self, DesignError> {
        let isa = arch.instruction_set.as_deref().and_then(Isa::for_arch);
        let isa = isa.ok_or_else(|| DesignError::NoInstructions(arch.name.clone()))?;
        let (mut replay, mut problems) = (Replay::new(arch), Vec::new());
        for command in source.pdi.cdo().commands() {
            let done = match command {
                CdoCommand::Write { address, value } => replay.write(address, u32::MAX, value).map(drop),
                CdoCommand::MaskWrite { address, mask, value } => replay.write(address, mask, value).map(drop),
                CdoCommand::DmaWrite { address, data } => replay.write_block(address, data.iter()),
                CdoCommand::Other { opcode, payload } => {
                    let what = format!("CDO command {opcode:#05x} of {} words is not known", payload.len());
                    problems.push(Problem { tile: None, what });
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(Outside(address)) = done {
                problems.push(check::outside(arch, address));
            }
        }
        let mut tiles = BTreeMap::new();
        let mut enter = |replay: &Replay<'_>| {
            for (key, written) in &replay.tiles {
                if let Some(position) = Position::new(arch, key.0, key.1) {
                    tiles.entry(*key).or_insert_with(|| Tile::of(arch, isa, position, written));
                }
            }
        };
        enter(&replay);
        let stream = source.stream.map(|stream| Stream::of(&stream, &mut replay));
        tile::link_locks(&mut tiles);
        let (routes, more) = routes::follow(arch, &tiles);
        if more {
            let what = format!("there are more than {} routes; the others are left out", routes.len());
            problems.push(Problem { tile: None, what });
        }
        let mut doubts = arbiters::mutual_waits(&tiles, &routes);
        let mut check = Check { arch, tiles: &tiles, routes: &routes, problems: &mut problems, doubts: &mut doubts };
        check.configuration();
        if let Some(stream) = &stream {
            check.stream(stream);
            let (touched, perhaps) = Static::of(&tiles).touched(stream);
            problems.extend(touched);
            doubts.extend(perhaps);
        }
        doubts.extend(unsynchronised(&tiles));
        doubts.extend(locks::overfull(&tiles));
        doubts.extend(stream.iter().flat_map(|stream| rings::unfinished(&tiles, &routes, stream)));
        let (arguments, arguments_unknown) = arguments(source);
        Ok(Self {
            arch: arch.name.clone(),
            title: arch.title.clone(),
            columns: tiles.keys().map(|(column, _)| column + 1).max().unwrap_or(0),
            rows: arch.array.rows as u8,
            data_bytes: (arch.core.data_bytes, arch.mem_tile.data_bytes),
            tiles: tiles.into_values().collect(),
            routes,
            stream,
            arguments,
            arguments_unknown,
            problems,
            doubts,
        })
    }

    /// A tile, if it is configured.
    pub fn tile(&self, column: u8, row: u8) -> Option<&Tile> {
        self.tiles.iter().find(|tile| tile.position.key() == (column, row))
    }

    /// The arguments that the stream moves through a channel of a shim tile.
    pub fn arguments_of(&self, tile: Position, channel: ChannelId) -> Vec<u16> {
        let of = |stream| stream::arguments_of(stream, tile, channel.direction, channel.channel);
        self.stream.as_ref().map(of).unwrap_or_default()
    }
}

/// The extents of the arguments, or why they cannot be determined.
fn arguments(source: &Source<'_>) -> (Vec<ArgumentUse>, Option<String>) {
    let Some(stream) = &source.stream else { return (Vec::new(), None) };
    let extents = match argument_extents(&source.pdi.cdo(), stream) {
        Ok(extents) => extents,
        Err(cause) => return (Vec::new(), Some(cause.to_string())),
    };
    let found = extents.into_iter().enumerate().map(|(argument, extent)| ArgumentUse {
        argument,
        read: extent.read.map(|extent| (extent.range.start, extent.range.end)),
        written: extent.written.map(|extent| (extent.range.start, extent.range.end)),
    });
    (found.collect(), None)
}
