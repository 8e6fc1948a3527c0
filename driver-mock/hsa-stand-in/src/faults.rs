//! Planned faults: those of commands, as the other simulated devices have them ([`fault_plan`]), with an occurrence counted for each
//! packet over all agents, and three of this library:
//!
//! | fault | occurrence counted | what happens |
//! |---|---|---|
//! | `allocate` | allocations | a pool has no memory |
//! | `queue` | queue creations | a queue cannot be made |
//! | `hang` | doorbells with packets | storing to the doorbell does not return |

use aie_driver_mock::npu::fault_plan::{self, CommandFault};
use std::sync::atomic::{AtomicU64, Ordering};

/// What can go wrong beside commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryFault {
    /// A pool has no memory.
    Allocate,
    /// A queue cannot be made.
    Queue,
    /// Storing to a doorbell does not return.
    Hang,
}

/// The faults of a process.
pub type FaultPlan = fault_plan::FaultPlan<LibraryFault>;

/// Reads a plan.
///
/// # Errors
/// Which entry cannot be read and what an entry looks like.
pub fn parse(text: &str) -> Result<FaultPlan, String> {
    FaultPlan::parse(text, "allocate@N, queue@N, hang@N", |name, outcome| match (name, outcome) {
        ("allocate", None) => Ok(LibraryFault::Allocate),
        ("queue", None) => Ok(LibraryFault::Queue),
        ("hang", None) => Ok(LibraryFault::Hang),
        _ => Err("no such fault".into()),
    })
}

/// A plan with the occurrences so far. Thread-safe.
#[derive(Debug, Default)]
pub struct Faults {
    plan: FaultPlan,
    packets: AtomicU64,
    /// By [`LibraryFault`].
    others: [AtomicU64; 3],
}

impl Faults {
    /// Starts counting.
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Counts one more of what `fault` can happen to; whether it does.
    pub fn hits(&self, fault: LibraryFault) -> bool {
        let occurrence = self.others[fault as usize].fetch_add(1, Ordering::Relaxed) + 1;
        self.plan.other(occurrence, |planned| (*planned == fault).then_some(())).is_some()
    }

    /// A packet runs; what goes wrong.
    pub fn packet(&self) -> Option<CommandFault> {
        self.plan.command(self.packets.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hit_the_planned_occurrences_only() {
        let faults = Faults::new(parse("timeout@2,abort@4-5,allocate@1").unwrap());
        let packets: Vec<_> = (0..6).map(|_| faults.packet()).collect();
        let (timeout, abort) = (Some(CommandFault::Timeout), Some(CommandFault::Abort));
        assert_eq!(packets, [None, timeout, None, abort, abort, None]);
        assert_eq!([(); 2].map(|()| faults.hits(LibraryFault::Allocate)), [true, false]);
        assert!(!faults.hits(LibraryFault::Queue) && !faults.hits(LibraryFault::Hang));
        let error = parse("fire@1").unwrap_err();
        assert!(error.contains("fire@1") && error.contains("allocate@N"), "{error}");
    }
}
