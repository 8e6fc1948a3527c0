//! Command buffers: what a chain and its commands look like in memory.
//!
//! A chain names one command BO for each dispatch. The kernel copies their payloads into slots of a buffer that the firmware
//! reads. Firmware of npu4 is said to abort a chain with a slot whose number of argument words is odd and below 15 (AMD's notes
//! on ROCR's XDNA driver), so such payloads get one more word ([`aie_hal::device::dispatch_words`]).

use super::bo::{Bo, Kind};
use super::node::{CallError, Node};
use crate::agent::{Argument, Packet};
use aie_hal::device::dispatch_words;
use amdxdna_sys::ert::{self, chain, opcode, start_cu, state};
use amdxdna_sys::limits::PAGE;
use std::ptr::NonNull;
use std::sync::Arc;

/// What the error index of a chain holds until the kernel driver writes it.
///
/// Kernels up to 6.18 keep four bits of the firmware's status, so that some errors read as completed; they write the index with every
/// error and only then.
const UNTOUCHED: u32 = u32::MAX;

/// A command BO of one page.
#[derive(Debug)]
pub(super) struct CommandBuffer {
    bo: Bo,
}

/// How a chain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainState {
    /// All commands have run.
    Completed,
    /// The kernel driver says otherwise.
    Ended {
        /// Its state.
        state: u32,
        /// The command that failed, when the kernel driver says.
        command: Option<usize>,
    },
}

impl CommandBuffer {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn create(node: &Arc<Node>) -> Result<Self, CallError> {
        Ok(Self { bo: Bo::create(node, Kind::Command, PAGE)? })
    }

    /// Handle of its BO.
    pub(super) fn handle(&self) -> u32 {
        self.bo.handle()
    }

    fn words(&self) -> Words {
        Words(self.bo.host().cast())
    }

    /// Writes a dispatch.
    pub(super) fn write_dispatch(&self, packet: &Packet, arguments: &[Argument]) {
        write_dispatch(self.words(), packet, arguments);
    }

    /// Writes a chain of the commands with these handles.
    pub(super) fn write_chain(&self, handles: impl ExactSizeIterator<Item = u32>) {
        write_chain(self.words(), handles);
    }

    /// How the chain in this buffer of `count` commands ended. The kernel has said that it did.
    pub(super) fn chain_state(&self, count: usize) -> ChainState {
        chain_state(self.words(), count)
    }

    /// Leaves it to the device.
    pub(super) fn leak(self) {
        self.bo.leak();
    }
}

/// The words of a page. Kernel and device write them too, so every access is volatile.
#[derive(Clone, Copy)]
struct Words(NonNull<u32>);

impl Words {
    const COUNT: usize = PAGE / size_of::<u32>();

    fn get(self, index: usize) -> u32 {
        assert!(index < Self::COUNT);
        // SAFETY: a page is mapped there as long as whoever has made this object holds it, and the index is inside.
        unsafe { self.0.add(index).read_volatile() }
    }

    fn set(self, index: usize, value: u32) {
        assert!(index < Self::COUNT);
        // SAFETY: as for `get`.
        unsafe { self.0.add(index).write_volatile(value) }
    }

    fn set_address(self, index: usize, address: u64) {
        self.set(index, address as u32);
        self.set(index + 1, (address >> 32) as u32);
    }
}

fn write_dispatch(words: Words, packet: &Packet, arguments: &[Argument]) {
    let payload = dispatch_words(arguments.len());
    // The mask of compute units counts as a word behind the header.
    words.set(0, ert::header(opcode::START_CU, payload as u32 + 1));
    words.set(start_cu::CU_MASK, 1 << packet.pdi_index);
    words.set(start_cu::PAYLOAD, ert::TRANSACTION);
    words.set(start_cu::PAYLOAD + 1, 0);
    words.set_address(start_cu::INSTRUCTIONS, packet.instructions);
    words.set(start_cu::INSTRUCTION_WORDS, (packet.instruction_bytes / 4) as u32);
    for (index, argument) in arguments.iter().enumerate() {
        words.set_address(start_cu::ARGUMENTS + 2 * index, argument.address);
        words.set(start_cu::ARGUMENTS + 2 * arguments.len() + index, argument.bytes);
    }
    for padding in start_cu::ARGUMENTS + 3 * arguments.len()..start_cu::PAYLOAD + payload {
        words.set(padding, 0);
    }
}

fn write_chain(words: Words, handles: impl ExactSizeIterator<Item = u32>) {
    let count = handles.len();
    words.set(0, ert::header(opcode::CMD_CHAIN, (chain::FIXED_WORDS + 2 * count) as u32));
    words.set(chain::COMMAND_COUNT, count as u32);
    words.set(chain::SUBMIT_INDEX, 0);
    words.set(chain::ERROR_INDEX, UNTOUCHED);
    for reserved in chain::ERROR_INDEX + 1..chain::HANDLES {
        words.set(reserved, 0);
    }
    for (index, handle) in handles.enumerate() {
        words.set_address(chain::HANDLES + 2 * index, handle.into());
    }
}

fn chain_state(words: Words, count: usize) -> ChainState {
    let (state, index) = (words.get(0) & ert::STATE_MASK, words.get(chain::ERROR_INDEX));
    if state == state::COMPLETED && index == UNTOUCHED {
        return ChainState::Completed;
    }
    ChainState::Ended { state, command: Some(index as usize).filter(|index| *index < count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::PdiRef;
    use rstest::rstest;

    fn page() -> (Vec<u32>, Words) {
        let mut page = vec![0xdead_beef; Words::COUNT];
        let words = Words(NonNull::new(page.as_mut_ptr()).unwrap());
        (page, words)
    }

    fn packet() -> Packet {
        Packet {
            pdi_index: 5,
            pdi: PdiRef { address: 0x400_0000, bytes: 64 },
            instructions: 0x500_0040,
            instruction_bytes: 40,
            arguments: (0, 0),
        }
    }

    #[rstest]
    // Padded to an even number below 15.
    #[case(0, 6)]
    #[case(1, 8)]
    #[case(2, 12)]
    #[case(3, 14)]
    // From 15 on any number is right.
    #[case(4, 17)]
    #[case(5, 20)]
    fn dispatches_have_their_arguments_and_padding(#[case] arguments: usize, #[case] payload: usize) {
        let (_page, words) = page();
        let list: Vec<Argument> = (0..arguments as u32)
            .map(|i| Argument { address: 0x7f00_0000_1000 + u64::from(i), bytes: 100 + i })
            .collect();
        write_dispatch(words, &packet(), &list);
        assert_eq!(ert::count_of(words.get(0)) as usize, payload + 1);
        assert_eq!(words.get(1), 1 << 5);
        assert_eq!([2, 3, 4, 5, 6].map(|index| words.get(index)), [3, 0, 0x500_0040, 0, 10]);
        for (index, argument) in list.iter().enumerate() {
            assert_eq!(words.get(7 + 2 * index), argument.address as u32);
            assert_eq!(words.get(8 + 2 * index), 0x7f00);
            assert_eq!(words.get(7 + 2 * arguments + index), argument.bytes);
        }
        assert!((7 + 3 * arguments..2 + payload).all(|index| words.get(index) == 0), "padding");
        assert_eq!(words.get(2 + payload), 0xdead_beef, "nothing behind it");
        assert_eq!(aie_hal::device::chain_command_bytes(arguments), ert::SLOT_HEADER_BYTES + 4 * payload);
    }

    #[test]
    fn completed_is_believed_only_with_an_untouched_index() {
        let (_page, words) = page();
        write_chain(words, [3, 4, 5].into_iter());
        assert_eq!((ert::opcode_of(words.get(0)), ert::count_of(words.get(0))), (19, 12));
        assert_eq!((words.get(1), words.get(7), words.get(11), words.get(12)), (3, 3, 5, 0));
        let end = |state: u32| words.set(0, words.get(0) & !ert::STATE_MASK | state);
        assert_eq!(chain_state(words, 3), ChainState::Ended { state: state::NEW, command: None });
        end(state::COMPLETED);
        assert_eq!(chain_state(words, 3), ChainState::Completed);
        words.set(chain::ERROR_INDEX, 2);
        assert_eq!(chain_state(words, 3), ChainState::Ended { state: state::COMPLETED, command: Some(2) });
        end(state::TIMEOUT);
        words.set(chain::ERROR_INDEX, 7);
        assert_eq!(chain_state(words, 3), ChainState::Ended { state: state::TIMEOUT, command: None });
    }
}
