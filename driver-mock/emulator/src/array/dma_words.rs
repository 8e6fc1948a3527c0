//! Words of DMA channels: between the memory that a descriptor leads through and a stream.
//!
//! Words that ports take together are read together, whatever addresses they have; how they go on from there is in
//! [`switching`](super::switching).

use super::dma::{Descriptor, Position};
use super::error::{ArrayError, DmaProblem, Result};
use super::fifo::Words;
use super::host::{self, HostMemory};
use super::tiles::Array;
use super::transfer::{Round, Site};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::ARRAY_OFFSET;
use aie_hal::format::register::TileKind;
use aie_isa::InstructionSet;

/// How often ports pass words on at most to make room for a word.
const PASSES: usize = 64;
/// Cycles of 1,024 words where nothing hinders them.
const UNHINDERED: u64 = 1024;
/// What AIE2P pads with, by channel of a mem tile.
const PAD_VALUES: u32 = 0xa_06e0;
/// Bytes of a mem tile's memory, as its channels count them.
const MEM_TILE: u64 = super::tile::memory_bytes(TileKind::Mem) as u64;

/// Bytes that follow each other with a step, all in one tile.
#[derive(Clone, Copy)]
struct Run {
    tile: usize,
    at: usize,
    step: usize,
}

impl Array {
    /// Where a byte of a descriptor is: the tile and the place in its memory. None for host memory.
    #[inline]
    fn dma_place(&self, site: Site, byte: u64) -> Option<(usize, usize)> {
        let tile = &self.tiles[site.index];
        match tile.kind {
            TileKind::Core => (byte + 4 <= tile.memory.len() as u64).then_some((site.index, byte as usize)),
            TileKind::Mem => {
                let (side, at) = (byte / MEM_TILE, (byte % MEM_TILE) as usize);
                if side == 1 {
                    return Some((site.index, at));
                }
                let column = self.beside(tile.column, site.channel, u32::try_from(side).ok()?)?;
                Some((self.index(column, tile.row).ok()?, at))
            }
            TileKind::Shim => None,
        }
    }

    /// Where words with a step of bytes between them are, if all of them are in one tile.
    #[inline]
    fn run(&self, site: Site, first: u64, step: u64, count: usize) -> Option<Run> {
        let end = first.checked_add(step.checked_mul(count as u64 - 1)?)?;
        let ((tile, at), (other, _)) = (self.dma_place(site, first)?, self.dma_place(site, end)?);
        (tile == other && step >= 4).then_some(Run { tile, at, step: usize::try_from(step).ok()? })
    }

    /// Sends words as long as there is space. True when the descriptor has come to its end.
    pub(super) fn send(
        &mut self,
        site: Site,
        descriptor: &Descriptor,
        position: &mut Position,
        round: &mut Round,
        host: &mut impl HostMemory,
    ) -> Result<bool> {
        let Site { index, channel, .. } = site;
        let port = Self::source_port(self.tiles[index].kind, channel);
        let is_shim = self.tiles[index].kind == TileKind::Shim;
        while position.moved < descriptor.length {
            if round.left == 0 || !self.shim_dma_is_connected(index, site.direction, channel) {
                return Ok(false);
            }
            let space = self.tiles[index].switch.space(port);
            if space == 0 {
                // Words move on at once, so that a burst does not end at every full buffer.
                if !self.pass_on(index, port, &mut { PASSES }, host)? {
                    return Ok(false);
                }
                round.step();
                continue;
            }
            let mut words = Words::default();
            if let Some(header) = descriptor.header.filter(|_| !position.header_sent) {
                words.push(header);
                position.header_sent = true;
            } else {
                let most = space.min(round.left).min(Words::MOST);
                self.read_words(site, descriptor, position, most, &mut words, host)?;
                self.tiles[index].channels[Direction::MemoryToStream as usize][channel].words += words.len() as u64;
            }
            // The first goes in the next cycle or when there is a place, the others one a cycle.
            let tile = &mut self.tiles[index];
            let state = &mut tile.channels[site.direction as usize][channel];
            words.time = (state.clock + 1).max(tile.switch.room_from(port));
            state.clock = words.time + words.len() as u64 - 1;
            if is_shim {
                state.clock_parts += self.rules.read_cycles.saturating_sub(UNHINDERED) * words.len() as u64;
                state.clock += state.clock_parts / UNHINDERED;
                state.clock_parts %= UNHINDERED;
            }
            tile.switch.push(port, &words);
            round.steps(words.len());
        }
        Ok(true)
    }

    /// Reads the next words of a descriptor, at least one and at most `most`, and goes on behind them.
    #[inline]
    fn read_words(
        &mut self,
        site: Site,
        descriptor: &Descriptor,
        position: &mut Position,
        most: usize,
        words: &mut Words,
        host: &mut impl HostMemory,
    ) -> Result<()> {
        while words.len() < most && position.moved < descriptor.length {
            let before = words.len();
            let read = self.read_run(site, descriptor, position, most - before, words, host);
            if read.is_err() && before > 0 {
                // Those before the error go first.
                break;
            }
            read?;
            position.advance_by((words.len() - before) as u64, descriptor);
            if position.moved == descriptor.length && !descriptor.suppress_tlast {
                words.end_packet();
            }
        }
        Ok(())
    }

    /// Reads the next words that follow with the step of the first dimension, at least one.
    #[inline]
    fn read_run(
        &mut self,
        site: Site,
        descriptor: &Descriptor,
        position: &Position,
        most: usize,
        words: &mut Words,
        host: &mut impl HostMemory,
    ) -> Result<()> {
        let (Some(offset), run) = position.run(descriptor) else {
            words.push(self.padding(site.index, site.channel));
            return Ok(());
        };
        let first = descriptor.base + offset;
        let count = usize::try_from(run).unwrap_or(usize::MAX).min(most);
        let step = u64::from(descriptor.dimensions[0].step) * 4;
        if count > 1 {
            if self.tiles[site.index].kind == TileKind::Shim {
                let mut bytes = [0; Words::MOST * 4];
                if step == 4 && host::read(host, first, &mut bytes[..count * 4]) {
                    bytes.as_chunks().0.iter().take(count).for_each(|word| words.push(u32::from_le_bytes(*word)));
                    return Ok(());
                }
            } else if let Some(Run { tile, at, step }) = self.run(site, first, step, count) {
                let memory = &self.tiles[tile].memory[at..];
                if step == 4 {
                    memory.as_chunks().0.iter().take(count).for_each(|word| words.push(u32::from_le_bytes(*word)));
                } else {
                    for bytes in memory.chunks(step).take(count) {
                        words.push(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
                    }
                }
                return Ok(());
            }
        }
        words.push(self.dma_read(site, first, host)?);
        Ok(())
    }

    fn no_memory(&self, site: Site, address: u64) -> ArrayError {
        let is_low = self.tiles[site.index].kind == TileKind::Shim && address < ARRAY_OFFSET;
        self.dma_error(site, if is_low { DmaProblem::BelowHost { address } } else { DmaProblem::NoMemory { address } })
    }

    /// What a channel of a mem tile pads with.
    fn padding(&self, index: usize, channel: usize) -> u32 {
        match self.isa.set() {
            InstructionSet::Aie2 => 0,
            InstructionSet::Aie2p => self.tiles[index].register(PAD_VALUES + 4 * channel as u32),
        }
    }

    fn dma_read(&mut self, site: Site, byte: u64, host: &mut impl HostMemory) -> Result<u32> {
        let mut bytes = [0; 4];
        let there = if self.tiles[site.index].kind == TileKind::Shim {
            host::read(host, byte, &mut bytes)
        } else if let Some((tile, at)) = self.dma_place(site, byte) {
            bytes.copy_from_slice(&self.tiles[tile].memory[at..at + 4]);
            true
        } else {
            false
        };
        if there { Ok(u32::from_le_bytes(bytes)) } else { Err(self.no_memory(site, byte)) }
    }

    /// Takes words as long as there are some. True when the descriptor has come to its end.
    pub(super) fn receive(
        &mut self,
        site: Site,
        descriptor: &Descriptor,
        position: &mut Position,
        round: &mut Round,
        host: &mut impl HostMemory,
    ) -> Result<bool> {
        let Site { index, channel, direction, .. } = site;
        let control = self.tiles[index].channels[direction as usize][channel].control;
        while position.moved < descriptor.length {
            if round.left == 0 {
                return Ok(false);
            }
            let state = &mut self.tiles[index].channels[direction as usize][channel];
            if control.counts_in_register() && state.counts_are_full() {
                return Ok(false);
            }
            if state.input.is_empty() {
                return Ok(false);
            }
            let (offset, run) = position.run(descriptor);
            // What ends at TLAST looks at every word.
            let most = if control.finishes_on_tlast() { 1 } else { round.left };
            let most = most.min(usize::try_from(run).unwrap_or(usize::MAX));
            let (words, end) = state.input.pop_one_a_cycle(state.clock + 1, most);
            state.clock = end;
            state.words += words.len() as u64;
            round.steps(words.len());
            self.write_words(site, descriptor, descriptor.base + offset.unwrap_or(0), words.data(), host)?;
            position.advance_by(words.len() as u64, descriptor);
            if control.finishes_on_tlast() {
                if words.ends_packet() {
                    return Ok(true);
                }
                if position.moved == descriptor.length {
                    return Err(self.dma_error(site, DmaProblem::NoTlast { length: descriptor.length }));
                }
            }
        }
        Ok(true)
    }

    /// Writes words of a run from a byte on.
    #[inline]
    fn write_words(
        &mut self,
        site: Site,
        descriptor: &Descriptor,
        first: u64,
        data: &[u32],
        host: &mut impl HostMemory,
    ) -> Result<()> {
        let step = u64::from(descriptor.dimensions[0].step) * 4;
        let is_host = self.tiles[site.index].kind == TileKind::Shim;
        if data.len() > 1 {
            if is_host {
                let mut bytes = [0; Words::MOST * 4];
                for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(data) {
                    *bytes = word.to_le_bytes();
                }
                if step == 4 && host::write(host, first, &bytes[..data.len() * 4]) {
                    return Ok(());
                }
            } else if let Some(Run { tile, at, step: 4 }) = self.run(site, first, step, data.len()) {
                let memory = &mut self.tiles[tile].memory[at..];
                for (bytes, word) in memory.as_chunks_mut().0.iter_mut().zip(data) {
                    *bytes = word.to_le_bytes();
                }
                return Ok(());
            }
        }
        for (number, word) in (0..).zip(data) {
            let address = first + step * number;
            let there = if is_host {
                host::write(host, address, &word.to_le_bytes())
            } else if let Some((tile, at)) = self.dma_place(site, address) {
                self.tiles[tile].memory[at..at + 4].copy_from_slice(&word.to_le_bytes());
                true
            } else {
                false
            };
            if !there {
                return Err(self.no_memory(site, address));
            }
        }
        Ok(())
    }
}
