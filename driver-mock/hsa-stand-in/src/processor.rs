//! The packet processor of an agent: what happens between a doorbell and the completion signals.
//!
//! All packets that are pending become one command chain. First every packet is checked, then the queue's hardware context
//! is recreated if a PDI needs a compute unit, then the chain runs in order. A chain that is rejected runs no packet; one
//! that fails has run those before the failing one. Either way the queue has met its error and processes nothing more.

use crate::faults::LibraryFault;
use crate::memory::{Pool, Range};
use crate::queue::{Progress, Queue};
use crate::runtime::{Agent, Runtime};
use crate::settings::{FailureStyle, Processing};
use aie_device_memory::Span;
use aie_driver_mock::npu::array::{self, CommandMemory, Configured, LoadedPdi, OutOfReach, Outcome};
use aie_driver_mock::npu::fault_plan::CommandFault;
use aie_driver_mock::npu::{ChainCommand, ContextId, ContextPdi};
use hsa_sys::*;
use std::sync::atomic::Ordering;

/// Commands that published firmware takes in one chain; with one more it fails.
const FIRMWARE_CHAIN: usize = 40;
/// The opcode in a command's words that runs instructions.
const TRANSACTION: u32 = 3;

/// A packet that passed the checks.
#[derive(Debug)]
struct Command {
    signal: hsa_signal_t,
    pdi: usize,
    instructions: Vec<u8>,
    arguments: Vec<(Range, usize)>,
}

impl CommandMemory for Command {
    /// The index of an argument.
    type Place = usize;

    fn instructions(&self, _address: u64, _words: usize, target: &mut Vec<u8>) -> Result<(), OutOfReach> {
        target.clone_from(&self.instructions);
        Ok(())
    }

    fn argument(&self, address: u64) -> Result<(usize, usize), OutOfReach> {
        let index = address as usize;
        self.arguments.get(index).map(|(_, length)| (index, *length)).ok_or_else(|| "it is missing".into())
    }

    fn reach<'a>(&'a self, place: &'a usize, length: usize) -> Option<Span<'a>> {
        self.arguments.get(*place)?.0.span(length)
    }
}

/// Why a chain was rejected.
struct Rejected {
    status: hsa_status_t,
    reason: String,
}

impl Rejected {
    fn format(reason: impl Into<String>) -> Self {
        Self { status: HSA_STATUS_ERROR_INVALID_PACKET_FORMAT, reason: reason.into() }
    }
}

type Packet = hsa_amd_aie_kernel_dispatch_packet_t;

/// Processes what is pending on `queue`.
pub fn ring(runtime: &Runtime, agent: &Agent, queue: &Queue) {
    let mut progress = queue.progress.lock();
    let (first, last) = (queue.read.load(Ordering::Relaxed), queue.write.load(Ordering::Acquire));
    if progress.failed || last <= first {
        return;
    }
    runtime.counts.doorbells.fetch_add(1, Ordering::Relaxed);
    if runtime.faults.hits(LibraryFault::Hang) {
        runtime.log("this doorbell hangs, as its fault plan says");
        loop {
            std::thread::park();
        }
    }
    if runtime.settings.processing == Processing::Never {
        return;
    }
    let (completed, ended) = chain(runtime, agent, queue, &mut progress, first, last);
    for index in first..last {
        queue.release(index);
    }
    queue.read.store(last, Ordering::Release);
    runtime.counts.packets.fetch_add(completed, Ordering::Relaxed);
    let Err((status, reason)) = ended else { return };
    runtime.log(&reason);
    runtime.counts.queue_errors.fetch_add(1, Ordering::Relaxed);
    progress.failed = true;
    drop(progress);
    queue.report(status);
}

/// Runs the packets from `first` to `last`. Returns how many completed, and the queue's error.
fn chain(
    runtime: &Runtime,
    agent: &Agent,
    queue: &Queue,
    progress: &mut Progress,
    first: u64,
    last: u64,
) -> (u64, Result<(), (hsa_status_t, String)>) {
    let known = progress.pdis.len();
    let (context, commands) = match prepare(runtime, agent, queue, progress, first, last) {
        Ok(prepared) => prepared,
        Err(rejected) => {
            // The context was not given the compute units of a chain that was rejected.
            progress.pdis.truncate(known);
            let error = Err((rejected.status, format!("packets {first} to {last} are rejected: {}", rejected.reason)));
            for index in first..last {
                report(runtime, queue.packet(index).completion_signal, HSA_AMD_AIE_ERT_STATE_ERROR);
            }
            return (0, error);
        }
    };
    let mut array = agent.array.lock();
    for (at, command) in commands.iter().enumerate() {
        match execute(runtime, agent, &mut array, context, &progress.pdis, command) {
            Ok(()) => {
                if let Some(signal) = runtime.signal(command.signal) {
                    signal.update(|value| value.wrapping_sub(1));
                }
            }
            Err((state, reason)) => {
                report(runtime, command.signal, state);
                // Those behind it have not run.
                commands[at + 1..].iter().for_each(|c| report(runtime, c.signal, HSA_AMD_AIE_ERT_STATE_ABORT));
                let reason = format!("packet {}: {state}: {reason}", first + at as u64);
                return (at as u64, Err((HSA_STATUS_ERROR, reason)));
            }
        }
    }
    (commands.len() as u64, Ok(()))
}

/// Tells the end of a packet that did not complete.
fn report(runtime: &Runtime, signal: hsa_signal_t, state: hsa_amd_aie_ert_state) {
    if runtime.settings.failure == FailureStyle::Negative
        && let Some(signal) = runtime.signal(signal)
    {
        signal.update(|_| -hsa_signal_value_t::from(state.0));
    }
}

/// Checks packets, gives their PDIs compute units, and hands the chain to the silicon.
fn prepare(
    runtime: &Runtime,
    agent: &Agent,
    queue: &Queue,
    progress: &mut Progress,
    first: u64,
    last: u64,
) -> Result<(ContextId, Vec<Command>), Rejected> {
    let count = usize::try_from(last - first).unwrap_or(usize::MAX);
    if last - first > u64::from(queue.public.size) {
        return Err(Rejected::format(format!("{count} packets are pending in a ring of {}", queue.public.size)));
    }
    if count > FIRMWARE_CHAIN {
        let reason = format!("{count} packets at one doorbell; firmware takes {FIRMWARE_CHAIN}");
        return Err(Rejected { status: HSA_STATUS_ERROR, reason });
    }
    let known = progress.pdis.len();
    let mut commands = Vec::with_capacity(count);
    for index in first..last {
        let command = check(agent, progress, &queue.packet(index));
        let command = command.map_err(|r| Rejected { reason: format!("packet {index}: {}", r.reason), ..r })?;
        if command.signal.handle != 0 && runtime.signal(command.signal).is_none() {
            return Err(Rejected::format(format!("packet {index}: its completion signal does not exist")));
        }
        commands.push(command);
    }
    let silicon = |rejection: aie_driver_mock::npu::Rejection| Rejected {
        status: HSA_STATUS_ERROR_OUT_OF_RESOURCES,
        reason: rejection.to_string(),
    };
    let context = match progress.context {
        Some(context) if known == progress.pdis.len() => context,
        old => {
            if let Some(old) = old {
                agent.npu.destroy_context(old).map_err(silicon)?;
                progress.context = None;
            }
            let context = agent.npu.create_context(agent.npu.arch().array.columns).map_err(silicon)?;
            progress.context = Some(context);
            let pdis: Vec<ContextPdi> = progress.pdis.iter().map(|pdi| pdi.in_context(agent.npu.arch())).collect();
            agent.npu.configure_context(context, &pdis).map_err(silicon)?;
            context
        }
    };
    let chain: Vec<ChainCommand> = commands
        .iter()
        .map(|command| ChainCommand {
            pdi: command.pdi,
            arguments: command.arguments.len(),
            bytes: command.arguments.iter().map(|(_, bytes)| *bytes as u64).sum(),
            busy_ns: 0,
            operations: 0,
        })
        .collect();
    agent.npu.submit_chain(context, &chain).map_err(silicon)?;
    Ok((context, commands))
}

/// Checks one packet and finds its memory. Its PDI gets a place in the queue's list.
fn check(agent: &Agent, progress: &mut Progress, packet: &Packet) -> Result<Command, Rejected> {
    let kind = u32::from(packet.header) & 0xff;
    if kind != HSA_AMD_AIE_PACKET_TYPE_READY {
        return Err(Rejected::format(format!("its type is {kind}, not {HSA_AMD_AIE_PACKET_TYPE_READY} (ready)")));
    }
    if packet.opcode != HSA_AMD_AIE_PACKET_OPCODE_KMQ || packet.count != Packet::COUNT {
        let (opcode, count) = (packet.opcode, packet.count);
        return Err(Rejected::format(format!("opcode {opcode} and count {count}, not 0 and {}", Packet::COUNT)));
    }
    if (packet.reserved0, packet.reserved1, packet.reserved2, packet.reserved3) != (0, 0, 0, 0) {
        return Err(Rejected::format("a reserved field is not 0"));
    }
    if packet.pdi_patch_offset != 0 {
        return Err(Rejected::format("control code of a full ELF, which this library does not execute"));
    }
    let address = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let pdi = find_pdi(agent, progress, packet.pdi_addr.addr())?;
    let instructions = u64::from(packet.insts_addr_high) << 32 | u64::from(packet.insts_addr_low);
    let size = address(packet.insts_size);
    if size == 0 || !size.is_multiple_of(4) {
        return Err(Rejected::format(format!("{size} bytes of instructions are not a whole number of words")));
    }
    let instructions = agent.memory.find(address(instructions), size).filter(|r| r.allocation.pool == Pool::Heap);
    let instructions = instructions.ok_or_else(|| Rejected::format("its instructions are not in the device heap"))?;
    let arguments = arguments(agent, packet.num_kernargs, packet.kernarg_address.addr())?;
    Ok(Command { signal: packet.completion_signal, pdi, instructions: bytes(&instructions, size), arguments })
}

fn bytes(range: &Range, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    if let Some(span) = range.span(length) {
        span.read(&mut bytes);
    }
    bytes
}

/// The compute unit of the PDI at `address`; a new one when it has none.
fn find_pdi(agent: &Agent, progress: &mut Progress, address: usize) -> Result<usize, Rejected> {
    if let Some(index) = progress.pdis.iter().position(|known| known.address == address as u64) {
        return Ok(index);
    }
    let range = agent.memory.find(address, 1).filter(|r| r.allocation.pool == Pool::Heap && r.offset == 0);
    let range =
        range.ok_or_else(|| Rejected::format("its PDI is not the start of an allocation of the device heap"))?;
    let limit = agent.npu.limits().pdis_per_context;
    if progress.pdis.len() >= limit {
        return Err(Rejected {
            status: HSA_STATUS_ERROR_OUT_OF_RESOURCES,
            reason: format!("no compute unit for another PDI; a queue has {limit}"),
        });
    }
    progress.pdis.push(LoadedPdi::new(address as u64, bytes(&range, range.allocation.region.length())));
    Ok(progress.pdis.len() - 1)
}

/// The ranges a kernarg buffer names.
fn arguments(agent: &Agent, count: u16, address: usize) -> Result<Vec<(Range, usize)>, Rejected> {
    let count = usize::from(count);
    if (count == 0) != (address == 0) {
        return Err(Rejected::format(format!("{count} arguments, and a kernarg buffer at {address:#x}")));
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let length = count * 2 * size_of::<u64>();
    let buffer = agent.memory.find(address, length).filter(|r| r.allocation.pool == Pool::Kernarg);
    let buffer = buffer.ok_or_else(|| Rejected::format("its kernarg buffer is not in the kernarg pool"))?;
    let words: Vec<usize> = bytes(&buffer, length)
        .chunks_exact(size_of::<u64>())
        .map(|word| word.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
        .map(|word| usize::try_from(word).unwrap_or(usize::MAX))
        .collect();
    let (addresses, sizes) = words.split_at(count);
    let find = |(index, (address, size)): (usize, (&usize, &usize))| {
        let range = agent.memory.find(*address, *size).filter(|r| r.allocation.pool == Pool::Data);
        let missing =
            || Rejected::format(format!("argument {index} ({size} bytes at {address:#x}) is not in data memory"));
        range.map(|range| (range, *size)).ok_or_else(missing)
    };
    addresses.iter().zip(sizes).enumerate().map(find).collect()
}

/// Runs one command; the error is its state and the reason.
fn execute(
    runtime: &Runtime,
    agent: &Agent,
    array: &mut array::Array,
    context: ContextId,
    pdis: &[LoadedPdi],
    command: &Command,
) -> Result<(), (hsa_amd_aie_ert_state, String)> {
    let fault = runtime.faults.command();
    // As the firmware gets it, except that the addresses of arguments are their indices.
    let head = [TRANSACTION, 0, 0, 0, (command.instructions.len() / 4) as u32];
    let indices = (0..command.arguments.len() as u32).flat_map(|index| [index, 0]);
    let words = head.into_iter().chain(indices).collect();
    let encoded = array::Command { unit: command.pdi, is_elf: false, words };
    let ran = array.run(Configured { id: context, units: pdis }, &[encoded], command, || fault);
    for command in &ran.charged {
        agent.npu.charge_compute(command.busy_ns, command.bytes, command.operations);
    }
    match ran.outcome {
        Outcome::Completed => Ok(()),
        Outcome::GivenUp(_) => Err((HSA_AMD_AIE_ERT_STATE_ABORT, "the fault plan says so".into())),
        Outcome::Failed(_, reason) => {
            let is_planned = matches!(fault, Some(CommandFault::Status(_)));
            Err((if is_planned { HSA_AMD_AIE_ERT_STATE_ABORT } else { HSA_AMD_AIE_ERT_STATE_ERROR }, reason))
        }
        Outcome::Silent(reason) => {
            agent.npu.charge_watchdog();
            Err((HSA_AMD_AIE_ERT_STATE_TIMEOUT, format!("never signalled: {reason}")))
        }
    }
}
