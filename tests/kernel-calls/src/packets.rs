//! Commands and chains as words.

use crate::sys::Mapping;
use amdxdna_sys::ert::{self, chain, opcode, start_cu};

/// What an error index holds until the kernel driver writes it.
pub const UNTOUCHED: u32 = u32::MAX;

/// A command as it is written; scripts change what they want to be wrong.
#[derive(Debug, Clone, Copy)]
pub struct CommandPacket {
    pub opcode: u32,
    /// Words behind the header, as the header says.
    pub count: u32,
    pub mask: u32,
    /// Extra masks that the header announces.
    pub extra_masks: u32,
    /// First word of the payload.
    pub transaction: u32,
    /// Device address of the instructions.
    pub instructions: u64,
    pub words: u32,
}

impl CommandPacket {
    /// Runs a stream of instructions with the first compute unit and no arguments.
    pub fn run(instructions: u64, words: u32) -> Self {
        Self {
            opcode: opcode::START_CU,
            // The mask, five words of a transaction, and one that makes an even number.
            count: 7,
            mask: 1,
            extra_masks: 0,
            transaction: ert::TRANSACTION,
            instructions,
            words,
        }
    }

    pub fn write(&self, target: &Mapping) {
        for index in 1..16 {
            target.set_word(index, 0);
        }
        target.set_word(0, ert::header(self.opcode, self.count) | self.extra_masks << 10);
        target.set_word(start_cu::CU_MASK, self.mask);
        let payload = start_cu::PAYLOAD + self.extra_masks as usize;
        target.set_word(payload, self.transaction);
        target.set_word(payload + 2, self.instructions as u32);
        target.set_word(payload + 3, (self.instructions >> 32) as u32);
        target.set_word(payload + 4, self.words);
    }
}

/// A chain as it is written.
#[derive(Debug, Clone)]
pub struct Chain {
    pub opcode: u32,
    /// Handles of the commands' BOs.
    pub handles: Vec<u32>,
    /// How many there are, as the chain says.
    pub commands: u32,
    /// Words behind the header, as the header says.
    pub count: u32,
}

impl Chain {
    pub fn of(handles: &[u32]) -> Self {
        Self {
            opcode: opcode::CMD_CHAIN,
            handles: handles.to_vec(),
            commands: handles.len() as u32,
            count: (chain::FIXED_WORDS + 2 * handles.len()) as u32,
        }
    }

    pub fn write(&self, target: &Mapping) {
        target.set_word(0, ert::header(self.opcode, self.count));
        target.set_word(chain::COMMAND_COUNT, self.commands);
        target.set_word(chain::SUBMIT_INDEX, 0);
        target.set_word(chain::ERROR_INDEX, UNTOUCHED);
        for reserved in chain::ERROR_INDEX + 1..chain::HANDLES {
            target.set_word(reserved, 0);
        }
        for (index, handle) in self.handles.iter().enumerate() {
            target.set_word(chain::HANDLES + 2 * index, *handle);
            target.set_word(chain::HANDLES + 2 * index + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Mapping {
        Mapping::anonymous(4096, libc::PROT_READ | libc::PROT_WRITE).unwrap()
    }

    #[test]
    fn commands_and_chains_are_what_the_driver_reads() {
        let page = page();
        CommandPacket::run(0x400_8000, 4).write(&page);
        assert_eq!((ert::opcode_of(page.word(0)), ert::count_of(page.word(0))), (0, 7));
        assert_eq!([1, 2, 3, 4, 5, 6].map(|index| page.word(index)), [1, 3, 0, 0x400_8000, 0, 4]);
        CommandPacket { extra_masks: 1, ..CommandPacket::run(16, 4) }.write(&page);
        assert_eq!((ert::masks_of(page.word(0)), page.word(3), page.word(5)), (2, 3, 16));
        Chain::of(&[5, 6]).write(&page);
        assert_eq!((ert::opcode_of(page.word(0)), ert::count_of(page.word(0))), (19, 10));
        assert_eq!([1, 3, 7, 9].map(|index| page.word(index)), [2, UNTOUCHED, 5, 6]);
    }
}
