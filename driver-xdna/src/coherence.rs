//! Which memory the host may have stale copies of.
//!
//! An NPU does not look into the caches of the host. Where the runtime below leaves them to this driver
//! ([`Agent::caches`](crate::agent::Agent::caches)), these rules hold:
//!
//! - Every writer on the host writes the cache lines back before the next dispatch: programs with
//!   [`Buffer::flush`](aie_hal::Buffer::flush), the queue after each host command, the pools for memory that comes zeroed. So there are
//!   never lines that could later be written over what the NPU has written. Weights are written back once, when they are uploaded.
//! - What the NPU has written is noted here when its chain has ended. The lines are dropped before the host reads: by programs with
//!   [`Buffer::invalidate`](aie_hal::Buffer::invalidate), and by the queue before a host command, of what is noted and no more.

use parking_lot::Mutex;
use rangemap::RangeSet;
use std::ops::Range;

/// Device addresses that the NPU has written and the host has not invalidated since. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<RangeSet<u64>>);

impl Written {
    /// The NPU has written these.
    pub(crate) fn note<'r>(&self, ranges: impl Iterator<Item = &'r Range<u64>>) {
        let mut set = self.0.lock();
        ranges.filter(|range| !range.is_empty()).for_each(|range| set.insert(range.clone()));
    }

    /// The host has invalidated this range, or no one will read it again.
    pub(crate) fn forget(&self, range: Range<u64>) {
        if !range.is_empty() {
            self.0.lock().remove(range);
        }
    }

    /// What of `range` is to be invalidated now; `each` is called with offsets into the range. Afterwards it is forgotten.
    pub(crate) fn take(&self, range: &Range<u64>, mut each: impl FnMut(Range<usize>)) {
        if range.is_empty() {
            return;
        }
        let mut set = self.0.lock();
        let mut found = false;
        for stale in set.overlapping(range) {
            let (start, end) = (stale.start.max(range.start), stale.end.min(range.end));
            each((start - range.start) as usize..(end - range.start) as usize);
            found = true;
        }
        if found {
            set.remove(range.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(written: &Written, range: Range<u64>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        written.take(&range, |part| parts.push(part));
        parts
    }

    #[test]
    fn only_what_the_npu_wrote_is_invalidated_and_only_once() {
        let written = Written::default();
        written.note([100..200, 300..400, 7..7].iter());
        assert_eq!(taken(&written, 150..350), [0..50, 150..200]);
        assert_eq!(taken(&written, 150..350), []);
        assert_eq!(taken(&written, 0..1000), [100..150, 350..400]);
        assert_eq!(taken(&written, 5..5), []);
    }

    #[test]
    fn what_was_invalidated_by_others_is_forgotten() {
        let written = Written::default();
        written.note(std::iter::once(&(0..100)));
        written.forget(20..40);
        written.forget(3..3);
        assert_eq!(taken(&written, 0..100), [0..20, 40..100]);
    }
}
