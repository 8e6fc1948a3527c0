//! Planned failures: what goes wrong, and at which occurrence.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A pool has no memory. Counts allocations.
    Allocate,
    /// A queue cannot be made. Counts queue creations.
    Queue,
    /// A packet never signals, and the watchdog ends it. Counts packets.
    Timeout,
    /// A packet is aborted. Counts packets.
    Abort,
    /// A packet completes, with nonsense in its output. Counts packets.
    Garbage,
    /// Storing to a doorbell does not return. Counts doorbells with packets.
    Hang,
}

const KINDS: [(&str, FaultKind); 6] = [
    ("allocate", FaultKind::Allocate),
    ("queue", FaultKind::Queue),
    ("timeout", FaultKind::Timeout),
    ("abort", FaultKind::Abort),
    ("garbage", FaultKind::Garbage),
    ("hang", FaultKind::Hang),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    kind: FaultKind,
    first: u64,
    count: u64,
}

/// Faults, written as `KIND@N` or `KIND@N:COUNT`, several joined by `+`: `timeout@3+allocate@1:2`. They hit the occurrences
/// `N` to `N + COUNT - 1`, counted from 1 over all agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

fn fault(text: &str) -> Option<Fault> {
    let (kind, place) = text.trim().split_once('@')?;
    let (first, count) = place.split_once(':').unwrap_or((place, "1"));
    let (_, kind) = KINDS.iter().find(|(name, _)| *name == kind)?;
    let (first, count) = (first.parse().ok()?, count.parse().ok()?);
    (first > 0).then_some(Fault { kind: *kind, first, count })
}

impl FromStr for FaultPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split('+').filter(|part| !part.trim().is_empty());
        let faults = parts.map(|part| {
            fault(part).ok_or_else(|| {
                let known: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
                format!(
                    "`{part}` is no fault: expected KIND@N or KIND@N:COUNT with N from 1; kinds: {}",
                    known.join(", ")
                )
            })
        });
        Ok(Self { faults: faults.collect::<Result<_, _>>()? })
    }
}

/// A plan with the occurrences so far. Thread-safe.
#[derive(Debug, Default)]
pub struct Faults {
    plan: FaultPlan,
    allocations: AtomicU64,
    queues: AtomicU64,
    packets: AtomicU64,
    doorbells: AtomicU64,
}

impl Faults {
    /// Starts counting.
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    fn at(&self, counter: &AtomicU64, kinds: &[FaultKind]) -> Option<FaultKind> {
        let occurrence = counter.fetch_add(1, Ordering::Relaxed) + 1;
        let hits = |f: &&Fault| kinds.contains(&f.kind) && occurrence >= f.first && occurrence - f.first < f.count;
        self.plan.faults.iter().find(hits).map(|f| f.kind)
    }

    /// An allocation happens; whether it fails.
    pub fn allocation(&self) -> bool {
        self.at(&self.allocations, &[FaultKind::Allocate]).is_some()
    }

    /// A queue is made; whether that fails.
    pub fn queue(&self) -> bool {
        self.at(&self.queues, &[FaultKind::Queue]).is_some()
    }

    /// A packet runs; what goes wrong.
    pub fn packet(&self) -> Option<FaultKind> {
        self.at(&self.packets, &[FaultKind::Timeout, FaultKind::Abort, FaultKind::Garbage])
    }

    /// A doorbell is rung; whether it hangs.
    pub fn doorbell(&self) -> bool {
        self.at(&self.doorbells, &[FaultKind::Hang]).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hit_the_planned_occurrences_only() {
        let faults = Faults::new("timeout@2+abort@4:2+allocate@1".parse().unwrap());
        let packets: Vec<_> = (0..6).map(|_| faults.packet()).collect();
        let (timeout, abort) = (Some(FaultKind::Timeout), Some(FaultKind::Abort));
        assert_eq!(packets, [None, timeout, None, abort, abort, None]);
        assert_eq!([faults.allocation(), faults.allocation()], [true, false]);
        assert!(!faults.queue() && !faults.doorbell());
    }

    #[test]
    fn plans_that_mean_nothing_are_refused() {
        for text in ["timeout", "timeout@0", "timeout@x", "fire@1", "timeout@1:y"] {
            let error = text.parse::<FaultPlan>().unwrap_err();
            assert!(error.contains(text) && error.contains("timeout, abort"), "{error}");
        }
        assert_eq!("".parse(), Ok(FaultPlan::default()));
    }
}
