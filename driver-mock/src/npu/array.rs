//! The array with what is needed to run a kernel on it: kernels are prepared once, and run on memory that the caller has found.
//!
//! The firmware's side of a command is the same whatever is in front of it, the ioctls of a kernel driver or the mailbox of a
//! PCI device: a PDI that the context has, an instruction stream, addresses. How addresses become memory is the caller's.

use super::compiled::{CompiledArray, Kernel, PdiPlace};
use super::fault_plan::CommandFault;
use super::transaction::{Transaction, WORDS_PER_ARGUMENT};
use super::{ChainCommand, ContextId, ContextPdi, descriptors, status};
use aie_device_memory::{Snapshots, Span, WritableSpan};
use aie_hal::KernelExecutor;
use aie_hal::arch::Arch;
use aie_hal::artifact::{ArtifactError, Digest, KernelArtifact};
use aie_hal::format::instructions::{ARRAY_OFFSET, InstructionStream, TRANSLATED_ARGUMENTS};
use aie_hal::format::pdi;
use aie_hal::host_function::{HostFunction, HostFunctionError, run_guarded};
use std::collections::HashMap;
use std::sync::Arc;

/// Kernels that stay prepared.
const PREPARED: usize = 4096;

/// A PDI as it was when a context was given it: the firmware loads it then.
#[derive(Debug, Clone)]
pub struct LoadedPdi {
    /// Where the context found it.
    pub address: u64,
    /// Of its bytes.
    pub digest: Digest,
    /// All of it.
    pub bytes: Arc<[u8]>,
}

/// Offset of the word of a PDI that holds the length of its partition, in words.
const PDI_TOTAL_LENGTH: usize = 0xd8;

impl LoadedPdi {
    /// A PDI of these bytes at an address.
    pub fn new(address: u64, bytes: Vec<u8>) -> Self {
        Self { address, digest: Digest::of(&bytes), bytes: bytes.into() }
    }

    /// As a context has it.
    pub fn in_context(&self, arch: &Arch) -> ContextPdi {
        ContextPdi { digest: self.digest, descriptors: descriptors(&self.bytes, arch) }
    }

    /// Bytes of a PDI that starts at `head`, by its header, of which there have to be [`LoadedPdi::HEADER`] bytes; more than there
    /// can be when the header says nonsense.
    pub fn length(head: &[u8]) -> usize {
        let word = head.get(PDI_TOTAL_LENGTH..PDI_TOTAL_LENGTH + 4).and_then(|word| word.try_into().ok());
        let words = u32::from_le_bytes(word.unwrap_or_default()) as usize;
        words.checked_mul(4).and_then(|bytes| bytes.checked_add(pdi::CDO_OFFSET)).unwrap_or(usize::MAX)
    }

    /// Bytes of the header that tell the length.
    pub const HEADER: usize = PDI_TOTAL_LENGTH + 4;
}

/// What a PDI and a list of instructions come to.
#[derive(Debug)]
struct Prepared {
    /// Its kernel's name, for messages.
    name: String,
    /// Number of arguments: what its instruction stream addresses.
    arguments: usize,
    kernel: Result<Kernel, HostFunctionError>,
}

impl Prepared {
    /// Bytes of the argument at `index`, where its kernel says.
    fn argument_bytes(&self, index: usize) -> Option<usize> {
        match self.kernel.as_ref().ok()? {
            Kernel::Reference(kernel) => kernel.argument_bytes(index),
            Kernel::Compiled(_) => None,
        }
    }
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Completed,
    /// The firmware answers with a status ([`status`]) and for a reason.
    Failed(u32, String),
    /// It never signals, as a design does that waits for what does not come.
    Silent(String),
    /// As planned, the firmware gives up ([`CommandFault::Abort`]), or is gone with the device ([`CommandFault::Lost`]).
    GivenUp(CommandFault),
}

/// How a list of commands ended.
#[derive(Debug)]
pub struct JobOutcome {
    /// Index of the last command that was begun.
    pub last: usize,
    /// How that one ended.
    pub outcome: Outcome,
    /// What was begun, for [`SimulatedNpu::submit_encoded`](super::SimulatedNpu::submit_encoded).
    pub charged: Vec<ChainCommand>,
}

/// A command as the firmware gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Index of the compute unit, which is that of its PDI in the context's configuration.
    pub unit: usize,
    /// Whether it runs control code of an ELF file instead of an instruction stream.
    pub is_elf: bool,
    /// Its words, see [`Transaction`].
    pub words: Vec<u32>,
}

/// What a command's address leads to is nothing the device can reach: why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfReach(pub String);

impl From<&str> for OutOfReach {
    fn from(reason: &str) -> Self {
        Self(reason.into())
    }
}

/// The memory that a command's addresses lead to, as the interface in front of the array has it.
pub trait CommandMemory {
    /// Where an argument is.
    type Place;

    /// Reads this many words of instructions at a device address into `target`.
    ///
    /// # Errors
    /// Why they are out of reach.
    fn instructions(&self, address: u64, words: usize, target: &mut Vec<u8>) -> Result<(), OutOfReach>;

    /// Where the argument at an address is, and the bytes from there on that the device can reach.
    ///
    /// # Errors
    /// Why it is out of reach.
    fn argument(&self, address: u64) -> Result<(Self::Place, usize), OutOfReach>;

    /// The bytes of an argument: `length` by the command or by its memory, unless those that its kernel names are to count.
    fn length(&self, _kernel: Option<usize>, length: usize) -> usize {
        length
    }

    /// The memory of an argument of this length.
    fn reach<'a>(&'a self, place: &'a Self::Place, length: usize) -> Option<Span<'a>>;
}

/// Where instructions are: PDI, device address, bytes.
type InstructionPlace = (Digest, u64, usize);

/// Whether firmware gets from a stream all addresses that the array needs.
fn has_late_addresses(stream: &[u8]) -> bool {
    InstructionStream::parse(stream)
        .is_ok_and(|stream| stream.argument_count() <= TRANSLATED_ARGUMENTS.into() || stream.is_for_firmware())
}

/// A context with what it was configured with.
#[derive(Debug, Clone, Copy)]
pub struct Configured<'a> {
    /// Which.
    pub id: ContextId,
    /// Its compute units.
    pub units: &'a [LoadedPdi],
}

/// The array: who holds it has it to himself.
#[derive(Debug)]
pub struct Array {
    arch: Arc<Arch>,
    executor: Arc<dyn KernelExecutor>,
    compiled: CompiledArray,
    snapshots: Snapshots,
    by_place: HashMap<InstructionPlace, (Vec<u8>, Arc<Prepared>)>,
    by_content: HashMap<Digest, Arc<Prepared>>,
    /// Room for the instructions of a command.
    instructions: Vec<u8>,
}

impl Array {
    /// An array of generation `arch`, whose kernels `executor` executes.
    pub fn new(arch: Arc<Arch>, executor: Arc<dyn KernelExecutor>) -> Self {
        Self {
            compiled: CompiledArray::new(Arc::clone(&arch)),
            arch,
            executor,
            snapshots: Snapshots::default(),
            by_place: HashMap::new(),
            by_content: HashMap::new(),
            instructions: Vec::new(),
        }
    }

    /// Runs commands of a context until one does not complete. `fault` is called before each for what is
    /// planned for it.
    pub fn run<M: CommandMemory>(
        &mut self,
        context: Configured<'_>,
        commands: &[Command],
        memory: &M,
        mut fault: impl FnMut() -> Option<CommandFault>,
    ) -> JobOutcome {
        let charged = Vec::with_capacity(commands.len());
        let mut job = JobOutcome { last: 0, outcome: Outcome::Completed, charged };
        let mut instructions = std::mem::take(&mut self.instructions);
        for (index, command) in commands.iter().enumerate() {
            let arguments = command.words.len() / WORDS_PER_ARGUMENT;
            let mut charged = ChainCommand { pdi: command.unit, arguments, bytes: 0, busy_ns: 0, operations: 0 };
            let ended = self.execute(context, command, memory, fault(), &mut instructions, &mut charged);
            (job.last, job.outcome) = (index, ended.unwrap_or_else(|failed| failed));
            if command.unit < context.units.len() {
                job.charged.push(charged);
            }
            if job.outcome != Outcome::Completed {
                break;
            }
        }
        self.instructions = instructions;
        job
    }

    fn execute<M: CommandMemory>(
        &mut self,
        context: Configured<'_>,
        command: &Command,
        memory: &M,
        fault: Option<CommandFault>,
        instructions: &mut Vec<u8>,
        charged: &mut ChainCommand,
    ) -> Result<Outcome, Outcome> {
        match fault {
            Some(CommandFault::Timeout) => return Err(Outcome::Silent("the fault plan says so".into())),
            Some(CommandFault::Status(status)) => return Err(Outcome::Failed(status, "as planned".into())),
            Some(CommandFault::Abort | CommandFault::Lost) => {
                return Err(fault.map_or(Outcome::Completed, Outcome::GivenUp));
            }
            Some(CommandFault::Untouched) => return Ok(Outcome::Completed),
            Some(CommandFault::Garbage) | None => {}
        }
        if command.is_elf {
            let why = "this array runs no control code of an ELF file";
            return Err(Outcome::Failed(status::AIE_INSTRUCTION_ERROR, why.into()));
        }
        let invalid = |why| Outcome::Failed(status::INVALID_PARAMETER, why);
        let units = context.units;
        let unit = units.get(command.unit);
        let unit =
            unit.ok_or_else(|| invalid(format!("compute unit {} of a context with {}", command.unit, units.len())))?;
        let transaction = Transaction::parse(&command.words).map_err(|why| invalid(why.to_string()))?;
        let address = transaction.instructions();
        memory
            .instructions(address, transaction.instruction_words(), instructions)
            .map_err(|why| Outcome::Silent(why.0))?;
        if !address.is_multiple_of(STREAM_ALIGNMENT) {
            return Err(Outcome::Silent(format!(
                "instructions at {address:#x}, which is no multiple of {STREAM_ALIGNMENT}"
            )));
        }
        if is_empty_stream(instructions) {
            return Ok(Outcome::Completed);
        }
        let prepared = self.prepare(unit, address, instructions).map_err(|why| Outcome::Silent(why.to_string()))?;
        let silent = |why: String| Outcome::Silent(format!("`{}`: {why}", prepared.name));
        let kernel = prepared.kernel.as_ref().map_err(|reason| silent(reason.to_string()))?;
        let place = |index| {
            let address = transaction.argument(index).ok_or_else(|| "it is missing".into());
            address.and_then(|address| memory.argument(address)).map_err(|why| format!("argument {index}: {why}"))
        };
        let places = (0..prepared.arguments).map(place).collect::<Result<Vec<_>, _>>().map_err(silent)?;
        let mut lengths: Vec<usize> = places.iter().map(|(_, length)| *length).collect();
        transaction.apply_sizes(&mut lengths);
        let mut arguments = Vec::with_capacity(places.len());
        for (index, ((place, _), length)) in places.iter().zip(lengths).enumerate() {
            let length = memory.length(prepared.argument_bytes(index), length);
            let argument = memory.reach(place, length);
            arguments
                .push(argument.ok_or_else(|| silent(format!("argument {index}: {length} bytes are out of reach")))?);
            charged.bytes += length as u64;
        }
        let garbage = fault == Some(CommandFault::Garbage);
        let place = PdiPlace { context: context.id, address: unit.address };
        Ok(self.call(place, &prepared.name, kernel, &arguments, garbage, charged))
    }

    /// The kernel of a PDI with the instructions at a device address.
    fn prepare(&mut self, pdi: &LoadedPdi, address: u64, instructions: &[u8]) -> Result<Arc<Prepared>, ArtifactError> {
        let place = (pdi.digest, address, instructions.len());
        if let Some((before, prepared)) = self.by_place.get(&place)
            && before == instructions
        {
            return Ok(prepared.clone());
        }
        let (name, arch) = (format!("pdi {:.12}", pdi.digest.to_string()), &self.arch);
        let artifact = KernelArtifact::new(name, &*arch.name, arch.dev_gen, pdi.bytes.clone(), instructions)?;
        let prepared = match self.by_content.get(artifact.identity()) {
            Some(prepared) => prepared.clone(),
            None => {
                let kernel = Kernel::prepare(&artifact, &*self.executor).and_then(|kernel| match kernel {
                    // Nothing executes this stream, but on an NPU it would do nothing to the late arguments.
                    Kernel::Reference(_) if !has_late_addresses(instructions) => Err(HostFunctionError::NotExecutable(
                        format!(
                            "its stream addresses arguments from {TRANSLATED_ARGUMENTS} on without the array's offset {ARRAY_OFFSET:#x}"
                        ),
                    )),
                    kernel => Ok(kernel),
                });
                let name = match &kernel {
                    Ok(Kernel::Reference(kernel)) => kernel.name().to_owned(),
                    _ => artifact.name().to_owned(),
                };
                Arc::new(Prepared { name, arguments: artifact.argument_count(), kernel })
            }
        };
        if self.by_place.len() >= PREPARED {
            self.by_place.clear();
            self.by_content.clear();
        }
        self.by_content.insert(*artifact.identity(), prepared.clone());
        self.by_place.insert(place, (instructions.to_vec(), prepared.clone()));
        Ok(prepared)
    }

    /// Runs a kernel. With `garbage` its outputs get nonsense afterwards.
    fn call(
        &mut self,
        pdi: PdiPlace,
        name: &str,
        kernel: &Kernel,
        arguments: &[Span<'_>],
        garbage: bool,
        charged: &mut ChainCommand,
    ) -> Outcome {
        match kernel {
            Kernel::Reference(kernel) => self.call_reference(name, &**kernel, arguments, garbage),
            Kernel::Compiled(artifact) => {
                match self.compiled.run(pdi, artifact, artifact.instructions(), arguments, None) {
                    Ok(completed) => {
                        (charged.busy_ns, charged.operations) = (completed.busy_ns, completed.operations);
                        if garbage {
                            completed.written(arguments).filter_map(Span::writable).for_each(overwrite_with_nonsense);
                        }
                        Outcome::Completed
                    }
                    Err(reason) => Outcome::Silent(format!("`{name}`: {reason}")),
                }
            }
        }
    }

    /// Runs a reference kernel, whose last arguments are its outputs.
    fn call_reference(
        &mut self,
        name: &str,
        kernel: &dyn HostFunction,
        arguments: &[Span<'_>],
        garbage: bool,
    ) -> Outcome {
        let outputs = kernel.output_count();
        if outputs == 0 || outputs > arguments.len() {
            return Outcome::Silent(format!("`{name}` has no output"));
        }
        let (inputs, outputs) = arguments.split_at(arguments.len() - outputs);
        let Some(outputs) = outputs.iter().map(|output| output.writable()).collect::<Option<Vec<_>>>() else {
            return Outcome::Silent(format!("`{name}`: its output is mapped for reading only"));
        };
        let result = self.snapshots.call(inputs, &outputs, |inputs, outputs| {
            let result = run_guarded(kernel, inputs, outputs);
            if garbage {
                outputs.iter_mut().for_each(|output| fill_with_nonsense(output));
            }
            result
        });
        let result = result.map_or_else(|| Err("its outputs overlap".into()), |ran| ran.map_err(|e| e.to_string()));
        match result {
            Ok(()) => Outcome::Completed,
            Err(reason) => Outcome::Failed(status::AIE_INSTRUCTION_ERROR, format!("`{name}`: {reason}")),
        }
    }
}

/// Where instruction streams may begin. Of ELF files it is known that others are accepted and never signal (ROCm/rocm-systems issue
/// 11668); the same is assumed of all.
const STREAM_ALIGNMENT: u64 = 16 << 10;

/// Bytes of a stream's header.
const STREAM_HEADER: usize = 16;

/// Whether a stream has no operations: the firmware then has nothing to do, and nothing to wait for.
fn is_empty_stream(instructions: &[u8]) -> bool {
    instructions.len() == STREAM_HEADER
        && InstructionStream::parse(instructions).is_ok_and(|stream| stream.operations().next().is_none())
}

pub(crate) fn overwrite_with_nonsense(output: WritableSpan<'_>) {
    let mut bytes = vec![0; output.length()];
    fill_with_nonsense(&mut bytes);
    output.write(&bytes);
}

pub(crate) fn fill_with_nonsense(bytes: &mut [u8]) {
    fastrand::Rng::with_seed(1).fill(bytes);
}
