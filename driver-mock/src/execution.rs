//! Running a command list on the simulated array.
//!
//! Dispatches are gathered into chains. A chain ends at the limits of the silicon, where the next dispatch needs another
//! context, and where something else has to see memory: a host call or a transfer. Barriers do not end a chain, because the
//! hardware runs a chain in order. All chains between two such points are one batch, and a batch costs one doorbell.
//!
//! Dispatches and transfers run one after the other under the device's execution lock, so each is atomic with respect to all
//! others of the device. Host calls run without it. `order=reverse` runs the commands between two barriers backwards, which
//! finds missing barriers.

use crate::buffer::MockBuffer;
use crate::contexts::NpuContexts;
use crate::device::DeviceShared;
use crate::executable::{LoadedPdi, MockExecutable};
use crate::faults::FaultKind;
use crate::npu::{ChainCommand, ContextId};
use aie_device_memory::{Snapshots, Span};
use aie_hal::command_list::{BindingTable, BufferRef, Command};
use aie_hal::context_planner::{ContextPlanner, Residence};
use aie_hal::device::chain_command_bytes;
use aie_hal::error::DeviceError;
use aie_hal::executable::Executable;
use aie_hal::host_function::{HostFunction, run_guarded};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a queue's thread keeps between submissions, so that running one seldom allocates.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    snapshots: Snapshots,
    chain: Chain,
    /// Chains sent since the last doorbell.
    rung: u64,
}

/// The chain that is being gathered.
#[derive(Debug, Default)]
struct Chain {
    context: Option<ContextId>,
    commands: Vec<ChainCommand>,
    /// Position in the command list, for each of `commands`.
    positions: Vec<usize>,
    bytes: usize,
}

impl Chain {
    fn clear(&mut self) {
        self.context = None;
        self.commands.clear();
        self.positions.clear();
        self.bytes = 0;
    }
}

/// Spans of one call without an allocation up to this number of inputs.
const INLINE_SPANS: usize = 16;

/// Runs `commands`, holding the device's execution lock except in host calls.
///
/// # Errors
/// The first failure; commands behind it have not run.
pub(crate) fn execute(
    device: &DeviceShared,
    scratch: &mut Scratch,
    commands: &[Command],
    bindings: &BindingTable,
) -> Result<(), DeviceError> {
    // A submission that failed may have left something here.
    scratch.chain.clear();
    scratch.rung = 0;
    let mut run = Run { device, contexts: device.contexts.lock(), scratch, commands, bindings };
    run.place_pdis()?;
    let result = run.all();
    run.ring();
    result
}

struct Run<'a> {
    device: &'a DeviceShared,
    /// The execution lock. While it is open, the chain is empty.
    contexts: MutexGuard<'a, ContextPlanner<NpuContexts>>,
    scratch: &'a mut Scratch,
    commands: &'a [Command],
    bindings: &'a BindingTable,
}

impl<'a> Run<'a> {
    fn refused(&self, refusal: crate::npu::Refusal) -> DeviceError {
        refusal.into_device_error(self.device.name())
    }

    /// Finds contexts for all PDIs of the list at once, so that they are put together well.
    fn place_pdis(&mut self) -> Result<(), DeviceError> {
        let mut wanted: Vec<&Arc<LoadedPdi>> = Vec::new();
        let mut homeless = false;
        for (index, command) in self.commands.iter().enumerate() {
            if let Command::Dispatch { executable, .. } = command {
                let executable = self.executable(index, executable)?;
                match self.contexts.locate(executable.pdi.number) {
                    Some(at) => self.contexts.touch(at.context),
                    None => homeless = true,
                }
            }
        }
        if !homeless {
            return Ok(());
        }
        for (index, command) in self.commands.iter().enumerate() {
            if let Command::Dispatch { executable, .. } = command {
                let pdi = &self.executable(index, executable)?.pdi;
                if wanted.iter().all(|w| w.number != pdi.number) {
                    wanted.push(pdi);
                }
            }
        }
        self.contexts.prepare(&self.device.context_host, &wanted).map_err(|r| self.refused(r))
    }

    fn all(&mut self) -> Result<(), DeviceError> {
        let commands = self.commands;
        if self.device.reverse {
            let mut start = 0;
            for group in commands.split(|c| matches!(c, Command::Barrier)) {
                for index in (start..start + group.len()).rev() {
                    self.command(index)?;
                }
                start += group.len() + 1;
            }
        } else {
            for index in 0..commands.len() {
                self.command(index)?;
            }
        }
        self.send_chain()
    }

    fn command(&mut self, index: usize) -> Result<(), DeviceError> {
        match &self.commands[index] {
            Command::Barrier => Ok(()),
            Command::Dispatch { executable, bindings, .. } => self.gather(index, executable, bindings),
            Command::HostCall { function, inputs, output } => {
                self.end_batch()?;
                self.host_call(index, &**function, inputs, output)
            }
            Command::Fill { pattern, target } => {
                self.end_batch()?;
                let target = self.device_span(index, target)?;
                target.fill(pattern);
                self.transferred(target.length(), 1);
                Ok(())
            }
            Command::Update { data, target } => {
                self.end_batch()?;
                let target = self.device_span(index, target)?;
                self.same_length(index, data.len(), target.length())?;
                target.write(data);
                self.transferred(target.length(), 1);
                Ok(())
            }
            Command::Copy { source, target } => {
                self.end_batch()?;
                let (source, target) = (self.device_span(index, source)?, self.device_span(index, target)?);
                self.same_length(index, source.length(), target.length())?;
                target.copy_from(source);
                self.transferred(target.length(), 2);
                Ok(())
            }
        }
    }

    fn same_length(&self, index: usize, source: usize, target: usize) -> Result<(), DeviceError> {
        if source == target {
            return Ok(());
        }
        Err(DeviceError::InvalidArgument(format!("command {index}: {source} bytes for a target of {target}")))
    }

    /// Accounts a transfer that passes the memory interface `passes` times.
    fn transferred(&self, length: usize, passes: u64) {
        self.device.counters.bytes_copied.fetch_add(length as u64, Ordering::Relaxed);
        self.device.npu.charge_bytes(length as u64 * passes);
    }

    /// Adds a dispatch to the chain, after sending the chain when it does not fit.
    fn gather(
        &mut self,
        index: usize,
        executable: &'a Arc<dyn Executable>,
        bindings: &[BufferRef],
    ) -> Result<(), DeviceError> {
        let executable = self.executable(index, executable)?;
        let Residence { context, slot } = match self.contexts.locate(executable.pdi.number) {
            Some(at) => at,
            None => {
                // Making room may retire the context that the gathered chain is for.
                self.send_chain()?;
                let found = self.contexts.require(&self.device.context_host, &executable.pdi);
                found.map_err(|r| self.refused(r))?
            }
        };
        let limits = self.device.npu.limits();
        let (most, most_bytes) = (limits.commands_per_chain, limits.chain_buffer_bytes);
        let bytes = chain_command_bytes(bindings.len());
        let chain = &self.scratch.chain;
        let fits = chain.context.is_none_or(|c| c == context)
            && chain.commands.len() < most
            && chain.bytes + bytes <= most_bytes;
        if !fits {
            self.send_chain()?;
        }
        let chain = &mut self.scratch.chain;
        chain.context = Some(context);
        chain.bytes += bytes;
        chain.positions.push(index);
        let traffic = bindings.iter().map(|b| b.length() as u64).sum();
        chain.commands.push(ChainCommand { pdi: slot, arguments: bindings.len(), bytes: traffic });
        Ok(())
    }

    /// Hands the gathered chain to the NPU and runs its kernels.
    fn send_chain(&mut self) -> Result<(), DeviceError> {
        let Some(context) = self.scratch.chain.context else { return Ok(()) };
        let accepted = self.device.npu.submit_chain(context, &self.scratch.chain.commands);
        accepted.map_err(|r| self.refused(r))?;
        self.scratch.rung += 1;
        let positions = std::mem::take(&mut self.scratch.chain.positions);
        let result = positions.iter().try_for_each(|index| self.dispatch(*index));
        self.scratch.chain.positions = positions;
        self.scratch.chain.clear();
        result
    }

    fn end_batch(&mut self) -> Result<(), DeviceError> {
        let result = self.send_chain();
        self.ring();
        result
    }

    /// Accounts the doorbell of the chains sent since the last one.
    fn ring(&mut self) {
        if std::mem::take(&mut self.scratch.rung) > 0 {
            self.device.counters.doorbells.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn dispatch(&mut self, index: usize) -> Result<(), DeviceError> {
        let Command::Dispatch { executable, bindings, outputs } = &self.commands[index] else { return Ok(()) };
        let executable = self.executable(index, executable)?;
        let name = executable.artifact.name();
        self.device.counters.dispatches.fetch_add(1, Ordering::Relaxed);
        let fault = self.device.faults.dispatch();
        let timeout = |reason: &str| {
            self.device.npu.charge_watchdog();
            DeviceError::Timeout(format!("dispatch of `{name}` (command {index}) never signalled: {reason}"))
        };
        match fault {
            Some(FaultKind::Lost) => {
                let cause = format!("at the dispatch of `{name}` (command {index}), as its fault plan says");
                return Err(self.device.lose(cause));
            }
            Some(FaultKind::Timeout) => return Err(timeout("the fault plan says so")),
            _ => {}
        }
        let kernel = executable.kernel.as_ref().map_err(|reason| timeout(&reason.to_string()))?;
        let expected = kernel.output_count();
        let (Some(first), true) = (bindings.first(), *outputs == expected && expected <= bindings.len()) else {
            return Err(DeviceError::InvalidArgument(format!(
                "dispatch of `{name}` (command {index}): {outputs} of {} arguments recorded as outputs, the kernel writes {expected}",
                bindings.len()
            )));
        };
        let mut inline = [self.device_span(index, first)?; INLINE_SPANS];
        let mut many = Vec::new();
        let spans = self.spans(index, bindings, &mut inline, &mut many, Self::device_span)?;
        let (inputs, outputs) = spans.split_at(spans.len() - expected);
        let called = self.scratch.snapshots.call(inputs, outputs, |inputs, outputs| {
            let result = run_guarded(&**kernel, inputs, outputs);
            match fault {
                Some(FaultKind::Zero) => outputs.iter_mut().for_each(|output| output.fill(0)),
                Some(FaultKind::Garbage) => outputs.iter_mut().for_each(|output| garbage(output)),
                _ => {}
            }
            result.map_err(|e| DeviceError::Execution(format!("dispatch of `{name}` (command {index}): {e}")))
        });
        called.unwrap_or_else(|| {
            Err(DeviceError::InvalidArgument(format!("dispatch of `{name}` (command {index}): its outputs overlap")))
        })
    }

    fn host_call(
        &mut self,
        index: usize,
        function: &dyn HostFunction,
        inputs: &'a [BufferRef],
        output: &'a BufferRef,
    ) -> Result<(), DeviceError> {
        let counters = &self.device.counters;
        counters.host_calls.fetch_add(1, Ordering::Relaxed);
        let coherent = self.device.info.coherent;
        if !coherent {
            // The output too: bytes that the function leaves alone have to keep what the device wrote.
            for reference in inputs.iter().chain([output]) {
                let (buffer, offset, length) = self.find(index, reference)?;
                buffer.device_to_host(offset, length)?;
                counters.bytes_invalidated.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
        let target = self.host_span(index, output)?;
        let mut inline = [target; INLINE_SPANS];
        let mut many = Vec::new();
        let spans = self.spans(index, inputs, &mut inline, &mut many, Self::host_span)?;
        let snapshots = &mut self.scratch.snapshots;
        let call = || snapshots.call(spans, &[target], |inputs, outputs| run_guarded(function, inputs, outputs));
        // Without the lock, so that a function may itself use the device.
        let result = MutexGuard::unlocked(&mut self.contexts, call).unwrap_or(Ok(()));
        if !coherent {
            let (buffer, offset, length) = self.find(index, output)?;
            buffer.host_to_device(offset, length)?;
            counters.bytes_flushed.fetch_add(length as u64, Ordering::Relaxed);
        }
        let name = function.name();
        result.map_err(|e| DeviceError::Execution(format!("host call of `{name}` (command {index}): {e}")))
    }

    /// Resolves `references` into `inline`, or `many` when there are too many.
    fn spans<'s>(
        &self,
        index: usize,
        references: &'a [BufferRef],
        inline: &'s mut [Span<'a>; INLINE_SPANS],
        many: &'s mut Vec<Span<'a>>,
        resolve: impl Fn(&Self, usize, &'a BufferRef) -> Result<Span<'a>, DeviceError>,
    ) -> Result<&'s [Span<'a>], DeviceError> {
        if references.len() > INLINE_SPANS {
            *many = references.iter().map(|r| resolve(self, index, r)).collect::<Result<_, _>>()?;
            return Ok(many);
        }
        for (span, reference) in inline.iter_mut().zip(references) {
            *span = resolve(self, index, reference)?;
        }
        Ok(&inline[..references.len()])
    }

    fn device_span(&self, index: usize, reference: &'a BufferRef) -> Result<Span<'a>, DeviceError> {
        let (buffer, offset, length) = self.find(index, reference)?;
        buffer.device_span(offset, length)
    }

    fn host_span(&self, index: usize, reference: &'a BufferRef) -> Result<Span<'a>, DeviceError> {
        let (buffer, offset, length) = self.find(index, reference)?;
        buffer.host_span(offset, length)
    }

    /// The buffer, offset and length of a reference. Does what [`BufferRef::resolve`] does without counting references.
    fn find(&self, index: usize, reference: &'a BufferRef) -> Result<(&'a MockBuffer, usize, usize), DeviceError> {
        let invalid = |reason: String| DeviceError::InvalidArgument(format!("command {index}: {reason}"));
        let (buffer, offset, length) = reference.locate(self.bindings).map_err(|cause| invalid(cause.to_string()))?;
        match buffer.as_any().downcast_ref::<MockBuffer>() {
            Some(found) if std::ptr::eq(&*found.device, self.device) => Ok((found, offset, length)),
            _ => Err(invalid(format!("a buffer of another device than {}", self.device.name()))),
        }
    }

    fn executable(&self, index: usize, executable: &'a Arc<dyn Executable>) -> Result<&'a MockExecutable, DeviceError> {
        match executable.as_any().downcast_ref::<MockExecutable>() {
            Some(found) if std::ptr::eq(&*found.device, self.device) => Ok(found),
            _ => Err(DeviceError::InvalidArgument(format!(
                "command {index}: kernel `{}` was loaded on another device than {}",
                executable.artifact().name(),
                self.device.name()
            ))),
        }
    }
}

/// Repeatable nonsense.
fn garbage(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
}

#[cfg(test)]
mod tests;
