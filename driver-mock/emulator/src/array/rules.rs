//! What the array makes of what silicon does not forgive. The default stops with an error that names the fault; where it is known
//! what silicon does instead, silently, a setting does that.

use crate::core::{Jumps, Loops, Undefined};
use aie_hal::arch::Delays;

/// How an array behaves where programs break rules, and what differs between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// Lock values outside of 0 to 63.
    pub lock_values: LockValues,
    /// Jumps of AIE2P to addresses that are not multiples of 16.
    pub jumps: Jumps,
    /// Zero-overhead loops.
    pub loops: Loops,
    /// Memory and registers of cores that nothing has written.
    pub undefined: Undefined,
    /// Completion tokens that an instruction stream asks for and does not wait for.
    pub left_tokens: LeftTokens,
    /// The seed of an order of events, another than the one of all runs without a seed.
    pub interleaving: Option<u64>,
    /// What takes time besides bundles and words; of ranges the expected values. It changes the clock and nothing else.
    pub delays: Delays,
    /// Cycles that the command processor takes for an operation of a stream, a block write as many times as it is
    /// [charged](aie_hal::format::instructions::Instruction::charge). Words move meanwhile. It changes the clock and nothing else.
    pub operation_cycles: u64,
    /// Cycles in which each shim channel reads 1,024 words of host memory, where memory gives less than a word a cycle. It changes the
    /// clock and nothing else.
    pub read_cycles: u64,
}

/// What becomes of tokens that are there, or still to come, when an instruction stream is at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftTokens {
    /// An error: the next stream that waits for a token of the channel would take one of them, and go on too early.
    #[default]
    Reject,
    /// They stay, as on silicon.
    Keep,
}

/// What becomes of a lock value above 63: an initial one, or the sum of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockValues {
    /// An error.
    #[default]
    Reject,
    /// The low six bits, without a word: seen on silicon for initial values, not measured for releases.
    Truncate,
}

/// Values that a lock can have.
const RANGE: std::ops::RangeInclusive<i32> = 0..=63;

impl LockValues {
    /// What a lock holds that is to become `value`; None if that is an error.
    pub(super) fn hold(self, value: i32) -> Option<i32> {
        match self {
            _ if RANGE.contains(&value) => Some(value),
            Self::Truncate if value > 63 => Some(value & 0x3f),
            Self::Reject | Self::Truncate => None,
        }
    }
}
