//! Fault plans: failures at a chosen occurrence, so that a caller's error paths can be tested.
//!
//! The parameter `fault` of a URI is a plan as all simulated devices have it ([`npu::fault_plan`](crate::npu::fault_plan)):
//! `fault=timeout@3+alloc@1:2`. Occurrences are counted from 1 since the device was opened.
//!
//! | fault | occurrence counted | what happens |
//! |---|---|---|
//! | `alloc` | buffer allocations | out of memory |
//! | `timeout` | dispatches | the dispatch never signals; the submission fails, the device stays |
//! | `lost` | dispatches | the device is lost for good |
//! | `garbage` | dispatches | completes, but the output is filled with garbage |
//! | `untouched` | dispatches | completes, and has touched no memory, as when its addresses lead nowhere |
//! | `zero` | dispatches | completes, but the output is zeroed |
//! | `import` | imports | succeeds, but the buffer is other memory than the program's, all zeroes |
//! | `late` | calls of `Buffer::invalidate` | leaves the last 64 bytes of the range as they were (`coherent=false` only) |
//! | `stale` | calls of `Buffer::flush` and `Buffer::invalidate` | silently does nothing (`coherent=false` only) |

use crate::npu::fault_plan::{self, CommandFault, FaultPlanError};

/// What can go wrong beside commands that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// An allocation fails.
    Alloc,
    /// An import leads to other memory.
    Import,
    /// A dispatch leaves zeroes in its output.
    Zero,
    /// The last line of what an invalidate asks for is not there yet.
    Late,
    /// A flush or invalidate is ignored.
    Stale,
}

/// The faults of one device, without state.
pub type FaultPlan = fault_plan::FaultPlan<Fault>;

/// Reads a plan.
///
/// # Errors
/// Which entry cannot be read and what an entry looks like.
pub fn parse(text: &str) -> Result<FaultPlan, FaultPlanError> {
    if text.is_empty() {
        return Err("it is empty; an entry is for instance timeout@1".into());
    }
    let plan =
        FaultPlan::parse(text, "alloc@N, import@N, zero@N, late@N, stale@N", |name, outcome| match (name, outcome) {
            ("alloc", None) => Ok(Fault::Alloc),
            ("import", None) => Ok(Fault::Import),
            ("zero", None) => Ok(Fault::Zero),
            ("late", None) => Ok(Fault::Late),
            ("stale", None) => Ok(Fault::Stale),
            _ => Err("no such fault".into()),
        })?;
    if plan.commands().any(|fault| matches!(fault, CommandFault::Abort | CommandFault::Status(_))) {
        return Err("`abort` and `status` need a kernel driver in front of the device; there is none here".into());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npu::fault_plan::FaultCounter;
    use rstest::rstest;

    #[test]
    fn hits_exactly_the_named_occurrences() {
        let faults = FaultCounter::new(parse("alloc@2:2+zero@3+lost@5+stale@1").unwrap());
        assert_eq!([(); 5].map(|()| faults.hits(Fault::Alloc)), [false, true, true, false, false]);
        let dispatches = [(); 5].map(|()| (faults.command(), faults.hits(Fault::Zero)));
        let lost = (Some(CommandFault::Lost), false);
        assert_eq!(dispatches, [(None, false), (None, false), (None, true), (None, false), lost]);
        assert_eq!([(); 3].map(|()| faults.hits(Fault::Stale)), [true, false, false]);
    }

    #[rstest]
    #[case("", "it is empty")]
    #[case("melt@1", "no such fault")]
    #[case("alloc@1=5", "no such fault")]
    #[case("abort@1", "need a kernel driver")]
    #[case("status=5@1", "need a kernel driver")]
    fn rejects(#[case] text: &str, #[case] expected: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
