//! Running jobs: the firmware and the array.

use super::Device;
use super::bo::{Bo, Kind};
use super::chain::{Command, Submission, read};
use super::end::Written;
use super::heap::Heaps;
use aie_device_memory::Span;
use aie_driver_mock::npu::array::{self, Array, Outcome as Ended};
use aie_driver_mock::npu::fault_plan::CommandFault;
use aie_driver_mock::npu::status;
use aie_driver_mock::npu::transaction::{Transaction, WORDS_PER_ARGUMENT};
use aie_driver_mock::npu::{ChainCommand, ContextId};
use amdxdna_sys::ert::opcode;
use amdxdna_sys::limits;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The array of a device, with room for the instructions of a command: who holds it has it to himself.
#[derive(Debug)]
pub(super) struct Firmware {
    array: Array,
    instructions: Vec<u8>,
}

/// How a job went.
#[derive(Debug)]
pub(super) enum Ran {
    /// It has ended, after `ns` of device time.
    Ended {
        /// Device time.
        ns: u64,
    },
    /// It does not end by itself.
    Stuck {
        /// Index of the command that it is at.
        command: usize,
    },
}

/// How a command ended.
enum Outcome {
    Completed,
    /// The firmware answers with a status and for a reason.
    Failed(u32, String),
    /// It never signals.
    Silent(String),
    /// The firmware gives up on the chain.
    Aborted,
    /// The device is gone.
    Lost,
}

impl Firmware {
    /// In front of this array.
    pub(super) fn new(array: Array) -> Self {
        Self { array, instructions: Vec::new() }
    }

    /// Runs a job of a context.
    pub(super) fn run(&mut self, device: &Device, npu: ContextId, submission: &Submission) -> Ran {
        let (counts, profile) = (&device.journal.counts, &device.profile);
        let written = Written::new(device, submission);
        written.started();
        let commands = match read(submission, &device.arch, profile) {
            Ok(commands) => commands,
            Err(why) => {
                counts.chains_not_run.fetch_add(1, Ordering::Relaxed);
                device.journal.log(|| format!("a submission is dropped, its state stays NEW: {why}"));
                return Ran::Ended { ns: 0 };
            }
        };
        if let Some(index) = odd_slot(device, &commands.list).filter(|_| commands.in_chain_buffer) {
            let words = commands.list[index].words.len();
            counts.commands_aborted.fetch_add(1, Ordering::Relaxed);
            device.journal.log(|| {
                format!("command {index} of a submission: {words} words; this firmware wants an even number below 15")
            });
            written.aborted();
            return Ran::Ended { ns: 0 };
        }
        let (mut charged, mut outcome, mut last) = (Vec::with_capacity(commands.list.len()), Outcome::Completed, 0);
        for (index, command) in commands.list.iter().enumerate() {
            last = index;
            let mut bytes = 0;
            outcome = self.command(device, submission, command, &mut bytes);
            if command.unit < submission.units.len() {
                charged.push(ChainCommand {
                    pdi: command.unit,
                    arguments: command.words.len() / WORDS_PER_ARGUMENT,
                    bytes,
                });
            }
            if !matches!(outcome, Outcome::Completed) {
                break;
            }
        }
        // Refused only if nothing was to be charged.
        let ns = device.npu.submit_encoded(npu, &charged, commands.buffer_bytes).unwrap_or(0);
        let log = |reason: &str| device.journal.log(|| format!("command {last} of a submission: {reason}"));
        match outcome {
            Outcome::Completed if ns > profile.job_limit_ns => {
                counts.commands_timed_out.fetch_add(1, Ordering::Relaxed);
                let limit = profile.job_limit_ns;
                log(&format!("the job takes {ns} ns of device time, the kernel ends it after {limit} ns"));
                written.overdue(last);
            }
            Outcome::Completed => written.completed(),
            Outcome::Failed(status, reason) => {
                counts.commands_failed.fetch_add(1, Ordering::Relaxed);
                log(&format!("status {status:#x}: {reason}"));
                written.failed(last, status);
            }
            Outcome::Aborted => {
                counts.commands_aborted.fetch_add(1, Ordering::Relaxed);
                log("aborted, as planned");
                written.aborted();
            }
            Outcome::Lost => {
                device.lose();
                log("the device is lost, as planned");
                written.aborted();
            }
            Outcome::Silent(reason) => {
                counts.commands_timed_out.fetch_add(1, Ordering::Relaxed);
                device.journal.log(|| format!("command {last} of a submission never signals: {reason}"));
                return Ran::Stuck { command: last };
            }
        }
        Ran::Ended { ns }
    }

    /// Runs one command; `bytes` is what it moves.
    fn command(&mut self, device: &Device, submission: &Submission, command: &Command, bytes: &mut u64) -> Outcome {
        let fault = device.journal.command();
        device.journal.counts.commands_run.fetch_add(1, Ordering::Relaxed);
        match fault {
            Some(CommandFault::Timeout) => return Outcome::Silent("the fault plan says so".into()),
            Some(CommandFault::Abort) => return Outcome::Aborted,
            Some(CommandFault::Lost) => return Outcome::Lost,
            Some(CommandFault::Status(status)) => return Outcome::Failed(status, "as planned".into()),
            Some(CommandFault::Garbage) | None => {}
        }
        if command.opcode != opcode::START_CU {
            let why = format!("opcode {}: this array runs no control code of an ELF file", command.opcode);
            return Outcome::Failed(status::AIE_INSTRUCTION_ERROR, why);
        }
        let Some(unit) = submission.units.get(command.unit) else {
            let configured = submission.units.len();
            return Outcome::Failed(
                status::INVALID_PARAMETER,
                format!("compute unit {} of a context with {configured}", command.unit),
            );
        };
        let transaction = match Transaction::parse(&command.words) {
            Ok(transaction) => transaction,
            Err(why) => return Outcome::Failed(status::INVALID_PARAMETER, why),
        };
        if let Err(reason) = self.fetch(&submission.heaps, &transaction) {
            return Outcome::Silent(reason);
        }
        if array::is_empty_stream(&self.instructions) {
            return Outcome::Completed;
        }
        let prepared = match self.array.prepare(unit, transaction.instructions(), &self.instructions) {
            Ok(prepared) => prepared,
            Err(reason) => return Outcome::Silent(reason),
        };
        let arguments = (0..prepared.argument_count())
            .map(|index| argument(device, submission, transaction.argument(index), index));
        let mut arguments: Vec<Argument> = match arguments.collect() {
            Ok(arguments) => arguments,
            Err(reason) => return Outcome::Silent(format!("`{}`: {reason}", prepared.name())),
        };
        let mut lengths: Vec<usize> = arguments.iter().map(|argument| argument.length).collect();
        transaction.apply_sizes(&mut lengths);
        arguments.iter_mut().zip(&lengths).for_each(|(argument, length)| argument.length = *length);
        *bytes = lengths.iter().map(|length| *length as u64).sum();
        let reached = arguments
            .iter()
            .map(|argument| Some(array::Argument { span: argument.span()?, writable: argument.writable }));
        let Some(reached) = reached.collect::<Option<Vec<_>>>() else {
            return Outcome::Failed(status::AIE_INSTRUCTION_ERROR, "no room to look at its arguments".into());
        };
        match self.array.run(&prepared, &reached, fault == Some(CommandFault::Garbage)) {
            Ended::Completed => Outcome::Completed,
            Ended::Failed(status, reason) => Outcome::Failed(status, reason),
            Ended::Silent(reason) => Outcome::Silent(reason),
        }
    }

    /// Reads the instructions of a command.
    fn fetch(&mut self, heaps: &[Arc<Bo>], transaction: &Transaction<'_>) -> Result<(), String> {
        let (address, words) = (transaction.instructions(), transaction.instruction_words());
        let unreachable = || format!("instructions at {address:#x}, {words} words, are not in a device heap");
        let offset = address.checked_sub(limits::DEV_MEM_BASE).ok_or_else(unreachable)? as usize;
        let length = words.checked_mul(4).ok_or_else(unreachable)?;
        let (heap, offset) = Heaps::find(heaps, offset, length).ok_or_else(unreachable)?;
        let span = heap.memory().and_then(|(memory, _)| memory.span(offset, length)).ok_or_else(unreachable)?;
        self.instructions.resize(length, 0);
        span.read(&mut self.instructions);
        Ok(())
    }
}

/// The first slot with a word count that npu4's firmware does not take.
fn odd_slot(device: &Device, list: &[Command]) -> Option<usize> {
    let applies = device.profile.even_slots && device.arch.dev_gen != NPU1;
    let is_odd = |command: &Command| command.words.len() < EVEN_BELOW && command.words.len() % 2 == 1;
    list.iter().position(is_odd).filter(|_| applies)
}

/// Generation of the array in npu1.
const NPU1: u8 = 3;
/// Slots of fewer words have to have an even number of them.
const EVEN_BELOW: usize = 15;

/// Memory that a command reaches.
struct Argument {
    bo: Arc<Bo>,
    /// Offset in the BO's memory.
    offset: usize,
    length: usize,
    writable: bool,
}

impl Argument {
    fn span(&self) -> Option<Span<'_>> {
        let (memory, start) = self.bo.memory()?;
        memory.span(start + self.offset, self.length)
    }
}

/// Resolves an argument: it has to lie inside of a BO that the submission names, where that BO is mapped. It reaches to the
/// end of the mapping.
fn argument(device: &Device, submission: &Submission, address: Option<u64>, index: usize) -> Result<Argument, String> {
    let address = address.ok_or_else(|| format!("argument {index} is missing"))?;
    let unreachable = |why: &str| format!("argument {index} at an address that {why}");
    if device.iova {
        let inside = |bo: &Arc<Bo>| {
            let offset = usize::try_from(address.checked_sub(bo.iova()?)?).ok()?;
            (offset < bo.length()).then(|| (bo.clone(), offset))
        };
        let (bo, offset) = submission
            .arguments
            .iter()
            .find_map(inside)
            .ok_or_else(|| unreachable("belongs to no BO of the submission"))?;
        let length = bo.length() - offset;
        return Ok(Argument { bo, offset, length, writable: true });
    }
    let mapped = device.mappings.find(address as usize).ok_or_else(|| unreachable("no BO is mapped at"))?;
    let inside = |bo: &Arc<Bo>| match bo.kind() {
        Kind::Dev { heap, offset, .. } => {
            let found = Arc::ptr_eq(heap, &mapped.bo) && (*offset..offset + bo.length()).contains(&mapped.offset);
            found.then(|| (mapped.offset - offset, bo.length() - (mapped.offset - offset)))
        }
        _ => bo.shares_memory(&mapped.bo).then(|| (mapped.offset, bo.length() - mapped.offset)),
    };
    let named = submission.arguments.iter().find_map(|bo| inside(bo).map(|(offset, rest)| (bo.clone(), offset, rest)));
    let (bo, offset, rest) = named.ok_or_else(|| unreachable("belongs to no BO of the submission"))?;
    let length = rest.min(mapped.available);
    Ok(Argument { bo, offset, length, writable: mapped.writable })
}
