//! A doorbell in progress: the command buffers ROCR gets, what is filled in before the kernel sees them, and how it ends.

use super::{COMMAND_BUFFER_BYTES, Gate, HardwareContext, Way};
use aie_hal::device::dispatch_words;
use amdxdna_sys::ert::{self, chain, opcode, start_cu, state};
use amdxdna_sys::{Request, amdxdna_drm_exec_cmd};
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// What the error index of a chain holds until the kernel driver writes it.
///
/// Kernels up to 6.18 keep four bits of the firmware's status, so that some errors read as completed; they write the index with
/// every error and only then.
pub(super) const UNTOUCHED: u32 = u32::MAX;
/// The shortest time limit of a kernel driver. Kernels from 6.14 to 6.18 end a job that takes too long as aborted.
const SHORTEST_LIMIT: Duration = Duration::from_secs(2);

/// Words of an argument: address and size.
const WORDS_PER_ARGUMENT: usize = 3;

/// A command buffer: a buffer object of one page, mapped.
#[derive(Debug)]
pub(super) struct CommandBuffer {
    pub(super) handle: u32,
    pub(super) map_offset: u64,
    pub(super) address: NonNull<u32>,
}

// SAFETY: the mapping belongs to no thread; who has the object has the page to himself.
unsafe impl Send for CommandBuffer {}

impl CommandBuffer {
    pub(super) const WORDS: usize = COMMAND_BUFFER_BYTES / size_of::<u32>();

    pub(super) fn word(&self, index: usize) -> u32 {
        assert!(index < Self::WORDS);
        // SAFETY: the page is mapped while `self` lives and the index is inside. Kernel and device write it too: volatile.
        unsafe { self.address.add(index).read_volatile() }
    }

    pub(super) fn set_word(&self, index: usize, value: u32) {
        assert!(index < Self::WORDS);
        // SAFETY: as for `word`.
        unsafe { self.address.add(index).write_volatile(value) }
    }

    /// How the chain of `count` commands in here ended, of which the kernel has said that it did after `took`.
    pub(super) fn outcome(&self, count: usize, took: Duration) -> Result<(), Problem> {
        let (state, index) = (self.word(0) & ert::STATE_MASK, self.word(chain::ERROR_INDEX));
        if state == state::COMPLETED && index == UNTOUCHED {
            return Ok(());
        }
        Err(Problem::State { state, command: Some(index as usize).filter(|index| *index < count), took })
    }
}

/// Command buffers that are kept for the doorbells of one session.
#[derive(Debug, Default)]
pub struct CommandBuffers {
    pub(super) free: Vec<CommandBuffer>,
    /// Those that the device may still read, with the handle of the context it may read them in.
    pub(super) held: Vec<(u32, CommandBuffer)>,
}

/// What ROCR does not write into a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Index of the PDI in its context.
    pub unit: u8,
    /// Where the instructions are, as the device sees them.
    pub instructions: u64,
    /// How many words they have.
    pub instruction_words: u32,
    /// The words of the arguments: two for each address, then one for each size.
    pub arguments: Vec<u32>,
}

/// A doorbell in progress.
pub(super) struct Ringing {
    pub(super) buffers: Vec<CommandBuffer>,
    /// How many ROCR has taken. They are taken and asked about one after the other.
    pub(super) taken: usize,
    /// The context to run in; `None` in a rehearsal, which reaches no device.
    pub(super) context: Option<(HardwareContext, Way)>,
    /// For each command.
    pub(super) completions: Vec<Completion>,
    pub(super) limit: Duration,
    /// When the chain was submitted.
    pub(super) since: Instant,
    /// Its number in the context and the handle of the chain's buffer, while the device may work on it.
    pub(super) running: Option<(u64, u64)>,
    pub(super) executed: bool,
    pub(super) waited: bool,
    /// First thing that went wrong.
    pub(super) problem: Option<Problem>,
}

/// How a doorbell ended when it did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The runtime did something this gate does not know.
    Unexpected(String),
    /// A kernel call failed.
    Call {
        /// Its name.
        name: &'static str,
        /// Its error.
        errno: i32,
    },
    /// The chain did not complete.
    State {
        /// The state's number.
        state: u32,
        /// The command that failed, when the kernel driver says.
        command: Option<usize>,
        /// How long it took.
        took: Duration,
    },
    /// The kernel driver did not end the chain within the limit. The device may still work on it.
    Stuck(Duration),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unexpected(what) => f.write_str(what),
            Self::Call { name, errno } => write!(f, "{name}: {}", io::Error::from_raw_os_error(*errno)),
            Self::State { state: state::COMPLETED, .. } => {
                f.write_str("the firmware failed a command, though the chain's state says completed")
            }
            Self::State { state, .. } => {
                write!(f, "the kernel driver ended the chain as `{}`", state::name(*state))
            }
            Self::Stuck(limit) => write!(f, "the kernel driver did not end the chain within {limit:?}"),
        }
    }
}

impl Problem {
    /// Whether the chain was given up on because it never signalled.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::State { state: state::TIMEOUT | state::NO_RESPONSE, .. } | Self::Stuck(_) => true,
            Self::State { state: state::ABORT, took, .. } => *took >= SHORTEST_LIMIT,
            _ => false,
        }
    }

    /// Whether the kernel driver had no memory to start the chain. While it waits for one that runs, that is another problem.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { name: amdxdna_drm_exec_cmd::NAME, errno: libc::ENOMEM })
    }
}

impl Ringing {
    pub(super) fn problem(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
    }

    pub(super) fn find(&self, handle: u64) -> Option<&CommandBuffer> {
        self.buffers.iter().find(|buffer| u64::from(buffer.handle) == handle)
    }

    /// Fills in what ROCR does not know. Returns the chain's buffer when all is as expected.
    pub(super) fn complete(&self, request: &amdxdna_drm_exec_cmd) -> Result<(), String> {
        if request.cmd_count != 1 {
            return Err(format!("EXEC_CMD with {} commands, expected 1 chain", request.cmd_count));
        }
        let list = self.find(request.cmd_handles).ok_or("EXEC_CMD of a buffer that is no command buffer")?;
        let opcode = ert::opcode_of(list.word(0));
        if opcode != opcode::CMD_CHAIN {
            return Err(format!("a command with opcode {opcode}, expected a chain"));
        }
        let count = list.word(chain::COMMAND_COUNT) as usize;
        if count != self.completions.len() {
            return Err(format!("a chain of {count} commands, expected {}", self.completions.len()));
        }
        for (index, completion) in self.completions.iter().enumerate() {
            let at = chain::HANDLES + 2 * index;
            let handle = u64::from(list.word(at)) | u64::from(list.word(at + 1)) << 32;
            let command = self.find(handle).ok_or_else(|| format!("command {index} is in an unknown buffer"))?;
            // One entry of ROCR's list: the first, or a later one in a process that has had sessions before.
            if !command.word(start_cu::CU_MASK).is_power_of_two() {
                return Err(format!("command {index} names compute units {:#x}", command.word(start_cu::CU_MASK)));
            }
            command.set_word(start_cu::CU_MASK, 1 << completion.unit);
            command.set_word(start_cu::INSTRUCTIONS, completion.instructions as u32);
            command.set_word(start_cu::INSTRUCTIONS + 1, (completion.instructions >> 32) as u32);
            command.set_word(start_cu::INSTRUCTION_WORDS, completion.instruction_words);
            // ROCR does not pad, and its header counts the mask and the words.
            let payload = dispatch_words(completion.arguments.len() / WORDS_PER_ARGUMENT);
            let padding =
                std::iter::repeat_n(0, start_cu::PAYLOAD + payload - start_cu::ARGUMENTS - completion.arguments.len());
            for (index, word) in (start_cu::ARGUMENTS..).zip(completion.arguments.iter().copied().chain(padding)) {
                command.set_word(index, word);
            }
            let header = command.word(0) & !(ert::COUNT_MAX << 12) | (payload as u32 + 1) << 12;
            command.set_word(0, header);
        }
        list.set_word(chain::ERROR_INDEX, UNTOUCHED);
        Ok(())
    }

    pub(super) fn execute(
        &mut self,
        gate: &Gate,
        descriptor: c_int,
        number: std::ffi::c_ulong,
        request: &mut amdxdna_drm_exec_cmd,
    ) {
        self.executed = true;
        if let Err(reason) = self.complete(request) {
            return self.problem(Problem::Unexpected(reason));
        }
        let Some((context, _)) = self.context else { return };
        request.hwctx = context.handle;
        // SAFETY: it is ROCR's structure for this very request.
        match unsafe { gate.call(descriptor, number, (request as *mut amdxdna_drm_exec_cmd).cast()) } {
            Ok(()) => {
                self.running = Some((request.seq, request.cmd_handles));
                self.since = Instant::now();
            }
            Err(cause) => {
                self.problem(Problem::Call {
                    name: amdxdna_drm_exec_cmd::NAME,
                    errno: cause.raw_os_error().unwrap_or_default(),
                });
            }
        }
    }

    /// Waits as long as the limit allows, and reads the states.
    pub(super) fn wait(&mut self, gate: &Gate) {
        self.waited = true;
        let (Some((context, way)), Some((sequence, handle))) = (self.context, self.running) else { return };
        if let Err(problem) = gate.wait(way, context, sequence, self.limit) {
            return self.problem(problem);
        }
        self.running = None;
        let Some(list) = self.find(handle) else { return };
        if let Err(problem) = list.outcome(self.completions.len(), self.since.elapsed()) {
            self.problem(problem);
        }
    }
}
