//! Running jobs: the firmware and the array.

use super::Device;
use super::bo::{Bo, Kind};
use super::chain::{Command, Submission, read};
use super::context::Pdi;
use super::end::{ARRAY_ERROR, INVALID_PARAMETER, Written};
use crate::faults::CommandFault;
use aie_device_memory::{Snapshots, Span};
use aie_driver_mock::npu::{ChainCommand, ContextId};
use aie_hal::artifact::{Digest, KernelArtifact};
use aie_hal::format::instructions::InstructionStream;
use aie_hal::kernel::Kernel;
use amdxdna_sys::ert::{self, opcode};
use amdxdna_sys::limits;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Kernels that are kept prepared.
const PREPARED: usize = 4096;

/// What a PDI and a list of instructions come to.
#[derive(Debug)]
struct Prepared {
    name: String,
    arguments: usize,
    kernel: Result<Arc<dyn Kernel>, String>,
}

/// Where instructions are: PDI, device address, words.
type Place = (Digest, u64, usize);

/// The array: who holds it has it to himself.
#[derive(Debug, Default)]
pub(super) struct Array {
    snapshots: Snapshots,
    instructions: Vec<u8>,
    /// By place, with the instructions that were there.
    by_place: HashMap<Place, (Vec<u8>, Arc<Prepared>)>,
    by_content: HashMap<Digest, Arc<Prepared>>,
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

/// Offset of the word of a PDI that holds the length of its partition, in words.
const PDI_TOTAL_LENGTH: usize = 0xd8;
/// Where the partition starts.
const PDI_PARTITION: usize = aie_hal::format::pdi::CDO_OFFSET;

/// Bytes of the PDI at the start of a BO, by its header; all of the BO when the header says more.
pub(super) fn pdi_length(bo: &Bo) -> usize {
    let words = bo.word(PDI_TOTAL_LENGTH).unwrap_or(0) as usize;
    words.checked_mul(4).and_then(|bytes| bytes.checked_add(PDI_PARTITION)).unwrap_or(usize::MAX).min(bo.length())
}

impl Array {
    /// Runs a job of a context.
    pub(super) fn run(&mut self, device: &Device, npu: ContextId, submission: &Submission) -> Ran {
        let (counts, profile) = (&device.journal.counts, &device.profile);
        let written = Written::new(profile, submission);
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
            return Outcome::Failed(ARRAY_ERROR, why);
        }
        let Some(unit) = submission.units.get(command.unit) else {
            let configured = submission.units.len();
            return Outcome::Failed(
                INVALID_PARAMETER,
                format!("compute unit {} of a context with {configured}", command.unit),
            );
        };
        // The firmware has 32-bit addresses; ROCR leaves the upper half of the user address where it was.
        let [opcode, _, address, _, words, ..] = command.words[..] else {
            return Outcome::Failed(INVALID_PARAMETER, format!("{} words are no transaction", command.words.len()));
        };
        if opcode != ert::TRANSACTION {
            let why = format!("opcode {opcode} in the arguments, {} runs instructions", ert::TRANSACTION);
            return Outcome::Failed(INVALID_PARAMETER, why);
        }
        if is_empty_stream(&submission.heap, u64::from(address), words as usize) {
            return Outcome::Completed;
        }
        let prepared = match self.prepare(device, unit, &submission.heap, u64::from(address), words as usize) {
            Ok(prepared) => prepared,
            Err(reason) => return Outcome::Silent(reason),
        };
        let kernel = match &prepared.kernel {
            Ok(kernel) => kernel,
            Err(reason) => return Outcome::Silent(format!("`{}`: {reason}", prepared.name)),
        };
        let count = prepared.arguments;
        let arguments = (0..count).map(|index| argument(device, submission, command, index));
        let mut arguments: Vec<Argument> = match arguments.collect() {
            Ok(arguments) => arguments,
            Err(reason) => return Outcome::Silent(format!("`{}`: {reason}", prepared.name)),
        };
        apply_sizes(&mut arguments, command);
        *bytes = arguments.iter().map(|argument| argument.length as u64).sum();
        let spans: Option<Vec<Span<'_>>> = arguments.iter().map(Argument::span).collect();
        let Some(spans) = spans else { return Outcome::Failed(ARRAY_ERROR, "no room to look at its arguments".into()) };
        let outputs = kernel.output_count();
        if outputs == 0 || outputs > spans.len() {
            return Outcome::Silent(format!("`{}` has no output", prepared.name));
        }
        let (inputs, outputs) = spans.split_at(spans.len() - outputs);
        if !arguments[inputs.len()..].iter().all(|argument| argument.writable) {
            return Outcome::Silent(format!("`{}`: its output is mapped for reading only", prepared.name));
        }
        let result = self.snapshots.call(inputs, outputs, |inputs, outputs| {
            let result = catch_unwind(AssertUnwindSafe(|| kernel.run_all(inputs, outputs)));
            if fault == Some(CommandFault::Garbage) {
                outputs.iter_mut().for_each(|output| garbage(output));
            }
            match result {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err("its kernel panicked".into()),
            }
        });
        match result.unwrap_or_else(|| Err("its outputs overlap".into())) {
            Ok(()) => Outcome::Completed,
            Err(reason) => Outcome::Failed(ARRAY_ERROR, format!("`{}`: {reason}", prepared.name)),
        }
    }

    /// The kernel of a PDI with the instructions at a device address.
    fn prepare(
        &mut self,
        device: &Device,
        unit: &Pdi,
        heap: &Bo,
        address: u64,
        words: usize,
    ) -> Result<Arc<Prepared>, String> {
        let unreachable = || format!("instructions at {address:#x}, {words} words, are not in the device heap");
        let offset = address.checked_sub(limits::DEV_MEM_BASE).ok_or_else(unreachable)? as usize;
        let length = words.checked_mul(4).ok_or_else(unreachable)?;
        let span = heap.memory().and_then(|(memory, _)| memory.span(offset, length)).ok_or_else(unreachable)?;
        self.instructions.resize(length, 0);
        span.read(&mut self.instructions);
        let place = (unit.digest, address, words);
        if let Some((instructions, prepared)) = self.by_place.get(&place)
            && *instructions == self.instructions
        {
            return Ok(prepared.clone());
        }
        let name = format!("pdi {:.12}", unit.digest.to_string());
        let arch = device.arch();
        let artifact = KernelArtifact::new(name, &*arch.name, arch.dev_gen, unit.bytes.clone(), &*self.instructions);
        let artifact = artifact.map_err(|error| error.to_string())?;
        let prepared = match self.by_content.get(artifact.identity()) {
            Some(prepared) => prepared.clone(),
            None => {
                let kernel = device.executor.prepare(&artifact).map_err(|error| error.to_string());
                let name =
                    kernel.as_ref().map_or_else(|_| artifact.name().to_owned(), |kernel| kernel.name().to_owned());
                Arc::new(Prepared { name, arguments: artifact.argument_count(), kernel })
            }
        };
        if self.by_place.len() >= PREPARED {
            self.by_place.clear();
            self.by_content.clear();
        }
        self.by_content.insert(*artifact.identity(), prepared.clone());
        self.by_place.insert(place, (self.instructions.clone(), prepared.clone()));
        Ok(prepared)
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

/// Whether a stream has no operations: the firmware then has nothing to do, and nothing to wait for.
fn is_empty_stream(heap: &Bo, address: u64, words: usize) -> bool {
    let mut header = [0; 4 * HEADER_WORDS];
    let offset = address.checked_sub(limits::DEV_MEM_BASE).map(|offset| offset as usize);
    let found = offset.filter(|_| words == HEADER_WORDS).zip(heap.memory());
    let Some(span) = found.and_then(|(offset, (memory, _))| memory.span(offset, header.len())) else { return false };
    span.read(&mut header);
    InstructionStream::parse(&header).is_ok_and(|stream| stream.operations().next().is_none())
}

/// Words of a stream's header.
const HEADER_WORDS: usize = 4;
/// Words in front of the arguments: opcode, instruction address, instruction count.
const FIXED_WORDS: usize = 5;
/// An address of two words, and a size.
const WORDS_PER_ARGUMENT: usize = 3;

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

/// Applies the sizes that follow all addresses. The firmware does not look at them: a buffer descriptor says how far the array
/// reads. ROCR 7.2.4 leaves the last two out when a packet does not count the opcode, and XRT has further addresses in their place;
/// so they count only when all of them are possible.
fn apply_sizes(arguments: &mut [Argument], command: &Command) {
    let first = FIXED_WORDS + 2 * arguments.len();
    let size = |index: usize| command.words.get(first + index).map_or(0, |size| *size as usize);
    if arguments.iter().enumerate().any(|(index, argument)| size(index) > argument.length) {
        return;
    }
    for (index, argument) in arguments.iter_mut().enumerate() {
        if size(index) > 0 {
            argument.length = size(index);
        }
    }
}

/// Resolves an argument: it has to lie inside of a BO that the submission names, where that BO is mapped. It reaches to the
/// end of the mapping.
fn argument(device: &Device, submission: &Submission, command: &Command, index: usize) -> Result<Argument, String> {
    let word = |index: usize| command.words.get(index).copied();
    let at = FIXED_WORDS + 2 * index;
    let (low, high) = word(at).zip(word(at + 1)).ok_or_else(|| format!("argument {index} is missing"))?;
    let address = u64::from(high) << 32 | u64::from(low);
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
        _ => Arc::ptr_eq(bo, &mapped.bo).then(|| (mapped.offset, bo.length() - mapped.offset)),
    };
    let named = submission.arguments.iter().find_map(|bo| inside(bo).map(|(offset, rest)| (bo.clone(), offset, rest)));
    let (bo, offset, rest) = named.ok_or_else(|| unreachable("belongs to no BO of the submission"))?;
    let length = rest.min(mapped.available);
    Ok(Argument { bo, offset, length, writable: mapped.writable })
}

/// Repeatable nonsense.
fn garbage(bytes: &mut [u8]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for byte in bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 24) as u8;
    }
}
