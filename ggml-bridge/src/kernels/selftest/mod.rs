//! The self-test of native kernels on this machine's NPU.
//!
//! No table and no emulator can show all that silicon does. So on an NPU a family of native kernels is used only after it has
//! computed a few small nodes right there ([`aie_jit_native::kit::Case`] has them). That takes milliseconds, happens when the first
//! kernel of the family is wanted, and is remembered for this NPU, firmware, driver and library:
//!
//! Whether memory that a program imports is what the array reads is tested in the same way, before models are used where they are
//! mapped; and before all families, whether hardware loops repeat.
//!
//! - [`subject`]: what is tested.
//! - [`trial`]: runs its nodes on a device that is opened for it alone, with a time limit.
//! - [`dispatch`]: one kernel with the bytes of its arguments, for trials and for tools.
//! - [`record`]: the file that remembers outcomes, and trials that never ended.
//! - [`npu`]: the NPU and everything else that an outcome depends on.
//! - [`tester`]: a trial with its record, for the library and for `ggml-hsa selftest`.
//! - `mapped_file`: memory as a model is in.
//! - [`gate`]: tells the kernel store which families may be used, and the user, once, which may not; the same for imports.

pub mod dispatch;
pub mod gate;
mod mapped_file;
pub mod npu;
pub mod record;
pub mod subject;
pub mod tester;
pub mod trial;

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a trial showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every result is right.
    Right,
    /// A result is wrong.
    Wrong {
        /// The node.
        case: String,
        /// How far it is off.
        how: String,
    },
    /// It did not end in time, or the NPU was lost.
    Hung {
        /// The node.
        case: String,
        /// What was seen.
        how: String,
    },
    /// The NPU ended it with an error.
    Failed {
        /// The node.
        case: String,
        /// The error.
        how: String,
    },
    /// It has begun. Left over where the program or the machine died meanwhile.
    Begun,
}

impl Outcome {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong { .. } => "wrong",
            Self::Hung { .. } => "hung",
            Self::Failed { .. } => "failed",
            Self::Begun => "interrupted",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("all results are right"),
            Self::Wrong { case, how } | Self::Hung { case, how } | Self::Failed { case, how } => {
                write!(f, "{case}: {how}")
            }
            Self::Begun => f.write_str("a self-test of it never came to its end"),
        }
    }
}

#[cfg(test)]
mod tests;
