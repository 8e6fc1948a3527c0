//! The partition that a program is for: its generation, its columns, and what each kind of tile has.

use super::error::ArrayError;
use super::tile::{Channel, Tile};
use aie_hal::Arch;
use aie_hal::arch;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::Header;
use aie_hal::format::register::TileKind;
use std::ops::RangeInclusive;

/// A partition of an array.
#[derive(Clone, Debug)]
pub struct Grid {
    arch: Arch,
    columns: u8,
}

impl Grid {
    /// The first `columns` columns that a context of this generation gets.
    pub(super) fn new(arch: &Arch, columns: u8) -> Result<Self, ArrayError> {
        let (asked, most) = (columns, arch.array.columns);
        if columns == 0 || usize::from(columns) > most {
            return Err(ArrayError::Columns { asked, columns: most });
        }
        Ok(Self { arch: arch.clone(), columns })
    }

    /// The generation.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// Columns of the partition.
    #[must_use]
    pub fn columns(&self) -> u8 {
        self.columns
    }

    /// Rows that have a core.
    #[must_use]
    pub fn core_rows(&self) -> RangeInclusive<u8> {
        // Rows are far fewer than 256: there are five bits for them in an address.
        let first = self.arch.array.mem_rows as u8 + 1;
        first..=(self.arch.array.rows as u8 - 1)
    }

    /// What an instruction stream says about the partition.
    pub(super) fn header(&self) -> Header {
        self.arch.stream_header(self.columns.into())
    }

    /// What kind of tile is at a place.
    pub(super) fn kind(&self, tile: Tile) -> Result<TileKind, ArrayError> {
        let (columns, rows) = (usize::from(self.columns), self.arch.array.rows);
        let kind = self.arch.tile_kind(tile.row).filter(|_| tile.column < self.columns);
        kind.ok_or(ArrayError::NoTile { tile, columns, rows })
    }

    /// A tile that has to have a core.
    pub(super) fn core(&self, tile: Tile) -> Result<(), ArrayError> {
        self.expect(tile, TileKind::Core, "core")
    }

    pub(super) fn expect(&self, tile: Tile, kind: TileKind, expected: &'static str) -> Result<(), ArrayError> {
        if self.kind(tile)? == kind { Ok(()) } else { Err(ArrayError::Kind { tile, expected }) }
    }

    /// What a tile has.
    pub(super) fn limits(&self, tile: Tile) -> Result<&arch::Tile, ArrayError> {
        Ok(match self.kind(tile)? {
            TileKind::Core => &self.arch.core,
            TileKind::Mem => &self.arch.mem_tile,
            TileKind::Shim => &self.arch.shim,
        })
    }

    /// How many channels of a direction a tile has.
    pub(super) fn channels(&self, tile: Tile, direction: Direction) -> Result<usize, ArrayError> {
        let dma = &self.limits(tile)?.dma;
        Ok(match direction {
            Direction::StreamToMemory => dma.s2mm,
            Direction::MemoryToStream => dma.mm2s,
        })
    }

    /// A channel that has to be there.
    pub(super) fn channel(&self, channel: Channel) -> Result<TileKind, ArrayError> {
        let limit = self.channels(channel.tile, channel.direction)?;
        if usize::from(channel.number) < limit {
            self.kind(channel.tile)
        } else {
            let (value, max) = (channel.number.into(), limit as u64 - 1);
            Err(ArrayError::Range { what: "the number of a DMA channel", value, min: 0, max })
        }
    }
}
