//! The process that made an object.
//!
//! A child that continues after `fork` without `exec` has copies of everything its parent had, but not the parent's threads, and what the
//! kernel holds for an open device is shared between both. A copy that released it would release the parent's, and one that waited for a
//! thread or for a lock that another thread held would wait for ever. So objects with threads or kernel resources remember who made
//! them, and in any other process they end without doing anything.

use std::process;

/// A process, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwningProcess(u32);

impl OwningProcess {
    /// The process that calls this.
    #[must_use]
    pub fn current() -> Self {
        Self(process::id())
    }

    /// Whether this is the process that calls; `false` in a child of it.
    #[must_use]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Its number, for messages.
    #[must_use]
    pub fn id(self) -> u32 {
        self.0
    }
}
