//! Host commands: what is not a dispatch runs here, in the queue's thread.
//!
//! On a device that is not coherent a write of the host is one of whole cache lines: what else a line holds is read with it and written
//! back with it. So a host command that writes waits for chains that write into its lines, and reads these anew before.

use super::Run;
use crate::backend::DeviceBackend;
use crate::backend::objects::{BufferRange, buffer_range};
use crate::buffer::{Access, Buffer};
use crate::command_list::{BindingTable, BufferRef, Command};
use crate::error::DeviceError;
use crate::host_function::{HostFunction, run_guarded};
use crate::submission_queue::InFlight;
use aie_device_memory::{Snapshots, Span, Spans, WritableSpan};
use parking_lot::MutexGuard;
use std::ops::Range;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// What is kept between host commands. `reads` and `writes` are the device addresses of the next one.
#[derive(Debug, Default)]
pub(super) struct HostScratch {
    pub(super) reads: Vec<Range<u64>>,
    pub(super) writes: Vec<Range<u64>>,
    snapshots: Snapshots,
    /// What the last host call wrote of its output, when its function says so.
    written: Option<Vec<Range<usize>>>,
}

impl HostScratch {
    /// Notes what a host command reads and writes.
    pub(super) fn touching<B: DeviceBackend>(
        &mut self,
        device: &B,
        submission: &InFlight,
        position: usize,
        command: &Command,
    ) -> Result<(), DeviceError> {
        self.reads.clear();
        self.writes.clear();
        for (reference, access) in command.references() {
            let range = buffer_range(device, submission.bindings(), position, reference)?;
            match access {
                Access::Read => self.reads.push(range.device_range()),
                Access::Write if device.state().info.coherent => self.writes.push(range.device_range()),
                Access::Write => self.writes.push(whole_lines(range).device_range()),
            }
        }
        Ok(())
    }
}

/// The cache lines of a range, as far as the buffer has them. Device and host address of a buffer begin alike in a line.
fn whole_lines<B: DeviceBackend>(BufferRange { buffer, offset, length }: BufferRange<'_, B>) -> BufferRange<'_, B> {
    let Range { start, end } = buffer.device_range(offset, length);
    let (before, behind) = (start % LINE, end.next_multiple_of(LINE) - end);
    let first = offset.saturating_sub(before as usize);
    let end = (offset + length + behind as usize).min(buffer.size());
    BufferRange { buffer, offset: first, length: end - first }
}

impl<'a, B: DeviceBackend> Run<'a, B> {
    /// Runs what is not a dispatch. The chain is empty, and what is in flight does not conflict.
    pub(super) fn on_host(
        &mut self,
        submission: &'a InFlight,
        position: usize,
        command: &'a Command,
    ) -> Result<(), DeviceError> {
        let (device, table) = (self.device, submission.bindings());
        let host_call = matches!(command, Command::HostCall { .. });
        if device.state().info.coherent || !(host_call || B::TRANSFERS_ON_HOST) {
            return self.run_on_host(table, position, command);
        }
        for (reference, access) in command.references() {
            let range = buffer_range(device, table, position, reference)?;
            // What is written too: bytes that the command leaves alone have to keep what the device wrote.
            let range = if access == Access::Write { whole_lines(range) } else { range };
            let bytes = device.invalidate_written(&range.buffer.memory, range.offsets());
            device.state().count(|counters| counters.bytes_invalidated += bytes);
        }
        let result = self.run_on_host(table, position, command);
        let written = self.scratch.host.written.take().filter(|_| result.is_ok());
        for (reference, _) in command.references().filter(|(_, access)| *access == Access::Write) {
            let range = buffer_range(device, table, position, reference)?;
            let flush = |part: Range<usize>| {
                device.state().count(|counters| counters.bytes_flushed += part.len() as u64);
                device.flush_written(&range.buffer.memory, part);
            };
            match written.as_ref().filter(|parts| parts.iter().all(|part| part.end <= range.length)) {
                Some(parts) => parts.iter().for_each(|part| flush(range.offset + part.start..range.offset + part.end)),
                None => flush(range.offsets()),
            }
        }
        result
    }

    fn run_on_host(
        &mut self,
        table: &'a BindingTable,
        position: usize,
        command: &'a Command,
    ) -> Result<(), DeviceError> {
        let span = |reference: &'a BufferRef| -> Result<Span<'a>, DeviceError> {
            let BufferRange { buffer, offset, length } = buffer_range(self.device, table, position, reference)?;
            if B::TRANSFERS_ON_HOST { buffer.span(offset, length) } else { buffer.device_span(offset, length) }
        };
        let written = |reference: &'a BufferRef| -> Result<WritableSpan<'a>, DeviceError> {
            let BufferRange { buffer, .. } = buffer_range(self.device, table, position, reference)?;
            buffer.writable(span(reference)?)
        };
        let same_length = |source: usize, target: usize| {
            let different = || format!("command {position}: {source} bytes for a target of {target}");
            if source == target { Ok(()) } else { Err(DeviceError::InvalidArgument(different())) }
        };
        let (target, passes) = match command {
            Command::Barrier | Command::Dispatch { .. } => return Ok(()),
            Command::HostCall { function, inputs, output } => {
                return self.host_call(table, position, &**function, inputs, output);
            }
            Command::Fill { pattern, target } => {
                let target = written(target)?;
                target.fill(pattern);
                (target, 1)
            }
            Command::Update { data, target } => {
                let target = written(target)?;
                same_length(data.len(), target.length())?;
                target.write(data);
                (target, 1)
            }
            Command::Copy { source, target } => {
                let (source, target) = (span(source)?, written(target)?);
                same_length(source.length(), target.length())?;
                target.copy_from(source);
                (target, 2)
            }
        };
        let bytes = target.length() as u64;
        self.device.state().count(|counters| counters.bytes_copied += bytes);
        self.device.note_transfer(bytes * passes);
        Ok(())
    }

    fn host_call(
        &mut self,
        table: &'a BindingTable,
        position: usize,
        function: &dyn HostFunction,
        inputs: &'a [BufferRef],
        output: &'a BufferRef,
    ) -> Result<(), DeviceError> {
        let state = self.device.state();
        state.count(|counters| counters.host_calls += 1);
        let span = |reference: &'a BufferRef| {
            let BufferRange { buffer, offset, length } = buffer_range(self.device, table, position, reference)?;
            buffer.span(offset, length)
        };
        let buffer = buffer_range(self.device, table, position, output)?.buffer;
        let output = buffer.writable(span(output)?)?;
        let inputs = inputs.iter().map(span).collect::<Result<Spans<'_>, _>>()?;
        let HostScratch { snapshots, written, .. } = &mut self.scratch.host;
        let call = || {
            snapshots.call(&inputs, &[output], |inputs, outputs| {
                let result = run_guarded(function, inputs, outputs);
                if !state.info.coherent && result.is_ok() {
                    let mut parts = Vec::new();
                    *written = function.written(inputs, &mut |part| parts.push(part)).then_some(parts);
                }
                result
            })
        };
        // Without the lock, so that a function may itself use the device.
        let result = MutexGuard::unlocked(&mut self.schedule, call).unwrap_or(Ok(()));
        let name = function.name();
        result.map_err(|e| DeviceError::Execution(format!("host call of `{name}` (command {position}): {e}")))
    }
}
