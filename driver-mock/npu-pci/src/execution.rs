//! Running commands: a thread takes the jobs of all contexts in the order in which they came, so that no answer to the guest is late
//! because the array works.

use crate::address_space::AddressSpace;
use crate::faults::{Fault, FaultPlan};
use crate::heap::Heap;
use crate::journal::Journal;
use aie_device_memory::Span;
use aie_driver_mock::npu::array::{Array, Command, CommandMemory, Configured, LoadedPdi, OutOfReach, Outcome};
use aie_driver_mock::npu::{ChainCommand, ContextId};
use std::sync::Arc;

/// Commands of one message.
#[derive(Debug)]
pub struct Job {
    /// The channel that wants the answer, which is the number of the context.
    pub channel: usize,
    /// Which of the contexts with this number.
    pub life: u64,
    /// What the array knows the context by.
    pub npu: ContextId,
    pub id: u32,
    pub opcode: u32,
    /// The context's heap, as it was.
    pub heap: Heap,
    /// Its compute units, as they were.
    pub units: Arc<[LoadedPdi]>,
    pub commands: Vec<Command>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum JobResult {
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
pub struct JobEnvironment<'a> {
    pub space: &'a AddressSpace,
    pub faults: &'a FaultPlan,
    pub journal: &'a Journal,
}

/// Runs a job; also gives what is to be charged for it. `asynchronous` is called where the plan has an asynchronous error.
pub fn run(
    array: &mut Array,
    job: &Job,
    around: &JobEnvironment<'_>,
    mut asynchronous: impl FnMut(),
) -> (JobResult, Vec<ChainCommand>) {
    let memory = GuestMemory { space: around.space, heap: &job.heap };
    let mut number = 0;
    let ran = array.run(Configured { id: job.npu, units: &job.units }, &job.commands, &memory, || {
        number = around.journal.command();
        if around.faults.other(number, |fault| (*fault == Fault::Asynchronous).then_some(())).is_some() {
            asynchronous();
        }
        around.faults.command(number)
    });
    let (result, note) = match ran.outcome {
        Outcome::Completed => return (JobResult::Completed, ran.charged),
        Outcome::GivenUp(_) => (JobResult::Lost, ": the firmware stops, as planned".into()),
        Outcome::Failed(status, why) => {
            (JobResult::Failed(ran.last, status), format!(" fails with status {status:#x}: {why}"))
        }
        Outcome::Silent(why) => (JobResult::Stuck(ran.last), format!(" never signals: {why}")),
    };
    around.journal.note(format!("command {number}{note}"));
    (result, ran.charged)
}

/// The guest's memory as the commands of a context address it.
struct GuestMemory<'a> {
    space: &'a AddressSpace,
    heap: &'a Heap,
}

impl CommandMemory for GuestMemory<'_> {
    type Place = u64;

    fn instructions(&self, address: u64, words: usize, target: &mut Vec<u8>) -> Result<(), OutOfReach> {
        let found = words.checked_mul(4).and_then(|bytes| self.heap.read(self.space, address, bytes));
        let unreachable = || OutOfReach(format!("instructions at {address:#x}, {words} words, are out of reach"));
        *target = found.ok_or_else(unreachable)?;
        Ok(())
    }

    fn argument(&self, address: u64) -> Result<(u64, usize), OutOfReach> {
        // Nothing but the mapping ends an argument that neither the kernel nor the command gives a length.
        let address = self.heap.resolve(address);
        Ok((address, self.space.extent(address).0 as usize))
    }

    fn length(&self, kernel: Option<usize>, length: usize) -> usize {
        kernel.unwrap_or(length)
    }

    fn reach<'a>(&'a self, address: &'a u64, length: usize) -> Option<Span<'a>> {
        self.space.reach(*address, length)
    }
}
