//! Finds how the end of a chain can be waited for, with a kernel that configures nothing and has no instructions.

use super::call_error::CallError;
use super::command_buffer::CommandBuffer;
use super::completion::{Submitted, WaitError, WaitMethod};
use super::context::HardwareContext;
use super::device::ChainError;
use super::node::Node;
use crate::agent::{AgentError, Packet, PdiRef};
use aie_hal::error::Remedy;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::instructions::{Header, InstructionWriter};
use aie_hal::format::pdi;
use amdxdna_sys::recording::{READ, WRITE};
use std::time::{Duration, Instant};

/// How long the probe may take: contexts and firmware need tens of milliseconds, the kernel driver's watchdog two seconds.
pub const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// A kernel that does nothing.
pub struct NopKernel {
    /// Its PDI.
    pub pdi: Vec<u8>,
    /// Its instruction stream.
    pub instructions: Vec<u8>,
}

impl NopKernel {
    /// With a stream that starts with `header`.
    ///
    /// # Errors
    /// [`AgentError::Unsupported`] when it cannot be built.
    pub fn new(header: Header) -> Result<Self, AgentError> {
        let failed = |cause: String| {
            AgentError::Unsupported(format!("the kernel for the test dispatch cannot be built: {cause}"))
        };
        let pdi = pdi::write(CdoBuilder::new().nop(&[])).map_err(|cause| failed(cause.to_string()))?;
        let instructions = InstructionWriter::new(header).finish().map_err(|cause| failed(cause.to_string()))?;
        Ok(Self { pdi, instructions })
    }
}

/// Its dispatch with the instructions at this device address, in a context whose first PDI is the kernel's.
pub fn nop_packet(instructions: u64, instruction_bytes: usize) -> Packet {
    let pdi = PdiRef { address: 0, bytes: 0 };
    Packet { pdi_index: 0, pdi, instructions, instruction_bytes, arguments: (0, 0) }
}

/// Why the probe found nothing. The device may still work on the command buffers, until the context is destroyed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A kernel call failed.
    #[error("a test dispatch: {0}")]
    Call(#[source] CallError),
    /// It did not end.
    #[error("a test dispatch: {0}")]
    Wait(#[source] WaitError),
    /// No method works.
    #[error(
        "a test dispatch: this kernel has no way to wait for a command: {0}; Linux 6.14 and later have a timeline for \
         each context, AMD's own module has WAIT_CMD: update the kernel or that module"
    )]
    NoMethod(String),
}

impl ProbeError {
    /// The same as an error of opening the NPU, in these words.
    pub fn of_agent(&self, reason: String) -> AgentError {
        match self {
            Self::NoMethod(_) => AgentError::Unusable { reason, remedy: Remedy::NewerKernelDriver },
            Self::Call(_) | Self::Wait(_) => AgentError::Unsupported(reason),
        }
    }
}

/// What the probe found.
#[derive(Debug)]
pub struct Probed {
    /// The method that waited for the dispatch.
    pub wait_method: WaitMethod,
    /// Why it did not complete, if it did not.
    pub failure: Option<ChainError>,
}

/// Runs `packet`, of a [`NopKernel`] whose PDI is the first of `context`, and finds the method that waits for it.
///
/// # Errors
/// [`ProbeError`].
pub fn find_wait_method(
    node: &Node,
    context: HardwareContext,
    [command, chain]: [&CommandBuffer; 2],
    packet: &Packet,
    limit: Duration,
) -> Result<Probed, ProbeError> {
    command.words().write_dispatch(packet, &[]);
    chain.words().write_chain([command.handle()].into_iter());
    [command, chain].into_iter().for_each(|buffer| buffer.note(node, WRITE));
    let since = Instant::now();
    let sequence = chain.submit(node, context, &[]).map_err(ProbeError::Call)?;
    let submitted = Submitted { context, sequence };
    let mut tried = Vec::new();
    for method in [WaitMethod::Timeline, WaitMethod::WaitCmd] {
        if method == WaitMethod::Timeline && context.timeline == 0 {
            tried.push("the context has no timeline".to_owned());
            continue;
        }
        match method.wait(node, submitted, limit) {
            Ok(()) => {
                chain.note(node, READ);
                let failure = chain.words().outcome(1, since.elapsed()).err();
                return Ok(Probed { wait_method: method, failure });
            }
            Err(WaitError::Missing(cause)) => tried.push(cause.to_string()),
            Err(cause) => return Err(ProbeError::Wait(cause)),
        }
    }
    Err(ProbeError::NoMethod(tried.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accel::command_buffer::{UNTOUCHED, Words};
    use amdxdna_sys::ert::{self, chain, start_cu};
    use std::ptr::NonNull;
    use std::sync::Arc;

    #[test]
    fn the_dispatch_is_written_before_it_is_submitted() {
        // A node that is none rejects the submission.
        let node = Arc::new(Node::borrowed(-1));
        let [command, list] = [1, 2].map(|handle| {
            let page = NonNull::from(Box::leak(Box::new([u32::MAX; Words::COUNT]))).cast();
            // SAFETY: the page was just leaked.
            unsafe { CommandBuffer::of_test_memory(&node, handle, 0, page) }
        });
        let packet = nop_packet(0x400_0000, 16);
        let context = HardwareContext { handle: 5, timeline: 9 };
        let error = find_wait_method(&node, context, [&command, &list], &packet, PROBE_LIMIT).unwrap_err();
        assert!(error.to_string().starts_with("a test dispatch: EXEC_CMD: "), "{error}");
        let (command_words, words) = (command.words(), list.words());
        assert_eq!((ert::count_of(command_words.get(0)), command_words.get(start_cu::CU_MASK)), (7, 1));
        assert_eq!([2, 3, 4, 5, 6, 7].map(|index| command_words.get(index)), [3, 0, 0x400_0000, 0, 4, 0]);
        assert_eq!((ert::count_of(words.get(0)), words.get(chain::ERROR_INDEX)), (8, UNTOUCHED));
        assert_eq!(words.get(chain::HANDLES), command.handle());
    }
}
