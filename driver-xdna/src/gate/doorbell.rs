//! A doorbell in progress: the command buffers ROCR gets, what is filled in before the kernel sees them, and how it ends.

use super::uapi::{self, Request};
use super::{COMMAND_BUFFER_BYTES, Gate};
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

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

    pub(super) fn state(&self) -> u32 {
        self.word(0) & 0xf
    }
}

/// Command buffers that are kept for the doorbells of one session.
#[derive(Debug, Default)]
pub struct CommandBuffers {
    pub(super) free: Vec<CommandBuffer>,
}

/// What ROCR does not write into a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Index of the PDI in its context.
    pub unit: u8,
    /// Words of the payload.
    pub words: usize,
    /// The last two of them.
    pub tail: [u32; 2],
    /// Where the instructions are, as the device sees them.
    pub instructions: u64,
}

/// A doorbell in progress.
pub(super) struct Ringing {
    pub(super) buffers: Vec<CommandBuffer>,
    /// How many ROCR has taken. They are taken and asked about one after the other.
    pub(super) taken: usize,
    /// The context to run in; `None` in a rehearsal, which reaches no device.
    pub(super) context: Option<u32>,
    /// For each command.
    pub(super) completions: Vec<Completion>,
    pub(super) limit: Duration,
    pub(super) sequence: u64,
    /// Handle of the chain's buffer, once it was submitted.
    pub(super) chain: u64,
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
    /// The chain ended in another state than completed.
    State {
        /// The state's number.
        state: u32,
        /// The command that failed, when the kernel driver says.
        command: Option<usize>,
    },
    /// The kernel driver did not end the chain within the limit. The device may still work on it.
    Stuck(Duration),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unexpected(what) => f.write_str(what),
            Self::Call { name, errno } => write!(f, "{name}: {}", io::Error::from_raw_os_error(*errno)),
            Self::State { state, .. } => {
                write!(f, "the kernel driver ended the chain as `{}`", uapi::state::name(*state))
            }
            Self::Stuck(limit) => write!(f, "the kernel driver did not end the chain within {limit:?}"),
        }
    }
}

impl Problem {
    /// Whether the chain was given up on because it never signalled.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::State { state: uapi::state::TIMEOUT | uapi::state::NO_RESPONSE, .. })
    }

    /// Whether the kernel driver had no memory to start the chain. While it waits for one that runs, that is another problem.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { name: uapi::Execute::NAME, errno: libc::ENOMEM })
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
    pub(super) fn complete(&self, request: &uapi::Execute) -> Result<(), String> {
        if request.command_count != 1 {
            return Err(format!("EXEC_CMD with {} commands, expected 1 chain", request.command_count));
        }
        let chain = self.find(request.commands).ok_or("EXEC_CMD of a buffer that is no command buffer")?;
        let opcode = (chain.word(0) >> 23) & 0x1f;
        if opcode != uapi::chain::OPCODE {
            return Err(format!("a command with opcode {opcode}, expected a chain"));
        }
        let count = chain.word(uapi::chain::COMMAND_COUNT) as usize;
        if count != self.completions.len() {
            return Err(format!("a chain of {count} commands, expected {}", self.completions.len()));
        }
        for (index, completion) in self.completions.iter().enumerate() {
            let at = uapi::chain::HANDLES + 2 * index;
            let handle = u64::from(chain.word(at)) | u64::from(chain.word(at + 1)) << 32;
            let command = self.find(handle).ok_or_else(|| format!("command {index} is in an unknown buffer"))?;
            // One entry of ROCR's list: the first, or a later one in a process that has had sessions before.
            if !command.word(uapi::CU_MASK).is_power_of_two() {
                return Err(format!("command {index} names compute units {:#x}", command.word(uapi::CU_MASK)));
            }
            command.set_word(uapi::CU_MASK, 1 << completion.unit);
            for (word, value) in completion.tail.into_iter().enumerate() {
                command.set_word(uapi::PAYLOAD + completion.words - 2 + word, value);
            }
            command.set_word(uapi::INSTRUCTIONS, completion.instructions as u32);
            command.set_word(uapi::INSTRUCTIONS + 1, (completion.instructions >> 32) as u32);
        }
        Ok(())
    }

    pub(super) fn execute(
        &mut self,
        gate: &Gate,
        descriptor: c_int,
        number: std::ffi::c_ulong,
        request: &mut uapi::Execute,
    ) {
        self.executed = true;
        if let Err(reason) = self.complete(request) {
            return self.problem(Problem::Unexpected(reason));
        }
        let Some(context) = self.context else { return };
        self.chain = request.commands;
        request.context = context;
        // SAFETY: it is ROCR's structure for this very request.
        match unsafe { gate.call(descriptor, number, (request as *mut uapi::Execute).cast()) } {
            Ok(()) => self.sequence = request.sequence,
            Err(cause) => {
                self.problem(Problem::Call {
                    name: uapi::Execute::NAME,
                    errno: cause.raw_os_error().unwrap_or_default(),
                });
            }
        }
    }

    /// Waits as long as the limit allows, and reads the states.
    pub(super) fn wait(&mut self, gate: &Gate) {
        self.waited = true;
        let (Some(context), None) = (self.context, &self.problem) else { return };
        let start = Instant::now();
        loop {
            let left = self.limit.saturating_sub(start.elapsed());
            // 0 would be for ever.
            let timeout = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
            match gate.request(&mut uapi::Wait { context, timeout, sequence: self.sequence }) {
                Ok(()) => break,
                Err(cause)
                    if matches!(cause.raw_os_error(), Some(libc::ETIME | libc::EAGAIN))
                        && start.elapsed() >= self.limit =>
                {
                    return self.problem(Problem::Stuck(self.limit));
                }
                // Also when signals interrupt it all the time: the command still runs.
                Err(cause) if matches!(cause.raw_os_error(), Some(libc::ETIME | libc::EAGAIN)) => {}
                Err(cause) => {
                    let errno = cause.raw_os_error().unwrap_or_default();
                    return self.problem(Problem::Call { name: uapi::Wait::NAME, errno });
                }
            }
        }
        let Some(chain) = self.find(self.chain) else { return };
        match chain.state() {
            uapi::state::COMPLETED => {}
            state => {
                let index = chain.word(uapi::chain::ERROR_INDEX) as usize;
                let command = (index < self.completions.len()).then_some(index);
                self.problem(Problem::State { state, command });
            }
        }
    }
}
