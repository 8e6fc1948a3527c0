//! Host commands: what is not a dispatch runs here, in the queue's thread.

use super::{Run, Scratch, Stop, Touched};
use aie_device_memory::Span;
use aie_hal::buffer::Access;
use aie_hal::command_list::{BindingTable, BufferRef, Command};
use aie_hal::error::DeviceError;
use aie_hal::host_function::{HostFunction, run_guarded};
use aie_hal::submission_queue::Work;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

/// Spans of one call without an allocation up to this number of inputs.
const INLINE_SPANS: usize = 16;

impl<'a> Run<'a> {
    /// Notes what a host command reads and writes.
    pub(super) fn touched(&mut self, work: &'a Work, position: usize, command: &'a Command) -> Result<(), DeviceError> {
        let mut touched = std::mem::take(&mut self.scratch.touched);
        touched.reads.clear();
        touched.writes.clear();
        let result = command.references().try_for_each(|(reference, access)| {
            let (buffer, offset, length) = self.find(work.bindings(), position, reference)?;
            let range = buffer.device_range(offset, length);
            match access {
                Access::Read => touched.reads.push(range),
                // Bytes that are not written keep their value, so they are read as well.
                Access::Write => touched.writes.push(range),
            }
            Ok(())
        });
        self.scratch.touched = touched;
        result
    }

    /// Waits for the chains that the host command depends on.
    pub(super) fn await_conflicts(&mut self) -> Result<(), Stop> {
        let Touched { reads, writes } = &self.scratch.touched;
        let count = self.scratch.flights.last_conflict(reads, writes);
        (0..count).try_for_each(|_| self.land())
    }

    /// Runs what is not a dispatch. The chain is empty, and what is under way does not conflict.
    pub(super) fn on_host(&mut self, work: &'a Work, position: usize, command: &'a Command) -> Result<(), DeviceError> {
        let table = work.bindings();
        for (reference, _) in command.references() {
            let (buffer, offset, length) = self.find(table, position, reference)?;
            // What is written too: bytes that the command leaves alone have to keep what the device wrote.
            buffer.fetch(offset, length)?;
        }
        let result = self.run_on_host(table, position, command);
        let told = self.scratch.written.take().filter(|_| result.is_ok());
        for (reference, access) in command.references() {
            if access == Access::Write {
                let (buffer, offset, length) = self.find(table, position, reference)?;
                match told.as_ref().filter(|parts| parts.iter().all(|part| part.end <= length)) {
                    Some(parts) => {
                        parts.iter().try_for_each(|part| buffer.publish(offset + part.start, part.len()))?;
                    }
                    None => buffer.publish(offset, length)?,
                }
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
        match command {
            Command::Barrier | Command::Dispatch { .. } => Ok(()),
            Command::Fill { pattern, target } => {
                let target = self.span(table, position, target)?;
                target.fill(pattern);
                self.copied(target);
                Ok(())
            }
            Command::Update { data, target } => {
                let target = self.span(table, position, target)?;
                same_length(position, data.len(), target.length())?;
                target.write(data);
                self.copied(target);
                Ok(())
            }
            Command::Copy { source, target } => {
                let (source, target) = (self.span(table, position, source)?, self.span(table, position, target)?);
                same_length(position, source.length(), target.length())?;
                target.copy_from(source);
                self.copied(target);
                Ok(())
            }
            Command::HostCall { function, inputs, output } => {
                self.host_call(table, position, &**function, inputs, output)
            }
        }
    }

    fn copied(&self, target: Span<'_>) {
        self.device.counters.bytes_copied.fetch_add(target.length() as u64, Ordering::Relaxed);
    }

    fn host_call(
        &mut self,
        table: &'a BindingTable,
        position: usize,
        function: &dyn HostFunction,
        inputs: &'a [BufferRef],
        output: &'a BufferRef,
    ) -> Result<(), DeviceError> {
        self.device.counters.host_calls.fetch_add(1, Ordering::Relaxed);
        let output = self.span(table, position, output)?;
        let mut inline = [output; INLINE_SPANS];
        let mut many = Vec::new();
        let spans: &[Span<'_>] = if inputs.len() <= INLINE_SPANS {
            for (span, reference) in inline.iter_mut().zip(inputs) {
                *span = self.span(table, position, reference)?;
            }
            &inline[..inputs.len()]
        } else {
            for reference in inputs {
                many.push(self.span(table, position, reference)?);
            }
            &many
        };
        let Scratch { snapshots, written, .. } = &mut *self.scratch;
        let maintained = self.device.npu.agent.caches().is_none();
        let call = || {
            snapshots.call(spans, &[output], |inputs, outputs| {
                let result = run_guarded(function, inputs, outputs);
                if !maintained && result.is_ok() {
                    let mut parts = Vec::new();
                    *written = function.written(inputs, &mut |part| parts.push(part)).then_some(parts);
                }
                result
            })
        };
        // Without the lock, so that a function may itself use the device.
        let result = MutexGuard::unlocked(&mut self.array, call).unwrap_or(Ok(()));
        let name = function.name();
        result.map_err(|e| DeviceError::Execution(format!("host call of `{name}` (command {position}): {e}")))
    }
}

fn same_length(position: usize, source: usize, target: usize) -> Result<(), DeviceError> {
    if source == target {
        return Ok(());
    }
    Err(DeviceError::InvalidArgument(format!("command {position}: {source} bytes for a target of {target}")))
}
