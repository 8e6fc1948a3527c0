//! Which way of waiting this kernel has, found out when an agent is opened.
//!
//! A context's timeline shows by itself: the kernel answers questions about it. WAIT_CMD does not: kernels that lack it answer as
//! others do to a submission they do not know. So without a timeline a kernel is run that configures nothing and
//! has no instructions, and waited for. How it ends does not matter.

use super::doorbell::UNTOUCHED;
use super::wait::is_missing;
use super::{CommandBuffers, Gate, HardwareContext, Problem, Way};
use amdxdna_sys::ert::{self, chain, opcode, start_cu};
use amdxdna_sys::{AMDXDNA_CMD_SUBMIT_EXEC_BUF, Request, amdxdna_drm_exec_cmd, amdxdna_drm_wait_cmd};
use std::time::Duration;

/// Words of the payload of a command without arguments, padded.
const PAYLOAD_WORDS: u32 = 6;

impl Gate {
    /// How submissions of `context` can be waited for. Its first PDI is one that does nothing, and `words` instructions that do
    /// nothing are at the device address `instructions`. [`Gate::reserve`] has been called for one command.
    ///
    /// # Errors
    /// What was tried. As with [`Gate::ring`] the context is then to be destroyed.
    pub fn way_to_wait(
        &self,
        buffers: &mut CommandBuffers,
        context: HardwareContext,
        instructions: u64,
        words: u32,
        limit: Duration,
    ) -> Result<Way, String> {
        let Err(no_timeline) = self.has_timeline(context) else { return Ok(Way::Timeline) };
        let (Some(command), Some(list)) = (buffers.free.pop(), buffers.free.pop()) else {
            return Err("command buffers were not reserved".into());
        };
        command.set_word(0, ert::header(opcode::START_CU, PAYLOAD_WORDS + 1));
        command.set_word(start_cu::CU_MASK, 1);
        let payload = [ert::TRANSACTION, 0, instructions as u32, (instructions >> 32) as u32, words, 0];
        (start_cu::PAYLOAD..).zip(payload).for_each(|(index, word)| command.set_word(index, word));
        list.set_word(0, ert::header(opcode::CMD_CHAIN, chain::FIXED_WORDS as u32 + 2));
        (chain::COMMAND_COUNT..chain::HANDLES).for_each(|index| list.set_word(index, 0));
        list.set_word(chain::COMMAND_COUNT, 1);
        list.set_word(chain::ERROR_INDEX, UNTOUCHED);
        list.set_word(chain::HANDLES, command.handle);
        list.set_word(chain::HANDLES + 1, 0);
        let mut execute = amdxdna_drm_exec_cmd {
            hwctx: context.handle,
            type_: AMDXDNA_CMD_SUBMIT_EXEC_BUF,
            cmd_handles: list.handle.into(),
            cmd_count: 1,
            ..Default::default()
        };
        let submitted = self.request(&mut execute);
        buffers.held.extend([command, list].map(|buffer| (context.handle, buffer)));
        submitted.map_err(|cause| format!("{}: {cause}", amdxdna_drm_exec_cmd::NAME))?;
        match self.wait(Way::WaitCmd, context, execute.seq, limit) {
            Ok(()) => Ok(Way::WaitCmd),
            Err(Problem::Call { name, errno }) if is_missing(errno) => Err(format!(
                "this kernel has no way to wait for a command: {no_timeline}; {}; Linux 6.14 and later have a timeline for each \
                 context, AMD's own module has {}: update the kernel or that module",
                Problem::Call { name, errno },
                amdxdna_drm_wait_cmd::NAME
            )),
            Err(problem) => Err(format!("a dispatch that does nothing: {problem}")),
        }
    }
}
