//! Registers and memory as they are written, without running anything.
//!
//! A write has two effects that a plain map of words would lose, and both are recorded: a task queue takes every word, and an
//! address patch says of which argument a descriptor's address is.

use super::place::Place;
use super::position::Position;
use aie_hal::Arch;
use aie_hal::format::core_control::{CONTROL, RESET};
use aie_hal::format::dma_channel::{DmaChannel, DmaTask};
use aie_hal::format::register::TileKind;
use aie_hal::format::tile_location;
use std::collections::BTreeMap;

/// What was written to one tile.
#[derive(Debug, Default)]
pub struct Written {
    /// The last value of each word, by its offset.
    pub words: BTreeMap<u32, u32>,
    /// Tasks pushed, in order.
    pub tasks: Vec<(DmaChannel, DmaTask)>,
    /// Argument and byte offset that descriptors are patched with.
    pub patches: BTreeMap<u8, (u16, u64)>,
}

impl Written {
    /// A word; 0 if it was never written.
    pub fn word(&self, offset: u32) -> u32 {
        self.words.get(&offset).copied().unwrap_or(0)
    }
}

/// All tiles.
#[derive(Debug)]
pub struct Replay<'a> {
    pub arch: &'a Arch,
    pub tiles: BTreeMap<(u8, u8), Written>,
}

/// An address that is none of any tile of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside(pub u64);

impl<'a> Replay<'a> {
    pub fn new(arch: &'a Arch) -> Self {
        Self { arch, tiles: BTreeMap::new() }
    }

    /// The tile and the offset of an address.
    pub fn locate(&self, address: u64) -> Result<(Position, u32), Outside> {
        let (column, row, offset) = u32::try_from(address).map(tile_location).map_err(|_| Outside(address))?;
        let position = Position::new(self.arch, column, row).ok_or(Outside(address))?;
        Ok((position, offset & !3))
    }

    /// What was written to a tile.
    pub fn tile(&mut self, position: Position) -> &mut Written {
        self.tiles.entry(position.key()).or_insert_with(|| {
            let mut written = Written::default();
            if position.kind == TileKind::Core {
                // As after power-on.
                written.words.insert(CONTROL, RESET);
            }
            written
        })
    }

    /// Writes the bits of `mask`, and says where.
    pub fn write(&mut self, address: u64, mask: u32, value: u32) -> Result<(Position, Place), Outside> {
        let (position, offset) = self.locate(address)?;
        let place = Place::of(self.arch, position.kind, offset);
        let written = self.tile(position);
        let word = written.words.entry(offset).or_insert(0);
        *word = *word & !mask | value & mask;
        let word = *word;
        match place {
            Place::TaskQueue(channel) => written.tasks.push((channel, DmaTask::decode(word))),
            Place::Descriptor { id, word: 1 | 2 } if position.kind == TileKind::Shim => {
                written.patches.remove(&id);
            }
            _ => {}
        }
        Ok((position, place))
    }

    /// Writes consecutive words.
    pub fn write_block(&mut self, address: u64, data: impl Iterator<Item = u32>) -> Result<(), Outside> {
        for (index, value) in data.enumerate() {
            self.write(address.saturating_add(4 * index as u64), u32::MAX, value)?;
        }
        Ok(())
    }

    /// Notes that the descriptor whose word 1 is at `register` gets the address of an argument. Says of which tile and
    /// descriptor, if it is one of a shim tile.
    pub fn patch(&mut self, register: u64, argument: u16, offset: u64) -> Result<(Position, u32, Option<u8>), Outside> {
        let (position, at) = self.locate(register)?;
        let id = match Place::of(self.arch, position.kind, at) {
            Place::Descriptor { id, word: 1 } if position.kind == TileKind::Shim => Some(id),
            _ => None,
        };
        if let Some(id) = id {
            self.tile(position).patches.insert(id, (argument, offset));
        }
        Ok((position, at, id))
    }
}
