//! Control packets: register reads and writes that arrive on a stream.
//!
//! A packet is a stream header, a control word, and the data of a write. The answer of a read leaves through the tile's own
//! control port as a packet with the id that the control word gives; until it has left, no further packet is taken. What
//! the operations beyond write and read do is not public.

use super::dma;
use super::error::{ArrayError, Result};
use super::fifo::Word;
use super::tiles::Array;
use aie_hal::format::register::TileKind;

/// Words of the longest packet: two headers, four words of data.
const LONGEST: usize = 6;

/// The slave port that answers come out of.
pub fn response_port(kind: TileKind) -> usize {
    match kind {
        TileKind::Core => 3,
        TileKind::Mem => 6,
        TileKind::Shim => 0,
    }
}

impl Array {
    /// Takes a word of a control packet, and executes the packet when it is whole.
    pub(super) fn take_control_word(&mut self, index: usize, word: Word) -> Result<()> {
        let control = &mut self.tiles[index].control;
        control.push(word.data);
        if word.last {
            let words = std::mem::take(control);
            return self.execute_control_packet(index, &words);
        }
        if control.len() >= LONGEST {
            let words = std::mem::take(control);
            return Err(self.control_error(index, &words, "it has no end where its longest form ends"));
        }
        Ok(())
    }

    fn control_error(&self, index: usize, words: &[u32], problem: &str) -> ArrayError {
        let tile = &self.tiles[index];
        let (column, row) = (tile.column, tile.row);
        ArrayError::ControlPacket { column, row, problem: problem.into(), words: words.to_vec() }
    }

    fn execute_control_packet(&mut self, index: usize, words: &[u32]) -> Result<()> {
        let tile = &self.tiles[index];
        let (column, row) = (tile.column, tile.row);
        let [_, control, data @ ..] = words else {
            return Err(self.control_error(index, words, "it has no control word"));
        };
        if control.count_ones() % 2 == 0 {
            return Err(self.control_error(index, words, "the parity of its control word is even"));
        }
        let (address, count) = (control & 0xf_ffff, (control >> 20 & 3) + 1);
        match control >> 22 & 3 {
            0 if data.len() == count as usize => {
                for (value, offset) in data.iter().zip((address..).step_by(4)) {
                    self.write(column, row, offset, *value, u32::MAX)?;
                }
                Ok(())
            }
            1 if data.is_empty() => {
                let mut answer = vec![dma::header(control >> 24 & 0x1f, 0, 0, column, row)];
                for number in 0..count {
                    answer.push(self.access(column, row, address + 4 * number)?);
                }
                self.tiles[index].responses.extend(answer);
                Ok(())
            }
            0 | 1 => Err(self.control_error(index, words, "its length is not that of its control word")),
            _ => Err(self.control_error(index, words, "what its operation does is not public")),
        }
    }

    /// Puts words of an answer into the switch, as long as there is space. True if there were any.
    pub(super) fn send_responses(&mut self, index: usize) -> bool {
        let tile = &mut self.tiles[index];
        let port = response_port(tile.kind);
        let mut moved = false;
        while tile.switch.has_space(port)
            && let Some(data) = tile.responses.pop_front()
        {
            tile.switch.push_at(port, Word { data, last: tile.responses.is_empty() }, 0);
            moved = true;
        }
        moved
    }
}
