//! Running commands: a thread takes the jobs of all contexts in the order in which they came, so that no answer to the guest is late
//! because the array works.

use crate::address_space::AddressSpace;
use crate::command::Command;
use crate::faults::{Fault, FaultPlan};
use crate::heap::Heap;
use crate::journal::Journal;
use aie_driver_mock::npu::array::{self, Array, LoadedPdi, Outcome};
use aie_driver_mock::npu::fault_plan::CommandFault;
use aie_driver_mock::npu::status;
use aie_driver_mock::npu::transaction::Transaction;
use std::sync::Arc;

/// Commands of one message.
#[derive(Debug)]
pub struct Job {
    /// The channel that wants the answer, which is the number of the context.
    pub channel: usize,
    /// Which of the contexts with this number.
    pub life: u64,
    /// Number of the message.
    pub id: u32,
    /// What it was.
    pub opcode: u32,
    /// The context's heap, as it was.
    pub heap: Heap,
    /// Its compute units, as they were.
    pub units: Arc<[LoadedPdi]>,
    /// What to run.
    pub commands: Vec<Command>,
}

/// How a job went.
#[derive(Debug, PartialEq, Eq)]
pub enum Ran {
    /// All commands have completed.
    Completed,
    /// The command at this index has failed with this status.
    Failed(usize, u32),
    /// The command at this index never signals.
    Stuck(usize),
    /// The firmware does not answer any more.
    Lost,
}

/// What the array needs of the device.
pub struct Surroundings<'a> {
    /// The guest's memory.
    pub space: &'a AddressSpace,
    /// What goes wrong.
    pub faults: &'a FaultPlan,
    /// Where it is told.
    pub journal: &'a Journal,
}

/// Runs a job. `asynchronous` is called where the plan has an asynchronous error.
pub fn run(array: &mut Array, job: &Job, around: &Surroundings<'_>, mut asynchronous: impl FnMut()) -> Ran {
    for (index, command) in job.commands.iter().enumerate() {
        let number = around.journal.command();
        if around.faults.other(number, |fault| (*fault == Fault::Asynchronous).then_some(())).is_some() {
            asynchronous();
        }
        let outcome = match around.faults.command(number) {
            Some(CommandFault::Timeout) => Outcome::Silent("as planned".into()),
            Some(CommandFault::Lost | CommandFault::Abort) => {
                around.journal.note(format!("command {number}: the firmware stops, as planned"));
                return Ran::Lost;
            }
            Some(CommandFault::Status(status)) => Outcome::Failed(status, "as planned".into()),
            fault @ (Some(CommandFault::Garbage) | None) => execute(array, job, command, around.space, fault.is_some()),
        };
        match outcome {
            Outcome::Completed => {}
            Outcome::Failed(status, why) => {
                around.journal.note(format!("command {number} fails with status {status:#x}: {why}"));
                return Ran::Failed(index, status);
            }
            Outcome::Silent(why) => {
                around.journal.note(format!("command {number} never signals: {why}"));
                return Ran::Stuck(index);
            }
        }
    }
    Ran::Completed
}

fn execute(array: &mut Array, job: &Job, command: &Command, space: &AddressSpace, garbage: bool) -> Outcome {
    if command.is_elf {
        let why = "this array runs no control code of an ELF file";
        return Outcome::Failed(status::AIE_INSTRUCTION_ERROR, why.into());
    }
    let Some(unit) = job.units.get(command.unit) else {
        let why = format!("compute unit {} of a context with {}", command.unit, job.units.len());
        return Outcome::Failed(status::INVALID_PARAMETER, why);
    };
    let transaction = match Transaction::parse(&command.words) {
        Ok(transaction) => transaction,
        Err(why) => return Outcome::Failed(status::INVALID_PARAMETER, why),
    };
    let (address, words) = (transaction.instructions(), transaction.instruction_words());
    let instructions = words.checked_mul(4).and_then(|bytes| job.heap.read(space, address, bytes));
    let Some(instructions) = instructions else {
        return Outcome::Silent(format!("instructions at {address:#x}, {words} words, are out of reach"));
    };
    if array::is_empty_stream(&instructions) {
        return Outcome::Completed;
    }
    let prepared = match array.prepare(unit, address, &instructions) {
        Ok(prepared) => prepared,
        Err(why) => return Outcome::Silent(why),
    };
    let mut addresses = Vec::with_capacity(prepared.argument_count());
    for index in 0..prepared.argument_count() {
        match transaction.argument(index) {
            Some(address) => addresses.push(job.heap.resolve(address)),
            None => return Outcome::Silent(format!("`{}`: argument {index} is missing", prepared.name())),
        }
    }
    // Nothing but the mapping ends an argument that neither the kernel nor the command gives a length.
    let mut lengths: Vec<usize> = addresses.iter().map(|address| space.extent(*address).0 as usize).collect();
    transaction.apply_sizes(&mut lengths);
    let mut arguments = Vec::with_capacity(addresses.len());
    for (index, (address, length)) in addresses.iter().zip(lengths).enumerate() {
        let length = prepared.argument_bytes(index).unwrap_or(length);
        match space.reach(*address, length) {
            Some(reached) => arguments.push(array::Argument { span: reached.span, writable: reached.writable }),
            None => {
                let name = prepared.name();
                return Outcome::Silent(format!(
                    "`{name}`: argument {index} at {address:#x}, {length} bytes, is out of reach"
                ));
            }
        }
    }
    array.run(&prepared, &arguments, garbage)
}
