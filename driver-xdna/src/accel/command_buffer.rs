//! Command buffers: what a chain and its commands look like in memory.
//!
//! A chain names one command BO for each dispatch. The kernel copies their payloads into slots of a buffer that the firmware
//! reads. Firmware of npu4 is said to abort a chain with a slot whose number of argument words is odd and below 15 (AMD's notes
//! on ROCR's XDNA driver), so such payloads get one more word ([`aie_hal::device::dispatch_words`]).

use super::bo::{Bo, BoKind};
use super::call_error::CallError;
use super::context::HardwareContext;
use super::device::ChainError;
use super::node::Node;
use crate::agent::Packet;
use aie_hal::device::dispatch_words;
use amdxdna_sys::ert::{self, chain, opcode, start_cu, state};
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::{AMDXDNA_CMD_SUBMIT_EXEC_BUF, amdxdna_drm_exec_cmd};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// What the error index of a chain holds until the kernel driver writes it.
///
/// Kernels up to 6.18 keep four bits of the firmware's status, so that some errors read as completed; they write the index with every
/// error and only then.
pub const UNTOUCHED: u32 = u32::MAX;

/// A command BO of one page.
#[derive(Debug)]
pub struct CommandBuffer {
    bo: Bo,
}

impl CommandBuffer {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(node: &Arc<Node>) -> Result<Self, CallError> {
        Ok(Self { bo: Bo::create(node, BoKind::Command, PAGE)? })
    }

    /// One in memory that is not the kernel's, for tests of what fills command buffers.
    ///
    /// # Safety
    /// There is a page of words at `page`, which stays as long as the command buffer.
    #[doc(hidden)]
    pub unsafe fn of_test_memory(node: &Arc<Node>, handle: u32, map_offset: u64, page: NonNull<u8>) -> Self {
        // SAFETY: as the caller promises.
        Self { bo: unsafe { Bo::of_test_memory(node, handle, map_offset, page) } }
    }

    /// Handle of its BO.
    pub fn handle(&self) -> u32 {
        self.bo.handle()
    }

    /// Its BO's offset for mapping.
    pub fn map_offset(&self) -> u64 {
        self.bo.map_offset()
    }

    /// What is in it.
    pub fn words(&self) -> Words {
        Words(self.bo.host().cast())
    }

    /// Notes the command or chain in this buffer, where calls are recorded.
    pub(crate) fn note(&self, node: &Node, name: &str) {
        let words = self.words();
        let count = 1 + ert::count_of(words.get(0)) as usize;
        node.note_contents(name, self.handle(), || {
            (0..count.min(Words::COUNT)).flat_map(|index| words.get(index).to_le_bytes()).collect()
        });
    }

    /// Submits the chain in this buffer. `arguments` are the handles of the BOs it uses, each once. Returns its sequence number.
    /// Nothing was submitted when the kernel rejects it.
    pub(crate) fn submit(&self, node: &Node, context: HardwareContext, arguments: &[u32]) -> Result<u64, CallError> {
        let mut execute = amdxdna_drm_exec_cmd {
            hwctx: context.handle,
            type_: AMDXDNA_CMD_SUBMIT_EXEC_BUF,
            cmd_handles: self.handle().into(),
            args: arguments.as_ptr().expose_provenance() as u64,
            cmd_count: 1,
            arg_count: arguments.len() as u32,
            ..Default::default()
        };
        node.note_beside(|fields| {
            if !arguments.is_empty() {
                fields.push_data(bytemuck::cast_slice(arguments));
            }
        });
        node.request(&mut execute)?;
        Ok(execute.seq)
    }

    /// Leaves it to the device.
    pub fn leak(self) {
        self.bo.leak();
    }
}

/// The words of a page. Kernel and device write them too, so every access is volatile.
#[derive(Clone, Copy)]
pub struct Words(pub(crate) NonNull<u32>);

impl Words {
    /// How many there are.
    pub const COUNT: usize = PAGE / size_of::<u32>();

    /// The first one.
    pub fn address(self) -> *mut u32 {
        self.0.as_ptr()
    }

    /// The word with this index.
    ///
    /// # Panics
    /// When it is none of the page.
    pub fn get(self, index: usize) -> u32 {
        assert!(index < Self::COUNT);
        // SAFETY: a page is mapped there as long as the creator of this object holds it, and the index is inside.
        unsafe { self.0.add(index).read_volatile() }
    }

    /// Writes a word.
    ///
    /// # Panics
    /// When the index is none of the page.
    pub fn set(self, index: usize, value: u32) {
        assert!(index < Self::COUNT);
        // SAFETY: as for `get`.
        unsafe { self.0.add(index).write_volatile(value) }
    }

    fn set_address(self, index: usize, address: u64) {
        self.set(index, address as u32);
        self.set(index + 1, (address >> 32) as u32);
    }

    /// Writes the command of one dispatch.
    pub fn write_dispatch(self, packet: &Packet, arguments: &[Range<u64>]) {
        let payload = dispatch_words(arguments.len());
        // The mask of compute units counts as a word behind the header.
        self.set(0, ert::header(opcode::START_CU, payload as u32 + 1));
        self.set(start_cu::CU_MASK, 1 << packet.pdi_index);
        self.set(start_cu::PAYLOAD, ert::TRANSACTION);
        self.set(start_cu::PAYLOAD + 1, 0);
        self.set_address(start_cu::INSTRUCTIONS, packet.instructions);
        self.set(start_cu::INSTRUCTION_WORDS, (packet.instruction_bytes / 4) as u32);
        for (index, argument) in arguments.iter().enumerate() {
            self.set_address(start_cu::ARGUMENTS + 2 * index, argument.start);
            self.set(start_cu::ARGUMENTS + 2 * arguments.len() + index, (argument.end - argument.start) as u32);
        }
        for padding in start_cu::ARGUMENTS + 3 * arguments.len()..start_cu::PAYLOAD + payload {
            self.set(padding, 0);
        }
    }

    /// Writes a chain of the commands with these handles.
    pub(crate) fn write_chain(self, handles: impl ExactSizeIterator<Item = u32>) {
        let count = handles.len();
        self.set(0, ert::header(opcode::CMD_CHAIN, (chain::FIXED_WORDS + 2 * count) as u32));
        self.set(chain::COMMAND_COUNT, count as u32);
        self.set(chain::SUBMIT_INDEX, 0);
        self.set(chain::ERROR_INDEX, UNTOUCHED);
        for reserved in chain::ERROR_INDEX + 1..chain::HANDLES {
            self.set(reserved, 0);
        }
        for (index, handle) in handles.enumerate() {
            self.set_address(chain::HANDLES + 2 * index, handle.into());
        }
    }

    /// How the chain of `count` commands here ended, of which the kernel has said that it did after `took`.
    ///
    /// # Errors
    /// [`ChainError::Ended`] unless all have completed.
    pub fn outcome(self, count: usize, took: Duration) -> Result<(), ChainError> {
        let (state, index) = (self.get(0) & ert::STATE_MASK, self.get(chain::ERROR_INDEX));
        if state == state::COMPLETED && index == UNTOUCHED {
            return Ok(());
        }
        Err(ChainError::Ended { state, command: Some(index as usize).filter(|index| *index < count), took })
    }
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
        let list: Vec<Range<u64>> =
            (0..arguments as u64).map(|i| 0x7f00_0000_1000 + i..0x7f00_0000_1000 + i + 100 + i).collect();
        words.write_dispatch(&packet(), &list);
        assert_eq!(ert::count_of(words.get(0)) as usize, payload + 1);
        assert_eq!(words.get(1), 1 << 5);
        assert_eq!([2, 3, 4, 5, 6].map(|index| words.get(index)), [3, 0, 0x500_0040, 0, 10]);
        for (index, argument) in list.iter().enumerate() {
            assert_eq!(words.get(7 + 2 * index), argument.start as u32);
            assert_eq!(words.get(8 + 2 * index), 0x7f00);
            assert_eq!(words.get(7 + 2 * arguments + index), 100 + index as u32);
        }
        assert!((7 + 3 * arguments..2 + payload).all(|index| words.get(index) == 0), "padding");
        assert_eq!(words.get(2 + payload), 0xdead_beef, "nothing behind it");
        assert_eq!(aie_hal::device::chain_command_bytes(arguments), ert::SLOT_HEADER_BYTES + 4 * payload);
    }

    #[rstest]
    #[case::not_run(state::NEW, UNTOUCHED, Some((state::NEW, None)))]
    #[case::completed(state::COMPLETED, UNTOUCHED, None)]
    #[case::status_of_four_bits(state::COMPLETED, 2, Some((state::COMPLETED, Some(2))))]
    #[case::failed(state::ERROR, 0, Some((state::ERROR, Some(0))))]
    #[case::nobody_says_which(state::TIMEOUT, UNTOUCHED, Some((state::TIMEOUT, None)))]
    #[case::not_in_the_chain(state::TIMEOUT, 7, Some((state::TIMEOUT, None)))]
    fn completed_is_believed_only_with_an_untouched_index(
        #[case] state: u32,
        #[case] index: u32,
        #[case] expected: Option<(u32, Option<usize>)>,
    ) {
        let (_page, words) = page();
        words.write_chain([3, 4, 5].into_iter());
        assert_eq!((ert::opcode_of(words.get(0)), ert::count_of(words.get(0))), (19, 12));
        assert_eq!((words.get(1), words.get(7), words.get(11), words.get(12)), (3, 3, 5, 0));
        assert_eq!(words.get(chain::ERROR_INDEX), UNTOUCHED);
        words.set(0, words.get(0) & !ert::STATE_MASK | state);
        words.set(chain::ERROR_INDEX, index);
        let found = words.outcome(3, Duration::ZERO).err().map(|error| match error {
            ChainError::Ended { state, command, .. } => (state, command),
            other => panic!("{other}"),
        });
        assert_eq!(found, expected);
    }
}
