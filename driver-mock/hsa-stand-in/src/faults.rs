//! Planned faults: those of commands, as the other simulated devices have them ([`fault_plan`]), with an occurrence counted for each
//! packet over all agents, and three of this library:
//!
//! | fault | occurrence counted | what happens |
//! |---|---|---|
//! | `allocate` | allocations | a pool has no memory |
//! | `queue` | queue creations | a queue cannot be made |
//! | `hang` | doorbells with packets | storing to the doorbell does not return |

use aie_driver_mock::npu::fault_plan::{self, FaultCounter, FaultPlanError};

/// What can go wrong beside commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
pub fn parse(text: &str) -> Result<FaultPlan, FaultPlanError> {
    FaultPlan::parse(text, "allocate@N, queue@N, hang@N", |name, outcome| match (name, outcome) {
        ("allocate", None) => Ok(LibraryFault::Allocate),
        ("queue", None) => Ok(LibraryFault::Queue),
        ("hang", None) => Ok(LibraryFault::Hang),
        _ => Err("no such fault".into()),
    })
}

/// A plan with the occurrences so far. Thread-safe.
pub type Faults = FaultCounter<LibraryFault>;

#[cfg(test)]
mod tests {
    use super::*;
    use aie_driver_mock::npu::fault_plan::CommandFault;

    #[test]
    fn faults_hit_the_planned_occurrences_only() {
        let faults = Faults::new(parse("timeout@2,abort@4-5,allocate@1").unwrap());
        let packets: Vec<_> = (0..6).map(|_| faults.command()).collect();
        let (timeout, abort) = (Some(CommandFault::Timeout), Some(CommandFault::Abort));
        assert_eq!(packets, [None, timeout, None, abort, abort, None]);
        assert_eq!([(); 2].map(|()| faults.hits(LibraryFault::Allocate)), [true, false]);
        assert!(!faults.hits(LibraryFault::Queue) && !faults.hits(LibraryFault::Hang));
        let error = parse("fire@1").unwrap_err().to_string();
        assert!(error.contains("fire@1") && error.contains("allocate@N"), "{error}");
    }
}
