//! From an array program to register writes, and to a PDI around them.
//!
//! The order is that of mlir-aie's PDIs. First, core by core: the core is stopped, its DMA channels are held in reset while
//! program and data are written, and released. Then all cores are reset and all locks in use set; then the switches of all tiles are
//! connected. The cores are enabled last. DMA tasks are not started, but for chains without an end
//! ([`ArrayProgram::chain`](super::ArrayProgram::chain)), whose descriptors are written and started just in front of that: all else is the
//! dispatch's.
//!
//! Whether firmware clears the array for a PDI that follows another one is not known, and circuits of an old configuration are known to
//! stay where it does not (mlir-aie issue 3578): they would take words of new ones to where nothing takes them. So beyond what mlir-aie
//! writes, channels of mem tiles are reset, too, and in all tiles that words pass every port that is not used lets none through.

use super::chain::Chain;
use super::contents::TileContents;
use super::error::ArrayError;
use super::grid::Grid;
use super::route::Stream;
use super::switching::{Switching, TOKENS};
use super::tile::{Channel, End, Tile};
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::core_control::{self, PROGRAM_MEMORY};
use aie_hal::format::dma_channel::{DmaChannel, DmaTask};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use aie_hal::format::{pdi, shim_mux};
use std::collections::BTreeMap;

/// How completion tokens of a shim leave the array: packets of the shim's controller (id 15) from its control port to South 0,
/// headers included.
const TOKEN_PORT: Port = Port::South(0);

pub(super) fn write(
    grid: &Grid,
    tiles: &BTreeMap<Tile, TileContents>,
    streams: &[Stream],
    switching: &Switching,
) -> Result<Vec<u8>, ArrayError> {
    let mut writer = Writer(CdoBuilder::new());
    // As in all PDIs that mlir-aie makes, the list starts with an empty NOP.
    writer.0.nop(&[]);
    let cores = || tiles.iter().filter(|(_, contents)| contents.program.is_some());
    for (tile, contents) in tiles {
        writer.load(grid.kind(*tile)?, *tile, contents)?;
    }
    for (tile, _) in cores() {
        writer.register(*tile, core_control::reset(true));
        writer.register(*tile, core_control::reset(false));
    }
    let mut masters: BTreeMap<Tile, Vec<Port>> = tiles.keys().map(|tile| (*tile, Vec::new())).collect();
    for circuit in &switching.circuits {
        masters.entry(circuit.tile).or_default().push(circuit.master);
    }
    for exchange in &switching.exchanges {
        masters.entry(exchange.tile).or_default().extend(exchange.masters());
    }
    for (tile, used) in &masters {
        writer.clear(grid.kind(*tile)?, *tile, used)?;
    }
    for (tile, contents) in tiles {
        writer.locks(grid.kind(*tile)?, *tile, contents)?;
    }
    for circuit in &switching.circuits {
        let switch = StreamSwitch(grid.kind(circuit.tile)?);
        for write in switch.circuit(circuit.slave, circuit.master)? {
            writer.register(circuit.tile, write);
        }
    }
    for exchange in &switching.exchanges {
        for write in exchange.writes(grid.kind(exchange.tile)?)? {
            writer.register(exchange.tile, write);
        }
    }
    let mut shims = writer.shim_channels(streams)?;
    shims.dedup();
    for column in shims {
        writer.tokens(Tile::new(column, 0))?;
    }
    for (tile, contents) in tiles {
        writer.chains(grid.kind(*tile)?, *tile, contents)?;
    }
    for (tile, _) in cores() {
        writer.register(*tile, core_control::enable(true));
    }
    Ok(pdi::write(&writer.0)?)
}

struct Writer(CdoBuilder);

impl Writer {
    fn register(&mut self, tile: Tile, write: RegisterWrite) {
        let address = tile.address(write.offset).into();
        match write.mask {
            u32::MAX => self.0.write(address, write.value),
            mask => self.0.mask_write(address, mask, write.value),
        };
    }

    fn block(&mut self, tile: Tile, offset: u32, bytes: &[u8]) {
        // Programs and data are filled up to whole words when they are added.
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        self.0.dma_write(tile.address(offset).into(), &words);
    }

    /// Program and data of a tile, while nothing moves.
    fn load(&mut self, kind: TileKind, tile: Tile, contents: &TileContents) -> Result<(), ArrayError> {
        if let Some(program) = &contents.program {
            self.register(tile, core_control::enable(false));
            self.reset_channels(kind, tile, true);
            self.block(tile, PROGRAM_MEMORY, program);
        } else if kind == TileKind::Core && !contents.chains.is_empty() {
            self.reset_channels(kind, tile, true);
            self.reset_channels(kind, tile, false);
        }
        for (offset, bytes) in &contents.data {
            self.block(tile, *offset, bytes);
        }
        if contents.program.is_some() {
            self.reset_channels(kind, tile, false);
        }
        Ok(())
    }

    fn reset_channels(&mut self, kind: TileKind, tile: Tile, reset: bool) {
        for write in DmaChannel::all(kind).filter_map(|channel| channel.reset(reset)) {
            self.register(tile, write);
        }
    }

    /// Takes from a tile that words pass what another configuration may have left: tasks of a mem tile's channels, which would answer
    /// to locks, and all connections but those to the `used` masters, which are written anyway.
    fn clear(&mut self, kind: TileKind, tile: Tile, used: &[Port]) -> Result<(), ArrayError> {
        // Cores have their channels reset where programs are written, and those of shims cannot be.
        if kind == TileKind::Mem {
            self.reset_channels(kind, tile, true);
            self.reset_channels(kind, tile, false);
        }
        let switch = StreamSwitch(kind);
        let is_written = |master: &Port| used.contains(master) || kind == TileKind::Shim && *master == TOKEN_PORT;
        for master in switch.masters().filter(|master| !is_written(master)) {
            let register = switch.master_register(switch.master_index(master)?);
            self.register(tile, RegisterWrite::word(register, 0));
        }
        Ok(())
    }

    fn locks(&mut self, kind: TileKind, tile: Tile, contents: &TileContents) -> Result<(), ArrayError> {
        for (id, value) in &contents.locks {
            // The highest value is far below 127.
            self.register(tile, Lock::new(kind, *id)?.set(*value as i8)?);
        }
        Ok(())
    }

    /// Connects the DMA of the shims with their switches; gives the columns whose shims are used.
    fn shim_channels(&mut self, streams: &[Stream]) -> Result<Vec<u8>, ArrayError> {
        let mut columns = Vec::new();
        let mut connected: Vec<Channel> = Vec::new();
        for end in streams.iter().flat_map(|stream| stream.to.iter().chain([&stream.from])) {
            if let End::Dma(channel) = end
                && channel.tile.row == 0
                && !connected.contains(channel)
            {
                connected.push(*channel);
                self.register(channel.tile, shim_mux::connect(channel.direction, channel.number)?);
                columns.push(channel.tile.column);
            }
        }
        columns.sort_unstable();
        Ok(columns)
    }

    /// The endless chains of a tile, and where tokens of a shim's channels go.
    fn chains(&mut self, kind: TileKind, tile: Tile, contents: &TileContents) -> Result<(), ArrayError> {
        for channel in &contents.controllers {
            self.register(tile, channel.token_controller());
        }
        for (register, words) in contents.chains.iter().flat_map(|chain| &chain.descriptors) {
            self.0.dma_write(tile.address(*register).into(), words);
        }
        for Chain { channel, first, .. } in &contents.chains {
            let task = DmaTask { descriptor: *first, ..DmaTask::default() };
            self.register(tile, DmaChannel::new(kind, channel.direction, channel.number)?.start(task)?);
        }
        Ok(())
    }

    fn tokens(&mut self, shim: Tile) -> Result<(), ArrayError> {
        let switch = StreamSwitch(TileKind::Shim);
        let msels = 1 << TOKENS.msel;
        self.register(shim, switch.packet_slave(Port::TileControl)?);
        self.register(shim, switch.slot(Port::TileControl, 0, TOKENS)?);
        self.register(shim, switch.packet_master(TOKEN_PORT, TOKENS.arbiter, msels, false)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
