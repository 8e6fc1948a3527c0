//! Fault plans: failures at a chosen occurrence, so that a caller's error paths can be tested.
//!
//! A plan is written as `KIND@N` or `KIND@N:COUNT`, several joined by `+`: `fault=timeout@3+alloc@1:2`. The fault hits the
//! occurrences `N` to `N + COUNT - 1`, counted from 1 since the device was opened; `COUNT` is 1 when it is left out.
//!
//! | kind | occurrence counted | what happens |
//! |---|---|---|
//! | `alloc` | buffer allocations | out of memory |
//! | `timeout` | dispatches | the dispatch never signals; the submission fails, the device stays |
//! | `lost` | dispatches | the device is lost for good |
//! | `garbage` | dispatches | completes, but the output is filled with garbage |
//! | `zero` | dispatches | completes, but the output is zeroed |
//! | `stale` | calls of `Buffer::flush` and `Buffer::invalidate` | silently does nothing (`coherent=false` only) |

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// An allocation fails.
    Alloc,
    /// A dispatch does not finish.
    Timeout,
    /// The device is lost at a dispatch.
    Lost,
    /// A dispatch leaves garbage in its output.
    Garbage,
    /// A dispatch leaves zeroes in its output.
    Zero,
    /// A flush or invalidate is ignored.
    Stale,
}

const KINDS: [(&str, FaultKind); 6] = [
    ("alloc", FaultKind::Alloc),
    ("timeout", FaultKind::Timeout),
    ("lost", FaultKind::Lost),
    ("garbage", FaultKind::Garbage),
    ("zero", FaultKind::Zero),
    ("stale", FaultKind::Stale),
];

/// What the value of `fault` looks like, for error messages.
pub const ACCEPTED: &str = "KIND@N or KIND@N:COUNT, several joined by `+`; kinds: alloc, timeout, lost, garbage, zero, stale; \
                            N counts from 1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    kind: FaultKind,
    first: u64,
    count: u64,
}

impl Fault {
    fn hits(&self, occurrence: u64) -> bool {
        occurrence >= self.first && occurrence - self.first < self.count
    }
}

/// The faults of one device, without state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// Whether a fault of `kind` is planned at all.
    pub fn contains(&self, kind: FaultKind) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }

    fn hits(&self, kinds: &[FaultKind], occurrence: u64) -> Option<FaultKind> {
        self.faults.iter().find(|f| kinds.contains(&f.kind) && f.hits(occurrence)).map(|f| f.kind)
    }
}

impl FromStr for FaultPlan {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parse = |item: &str| {
            let (name, when) = item.split_once('@')?;
            let (_, kind) = KINDS.iter().find(|(known, _)| *known == name)?;
            let (first, count) = when.split_once(':').unwrap_or((when, "1"));
            let (first, count) = (first.parse().ok()?, count.parse().ok()?);
            (first > 0 && count > 0).then_some(Fault { kind: *kind, first, count })
        };
        let faults = text.split('+').map(parse).collect::<Option<Vec<_>>>().ok_or(())?;
        Ok(Self { faults })
    }
}

/// A plan with its counters. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct FaultState {
    plan: FaultPlan,
    allocations: AtomicU64,
    dispatches: AtomicU64,
    syncs: AtomicU64,
}

impl FaultState {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Counts one allocation; whether it has to fail.
    pub(crate) fn allocation(&self) -> bool {
        self.next(&self.allocations, &[FaultKind::Alloc]).is_some()
    }

    /// Counts one dispatch; what happens to it.
    pub(crate) fn dispatch(&self) -> Option<FaultKind> {
        use FaultKind::{Garbage, Lost, Timeout, Zero};
        self.next(&self.dispatches, &[Lost, Timeout, Garbage, Zero])
    }

    /// Counts one flush or invalidate; whether it is ignored.
    pub(crate) fn sync(&self) -> bool {
        self.next(&self.syncs, &[FaultKind::Stale]).is_some()
    }

    fn next(&self, counter: &AtomicU64, kinds: &[FaultKind]) -> Option<FaultKind> {
        if self.plan.faults.is_empty() {
            return None;
        }
        self.plan.hits(kinds, counter.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn hits_exactly_the_named_occurrences() {
        let state = FaultState::new("alloc@2:2+zero@3+lost@5+stale@1".parse().unwrap());
        assert_eq!([(); 5].map(|()| state.allocation()), [false, true, true, false, false]);
        let dispatches = [(); 5].map(|()| state.dispatch());
        assert_eq!(dispatches, [None, None, Some(FaultKind::Zero), None, Some(FaultKind::Lost)]);
        assert_eq!([(); 3].map(|()| state.sync()), [true, false, false]);
    }

    #[rstest]
    #[case("")]
    #[case("alloc")]
    #[case("alloc@")]
    #[case("alloc@0")]
    #[case("alloc@1:0")]
    #[case("alloc@1:")]
    #[case("alloc@-1")]
    #[case("melt@1")]
    #[case("alloc@1+")]
    #[case("alloc@1,zero@1")]
    fn refuses(#[case] text: &str) {
        assert_eq!(text.parse::<FaultPlan>(), Err(()));
    }

    #[test]
    fn the_last_occurrence_does_not_overflow() {
        let state = FaultState::new("timeout@1:18446744073709551615".parse().unwrap());
        assert_eq!(state.dispatch(), Some(FaultKind::Timeout));
    }
}
