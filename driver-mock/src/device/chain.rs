//! Running a chain on the simulated array.

use super::MockDevice;
use crate::faults::Fault;
use crate::npu::array::{fill_with_nonsense, overwrite_with_nonsense};
use crate::npu::compiled::{Allowed, Kernel, PdiPlace, Ranges};
use crate::npu::fault_plan::CommandFault;
use crate::npu::{ChainCommand, ContextId};
use aie_device_memory::{Snapshots, Span};
use aie_hal::backend::{ChainFailure, ChainView, DeviceBackend as _, Dispatch};
use aie_hal::error::DeviceError;
use aie_hal::format::instructions::InstructionStream;
use aie_hal::host_function::run_guarded;
use std::ops::Range;

/// What is kept between chains.
#[derive(Debug, Default)]
pub(crate) struct ChainScratch {
    commands: Vec<ChainCommand>,
    snapshots: Snapshots,
}

/// Hands a chain to the NPU and runs its kernels.
/// Fails with the first failure; dispatches behind it have not run.
pub(crate) fn run(
    device: &MockDevice,
    scratch: &mut ChainScratch,
    chain: &ChainView<'_, MockDevice>,
) -> Result<(), ChainFailure> {
    let failure = |command, cause| ChainFailure { command, discard_context: false, cause };
    scratch.commands.clear();
    scratch.commands.extend(chain.dispatches().map(|Dispatch { slot, arguments, bytes, .. }| ChainCommand {
        pdi: slot,
        arguments: arguments.len(),
        bytes,
        busy_ns: 0,
        operations: 0,
    }));
    let accepted = device.npu.submit_chain(chain.context(), &scratch.commands);
    accepted.map_err(|rejection| failure(None, device.context_error(rejection)))?;
    chain.dispatches().enumerate().try_for_each(|(index, command)| {
        dispatch(device, chain.context(), &mut scratch.snapshots, &command).map_err(|cause| failure(Some(index), cause))
    })
}

fn dispatch(
    device: &MockDevice,
    context: ContextId,
    snapshots: &mut Snapshots,
    dispatch: &Dispatch<'_, MockDevice>,
) -> Result<(), DeviceError> {
    let what = || dispatch.describe();
    let (fault, is_zeroed) = (device.faults.command(), device.faults.hits(Fault::Zero));
    let timeout = |reason: &str| {
        device.npu.charge_watchdog();
        DeviceError::Timeout(format!("{} never signalled: {reason}", what()))
    };
    match fault {
        Some(CommandFault::Lost) => {
            return Err(device.array().lose(format!("at the {}, as its fault plan says", what())));
        }
        Some(CommandFault::Timeout) => return Err(timeout("the fault plan says so")),
        Some(CommandFault::Untouched) => return Ok(()),
        _ => {}
    }
    let kernel = match dispatch.kernel.kernel.as_ref().map_err(|reason| timeout(&reason.to_string()))? {
        Kernel::Reference(kernel) => kernel,
        Kernel::Compiled(_) => {
            let spans = dispatch.spans()?;
            let inputs = spans.len().saturating_sub(dispatch.outputs);
            let mut arguments: Vec<Span<'_>> = spans.to_vec();
            arguments[..inputs].iter_mut().for_each(|input| *input = input.read_only());
            let first = |range: &Range<u64>| range.start;
            let allowed = Allowed {
                addresses: dispatch.arguments.iter().map(first).collect(),
                reads: Ranges::new(dispatch.reads),
                writes: Ranges::new(dispatch.writes),
            };
            let stream = InstructionStream::for_firmware(dispatch.artifact.instructions());
            let stream = stream.map_err(|error| DeviceError::Unsupported(format!("{}: {error}", what())))?;
            let place = PdiPlace { context, address: dispatch.slot as u64 };
            let completed = device.compiled.lock().run(place, dispatch.artifact, &stream, &arguments, Some(&allowed));
            let completed = completed.map_err(|reason| timeout(&reason))?;
            device.npu.charge_compute(completed.busy_ns, dispatch.bytes, completed.operations);
            for output in dispatch.results()?.into_iter().filter_map(Span::writable) {
                if fault == Some(CommandFault::Garbage) {
                    overwrite_with_nonsense(output);
                } else if is_zeroed {
                    output.fill(&[0]);
                }
            }
            return Ok(());
        }
    };
    let (outputs, expected) = (dispatch.outputs, kernel.output_count());
    let spans = dispatch.spans()?;
    if outputs != expected || expected > spans.len() {
        return Err(DeviceError::InvalidArgument(format!(
            "{}: {outputs} of {} arguments recorded as outputs, the kernel writes {expected}",
            what(),
            spans.len()
        )));
    }
    let (inputs, outputs) = spans.split_at(spans.len() - expected);
    let Some(outputs) = outputs.iter().map(|output| output.writable()).collect::<Option<Vec<_>>>() else {
        return Err(DeviceError::InvalidArgument(format!("{}: its output may only be read", what())));
    };
    let called = snapshots.call(inputs, &outputs, |inputs, outputs| {
        let result = run_guarded(&**kernel, inputs, outputs);
        if fault == Some(CommandFault::Garbage) {
            outputs.iter_mut().for_each(|output| fill_with_nonsense(output));
        } else if is_zeroed {
            outputs.iter_mut().for_each(|output| output.fill(0));
        }
        result.map_err(|e| DeviceError::Execution(format!("{}: {e}", what())))
    });
    called.unwrap_or_else(|| Err(DeviceError::InvalidArgument(format!("{}: its outputs overlap", what()))))
}

#[cfg(test)]
mod tests;
