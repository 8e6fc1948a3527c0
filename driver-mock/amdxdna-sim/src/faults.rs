//! Fault plans: kernel calls and commands that fail at chosen occurrences.
//!
//! A plan is a comma list. `CALL@N=ERRNO` lets the N-th occurrence of a call fail, counted from 1 in this process, before it
//! has any effect; `CALL@N-M=ERRNO` a range and `CALL@*=ERRNO` every one. The names of calls are those of the report.
//! `timeout@N`, `abort@N`, `garbage@N`, `lost@N` and `status=S@N` (ranges and `*` too) hit commands, counted in the order they start:
//!
//! | kind | what happens |
//! |---|---|
//! | `timeout` | the command never signals; the watchdog ends it |
//! | `abort` | the firmware gives up on the whole chain, whose state becomes ABORT |
//! | `garbage` | completes, with garbage in its output |
//! | `lost` | the device is gone: every later ioctl gives ENODEV |
//! | `status=S` | the firmware answers with status S, a number such as `0x1000004` |

use crate::errno::Errno;
pub use aie_driver_mock::npu::command_fault::CommandFault;
use aie_driver_mock::npu::command_fault::occurrences;
use std::ops::RangeInclusive;

/// Calls that can fail besides the ioctls of the accel node.
pub const OTHER_CALLS: &[&str] = &["OPEN_ACCEL", "OPEN_KFD", "MMAP", "MUNMAP", "CLOSE"];

/// The faults of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    calls: Vec<(String, RangeInclusive<u64>, Errno)>,
    commands: Vec<(CommandFault, RangeInclusive<u64>)>,
}

impl FaultPlan {
    /// Reads a plan. `known` tells which calls there are.
    ///
    /// # Errors
    /// Which entry cannot be read and what an entry looks like.
    pub fn parse(text: &str, known: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut plan = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let wrong = |why: String| {
                format!(
                    "`{entry}`: {why}; an entry is CALL@N=ERRNO, CALL@N-M=ERRNO, CALL@*=ERRNO, or one of timeout@N, abort@N, \
                     garbage@N, lost@N, status=S@N, with N from 1"
                )
            };
            let (name, rest) = entry.split_once('@').ok_or_else(|| wrong("it has no @".into()))?;
            let (when, errno) = rest.split_once('=').map_or((rest, None), |(when, errno)| (when, Some(errno)));
            let when = occurrences(when).ok_or_else(|| wrong(format!("`{when}` is no occurrence")))?;
            let command = CommandFault::parse(name).map_err(&wrong)?;
            match (command, errno) {
                (Some(fault), None) => plan.commands.push((fault, when)),
                (Some(_), Some(_)) => return Err(wrong("a fault of a command has no error code".into())),
                (None, _) if !known(name) => return Err(wrong(format!("no call is named {name}"))),
                (None, None) => return Err(wrong("the error code is missing".into())),
                (None, Some(errno)) => {
                    let code = Errno::by_name(errno).ok_or_else(|| wrong(format!("{errno} is no error code")))?;
                    plan.calls.push((name.to_owned(), when, code));
                }
            }
        }
        Ok(plan)
    }

    /// The error of the `occurrence`-th call named `name`, counted from 1.
    pub fn call(&self, name: &str, occurrence: u64) -> Option<Errno> {
        let hit = self.calls.iter().find(|(call, when, _)| call == name && when.contains(&occurrence));
        hit.map(|(_, _, errno)| *errno)
    }

    /// The fault of the `occurrence`-th command, counted from 1.
    pub fn command(&self, occurrence: u64) -> Option<CommandFault> {
        self.commands.iter().find(|(_, when)| when.contains(&occurrence)).map(|(fault, _)| *fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parse(text: &str) -> Result<FaultPlan, String> {
        FaultPlan::parse(text, |name| matches!(name, "CREATE_BO" | "MMAP"))
    }

    #[test]
    fn plans_hit_what_they_name() {
        let plan = parse("CREATE_BO@3=ENOMEM, MMAP@2-4=EINVAL,timeout@5,lost@7-8,MMAP@9=EBUSY").unwrap();
        assert_eq!(plan.call("CREATE_BO", 3), Some(Errno::ENOMEM));
        assert_eq!(plan.call("CREATE_BO", 4), None);
        assert_eq!(plan.call("MMAP", 4), Some(Errno::EINVAL));
        assert_eq!(plan.call("MMAP", 9), Some(Errno::EBUSY));
        assert_eq!(plan.command(5), Some(CommandFault::Timeout));
        assert_eq!(plan.command(8), Some(CommandFault::Lost));
        assert_eq!(plan.command(9), None);
        let plan = parse("status=0x1000004@2,status=5@3-4").unwrap();
        let found: Vec<_> = (1..=4).map(|occurrence| plan.command(occurrence)).collect();
        let (access, other) = (Some(CommandFault::Status(0x0100_0004)), Some(CommandFault::Status(5)));
        assert_eq!(found, [None, access, other, other]);
        assert_eq!(parse("MMAP@*=ENOMEM").unwrap().call("MMAP", 1_000_000), Some(Errno::ENOMEM));
        assert_eq!(parse("").unwrap(), FaultPlan::default());
    }

    #[rstest]
    #[case("CREATE_BO", "has no @")]
    #[case("CREATE_BO@0=ENOMEM", "`0` is no occurrence")]
    #[case("CREATE_BO@3-2=ENOMEM", "`3-2` is no occurrence")]
    #[case("CREATE_BO@1", "error code is missing")]
    #[case("CREATE_BO@1=ESPIPE2", "ESPIPE2 is no error code")]
    #[case("CRATE_BO@1=ENOMEM", "no call is named CRATE_BO")]
    #[case("timeout@1=ENOMEM", "has no error code")]
    #[case("status=0@1", "the status is not a number above 0")]
    #[case("status=high@1", "the status is not a number above 0")]
    fn mistakes_are_told(#[case] text: &str, #[case] expected: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected) && error.contains("an entry is"), "{error}");
    }
}
