//! Fault plans: commands and messages that fail at chosen occurrences.
//!
//! Faults of commands, and how occurrences are written, are those of [`aie_driver_mock::npu::fault_plan`]; the firmware has no answer for
//! `abort`. With `async@N` the device reports an asynchronous error before it answers for the N-th command. `MESSAGE@N=S` lets the
//! firmware answer the N-th message of a kind with the status S before anything is done, `MESSAGE@N=silent` not at all. The names of
//! messages are those of the kernel driver without `MSG_OP_`: `CREATE_CONTEXT@3=0x2000003`.

use crate::message::Kind;
use aie_driver_mock::npu::fault_plan::{self, CommandFault, FaultPlanError, number};

/// What can be planned beside faults of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device reports an asynchronous error with a command.
    Asynchronous,
    /// A message of this name is answered with this status, and nothing is done; `None`: it is not answered.
    Message(&'static str, Option<u32>),
}

/// The faults of a run.
pub type FaultPlan = fault_plan::FaultPlan<Fault>;

const ASYNCHRONOUS: &str = "async";
const SILENT: &str = "silent";

/// Reads a plan.
///
/// # Errors
/// Which entry cannot be read and what an entry looks like.
pub fn parse(text: &str) -> Result<FaultPlan, FaultPlanError> {
    let forms = format!("{ASYNCHRONOUS}@N, MESSAGE@N=S, MESSAGE@N={SILENT}");
    let plan = FaultPlan::parse(text, &forms, |name, outcome| {
        if (name, outcome) == (ASYNCHRONOUS, None) {
            return Ok(Fault::Asynchronous);
        }
        let kind = Kind::by_name(name).ok_or_else(|| format!("unknown message {name}"))?;
        match outcome.ok_or("the answer is missing")? {
            SILENT => Ok(Fault::Message(kind.name, None)),
            status => {
                let status = number(status).ok_or_else(|| format!("`{status}` is not a status"))?;
                Ok(Fault::Message(kind.name, Some(status)))
            }
        }
    })?;
    if plan.commands().any(|fault| fault == CommandFault::Abort) {
        return Err("`abort`: the firmware has no such answer; an entry is status=S@N instead".into());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn messages_get_the_planned_answer() {
        let plan = parse("async@5,CREATE_CONTEXT@2=0x2000003,SUSPEND@*=silent").unwrap();
        let planned = |at| plan.other(at, |fault| Some(*fault));
        assert_eq!(planned(2), Some(Fault::Message("CREATE_CONTEXT", Some(0x0200_0003))));
        assert_eq!((planned(5), planned(99)), (Some(Fault::Asynchronous), Some(Fault::Message("SUSPEND", None))));
    }

    #[rstest]
    #[case("SUSPEND@1", "the answer is missing")]
    #[case("SUSPEND@1=often", "`often` is not a status")]
    #[case("PING@1=1", "unknown message PING")]
    #[case("abort@1", "status=S")]
    fn mistakes_are_reported(#[case] text: &str, #[case] expected: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("an entry is"), "{error}");
    }
}
