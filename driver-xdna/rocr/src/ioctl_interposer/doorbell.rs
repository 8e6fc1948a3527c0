//! A doorbell in progress: the command buffers ROCR gets, what is filled in before the kernel sees them, and how it ends.

use aie_driver_xdna::accel::call_error::CallError;
use aie_driver_xdna::accel::command_buffer::{CommandBuffer, UNTOUCHED};
use aie_driver_xdna::accel::completion::{Submitted, WaitMethod};
use aie_driver_xdna::accel::context::HardwareContext;
use aie_driver_xdna::accel::device::ChainError;
use aie_driver_xdna::accel::node::Node;
use aie_driver_xdna::agent::Chain;
use amdxdna_sys::ert::{self, chain, opcode, start_cu};
use amdxdna_sys::{Request, RequestCode, amdxdna_drm_exec_cmd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Command buffers for the doorbells of one session. What is left in it when it is dropped stays with the kernel driver.
#[derive(Debug)]
pub(crate) struct CommandBuffers {
    node: Arc<Node>,
    pub(super) free: Vec<CommandBuffer>,
    /// Those that the device may still read, with the context it may read them in.
    pub(super) held: Vec<(HardwareContext, CommandBuffer)>,
}

impl CommandBuffers {
    /// None yet.
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, free: Vec::new(), held: Vec::new() }
    }

    pub(super) fn node(&self) -> Arc<Node> {
        Arc::clone(&self.node)
    }

    /// Makes sure that a doorbell with `commands` commands finds its command buffers.
    pub(crate) fn reserve(&mut self, commands: usize) -> Result<(), CallError> {
        while self.free.len() < commands + 1 {
            self.free.push(CommandBuffer::create(&self.node)?);
        }
        Ok(())
    }

    /// Takes so many that were reserved.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<CommandBuffer>> {
        let first = self.free.len().checked_sub(count)?;
        Some(self.free.drain(first..).collect())
    }

    /// Puts some back. With a context the device may still read them there.
    pub(crate) fn put_back(&mut self, context: Option<HardwareContext>, buffers: Vec<CommandBuffer>) {
        match context {
            Some(context) => self.held.extend(buffers.into_iter().map(|buffer| (context, buffer))),
            None => self.free.extend(buffers),
        }
    }

    /// Whether the device may still read some of these in `context`.
    pub(crate) fn is_held(&self, context: HardwareContext) -> bool {
        self.held.iter().any(|(of, _)| *of == context)
    }

    /// Whether the device may still read some of these in any context.
    pub(crate) fn any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The kernel driver has ended what ran in `context`: nothing reads its buffers any more.
    pub(crate) fn context_is_gone(&mut self, context: HardwareContext) {
        self.free.extend(self.held.extract_if(.., |(of, _)| *of == context).map(|(_, buffer)| buffer));
    }

    /// Closes them, except those that the device may still read.
    pub(crate) fn release(&mut self) {
        self.free.clear();
    }
}

impl Drop for CommandBuffers {
    fn drop(&mut self) {
        // ROCR may have closed the node, whose descriptor may be another file's now.
        let held = self.held.drain(..).map(|(_, buffer)| buffer);
        self.free.drain(..).chain(held).for_each(CommandBuffer::leak);
    }
}

/// A doorbell in progress.
pub(super) struct Ringing {
    pub(super) node: Arc<Node>,
    pub(super) buffers: Vec<CommandBuffer>,
    /// How many ROCR has taken. They are taken and asked about one after the other.
    pub(super) taken: usize,
    /// The context to run in; `None` in a trial dispatch, which reaches no device.
    pub(super) context: Option<(HardwareContext, WaitMethod)>,
    /// The commands as they are to reach the kernel driver: ROCR leaves parts of them out, and has addresses of the process for others.
    pub(super) dispatches: Chain,
    pub(super) limit: Duration,
    /// When the chain was submitted.
    pub(super) since: Instant,
    /// Its number in the context and the handle of the chain's buffer, while the device may work on it.
    pub(super) running: Option<(u64, u64)>,
    pub(super) executed: bool,
    pub(super) waited: bool,
    /// First thing that went wrong.
    pub(super) problem: Option<ChainError>,
}

impl Ringing {
    pub(super) fn problem(&mut self, problem: ChainError) {
        self.problem.get_or_insert(problem);
    }

    pub(super) fn find(&self, handle: u64) -> Option<&CommandBuffer> {
        self.buffers.iter().find(|buffer| u64::from(buffer.handle()) == handle)
    }

    /// Checks that ROCR made what is expected of it, and writes the commands as they are to be.
    fn complete(&self, request: &amdxdna_drm_exec_cmd) -> Result<(), String> {
        if request.cmd_count != 1 {
            return Err(format!("EXEC_CMD with {} commands, expected 1 chain", request.cmd_count));
        }
        let list = self.find(request.cmd_handles).ok_or("EXEC_CMD of a buffer that is not a command buffer")?;
        let opcode = ert::opcode_of(list.words().get(0));
        if opcode != opcode::CMD_CHAIN {
            return Err(format!("a command with opcode {opcode}, expected a chain"));
        }
        let count = list.words().get(chain::COMMAND_COUNT) as usize;
        if count != self.dispatches.packets.len() {
            return Err(format!("a chain of {count} commands, expected {}", self.dispatches.packets.len()));
        }
        for (index, packet) in self.dispatches.packets.iter().enumerate() {
            let at = chain::HANDLES + 2 * index;
            let handle = u64::from(list.words().get(at)) | u64::from(list.words().get(at + 1)) << 32;
            let command = self.find(handle).ok_or_else(|| format!("command {index} is in an unknown buffer"))?;
            // One entry of ROCR's list: the first, or a later one in a process that has had sessions before.
            let units = command.words().get(start_cu::CU_MASK);
            if !units.is_power_of_two() {
                return Err(format!("command {index} names compute units {units:#x}"));
            }
            command.words().write_dispatch(packet, self.dispatches.arguments_of(packet));
        }
        list.words().set(chain::ERROR_INDEX, UNTOUCHED);
        Ok(())
    }

    /// Submits the chain of ROCR's `request`, whose structure may be longer than this crate's.
    pub(super) fn execute(&mut self, code: RequestCode, request: &mut amdxdna_drm_exec_cmd) {
        self.executed = true;
        if let Err(reason) = self.complete(request) {
            return self.problem(ChainError::Unexpected(reason));
        }
        let Some((context, _)) = self.context else { return };
        request.hwctx = context.handle;
        let argument = (&raw mut *request).cast();
        // SAFETY: it is ROCR's structure for this very request.
        match unsafe { self.node.raw_request(amdxdna_drm_exec_cmd::NAME, code, argument) } {
            Ok(()) => {
                self.running = Some((request.seq, request.cmd_handles));
                self.since = Instant::now();
            }
            Err(cause) => self.problem(ChainError::Call(cause)),
        }
    }

    /// Waits as long as the limit allows, and reads the states.
    pub(super) fn wait(&mut self) {
        self.waited = true;
        let (Some((context, method)), Some((sequence, handle))) = (self.context, self.running) else { return };
        if let Err(cause) = method.wait(&self.node, Submitted { context, sequence }, self.limit) {
            return self.problem(cause.into());
        }
        self.running = None;
        let Some(list) = self.find(handle) else { return };
        if let Err(cause) = list.words().outcome(self.dispatches.packets.len(), self.since.elapsed()) {
            self.problem(cause);
        }
    }
}
