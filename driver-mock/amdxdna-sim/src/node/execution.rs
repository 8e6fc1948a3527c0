//! Running jobs: the firmware and the array.

use super::bo::{Bo, Kind};
use super::chain::{Submission, read};
use super::completion::CompletionWriter;
use super::device::Device;
use super::heap::Heaps;
use aie_device_memory::Span;
use aie_driver_mock::npu::ContextId;
use aie_driver_mock::npu::array::{Array, Command, CommandMemory, Configured, OutOfReach, Outcome};
use aie_driver_mock::npu::fault_plan::CommandFault;
use amdxdna_sys::limits;
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum JobResult {
    /// It has ended, after `ns` of device time.
    Ended { ns: u64 },
    /// It never completes.
    Hung { command: usize },
}

impl Device {
    pub(super) fn run(&self, array: &mut Array, npu: ContextId, submission: &Submission) -> JobResult {
        let device = self;
        let profile = &device.profile;
        let written = CompletionWriter::new(device, submission);
        written.started();
        let commands = match read(submission, &device.arch, profile) {
            Ok(commands) => commands,
            Err(why) => {
                device.journal.count(|counts| counts.chains_not_run += 1);
                device.journal.log(|| format!("a submission is dropped, its state stays NEW: {why}"));
                return JobResult::Ended { ns: 0 };
            }
        };
        if let Some(index) = odd_slot(device, &commands.list).filter(|_| commands.in_chain_buffer) {
            let words = commands.list[index].words.len();
            device.journal.count(|counts| counts.commands_aborted += 1);
            device.journal.log(|| {
                format!("command {index} of a submission: {words} words; this firmware wants an even number below 15")
            });
            written.aborted();
            return JobResult::Ended { ns: 0 };
        }
        let works = |command: &Command| device.pdis.is_none_or(|pdis| command.unit < pdis);
        if let Some(command) = commands.list.iter().position(|command| !works(command)) {
            let unit = commands.list[command].unit;
            device.journal.count(|counts| counts.commands_timed_out += 1);
            device.journal.log(|| format!("command {command} of a submission never signals: PDI {unit} of a context"));
            return JobResult::Hung { command };
        }
        let memory = CallerMemory { device, submission };
        let job = array.run(Configured { id: npu, units: &submission.units }, &commands.list, &memory, || {
            device.journal.count(|counts| counts.commands_run += 1);
            device.journal.command()
        });
        let last = job.last;
        // Rejected only if nothing was to be charged.
        let ns = device.npu.submit_encoded(npu, &job.charged, commands.buffer_bytes).unwrap_or(0);
        let log = |reason: &str| device.journal.log(|| format!("command {last} of a submission: {reason}"));
        match job.outcome {
            Outcome::Completed if ns > profile.job_limit_ns => {
                device.journal.count(|counts| counts.commands_timed_out += 1);
                let limit = profile.job_limit_ns;
                log(&format!("the job takes {ns} ns of device time, the kernel ends it after {limit} ns"));
                written.overdue(last);
            }
            Outcome::Completed => written.completed(),
            Outcome::Failed(status, reason) => {
                device.journal.count(|counts| counts.commands_failed += 1);
                log(&format!("status {status:#x}: {reason}"));
                written.failed(last, status);
            }
            Outcome::Silent(reason) => {
                device.journal.count(|counts| counts.commands_timed_out += 1);
                log(&format!("never signals: {reason}"));
                return JobResult::Hung { command: last };
            }
            Outcome::GivenUp(CommandFault::Lost) => {
                log("the device is lost, as planned");
                device.lose();
                written.aborted();
            }
            Outcome::GivenUp(_) => {
                device.journal.count(|counts| counts.commands_aborted += 1);
                log("aborted, as planned");
                written.aborted();
            }
        }
        JobResult::Ended { ns }
    }
}

/// The first slot with a word count that the firmware does not take.
fn odd_slot(device: &Device, list: &[Command]) -> Option<usize> {
    let applies = device.profile.even_slots && device.model.even_slots;
    let is_odd = |command: &Command| command.words.len() < EVEN_BELOW && command.words.len() % 2 == 1;
    list.iter().position(is_odd).filter(|_| applies)
}

/// Slots of fewer words have to have an even number of them.
const EVEN_BELOW: usize = 15;

/// The caller's memory as the commands of a submission address it.
struct CallerMemory<'a> {
    device: &'a Device,
    submission: &'a Submission,
}

struct Place {
    bo: Arc<Bo>,
    offset: usize,
    writable: bool,
}

impl CommandMemory for CallerMemory<'_> {
    type Place = Place;

    fn instructions(&self, address: u64, words: usize, target: &mut Vec<u8>) -> Result<(), OutOfReach> {
        let unreachable =
            || OutOfReach(format!("instructions at {address:#x}, {words} words, are not in a device heap"));
        let offset = address.checked_sub(limits::DEV_MEM_BASE).ok_or_else(unreachable)? as usize;
        let length = words.checked_mul(4).ok_or_else(unreachable)?;
        let (heap, offset) = Heaps::find(&self.submission.heaps, offset, length).ok_or_else(unreachable)?;
        let span = heap.memory().and_then(|(memory, _)| memory.span(offset, length)).ok_or_else(unreachable)?;
        target.resize(length, 0);
        span.read(target);
        Ok(())
    }

    /// An argument has to lie inside of a BO that the submission names, where that BO is mapped, or where the caller has its pages. It
    /// reaches to the end of the mapping.
    fn argument(&self, address: u64) -> Result<(Place, usize), OutOfReach> {
        let arguments = &self.submission.arguments;
        let unnamed = || OutOfReach("its address belongs to no BO of the submission".into());
        if self.device.iova {
            let inside = |bo: &Arc<Bo>| {
                let offset = usize::try_from(address.checked_sub(bo.iova?)?).ok()?;
                (offset < bo.length()).then(|| (bo.clone(), offset))
            };
            let (bo, offset) = arguments.iter().find_map(inside).ok_or_else(unnamed)?;
            let length = bo.length() - offset;
            return Ok((Place { bo, offset, writable: true }, length));
        }
        let Some(mapped) = self.device.mappings.find(address as usize) else {
            let of_caller = |bo: &Arc<Bo>| {
                let pages = bo.memory()?.0.caller_range()?;
                pages.contains(&(address as usize)).then(|| (bo.clone(), address as usize - pages.start))
            };
            let found = arguments.iter().find_map(of_caller);
            let (bo, offset) = found.ok_or("no BO is mapped at its address, and no memory of the caller's is there")?;
            let length = bo.length() - offset;
            return Ok((Place { bo, offset, writable: true }, length));
        };
        let inside = |bo: &Arc<Bo>| match &bo.kind {
            Kind::Dev { heap, offset, .. } => {
                let found = Arc::ptr_eq(heap, &mapped.bo) && (*offset..offset + bo.length()).contains(&mapped.offset);
                found.then(|| (mapped.offset - offset, bo.length() - (mapped.offset - offset)))
            }
            _ => bo.shares_memory(&mapped.bo).then(|| (mapped.offset, bo.length() - mapped.offset)),
        };
        let named = arguments.iter().find_map(|bo| inside(bo).map(|(offset, rest)| (bo.clone(), offset, rest)));
        let (bo, offset, rest) = named.ok_or_else(unnamed)?;
        Ok((Place { bo, offset, writable: mapped.writable }, rest.min(mapped.available)))
    }

    fn reach<'a>(&'a self, place: &'a Place, length: usize) -> Option<Span<'a>> {
        let (memory, start) = place.bo.memory()?;
        let span = memory.span(start + place.offset, length)?;
        Some(if place.writable { span } else { span.read_only() })
    }
}
