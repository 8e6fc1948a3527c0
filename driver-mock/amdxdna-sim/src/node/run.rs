//! Running commands: the firmware and the array.
//!
//! A command is run when it is submitted, in the caller's thread, one submission after the other. Whether a caller may see
//! it completed is a matter of device time: a submission that takes longer than a caller waits is ETIME, as on hardware.
//!
//! A command that never signals (an artifact that cannot be executed, an address the device cannot reach, a planned timeout)
//! stops the array. No real time passes: a wait that is shorter than the watchdog lets its time pass and gives ETIME, a
//! longer one lets the watchdog's time pass, after which chain and command have state TIMEOUT and the context is set up again.

use super::Device;
use super::bo::{Bo, Kind};
use super::chain::{Command, Submission, read, set_error_index, set_state};
use super::context::Pdi;
use super::file::File;
use crate::abi::{ert, limits};
use crate::errno::Errno;
use crate::faults::CommandFault;
use aie_device_memory::{Snapshots, Span};
use aie_driver_mock::npu::{ChainCommand, ContextId, WATCHDOG_NS};
use aie_hal::artifact::{Digest, KernelArtifact};
use aie_hal::kernel::Kernel;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    stopped: Option<Stopped>,
    /// For each context its last submission and the device time that is left until it has completed.
    running: HashMap<ContextId, (u64, u64)>,
}

/// A command that never signals.
#[derive(Debug)]
struct Stopped {
    npu: ContextId,
    sequence: u64,
    remaining_ns: u64,
    chain: Arc<Bo>,
    /// The command in it, when it is a chain.
    command: Option<(usize, Arc<Bo>)>,
    completed: Arc<AtomicU64>,
}

/// How a command ended.
enum Outcome {
    Completed,
    /// The firmware reports an error.
    Failed(String),
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

/// Lets the watchdog end what `npu` has running.
pub(super) fn settle(device: &Device, npu: ContextId) {
    let mut array = device.array.lock();
    if array.stopped.as_ref().is_some_and(|stopped| stopped.npu == npu) {
        array.watchdog(device);
    }
    array.running.remove(&npu);
}

impl Array {
    /// Runs a submission.
    pub(super) fn run(&mut self, device: &Device, file: &File, submission: Submission) {
        // The array runs one thing at a time.
        self.watchdog(device);
        let Submission { npu, sequence, chain, completed, .. } = &submission;
        set_state(chain, ert::NEW);
        let (most, buffer) = (device.arch.limits.commands_per_chain, device.arch.limits.chain_buffer_bytes);
        let commands = match read(chain, most, buffer, |handle| file.bo(handle)) {
            Ok(commands) => commands,
            Err(why) => {
                device.journal.counts.chains_not_run.fetch_add(1, Ordering::Relaxed);
                device.journal.log(|| format!("a submission is dropped, its state stays NEW: {why}"));
                completed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let (mut charged, mut outcome, mut last) = (Vec::with_capacity(commands.list.len()), Outcome::Completed, 0);
        for (index, command) in commands.list.iter().enumerate() {
            last = index;
            let mut bytes = 0;
            outcome = self.command(device, &submission, command, &mut bytes);
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
        let ns = device.npu.submit_encoded(*npu, &charged, commands.buffer_bytes).unwrap_or(0);
        self.running.insert(*npu, (*sequence, ns));
        let counts = &device.journal.counts;
        let command = commands.list.get(last).filter(|_| commands.is_chain).map(|command| (last, command.bo.clone()));
        let (state, reason) = match outcome {
            Outcome::Completed => (ert::COMPLETED, None),
            Outcome::Failed(reason) => {
                counts.commands_failed.fetch_add(1, Ordering::Relaxed);
                if commands.is_chain {
                    set_error_index(chain, last);
                }
                (ert::ERROR, Some(reason))
            }
            Outcome::Aborted => {
                counts.commands_aborted.fetch_add(1, Ordering::Relaxed);
                (ert::ABORT, Some("aborted, as planned".into()))
            }
            Outcome::Lost => {
                device.lose();
                (ert::ABORT, Some("the device is lost, as planned".into()))
            }
            Outcome::Silent(reason) => {
                counts.commands_timed_out.fetch_add(1, Ordering::Relaxed);
                device.journal.log(|| format!("command {last} of a submission never signals: {reason}"));
                self.stopped = Some(Stopped {
                    npu: *npu,
                    sequence: *sequence,
                    remaining_ns: WATCHDOG_NS,
                    chain: chain.clone(),
                    command,
                    completed: completed.clone(),
                });
                return;
            }
        };
        if let Some(reason) = reason {
            device.journal.log(|| format!("command {last} of a submission: {reason}"));
        }
        set_state(chain, state);
        completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for a submission, `timeout` milliseconds of device time or, with 0, for ever.
    pub(super) fn wait(&mut self, device: &Device, npu: ContextId, sequence: u64, timeout: u32) -> Result<(), Errno> {
        let patience = if timeout == 0 { u64::MAX } else { u64::from(timeout) * 1_000_000 };
        if let Some((last, remaining)) = self.running.get_mut(&npu)
            && *last == sequence
        {
            if *remaining > patience {
                *remaining -= patience;
                let left = *remaining;
                device.journal.log(|| format!("WAIT_CMD: {left} ns of device time are left after {timeout} ms"));
                return Err(Errno::ETIME);
            }
            *remaining = 0;
        }
        let Some(stopped) = self.stopped.as_mut().filter(|s| s.npu == npu && s.sequence <= sequence) else {
            return Ok(());
        };
        if stopped.remaining_ns > patience {
            stopped.remaining_ns -= patience;
            device.npu.charge_idle(patience);
            return Err(Errno::ETIME);
        }
        self.watchdog(device);
        Ok(())
    }

    /// Lets the watchdog end the command that has stopped the array, if there is one.
    fn watchdog(&mut self, device: &Device) {
        let Some(stopped) = self.stopped.take() else { return };
        // The context is set up again.
        device.npu.charge_idle(stopped.remaining_ns + device.arch.cost.context_create_ns);
        set_state(&stopped.chain, ert::TIMEOUT);
        let failed = match &stopped.command {
            Some((index, command)) => {
                set_error_index(&stopped.chain, *index);
                set_state(command, ert::TIMEOUT);
                command
            }
            None => &stopped.chain,
        };
        // The health report takes the place of the command: version, generation, and what the firmware knew.
        for (index, word) in [1, 0, u32::MAX, 0, 0, 0, 0, 0].into_iter().enumerate() {
            failed.set_word(4 + 4 * index, word);
        }
        stopped.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs one command; `bytes` is what it moves.
    fn command(&mut self, device: &Device, submission: &Submission, command: &Command, bytes: &mut u64) -> Outcome {
        let fault = device.journal.command();
        device.journal.counts.commands_run.fetch_add(1, Ordering::Relaxed);
        match fault {
            Some(CommandFault::Timeout) => return Outcome::Silent("the fault plan says so".into()),
            Some(CommandFault::Abort) => return Outcome::Aborted,
            Some(CommandFault::Lost) => return Outcome::Lost,
            Some(CommandFault::Garbage) | None => {}
        }
        let Some(unit) = submission.units.get(command.unit) else {
            let configured = submission.units.len();
            return Outcome::Failed(format!("compute unit {} of a context with {configured}", command.unit));
        };
        // The firmware has 32-bit addresses; ROCR leaves the upper half of the user address where it was.
        let [opcode, _, address, _, words, ..] = command.words[..] else {
            return Outcome::Failed(format!("{} words are no transaction", command.words.len()));
        };
        if opcode != ert::TRANSACTION {
            return Outcome::Failed(format!(
                "opcode {opcode} in the arguments, {} runs instructions",
                ert::TRANSACTION
            ));
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
        let arguments = (0..count).map(|index| argument(device, submission, command, count, index));
        let arguments: Vec<Argument> = match arguments.collect() {
            Ok(arguments) => arguments,
            Err(reason) => return Outcome::Silent(format!("`{}`: {reason}", prepared.name)),
        };
        *bytes = arguments.iter().map(|argument| argument.length as u64).sum();
        let spans: Option<Vec<Span<'_>>> = arguments.iter().map(Argument::span).collect();
        let Some(spans) = spans else { return Outcome::Failed("no room to look at its arguments".into()) };
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
            Err(reason) => Outcome::Failed(format!("`{}`: {reason}", prepared.name)),
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

/// Resolves an argument: it has to lie inside of a BO that the submission names, where that BO is mapped.
/// Without a size it reaches to the end of the mapping.
fn argument(
    device: &Device,
    submission: &Submission,
    command: &Command,
    count: usize,
    index: usize,
) -> Result<Argument, String> {
    let word = |index: usize| command.words.get(index).copied();
    let at = FIXED_WORDS + 2 * index;
    let (low, high) = word(at).zip(word(at + 1)).ok_or_else(|| format!("argument {index} is missing"))?;
    let address = u64::from(high) << 32 | u64::from(low);
    // All sizes follow all addresses. ROCR 7.2.4 copies so many words of a packet's payload as the packet's count says, so a
    // packet that does not count the opcode loses its last two sizes; hardware does not look at them.
    let stated = word(FIXED_WORDS + 2 * count + index).filter(|size| *size > 0);
    let unreachable = |why: &str| format!("argument {index} at an address that {why}");
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
    let available = rest.min(mapped.available);
    let length = stated.map_or(available, |size| size as usize);
    if length > available {
        return Err(format!("argument {index} has {length} bytes, its BO {available} from there"));
    }
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
