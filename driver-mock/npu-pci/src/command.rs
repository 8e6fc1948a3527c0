//! Commands as the firmware gets them: in a message, or as slots of a chain buffer in the heap. Source: `aie2_msg_priv.h`.

use crate::message::{CHAIN_EXEC_BUFFER_CF, CHAIN_EXEC_DPU, EXECUTE_BUFFER_CF, Kind, Request};
use aie_driver_mock::npu::array::{Command, OutOfReach};

/// Type of a slot (`enum exec_npu_type`) that starts a compute unit without an ELF file.
const NON_ELF: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainBuffer {
    pub address: u64,
    /// Bytes of its slots.
    pub bytes: usize,
    pub count: usize,
}

impl ChainBuffer {
    /// The buffer of a chain's message.
    pub fn of(kind: &Kind, request: Request<'_>) -> Self {
        // CHAIN_EXEC_NPU has flags and a reserved word in front.
        let at = if [&CHAIN_EXEC_BUFFER_CF, &CHAIN_EXEC_DPU].contains(&kind) { 0 } else { 8 };
        Self { address: request.long(at), bytes: request.word(at + 8) as usize, count: request.word(at + 12) as usize }
    }
}

/// The command in a message of its own.
pub fn single(kind: &Kind, request: Request<'_>) -> Command {
    if kind == &EXECUTE_BUFFER_CF {
        return Command { unit: request.word(0) as usize, is_elf: false, words: request.words(4) };
    }
    Command { unit: request.word(16) as usize, is_elf: true, words: request.words(20) }
}

pub fn slots(kind: &Kind, bytes: &[u8], count: usize) -> Result<Vec<Command>, OutOfReach> {
    let buffer = Request(bytes);
    let (mut commands, mut at) = (Vec::new(), 0);
    for index in 0..count {
        // Where the compute unit is in a slot; the number of arguments and these follow.
        let unit_at = match kind {
            kind if kind == &CHAIN_EXEC_BUFFER_CF => 0,
            kind if kind == &CHAIN_EXEC_DPU => 16,
            _ => 44,
        };
        let first = at + unit_at + 8;
        let words = buffer.word(at + unit_at + 4) as usize;
        let end = words.checked_mul(4).and_then(|bytes| first.checked_add(bytes)).filter(|end| *end <= bytes.len());
        let outside = || OutOfReach(format!("slot {index} of {count} does not fit into {} bytes", bytes.len()));
        let end = end.ok_or_else(outside)?;
        let is_elf = match unit_at {
            0 => false,
            16 => true,
            _ => buffer.word(at) != NON_ELF,
        };
        let words = Request(&bytes[first..end]).words(0);
        commands.push(Command { unit: buffer.word(at + unit_at) as usize, is_elf, words });
        at = end;
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{CHAIN_EXEC_NPU, EXEC_DPU, bytes_of};

    #[test]
    fn chains_of_every_form_come_apart() {
        let command = |unit, is_elf| Command { unit, is_elf, words: vec![3, 0, 9] };
        let expected = [command(1, false), command(2, false)];
        let plain = bytes_of(&[1, 3, 3, 0, 9, 2, 3, 3, 0, 9]);
        assert_eq!(slots(&CHAIN_EXEC_BUFFER_CF, &plain, 2).unwrap(), expected);
        let npu = |kind: u32, unit| [kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, unit, 3, 3, 0, 9];
        let slot = bytes_of(&[npu(1, 1), npu(1, 2)].concat());
        assert_eq!(slots(&CHAIN_EXEC_NPU, &slot, 2).unwrap(), expected);
        assert!(slots(&CHAIN_EXEC_NPU, &bytes_of(&npu(2, 1)), 1).unwrap()[0].is_elf);
        let dpu = bytes_of(&[0, 0, 0, 0, 5, 1, 7]);
        assert_eq!(slots(&CHAIN_EXEC_DPU, &dpu, 1).unwrap(), [Command { unit: 5, is_elf: true, words: vec![7] }]);
    }

    #[test]
    fn slots_that_leave_the_buffer_are_rejected() {
        for words in [&[1, 4, 3, 0, 9][..], &[1, u32::MAX], &[1], &[]] {
            assert!(slots(&CHAIN_EXEC_BUFFER_CF, &bytes_of(words), 1).unwrap_err().0.contains("slot 0 of 1"));
        }
    }

    #[test]
    fn messages_name_their_buffer_or_hold_the_command() {
        let buffer = ChainBuffer { address: 0x1_0400_0000, bytes: 60, count: 2 };
        let old = bytes_of(&[0x0400_0000, 1, 60, 2, 0, 0]);
        let new = bytes_of(&[0, 0, 0x0400_0000, 1, 60, 2]);
        assert_eq!(ChainBuffer::of(&CHAIN_EXEC_DPU, Request(&old)), buffer);
        assert_eq!(ChainBuffer::of(&CHAIN_EXEC_NPU, Request(&new)), buffer);
        let single_command = single(&EXECUTE_BUFFER_CF, Request(&bytes_of(&[4, 3, 0, 9])));
        assert_eq!(single_command, Command { unit: 4, is_elf: false, words: vec![3, 0, 9] });
        assert_eq!(single(&EXEC_DPU, Request(&bytes_of(&[0, 0, 0, 0, 6, 1]))).unit, 6);
    }
}
