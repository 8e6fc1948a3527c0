//! Reading command BOs: what EXEC_CMD was given.

use super::bo::{Bo, Kind};
use super::handles::Handles;
use crate::kernel::Profile;
use aie_driver_mock::npu::array::{Command, LoadedPdi};
use aie_hal::arch::Arch;
use amdxdna_sys::ert::{self, opcode};
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Submission {
    pub(super) units: Vec<LoadedPdi>,
    pub(super) heaps: Vec<Arc<Bo>>,
    pub(super) sequence: u64,
    /// The BO that was submitted: a chain, or one command.
    pub(super) chain: Arc<Bo>,
    pub(super) arguments: Vec<Arc<Bo>>,
    /// Where the handles in a chain lead.
    pub(super) handles: Arc<Mutex<Handles>>,
    /// Whether only BOs of type CMD hold commands.
    pub(super) is_typed: bool,
}

impl Submission {
    /// The command BO behind a handle in a chain.
    fn lookup(&self, handle: u32) -> Option<Arc<Bo>> {
        let is_command = |bo: &&Arc<Bo>| if self.is_typed { matches!(&bo.kind, Kind::Cmd) } else { bo.is_shared() };
        self.handles.lock().bo(handle).filter(is_command).cloned()
    }

    pub(super) fn command(&self, index: usize) -> Option<Arc<Bo>> {
        self.lookup(self.chain.word(4 * (ert::chain::HANDLES + 2 * index))?)
    }
}

/// The commands of a submission and what they take of the chain buffer.
#[derive(Debug)]
pub(super) struct Commands {
    /// Whether they go to the firmware through the chain buffer.
    pub(super) in_chain_buffer: bool,
    pub(super) list: Vec<Command>,
    pub(super) buffer_bytes: usize,
}

fn header(bo: &Bo) -> u32 {
    bo.word(0).unwrap_or(0)
}

pub(super) fn opcode(bo: &Bo) -> u32 {
    ert::opcode_of(header(bo))
}

/// Writes the state into the header of a command BO; a state has four bits.
pub(super) fn set_state(bo: &Bo, state: u32) {
    if let Some(header) = bo.word(0) {
        bo.set_word(0, header & !ert::STATE_MASK | state & ert::STATE_MASK);
    }
}

/// Writes the index of the failed command into a chain.
pub(super) fn set_error_index(chain: &Bo, index: usize) {
    chain.set_word(4 * ert::chain::ERROR_INDEX, index as u32);
}

pub(super) fn command_count(chain: &Bo) -> usize {
    chain.word(4 * ert::chain::COMMAND_COUNT).unwrap_or(0) as usize
}

/// Offsets of all words behind a command's header.
pub(super) fn payload_offsets(bo: &Bo) -> impl Iterator<Item = usize> {
    (4..bo.length()).step_by(4)
}

/// Words of a single command that goes to the firmware without the chain buffer (`struct execute_buffer_req`).
const DIRECT_WORDS: usize = 19;

pub(super) fn read(submission: &Submission, arch: &Arch, profile: &Profile) -> Result<Commands, String> {
    let (chain, buffer) = (&submission.chain, arch.limits.chain_buffer_bytes);
    let found = chain.word(0).ok_or("the command BO cannot be read")?;
    if ert::opcode_of(found) != opcode::CMD_CHAIN {
        let (_, command) = command(chain, profile)?;
        let (bytes, in_chain_buffer) = (slot_bytes(&command), profile.single_in_chain_buffer);
        if in_chain_buffer && bytes > buffer {
            return Err(format!("the command takes {bytes} bytes, the chain buffer has {buffer}"));
        }
        if !in_chain_buffer && command.words.len() > DIRECT_WORDS {
            let words = command.words.len();
            return Err(format!(
                "a single command of {words} words; this kernel takes {DIRECT_WORDS} outside of a chain"
            ));
        }
        return Ok(Commands { in_chain_buffer, list: vec![command], buffer_bytes: bytes });
    }
    let payload = ert::count_of(found) as usize * 4;
    if payload == 0 || payload + 4 > chain.length() {
        return Err(format!("the chain's header says {payload} bytes of payload, its BO has {} bytes", chain.length()));
    }
    let (commands, limit) = (command_count(chain), arch.limits.commands_per_chain);
    if commands == 0 || commands > limit {
        return Err(format!("a chain of {commands} commands, 1 to {limit} are possible"));
    }
    if payload < 4 * ert::chain::FIXED_WORDS + 8 * commands {
        return Err(format!("{commands} handles do not fit into the chain's payload of {payload} bytes"));
    }
    let (mut list, mut buffer_bytes, mut first_opcode) = (Vec::with_capacity(commands), 0, None);
    for index in 0..commands {
        let handle = chain.word(4 * (ert::chain::HANDLES + 2 * index)).unwrap_or(0);
        let bo = submission.lookup(handle);
        let bo = bo.ok_or_else(|| format!("command {index}: handle {handle} is not a command BO"))?;
        let (opcode, command) = command(&bo, profile).map_err(|why| format!("command {index}: {why}"))?;
        buffer_bytes += slot_bytes(&command);
        if buffer_bytes > buffer {
            return Err(format!("command {index} of {commands} does not fit into the chain buffer of {buffer} bytes"));
        }
        if *first_opcode.get_or_insert(opcode) != opcode {
            return Err(format!("command {index}: opcode {opcode}, those before have another"));
        }
        list.push(command);
    }
    Ok(Commands { in_chain_buffer: true, list, buffer_bytes })
}

fn slot_bytes(command: &Command) -> usize {
    ert::SLOT_HEADER_BYTES + command.words.len() * 4
}

/// Words in front of the arguments: `struct amdxdna_cmd_start_npu`, `struct amdxdna_cmd_preempt_data`.
fn least_words(opcode: u32) -> usize {
    match opcode {
        opcode::START_NPU => 4,
        opcode::START_NPU_PREEMPT | opcode::START_NPU_PREEMPT_ELF => 10,
        _ => 0,
    }
}

/// The opcode of a command BO, and what it comes to.
fn command(bo: &Bo, profile: &Profile) -> Result<(u32, Command), String> {
    let header = bo.word(0).ok_or("its BO cannot be read")?;
    let opcode = ert::opcode_of(header);
    let known = match opcode {
        opcode::START_CU | opcode::START_NPU => true,
        opcode::START_NPU_PREEMPT | opcode::START_NPU_PREEMPT_ELF => profile.preemption,
        _ => false,
    };
    if !known {
        return Err(format!("opcode {opcode} is not one that the driver of kernel {} accepts", profile.kernel));
    }
    let (count, masks) = (ert::count_of(header) as usize, ert::masks_of(header) as usize);
    let has_payload = count > masks && 4 + count * 4 <= bo.length();
    let runs_without = opcode == opcode::START_CU && profile.empty_payloads_run;
    if !has_payload && !runs_without {
        return Err(format!("its header says {count} words after it, its BO has {} bytes", bo.length()));
    }
    let count = if has_payload { count } else { masks };
    let least = if profile.empty_payloads_run { least_words(opcode) } else { 0 };
    if count - masks < least {
        return Err(format!("{} words of payload, opcode {opcode} has {least}", count - masks));
    }
    let word = |index: usize| bo.word(4 + 4 * index).unwrap_or(0);
    // As in the kernel, the bit counts within its word, whichever word that is.
    let unit = (0..masks).map(word).find(|mask| *mask != 0).map(u32::trailing_zeros);
    // A full ELF brings its own configuration.
    let unit = unit.or((opcode == opcode::START_NPU_PREEMPT_ELF).then_some(0));
    let unit = unit.ok_or("no compute unit is named in its mask")? as usize;
    let words = (masks..count).map(word).collect();
    Ok((opcode, Command { unit, is_elf: opcode != opcode::START_CU, words }))
}
