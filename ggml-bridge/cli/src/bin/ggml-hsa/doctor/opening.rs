//! What became of a device that a run would open.

use aie_hal::error::Remedy;

/// What became of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// llama.cpp gets it.
    Offered {
        /// Its URI.
        uri: String,
        /// Why it uses a copy of a model, if it does not use the model where llama.cpp has mapped it.
        copied: Option<String>,
    },
    /// It works, and has no kernels.
    Idle {
        /// Its URI.
        uri: String,
        /// What was tried.
        reason: String,
        /// Whether the library has kernels for it, which the settings leave out.
        has_unused: bool,
    },
    /// It cannot be opened.
    Rejected {
        /// The URI that was requested.
        uri: String,
        /// Why.
        reason: String,
        /// What would open it, where that is known.
        remedy: Option<Remedy>,
    },
}
