//! Planned faults of a simulated device: commands that fail at chosen occurrences, and whatever else its interface has.
//!
//! A plan is a list of `FAULT@N`, joined by `,` or `+`, with N counted from 1, `N-M` for a range, `N:COUNT` for so many from N on, `*`
//! for all. Faults of commands are the same behind every interface, counted in the order in which the array starts them:
//!
//! | fault | what happens |
//! |---|---|
//! | `timeout` | the command never signals |
//! | `abort` | the firmware gives up on the whole chain |
//! | `garbage` | completes, with garbage in its output |
//! | `untouched` | completes, and has touched no memory, as when its addresses lead nowhere |
//! | `lost` | the device is gone |
//! | `status=S` | the firmware answers with status S, a number such as `0x1000004` |
//!
//! Others have an outcome, `FAULT@N=OUTCOME`, or not, as the interface says.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// What goes wrong with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// It never signals.
    Timeout,
    /// The firmware gives up.
    Abort,
    /// It completes with garbage.
    Garbage,
    /// It completes without having touched any memory: NPUs end dispatches so whose addresses lead nowhere.
    Untouched,
    /// The device is lost.
    Lost,
    /// The firmware answers with this status.
    Status(u32),
}

const NAMED: [(&str, CommandFault); 5] = [
    ("timeout", CommandFault::Timeout),
    ("abort", CommandFault::Abort),
    ("garbage", CommandFault::Garbage),
    ("untouched", CommandFault::Untouched),
    ("lost", CommandFault::Lost),
];

impl CommandFault {
    /// The fault that a plan names: `timeout`, `abort`, `garbage`, `untouched`, `lost`, `status=S`; `None` when it is another word.
    fn parse(name: &str) -> Result<Option<Self>, FaultPlanError> {
        let Some(status) = name.strip_prefix("status=") else {
            return Ok(NAMED.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault));
        };
        let status = number(status).filter(|status| *status != 0);
        status.map(|status| Some(Self::Status(status))).ok_or_else(|| "the status is not a number above 0".into())
    }
}

/// A plan cannot be read: which entry, why, and what an entry looks like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FaultPlanError(String);

impl<T: Into<String>> From<T> for FaultPlanError {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// Planned faults; `F` is what can be planned beside commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan<F> {
    commands: Vec<(CommandFault, RangeInclusive<u64>)>,
    others: Vec<(F, RangeInclusive<u64>)>,
}

impl<F> Default for FaultPlan<F> {
    fn default() -> Self {
        Self { commands: Vec::new(), others: Vec::new() }
    }
}

impl<F> FaultPlan<F> {
    /// Reads a plan. `other` reads what is not a fault of a command, from its name and its outcome; `forms` is what these look
    /// like, for messages.
    ///
    /// # Errors
    /// Which entry cannot be read and what an entry looks like.
    pub fn parse(
        text: &str,
        forms: &str,
        other: impl Fn(&str, Option<&str>) -> Result<F, FaultPlanError>,
    ) -> Result<Self, FaultPlanError> {
        let mut plan = Self::default();
        let entries = text.split([',', '+']).map(str::trim);
        for entry in entries.take_while(|_| !text.trim().is_empty()) {
            plan.add(entry, &other).map_err(|why| {
                format!(
                    "`{entry}`: {why}; an entry is timeout@N, abort@N, garbage@N, untouched@N, lost@N, status=S@N, {forms}, with \
                     N from 1, N-M, N:COUNT or *"
                )
            })?;
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        entry: &str,
        other: impl Fn(&str, Option<&str>) -> Result<F, FaultPlanError>,
    ) -> Result<(), FaultPlanError> {
        let (name, rest) = entry.split_once('@').ok_or("it has no @")?;
        let (when, outcome) = rest.split_once('=').map_or((rest, None), |(when, outcome)| (when, Some(outcome)));
        let when = occurrences(when).ok_or_else(|| format!("`{when}` is not an occurrence"))?;
        match (CommandFault::parse(name)?, outcome) {
            (Some(fault), None) => self.commands.push((fault, when)),
            (Some(_), Some(_)) => return Err("a fault of a command has no outcome".into()),
            (None, outcome) => self.others.push((other(name, outcome)?, when)),
        }
        Ok(())
    }

    /// The faults of commands.
    pub fn commands(&self) -> impl Iterator<Item = CommandFault> + '_ {
        self.commands.iter().map(|(fault, _)| *fault)
    }

    /// The other faults.
    pub fn others(&self) -> impl Iterator<Item = &F> {
        self.others.iter().map(|(fault, _)| fault)
    }

    /// The fault of the `occurrence`-th command, counted from 1.
    pub fn command(&self, occurrence: u64) -> Option<CommandFault> {
        self.commands.iter().find(|(_, when)| when.contains(&occurrence)).map(|(fault, _)| *fault)
    }

    /// What else is planned for the `occurrence`-th time that something happens: the first that `matching` accepts.
    pub fn other<R>(&self, occurrence: u64, matching: impl Fn(&F) -> Option<R>) -> Option<R> {
        self.others.iter().filter(|(_, when)| when.contains(&occurrence)).find_map(|(fault, _)| matching(fault))
    }
}

/// A plan with the occurrences so far. Thread-safe.
#[derive(Debug)]
pub struct FaultCounter<F> {
    plan: FaultPlan<F>,
    commands: AtomicU64,
    others: Mutex<HashMap<F, u64>>,
}

impl<F: Copy + Eq + Hash> FaultCounter<F> {
    /// Starts counting.
    pub fn new(plan: FaultPlan<F>) -> Self {
        Self { plan, commands: AtomicU64::new(0), others: Mutex::default() }
    }

    /// Counts a command; what goes wrong with it.
    pub fn command(&self) -> Option<CommandFault> {
        self.plan.command(self.commands.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Counts one more of what `fault` can happen to; whether it does.
    pub fn hits(&self, fault: F) -> bool {
        if self.plan.others.is_empty() {
            return false;
        }
        let mut others = self.others.lock();
        let occurrence = others.entry(fault).or_default();
        *occurrence += 1;
        self.plan.other(*occurrence, |planned| (*planned == fault).then_some(())).is_some()
    }
}

/// A number of 32 bits, decimal or with `0x`.
pub fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok())
}

/// Occurrences, counted from 1: `N`, `N-M`, `N:COUNT` or `*`.
fn occurrences(text: &str) -> Option<RangeInclusive<u64>> {
    if text == "*" {
        return Some(1..=u64::MAX);
    }
    let (first, last): (u64, u64) = if let Some((first, count)) = text.split_once(':') {
        let (first, count): (u64, u64) = (first.parse().ok()?, count.parse().ok()?);
        (first, first.saturating_add(count.checked_sub(1)?))
    } else {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        (first.parse().ok()?, last.parse().ok()?)
    };
    (first >= 1 && last >= first).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parse(text: &str) -> Result<FaultPlan<u8>, FaultPlanError> {
        FaultPlan::parse(text, "CALL@N=D", |name, outcome| match (name, outcome) {
            ("CALL", Some(digit)) => digit.parse().map_err(|_| format!("`{digit}` is no digit").into()),
            ("CALL", None) => Err("the digit is missing".into()),
            _ => Err(format!("unknown call {name}").into()),
        })
    }

    #[test]
    fn plans_hit_what_they_name() {
        let plan = parse("CALL@3=7, CALL@2-4=8,timeout@5,lost@7-8,status=0x1000004@9,status=5@10-11").unwrap();
        assert_eq!([2, 3, 4, 5].map(|at| plan.other(at, |fault| Some(*fault))), [Some(8), Some(7), Some(8), None]);
        assert_eq!(plan.other(3, |fault| (*fault > 7).then_some(*fault)), Some(8));
        let (access, other) = (Some(CommandFault::Status(0x0100_0004)), Some(CommandFault::Status(5)));
        let expected = [Some(CommandFault::Timeout), None, Some(CommandFault::Lost), access, other, other, None];
        assert_eq!([5, 6, 8, 9, 10, 11, 12].map(|at| plan.command(at)), expected);
        assert_eq!(parse("garbage@*").unwrap().command(1_000_000), Some(CommandFault::Garbage));
        assert_eq!(parse("").unwrap(), FaultPlan::default());
        // Counts, the other separator, and no overflow at the end.
        let plan = parse("timeout@2:2+lost@9:18446744073709551615").unwrap();
        let (timeout, lost) = (Some(CommandFault::Timeout), Some(CommandFault::Lost));
        assert_eq!([1, 2, 3, 4, 9, u64::MAX].map(|at| plan.command(at)), [None, timeout, timeout, None, lost, lost]);
    }

    #[rstest]
    #[case("CALL", "it has no @")]
    #[case("timeout@1+", "it has no @")]
    #[case("CALL@0=1", "`0` is not an occurrence")]
    #[case("CALL@=1", "`` is not an occurrence")]
    #[case("CALL@x=1", "`x` is not an occurrence")]
    #[case("CALL@-1=1", "`-1` is not an occurrence")]
    #[case("CALL@3-2=1", "`3-2` is not an occurrence")]
    #[case("CALL@1:0=1", "`1:0` is not an occurrence")]
    #[case("CALL@1:=1", "`1:` is not an occurrence")]
    #[case("CALL@0:2=1", "`0:2` is not an occurrence")]
    #[case("CALL@1", "the digit is missing")]
    #[case("CALL@1=x", "`x` is no digit")]
    #[case("PING@1=1", "unknown call PING")]
    #[case("timeout@1=1", "a fault of a command has no outcome")]
    #[case("status=0@1", "the status is not a number above 0")]
    #[case("status=high@1", "the status is not a number above 0")]
    fn mistakes_are_reported(#[case] text: &str, #[case] expected: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("an entry is") && error.contains("CALL@N=D"), "{error}");
    }
}
