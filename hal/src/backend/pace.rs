//! How much longer work takes on the NPU at hand than the arch file expects.
//!
//! Expectations count memory and operations of streams at the slow ends of what was measured, but on an idle NPU at a high clock,
//! and without what cores compute. At the lowest clock, or beside programs that share the array, the
//! same work takes several times as long, and kernel drivers end a job that takes too long. So before anything is known the pace
//! is a pessimistic one, and a chain that took longer still makes it worse. It does not become better: what was slow once can be
//! slow again, and short chains cost little.

use std::sync::atomic::{AtomicU64, Ordering};

/// Times as long as expected, before anything was measured: a clock of 400 MHz instead of 1,800, and half of the array's time.
/// Source of the clocks: the drivers' tables (`npu1_regs.c`, `npu4_regs.c`).
const INITIAL: u64 = 9;
/// No pace is worse: a machine that slept in the middle of a chain says nothing about the next one.
const WORST: u64 = 64;
/// Chains shorter than this share of what a kernel driver allows say nothing that matters.
const NOTEWORTHY: u64 = 4;

/// The pace of one NPU. Thread-safe.
#[derive(Debug)]
pub(crate) struct Pace {
    factor: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { factor: AtomicU64::new(INITIAL) }
    }
}

impl Pace {
    /// Whether a chain that is expected to take so long stays within half of `limit_ns`, after which the kernel driver ends it.
    pub(crate) fn fits(&self, expected_ns: u64, limit_ns: u64) -> bool {
        expected_ns <= self.most(limit_ns)
    }

    /// The longest expected time of a chain that does.
    pub(crate) fn most(&self, limit_ns: u64) -> u64 {
        limit_ns / 2 / self.factor.load(Ordering::Relaxed)
    }

    /// Why a dispatch that is expected to take so long cannot run at all, if that is so on an NPU nothing is known of. What others took
    /// does not count: one chain that was held up must not keep dispatches from running that did so before.
    pub(crate) fn rejects(expected_ns: u64, limit_ns: u64) -> Option<String> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        (expected_ns.saturating_mul(INITIAL) > limit_ns).then(|| {
            format!(
                "a dispatch that takes {:.1} s on an idle NPU and {INITIAL} times as long on a slow one, where kernel drivers end what \
                 takes {:.1} s; divide the operation, for example by a smaller batch (llama.cpp's -ub)",
                seconds(expected_ns),
                seconds(limit_ns)
            )
        })
    }

    /// Notes that a chain which was expected to take so long took `took_ns`.
    pub(crate) fn note(&self, expected_ns: u64, took_ns: u64, limit_ns: u64) {
        if expected_ns == 0 || took_ns < limit_ns / NOTEWORTHY {
            return;
        }
        // A longer one than expected at this pace; rounded up.
        self.factor.fetch_max(took_ns.div_ceil(expected_ns).min(WORST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const SECOND: u64 = 1_000_000_000;
    const LIMIT: u64 = 2 * SECOND;

    /// The longest chain of dispatches of `each` ns on an NPU that takes `slowness` times as long as expected.
    fn longest(slowness: u64, each: u64) -> u64 {
        let (pace, mut longest) = (Pace::default(), 0);
        for _ in 0..20 {
            let mut expected = each;
            while pace.fits(expected + each, LIMIT) {
                expected += each;
            }
            let took = expected * slowness;
            pace.note(expected, took, LIMIT);
            longest = longest.max(took);
        }
        longest
    }

    #[rstest]
    #[case::as_expected(1)]
    #[case::lowest_clock(5)]
    #[case::twelve_times(12)]
    fn no_chain_reaches_the_limit(#[case] slowness: u64) {
        for each in [50_000, 3_000_000, 40_000_000] {
            let longest = longest(slowness, each);
            assert!(longest < LIMIT, "{each} ns: {longest}");
        }
    }

    #[test]
    fn what_was_measured_shortens_chains() {
        let pace = Pace::default();
        assert!(pace.fits(100_000_000, LIMIT));
        pace.note(100_000_000, 1_200_000_000, LIMIT);
        assert!(!pace.fits(100_000_000, LIMIT) && pace.fits(80_000_000, LIMIT));
        // Short ones are mostly what surrounds them.
        pace.note(1_000, 1_000_000, LIMIT);
        assert!(pace.fits(80_000_000, LIMIT));
    }

    #[test]
    fn a_dispatch_that_cannot_end_in_time_is_rejected_with_the_reason() {
        assert_eq!(Pace::rejects(220_000_000, LIMIT), None);
        let reason = Pace::rejects(300_000_000, LIMIT).unwrap();
        assert!(reason.contains("0.3 s") && reason.contains("-ub"), "{reason}");
    }
}
