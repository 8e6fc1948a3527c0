//! Watching processes from outside, for tests that must leave none behind.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// A script that starts [`CHILDREN_COUNT`] processes in the background, which stay: in the group of its shell, in other groups and sessions, with
/// and without a parent, and deaf to signals.
pub const CHILDREN: &str = "sleep 1000 >/dev/null 2>&1 &
setsid sh -c 'sleep 1000 & (setsid sleep 1000 &) & wait' >/dev/null 2>&1 &
(setsid sh -c '(sleep 1000 &)' >/dev/null 2>&1 &)
sh -c 'trap \"\" TERM HUP INT; sleep 1000 & wait' &
";

/// See [`CHILDREN`].
pub const CHILDREN_COUNT: usize = 7;

/// Running processes with `variable` (`NAME=VALUE`) in their environment.
pub fn marked(variable: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let pid = entry.unwrap().file_name().into_string().unwrap();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // Ends with the process; empty for one that has ended but is not reaped.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "timed out waiting: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
