//! What happened when, for programs that draw timelines.
//!
//! A slice is an event of `tracing` with the target [`TARGET`], at the level `TRACE`: recorded when it ends, with its begin. Without a
//! subscriber that enables the target a slice costs one comparison. There is no other connection between what emits slices (the
//! executor, the kernel store, users of the HAL) and what writes them.
//!
//! Fields: `track`, what the slice is shown on; `name`; `begin` and `end`, nanoseconds of [`now`]; `detail`, text that may be empty.
//! Slices of a track follow each other or lie within each other.

use std::sync::OnceLock;
use std::time::Instant;
use tracing::Level;

/// The target of the events.
pub const TARGET: &str = "aie_hal::timeline";

/// Nanoseconds since this was first called in the process. Thread-safe; never goes back.
pub fn now() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    u64::try_from(EPOCH.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a subscriber wants slices.
pub fn is_on() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

/// When something begins; `None` when nothing is recorded.
pub fn begin() -> Option<u64> {
    is_on().then(now)
}

/// Records a slice on `track` that began when [`begin`] was called and ends now. Nothing happens for `None`.
pub fn end(track: &str, name: &str, begin: Option<u64>, detail: impl FnOnce() -> String) {
    if let Some(begin) = begin {
        slice(track, name, begin, now(), &detail());
    }
}

/// Records a slice between two times of [`now`].
pub fn slice(track: &str, name: &str, begin: u64, end: u64, detail: &str) {
    tracing::event!(target: TARGET, Level::TRACE, track, name, begin, end, detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_subscriber_nothing_is_noted() {
        assert!(!is_on());
        assert_eq!(begin(), None);
        end("track", "name", None, || panic!("not called"));
        assert!(now() <= now());
    }
}
