//! Reading command BOs: what EXEC_CMD was given.

use super::bo::{Bo, Kind};
use super::context::Pdi;
use crate::abi::{ert, limits};
use aie_driver_mock::npu::ContextId;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A submission that was accepted.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) npu: ContextId,
    pub(super) units: Vec<Arc<Pdi>>,
    pub(super) heap: Arc<Bo>,
    pub(super) sequence: u64,
    pub(super) completed: Arc<AtomicU64>,
    /// The BO that was submitted: a chain, or one command.
    pub(super) chain: Arc<Bo>,
    /// The argument BOs.
    pub(super) arguments: Vec<Arc<Bo>>,
}

/// One command, as the firmware gets it.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) bo: Arc<Bo>,
    /// Index of the compute unit.
    pub(super) unit: usize,
    /// Transaction opcode (two words), address of the instructions (two words), their number, arguments.
    pub(super) words: Vec<u32>,
}

/// The commands of a submission and what they take of the chain buffer.
#[derive(Debug)]
pub(super) struct Commands {
    /// Whether they came as a chain.
    pub(super) is_chain: bool,
    pub(super) list: Vec<Command>,
    pub(super) buffer_bytes: usize,
}

const STATE_MASK: u32 = 0xf;

fn opcode(header: u32) -> u32 {
    header >> 23 & 0x1f
}

/// Words after the header, by the header.
fn count(header: u32) -> usize {
    (header >> 12 & 0x7ff) as usize
}

/// Words of CU masks in front of the payload.
fn masks(header: u32) -> usize {
    1 + (header >> 10 & 0x3) as usize
}

/// Writes the state into the header of a command BO.
pub(super) fn set_state(bo: &Bo, state: u32) {
    if let Some(header) = bo.word(0) {
        bo.set_word(0, header & !STATE_MASK | state);
    }
}

/// Writes the index of the failed command into a chain.
pub(super) fn set_error_index(chain: &Bo, index: usize) {
    chain.set_word(CHAIN_ERROR_INDEX, index as u32);
}

/// Offsets in a chain's BO.
const CHAIN_COUNT: usize = 4;
const CHAIN_ERROR_INDEX: usize = 12;
const CHAIN_COMMANDS: usize = 28;
/// Bytes of a chain's payload in front of the handles.
const CHAIN_FIXED: usize = 24;

/// Reads a submission; `lookup` finds the BO of a handle.
///
/// # Errors
/// Why the kernel drops it.
pub(super) fn read(
    chain: &Arc<Bo>,
    limit: usize,
    buffer: usize,
    lookup: impl Fn(u32) -> Option<Arc<Bo>>,
) -> Result<Commands, String> {
    let header = chain.word(0).ok_or("the command BO cannot be read")?;
    if opcode(header) != ert::CMD_CHAIN {
        let command = command(chain.clone())?;
        let buffer_bytes = slot_bytes(&command);
        if buffer_bytes > buffer {
            return Err(format!("the command takes {buffer_bytes} bytes, the chain buffer has {buffer}"));
        }
        return Ok(Commands { is_chain: false, list: vec![command], buffer_bytes });
    }
    let payload = count(header) * 4;
    if payload == 0 || payload + 4 > chain.length() {
        return Err(format!("the chain's header says {payload} bytes of payload, its BO has {} bytes", chain.length()));
    }
    let commands = chain.word(CHAIN_COUNT).unwrap_or(0) as usize;
    if commands == 0 || commands > limit {
        return Err(format!("a chain of {commands} commands, 1 to {limit} are possible"));
    }
    if payload < CHAIN_FIXED + 8 * commands {
        return Err(format!("{commands} handles do not fit into the chain's payload of {payload} bytes"));
    }
    let (mut list, mut buffer_bytes) = (Vec::with_capacity(commands), 0);
    for index in 0..commands {
        let handle = chain.word(CHAIN_COMMANDS + 8 * index).unwrap_or(0);
        let bo = lookup(handle).filter(|bo| matches!(bo.kind(), Kind::Cmd));
        let bo = bo.ok_or_else(|| format!("command {index}: handle {handle} is no command BO"))?;
        let command = command(bo).map_err(|why| format!("command {index}: {why}"))?;
        buffer_bytes += slot_bytes(&command);
        if buffer_bytes > buffer {
            return Err(format!("command {index} of {commands} does not fit into the chain buffer of {buffer} bytes"));
        }
        list.push(command);
    }
    Ok(Commands { is_chain: true, list, buffer_bytes })
}

/// Bytes of a command in the chain buffer.
fn slot_bytes(command: &Command) -> usize {
    limits::SLOT_HEADER_BYTES + command.words.len() * 4
}

fn command(bo: Arc<Bo>) -> Result<Command, String> {
    let header = bo.word(0).ok_or("its BO cannot be read")?;
    if opcode(header) != ert::START_CU {
        return Err(format!(
            "opcode {} is not simulated, only {} (start a compute unit)",
            opcode(header),
            ert::START_CU
        ));
    }
    let (count, masks) = (count(header), masks(header));
    if count <= masks || 4 + count * 4 > bo.length() {
        return Err(format!("its header says {count} words after it, its BO has {} bytes", bo.length()));
    }
    let word = |index: usize| bo.word(4 + 4 * index).unwrap_or(0);
    // As in the kernel, the bit counts within its word, whichever word that is.
    let unit = (0..masks).map(word).find(|mask| *mask != 0).map(u32::trailing_zeros);
    let unit = unit.ok_or("no compute unit is named in its mask")? as usize;
    let words = (masks..count).map(word).collect();
    Ok(Command { bo, unit, words })
}
