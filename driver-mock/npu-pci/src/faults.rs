//! Fault plans: commands and messages that fail at chosen occurrences.
//!
//! A plan is a comma list. `timeout@N`, `garbage@N`, `lost@N` and `status=S@N` hit the N-th command, counted from 1 in the order in
//! which the array starts them, as in the plans of `amdxdna-sim`; `async@N` lets the device report an asynchronous error before it answers
//! for that command. `MESSAGE@N=S` lets the firmware answer the N-th message of a kind with the status S before anything is done,
//! `MESSAGE@N=silent` not at all. `N-M` is a range, `*` all. The names of messages are those of the kernel driver without
//! `MSG_OP_`: `CREATE_CONTEXT@3=0x2000003`.

use crate::message::Kind;
use aie_driver_mock::npu::command_fault::{CommandFault, number, occurrences};
use std::ops::RangeInclusive;

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFault {
    /// It is answered with this status, and nothing is done.
    Status(u32),
    /// It is not answered.
    Silent,
}

/// The faults of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    commands: Vec<(CommandFault, RangeInclusive<u64>)>,
    asynchronous: Vec<RangeInclusive<u64>>,
    messages: Vec<(&'static str, RangeInclusive<u64>, MessageFault)>,
}

const ASYNCHRONOUS: &str = "async";
const SILENT: &str = "silent";

impl FaultPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Which entry cannot be read and what an entry looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            plan.add(entry).map_err(|why| {
                format!(
                    "`{entry}`: {why}; an entry is timeout@N, garbage@N, lost@N, status=S@N, {ASYNCHRONOUS}@N, MESSAGE@N=S or \
                     MESSAGE@N={SILENT}, with N from 1, N-M or *"
                )
            })?;
        }
        Ok(plan)
    }

    fn add(&mut self, entry: &str) -> Result<(), String> {
        let (name, rest) = entry.split_once('@').ok_or("it has no @")?;
        let (when, outcome) = rest.split_once('=').map_or((rest, None), |(when, outcome)| (when, Some(outcome)));
        let when = occurrences(when).ok_or_else(|| format!("`{when}` is no occurrence"))?;
        match (CommandFault::parse(name)?, outcome) {
            (Some(CommandFault::Abort), _) => return Err("firmware has no such answer; use status=S".into()),
            (Some(fault), None) => self.commands.push((fault, when)),
            (Some(_), Some(_)) => return Err("a fault of a command has no answer".into()),
            (None, None) if name == ASYNCHRONOUS => self.asynchronous.push(when),
            (None, outcome) => {
                let kind = Kind::by_name(name).ok_or_else(|| format!("no message is named {name}"))?;
                let fault = match outcome {
                    None => return Err("the answer is missing".into()),
                    Some(SILENT) => MessageFault::Silent,
                    Some(status) => {
                        MessageFault::Status(number(status).ok_or_else(|| format!("`{status}` is no status"))?)
                    }
                };
                self.messages.push((kind.name, when, fault));
            }
        }
        Ok(())
    }

    /// The fault of the `occurrence`-th command.
    pub fn command(&self, occurrence: u64) -> Option<CommandFault> {
        self.commands.iter().find(|(_, when)| when.contains(&occurrence)).map(|(fault, _)| *fault)
    }

    /// Whether the device reports an asynchronous error with the `occurrence`-th command.
    pub fn is_asynchronous(&self, occurrence: u64) -> bool {
        self.asynchronous.iter().any(|when| when.contains(&occurrence))
    }

    /// What happens to the `occurrence`-th message of a kind.
    pub fn message(&self, name: &str, occurrence: u64) -> Option<MessageFault> {
        let hit = self.messages.iter().find(|(message, when, _)| *message == name && when.contains(&occurrence));
        hit.map(|(_, _, fault)| *fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn plans_hit_what_they_name() {
        let plan =
            FaultPlan::parse("timeout@2, status=0x1000004@3-4,async@5,CREATE_CONTEXT@2=0x2000003,SUSPEND@*=silent");
        let plan = plan.unwrap();
        assert_eq!(
            [1, 2, 4].map(|n| plan.command(n)),
            [None, Some(CommandFault::Timeout), Some(CommandFault::Status(0x0100_0004))]
        );
        assert_eq!((plan.is_asynchronous(5), plan.is_asynchronous(6)), (true, false));
        assert_eq!(plan.message("CREATE_CONTEXT", 2), Some(MessageFault::Status(0x0200_0003)));
        assert_eq!(plan.message("CREATE_CONTEXT", 1), None);
        assert_eq!(plan.message("SUSPEND", 99), Some(MessageFault::Silent));
        assert_eq!(FaultPlan::parse("").unwrap(), FaultPlan::default());
    }

    #[rstest]
    #[case("SUSPEND", "it has no @")]
    #[case("SUSPEND@0=1", "`0` is no occurrence")]
    #[case("SUSPEND@1", "the answer is missing")]
    #[case("SUSPEND@1=often", "`often` is no status")]
    #[case("PING@1=1", "no message is named PING")]
    #[case("timeout@1=1", "has no answer")]
    #[case("abort@1", "use status=S")]
    #[case("status=0@1", "the status is not a number above 0")]
    fn mistakes_are_told(#[case] text: &str, #[case] expected: &str) {
        let error = FaultPlan::parse(text).unwrap_err();
        assert!(error.contains(expected) && error.contains("an entry is"), "{error}");
    }
}
