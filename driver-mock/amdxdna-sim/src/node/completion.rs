//! What the end of a job writes into its command BOs; the kernels differ in it.

use super::bo::Bo;
use super::chain::{self, Submission};
use super::device::Device;
use crate::kernel::{FailedChain, Overdue, Profile};
use amdxdna_sys::ert::{opcode, state};
use std::sync::Arc;

/// Words of the health report: version, generation (0 is aie2), the transaction's operation, and what the firmware knew.
const HEALTH: [u32; 8] = [1, 0, u32::MAX, 0, 0, 0, 0, 0];

pub(super) struct CompletionWriter<'a> {
    profile: &'a Profile,
    /// Whether the firmware says how the context is.
    has_health: bool,
    submission: &'a Submission,
}

impl<'a> CompletionWriter<'a> {
    pub(super) fn new(device: &'a Device, submission: &'a Submission) -> Self {
        let has_health = device.profile.overdue != Overdue::TimeoutInFirst || device.model.reports_health;
        Self { profile: &device.profile, has_health, submission }
    }

    fn bo(&self) -> &Bo {
        &self.submission.chain
    }

    fn is_chain(&self) -> bool {
        chain::opcode(self.bo()) == opcode::CMD_CHAIN
    }

    /// The command at `index` of a chain, or the command itself.
    fn command(&self, index: usize) -> Option<Arc<Bo>> {
        if self.is_chain() { self.submission.command(index) } else { Some(self.submission.chain.clone()) }
    }

    /// Writes the failed command's index; 0 for one that cannot be.
    fn set_error_index(&self, index: usize) {
        if self.is_chain() {
            let index = if index < chain::command_count(self.bo()) { index } else { 0 };
            chain::set_error_index(self.bo(), index);
        }
    }

    /// Fills the first command with ones, as newer kernels do with every error.
    fn fill_first(&self) {
        if let Some(first) = self.command(0) {
            chain::payload_offsets(&first).for_each(|offset| first.set_word(offset, u32::MAX));
        }
    }

    /// The firmware has begun.
    pub(super) fn started(&self) {
        chain::set_state(self.bo(), state::NEW);
    }

    pub(super) fn completed(&self) {
        chain::set_state(self.bo(), state::COMPLETED);
    }

    /// The firmware answered with `status` for the command at `index`.
    pub(super) fn failed(&self, index: usize, status: u32) {
        let by_status = self.profile.failed_chain == FailedChain::StatusBits
            && (self.is_chain() || self.profile.single_in_chain_buffer);
        chain::set_state(self.bo(), if by_status { status } else { state::ERROR });
        self.set_error_index(index);
        if self.profile.failed_chain == FailedChain::ErrorAndOnes {
            self.fill_first();
        }
    }

    /// The firmware or the kernel gave up without naming a command.
    pub(super) fn aborted(&self) {
        chain::set_state(self.bo(), state::ABORT);
        if self.profile.failed_chain == FailedChain::ErrorAndOnes {
            self.set_error_index(0);
            self.fill_first();
        }
    }

    /// The job took too long, with the command at `index`.
    pub(super) fn overdue(&self, index: usize) {
        let report = |command: Option<Arc<Bo>>, is_state: bool| {
            let Some(command) = command else { return };
            if is_state {
                chain::set_state(&command, state::TIMEOUT);
            }
            chain::payload_offsets(&command).zip(HEALTH).for_each(|(offset, word)| command.set_word(offset, word));
        };
        match self.profile.overdue {
            Overdue::Abort => self.aborted(),
            Overdue::TimeoutInCommand => {
                chain::set_state(self.bo(), state::TIMEOUT);
                self.set_error_index(index);
                report(self.command(index), true);
            }
            Overdue::TimeoutInFirst => {
                chain::set_state(self.bo(), state::TIMEOUT);
                self.set_error_index(if self.has_health { index } else { 0 });
                self.fill_first();
                report(self.command(0).filter(|_| self.has_health), false);
            }
        }
    }

    /// The job was behind one that took too long.
    pub(super) fn cancelled(&self) {
        if self.profile.overdue == Overdue::TimeoutInCommand && self.is_chain() {
            chain::set_state(self.bo(), state::TIMEOUT);
            self.set_error_index(0);
            if let Some(first) = self.command(0) {
                // There is one health report, and another command has it.
                chain::set_state(&first, state::ABORT);
            }
            return;
        }
        self.aborted();
    }
}
