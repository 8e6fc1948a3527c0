//! Settings that there are no more, and what to do without them.

/// A name that was a setting once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The name.
    pub name: &'static str,
    /// What to know instead; it completes "NAME has no effect any more: ...".
    pub instead: &'static str,
}

/// Why there is no helper process.
pub const NO_HELPER: &str =
    "AMD's runtime is always in this process (docs/rocr.md says what can still end the process)";

/// All of them.
pub const REMOVED: [Removed; 2] = [
    Removed { name: "GGML_HSA_ISOLATE", instead: NO_HELPER },
    Removed { name: "AIE_HAL_RUNTIME_HOST", instead: NO_HELPER },
];

/// The removed setting called `name`.
pub(super) fn find(name: &str) -> Option<&'static Removed> {
    REMOVED.iter().find(|removed| removed.name == name)
}
