//! Who runs when: rounds in which everything moves as far as it can, until nothing does.
//!
//! A round visits tiles in one order, so that a run has the same result every time (with a seed, another one for each: see
//! [`interleaving`](super::interleaving)): DMA channels move words while locks and
//! streams let them, switches pass words on, cores execute until they wait. A round in which nothing moves is the end: the work
//! is done, or everything waits.

use super::dma::Channel;
use super::error::{ArrayError, Result};
use super::host::HostMemory;
use super::tile::{Held, SIDE};
use super::tiles::{Array, BURST};
use aie_hal::format::dma_channel::Direction;

/// How often words move before cores run, at most: words that nothing stops would move forever.
const MOST_TRANSFERS: usize = 16;

impl Array {
    /// Lets everything move until nothing does. True if something has moved.
    pub fn settle(&mut self, host: &mut impl HostMemory) -> Result<bool> {
        let (mut moved, mut cycles) = (false, 0);
        while self.round_within(&mut cycles, host)? {
            moved = true;
        }
        Ok(moved)
    }

    /// A round that adds its cycles to those of earlier ones.
    ///
    /// # Errors
    /// [`ArrayError::Timeout`] when they exceed the limit.
    pub(super) fn round_within(&mut self, cycles: &mut u64, host: &mut impl HostMemory) -> Result<bool> {
        self.longest_run = 0;
        let moved = self.round(host)?;
        *cycles += self.longest_run.max(BURST as u64);
        if moved && *cycles > self.cycle_limit {
            return Err(ArrayError::Timeout { cycles: self.cycle_limit, report: self.report() });
        }
        Ok(moved)
    }

    /// One round of everything: words move until they wait for cores, then cores run until they wait. False if nothing moved.
    pub fn round(&mut self, host: &mut impl HostMemory) -> Result<bool> {
        let Some(drawn) = &mut self.interleaving else { return self.move_all(host) };
        drawn.hold(&mut self.tiles);
        self.burst = drawn.burst(BURST);
        if self.move_all(host)? {
            return Ok(true);
        }
        // What could move may have been held back.
        self.tiles.iter_mut().for_each(|tile| tile.held = Held::default());
        self.move_all(host)
    }

    fn move_all(&mut self, host: &mut impl HostMemory) -> Result<bool> {
        let mut moved = false;
        for _ in 0..MOST_TRANSFERS {
            if !self.transfer(host)? {
                break;
            }
            moved = true;
            self.longest_run += BURST as u64;
        }
        Ok(self.run_cores()? || moved)
    }

    /// Lets every channel and every port run once.
    fn transfer(&mut self, host: &mut impl HostMemory) -> Result<bool> {
        let mut moved = false;
        for index in 0..self.tiles.len() {
            if !self.tiles[index].clocked {
                continue;
            }
            let mut busy = self.tiles[index].busy;
            while busy != 0 {
                let bit = busy.trailing_zeros() as usize;
                busy &= busy - 1;
                let direction = if bit < SIDE { Direction::StreamToMemory } else { Direction::MemoryToStream };
                moved |= self.run_channel(index, direction, bit % SIDE, host)?;
            }
            moved |= self.run_switch(index)?;
        }
        Ok(moved)
    }

    /// Whether every core and channel is where nothing more will happen by itself.
    pub fn is_idle(&self) -> bool {
        self.tiles.iter().all(|tile| tile.channels.iter().flatten().all(Channel::is_idle))
    }
}
