//! Instruction streams that are made when their dispatch is packed: see [`crate::stream_maker`].

use super::{Run, Stop};
use crate::artifact::KernelArtifact;
use crate::backend::objects::{BufferRange, buffer_range};
use crate::backend::touched::Touched;
use crate::backend::{DeviceBackend, LoadedKernel};
use crate::command_list::BufferRef;
use crate::error::DeviceError;
use crate::submission_queue::InFlight;
use std::ops::Range;

impl<'a, B: DeviceBackend> Run<'a, B> {
    /// The kernel with its stream, and what that touches if its instructions say it, of a dispatch whose kernel makes one for the data at
    /// hand. Chains that write this data end before.
    pub(super) fn made_stream(
        &mut self,
        index: usize,
        submission: &'a InFlight,
        position: usize,
        kernel: &'a LoadedKernel<B>,
        (bindings, outputs): (&'a [BufferRef], usize),
    ) -> Result<Option<(KernelArtifact, Option<Touched>)>, Stop> {
        let Some(maker) = kernel.artifact.stream_maker() else { return Ok(None) };
        let (device, name) = (self.device, kernel.artifact.name());
        let failed = |why: String| DeviceError::Execution(format!("stream of `{name}` (command {position}): {why}"));
        let range = |reference| buffer_range(device, submission.bindings(), position, reference);
        let arguments: Vec<BufferRange<'a, B>> =
            bindings.iter().map(range).collect::<Result<_, _>>().map_err(Self::stop(index))?;
        let addresses: Vec<Range<u64>> = arguments.iter().map(BufferRange::device_range).collect();
        let mut read = Vec::new();
        for argument in maker.reads() {
            let missing =
                || failed(format!("its stream depends on argument {argument}, but there are {}", arguments.len()));
            read.push(arguments.get(*argument).ok_or_else(missing).map_err(Self::stop(index))?);
        }
        let shown: Vec<Range<u64>> = read.iter().map(|range| range.device_range()).collect();
        if self.scratch.chain.conflicts(&shown, &[]) || self.neighbours.write(&shown) {
            self.send()?;
        }
        for _ in 0..self.scratch.in_flight.last_conflict(&shown, &[]) {
            self.wait_for_oldest()?;
        }
        let bytes = |range: &&BufferRange<'a, B>| -> Result<Vec<u8>, DeviceError> {
            let BufferRange { buffer, offset, length } = **range;
            if !device.state().info.coherent {
                let invalidated = device.invalidate_written(&buffer.memory, range.offsets());
                device.state().count(|counters| counters.bytes_invalidated += invalidated);
            }
            let mut bytes = vec![0; length];
            buffer.span(offset, length)?.read(&mut bytes);
            Ok(bytes)
        };
        let data: Vec<Vec<u8>> = read.iter().map(bytes).collect::<Result<_, _>>().map_err(Self::stop(index))?;
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let made = maker.make(&slices).map_err(|why| why.to_string());
        let made = made.and_then(|stream| kernel.artifact.with_instructions(stream).map_err(|why| why.to_string()));
        let made = made.and_then(|artifact| touched(&artifact, &addresses, outputs).map(|touched| (artifact, touched)));
        made.map(Some).map_err(failed).map_err(Self::stop(index))
    }
}

/// What the instructions touch of the arguments at these device addresses, of which the last `outputs` are outputs. None for
/// kernels that only describe themselves, whose instructions need not say it.
fn touched(kernel: &KernelArtifact, arguments: &[Range<u64>], outputs: usize) -> Result<Option<Touched>, String> {
    let count = arguments.len();
    if kernel.argument_count() > count {
        return Err(format!("it uses {} arguments, the dispatch has {count}", kernel.argument_count()));
    }
    if kernel.is_description() {
        return Ok(None);
    }
    let extents = kernel.argument_extents().map_err(|why| format!("what it touches: {why}"))?;
    let inputs = &arguments[..count.saturating_sub(outputs)];
    let mut touched = Touched { reads: inputs.to_vec(), ..Touched::default() };
    for (index, (extent, argument)) in extents.iter().zip(arguments).enumerate() {
        let length = argument.end - argument.start;
        for (what, found) in [("reads", &extent.read), ("writes", &extent.written)] {
            let Some(found) = found else { continue };
            if found.range.end > length {
                return Err(format!(
                    "it {what} up to byte {} of argument {index}, which has {length}",
                    found.range.end
                ));
            }
            touched.traffic = touched.traffic.and(found.moved);
        }
        let Some(written) = &extent.written else { continue };
        if index < inputs.len() {
            return Err(format!("it writes argument {index}, which is an input"));
        }
        touched.writes.push(argument.start + written.range.start..argument.start + written.range.end);
    }
    Ok(Some(touched))
}

#[cfg(test)]
mod tests;
